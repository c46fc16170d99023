"""Keys and names that nobody knows: the sentence for one, with the word that may have been meant."""

from collections.abc import Iterable

Path = tuple[str | int, ...]
"""Keys and indexes that lead to a value, from the top of a document."""


def unknown_key(key: object, known: Iterable[str]) -> str:
    """The sentence for a key that nobody knows, with the one that may have been meant."""
    return f"unknown key {key!r}{did_you_mean(str(key), known)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'owner'?)``, or the known words when none is near and they are few."""
    import difflib  # only for messages

    words = sorted(known)
    if near := difflib.get_close_matches(word, words, 1):
        return f" (did you mean {near[0]!r}?)"
    # A longer list would bury the sentence that it is put behind.
    return f" (known: {', '.join(words)})" if len(words) <= 30 else ""
