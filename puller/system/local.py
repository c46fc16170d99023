"""The local machine, queried and changed for real.

* Links in paths are checked by one rule (``puller.system.local_paths``), when a path is queried, so that a dry run
  reports refusals, and again at every change.
* A change is relative to an open directory. It is refused if the path has changed since it was queried.
"""

import contextlib
import errno
import grp
import os
import pwd
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from bundles.filesystem.atomic import (
    in_progress,
    naming,
    remove_foreign_acls,
    remove_leftovers,
    replace_file,
    temporary_name,
)
from bundles.filesystem.trees import needing
from puller.errors import ChangedMeanwhile
from puller.system.commands import run
from puller.system.identity import act_as
from puller.system.local_paths import (
    REAL_DIRECTORY,
    Descent,
    empty,
    find_directory,
    open_long_path,
    open_parent,
    open_safely,
    require_new,
    require_ours,
    resolve,
    stat_long_path,
)
from puller.system.protocol import AccountKind, Attributes, require_one_name, requires_new_file
from puller.system.trusted_files import (
    PIECE,
    READING,
    begins_with,
    copied,
    of_size,
    open_and_measure,
    open_old_file,
    open_regular,
    read_all,
    require_same,
    stat_at,
    verifying,
)

if TYPE_CHECKING:  # imported only when a program is started
    from puller.system.commands import Command, Completed
    from puller.system.identity import Identity


_PINNED = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NOTE = "user.puller."  # an extended attribute, which is lost with the file and never describes another one


class LocalSystem:
    """The local machine."""

    def __init__(self) -> None:
        self.executed = 0
        self._tidied: set[tuple[int, int]] = set()
        self._above: dict[str, tuple[int, int] | None] = {}
        """Directories of paths that were queried and missing."""
        self._judged = {""}
        """Directories whose paths have no unsafe links, without a trailing slash."""
        self._users: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._descent: Descent | None = None

    # Queries

    def lstat(self, path: str) -> os.stat_result | None:
        directory = path.rpartition("/")[0]
        # Check the cache here, because it usually hits and this runs for every file.
        if directory not in self._judged:
            self._judge(directory)
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            # Remember the directory: a new file must be made in the same one.
            self._above[path] = find_directory(os.path.dirname(path))
            return None
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            status = stat_long_path(path)
        if stat.S_ISDIR(status.st_mode) and directory in self._judged:
            self._judged.add(path)
        return status

    def resolve(self, path: str) -> str:
        try:
            return resolve(path)
        except OSError:  # missing; the caller that opens it reports the error
            return path

    def is_directory(self, path: str) -> bool:
        if path not in self._judged:
            self._judge(path)
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def expect(self, path: str, kind: str) -> None:
        """Do nothing, because a real run needs no predictions."""

    def expect_link(self, path: str, target: str) -> None:
        """Do nothing."""

    def expect_content(self, path: str, content: bytes | None, attributes: Attributes | None = None) -> None:
        """Do nothing."""

    def will_be_written(self, path: str, *, below: bool = False) -> bool:
        return False

    def through_links(self, path: str) -> str:
        return path

    def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
        if looked_at is None:
            return read_all(*open_and_measure(path))
        with open(open_regular(path), "rb", buffering=0) as stream:
            require_same(path, looked_at, os.fstat(stream.fileno()))
            return of_size(path, stream, looked_at.st_size)

    def holds(self, path: str, content: bytes) -> bool:
        descriptor = os.open(path, READING)
        try:
            # No fstat here: the read is limited to one byte more than the content.
            if len(content) < PIECE:
                return os.read(descriptor, len(content) + 1) == content
            return begins_with(descriptor, content) and not os.read(descriptor, 1)
        finally:
            os.close(descriptor)

    def read_chunks(self, path: str, looked_at: os.stat_result | None = None) -> Iterator[bytes]:
        if looked_at is not None:
            yield from copied(path, looked_at)
            return
        with open(open_regular(path), "rb", buffering=0) as stream:
            while chunk := stream.read(1 << 20):
                yield chunk

    def children(self, path: str) -> list[tuple[str, os.stat_result]]:
        try:
            descriptor = os.open(path, REAL_DIRECTORY)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            descriptor = open_long_path(path)
        try:
            with os.scandir(descriptor) as entries:
                return [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(descriptor)

    def labels(self, path: str) -> dict[str, bytes]:
        try:
            names = os.listxattr(path, follow_symlinks=False)
        except OSError as error:
            if error.errno == errno.ENOTSUP:  # a file system without extended attributes
                return {}
            raise
        result = {}
        for name in names:
            with contextlib.suppress(OSError):  # removed meanwhile, or not readable
                result[name] = os.getxattr(path, name, follow_symlinks=False)
        return result

    def note(self, path: str, key: str) -> str | None:
        try:
            return os.getxattr(path, _NOTE + key, follow_symlinks=False).decode("ascii", "replace")
        except OSError as error:
            if error.errno in (errno.ENODATA, errno.ENOTSUP):  # no note, or a file system without notes
                return None
            raise

    def user_id(self, name: str) -> int | None:
        return _find_id(name, self._users, lambda name: pwd.getpwnam(name).pw_uid)

    def group_id(self, name: str) -> int | None:
        return _find_id(name, self._groups, lambda name: grp.getgrnam(name).gr_gid)

    def expect_account(self, kind: AccountKind, name: str, number: int | None) -> None:
        """Do nothing."""

    def expected_accounts(self, kind: AccountKind) -> Mapping[str, int | None]:
        del kind
        return {}

    def query(self, command: "Command") -> "Completed":
        return run(command)

    def _judge(self, directory: str) -> None:
        """Raise ``ResourceError`` for an unsafe link in the path of a directory.

        Each directory is checked once. A change checks the whole path again.
        """
        with contextlib.suppress(OSError):  # reported by the caller that opens it
            if directory.rpartition("/")[0] in self._judged and stat.S_ISDIR(os.lstat(directory).st_mode):
                self._judged.add(directory)
                return
            resolve(directory)
            while directory not in self._judged:
                self._judged.add(directory)
                directory = directory.rpartition("/")[0]

    # Changes

    def replace_file(
        self,
        path: str,
        chunks: Iterable[bytes],
        attributes: Attributes,
        looked_at: os.stat_result | None,
        *,
        within: str = "",
        verify: Callable[[str], None] | None = None,
    ) -> None:
        self._replace(path, chunks, attributes, looked_at, within=within, verify=verify)

    def _replace(
        self,
        path: str,
        chunks: Iterable[bytes],
        attributes: Attributes,
        looked_at: os.stat_result | None,
        *,
        within: str,
        verify: Callable[[str], None] | None = None,
        times: os.stat_result | None = None,
    ) -> None:
        """Atomically write a regular file (``docs/resources/file.md``).

        1. Open its directory. Links in its path are checked again, because other users may have created one meanwhile.
        2. Require that the path is unchanged since the query. Open a regular file there, to copy its labels.
        3. For a new file, require the directory in which it was missing.
        4. Remove leftovers of killed runs in the directory.
        5. Write a private file with labels, content, owner and mode. Verify it, sync it, rename it, and sync the
           directory (``bundles.filesystem.atomic``).
        """
        name = os.path.basename(path)
        # 1. Open, and 2. the file before
        with open_parent(path, within) as parent, open_old_file(parent, name, path, looked_at) as old:
            # 3. A new file
            if looked_at is None:
                self._require_same_directory(path, parent)
            # 4. Leftovers
            self._tidy(parent)
            # 5. Write
            if verify is not None:
                require_ours(path, parent)
            replace_file(
                parent,
                name,
                chunks,
                mode=attributes.mode,
                uid=attributes.uid,
                gid=attributes.gid,
                labels_from=old,
                times=times,
                verify=None if verify is None else verifying(path, parent, verify),
            )

    def make_directory(self, path: str, attributes: Attributes, *, within: str = "") -> None:
        above = os.path.dirname(path)
        if not self.is_directory(above):
            self.make_directory(above, Attributes(os.geteuid(), os.getegid(), 0o755))
        name = os.path.basename(path)
        with open_parent(path, within) as parent:
            self._require_same_directory(path, parent)
            self._tidy(parent)
            # Use another name until it is complete, because a directory left by a crash would never be repaired.
            temporary = temporary_name(name)
            os.mkdir(temporary, 0o700, dir_fd=parent)
            try:
                with _directory_in_progress(parent, temporary, path, attributes):
                    os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with contextlib.suppress(OSError):  # the original error matters
                    os.rmdir(temporary, dir_fd=parent)
                raise
            os.fsync(parent)

    def make_link(
        self,
        path: str,
        target: str,
        looked_at: os.stat_result | None,
        owner: tuple[int, int] | None = None,
    ) -> None:
        name = os.path.basename(path)
        with open_parent(path, "") as parent:
            if looked_at is None:
                self._require_same_directory(path, parent)
            else:
                require_same(path, looked_at, stat_at(parent, name))
            # A link cannot be locked, so a leftover is not recognisable. One fixed name is reused instead.
            temporary = f"{temporary_name(name).rsplit('.', 2)[0]}.{'0' * 12}.new"
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISLNK(stat_at(parent, temporary).st_mode):
                    os.unlink(temporary, dir_fd=parent)
            os.symlink(target, temporary, dir_fd=parent)
            try:
                if owner is not None:
                    _give_link(path, parent, temporary, target, owner)
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with contextlib.suppress(OSError):  # the original error matters
                    os.unlink(temporary, dir_fd=parent)
                raise
            os.fsync(parent)

    def rename(self, path: str, to: str, looked_at: os.stat_result) -> None:
        name = os.path.basename(path)
        with open_parent(path, "") as parent:
            require_same(path, looked_at, stat_at(parent, name))
            os.rename(name, os.path.basename(to), src_dir_fd=parent, dst_dir_fd=parent)
            os.fsync(parent)

    def set_labels(self, path: str, labels: Mapping[str, bytes], looked_at: os.stat_result) -> None:
        with open_parent(path, "") as parent, naming(path):
            descriptor = os.open(os.path.basename(path), _PINNED, dir_fd=parent)
            try:
                require_same(path, looked_at, os.fstat(descriptor))
                pinned = f"/proc/self/fd/{descriptor}"
                known = {*os.listxattr(pinned)}
                for name, value in labels.items():
                    if name not in known or os.getxattr(pinned, name) != value:
                        os.setxattr(pinned, name, value)
                for name in known - {*labels}:
                    with contextlib.suppress(OSError):  # maintained by the system
                        os.removexattr(pinned, name)
            finally:
                os.close(descriptor)

    def set_attributes(
        self,
        path: str,
        attributes: Attributes,
        looked_at: os.stat_result,
        content: Iterable[bytes] | None = None,
        *,
        within: str = "",
    ) -> None:
        if content is None:
            require_one_name(path, looked_at)
        if requires_new_file(looked_at, attributes) or (content is not None and looked_at.st_nlink > 1):
            chunks = copied(path, looked_at) if content is None else content
            with needing(looked_at.st_size):
                self._replace(path, chunks, attributes, looked_at, within=within, times=looked_at)
            return
        # O_PATH pins the queried file without opening it, so that a FIFO, a device or a replacement is not touched.
        with open_parent(path, within) as parent:
            descriptor = os.open(os.path.basename(path) or ".", _PINNED, dir_fd=parent)
        try:
            require_same(path, looked_at, os.fstat(descriptor))
            with naming(path):
                _set_pinned(f"/proc/self/fd/{descriptor}", attributes, looked_at)
        finally:
            os.close(descriptor)

    def set_note(self, path: str, key: str, text: str, *, within: str = "") -> None:
        with open_parent(path, within) as parent:
            pinned = f"/proc/self/fd/{parent}/{os.path.basename(path)}"
            os.setxattr(pinned, _NOTE + key, text.encode("ascii"), follow_symlinks=False)

    def remove(self, path: str, looked_at: os.stat_result, *, within: str = "") -> None:
        name, descent = os.path.basename(path), self._descent
        is_on_the_way = descent is not None and within == descent.top
        opened = descent.opened(path) if descent and is_on_the_way else open_parent(path, within)
        with opened as parent:
            require_same(path, looked_at, stat_at(parent, name))
            remove = os.rmdir if stat.S_ISDIR(looked_at.st_mode) else os.unlink
            remove(name, dir_fd=parent)
            os.fsync(parent)

    @contextlib.contextmanager
    def removing(self, within: str) -> Iterator[None]:
        with contextlib.closing(Descent(within)) as self._descent:
            try:
                yield
            finally:
                self._descent = None

    def remove_tree(self, path: str, looked_at: os.stat_result) -> None:
        directory, name = os.path.split(path)
        with open_safely(directory) as parent:
            require_same(path, looked_at, stat_at(parent, name))
            descriptor = os.open(name, REAL_DIRECTORY, dir_fd=parent)
            try:
                # Check the open directory again, because another one may have replaced it in between.
                require_same(path, looked_at, os.fstat(descriptor))
                empty(descriptor)
            finally:
                os.close(descriptor)
            os.rmdir(name, dir_fd=parent)
            os.fsync(parent)

    def write_kernel(self, path: str, data: bytes) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.EROFS and path == "/proc/sys/kernel/hostname":
                # A container with its own host name may have read-only parameters.

                socket.sethostname(data.decode().strip())
                return
            raise
        try:
            with naming(path):
                os.write(descriptor, data)  # in one call: the kernel takes each write as a whole value
        finally:
            os.close(descriptor)

    def execute(self, command: "Command") -> "Completed":
        # A command may add users and groups, or change their ids.
        self._users.clear()
        self._groups.clear()
        self.executed += 1
        return run(command)

    def act_as(self, identity: "Identity", act: Callable[[], object]) -> None:
        act_as(identity, act)

    def _require_same_directory(self, path: str, parent: int) -> None:
        """Require that a new path is made in the directory in which it was missing."""
        known = self._above.pop(path, None)
        status = os.fstat(parent)
        if known and known != (status.st_dev, status.st_ino):
            raise ChangedMeanwhile(
                f"{path}: another process replaced its directory while Puller inspected it"
            )

    def _tidy(self, directory: int) -> None:
        """Remove leftovers once per run, because it lists the directory, which may be large."""
        status = os.fstat(directory)
        if (status.st_dev, status.st_ino) not in self._tidied:
            self._tidied.add((status.st_dev, status.st_ino))
            remove_leftovers(directory)


def _find_id(name: str, known: dict[str, int], ask: Callable[[str], int]) -> int | None:
    with contextlib.suppress(KeyError):
        if name not in known:
            known[name] = ask(name)
        return known[name]
    return None


@contextlib.contextmanager
def _directory_in_progress(parent: int, name: str, path: str, attributes: Attributes) -> Iterator[None]:
    """Set owner and mode of a new directory (in this order, as for files), and hold it."""
    descriptor = os.open(name, REAL_DIRECTORY, dir_fd=parent)
    with in_progress(descriptor):
        require_new(path, descriptor)
        remove_foreign_acls(descriptor, parent, attributes.uid)
        os.fchown(descriptor, attributes.uid, attributes.gid)
        os.fchmod(descriptor, attributes.mode)
        yield


def _give_link(path: str, parent: int, name: str, target: str, owner: tuple[int, int]) -> None:
    """Set the owner of a new link.

    Raises ``ChangedMeanwhile`` if users who can write to the directory have replaced it, because their file must not
    get another owner.
    """
    descriptor = os.open(name, _PINNED, dir_fd=parent)
    try:
        status = os.fstat(descriptor)
        is_ours = status.st_uid == os.geteuid() and status.st_nlink == 1
        if not (stat.S_ISLNK(status.st_mode) and is_ours and os.readlink("", dir_fd=descriptor) == target):
            raise ChangedMeanwhile(f"{path}: another process replaced it while Puller created it")
        os.chown(f"/proc/self/fd/{descriptor}", *owner)
    finally:
        os.close(descriptor)


def _set_pinned(pinned: str, attributes: Attributes, looked_at: os.stat_result) -> None:
    if stat.S_ISLNK(looked_at.st_mode):
        os.chown(pinned, attributes.uid, attributes.gid)
        return
    if (looked_at.st_uid, looked_at.st_gid) != (attributes.uid, attributes.gid):
        # In between, grant only permissions that both the old and the new mode grant, because a run may be killed here.
        os.chmod(pinned, stat.S_IMODE(looked_at.st_mode) & attributes.mode)
        os.chown(pinned, attributes.uid, attributes.gid)
    os.chmod(pinned, attributes.mode)
