"""Columns of template files: Jinja2 counts lines only, so a number of a line also carries a column.

* The column is where the code of the tag begins on its line: in ``a = {{ facts.x }}`` it is 8.
* Text outside of tags has no column. A number without a column is the number of the line, as Jinja2 has it.
"""

from collections.abc import Iterable, Iterator

from jinja2.lexer import newline_re

_SHIFT = 24
_LINES = (1 << _SHIFT) - 1
_BEGINS = frozenset({"variable_begin", "block_begin", "linestatement_begin"})
_ENDS = frozenset({"variable_end", "block_end", "linestatement_end"})
_IGNORED = frozenset({"whitespace", "comment", "comment_begin", "comment_end", "linecomment"})

Token = tuple[int, str, str]
"""The line, the kind and the text, as Jinja2's lexer yields them."""


def place_of(number: int) -> tuple[int, int]:
    """Return the line and the column, both from 1, of a number that ``with_columns`` made."""
    return number & _LINES, (number >> _SHIFT) or 1


def with_columns(tokens: Iterable[Token], source: str) -> Iterator[Token]:
    """Yield the tokens of a text, with columns in the numbers of their lines."""
    text = "\n".join(newline_re.split(source)[::2])  # as the lexer reads it
    position, column, line_of_column = 0, 0, 0
    for line, kind, value in tokens:
        # The lexer only leaves out stripped blanks.
        position = max(text.find(value, position), position)
        if kind in _BEGINS or kind == "data":
            column = line_of_column = 0
        elif kind not in _IGNORED and line != line_of_column:
            column, line_of_column = position - text.rfind("\n", 0, position), line
        position += len(value)
        yield line | column << _SHIFT, kind, value
        if kind in _ENDS:
            column = line_of_column = 0
