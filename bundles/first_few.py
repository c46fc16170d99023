"""Shortened lists in sentences: the first items, and the number of further items."""

from collections.abc import Sequence


def first_few(texts: Sequence[str], most: int = 3, separator: str = ", ") -> str:
    """Return ``web01, web02, web03 and 9 more``. With lines as the separator, the last line is ``and 9 more``."""
    reported = separator.join(texts[:most])
    additional = len(texts) - most
    return (
        f"{reported}{separator if separator.isspace() else ' '}and {additional} more"
        if additional > 0
        else reported
    )
