"""Tokens of the Puppet language.

* Every character belongs to a token, a comment or white space. Any other input raises ``SyntaxProblem``.
* A text in double quotes, and a heredoc with interpolation, has the kind ``text``: parts of text and of source.
"""

import re
from typing import Final

import msgspec


class SyntaxProblem(Exception):
    """Invalid or unsupported syntax, with its line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line
        self.message = message


class Source(msgspec.Struct, frozen=True):
    """The source of an expression in a text, with its first line."""

    text: str
    line: int


Part = str | Source


class Token(msgspec.Struct, frozen=True):
    """A token. The kinds are name, type, variable, number, string, text, regex, operator and end."""

    kind: str
    value: str
    line: int
    spaced: bool = False
    """Whether white space comes before the token."""
    parts: tuple[Part, ...] = ()
    start: int = 0


_SPACE: Final = re.compile(r"(?:[ \t\r\n\ufeff]+|#[^\n]*|/\*.*?\*/)+", re.S)
_VARIABLE: Final = re.compile(r"\$((?:::)?(?:\w+::)*\w+)")
_NAME: Final = re.compile(r"(?:::)?[a-z_][\w]*(?:-\w+)*(?:::[a-z_]\w*(?:-\w+)*)*", re.A)
_TYPE: Final = re.compile(r"(?:::)?[A-Z]\w*(?:::[A-Z]\w*)*", re.A)
_NUMBER: Final = re.compile(r"0[xX][0-9A-Fa-f]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![A-Za-z_])")
_WORD_WITH_DIGIT: Final = re.compile(r"\d+[A-Za-z_]\w*", re.A)
_REGEX: Final = re.compile(r"/((?:[^/\\\n]|\\.)*)/")
_HEREDOC: Final = re.compile(r"@\(\s*(\"?)([^\":/\r\n()]+?)\"?\s*(?::\s*[\w+]+\s*)?(/[\w$]*)?\s*\)")
_OPERATORS: Final = (
    *(
        "<<|",
        "|>>",
        "->",
        "~>",
        "<-",
        "<~",
        "=>",
        "+>",
        "==",
        "!=",
        "=~",
        "!~",
        "<=",
        ">=",
        "<<",
        ">>",
        "<|",
        "|>",
    ),
    *(
        "+=",
        "-=",
        "&&",
        "||",
        "@@",
        "@",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "|",
        ",",
        ":",
        ";",
        ".",
        "?",
        "=",
        "!",
    ),
    *("+", "-", "*", "/", "%", "<", ">"),
)
_BEFORE_DIVISION: Final = frozenset({"variable", "number", "string", "text", "name", "type"})
_WORDS_BEFORE_REGEX: Final = frozenset({"and", "or", "in", "node", "if", "unless", "case", "elsif", "return"})
_DOUBLE_ESCAPES: Final = {
    "n": "\n", "t": "\t", "r": "\r", "s": " ", "\\": "\\", '"': '"', "'": "'", "$": "$", "\n": "",
}  # fmt: skip


class Lexer:
    """Reads the tokens of one source text."""

    def __init__(self, text: str, line: int = 1) -> None:
        self.text = text
        self.position = 0
        self.line = line
        self._pending: list[tuple[str, bool, str, int]] = []
        """Heredocs whose body starts on the next line: end tag, interpolation, escapes, index of the token."""
        self._tokens: list[Token] = []

    def tokens(self) -> list[Token]:
        """Return all tokens, with a token ``end``. Raises ``SyntaxProblem``."""
        while True:
            spaced = self._skip_space()
            if self.position >= len(self.text):
                if self._pending:
                    raise SyntaxProblem(self.line, f"the heredoc {self._pending[0][0]} lacks its text")
                self._add("end", "", self.position, spaced)
                return self._tokens
            self._read(spaced)

    def _skip_space(self) -> bool:
        """Skip white space and comments. Bodies of heredocs start after the end of their line."""
        start = self.position
        while self.position < len(self.text):
            character = self.text[self.position]
            if character == "\n":
                self.position += 1
                self.line += 1
                if self._pending:
                    self._read_heredocs()
            elif character in " \t\r\ufeff\u00a0":
                self.position += 1
            elif character == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            elif self.text.startswith("/*", self.position):
                end = self.text.find("*/", self.position + 2)
                if end < 0:
                    raise SyntaxProblem(self.line, "the comment lacks its end */")
                self.line += self.text.count("\n", self.position, end)
                self.position = end + 2
            else:
                break
        return self.position > start or start == 0

    def _add(self, kind: str, value: str, end: int, spaced: bool, parts: tuple[Part, ...] = ()) -> None:
        self._tokens.append(Token(kind, value, self.line, spaced, parts, self.position))
        self.line += self.text.count("\n", self.position, end)
        self.position = end

    def _read(self, spaced: bool) -> None:
        text, position = self.text, self.position
        character = text[position]
        if character == "'":
            end, value = self._single_quoted(position)
            self._add("string", value, end, spaced)
        elif character == '"':
            end, parts = self._double_quoted(position)
            if all(isinstance(part, str) for part in parts):
                self._add("string", "".join(map(str, parts)), end, spaced)
            else:
                self._add("text", "", end, spaced, tuple(parts))
        elif character == "$" and (match := _VARIABLE.match(text, position)):
            self._add("variable", match[1].removeprefix("::"), match.end(), spaced)
        elif character == "/" and not self._is_division() and (match := _REGEX.match(text, position)):
            self._add("regex", match[1].replace("\\/", "/"), match.end(), spaced)
        elif character == "@" and (match := _HEREDOC.match(text, position)):
            self._pending.append((match[2].strip(), bool(match[1]), match[3] or "", len(self._tokens)))
            self._add("text", "", match.end(), spaced)
        elif (match := _WORD_WITH_DIGIT.match(text, position)) and not _NUMBER.match(text, position):
            self._add("name", match[0], match.end(), spaced)
        elif match := _NUMBER.match(text, position):
            self._add("number", match[0], match.end(), spaced)
        elif match := _TYPE.match(text, position):
            self._add("type", match[0].removeprefix("::"), match.end(), spaced)
        elif match := _NAME.match(text, position):
            self._add("name", match[0].removeprefix("::"), match.end(), spaced)
        else:
            operator = next((item for item in _OPERATORS if text.startswith(item, position)), "")
            if not operator:
                raise SyntaxProblem(self.line, f"the character {character!r} is unexpected")
            self._add("operator", operator, position + len(operator), spaced)

    def _is_division(self) -> bool:
        if not self._tokens:
            return False
        last = self._tokens[-1]
        if last.kind == "name" and last.value in _WORDS_BEFORE_REGEX:
            return False
        return last.kind in _BEFORE_DIVISION or last.value in (")", "]")

    def _single_quoted(self, start: int) -> tuple[int, str]:
        result, position, text = [], start + 1, self.text
        while position < len(text):
            character = text[position]
            if character == "\\" and text[position + 1 : position + 2] in ("'", "\\"):
                result.append(text[position + 1])
                position += 2
            elif character == "'":
                return position + 1, "".join(result)
            else:
                result.append(character)
                position += 1
        raise SyntaxProblem(self.line, "the text lacks its closing quote")

    def _double_quoted(self, start: int) -> tuple[int, list[Part]]:
        end = _end_of_text(self.text, start + 1, self.line)
        return end + 1, split_text(self.text[start + 1 : end], self.line, _DOUBLE_ESCAPES)

    def _read_heredocs(self) -> None:
        for tag, interpolated, flags, index in self._pending:
            body: list[str] = []
            begin = self.line
            while True:
                if self.position >= len(self.text):
                    raise SyntaxProblem(begin, f"the heredoc lacks its end {tag}")
                end = self.text.find("\n", self.position)
                end = len(self.text) if end < 0 else end
                row = self.text[self.position : end]
                self.position = min(end + 1, len(self.text))
                self.line += 1
                if match := re.fullmatch(rf"\s*(\|)?\s*(-)?\s*{re.escape(tag)}\s*", row):
                    break
                body.append(row)
            margin = len(row[: row.index("|")]) if match[1] else 0
            lines = [line[min(margin, len(line) - len(line.lstrip())) :] for line in body]
            value = "".join(f"{line}\n" for line in lines)
            value = value.removesuffix("\n") if match[2] else value
            letters = flags[1:] if flags else ""
            names = letters.replace("L", "\n") if letters else ("ntrs$\n\\" if flags else "")
            escapes = {name: _DOUBLE_ESCAPES[name] for name in names if name in _DOUBLE_ESCAPES}
            if escapes:
                escapes["\\"] = "\\"
            parts = split_text(value, begin, escapes, interpolate=interpolated)
            token = self._tokens[index]
            is_plain = all(isinstance(part, str) for part in parts)
            joined = "".join(part for part in parts if isinstance(part, str))
            self._tokens[index] = (
                Token("string", joined, token.line, token.spaced, start=token.start)
                if is_plain
                else Token("text", "", token.line, token.spaced, tuple(parts), token.start)
            )
        self._pending = []


def _end_of_text(text: str, position: int, line: int) -> int:
    """Return the position of the closing quote. Quotes in ``${…}`` do not count."""
    begin = line
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
        elif character == '"':
            return position
        elif text.startswith("${", position):
            position = end_of_braces(text, position + 2, begin) + 1
        else:
            position += 1
    raise SyntaxProblem(begin, "the text lacks its closing quote")


def end_of_braces(text: str, position: int, line: int) -> int:
    """Return the position of the brace that closes an expression. Raises ``SyntaxProblem``."""
    depth = 1
    while position < len(text):
        character = text[position]
        if character in "'\"":
            position = _end_of_inner(text, position, line)
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    raise SyntaxProblem(line, "the expression in a text lacks its closing brace")


def _end_of_inner(text: str, position: int, line: int) -> int:
    """Return the position of the quote that closes a text in an expression."""
    quote = text[position]
    position += 1
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == quote:
            return position
        position += 1
    raise SyntaxProblem(line, "a text in an expression lacks its closing quote")


def split_text(text: str, line: int, escapes: dict[str, str], *, interpolate: bool = True) -> list[Part]:
    """Return the parts of a text: resolved escapes, and sources of expressions. Raises ``SyntaxProblem``."""
    parts: list[Part] = []
    current: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\n":
            line += 1
        if character == "\\" and escapes and position + 1 < len(text):
            following = text[position + 1]
            if following == "u" and (
                match := re.compile(r"u\{?([0-9A-Fa-f]{1,6})\}?").match(text, position + 1)
            ):
                code = int(match[1], 16)
                current.append(chr(code) if code < 0x110000 else "\N{REPLACEMENT CHARACTER}")
                position = match.end()
                continue
            current.append(escapes.get(following, "\\" + following))
            position += 2
        elif interpolate and text.startswith("${", position):
            end = end_of_braces(text, position + 2, line)
            if current:
                parts.append("".join(current))
                current = []
            parts.append(Source(text[position + 2 : end], line))
            line += text.count("\n", position, end)
            position = end + 1
        elif interpolate and character == "$" and (match := _VARIABLE.match(text, position)):
            if current:
                parts.append("".join(current))
                current = []
            parts.append(Source(match[0], line))
            position = match.end()
        else:
            current.append(character)
            position += 1
    if current or not parts:
        parts.append("".join(current))
    return parts
