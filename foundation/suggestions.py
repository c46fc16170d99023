"""Suggestions for a misspelt name: at most five, nearest first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypedDict

MOST: Final = 5
SIMILAR: Final = 0.6
"""Minimum similarity of a suggestion, if only the known names are valid."""
VERY_SIMILAR: Final = 0.75
"""Minimum similarity, if unknown names are probably valid and may resemble a known name by accident."""
ALMOST_EQUAL: Final = 0.85
"""Minimum similarity, if the author expects that the name may be missing."""
_AS_NEAR: Final = 0.03
"""Further suggestions are at most this much less similar than the first one."""


class Meant(TypedDict, total=False):
    """The fields of a problem about an unknown name."""

    suggestions: tuple[str, ...]
    known: tuple[str, ...]
    known_more: int


def nearest(
    word: str, known: Iterable[str], most: int = MOST, *, similarity: float = SIMILAR
) -> tuple[str, ...]:
    """Return the most similar known words. Empty if none is similar."""
    similar = _by_similarity(word, known, similarity)
    return tuple(name for ratio, name in similar[:most] if ratio >= similar[0][0] - _AS_NEAR)


def meant(word: str, known: Iterable[str]) -> Meant:
    """Return the most similar names, or some known names if none is similar."""
    words = list(known)
    if similar := nearest(word, words):
        return {"suggestions": similar}
    return _known_fields(word, words)


def nearest_reference(reference: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return references of the same type with a similar name, then references of other types with the same name."""
    of, _, name = reference.partition("#")
    words = sorted(known)
    named = {word.partition("#")[2]: word for word in words if word.partition("#")[0] == of}
    similar = [named[other] for other in nearest(name, named)]
    similar += [word for word in words if word.partition("#")[2] == name and word not in similar]
    return tuple(similar[:MOST])


def meant_reference(reference: str, known: Iterable[str]) -> Meant:
    """Return the most similar references, or some known ones if none is similar."""
    words = list(known)
    similar = nearest_reference(reference, words)
    return {"suggestions": similar} if similar else _known_fields(reference, words)


def _known_fields(word: str, known: Iterable[str]) -> Meant:
    """Return some known names, nearest first."""
    ordered = [name for _, name in _by_similarity(word, known)]
    return {"known": tuple(ordered[:MOST]), "known_more": max(len(ordered) - MOST, 0)}


def _by_similarity(word: str, known: Iterable[str], least: float = 0.0) -> list[tuple[float, str]]:
    from difflib import SequenceMatcher  # 0.5 % of an idle run, which suggests nothing

    matcher: SequenceMatcher[str] = SequenceMatcher()
    matcher.set_seq2(word)
    results = []
    for name in sorted(set(map(str, known))):
        matcher.set_seq1(name)
        # The quick ratios are upper bounds.
        if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
            continue
        if (ratio := matcher.ratio()) >= least:
            results.append((ratio, name))
    return sorted(results, key=lambda pair: -pair[0])
