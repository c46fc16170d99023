"""Paths of this machine: directories opened without links of other users, deep trees, mount points, canonical paths.

Opened directories (``bundles/filesystem/safe_paths.py`` describes the rules for links):

* A link of another user raises ``ResourceError``, so only the resource at that path fails and the run continues.
* ``Descent`` reaches each directory from the previous one. It follows no link below the top directory, and verifies on
  the way up that ``..`` is the directory that it came from.
* One directory is open at any depth. Removing a tree takes time in proportion to its size.

Canonical paths (``RealPaths``), one text for all spellings of a path:

* Links in the parent directories are resolved. The last name stays as it is, unless the caller asks for its target.
* Links that the catalog declares count as if they existed, so that the first run and the second one agree.
* A missing top-level directory gets its usual target: ``/lib`` is ``/usr/lib`` on every system with a merged ``/usr``.
* Each directory is read once. Ten thousand files in a hundred directories cost a hundred system calls.

Mount points: a rename cannot replace a mount point, and removing files below a mount point would empty another file
system.
"""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from bundles.filesystem import safe_paths
from bundles.filesystem.atomic import naming
from bundles.filesystem.safe_paths import REAL_DIRECTORY, UnsafeLinkError, writers
from bundles.filesystem.trees import remove_directory
from foundation.problems import ProblemCode
from puller.errors import ChangedMeanwhile, ResourceError

__all__ = ["REAL_DIRECTORY", "hold_directory", "open_safely", "require_new", "require_ours", "resolve"]


@contextlib.contextmanager
def open_safely(path: str) -> Iterator[int]:
    """Open the directory at an absolute path. Raises ``OSError``, and ``ResourceError`` for a link of another user."""
    with _opened(path, safe_paths.open_safely) as descriptor:
        yield descriptor


@contextlib.contextmanager
def hold_directory(path: str) -> Iterator[int]:
    """Open a directory to work in. It requires fewer permissions than ``open_safely``, because it lists nothing."""
    with _opened(path, safe_paths.hold_directory) as descriptor:
        yield descriptor


def resolve(path: str) -> str:
    """Return an existing path without its links. Raises like ``open_safely``."""
    try:
        return safe_paths.resolve(path)
    except UnsafeLinkError as error:
        raise ResourceError(f"{path}: {error.reason}") from None


@contextlib.contextmanager
def _opened(path: str, opening: Callable[[str], int]) -> Iterator[int]:
    try:
        descriptor = opening(path)
    except UnsafeLinkError as error:
        raise ResourceError(f"{path}: {error.reason}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def require_new(path: str, directory: int) -> None:
    """Raise ``ChangedMeanwhile`` unless a directory that was just made is still ours and empty.

    Users who can write to its parent may have replaced it, and their directory must not get another owner.
    """
    if os.fstat(directory).st_uid != os.geteuid() or os.listdir(directory):
        raise ChangedMeanwhile(f"{path}: another process replaced it while Puller created it")


def require_ours(path: str, directory: int) -> None:
    """Raise ``ResourceError`` for an open directory in which other users can replace new files.

    A program that root runs to verify a new file could be given another one.
    """
    status = os.fstat(directory)
    who = ""
    if status.st_uid not in (0, os.geteuid()):
        who = f"belongs to user {status.st_uid}"
    elif writers(status) and not status.st_mode & stat.S_ISVTX:
        who = f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    if who:
        detail = "who could exchange the new file while it is verified"
        raise ResourceError(f"{path}: its directory {who}, {detail}")


def require_writable(path: str) -> None:
    """Raise ``ValueError`` or ``OSError`` unless the path is a directory that this user can write."""
    with open_safely(path) as directory:
        if os.fstatvfs(directory).f_flag & os.ST_RDONLY:
            raise ValueError(f"{path}: is on a read-only file system")
        if not os.access(path, os.W_OK | os.X_OK):
            raise ValueError(f"{path}: cannot be written by this user")


def find_directory(path: str) -> tuple[int, int] | None:
    """Return the identity of the directory at a path, ``None`` if it is missing.

    Files are ignored, because a directory that replaces a file may get its inode number.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


# Deep directory trees.

_LONGEST = 4000
"""Maximum bytes of a path per call. Linux accepts 4,095."""
_Identity = tuple[int, int]


class Descent:
    """A walk below ``top``, which is opened for the first path."""

    def __init__(self, top: str) -> None:
        self.top = top
        self._here: int | None = None
        self._names: list[str] = []
        """The names on the path from the top."""
        self._passed: list[_Identity] = []
        """The parent directory of each of the names."""

    def parent_of(self, path: str) -> int:
        """Return a descriptor of the directory of a path below ``top``, which is valid until the next call.

        Raises ``OSError``, and ``ChangedMeanwhile`` if a directory of the path was moved.
        """
        names = [name for name in path.removeprefix(self.top).split("/")[:-1] if name]
        if self._here is None:
            with open_safely(self.top) as descriptor:
                self._here = os.dup(descriptor)
        while self._names != names[: len(self._names)]:
            self._go_up(self._here, path)
        for name in names[len(self._names) :]:
            self._go_down(self._here, name)
        here: int = self._here
        return here

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """Yield the descriptor of ``parent_of``. Errors name the path."""
        with naming(path):
            yield self.parent_of(path)

    def close(self) -> None:
        """Close the directory."""
        if self._here is not None:
            os.close(self._here)
            self._here = None

    def _go_up(self, here: int, path: str) -> None:
        above = os.open("..", REAL_DIRECTORY, dir_fd=here)
        if _identity(above) != self._passed[-1]:
            os.close(above)
            raise ChangedMeanwhile(f"{path}: another process moved a directory of its path")
        self._names.pop()
        self._passed.pop()
        self._move_to(above)

    def _go_down(self, here: int, name: str) -> None:
        inner = os.open(name, REAL_DIRECTORY, dir_fd=here)
        self._names.append(name)
        self._passed.append(_identity(here))
        self._move_to(inner)

    def _move_to(self, directory: int) -> None:
        before, self._here = self._here, directory
        if before is not None:
            with contextlib.suppress(OSError):  # opened for reading only
                os.close(before)


@contextlib.contextmanager
def open_parent(path: str, within: str) -> Iterator[int]:
    """Open the directory of ``path``. Below ``within``, if set, no links are followed."""
    directory = os.path.dirname(path)
    below = directory.removeprefix(within) if within else ""
    with naming(path):
        if not below.strip("/"):
            with open_safely(within or directory) as descriptor:
                yield descriptor
            return
        with contextlib.closing(Descent(within)) as descent:
            yield descent.parent_of(path)


def open_long_path(path: str) -> int:
    """Open a directory whose path is longer than the system accepts. Raises ``OSError``."""
    here = os.open("/", REAL_DIRECTORY)
    for piece in _pieces(path):
        try:
            inner = os.open(piece, REAL_DIRECTORY, dir_fd=here)
        finally:
            os.close(here)
        here = inner
    return here


def stat_long_path(path: str) -> os.stat_result:
    """Return the ``lstat`` of a path that is longer than the system accepts. Raises ``OSError``."""
    directory, _, name = path.rpartition("/")
    descriptor = open_long_path(directory)
    try:
        return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    finally:
        os.close(descriptor)


def empty(directory: int) -> None:
    """Remove everything in an open directory. Raises ``OSError``."""
    for name in os.listdir(directory):
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            remove_directory(name, within=directory)
        else:
            os.unlink(name, dir_fd=directory)


def _pieces(path: str) -> Iterator[str]:
    """Yield parts of a path that the system accepts, in order."""
    remainder = path.lstrip("/")
    while len(os.fsencode(remainder)) > _LONGEST:
        size, names = 0, []
        for name in remainder.split("/"):
            size += len(os.fsencode(name)) + 1
            if size > _LONGEST:
                break
            names.append(name)
        piece = "/".join(names)
        yield piece
        remainder = remainder[len(piece) + 1 :]
    yield remainder


def _identity(descriptor: int) -> _Identity:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


_USUAL = {
    "/bin": "usr/bin",
    "/sbin": "usr/sbin",
    "/lib": "usr/lib",
    "/lib32": "usr/lib32",
    "/lib64": "usr/lib64",
    "/libx32": "usr/libx32",
    "/var/run": "/run",
    "/var/lock": "/run/lock",
}
"""Targets of links that every supported distribution has (hier(7))."""
_MOST_LINKS = 40
"""Number of links in one path, after which Linux fails with ``ELOOP``."""


class RealPaths:
    """Canonical paths of one machine. ``links`` are declared links with their targets."""

    def __init__(self, links: Mapping[str, str] | None = None) -> None:
        self._directories: dict[str, str] = {"/": "/", "": "/"}
        self._targets: dict[str, str | None] = {}
        self._passed: dict[str, frozenset[str]] = {}
        self._links: dict[str, str] = {}
        if links:
            plain = RealPaths()
            self._links = {plain.of(path): target for path, target in links.items()}

    def of(self, path: str) -> str:
        """Return the path with a canonical parent directory."""
        above, _, name = path.rstrip("/").rpartition("/")
        above = self.directory(above)
        return f"{above}/{name}" if above != "/" else f"/{name}"

    def directory(self, path: str) -> str:
        """Return the path with all links resolved, including the last name. Reads each directory once."""
        if (known := self._directories.get(path)) is not None:
            return known
        unknown = [path]
        while (above := unknown[-1].rstrip("/").rpartition("/")[0]) not in self._directories:
            unknown.append(above)
        for each in reversed(unknown):  # top down, because a path may be deeper than the stack
            known = self._directories[each] = self._resolved(each)
        return self._directories[path]

    def links_on(self, path: str) -> frozenset[str]:
        """Return the canonical paths of all links in the parent directories of a path."""
        above = path.rstrip("/").rpartition("/")[0]
        self.directory(above)
        return self._passed.get(above, frozenset())

    def moved(self, paths: Iterable[str]) -> frozenset[str]:
        """Return the parent directories of ``paths`` whose canonical path is different."""
        parents = {path.rpartition("/")[0] for path in paths}
        return frozenset(
            parent for parent in parents if parent[:1] == "/" and self.directory(parent) != parent
        )

    def _resolved(self, path: str) -> str:
        above, _, name = path.rstrip("/").rpartition("/")
        here = self.directory(above) if above else "/"
        passed = set(self._passed.get(above, ()))
        waiting = [name]
        links = 0
        while waiting:
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                here = os.path.dirname(here)
                continue
            place = f"/{part}" if here == "/" else f"{here}/{part}"
            target = self._target(place)
            if target is None or links >= _MOST_LINKS:
                here = place
                continue
            links += 1
            passed.add(place)
            here = "/" if target.startswith("/") else here
            waiting += reversed(target.split("/"))
        if passed:
            self._passed[path] = frozenset(passed)
        return here

    def _target(self, path: str) -> str | None:
        """Return the target of a link, ``None`` for other kinds."""
        if path not in self._targets:
            self._targets[path] = self._links.get(path) or _read_link(path)
        return self._targets[path]


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return _USUAL.get(path)
    except (OSError, ValueError):  # another kind of file, or a name that cannot exist
        return None


class Spellings(RealPaths):
    """Canonical paths, and the facts that other canonical names depend on."""

    def __init__(self, facts: Mapping[str, Any], links: Mapping[str, str] | None = None) -> None:
        super().__init__(links)
        self.facts = facts


# mountinfo escapes blanks, tabs, newlines and backslashes in octal, so each line splits at blanks.
_ESCAPED = re.compile(r"\\([0-7]{3})")


def refuse_mounted(path: str, description: str) -> None:
    """Raise ``ResourceError`` if the path or a path below it is a mount point. ``description``: the refused action."""
    here = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    for point in mount_points():
        if point == here:
            raise ResourceError(
                f"{path} is a mount point, which cannot be {description}", code=ProblemCode.CHANGE_REFUSED
            )
        if point.startswith(f"{here}/"):
            raise ResourceError(
                f"{path} cannot be {description}: {point} is mounted below it",
                code=ProblemCode.CHANGE_REFUSED,
            )


def refuse_mount_points(root: str, replaced: Collection[str], removed: Collection[str]) -> None:
    """Raise ``ResourceError`` if a mount point obstructs a change below a directory.

    The replaced and removed paths are relative to it.
    """
    above = f"{os.path.realpath(root)}/"
    for point in mount_points():
        if not point.startswith(above):
            continue
        inside = point.removeprefix(above)
        if inside in replaced or inside in removed:
            detail = "replaced" if inside in replaced else "removed"
            raise ResourceError(
                f"{point} is a mount point, which cannot be {detail}", code=ProblemCode.CHANGE_REFUSED
            )
        if below := next((path for path in removed if path.startswith(f"{inside}/")), None):
            raise ResourceError(
                f"{above}{below} is below the mount point {point}, so it is not removed",
                code=ProblemCode.CHANGE_REFUSED,
            )


def mount_points() -> list[str]:
    """Return the mount points of this process (proc(5), ``mountinfo``)."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        points = [line.split(" ", 5)[4] for line in lines]
    return [_ESCAPED.sub(lambda match: chr(int(match[1], 8)), point) for point in points]
