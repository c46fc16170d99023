"""Settings of files with assignments (``KEY=VALUE``), such as ``/etc/default``.

See ``docs/resources/setting.md``. ``EnvironmentFile=`` of systemd reads the same format.

* A value is the literal text that the program reads. Values that a shell would expand cannot be compared.
* The last assignment takes precedence. The quotes of its line are kept if they can contain the value unchanged.
* The shell language is not parsed. An assignment inside an ``if``, a function or another construct is rejected, and so
  is an assignment on the same line as a command.
* The scan finds the start and the end of each word, and its construct: an ``if``, a ``case``, a loop, a function, a
  group, a here document, a substitution, or quotes that begin on an earlier line. It expands nothing, and rejects an
  incomplete text (an unterminated quote). It is one pass without recursion, so that nesting costs no more than length.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

import msgspec

from puller.resources.base import PropertyError
from puller.resources.edits.formats.text_lines import (
    BLANKS,
    FormatError,
    Found,
    Lines,
    Setting,
    behind_the_last,
    edited,
    lines_of,
    proven,
    remembered,
    value_problems,
)
from puller.system.commands import split_words

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


NEW_TEXT = ""
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_COMMENTED = re.compile(r"[ \t]*[#;][#; \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)=")
_BEFORE = re.compile(r"[ \t]*(export[ \t]+)?")
_BARE = frozenset("_-./:,@%+=*?[]{}!#")
_EXPANDED_WITH_EXPORT = frozenset("*?[{")  # export is a command, and some shells expand its arguments
_IN_QUOTES = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*["]""", re.DOTALL)
_QUOTED = re.compile(r"""'[^']*'|\\.|"(?:[^"\\]|\\.)*["]""", re.DOTALL)
_SEGMENT = re.compile(r"""'[^']*'|\\.|"(?:[^"\\]|\\.)*"|.""", re.DOTALL)


class _Assignment(msgspec.Struct, frozen=True):
    index: int
    """The line, counted from 0."""
    head: str
    """The line before the value."""
    written: str
    """The value with its quotes."""
    tail: str
    """The rest of the line."""
    refusal: str = ""
    """Why it cannot be read or changed."""

    @property
    def is_exported(self) -> bool:
        return "export" in self.head.split()

    @property
    def value(self) -> str | None:
        """The value that the program reads. ``None`` if it requires a shell."""
        if _is_expanded(self.written):
            return None
        return "".join(split_words(self.written))


class _Document(msgspec.Struct, frozen=True):
    assignments: dict[str, list[_Assignment]]
    commented: dict[str, int]


def problems(setting: Setting) -> Iterator[PropertyError]:
    """Yield errors of a setting that are independent of the file."""
    if not isinstance(setting.key, str) or not _KEY.fullmatch(setting.key):
        sentence = f"is {setting.key!r}, expected letters, digits and underscores"
        yield PropertyError("key", sentence, because=["format"])
    if setting.value is not msgspec.UNSET:
        yield from value_problems(setting.value, blanks=True)


def find(text: str, setting: Setting) -> Found:
    """Return the value and line of a key. Raises ``FormatError`` for an assignment inside a construct."""
    assignments = _assignments(text, setting)
    if not assignments:
        return Found(is_there=False)
    last = assignments[-1]
    value = last.written if last.value is None else last.value
    return Found(is_there=True, value=value, line=last.index + 1)


def with_value(text: str, setting: Setting) -> str:
    """Return the text with the value. Raises the exceptions of :func:`find`."""
    assignments, lines = _assignments(text, setting), lines_of(text)
    if not assignments:
        commented = _document(text).commented.get(str(setting.key))
        at = behind_the_last(lines) if commented is None else commented + 1
        new = edited(
            lines, at=at, inserted=[f"{setting.key}={_quoted(setting.value, '', is_exported=False)}"]
        )
        return proven(new, setting, find)
    last = assignments[-1]
    replaced = {}
    if last.value != setting.value:
        style = _style_of(last.written)
        written = _quoted(setting.value, style, is_exported=last.is_exported)
        replaced = {last.index: f"{last.head}{written}{last.tail}"}
    removed = _removable(assignments[:-1])
    if not replaced and not removed:
        return text
    return proven(edited(lines, replaced=replaced, removed=removed), setting, find)


def without(text: str, setting: Setting) -> str:
    """Return the text without the key. Raises ``FormatError`` as :func:`find`, and for lines with other effects."""
    assignments = _assignments(text, setting)
    return edited(lines_of(text), removed=_removable(assignments)) if assignments else text


def _assignments(text: str, setting: Setting) -> list[_Assignment]:
    assignments = _document(text).assignments.get(str(setting.key), [])
    for assignment in assignments:
        if assignment.refusal:
            raise FormatError(f"line {assignment.index + 1} {assignment.refusal}")
    return assignments


def _removable(assignments: list[_Assignment]) -> list[int]:
    for assignment in assignments:
        key = assignment.head.split()[-1].rstrip("=")
        tail = assignment.tail.strip(BLANKS).lstrip(";").strip(BLANKS)
        if not re.fullmatch(rf"(export[ \t]+{key})?[ \t;]*(\#.*)?", tail, re.DOTALL):
            raise FormatError(f"line {assignment.index + 1} does more than to set {key}")
    return [assignment.index for assignment in assignments]


@remembered
def _document(text: str) -> _Document:
    lines = lines_of(text)
    full_text = "".join(f"{content}\n" for content in lines.contents)
    result = scan(full_text)
    document = _Document({}, {})
    for key, assignment in _read(lines, full_text, result):
        document.assignments.setdefault(key, []).append(assignment)
    for index, content in enumerate(lines.contents):
        if index not in result.inside and (commented := _COMMENTED.match(content)):
            document.commented[commented[1]] = index
    return document


def _read(lines: Lines, text: str, scan: Scan) -> Iterator[tuple[str, _Assignment]]:
    starts = list(accumulate((len(content) + 1 for content in lines.contents), initial=0))
    for number, word in enumerate(scan.words):
        index = bisect_right(starts, word.start) - 1
        content, start, end = lines.contents[index], word.start - starts[index], word.end - starts[index]
        match = _ASSIGNED.match(content, start)
        if match is None:
            continue
        inside = word.inside or scan.inside.get(index)
        if inside:
            refusal = f"is inside {inside}"
        elif not _is_first(content, start):
            refusal = "sets the key behind something else"
        else:
            refusal = _refusal(text, scan.words, number, starts[index], content)
        if refusal:  # stores only the refusal, because a hostile line may have thousands of words
            yield match[1], _Assignment(index, "", "", "", refusal)
        else:
            head, written, tail = content[: match.end()], content[match.end() : end], content[end:]
            yield match[1], _Assignment(index, head, written, tail)


def _is_first(content: str, start: int) -> bool:
    """Return whether only ``export`` precedes a position in a line."""
    before = _BEFORE.match(content)
    return before is not None and before.end() == start


def _refusal(text: str, words: list[Word], number: int, start: int, content: str) -> str:
    """Return why the first assignment of a line that begins at ``start`` cannot be edited."""
    word = words[number]
    assigned = _ASSIGNED.match(text, word.start)
    if word.end - start > len(content):
        return "has a value that goes on in the next line"
    if assigned and assigned[2]:
        return "appends to the previous value of the key"
    if not _ends_command(content[_end_of_list(text, words, number) - start :]):
        return "has a command behind the value, as the whole value is not quoted"
    return ""


def _end_of_list(text: str, words: list[Word], number: int) -> int:
    """Return the end of the assignments that begin with a word."""
    while number + 1 < len(words):
        following = words[number + 1]
        is_next = not text[words[number].end : following.start].strip(" \t")
        if not (is_next and _ASSIGNED.match(text, following.start)):
            break
        number += 1
    return words[number].end


def _ends_command(behind: str) -> bool:
    """Return whether a line ends here, or continues with a comment or another command."""
    return behind.lstrip(BLANKS)[:1] in ("", ";", "#")


def _is_expanded(written: str) -> bool:
    """Return whether a shell would expand a value."""
    bare = _QUOTED.sub("''", written)
    if bare.startswith("~") or ":~" in bare:
        return True
    return any(
        segment in ("$", "`") or (segment[0] == '"' and re.search(r"[$`]", re.sub(r"\\.", "", segment)))
        for segment in _SEGMENT.findall(written)
    )


def _style_of(written: str) -> str:
    """Return the quotes around a value, or a blank if only part of it is quoted."""
    if _IN_QUOTES.fullmatch(written):
        return written[0]
    return " " if re.search(r"""['"\\]""", written) else ""


def _quoted(value: str, style: str, *, is_exported: bool) -> str:
    """Return the value as shell text, in quotes of that style if they can contain it unchanged."""
    if style == "'" and "'" not in value:
        return f"'{value}'"
    needs_single = any(sign in value for sign in '$`\\"')
    if style == '"' and not needs_single:
        return f'"{value}"'
    if _can_be_bare(value, is_exported=is_exported):
        return value
    if not needs_single:
        return f'"{value}"'
    if "'" not in value:
        return f"'{value}'"
    escaped = re.sub(r'([$`\\"])', r"\\\1", value)
    return f'"{escaped}"'


def _can_be_bare(value: str, *, is_exported: bool) -> bool:
    if value.startswith("#") or (is_exported and not _EXPANDED_WITH_EXPORT.isdisjoint(value)):
        return False
    return all(sign.isalnum() or sign in _BARE for sign in value)
