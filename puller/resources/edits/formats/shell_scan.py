"""Where the assignments of a shell text stand, and what is inside something else: just enough of the shell for that.

* Found are words, with where they begin and end, and what they are inside: an ``if``, a ``case``, a loop, a function,
  a group, a here document, a substitution, or quotes that another line began.
* Nothing is expanded. A text that is no complete shell text (a quote without its end) is refused.
* One pass, a few characters at a time; nothing is recursive, so that nesting costs no more than length.
"""

import re

import msgspec

from puller.resources.edits.formats.model import FormatError

# In a text whose lines end with LF. A backslash before a newline joins two lines, also between words.
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
_GOES_ON = {"then", "else", "elif", "do", "!", "time"}  # a command may follow


class Word(msgspec.Struct, frozen=True):
    """A word of the text, by its places in it."""

    start: int
    end: int
    inside: str
    """What it is inside, ``an if``; empty at the top."""


class Scan(msgspec.Struct, frozen=True):
    """The words of a text, and which lines begin inside something."""

    words: list[Word]
    inside: dict[int, str]
    """What lines, counted from 0, begin inside; those at the top are not here."""


def scan(text: str) -> Scan:
    """The words of a shell text. Raises :class:`FormatError` when quotes or a construct have no end."""
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
            raise FormatError(f"the here document that ends with {self.here[0][0]} has no end")
        if self.inside:
            what, line = self.inside[-1]
            raise FormatError(f"{what} of line {line + 1} has no end")

    def step(self, position: int) -> int:
        """Reads one piece; returns where the next one begins."""
        match = _TOKEN.match(self.text, position)
        assert match is not None  # noqa: S101 - the last alternative takes any character
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
        # An EnvironmentFile has comments that begin with a semicolon; no shell takes a line that does.
        is_first = piece == ";" and not self.text[self.line_start : position].strip()
        return is_first or (piece == "#" and self.word is None)

    def in_word(self, kind: str, piece: str, position: int, end: int) -> int:
        if kind == "single":
            if len(piece) < 2 or not piece.endswith("'"):
                raise FormatError(f"the quotes of line {self.line + 1} have no end")
            self.pass_lines(position, end, "quotes")
        elif kind in ("double", "command", "arithmetic", "brace", "back"):
            what = "quotes" if kind == "double" else "a substitution"
            closed = self.closed(piece, end, what)
            self.pass_lines(position, closed, what)
            return closed
        return end

    def closed(self, opening: str, position: int, what: str) -> int:
        """Where what was opened ends. Keeps what is open in a list, innermost last."""
        open_: list[str] = list("((" if opening == "$((" else opening[-1])
        while open_:
            pattern = {'"': _IN_DOUBLE, "{": _IN_BRACE, "`": _IN_BACK, "(": _IN_COMMAND}[open_[-1]]
            match = pattern.match(self.text, position)
            if match is None:
                raise FormatError(f"{what} of line {self.line + 1} has no end")
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
        # A ( may follow a name, as in f(); a ) may end a pattern of a case.
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
        """Whether a word at the place of a command is the shell's own."""
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
                    raise FormatError(f"the here document that ends with {delimiter} has no end")
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

    def pass_lines(self, start: int, end: int, what: str) -> None:
        newline = self.text.find("\n", start, end)
        while newline >= 0:
            self.next_line(newline + 1, what)
            newline = self.text.find("\n", newline + 1, end)

    def next_line(self, start: int, inside: str) -> None:
        self.line, self.line_start = self.line + 1, start
        if inside or self.inside:
            self.lines_inside[self.line] = inside or self.inside[-1][0]
