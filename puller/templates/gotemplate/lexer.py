"""The lexer of Go templates, which follows Go's ``text/template``, and the constants in templates.

* Text outside actions is one token, already trimmed as the actions request. Comments produce no token.
* Inside an action, runs of spaces are tokens, because ``.a .b`` and ``.a.b`` differ.
* Tokens are produced on demand, so an error is reported only after everything before it was parsed.
* A constant has no type until it is used. A number keeps every interpretation, as in Go: ``3`` and ``1e3`` are integers
  and floats, ``1.5`` is only a float, and ``'a'`` is 97.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from puller.templates.gotemplate.nodes import Number
from puller.templates.govalue.strconv import parse_float, parse_int, unquote_rune
from puller.templates.govalue.types import INT64_MAX, float_to_int
from puller.templates.template_errors import TemplateSource

KEYWORDS: Final = frozenset(
    ("block", "break", "continue", "define", "else", "end", "if", "range", "template", "with")
)

_SPACES: Final = " \t\r\n"
_LEFT_MARKERS: Final = frozenset("-" + space for space in _SPACES)
_RIGHT_MARKERS: Final = frozenset(space + "-" for space in _SPACES)
_TERMINATORS: Final = frozenset(_SPACES + ".,|:)(")
_DECIMAL: Final = r"[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?"
_HEXADECIMAL: Final = r"0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?"
_OCTAL_OR_BINARY: Final = r"0[oO][0-7_]*(?:\.[0-7_]*)?|0[bB][01_]*(?:\.[01_]*)?"
_NUMBER: Final = re.compile(rf"[+-]?(?:{_HEXADECIMAL}|{_OCTAL_OR_BINARY}|{_DECIMAL})i?")
_TOKEN: Final = re.compile(
    r"""(?P<SPACE>[ \t\r\n]+)
      | (?P<NUMBER>[+\-0-9]|\.[0-9])   # only where it begins: _NUMBER reads it
      | (?P<FIELD>\.\w*)
      | (?P<VARIABLE>\$\w*)
      | (?P<IDENTIFIER>\w+)
      | (?P<STRING>"(?:[^"\\\n]|\\[^\n])*")
      | (?P<RAW_STRING>`[^`]*`)
      | (?P<CHARACTER>'(?:[^'\\\n]|\\[^\n])*')
      | (?P<DECLARE>:=)
      | (?P<ASSIGN>=)
      | (?P<PIPE>\|)
      | (?P<OPEN>\()
      | (?P<CLOSE>\))
      | (?P<OTHER>[!-~])""",
    re.VERBOSE,
)
_UNTERMINATED: Final = {
    '"': "unterminated quoted string",
    "`": "unterminated raw quoted string",
    "'": "unterminated character constant",
}


class Kind(enum.Enum):
    """The kinds of tokens, each with its name in messages."""

    TEXT = "text"
    LEFT = "left delimiter"
    RIGHT = "right delimiter"
    SPACE = "space"
    NUMBER = "number"
    COMPLEX = "complex number"
    FIELD = "field"
    DOT = "dot"
    VARIABLE = "variable"
    IDENTIFIER = "identifier"
    KEYWORD = "keyword"
    BOOLEAN = "boolean"
    NIL = "nil"
    STRING = "string"
    RAW_STRING = "raw string"
    CHARACTER = "character constant"
    DECLARE = "declaration"
    ASSIGN = "assignment"
    PIPE = "pipe"
    OPEN = "left parenthesis"
    CLOSE = "right parenthesis"
    OTHER = "character"
    END = "end of file"


class Token(NamedTuple):
    """A piece of the template: ``text`` is its source, ``position`` its offset in characters."""

    kind: Kind
    text: str
    position: int


class Lexer:
    """Splits a template into tokens, with the delimiters ``left`` and ``right``."""

    def __init__(self, source: TemplateSource, left: str, right: str) -> None:
        self._error = source.error
        self._text = source.text
        self._left = left
        self._right = right
        self._position = 0

    def tokens(self) -> Iterator[Token]:
        """Yield all tokens, the last one of kind END. Raises TemplateError for text that cannot be split.

        Go's documentation, "Text and spaces":

        1. Everything up to a left delimiter is text, copied unchanged.
        2. ``{{- `` (with its space) removes the white space before it: space, tab, carriage return, newline.
        3. ``/*`` right after that opens a comment, which must end with the action. It produces no token.
        4. Any other action is split into tokens, up to its right delimiter.
        5. `` -}}`` removes the white space after it.
        6. The remaining text is the last text token.
        """
        while (start := self._text.find(self._left, self._position)) >= 0:
            inside = start + len(self._left)
            trim = self._text[inside : inside + 2] in _LEFT_MARKERS
            text = self._text[self._position : start]
            if text := text.rstrip(_SPACES) if trim else text:  # 2. trim
                yield Token(Kind.TEXT, text, self._position)  # 1. text
            inside += 2 if trim else 0
            if self._text.startswith("/*", inside):
                self._skip_comment(inside)  # 3. comment, 5. trim
                continue
            yield Token(Kind.LEFT, self._left, start)
            self._position = inside
            yield from self._action(start)  # 4. action, 5. trim
        # 6. the remaining text
        if self._position < len(self._text):
            yield Token(Kind.TEXT, self._text[self._position :], self._position)
        yield Token(Kind.END, "", len(self._text))

    def _skip_comment(self, start: int) -> None:
        end = self._text.find("*/", start + 2)
        if end < 0:
            raise self._error(start, "unclosed comment")
        trim = self._at_right_delimiter(end + 2)
        if trim is None:
            raise self._error(end, "comment ends before closing delimiter")
        self._leave_action(end + 2 + trim + len(self._right), trim)

    def _at_right_delimiter(self, position: int) -> int | None:
        """Return the length of the trim marker before the right delimiter (0 or 2), or ``None`` without a delimiter."""
        if self._text.startswith(self._right, position):
            return 0
        marked = self._text[position : position + 2] in _RIGHT_MARKERS
        return 2 if marked and self._text.startswith(self._right, position + 2) else None

    def _leave_action(self, position: int, trim: int) -> None:
        while trim and position < len(self._text) and self._text[position] in _SPACES:
            position += 1
        self._position = position

    def _action(self, start: int) -> Iterator[Token]:
        # As in Go's lexer, count parentheses: a stray one is reported before later errors of the parser.
        depth = 0
        while (trim := self._at_right_delimiter(self._position)) is None:
            if self._position >= len(self._text):
                raise self._error(start, "unclosed action")
            token = self._scan()
            depth += (token.kind is Kind.OPEN) - (token.kind is Kind.CLOSE)
            if depth < 0:
                raise self._error(token.position, "unexpected right paren")
            yield token
        if depth:
            raise self._error(self._position, "unclosed left paren")
        delimiter = self._position + trim
        self._leave_action(delimiter + len(self._right), trim)
        yield Token(Kind.RIGHT, self._right, delimiter)

    def _scan(self) -> Token:
        start = self._position
        match = _TOKEN.match(self._text, start)
        if match is None or match.lastgroup is None:
            raise self._error(start, f"unrecognized character in action: {describe(self._text[start])}")
        kind = Kind[match.lastgroup]
        if kind is Kind.NUMBER:
            return self._number(start)
        self._position = match.end()
        if kind is Kind.SPACE:
            # The last space may belong to a trim marker: " -}}".
            if len(match[0]) > 1 and self._at_right_delimiter(match.end() - 1) == 2:
                self._position -= 1
        elif kind in (Kind.FIELD, Kind.VARIABLE, Kind.IDENTIFIER):
            self._expect_terminator()
            kind = _kind_of_word(kind, match[0])
        elif kind is Kind.OTHER:
            self._refuse_fragment(start)
        return Token(kind, self._text[start : self._position], start)

    def _expect_terminator(self) -> None:
        position = self._position
        following = self._text[position : position + 1]
        if following and following not in _TERMINATORS and not self._text.startswith(self._right, position):
            raise self._error(position, f"bad character {describe(following)}")

    def _refuse_fragment(self, start: int) -> None:
        character = self._text[start]
        if character in _UNTERMINATED:
            raise self._error(start, _UNTERMINATED[character])
        if character == ":":
            raise self._error(start, "expected :=")

    def _number(self, start: int) -> Token:
        kind = Kind.NUMBER
        end = self._number_end(start, start)
        if self._text[end : end + 1] in ("+", "-"):  # 1+2i: no spaces, and it must end in "i"
            kind = Kind.COMPLEX
            end = self._number_end(start, end)
            if self._text[end - 1] != "i":
                raise self._error(start, f'bad number syntax: "{self._text[start:end]}"')
        self._position = end
        return Token(kind, self._text[start:end], start)

    def _number_end(self, start: int, position: int) -> int:
        match = _NUMBER.match(self._text, position)
        end = match.end() if match else position
        following = self._text[end : end + 1]
        if following == "_" or following.isalnum():
            raise self._error(start, f'bad number syntax: "{self._text[start : end + 1]}"')
        return end


def _kind_of_word(kind: Kind, word: str) -> Kind:
    if kind is Kind.IDENTIFIER:
        if word in KEYWORDS:
            return Kind.KEYWORD
        return {"true": Kind.BOOLEAN, "false": Kind.BOOLEAN, "nil": Kind.NIL}.get(word, kind)
    return Kind.DOT if word == "." else kind


def describe(character: str) -> str:
    """Return a character as Go's ``%#U`` shows it: ``U+002D '-'``."""
    shown = f" '{character}'" if character.isprintable() else ""
    return f"U+{ord(character):04X}{shown}"


# Constants: numbers and characters.

_SIGN: Final = re.compile(r"(?<![pP])(?<!^0[xX][eE])(?<![.0-9_][eE])[+-]")
"""Sign between the parts of a complex number, not of an exponent."""
_UINT64_MAX: Final = 2 * INT64_MAX + 1


def parse_number(token: Token) -> Number:
    """Return the constant of a NUMBER, COMPLEX or CHARACTER token. Raises ValueError with a sentence."""
    if token.kind is Kind.CHARACTER:
        return _character(token)
    if token.text.endswith("i"):
        return _complex(token)
    integer = _integer(token.text)
    if integer is not None:
        fits = integer <= INT64_MAX
        return Number(token.position, token.text, integer if fits else None, float(integer), None)
    number = _float(token.text)
    if number is None:
        raise ValueError(f"illegal number syntax: {token.text!r}")
    if not any(c in ".eEpP" for c in token.text):
        raise ValueError(f"integer overflow: {token.text!r}")
    whole = float_to_int(number)
    return Number(token.position, token.text, whole if whole == number else None, number, None)


def _character(token: Token) -> Number:
    try:
        code = unquote_rune(token.text)
    except ValueError:
        raise ValueError(f"malformed character constant: {token.text}") from None
    return Number(token.position, token.text, code, float(code), None)


def _complex(token: Token) -> Number:
    signs = list(_SIGN.finditer(token.text, 1)) if token.kind is Kind.COMPLEX else []
    middle = signs[0].start() if signs else 0
    imaginary = _float(token.text[middle:-1])
    real = _float(token.text[:middle]) if middle else 0.0
    if imaginary is None or real is None:
        raise ValueError(f"illegal number syntax: {token.text!r}")
    whole = float_to_int(real)
    is_real = imaginary == 0
    return Number(
        token.position,
        token.text,
        whole if is_real and whole == real else None,
        real if is_real else None,
        complex(real, imaginary),
    )


def _integer(text: str) -> int | None:
    """Return the integer, within Go's ``uint64``."""
    try:
        return parse_int(text, 0)
    except ValueError:
        return _unsigned(text)


def _unsigned(text: str) -> int | None:
    try:
        number = int(text, 0)
    except ValueError:
        return None
    return number if INT64_MAX < number <= _UINT64_MAX else None


def _float(text: str) -> float | None:
    try:
        return parse_float(text)
    except ValueError:
        return None
