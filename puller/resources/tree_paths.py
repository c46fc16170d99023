"""Paths below a directory: relative, with ``/``, and as they may stand in messages."""

from collections.abc import Iterable, Iterator

from bundles.filesystem.trees import kind_of


def printable(path: str) -> str:
    """The path on one line, whatever somebody has named a file."""
    return path if path.isprintable() else ascii(path)


def parents(path: str) -> Iterator[str]:
    """The directories that a path leads through, the innermost first."""
    while (path := path.rpartition("/")[0]) != "":
        yield path


def directories_of(paths: Iterable[str]) -> list[str]:
    """The directories that paths lead through, each before what it holds."""
    found = {directory for path in paths for directory in parents(path)}
    return sorted(found, key=lambda directory: (directory.count("/"), directory))


def kind(mode: int) -> str:
    """The kind of thing that an ``st_mode`` is of, for messages: ``a directory``."""
    return kind_of(mode)
