"""Loops: an entry with ``for`` is one resource for each item of a list or mapping, in the order of the data.

* ``for`` is ``name in EXPRESSION``, ``key, value in EXPRESSION``, or a list of these clauses. A clause can use the
  names of earlier clauses. It may end with ``if CONDITION``, which can also use the names of its own clause.
* A loop is evaluated once, when the manifest is read. If it cannot be evaluated on this machine, one failed resource
  represents all its items.
* The texts of an entry are resolved for each item. Their constant parts are resolved once.
* The names of a loop must not hide other names.
* All values of a secret list or mapping are secret.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, cast

import msgspec

from foundation.formatting import prefixed
from hiera.errors import HieraError
from hiera.expressions.expressions import (
    Constant,
    Expression,
    Lookup,
    Name,
    Scope,
    evaluate,
    has_expression,
    joined,
    parse,
)
from hiera.limits import total
from hiera.values import Secret, parse_path
from puller.bundle_paths import BundleFiles, BundlePathError
from puller.errors import ResourceError
from puller.templates.functions import bundle_functions
from puller.values.common_properties import Reference

FOR = "for"
_CLAUSE = (
    r"(?s)\s*(?P<names>[^\s,]+(?:\s*,\s*[^\s,]+)*)\s+in\s+(?P<expression>\S.*?)\s*"  # compiled on first use
)
_EXPECTED = "expected NAME in EXPRESSION, or KEY, VALUE in EXPRESSION"
_WORDS = frozenset(
    ("and", "else", "false", "if", "in", "is", "loop", "none", "not", "or", "self", "super", "true")
)
"""Reserved words of expressions and templates."""
_QUOTE = "quote a clause in brackets that has a comma"
_LONGEST = 60  # characters of a value in a sentence


class Clause(NamedTuple):
    """A list or mapping by its expression, and the names for its items."""

    names: tuple[str, ...]
    expression: str
    condition: str = ""
    """An expression that selects items. Empty: all items."""

    def __str__(self) -> str:
        condition = f" if {self.condition}" if self.condition else ""
        expression = " ".join(f"{self.expression}{condition}".split())
        end = "…" if len(expression) > _LONGEST else ""
        return f"{', '.join(self.names)} in {expression[:_LONGEST]}{end}"

    def values(self, scope: Scope) -> Iterator[tuple[Any, ...]]:
        """Yield the values of its names, for each item.

        Raise ``ResourceError`` if the value is not a list or mapping, and ``HieraError`` if it cannot be evaluated.
        """
        result = evaluate(self.expression, scope)
        hide = _hidden if isinstance(result, Secret) else _shown_as_it_is
        value = result.reveal() if isinstance(result, Secret) else result
        if isinstance(value, list) and len(self.names) == 1:
            yield from ((hide(item),) for item in value)
        elif isinstance(value, dict) and len(self.names) > 1:
            yield from ((hide(key), hide(item)) for key, item in value.items())
        else:
            raise ResourceError(self._mismatch(result, value))

    def _mismatch(self, result: object, value: object) -> str:
        if isinstance(value, list):
            return f"is a list, expected one name: {self._replace(names=self.names[1:])}"
        if isinstance(value, dict):
            return f"is a mapping, expected two names: {self._replace(names=('key', *self.names))}"
        return f"is {shown(result)}, expected a list or a mapping"


class Loop(NamedTuple):
    """The ``for`` of an entry."""

    clauses: tuple[Clause, ...]
    """Empty if it is invalid, with the problem on record."""
    reference: str
    """The reference as written: ``file#/etc/nginx/{{ name }}.conf``."""
    text: str
    """For sentences: ``for name, vhost in data.vhosts``."""

    @classmethod
    def of(cls, clauses: tuple[Clause, ...], reference: str) -> "Loop":
        """Return a loop with its text."""
        return cls(clauses, reference, f"for {', '.join(map(str, clauses))}")

    @property
    def names(self) -> list[str]:
        """All its names, in their order."""
        return [name for clause in self.clauses for name in clause.names]

    def written_out(self, files: BundleFiles) -> Reference | None:
        """Return the reference of all items, if it has no expression. ``files`` resolves the name of a child."""
        kind, _, name = self.reference.partition("#")
        if has_expression(name):
            return None
        if kind == "apply":
            with suppress(BundlePathError):
                name = files.name_of(name)
        return Reference.to(kind, name)

    def may_have_item(self, reference: str, files: BundleFiles) -> bool:
        """Return whether an item may have this reference, judged by the text around the expressions.

        ``files`` of its manifest resolve the names of children.
        """
        kind, _, name = self.reference.partition("#")
        if kind == "apply":
            with suppress(BundlePathError):
                name = files.name_of(name)
        try:
            pieces = parse(name)
        except HieraError:
            return reference.startswith(f"{kind}#")
        texts = (re.escape(piece) if isinstance(piece, str) else ".*" for piece in pieces)
        return re.fullmatch(f"{re.escape(kind)}#{''.join(texts)}", reference, re.DOTALL) is not None

    def items(self, scope: Scope, files: BundleFiles) -> list[tuple[Any, ...]]:
        """Return the values of all names, for each item. Raise ``ResourceError`` if they cannot be determined."""
        results: list[tuple[Any, ...]] = [()]
        for count, clause in enumerate(self.clauses):
            before = Loop.of(self.clauses[:count], self.reference)
            results = [
                (*outer, *values)
                for outer in results
                for values in _values(clause, Item(before, outer, 0, scope, files))
            ]
        return results


class Item(msgspec.Struct, frozen=True, dict=True):
    """One item of a loop."""

    loop: Loop
    values: tuple[Any, ...]
    """The values of the loop's names, in their order."""
    number: int
    """From 0."""
    around: Scope
    """The scope of its manifest."""
    files: BundleFiles
    """The files of its manifest."""

    def __str__(self) -> str:
        """``for name, vhost in data.vhosts: name is 'shop'``."""
        return f"{self.loop.text}: {self.place}"

    @property
    def place(self) -> str:
        """``name is 'shop'``. Of a mapping, only the key."""
        values: Iterator[Any] = iter(self.values)
        text: list[str] = []
        for clause in self.loop.clauses:
            first, *_ = islice(values, len(clause.names))
            text.append(f"{clause.names[0]} is {shown(first)}")
        return ", ".join(text)

    @property
    def scope(self) -> Scope:
        """The scope of its manifest with the names of the loop."""
        return _ItemScope(self) if self.values else self.around

    @cached_property
    def kept_scope(self) -> Scope:
        """The scope of the item, cached with its names for repeated use."""
        return self.scope


class _ItemScope(Scope):
    """The scope of one item, which creates its names on demand. Few resources need them after their declaration."""

    __slots__ = ("_item",)

    def __init__(self, item: Item) -> None:
        self._item = item
        self.facts, self.data, self.environ = item.around.facts, item.around.data, item.around.environ
        self._texts = {}

    def __getattr__(self, name: str) -> Any:
        if name not in ("functions", "names"):
            raise AttributeError(name)
        item = self._item
        made = LoopScopes(item.around, item.loop, item.files).of(item.values)
        self.functions, self.names = made.functions, made.names
        return getattr(self, name)


class LoopScopes:
    """Scopes for the items of a loop in turn. A new scope for each item would take longer than its use."""

    def __init__(self, around: Scope, loop: Loop, files: BundleFiles) -> None:
        self._names = loop.names
        # Functions that evaluate expressions themselves can use the names of the loop, too.
        self._seen = around.with_names(dict.fromkeys(self._names))
        self._scope = self._seen.with_names(bundle_functions(files, self._seen))
        scopes = (self._seen, self._scope)
        self._tables = [
            cast("dict[str, Any]", item) for each in scopes for item in (each.names, each.functions)
        ]

    def of(self, values: tuple[Any, ...]) -> Scope:
        """Return the scope of an item. It is valid until the next call."""
        for table in self._tables:
            table.update(zip(self._names, values, strict=True))
        return self._scope


def _values(clause: Clause, outer: Item) -> Iterator[tuple[Any, ...]]:
    try:
        counts = _condition(clause, outer)
        for values in clause.values(outer.scope):
            total.count_item()
            if counts(values):
                yield values
    except (HieraError, ResourceError) as error:
        of_outer = f" ({outer.place})" if outer.values else ""
        problems = [prefixed(problem, f"for {clause}{of_outer}") for problem in error.problems]
        raise ResourceError(problems=problems) from error


def _condition(clause: Clause, outer: Item) -> Callable[[tuple[Any, ...]], bool]:
    """Return the function that selects the items."""
    if not clause.condition:
        return lambda values: True
    loop = Loop.of((*outer.loop.clauses, clause), outer.loop.reference)
    scopes = LoopScopes(outer.around, loop, outer.files)

    def counts(values: tuple[Any, ...]) -> bool:
        try:
            verdict = evaluate(clause.condition, scopes.of((*outer.values, *values)))
        except HieraError as error:
            raise error.at(Item(loop, (*outer.values, *values), 0, outer.around, outer.files).place) from None
        return bool(verdict.reveal() if isinstance(verdict, Secret) else verdict)

    return counts


def _hidden(value: Any) -> Any:
    """Return an item of a secret. Booleans and null stay visible."""
    return value if value is None or isinstance(value, bool | Secret) else Secret(value)


def _shown_as_it_is(value: Any) -> Any:
    return value


def shown(value: Any) -> str:
    """Return a value for messages, shortened if it is long. Secrets are masked."""
    if isinstance(value, dict):
        inside = (f"{shown(key)}: {shown(item)}" for key, item in value.items())
        return "{" + _beginning(inside) + "}"
    if isinstance(value, list):
        return "[" + _beginning(map(shown, value)) + "]"
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]!r}…"
    if isinstance(value, int) and value.bit_length() > _LONGEST:
        return "a large number"  # Python may refuse to convert all its digits
    return repr(value)


def _beginning(pieces: Iterable[str]) -> str:
    text: list[str] = []
    length = 0
    for part in pieces:
        length += len(part)
        if length > _LONGEST:
            return ", ".join([*text, "…"])
        text.append(part)
    return ", ".join(text)


def parse_clauses(value: object) -> tuple[Clause, ...]:
    """Return the clauses of ``for``. Raise ``ValueError``, whose text continues *for*."""
    if value == [] or not isinstance(value, str | list):
        raise ValueError(f"is {shown(value)}, {_EXPECTED}")
    clauses = tuple(map(_parse_clause, value if isinstance(value, list) else [value]))
    if isinstance(value, list) and (broken := next((item for item in value if not _is_whole(item)), None)):
        raise ValueError(f"is {shown(broken)}, {_EXPECTED} ({_QUOTE})")
    names = [name for clause in clauses for name in clause.names]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"has the name {twice} twice")
    return clauses


def _parse_clause(value: object) -> Clause:
    match = re.fullmatch(_CLAUSE, value) if isinstance(value, str) else None
    if match is None:
        # YAML reads [a, b in data.c] as a list of two texts.
        quoted = f" ({_QUOTE})" if _is_name(value) or not _is_whole(value) else ""
        raise ValueError(f"is {shown(value)}, {_EXPECTED}{quoted}")
    names = tuple(name.strip() for name in match["names"].split(","))
    if wrong := next((name for name in names if not _is_name(name)), None):
        raise ValueError(
            f"has the name {shown(wrong)}, expected letters, digits and _, not starting with a digit"
        )
    if word := next((name for name in names if name.lower() in _WORDS), None):
        raise ValueError(
            f"has the name {shown(word)}, a reserved word of expressions, so choose another name"
        )
    if len(names) > 2:
        raise ValueError(f"has {len(names)} names, {_EXPECTED}")
    return Clause(names, *_without_condition(match["expression"]))


def _without_condition(text: str) -> tuple[str, str]:
    """Split ``EXPRESSION if CONDITION``. An ``if`` with an ``else`` belongs to the expression."""
    words = [word for word in _words(text) if word[0] in ("if", "else")]
    if not words or words[-1][0] != "if":
        return text, ""
    _, start, end = words[-1]
    expression, condition = text[:start].rstrip(), text[end:].lstrip()
    return (expression, condition) if expression and condition else (text, "")


def _is_whole(text: object) -> bool:
    """Return whether quotes and brackets are closed. YAML cuts a text in brackets at its commas."""
    return not isinstance(text, str) or not any(word[0] in _OPEN for word in _words(text))


_LEXEME = r"""(?s)'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\w+|\S"""
_OPEN = "'\"([{)]}"


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words outside of brackets and quotes, with their places, and each unmatched bracket or quote."""
    brackets: list[tuple[str, int, int]] = []
    outside: list[tuple[str, int, int]] = []
    for match in re.finditer(_LEXEME, text):
        word = (match[0], match.start(), match.end())
        if match[0] in ("(", "[", "{"):
            brackets.append(word)
        elif match[0] in (")", "]", "}") and brackets:
            brackets.pop()
        elif not brackets and (len(match[0]) == 1 or match[0][0] not in _OPEN):
            outside.append(word)
    yield from (*outside, *brackets)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isidentifier() and value.isascii()


class Repeated:
    """A text with expressions. Its results and errors are the same as from ``resolve``."""

    __slots__ = ("_pieces", "_single")

    def __init__(self, text: str, scope: Scope, names: Container[str]) -> None:
        """``names`` have other values each time. All other names have the values in ``scope``."""
        pieces = parse(text)
        self._single = pieces[0] if len(pieces) == 1 and isinstance(pieces[0], Expression) else None
        self._pieces: list[str | Secret | Expression] = []
        for piece in (_resolve_constant(piece, scope, names) for piece in pieces):
            if isinstance(piece, str) and self._pieces and isinstance(self._pieces[-1], str):
                self._pieces[-1] += piece
            else:
                self._pieces.append(piece)

    def value(self, scope: Scope) -> Any:
        """Return the value in a scope."""
        if self._single is not None:
            return self._single.value(scope)
        return joined(
            [piece.text(scope) if isinstance(piece, Expression) else piece for piece in self._pieces]
        )


def _resolve_constant(
    piece: str | Expression, scope: Scope, names: Container[str]
) -> str | Secret | Expression:
    """Return the text of a constant expression. A failing or changing expression is returned unchanged."""
    try:
        if isinstance(piece, Expression) and _is_same(piece, names):
            return piece.text(scope)
    except HieraError:
        pass
    return piece


def _is_same(expression: Expression, names: Container[str]) -> bool:
    """Return whether the expression is obviously independent of ``names``."""
    match expression:
        case Constant():
            return True
        case Name(steps=(root, *_)):
            return root not in names
        case Lookup(path=path):
            return parse_path(path)[0] not in names
    return False
