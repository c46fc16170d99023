"""Suggestions for unknown keys and names, as the end of a message."""

from collections.abc import Iterable

from foundation.formatting import did_you_mean as _format
from foundation.problems import KeyPath
from foundation.suggestions import MOST, by_similarity, nearest

Path = KeyPath
"""Keys and indexes that lead to a value, from the top of a document."""


def unknown_key(key: object, known: Iterable[str]) -> str:
    """Return the message about an unknown key, with the keys that may be meant."""
    return f"unknown key {key!r}{did_you_mean(str(key), known)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'owner'?)``, or some known words if none is similar."""
    words = list(known)
    return _format(nearest(word, words)) or known_words(word, words)


def nearest_reference(reference: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return references of the same type with a similar name, then references of other types with the same name."""
    of, _, name = reference.partition("#")
    words = sorted(known)
    named = {word.partition("#")[2]: word for word in words if word.partition("#")[0] == of}
    similar = [named[other] for other in nearest(name, named)]
    similar += [word for word in words if word.partition("#")[2] == name and word not in similar]
    return tuple(similar[:MOST])


def known_words(word: str, known: Iterable[str]) -> str:
    """Return `` (known: a, b, c, d, e and 3 more)``, nearest first."""
    words = by_similarity(word, known)
    if not words:
        return ""
    more = f" and {len(words) - MOST} more" if len(words) > MOST else ""
    return f" (known: {', '.join(words[:MOST])}{more})"
