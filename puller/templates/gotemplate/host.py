"""Functions that whoever renders provides: their signatures, and the way to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from puller.templates.gotemplate.rendering import Rendering


def _render(rendering: Rendering, path: str, context: Any) -> Any:
    """``render``: the text of a partial, with this value as its dot."""
    return rendering.host("render")(path, context)


def _write(rendering: Rendering, path: str, text: str) -> Any:
    """``write``: nothing; the text is written to another file of the tree."""
    return rendering.host("write")(path, text)


def _lookup(rendering: Rendering, path: str, *default: Any) -> Any:
    """``lookup``: the value at a path of the scope, or the default."""
    return rendering.host("lookup")(path, *default)


def _hiera(rendering: Rendering, key: str, *default: Any) -> Any:
    """``hiera``: the value of a key in the data, or the default."""
    return rendering.host("hiera")(key, *default)


def _read_file(rendering: Rendering, path: str) -> Any:
    """``readFile``: the text of a file of the bundle."""
    return rendering.host("readFile")(path)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "file": _read_file,
    "hiera": _hiera,
    "lookup": _lookup,
    "readFile": _read_file,
    "render": _render,
    "write": _write,
}
