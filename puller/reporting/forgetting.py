"""Old reports removed, and the lists of what was in order with the last report that names them.

* A list counts among the bytes of the reports that name it, a part for each, so that the bound is one for all together.
* A report that cannot be read may name any list: while there is one, all lists stay.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from puller.reporting.in_order import LIST_SUFFIX
from puller.reporting.retention import Kept, Retention, find_kept, outdated
from puller.state.directories import Directories
from puller.state.state_file import read_state
from puller.state.stored_json import decode

_LARGEST = 64 * 1024 * 1024
"""Bytes of a report."""


class _InOrder(msgspec.Struct):
    sha256: str


class _Bundle(msgspec.Struct):
    in_order: _InOrder | None = None
    given_up: "_Bundle | None" = None


class _Names(msgspec.Struct):
    """The part of a report that names lists."""

    bundles: list[_Bundle] = []


def forget_outdated(directories: Directories, retention: Retention, now: datetime) -> None:
    """Remove the reports that are outdated by themselves; raises ``OSError``."""
    _remove(directories.runs, list(outdated(kept_in(directories.runs), retention, now)))


def forget_lists(directories: Directories, retention: Retention, now: datetime) -> None:
    """Remove lists that no report names, and the reports that are too much together with their lists.

    It reads all reports, and so is for runs that have made a list. Raises ``OSError``.
    """
    kept = {directories.runs / one.name: one for one in kept_in(directories.runs)}
    try:
        named = {path: _lists_of(path) for path in kept}
        last = _lists_of(directories.last_run)
    except ValueError:
        return
    sizes = _sizes(directories.in_order)
    while gone := list(outdated(_with_lists(kept, named, sizes), retention, now)):
        _remove(directories.runs, gone)
        for one in gone:
            del kept[directories.runs / one.name]
    for name in sizes.keys() - last.union(*(named[path] for path in kept)):
        (directories.in_order / name).unlink(missing_ok=True)


def kept_in(directory: Path) -> list[Kept]:
    """All reports that are there; a directory of such a name is somebody's own. Raises ``OSError``."""
    found = (find_kept(name, size) for name, size in _sizes(directory).items())
    return [one for one in found if one]


def _remove(directory: Path, reports: list[Kept]) -> None:
    for one in reports:
        (directory / one.name).unlink(missing_ok=True)


def _sizes(directory: Path) -> dict[str, int]:
    """The files there, and their bytes."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        return {
            entry.name: entry.stat(follow_symlinks=False).st_size
            for entry in entries
            if not entry.is_dir(follow_symlinks=False)
        }
    return {}


def _lists_of(path: Path) -> set[str]:
    """The names of the files of lists that a report names; raises ``ValueError`` for what is no report."""
    found = decode(read_state(path, _LARGEST), _Names)
    bundles = [one for bundle in found.bundles for one in (bundle, bundle.given_up) if one]
    return {f"{bundle.in_order.sha256}{LIST_SUFFIX}" for bundle in bundles if bundle.in_order}


def _with_lists(
    kept: Mapping[Path, Kept], named: Mapping[Path, set[str]], sizes: Mapping[str, int]
) -> list[Kept]:
    """Reports with their part of the lists in their size."""
    uses = Counter(name for path in kept for name in named[path])
    return [
        msgspec.structs.replace(
            one, size=one.size + sum(sizes.get(name, 0) // uses[name] for name in named[path])
        )
        for path, one in kept.items()
    ]
