"""Annotations: comments at the keys of ``data`` that say what their values must be.

* ``# @require``: there must be a value, other than null and the empty text.
* ``# @validate EXPRESSION``: an expression over ``value`` must be true, unless there is no value.
* ``# @sensitive``: the value is shown nowhere.
* A comment belongs to the key it stands beside, or to the next key below it. Another ``@word`` is a warning.
* Rules hold for the finished data, whichever source gave the value; all failures are told, in the file's order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml

from hiera.errors import HieraError
from hiera.expressions.checks import CHECKS, matches
from hiera.values.paths import MISSING, path_text, step
from hiera.values.secrets import Secret

Path = tuple[str | int, ...]

_DIRECTIVE: Final = re.compile(r"#\s*@(\w+)[ \t]*(.*)")
_BESIDE: Final = re.compile(r":?[ \t]+(#\s*@\w.*)")
_OPERATOR: Final = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\|\||&&|!(?!=)""")
_WORDS: Final = {"||": " or ", "&&": " and ", "!": " not "}
"""How other tools write operators, and how Jinja2 does."""
_KINDS: Final = {
    "require": "require",
    "required": "require",
    "validate": "validate",
    "sensitive": "sensitive",
}
_CALLS: Final = {
    "ip": "isIP",
    "ipv4": "isIPv4",
    "ipv6": "isIPv6",
    "fqdn": "isFQDN",
    "shell_safe": "isShellSafe",
}


class Annotation(NamedTuple):
    """One rule for one key."""

    kind: str
    """``require``, ``validate`` or ``sensitive``."""
    path: Path
    """Of the key, below ``data``."""
    where: str
    """*file:line* of the comment."""
    expression: str = ""


class Annotations(NamedTuple):
    """The rules of one document, in its order, and what looked like one."""

    rules: tuple[Annotation, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def sensitive(self) -> frozenset[Path]:
        """The keys whose values are secrets."""
        return frozenset(rule.path for rule in self.rules if rule.kind == "sensitive")

    def failures(self, data: Mapping[str, Any]) -> list[str]:
        """What is wrong with ``data``, one sentence for each rule that does not hold."""
        sensitive = self.sensitive
        checked = ((rule, _failure(rule, data, rule.path in sensitive)) for rule in self.rules)
        return [f"{rule.where}: {path_text(('data', *rule.path))} {what}" for rule, what in checked if what]


def find_annotations(text: str, source: str) -> Annotations:
    """The annotations of a document that ``yamltext.load`` accepts; costs a parse only when there may be any."""
    if not _DIRECTIVE.search(text):
        return Annotations()
    rules, warnings = [], []
    for line, comment, path in _comments(text):
        word, _, rest = comment.lstrip("# \t@").partition(" ")
        where = f"{source}:{line + 1}"
        problem = _problem(word, rest, path)
        if problem:
            warnings.append(f"{where}: {problem}")
        elif path is not None:
            kind = _KINDS[word]
            rules.append(Annotation(kind, path, where, rest.strip() if kind == "validate" else ""))
    return Annotations(tuple(rules), tuple(warnings))


def _problem(word: str, rest: str, path: Path | None) -> str:
    if word not in _KINDS:
        return f"unknown annotation @{word}, wanted @require, @validate or @sensitive"
    if path is None:
        return f"@{word} stands above no key of data"
    if word == "validate":
        return "" if rest.strip() else "@validate wants an expression"
    return f"@{word} takes nothing after it; write {rest.strip()} on a line of its own" if "@" in rest else ""


# -- checking -------------------------------------------------------------------------------------


def _failure(rule: Annotation, data: Mapping[str, Any], sensitive: bool) -> str:
    value: Any = data
    for key in rule.path:
        value = step(value, key)
    if rule.kind == "require":
        return "is required and has no value" if value is MISSING or value in (None, "") else ""
    if rule.kind != "validate" or value is MISSING or value is None:
        return ""
    return _judged(rule.expression, value, sensitive or isinstance(value, Secret))


def _judged(expression: str, value: Any, sensitive: bool) -> str:
    from hiera.expressions.jinja import compile_check

    opened = value.reveal() if isinstance(value, Secret) else value
    try:
        verdict = compile_check(_as_jinja(expression))({"value": opened, "Value": opened, **_functions()})
    except HieraError as error:
        return f"cannot be validated: {expression}: {'it fails on this value' if sensitive else error}"
    if verdict is True:
        return ""
    shown = "has a secret value that" if sensitive else f"is {value!r}, which"
    if verdict is False:
        return f"{shown} does not satisfy: {expression}"
    return f"cannot be validated: {expression} is neither true nor false"


def _as_jinja(expression: str) -> str:
    return _OPERATOR.sub(lambda found: found[1] or _WORDS[found[0]], expression)


def _functions() -> dict[str, Any]:
    """The checks as functions, in both spellings: ``isIPv4(value)``, ``is_ipv4(value)``."""
    functions: dict[str, Any] = {
        "isRegex": matches,
        "is_regex": matches,
        "is_shellsafe": CHECKS["shell_safe"],
    }
    for name, check in CHECKS.items():
        functions[f"is_{name}"] = check
        functions[_CALLS.get(name, f"is{name.capitalize()}")] = check
    return functions


# -- finding comments -----------------------------------------------------------------------------


class _Key(NamedTuple):
    path: Path
    line: int
    column: int
    end: int
    """The column where a comment beside the key can begin."""


def _comments(text: str) -> Iterator[tuple[int, str, Path | None]]:
    """Line, comment and the path of its key, for each comment with a directive at the keys of ``data``."""
    scan = _Scan(text)
    lines = text.splitlines()
    keys = {key.line: key for key in scan.keys if not lines[key.line][: key.column].strip()}
    for line in range(scan.first, max(keys, default=-1) + 1):
        if line in keys and (beside := _BESIDE.match(lines[line], keys[line].end)):
            yield line, beside[1], keys[line].path
        elif line not in scan.inside_text and _DIRECTIVE.match(lines[line].lstrip()):
            yield line, lines[line].lstrip(), _below(line, lines, keys)


def _below(line: int, lines: Sequence[str], keys: Mapping[int, _Key]) -> Path | None:
    """The path of the key on the next line that is neither blank nor a comment."""
    following = range(line + 1, len(lines))
    found = next((n for n in following if lines[n].strip() and not lines[n].lstrip().startswith("#")), -1)
    return keys[found].path if found in keys else None


class _Scan:
    """Where the keys of ``data`` stand, and which lines are the inside of a text."""

    def __init__(self, text: str) -> None:
        self.parser: Any = yaml.CSafeLoader(text)
        self.end: Any = None  # of what was read last
        self.keys: list[_Key] = []
        self.inside_text: set[int] = set()
        self.first = 0
        for _ in range(3):  # the stream, the document and its mapping begin
            start = self.next()
        if isinstance(start, yaml.MappingStartEvent):
            self.find_data()

    def next(self) -> Any:
        event = self.parser.get_event()
        self.end = event.end_mark
        return event

    def until_end(self) -> Iterator[Any]:
        while not isinstance(event := self.next(), yaml.CollectionEndEvent):
            yield event

    def find_data(self) -> None:
        for key in self.until_end():
            if key.value == "data":
                self.first = key.start_mark.line + 1
                self.value(self.next(), ())
                return
            self.value(self.next(), None)

    def value(self, event: Any, path: Path | None) -> None:
        """Take in one value. Below a list, and beside ``data``, there is no path, and keys are not noted."""
        first = event.start_mark.line
        if isinstance(event, yaml.MappingStartEvent):
            for key in self.until_end():
                self.item(key, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            for item in self.until_end():
                self.value(item, None)
        elif isinstance(event, yaml.ScalarEvent):
            self.inside_text.update(range(first + 1, self.end.line + (self.end.column > 0)))

    def item(self, key: Any, path: Path | None) -> None:
        named = path is not None and isinstance(key, yaml.ScalarEvent)
        below = (*(path or ()), key.value) if named else None
        self.value(self.next(), below)
        if below is not None:
            start = key.start_mark
            end = self.end if self.end.line == start.line else key.end_mark
            self.keys.append(_Key(below, start.line, start.column, end.column))
