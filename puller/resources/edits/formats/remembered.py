"""Readings of a text, kept for the next setting that asks of the same text."""

from collections.abc import Callable
from functools import lru_cache
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_LARGE = 1 << 20
"""In characters: of such texts only two are kept, before and after a change, as a tree is many times its text."""


def remembered(read: Callable[Concatenate[str, P], R]) -> Callable[Concatenate[str, P], R]:
    """``read``, which is a pure function of a text, with its last few answers kept."""
    small, large = lru_cache(maxsize=16)(read), lru_cache(maxsize=2)(read)

    def answer(text: str, /, *more: P.args, **named: P.kwargs) -> R:
        return (small if len(text) < _LARGE else large)(text, *more, **named)  # type: ignore[arg-type]

    return answer
