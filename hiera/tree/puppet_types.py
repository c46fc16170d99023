"""Puppet's data types, the parser of type expressions, and type checks of values.

A type whose values exist only in the Puppet language matches no value. The same applies to a *type reference*, which
is an unknown type name.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hiera import regex
from hiera.errors import DocumentError, LookupFailure
from hiera.tree import ruby_values
from hiera.values import Decrypted, Secret

DEFAULT = ruby_values.Symbol("default")


@dataclass(frozen=True, slots=True)
class Type:
    """``Name[arguments]``. An argument is a type, a number, a text, a ``Pattern`` or a mapping of members."""

    name: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        if self.name not in _KNOWN:
            inside = f"{self.name}{_bracketed(self.arguments)}"
            return f"TypeReference['{inside}']"
        return self.name + _bracketed(self.arguments)


def _bracketed(arguments: tuple[Any, ...]) -> str:
    return f"[{', '.join(map(written, arguments))}]" if arguments else ""


def written(argument: Any) -> str:
    """Return an argument of a type as in a manifest."""
    if isinstance(argument, str):
        return f"'{argument}'"
    if isinstance(argument, re.Pattern):
        return f"/{argument.pattern}/"
    if isinstance(argument, tuple):
        return "{" + ", ".join(f"{written(name)} => {written(kind)}" for name, kind in argument) + "}"
    return ruby_values.to_s(argument) if argument is DEFAULT else str(argument)


def verify(what: str, kind: Type, value: Any) -> None:
    """Raise ``LookupFailure`` if ``value`` does not match the type ``kind``."""
    if not matches(kind, value):
        raise LookupFailure(
            "", f"{what} has wrong type, expects {_wanted(kind)}, got {ruby_values.type_name(value)}"
        )


def _wanted(kind: Type) -> str:
    if kind.name == "Optional" and kind.arguments:
        return f"a value of type Undef or {kind.arguments[0]}"
    if kind.name == "Variant":
        return f"a value of type {' or '.join(map(str, kind.arguments))}"
    return f"{'an' if str(kind)[0] in 'AEIOU' else 'a'} {kind} value"


def matches(kind: Any, value: Any) -> bool:
    """Return whether ``value`` has the type ``kind``. A text as a type matches only itself."""
    if not isinstance(kind, Type):
        return bool(kind == value)
    question = _KNOWN.get(kind.name)
    # For Puppet a decrypted text is plain text. Only Sensitive is a separate type.
    value = value.reveal() if isinstance(value, Decrypted) else value
    return bool(question and question(kind.arguments, value))


def is_kind(argument: Any) -> bool:
    """Return whether ``kind`` is a type, or a text, which matches itself."""
    return isinstance(argument, Type | str)


def _between(bounds: tuple[Any, ...], value: float) -> bool:
    low, high = (*bounds, DEFAULT, DEFAULT)[:2]
    return (low is DEFAULT or low <= value) and (high is DEFAULT or value <= high)


def _string(arguments: tuple[Any, ...], value: Any) -> bool:
    if not isinstance(value, str):
        return False
    if arguments and isinstance(arguments[0], str):
        return value == arguments[0]
    return _between(arguments, len(value))


def _list(arguments: tuple[Any, ...], value: Any) -> bool:
    types, bounds = _split(arguments)
    if not isinstance(value, list) or not _between(bounds, len(value)):
        return False
    return not types or all(matches(types[0], item) for item in value)


def _hash(arguments: tuple[Any, ...], value: Any) -> bool:
    types, bounds = _split(arguments)
    if not isinstance(value, dict) or not _between(bounds, len(value)):
        return False
    return len(types) < 2 or all(matches(types[0], name) and matches(types[1], value[name]) for name in value)


def _split(arguments: tuple[Any, ...]) -> tuple[list[Any], tuple[Any, ...]]:
    """Return the types in the arguments, and the size limits after them."""
    types = [argument for argument in arguments if is_kind(argument)]
    return types, arguments[len(types) :]


def _tuple(arguments: tuple[Any, ...], value: Any) -> bool:
    types, bounds = _split(arguments)
    if not isinstance(value, list):
        return False
    if bounds and not _between(bounds, len(value)):
        return False
    if not bounds and types and len(types) != len(value):
        return False
    return (
        all(matches(types[min(at, len(types) - 1)], item) for at, item in enumerate(value)) if types else True
    )


def _struct(arguments: tuple[Any, ...], value: Any) -> bool:
    members = arguments[0] if arguments else ()
    if not isinstance(value, dict) or not isinstance(members, tuple):
        return False
    known = set()
    for name, kind in members:
        bare, may_be_absent = _member(name, kind)
        known.add(bare)
        if bare not in value and not may_be_absent:
            return False
        if bare in value and not matches(kind, value[bare]):
            return False
    return not members or all(name in known for name in value)


def _member(name: Any, kind: Any) -> tuple[Any, bool]:
    """Return the name of a member, and whether it may be absent: it is optional, or its value may be null."""
    if isinstance(name, Type):
        inside = name.arguments[0] if name.arguments else ""
        return inside, name.name == "Optional"
    return name, matches(kind, None)


def _any_of(*names: str) -> "Question":
    kinds = [Type(name) for name in names]
    return lambda _, value: any(matches(kind, value) for kind in kinds)


def _patterns(arguments: tuple[Any, ...], value: Any) -> bool:
    if not isinstance(value, str):
        return False
    patterns = (ruby_values.compiled(entry) if isinstance(entry, str) else entry for entry in arguments)
    return not arguments or any(
        isinstance(pattern, re.Pattern) and regex.is_found(pattern, value) for pattern in patterns
    )


def _enum(arguments: tuple[Any, ...], value: Any) -> bool:
    """Match case-insensitively if the last argument is ``true``."""
    if not isinstance(value, str):
        return False
    if arguments and arguments[-1] is True:
        return value.lower() in [str(argument).lower() for argument in arguments[:-1]]
    return not arguments or value in arguments


Question = Callable[[tuple[Any, ...], Any], bool]


def _nothing(_: tuple[Any, ...], value: Any) -> bool:
    return False


_KNOWN: dict[str, Question] = {
    "Any": lambda _, value: True,
    "Undef": lambda _, value: value is None,
    "NotUndef": lambda kinds, value: value is not None and (not kinds or matches(kinds[0], value)),
    "Optional": lambda kinds, value: value is None or not kinds or matches(kinds[0], value),
    "Variant": lambda kinds, value: any(matches(kind, value) for kind in kinds),
    "Integer": lambda bounds, value: (
        isinstance(value, int) and not isinstance(value, bool) and _between(bounds, value)
    ),
    "Float": lambda bounds, value: isinstance(value, float) and _between(bounds, value),
    "Numeric": lambda _, value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "String": _string,
    "Boolean": lambda desired, value: isinstance(value, bool) and (not desired or value is desired[0]),
    "Enum": _enum,
    "Pattern": _patterns,
    "Array": _list,
    "Hash": _hash,
    "Collection": lambda bounds, value: isinstance(value, (list, dict)) and _between(bounds, len(value)),
    "Tuple": _tuple,
    "Struct": _struct,
    "Sensitive": lambda kinds, value: (
        isinstance(value, Secret) and (not kinds or matches(kinds[0], value.reveal()))
    ),
    "ScalarData": _any_of("String", "Numeric", "Boolean"),
    "Scalar": _any_of("String", "Numeric", "Boolean"),
    "Data": lambda _, value: ruby_values.is_data(value),
    "RichData": lambda _, value: True,
    "Iterable": _any_of("Array", "Hash", "String", "Integer"),
    "Default": lambda _, value: value == DEFAULT,
    **dict.fromkeys(("Timestamp", "Timespan", "SemVer", "SemVerRange", "Regexp", "Binary", "URI"), _nothing),
    **dict.fromkeys(
        ("Type", "Callable", "Runtime", "Object", "Init", "CatalogEntry", "Resource", "Class"), _nothing
    ),
    **dict.fromkeys(
        ("Iterator", "TypeSet", "TypeReference", "TypeAlias", "Deferred", "Error", "Target"), _nothing
    ),
}


# The parser of type expressions such as ``Optional[Array[String[1], 0, 5]]``.

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>(?:::)?[A-Z]\w*(?:::[A-Z]\w*)*)|(?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<word>[a-z]\w*)"""
    r"""|'(?P<single>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)"|/(?P<regexp>(?:[^/\\]|\\.)*)/"""
    r"""|(?P<sign>=>|[\[\]{},]))""",
    re.ASCII,
)
MAX_LENGTH = 10_000
MAX_DEPTH = 50


def parse(text: str) -> Type:
    """Return the type in ``text``. Raises ``DocumentError``."""
    reader = _Reader(text)
    result = reader.type()
    reader.expect_end()
    return result


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        if len(text) > MAX_LENGTH:
            raise self._error()

    def _error(self) -> DocumentError:
        text = self._text if len(self._text) < 200 else self._text[:200] + "…"
        return DocumentError(
            "", f"not a Puppet type expression: '{text}' (at character {self._position + 1})"
        )

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self._position)

    def _next(self) -> re.Match[str]:
        token = self._peek()
        if token is None:
            raise self._error()
        self._position = token.end()
        return token

    def _skip(self, sign: str) -> bool:
        token = self._peek()
        if token is None or token["sign"] != sign:
            return False
        self._position = token.end()
        return True

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            raise self._error()

    def expect_end(self) -> None:
        if self._text[self._position :].strip():
            raise self._error()

    def type(self) -> Type:
        token = self._next()
        if token["name"] is None:
            raise self._error()
        return self._parameterized(token["name"].removeprefix("::"))

    def _parameterized(self, name: str) -> Type:
        if not self._skip("["):
            return Type(name)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error()
        arguments = [self._argument()]
        while self._skip(",") and not self._closes():
            arguments.append(self._argument())
        self._expect("]")
        self._depth -= 1
        fits = _ARGUMENTS.get(name)
        if fits is not None and not fits(arguments):
            raise DocumentError("", f"the type {name} does not take [{', '.join(map(written, arguments))}]")
        return Type(name, tuple(arguments))

    def _closes(self) -> bool:
        token = self._peek()
        return token is not None and token["sign"] == "]"

    def _argument(self) -> Any:
        token = self._next()
        if token["name"]:
            return self._parameterized(token["name"].removeprefix("::"))
        if token["number"]:
            return (
                float(token["number"])
                if re.search(r"[.eE]", token["number"])
                else int(token["number"][:4000])
            )
        if token["regexp"] is not None:
            return ruby_values.compiled(token["regexp"])
        if token["word"]:
            return {"default": DEFAULT, "true": True, "false": False}.get(token["word"], token["word"])
        if token["sign"] == "{":
            return self._members()
        for quoted in (token["single"], token["double"]):
            if quoted is not None:
                return re.sub(r"\\(.)", r"\1", quoted)
        raise self._error()

    def _members(self) -> tuple[tuple[Any, Any], ...]:
        members = []
        while not self._skip("}"):
            name = self._argument()
            self._expect("=>")
            members.append((name, self._argument()))
            if not self._skip(","):
                self._expect("}")
                break
        return tuple(members)


def _bounds(arguments: list[Any]) -> bool:
    return len(arguments) <= 2 and all(
        argument is DEFAULT or (isinstance(argument, int | float) and not isinstance(argument, bool))
        for argument in arguments
    )


def _kinds_and_bounds(most: int) -> Callable[[list[Any]], bool]:
    def check(arguments: list[Any]) -> bool:
        kinds = next((at for at, argument in enumerate(arguments) if not is_kind(argument)), len(arguments))
        return kinds <= most and _bounds(arguments[kinds:])

    return check


_ARGUMENTS: dict[str, Callable[[list[Any]], bool]] = {
    **dict.fromkeys(("Integer", "Float", "Collection"), _bounds),
    **dict.fromkeys(
        ("Optional", "NotUndef", "Sensitive"),
        lambda arguments: len(arguments) == 1 and is_kind(arguments[0]),
    ),
    "String": lambda arguments: _bounds(arguments) or (len(arguments) == 1 and isinstance(arguments[0], str)),
    "Boolean": lambda arguments: len(arguments) == 1 and isinstance(arguments[0], bool),
    "Enum": lambda arguments: all(isinstance(argument, str | bool) for argument in arguments),
    "Pattern": lambda arguments: all(isinstance(argument, str | re.Pattern) for argument in arguments),
    "Variant": lambda arguments: all(map(is_kind, arguments)),
    "Array": _kinds_and_bounds(1),
    "Hash": _kinds_and_bounds(2),
    "Tuple": _kinds_and_bounds(MAX_LENGTH),
    "Struct": lambda arguments: len(arguments) == 1 and isinstance(arguments[0], tuple),
}
