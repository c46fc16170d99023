"""Annotations: comments at the keys of ``data`` with rules for their values.

* ``# @require``: the value must exist and must not be null or the empty text.
* ``# @validate EXPRESSION``: an expression over ``value`` must be true if the value exists.
* ``# @sensitive``: the value is masked everywhere.
* A comment belongs to the key on its line, or else to the next key below it. An annotation without a key is an error,
  because it protects and checks nothing. An unknown ``@word`` is a warning.
* A rule for a key within the items of a list applies to that key in every item.
* Rules apply to the finished data from all sources. All failures are reported, in the order of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml

from foundation.problems import DependsOn, Location, Problem, ProblemCode
from foundation.suggestions import nearest
from hiera.errors import HieraError
from hiera.expressions.checks import CHECKS, matches
from hiera.expressions.jinja import compile_check
from hiera.values import EACH, MISSING, Secret, path_text, step

# Comments at the keys of ``data`` and of ``overrides`` that look like annotations. The path of a comment has ``EACH``
# in the place of a list index. The path is empty for a comment without a key, so that the caller can report it.

Path = tuple[str | int, ...]

DIRECTIVE: Final = re.compile(r"#\s*@(\w+)[ \t]*(.*)")
_BESIDE: Final = re.compile(r":?[ \t]+(#\s*@\w.*)")
_COMMENT: Final = re.compile(r"(?:^|(?<=[ \t]))#\s*@\w.*")
_WHOLE_LINE: Final = 1 << 30  # columns


class _Key(NamedTuple):
    path: Path
    line: int
    column: int
    end: int
    """The column where a comment beside the key can begin."""


def comments(text: str) -> Iterator[tuple[int, str, Path | None]]:
    """Return line, comment and path of the key, for each comment with a directive at the keys of data."""
    scan = _Scan(text)
    lines = text.splitlines()
    for section in scan.sections:
        keys = {key.line: key for key in section.keys if not lines[key.line][: key.column].strip(" \t-")}
        for line in range(section.first, max(section.last, *keys, 0) + 1):
            if line in keys and (beside := _BESIDE.match(lines[line], keys[line].end)):
                yield line, beside[1], keys[line].path
            elif comment := scan.comment_at(line, lines[line]):
                is_alone = lines[line].lstrip() == comment
                yield line, comment, _below(line, lines, keys) if is_alone else None


def _below(line: int, lines: Sequence[str], keys: Mapping[int, _Key]) -> Path | None:
    """Return the path of the key on the next line with content.

    An item ``- name: x`` returns ``None``, since the comment could refer to the whole item.
    """
    following = range(line + 1, len(lines))
    below = next((n for n in following if lines[n].strip() and not lines[n].lstrip().startswith("#")), -1)
    return keys[below].path if below in keys and not lines[below].lstrip().startswith("-") else None


class _Section:
    """The keys of ``data``, or of one section of ``overrides``."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = -1
        """The last line of its values. Later comments belong to other parts of the document."""
        self.keys: list[_Key] = []


class _Scan:
    """The positions of keys of data, and of texts, which can contain ``#``."""

    def __init__(self, text: str) -> None:
        self.parser: Any = yaml.CSafeLoader(text)
        self.end: Any = None  # the end of the last value
        self.sections: list[_Section] = []
        self.texts: dict[int, list[tuple[int, int]]] = {}
        """By line: the columns where a text begins and ends."""
        for _ in range(3):  # the stream, the document and its mapping begin
            start = self.next()
        if isinstance(start, yaml.MappingStartEvent):
            self.find_data()

    def comment_at(self, line: int, text: str) -> str:
        """Return the comment with a directive in a line, or empty text."""
        texts = self.texts.get(line, ())
        for match in _COMMENT.finditer(text):
            if not any(begin <= match.start() < end for begin, end in texts):
                return match[0]
        return ""

    def next(self) -> Any:
        event = self.parser.get_event()
        self.end = event.end_mark
        return event

    def until_end(self) -> Iterator[Any]:
        while not isinstance(event := self.next(), yaml.CollectionEndEvent):
            yield event

    def find_data(self) -> None:
        for key in self.until_end():
            name = getattr(key, "value", None)  # an alias lacks a value
            event = self.next()
            if name == "data":
                self.section(key, event)
            elif name == "overrides" and isinstance(event, yaml.MappingStartEvent):
                for section in self.until_end():
                    self.section(section, self.next())
            else:
                self.value(event, None)

    def section(self, key: Any, event: Any) -> None:
        self.sections.append(_Section(key.start_mark.line + 1))
        self.value(event, ())

    def value(self, event: Any, path: Path | None) -> None:
        """Read one value. Without ``path``, outside of ``data``, its keys are not recorded."""
        if isinstance(event, yaml.MappingStartEvent):
            for key in self.until_end():
                self.item(key, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            for item in self.until_end():
                self.value(item, None if path is None else (*path, EACH))
        elif isinstance(event, yaml.ScalarEvent):
            self.text(event.start_mark, self.end)
        if path is not None:
            self.sections[-1].last = max(self.sections[-1].last, event.start_mark.line)

    def text(self, start: Any, end: Any) -> None:
        for line in range(start.line, end.line + 1):
            begin = start.column if line == start.line else 0
            self.texts.setdefault(line, []).append((begin, end.column if line == end.line else _WHOLE_LINE))

    def item(self, key: Any, path: Path | None) -> None:
        named = path is not None and isinstance(key, yaml.ScalarEvent)
        below = (*(path or ()), key.value) if named else None
        # Read the value first. A comment beside it can begin only after the value's end.
        self.value(self.next(), below)
        if below is not None:
            start = key.start_mark
            end = self.end if self.end.line == start.line else key.end_mark
            self.sections[-1].keys.append(_Key(below, start.line, start.column, end.column))


_OPERATOR: Final = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\|\||&&|!(?!=)""")
_WORDS: Final = {"||": " or ", "&&": " and ", "!": " not "}
"""Operators of other tools, and their replacements in Jinja2."""
_KINDS: Final = {
    "require": "require",
    # The name in other tools.
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
    """Path of the key, below ``data``."""
    location: Location
    """Location of the comment."""
    expression: str = ""


class Annotations(NamedTuple):
    """The rules of a document, in its order, and comments that only look like rules."""

    rules: tuple[Annotation, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def sensitive(self) -> frozenset[Path]:
        """The keys whose values are secrets."""
        return frozenset(rule.path for rule in self.rules if rule.kind == "sensitive")

    def failures(self, data: Mapping[str, Any]) -> list[Problem]:
        """Return a problem for each violated rule."""
        sensitive = self.sensitive
        checked = (
            (rule, path, _failure(rule, value, rule.path in sensitive))
            for rule in self.rules
            for path, value in _places(data, rule.path)
        )
        return [_problem_of(rule, path, what) for rule, path, what in checked if what]


def find_annotations(text: str, source: str) -> Annotations:
    """Return the annotations of a document that ``yaml_text.load`` accepts. Text without directives is not parsed."""
    if not DIRECTIVE.search(text):
        return Annotations()
    rules, warnings = [], []
    for line, comment, path in comments(text):
        word, _, remainder = comment.lstrip("# \t@").partition(" ")
        if what := _problem(word, remainder, path):
            warnings.append(
                _warning(word, what, _location(text, source, line, word), is_misplaced=path is None)
            )
        elif path is not None:
            kind, location = _KINDS[word], Location(source, line + 1)
            rules.append(Annotation(kind, path, location, remainder.strip() if kind == "validate" else ""))
    return Annotations(tuple(rules), tuple(warnings))


def _location(text: str, source: str, line: int, word: str) -> Location:
    """Return the place of an annotation, whose line counts from 0."""
    return Location(source, line + 1, text.splitlines()[line].find(f"@{word}") + 1)


def _warning(word: str, description: str, location: Location, *, is_misplaced: bool) -> Problem:
    """Return the problem of an invalid annotation, which would protect nothing."""
    similar = () if word in _KINDS else tuple(f"@{name}" for name in nearest(word.lower(), _KINDS, 1))
    code = ProblemCode.MISSPELT_ANNOTATION if similar else ProblemCode.ANNOTATION
    message, hint = f"unknown annotation @{word}" if similar else description, ""
    if word in _KINDS and is_misplaced:
        code, hint = (
            ProblemCode.MISPLACED_ANNOTATION,
            "write it on a line of its own above the key, or behind its value",
        )
    return Problem(
        code=code, message=message, location=location, name=f"@{word}", suggestions=similar, hint=hint
    )


def _problem_of(rule: Annotation, path: Path, description: str) -> Problem:
    is_missing = rule.kind == "require"
    return Problem(
        code=ProblemCode.MISSING_DATA if is_missing else ProblemCode.REJECTED_DATA,
        message=f"{path_text(('data', *path))} {description}",
        location=rule.location,
        name=path_text(("data", *path)),
        depends_on=DependsOn.DATA,
    )


def _problem(word: str, remainder: str, path: Path | None) -> str:
    if word not in _KINDS:
        return f"unknown annotation @{word}, expected @require, @validate or @sensitive"
    if path is None:
        return f"@{word} stands above no key of data"
    if word == "validate":
        return "" if remainder.strip() else "@validate requires an expression"
    return (
        f"@{word} takes no argument. Write {remainder.strip()} on a separate line" if "@" in remainder else ""
    )


# -- checking -------------------------------------------------------------------------------------


def _places(value: Any, path: Path, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each path of a rule with its value. For a key within a list, yield the path and value of each item."""
    if not path:
        yield above, value
    elif path[0] is not EACH:
        yield from _places(step(value, path[0]), path[1:], (*above, path[0]))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, path[1:], (*above, index))


def _failure(rule: Annotation, value: Any, sensitive: bool) -> str:
    if rule.kind == "require":
        return "is required, but empty" if value is MISSING or value in (None, "") else ""
    # Null passes a validation. ``@require`` rejects null.
    if rule.kind != "validate" or value is MISSING or value is None:
        return ""
    return _validation_failure(rule.expression, value, sensitive or isinstance(value, Secret))


def _validation_failure(expression: str, value: Any, sensitive: bool) -> str:
    revealed = value.reveal() if isinstance(value, Secret) else value
    try:
        verdict = compile_check(in_words(expression))({"value": revealed, "Value": revealed, **functions()})
    except HieraError as error:
        return f"cannot be validated: {expression}: {'it fails on this value' if sensitive else error}"
    # Require the boolean itself: a text such as 'no' would count as true in conditions.
    if verdict is True:
        return ""
    shown = "has a secret value that" if sensitive else f"is {value!r}, which"
    if verdict is False:
        return f"{shown} does not satisfy: {expression}"
    return f"cannot be validated: {expression} is neither true nor false"


def in_words(expression: str) -> str:
    """Return an expression of ``@validate`` with its operators as Jinja2 writes them."""
    return _OPERATOR.sub(lambda result: result[1] or _WORDS[result[0]], expression)


def functions() -> dict[str, Any]:
    """Return the checks as functions, in both spellings: ``isIPv4(value)``, ``is_ipv4(value)``."""
    functions: dict[str, Any] = {
        "isRegex": matches,
        "is_regex": matches,
        "is_shellsafe": CHECKS["shell_safe"],
    }
    for name, check in CHECKS.items():
        functions[f"is_{name}"] = check
        functions[_CALLS.get(name, f"is{name.capitalize()}")] = check
    return functions
