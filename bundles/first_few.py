"""Many things in one sentence: the first few, and how many more. A message that says all of them says nothing."""

from collections.abc import Sequence


def first_few(texts: Sequence[str], most: int = 3, separator: str = ", ") -> str:
    """``web01, web02, web03 and 9 more``; with lines for separator, the last one is ``and 9 more``."""
    told = separator.join(texts[:most])
    more = len(texts) - most
    return f"{told}{separator if separator.isspace() else ' '}and {more} more" if more > 0 else told
