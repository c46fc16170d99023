"""Filters for the names of files, of which none looks at the disk, and for URLs."""

from __future__ import annotations

import ntpath
import posixpath
from typing import Any
from urllib.parse import urlsplit as split_url

from hiera.errors import ExpressionError
from hiera.expressions.texts import as_text


def basename(path: str) -> str:
    """The last part of a path."""
    return posixpath.basename(as_text(path, "basename"))


def dirname(path: str) -> str:
    """A path without its last part."""
    return posixpath.dirname(as_text(path, "dirname"))


def normpath(path: str) -> str:
    """A path without ``.``, ``..`` and doubled slashes, as text: links are not asked."""
    return posixpath.normpath(as_text(path, "normpath"))


def relpath(path: str, start: str | None = None) -> str:
    """The path that leads from the directory ``start`` to this one, both absolute. Raises ExpressionError."""
    path, start = as_text(path, "relpath"), "" if start is None else as_text(start, "relpath")
    if not (path.startswith("/") and start.startswith("/")):
        raise ExpressionError("", "relpath wants two absolute paths: '/etc/app/x' | relpath('/etc')")
    return posixpath.relpath(path, start)


def commonpath(paths: Any) -> str:
    """The longest path that all paths of a list begin with."""
    return posixpath.commonpath([as_text(path, "commonpath") for path in paths])


def win_basename(path: str) -> str:
    """The last part of a path of Windows."""
    return ntpath.basename(as_text(path, "win_basename"))


def win_dirname(path: str) -> str:
    """A path of Windows without its last part."""
    return ntpath.dirname(as_text(path, "win_dirname"))


def win_splitdrive(path: str) -> list[str]:
    """The drive of a path of Windows, and the rest."""
    return list(ntpath.splitdrive(as_text(path, "win_splitdrive")))


def splitext(path: str) -> list[str]:
    """A path without its extension, and the extension."""
    return list(posixpath.splitext(as_text(path, "splitext")))


def path_join(parts: Any) -> str:
    """Parts of a path joined; an absolute part starts anew."""
    return posixpath.join(
        *(as_text(part, "path_join") for part in ([parts] if isinstance(parts, str) else parts))
    )


def urlsplit(value: str, query: str = "") -> Any:
    """The parts of a URL: ``scheme``, ``hostname``, ``port``, ``path`` …, or the one that is asked for.

    Raises ExpressionError.
    """
    try:
        parts = split_url(as_text(value, "urlsplit"))
        found = {name: getattr(parts, name) for name in _PARTS}
    except ValueError as error:
        raise ExpressionError("", f"urlsplit cannot read the URL: {error}") from None
    if query and query not in found:
        raise ExpressionError("", f"urlsplit knows no {query!r}, only {', '.join(_PARTS)}")
    return found[query] if query else found


_PARTS = ("fragment", "hostname", "netloc", "password", "path", "port", "query", "scheme", "username")


def is_uri(value: Any, schemes: Any = None) -> bool:
    """Test ``uri``: text that can be read as a URI, with one of ``schemes`` if these are given."""
    scheme = _scheme(value)
    return scheme is not None and (not schemes or scheme in schemes)


def is_url(value: Any, schemes: Any = None) -> bool:
    """Test ``url``: a URI with a host, or of a file."""
    return is_uri(value, schemes) and (_scheme(value) == "file" or bool(urlsplit(value, "netloc")))


def is_urn(value: Any) -> bool:
    """Test ``urn``: a URI that begins with ``urn:``."""
    return is_uri(value, ["urn"])


def is_absolute(path: Any) -> bool:
    """Test ``abs``: a path from the root on."""
    return as_text(path, "abs").startswith("/")


def _scheme(value: Any) -> str | None:
    try:
        return str(urlsplit(value, "scheme"))
    except ExpressionError:
        return None
