"""Splitting a command line into words by the shell's quoting rules, without a shell.

Blanks, tabs and newlines separate words. Single quotes are literal. Inside double quotes a backslash escapes only
``$``, a backtick, ``"``, a newline and itself; outside it escapes anything, and with a newline it vanishes. There are
no comments, globs or expansions. (The rules are in ``docs/resources/exec.md``; the standard library's
``shlex`` differs in the escapes.)
"""

_BLANKS = " \t\n\r"
_ESCAPED_IN_DOUBLE = '$`"\\'


def split_words(text: str) -> list[str]:
    """The words of ``text``; raises ``ValueError`` when a quote or escape is not ended."""
    words: list[str] = []
    word: list[str] | None = None  # None between words, so that '' is a word too
    position, end = 0, len(text)
    while position < end:
        character = text[position]
        position += 1
        if character in _BLANKS:
            if word is not None:
                words.append("".join(word))
                word = None
            continue
        if character == "\\" and text.startswith("\n", position):
            position += 1
            continue
        word = [] if word is None else word
        if character == "'":
            position = _single_quoted(text, position, word)
        elif character == '"':
            position = _double_quoted(text, position, word)
        elif character == "\\":
            if position == end:
                raise ValueError("ends in a backslash")
            word.append(text[position])
            position += 1
        else:
            word.append(character)
    if word is not None:
        words.append("".join(word))
    return words


def _single_quoted(text: str, position: int, word: list[str]) -> int:
    end = text.find("'", position)
    if end < 0:
        raise ValueError("has a single quote that is not closed")
    word.append(text[position:end])
    return end + 1


def _double_quoted(text: str, position: int, word: list[str]) -> int:
    while position < len(text):
        character = text[position]
        position += 1
        if character == '"':
            return position
        if character == "\\" and position < len(text):
            escaped = text[position]
            position += 1
            if escaped != "\n":
                word.append(escaped if escaped in _ESCAPED_IN_DOUBLE else f"\\{escaped}")
        else:
            word.append(character)
    raise ValueError("has a double quote that is not closed")
