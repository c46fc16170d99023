"""Paths with slashes. ``osBase`` and similar functions have the same results, as in Go on Linux."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any, Final


def _clean(path: str) -> str:
    """``clean``: the shortest equivalent path."""
    cleaned = posixpath.normpath(path)
    return (
        cleaned[1:] if cleaned.startswith("//") else cleaned
    )  # POSIX keeps two leading slashes, Go does not


def _base(path: str) -> str:
    """``base``: the last part of the path, or ``.`` for an empty path."""
    if not path:
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


def _dir(path: str) -> str:
    """``dir``: the path without its last part, cleaned."""
    head, slash, _ = path.rpartition("/")
    return _clean(head + slash)


def _ext(path: str) -> str:
    """``ext``: the ending from the last dot of the last part, or empty text."""
    _, dot, extension = path.rpartition("/")[2].rpartition(".")
    return dot + extension if dot else ""


def _is_abs(path: str) -> bool:
    """``isAbs``: whether the path starts at the root."""
    return path.startswith("/")


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "base": _base,
    "clean": _clean,
    "dir": _dir,
    "ext": _ext,
    "isAbs": _is_abs,
    "osBase": _base,
    "osClean": _clean,
    "osDir": _dir,
    "osExt": _ext,
    "osIsAbs": _is_abs,
}
