"""Changes of a scaffold's target: each file is written atomically, never through a link or outside the target.

* Files are written before foreign files are removed, so a crash in between leaves extra files, not missing ones. Only
  obstacles are removed first.
* A directory is removed as soon as it is empty, so that after a crash its remaining files still lead to it.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Mapping

from bundles.filesystem.free_space import needing
from puller.resources.paths import parents
from puller.resources.scaffolds.post import Draft
from puller.resources.scaffolds.scaffold_state import Ownership
from puller.resources.scaffolds.target import Target, in_the_way
from puller.system.protocol import Attributes, System


def place(
    system: System,
    target: Target,
    ownership: Ownership,
    files: Mapping[str, Draft],
    attributes: Mapping[str, Attributes],
) -> None:
    """Write ``files``, set the ``attributes`` of other files, and purge the foreign files in ``target``.

    1. Purge obstacles.
    2. Make the directories, parents first.
    3. Write the files.
    4. Set the attributes of files whose content stays.
    5. Purge the other foreign files, so that a crash before leaves extra files, not missing ones.
    """
    # 1. Purge obstacles
    blocking = set(in_the_way(target))
    _purge(system, target, sorted(blocking))
    # 2. Directories
    _make_directories(system, target, ownership)
    # 3. Files
    for path, draft in files.items():
        found = target.files[path]
        if path in blocking or _is_directory(found):
            found = None  # removed in step 1
        wanted = ownership.of_draft(found, draft.mode)
        with needing(len(draft.data)):
            system.replace_file(target.path(path), [draft.data], wanted, found, within=target.root)
    # 4. Attributes
    for path, wanted in attributes.items():
        if (found := target.files[path]) is not None:
            system.set_attributes(target.path(path), wanted, found, within=target.root)
    # 5. Purge the rest
    # In the order of paths, which visits each directory of a deep tree once.
    _purge(system, target, [path for path in target.foreign.things if path not in blocking])


def clear(system: System, target: Target, directories: Iterable[str], *, keep_root: bool) -> None:
    """Remove the scaffold's files, then its ``directories`` and the target if they are empty."""
    # Innermost directories first, each right after its files: see the second rule at the top.
    found_in: dict[str, list[str]] = {}
    for path, found in target.files.items():
        if found is not None and not stat.S_ISDIR(found.st_mode):
            found_in.setdefault(path.rpartition("/")[0], []).append(path)
    with system.removing(target.root):
        for directory in (*reversed(_real(system, target, directories)), ""):
            for path in found_in.get(directory, ()):
                _remove(system, target, path, target.files[path])
            if directory:
                _remove_if_empty(system, target.path(directory), within=target.root)
    if not keep_root:
        _remove_if_empty(system, target.root)


def _real(system: System, target: Target, directories: Iterable[str]) -> list[str]:
    """Return the paths that are directories of the target and not links, parents first."""
    real = {"": None}
    for directory in sorted(directories, key=lambda path: (path.count("/"), path)):
        if directory.rpartition("/")[0] in real and _is_directory(system.lstat(target.path(directory))):
            real[directory] = None
    return [*real][1:]


def _make_directories(system: System, target: Target, ownership: Ownership) -> None:
    if target.itself is None:
        system.make_directory(target.root, ownership.of_directory())
    for path, found in target.directories.items():
        if not _is_directory(found):
            system.make_directory(target.path(path), ownership.of_directory(), within=target.root)


def _purge(system: System, target: Target, things: Iterable[str]) -> None:
    """Remove foreign files, then foreign directories that become empty."""
    emptied: set[str] = set()
    with system.removing(target.root):
        for path in things:
            _remove(system, target, path, target.foreign.things[path])
            for above in parents(path):
                if above in emptied:
                    break
                emptied.add(above)
        for directory in target.foreign.directories:
            if directory in emptied:
                _remove_if_empty(system, target.path(directory), within=target.root)


def _remove(system: System, target: Target, path: str, found: os.stat_result | None) -> None:
    if found is not None:
        with contextlib.suppress(FileNotFoundError):  # another process removed it first
            system.remove(target.path(path), found, within=target.root)


def _remove_if_empty(system: System, path: str, within: str = "") -> None:
    found = system.lstat(path)
    if found is None or not _is_directory(found) or system.children(path):
        return
    try:
        system.remove(path, found, within=within)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EBUSY):  # filled meanwhile, or a mount point
            raise


def _is_directory(found: os.stat_result | None) -> bool:
    return found is not None and stat.S_ISDIR(found.st_mode)
