"""Suggestions for a misspelt name: at most five, nearest first."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 5
_NEAR = 0.6
_AS_NEAR = 0.03
"""Further suggestions are at most this much less similar than the first one."""


def nearest(word: str, known: Iterable[str], most: int = MOST) -> tuple[str, ...]:
    """Return the known words that may be meant. Empty if none is similar."""
    similar = [pair for pair in _by_similarity(word, known) if pair[0] >= _NEAR]
    return tuple(name for ratio, name in similar[:most] if ratio >= similar[0][0] - _AS_NEAR)


def by_similarity(word: str, known: Iterable[str]) -> list[str]:
    """Return all known words, nearest first."""
    return [name for _, name in _by_similarity(word, known)]


def _by_similarity(word: str, known: Iterable[str]) -> list[tuple[float, str]]:
    from difflib import SequenceMatcher  # takes milliseconds to import, and most runs suggest nothing

    matcher: SequenceMatcher[str] = SequenceMatcher()
    matcher.set_seq2(word)
    found = []
    for name in sorted(set(map(str, known))):
        matcher.set_seq1(name)
        found.append((matcher.ratio(), name))
    return sorted(found, key=lambda pair: -pair[0])
