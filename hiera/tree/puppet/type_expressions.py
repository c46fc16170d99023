"""Puppet type expressions, such as ``Optional[Array[String[1], 0, 5]]``, read into types."""

import re
from collections.abc import Callable
from typing import Any

from hiera.errors import DocumentError
from hiera.tree.puppet.types import DEFAULT, Type, is_kind, written
from hiera.tree.ruby import regexp

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>(?:::)?[A-Z]\w*(?:::[A-Z]\w*)*)|(?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<word>[a-z]\w*)"""
    r"""|'(?P<single>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)"|/(?P<regexp>(?:[^/\\]|\\.)*)/"""
    r"""|(?P<sign>=>|[\[\]{},]))""",
    re.ASCII,
)
MAX_LENGTH = 10_000
MAX_DEPTH = 50


def parse(text: str) -> Type:
    """The type that ``text`` says; raises ``DocumentError``."""
    reader = _Reader(text)
    found = reader.type()
    reader.expect_end()
    return found


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
            return regexp.compiled(token["regexp"])
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
