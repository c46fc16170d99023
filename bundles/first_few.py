"""Shortened lists in sentences: the first items, and the number of further items."""

from collections.abc import Sequence


def first_few(texts: Sequence[str], most: int = 3, separator: str = ", ") -> str:
    """Return ``web01, web02, web03 and 9 more``. With lines as the separator, the last line is ``and 9 more``."""
    told = separator.join(texts[:most])
    more = len(texts) - most
    return f"{told}{separator if separator.isspace() else ' '}and {more} more" if more > 0 else told
