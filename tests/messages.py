#!/usr/bin/env python3
"""All texts that a user can see, with their codes.

    python tests/messages.py [--code CODE] [--kind KIND] [PATH...]

The table is read from the syntax trees of the product, so that it needs no maintenance. A text is a string of at least
two words that is not a docstring. Its kind is the innermost construction around it:

* ``problem``: an argument of an error, of ``Problem`` or of a function with a parameter ``code``.
* ``help``: the help of an option, or the docstring of a command.
* ``field``: the docstring of a configuration, report or properties field, which schemas and pages show.
* ``text``: any other text, such as a status line, an event, or a part of a message that a function returns.

An expression in an f-string is printed in braces: ``{path}: mode is {mode}``.
"""

import argparse
import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("bundles", "foundation", "hiera", "puller")

_WORDS = re.compile(r"\{[^}]*\}\W? (?:[a-z]{2,}\b|\()|[A-Za-z]{2,}\W? (?:[a-z(]{2,}|\{)|[a-z]{2,} [A-Za-z]+")
"""Two words of a sentence, or a word and a value. Names, paths and formats have none."""
_CODE = re.compile(
    r"\b(?:SELECT|CREATE|INSERT|DELETE|UPDATE|ALTER|PRAGMA)\b|</|\(\?|\\[dwsb]|</?\w+>|[|^$]\)"
)
"""Marks of a statement, a pattern or a markup."""
_FIELDS_SHOWN = re.compile(r"(?:Properties|Configuration|Settings|Report|Event)\b")
_ERROR = re.compile(r"(?:Error|Failure|Refused|Failed|Problem|Mismatch|Finding|Warning|Exception)\b")


class Text(NamedTuple):
    """One text of the product."""

    path: str
    line: int
    kind: str
    code: str
    """The code of a problem, if the construction or its class names one."""
    field: str
    """The argument: ``message``, ``hint``, ``help``. Empty for a positional argument."""
    text: str


@cache
def texts() -> list[Text]:
    """Return the texts of all packages, in the order of modules and lines."""
    modules = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    codes = codes_of_classes(modules.values())
    return [text for name, module in modules.items() for text in texts_of(module, name, codes)]


def texts_of(module: ast.Module, name: str, codes: Mapping[str, str]) -> Iterator[Text]:
    """Yield the texts of a module. ``codes`` has the default code of each class of errors."""
    yield from _Reader(name, codes).visit(module, _Around())


def codes_of_classes(modules: Iterable[ast.Module]) -> dict[str, str]:
    """Return the code of each class that has an attribute ``code``, its own or an inherited one."""
    codes: dict[str, str] = {}
    bases: dict[str, list[str]] = {}
    for node in (node for module in modules for node in module.body if isinstance(node, ast.ClassDef)):
        bases.setdefault(node.name, [_last_name(base) for base in node.bases])
        for code in filter(None, map(_assigned_code, node.body)):
            codes[node.name] = code
    return {name: code for name in bases if (code := _inherited(name, codes, bases))}


def _inherited(name: str, codes: Mapping[str, str], bases: Mapping[str, list[str]]) -> str:
    visited: set[str] = set()
    todo = [name]
    while todo:
        current = todo.pop(0)
        if current in codes:
            return codes[current]
        visited.add(current)
        todo += [base for base in bases.get(current, ()) if base not in visited]
    return ""


def _assigned_code(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and [_last_name(target) for target in node.targets] == ["code"]:
        return _code(node.value)
    if isinstance(node, ast.AnnAssign) and _last_name(node.target) == "code" and node.value is not None:
        return _code(node.value)
    return ""


def _code(node: ast.AST) -> str:
    """Return ``unknown-key`` for the expression ``ProblemCode.UNKNOWN_KEY``."""
    if isinstance(node, ast.IfExp):
        return _code(node.body)
    if isinstance(node, ast.Attribute) and _last_name(node.value) in ("ProblemCode", "_Code", "Code"):
        return node.attr.lower().replace("_", "-")
    return ""


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


class _Around(NamedTuple):
    """The innermost construction around a text."""

    kind: str = "text"
    code: str = ""
    field: str = ""


class _Reader:
    """Reads the texts of one module."""

    def __init__(self, name: str, codes: Mapping[str, str]) -> None:
        self._name = name
        self._codes = codes
        self._variables: dict[str, str] = {}
        """The codes in variables."""
        self._messages: dict[str, _Around] = {}
        """The problems of the current function that have the text of a variable."""

    def visit(self, node: ast.AST, around: _Around) -> Iterator[Text]:
        """Yield the texts in a node, in their order."""
        if isinstance(node, ast.Module | ast.FunctionDef):
            self._note_variables(node)
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        ):
            yield from self._text(node, around, _shown(node))
            for part in node.values if isinstance(node, ast.JoinedStr) else ():
                if isinstance(part, ast.FormattedValue):
                    yield from self.visit(part.value, around)
        elif isinstance(node, ast.Call):
            yield from self._call(node, around)
        else:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                around = self._messages.get(node.targets[0].id, around)
            yield from self._documented(node)
            for child in ast.iter_child_nodes(node):
                if not _is_docstring(child):
                    yield from self.visit(child, around)

    def _note_variables(self, scope: ast.Module | ast.FunctionDef) -> None:
        """Note the codes in variables, and the variables that problems are made of."""
        nodes = scope.body if isinstance(scope, ast.Module) else list(ast.walk(scope))
        for node in nodes:
            if isinstance(node, ast.Assign) and (code := _code(node.value)):
                self._variables.update({_last_name(target): code for target in node.targets})
        if isinstance(scope, ast.FunctionDef):
            self._messages = {}
            for call in (node for node in nodes if isinstance(node, ast.Call)):
                inner = self._around(call, _Around())
                values = [("", argument) for argument in call.args]
                values += [(keyword.arg or "", keyword.value) for keyword in call.keywords]
                for field, value in values if inner.kind == "problem" else ():
                    if isinstance(value, ast.Name):
                        self._messages.setdefault(value.id, inner._replace(field=field))

    def _around(self, node: ast.Call, around: _Around) -> _Around:
        name = _last_name(node.func)
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        code = next(filter(None, map(self._code_of, values)), "") or self._codes.get(name, "")
        if code or _ERROR.search(name):
            return _Around("problem", code or around.code)
        is_option = any(keyword.arg == "help" for keyword in node.keywords)
        return _Around("help") if is_option else around

    def _call(self, node: ast.Call, around: _Around) -> Iterator[Text]:
        inner = self._around(node, around)
        for argument in (node.func, *node.args):
            yield from self.visit(argument, inner)
        for keyword in node.keywords:
            yield from self.visit(keyword.value, inner._replace(field=keyword.arg or ""))

    def _code_of(self, node: ast.AST) -> str:
        return _code(node) or (self._variables.get(node.id, "") if isinstance(node, ast.Name) else "")

    def _documented(self, node: ast.AST) -> Iterator[Text]:
        """Yield the docstrings that users see."""
        if isinstance(node, ast.FunctionDef) and _is_command(node) and _is_docstring(node.body[0]):
            yield from self._docstring(node.body[0], _Around("help", field=node.name))
        if isinstance(node, ast.ClassDef) and _FIELDS_SHOWN.search(node.name):
            for field, docstring in pairwise(node.body):
                if isinstance(field, ast.AnnAssign) and _is_docstring(docstring):
                    yield from self._docstring(docstring, _Around("field", field=_last_name(field.target)))

    def _docstring(self, node: ast.stmt, around: _Around) -> Iterator[Text]:
        if isinstance(node, ast.Expr):
            yield from self._text(node.value, around, _shown(node.value))

    def _text(self, node: ast.expr, around: _Around, text: str) -> Iterator[Text]:
        text = " ".join(text.split())
        if _WORDS.search(text) and not _CODE.search(text):
            yield Text(self._name, node.lineno, around.kind, around.code, around.field, text)


def _shown(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    pieces = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(
        f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else _shown(part)
        for part in pieces
    )


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_command(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(decorator, ast.Call) and _last_name(decorator.func) in ("command", "group")
        for decorator in function.decorator_list
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Print all texts that a user can see.")
    parser.add_argument("paths", nargs="*", help="only the texts of these folders and files: puller/run")
    parser.add_argument("--code", help="only the texts of this code")
    parser.add_argument("--kind", choices=("problem", "help", "field", "text"))
    options = parser.parse_args()
    for text in texts():
        is_chosen = not options.paths or text.path.startswith(tuple(options.paths))
        if is_chosen and options.code in (None, text.code) and options.kind in (None, text.kind):
            field = f"{text.field} = " if text.field else ""
            print(f"{text.code or text.kind:24} {text.path}:{text.line}: {field}{text.text}")


if __name__ == "__main__":
    main()
