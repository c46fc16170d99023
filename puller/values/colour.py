"""Colour of output, for every command: ``--color`` decides, then the environment, then the stream.

1. ``--color always`` and ``--color never`` have priority.
2. ``NO_COLOR`` that is not empty: no colour (no-color.org).
3. ``CLICOLOR_FORCE`` that is neither empty nor ``0``: colour, also in pipes.
4. ``TERM=dumb`` and ``CLICOLOR=0``: no colour.
5. Otherwise only terminals get colour.

Output for programs (JSON, YAML, reports, the journal) never has colour.
"""

import os
from typing import Literal, TextIO

Choice = Literal["auto", "always", "never"]

_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}
_choice: Choice = "auto"


def choose(choice: Choice) -> None:
    """Set the value of ``--color`` for this process."""
    global _choice
    _choice = choice


def decided() -> bool | None:
    """Return whether every stream gets colour. ``None``: only terminals."""
    if _choice != "auto":
        return _choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return False if os.environ.get("TERM") == "dumb" or os.environ.get("CLICOLOR") == "0" else None


def is_wanted(stream: TextIO) -> bool:
    """Return whether this stream gets colour."""
    result = decided()
    return stream.isatty() if result is None else result


def coloured(text: str, colour: str) -> str:
    """Return the text in a colour (``red``, ``green``, ``yellow``, ``cyan``, ``bold``, ``dim``), without a check."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def coloured_diff(text: str) -> str:
    """Return a text with coloured unified diffs, without a check."""
    lines, before, inside = [], "", False
    for line in text.split("\n"):
        inside = inside or (before.startswith("--- ") and line.startswith("+++ "))
        lines.append(coloured_diff_line(line) if inside else line)
        before = line
    return "\n".join(lines)


def coloured_diff_line(line: str) -> str:
    """Return a line of a unified diff in its colour, without a check. File names stay plain."""
    colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return coloured(line, colour) if colour and not line.startswith(("+++ ", "--- ")) else line


def can_redraw(stream: TextIO) -> bool:
    """Return whether a line of progress can be redrawn on this stream."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"
