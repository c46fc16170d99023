"""Splits the text of a Jet template into tokens.

* Outside delimiters everything is text, except comments ``{* … *}``, which are dropped.
* ``[[- `` removes the white space before it, `` -]]`` the white space after it. The dash needs its space.
* Invalid text becomes a token of kind ``error``, with the message as its text. The parser raises it when it gets there,
  so that the first error in the file is reported.
* A sign is part of a number depending on the text before it: ``5 -3`` is two numbers, ``n-3`` a difference.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SPACES: Final = " \t\r\n"
KEYWORDS: Final = frozenset((
    "extends", "import", "include", "block", "yield", "content", "if", "else", "end", "range",
    "try", "catch", "return", "and", "or", "not", "nil", "msg", "trans",
))  # fmt: skip
_WORD_KINDS: Final = {"and": "&&", "or": "||", "not": "!", "true": "bool", "false": "bool", "_": "_"}
_SPACES: Final = re.compile(f"[{SPACES}]+")
_TOKEN: Final = re.compile(
    r"""
    (?P<number> (?: 0[xX][0-9a-fA-F]*(?:\.[0-9a-fA-F]*)? | [0-9]+(?:\.[0-9]*)? | \.[0-9]+ ) (?:[eE][+-]?[0-9]*)? i? )
  | (?P<word>   \w+ )
  | (?P<field>  \.\w* )
  | (?P<string> "(?:[^"\\\n]|\\[^\n])*" )
  | (?P<raw>    `[^`]*` )
  | (?P<char>   '(?:[^'\\\n]|\\[^\n])*' )
  | (?P<sign>   && | \|\| | [<>!=:]= | [-,;*/%+?<>!=:|\[\]()] )
    """,
    re.VERBOSE,
)
_UNTERMINATED: Final = {
    '"': "the string requires a closing quote on its line",
    "`": "the raw string requires a closing backquote",
    "'": "the character constant requires a closing quote on its line",
}
_MAY_END_WORD: Final = frozenset(SPACES + ".,|:)=(;?[]+-/%*&!<>")
_TAKES_NO_SIGN_AFTER: Final = frozenset(
    ("+", "-", "number", "name", "string", "raw", "char", "bool", "field", "dot", "trans")
)


class Token(NamedTuple):
    """``kind`` is a class (``name``, ``field``, ``string`` …), or the keyword or sign itself.

    ``spaced`` is true after white space.
    """

    kind: str
    text: str
    offset: int
    spaced: bool


def tokenize(text: str, left: str, right: str) -> list[Token]:
    """Return all tokens of a template, with ``eof`` as the last one."""
    return _Lexer(text, left, right).run()


class _Lexer:
    def __init__(self, text: str, left: str, right: str) -> None:
        self.text = text
        self.left = left
        self.right = right
        self.tokens: list[Token] = []
        self.failed = False

    def run(self) -> list[Token]:
        opening = re.compile(f"{re.escape(self.left)}|{{\\*")
        # A comment counts only where a delimiter could still follow. Jet checks only for its first character.
        last = self.text.rfind(self.left[0])
        position = start = 0
        while not self.failed and (match := opening.search(self.text, position)):
            if match[0] == self.left:
                self.add_text(start, self.trimmed_end(start, match))
                start = position = self.lex_action(match.start())
            elif match.start() <= last:
                self.add_text(start, match.start())
                start = position = self.skip_comment(match.start())
            else:
                break
        if not self.failed:
            self.add_text(start, len(self.text))
        self.add("eof", "the end of the template", len(self.text))
        return self.tokens

    def add(self, kind: str, text: str, offset: int, spaced: bool = False) -> None:
        self.tokens.append(Token(kind, text, offset, spaced))

    def add_text(self, start: int, end: int) -> None:
        if end > start:
            self.add("text", self.text[start:end], start)

    def fail(self, message: str, offset: int) -> int:
        self.add("error", message, offset)
        self.failed = True
        return len(self.text)

    def trimmed_end(self, start: int, opening: re.Match[str]) -> int:
        end = opening.start()
        if self.text.startswith("- ", opening.end()):
            end = start + len(self.text[start:end].rstrip(SPACES))
        return end

    def skip_comment(self, start: int) -> int:
        end = self.text.find("*}", start + 2)
        return self.fail("the comment is not closed with *}", start) if end < 0 else end + 2

    def lex_action(self, start: int) -> int:
        """Add tokens from a left delimiter to after its right delimiter. Return the position of the next text."""
        self.add("left", self.left, start)
        position = start + len(self.left)
        if self.text.startswith("- ", position):
            position += 2
        parentheses = 0
        while not self.failed:
            begin = position
            position = self.after_spaces(begin)
            spaced = position > begin
            if (end := self.closing(begin, position)) >= 0:
                if parentheses:
                    return self.fail(
                        f"{self.right} ends the action, but a parenthesis is still open", position
                    )
                self.add("right", self.right, position, spaced)
                return end
            if position >= len(self.text):
                return self.fail(f"the action is not closed with {self.right}", start)
            position = self.lex_token(position, spaced)
            parentheses += {"(": 1, ")": -1}.get(self.tokens[-1].kind, 0)
            if parentheses < 0:
                return self.fail("the opening parenthesis is missing", self.tokens.pop().offset)
        return position

    def closing(self, begin: int, position: int) -> int:
        """Return the position after a right delimiter here, with or without a trim mark, or -1."""
        if self.text.startswith(self.right, position):
            return position + len(self.right)
        dashed = "-" + self.right
        if position > begin and self.text[position - 1] == " " and self.text.startswith(dashed, position):
            return self.after_spaces(position + len(dashed))
        return -1

    def after_spaces(self, position: int) -> int:
        match = _SPACES.match(self.text, position)
        return match.end() if match else position

    def lex_token(self, position: int, spaced: bool) -> int:
        match = _TOKEN.match(self.text, position + self.sign_length(position, spaced))
        if match is None or match.lastgroup is None:
            character = self.text[position]
            return self.fail(_UNTERMINATED.get(character, f"{character!r} means nothing here"), position)
        kind, text, end = match.lastgroup, self.text[position : match.end()], match.end()
        following = self.text[end : end + 1]
        if kind == "number" and (following == "_" or following.isalnum()):
            return self.fail(f"{text + following} is not a number", position)
        if kind in ("word", "field") and not self.may_end_word(end):
            return self.fail(f"{following!r} cannot follow {text}", end)
        self.add(self.kind_of(kind, text), text, position, spaced)
        return end

    def sign_length(self, position: int, spaced: bool) -> int:
        """Return 1 for a sign that belongs to the number after it, else 0."""
        if self.text[position] not in "+-" or self.text[position + 1 : position + 2] not in set("0123456789"):
            return 0
        return 1 if spaced or self.tokens[-1].kind not in _TAKES_NO_SIGN_AFTER else 0

    def may_end_word(self, end: int) -> bool:
        return end >= len(self.text) or self.text[end] in _MAY_END_WORD or self.text[end] == self.right[0]

    @staticmethod
    def kind_of(group: str, text: str) -> str:
        if group == "word":
            return _WORD_KINDS.get(text) or (text if text in KEYWORDS else "name")
        if group == "field":
            return "dot" if text == "." else "field"
        return text if group == "sign" else group
