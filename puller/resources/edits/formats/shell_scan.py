"""Positions of the assignments in a shell text, and the constructs that contain them.

* Each word has its start and end, and its construct: an ``if``, a ``case``, a loop, a function, a group, a here
  document, a substitution, or quotes that begin on an earlier line.
* Nothing is expanded. An incomplete shell text (an unterminated quote) is rejected.
* The scan is one pass without recursion, so that nesting costs no more than length.
"""

import re

import msgspec

from puller.resources.edits.formats.model import FormatError

# For a text whose lines end with LF. A backslash before a newline joins two lines, also between words.
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+)|(?P<newline>\n)|(?P<joined>\\\n)|(?P<escape>\\.)|(?P<single>'[^']*'?)|(?P<double>")
    |(?P<arithmetic>\$\(\()|(?P<command>\$\()|(?P<brace>\$\{)|(?P<back>`)
    |(?P<here><<-?(?!<))|(?P<string><<<)
    |(?P<operator>;;&?|;&|&&|\|\||[;&|()<>])|(?P<comment>\#)|(?P<plain>[^ \t\r\n\\'"`$;&|()<>\#]+|\$|.)""",
    re.VERBOSE | re.DOTALL,
)
_IN_DOUBLE = re.compile(r'\\.|"|\$\(\(?|\$\{|`|[^\\"$`]+|.', re.DOTALL)
_IN_BRACE = re.compile(r"""\\.|'[^']*'?|"|\$\(\(?|\$\{|\}|`|[^\\'"$`}]+|.""", re.DOTALL)
_IN_BACK = re.compile(r"\\.|`|[^\\`]+", re.DOTALL)
_IN_COMMAND = re.compile(
    r"""\\.|'[^']*'?|"|\$\{|`|\(|\)|(?<![^\s;&|()])\#[^\n]*|[^\\'"$`()\#]+|.""", re.DOTALL
)
_OPENS = {
    "if": "an if",
    "case": "a case",
    "for": "a loop",
    "while": "a loop",
    "until": "a loop",
    "select": "a loop",
}
_OPENS |= {"{": "a function or group", "(": "a function or group"}
_CLOSES = {"fi": "an if", "esac": "a case", "done": "a loop", "}": "a function or group"}
_GOES_ON = {"then", "else", "elif", "do", "!", "time"}  # keywords that a command may follow


class Word(msgspec.Struct, frozen=True):
    """A word of the text, by its positions."""

    start: int
    end: int
    inside: str
    """The construct that contains it, such as ``an if``. Empty at the top level."""


class Scan(msgspec.Struct, frozen=True):
    """The words of a text, and the lines that begin inside a construct."""

    words: list[Word]
    inside: dict[int, str]
    """The constructs that contain the start of a line, by line from 0. Top-level lines are omitted."""


def scan(text: str) -> Scan:
    """Return the words of a shell text. Raises :class:`FormatError` for unterminated quotes or constructs."""
    scanner = _Scanner(text)
    scanner.run()
    return Scan(scanner.words, scanner.lines_inside)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[Word] = []
        self.lines_inside: dict[int, str] = {}
        self.inside: list[tuple[str, int]] = []
        self.here: list[tuple[str, bool]] = []
        self.word: int | None = None
        self.is_command = True
        self.wants_delimiter: str | None = None
        self.line, self.line_start = 0, 0

    def run(self) -> None:
        position = 0
        while position < len(self.text):
            position = self.step(position)
        self.end_word(position)
        if self.here:
            raise FormatError(f"the here document that ends with {self.here[0][0]} is not closed")
        if self.inside:
            detail, line = self.inside[-1]
            raise FormatError(f"{detail} of line {line + 1} is not closed")

    def step(self, position: int) -> int:
        """Read one token. Returns the position of the next one."""
        match = _TOKEN.match(self.text, position)
        assert match is not None  # noqa: S101 - the last alternative matches any character
        kind, end = str(match.lastgroup), match.end()
        if self.is_comment(match[0], position):
            newline = self.text.find("\n", position)
            return len(self.text) if newline < 0 else newline
        if kind in ("blank", "newline", "operator", "here", "string"):
            self.end_word(position)
            return self.between(kind, match[0], end)
        if kind == "joined":
            self.next_line(end, "a line that goes on")
            return end
        if self.word is None:
            self.word = position
        return self.in_word(kind, match[0], position, end)

    def is_comment(self, piece: str, position: int) -> bool:
        # Comments of an EnvironmentFile may begin with a semicolon, which is a syntax error in a shell.
        is_first = piece == ";" and not self.text[self.line_start : position].strip()
        return is_first or (piece == "#" and self.word is None)

    def in_word(self, kind: str, piece: str, position: int, end: int) -> int:
        if kind == "single":
            if len(piece) < 2 or not piece.endswith("'"):
                raise FormatError(f"the quotes of line {self.line + 1} are not closed")
            self.pass_lines(position, end, "quotes")
        elif kind in ("double", "command", "arithmetic", "brace", "back"):
            detail = "quotes" if kind == "double" else "a substitution"
            closed = self.closed(piece, end, detail)
            self.pass_lines(position, closed, detail)
            return closed
        return end

    def closed(self, opening: str, position: int, what: str) -> int:
        """Return the end of a construct. Nested constructs are kept in a list, the innermost last."""
        open_: list[str] = list("((" if opening == "$((" else opening[-1])
        while open_:
            pattern = {'"': _IN_DOUBLE, "{": _IN_BRACE, "`": _IN_BACK, "(": _IN_COMMAND}[open_[-1]]
            match = pattern.match(self.text, position)
            if match is None:
                raise FormatError(f"{what} of line {self.line + 1} is not closed")
            piece, position = match[0], match.end()
            innermost = open_[-1]
            if piece == {"{": "}", "(": ")"}.get(innermost, innermost):
                open_.pop()
            elif innermost == "`" or (piece == "(" and innermost != "("):
                pass  # plain text: a parenthesis opens something only within a command
            elif piece in ('"', "`", "$(", "${", "("):
                open_.append(piece[-1])
            elif piece == "$((":
                open_ += ["(", "("]
        return position

    def between(self, kind: str, piece: str, end: int) -> int:
        if kind == "newline":
            self.is_command = True
            self.next_line(end, "")
            return self.skip_here(end) if self.here else end
        if kind == "here":
            self.wants_delimiter = piece
        elif kind == "operator":
            self.operator(piece)
        return end

    def operator(self, piece: str) -> None:
        # A ( may follow a name, as in f(). A ) may end a pattern of a case.
        if piece == "(":
            self.inside.append(("a function or group", self.line))
        elif piece == ")" and self.inside and self.inside[-1][0] == "a function or group":
            self.inside.pop()
        elif piece == ")" and not (self.inside and self.inside[-1][0] == "a case"):
            raise FormatError(f"line {self.line + 1} has a ) that nothing has opened")
        self.is_command = piece not in ("<", ">")

    def end_word(self, end: int) -> None:
        if self.word is None:
            return
        start, self.word = self.word, None
        text = self.text[start:end]
        if self.wants_delimiter is not None:
            self.here.append((re.sub(r"['\"\\]", "", text), self.wants_delimiter == "<<-"))
            self.wants_delimiter = None
            return
        if self.is_command and self.keyword(text):
            return
        self.words.append(Word(start, end, self.inside[-1][0] if self.inside else ""))
        self.is_command = False

    def keyword(self, text: str) -> bool:
        """Return whether a word in command position is a keyword of the shell, and process it."""
        if text in _OPENS:
            self.inside.append((_OPENS[text], self.line))
            self.is_command = text not in ("case", "for", "select")
        elif text in _CLOSES:
            if not self.inside or self.inside[-1][0] != _CLOSES[text]:
                raise FormatError(f"line {self.line + 1} has a {text} that nothing has opened")
            self.inside.pop()
        elif text not in _GOES_ON:
            return False
        return True

    def skip_here(self, position: int) -> int:
        for delimiter, tabs in self.here:
            while True:
                if position >= len(self.text):
                    raise FormatError(f"the here document that ends with {delimiter} is not closed")
                newline = self.text.find("\n", position)
                end = len(self.text) if newline < 0 else newline
                content = self.text[position:end]
                self.lines_inside[self.line] = "a here document"
                position = min(end + 1, len(self.text))
                self.next_line(position, "")
                if (content.lstrip("\t") if tabs else content) == delimiter:
                    break
        self.here = []
        return position

    def pass_lines(self, start: int, end: int, description: str) -> None:
        newline = self.text.find("\n", start, end)
        while newline >= 0:
            self.next_line(newline + 1, description)
            newline = self.text.find("\n", newline + 1, end)

    def next_line(self, start: int, inside: str) -> None:
        self.line, self.line_start = self.line + 1, start
        if inside or self.inside:
            self.lines_inside[self.line] = inside or self.inside[-1][0]
