"""Text of man pages, in the part of roff that groff and mandoc interpret identically.

* Any text is displayed literally: requests and escapes of roff are escaped.
* The date of a page is the date of the commit.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from puller.version import __version__

_PAGE: Final = 70
"""Width of a table in characters, without the margin of a page for 80."""

_GAP: Final = 3
_WIDEST_KEPT: Final = 24
"""Largest natural width of a column in characters. Wider columns are filled like paragraphs."""

_NARROWEST_FILLED: Final = 8


def escape(text: str) -> str:
    """Escape text for the middle of a line."""
    return text.replace("\\", "\\e").replace("-", "\\-")


def bold(text: str) -> str:
    """Format text in bold, as man pages display code."""
    return f"\\fB{escape(text)}\\fR"


def line(text: str) -> str:
    """Prevent an escaped line from being interpreted as a request."""
    return f"\\&{text}" if text.startswith((".", "'")) else text


@dataclass
class Page:
    """A man page under construction. ``name`` is the argument of ``man``."""

    name: str
    section: int
    summary: str
    lines: list[str] = field(default_factory=list)

    def add(self, *lines: str) -> None:
        """Add lines of roff."""
        self.lines += lines

    def section_heading(self, title: str) -> None:
        """Start a section."""
        self.add(f'.SH "{quoted(title.upper())}"')

    def heading(self, title: str) -> None:
        """Start a part of a section."""
        self.add(f'.SS "{quoted(title)}"')

    def paragraph(self, text: str) -> None:
        """Add a paragraph of escaped text."""
        self._part(".PP")
        self.add(*map(line, text.splitlines()))

    def literal(self, text: str) -> None:
        """Add preformatted text."""
        shown = [line(escape(one.rstrip())) for one in text.rstrip("\n").expandtabs().splitlines()]
        self._part(".sp")
        self.add(".RS 4", ".nf", *(one or "\\&" for one in shown), ".fi", ".RE")

    def item(self, label: str, text: str) -> None:
        """Add a label and its description, both already escaped."""
        self.add(".TP", line(label), *map(line, text.splitlines() or ("\\&",)))

    def point(self, text: str) -> None:
        """Add a list item."""
        self.add(".IP \\(bu 2", *map(line, text.splitlines()))

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Add a table of escaped cells with a header row. Wide columns are filled and share the remaining width."""
        widths = [max(map(_shown_width, column)) for column in zip(*rows, strict=True)]
        widest_kept = next(
            (retained for retained in range(_WIDEST_KEPT, 0, -1) if _needed(widths, retained) <= _PAGE),
            _NARROWEST_FILLED,
        )
        filled = [width > widest_kept for width in widths]
        retained = sum(width for width, is_filled in zip(widths, filled, strict=True) if not is_filled)
        each = max(_NARROWEST_FILLED, (_PAGE - retained - _GAP * (len(widths) - 1)) // max(1, sum(filled)))
        columns = " ".join(f"lw({each}n)" if is_filled else "l" for is_filled in filled)
        self._part(".sp")
        self.add(".TS", "tab(\t);", f"{columns}.")
        for number, row in enumerate(rows):
            shown = (cell if number else f"\\fI{cell}\\fR" for cell in row)
            cells = zip(shown, filled, strict=True)
            self.add("\t".join(_filled_cell(cell, each) if is_filled else cell for cell, is_filled in cells))
        self.add(".TE")

    def see_also(self, names: Iterable[str]) -> None:
        """Add references to other pages, such as ``puller(1)``."""
        self.section_heading("See also")
        shown = (
            re.sub(r"^(.*)\((\d)\)$", lambda result: f"{bold(result[1])}({result[2]})", name)
            for name in names
        )
        self.add(*map(line, ",\n".join(shown).splitlines()))

    def _part(self, request: str) -> None:
        """Start a separate part, with space before it unless it follows a heading."""
        if self.lines and not self.lines[-1].startswith((".SH", ".SS", ".RS", ".TS")):
            self.add(request)

    def text(self, epoch: int) -> str:
        """Return the page. ``epoch`` is its date in seconds since 1970."""
        date = datetime.fromtimestamp(epoch, UTC).date().isoformat()
        title = f'.TH "{quoted(self.name.upper())}" "{self.section}" "{date}" "Puller {__version__}" "Puller manual"'
        name = [".SH NAME", line(f"{escape(self.name)} \\- {escape(self.summary)}")]
        return "\n".join(["'\\\" t", title, ".nh", ".ad l", *name, *self.lines]) + "\n"


def quoted(text: str) -> str:
    """Escape text for an argument within double quotes."""
    return escape(text).replace('"', "\\(dq")


def _filled_cell(cell: str, width: int) -> str:
    """Format a cell as a paragraph. Words longer than the cell may break between the parts of names."""
    words = (
        word if _shown_width(word) <= width else re.sub(r"((?<!\\)[/._:,=#]|\\-)(?=\S)", r"\1\\:", word)
        for word in cell.split(" ")
    )
    return f"T{{\n{line(' '.join(words))}\nT}}"


def _shown_width(cell: str) -> int:
    """Return the width of an escaped cell in characters."""
    return len(re.sub(r"\\f.|\\&", "", cell).replace("\\-", "-").replace("\\e", "/"))


def _needed(widths: Sequence[int], retained: int) -> int:
    """Return the minimal width of a table with natural columns up to ``retained`` and filled wider columns."""
    return sum(width if width <= retained else 2 * _NARROWEST_FILLED for width in widths) + _GAP * (
        len(widths) - 1
    )
