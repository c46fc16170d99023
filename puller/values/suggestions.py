"""Suggestions for unknown keys and names: as fields of a problem, or as the end of a message."""

from collections.abc import Iterable
from typing import TypedDict

from foundation.formatting import did_you_mean as _format
from foundation.formatting import known_names
from foundation.problems import KeyPath
from foundation.suggestions import MOST, by_similarity, nearest

Path = KeyPath
"""Keys and indexes that lead to a value, from the top of a document."""


class Meant(TypedDict, total=False):
    """The fields of a problem about an unknown name."""

    suggestions: tuple[str, ...]
    known: tuple[str, ...]
    known_more: int


def meant(word: str, known: Iterable[str]) -> Meant:
    """Return the names that may be meant, or some known names if none is similar."""
    words = list(known)
    if similar := nearest(word, words):
        return {"suggestions": similar}
    return known_fields(word, words)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'owner'?)``, or some known words if none is similar."""
    fields = meant(word, known)
    return _format(fields.get("suggestions", ())) or known_names(
        fields.get("known", ()), fields.get("known_more", 0)
    )


def nearest_reference(reference: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return references of the same type with a similar name, then references of other types with the same name."""
    of, _, name = reference.partition("#")
    words = sorted(known)
    named = {word.partition("#")[2]: word for word in words if word.partition("#")[0] == of}
    similar = [named[other] for other in nearest(name, named)]
    similar += [word for word in words if word.partition("#")[2] == name and word not in similar]
    return tuple(similar[:MOST])


def meant_reference(reference: str, known: Iterable[str]) -> Meant:
    """Return the references that may be meant, or some known ones if none is similar."""
    words = list(known)
    similar = nearest_reference(reference, words)
    return {"suggestions": similar} if similar else known_fields(reference, words)


def known_fields(word: str, known: Iterable[str]) -> Meant:
    """Return some known names, nearest first."""
    ordered = by_similarity(word, known)
    return {"known": tuple(ordered[:MOST]), "known_more": max(len(ordered) - MOST, 0)}
