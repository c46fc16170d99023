"""This machine in noop, which is queried but never changed.

* Every change raises an error, so that tests find resources that write during queries, and users are safe.
* The expected results of earlier resources are recorded, so that later resources are predicted correctly.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from puller.errors import MutationInNoop
from puller.system.local import LocalSystem
from puller.system.local_paths import RealPaths
from puller.system.protocol import AccountKind, Attributes

if TYPE_CHECKING:
    from puller.system.commands import Command, Completed
    from puller.system.identity import Identity

EMPTY_DIRECTORY = "empty directory"
"""The kind of a directory on which an empty file system would be mounted."""
_MOST_LINKS = 40  # the kernel's limit


class NoopSystem(LocalSystem):
    """This machine, read-only. Every change raises ``MutationInNoop``."""

    def __init__(self) -> None:
        super().__init__()
        self._expected: dict[str, str] = {}
        self._real = RealPaths()
        self._links: dict[str, str] = {}
        """Targets of links that this run would create."""
        self._contents: dict[str, tuple[os.stat_result, bytes] | None] = {}
        """Files that this run would restore, and ``None`` for paths that it would remove."""
        self._accounts: dict[AccountKind, dict[str, int | None]] = {"user": {}, "group": {}}

    def lstat(self, path: str) -> os.stat_result | None:
        path = self._at(path)
        if path in self._contents:
            known = self._contents[path]
            return known and known[0]
        return None if self._is_hidden(path) else super().lstat(path)

    def is_directory(self, path: str) -> bool:
        path = self.through_links(path)
        expected = self._expectation(path)
        return super().is_directory(path) if expected is None else expected in ("directory", EMPTY_DIRECTORY)

    def exists(self, path: str) -> bool:
        path = self.through_links(path)
        expected = self._expectation(path)
        return super().exists(path) if expected is None else expected != "absent"

    def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
        path = self._at(path)
        known = self._contents.get(path)
        return super().read(path, looked_at) if known is None else known[1]

    def holds(self, path: str, content: bytes) -> bool:
        path = self._at(path)
        known = self._contents.get(path)
        return super().holds(path, content) if known is None else known[1] == content

    def read_chunks(self, path: str, looked_at: os.stat_result | None = None) -> Iterator[bytes]:
        path = self._at(path)
        known = self._contents.get(path)
        return super().read_chunks(path, looked_at) if known is None else iter([known[1]])

    def children(self, path: str) -> list[tuple[str, os.stat_result]]:
        path = self._at(path)
        is_empty = self._expected.get(path) == EMPTY_DIRECTORY or self._is_hidden(path)
        results = [] if is_empty else super().children(path)
        if not self._contents:
            return results
        prefix = f"{path}/"
        retained = [(name, entry) for name, entry in results if prefix + name not in self._contents]
        for each, known in self._contents.items():
            if known is not None and os.path.dirname(each) == path:
                retained.append((os.path.basename(each), known[0]))
        return retained

    def labels(self, path: str) -> dict[str, bytes]:
        return super().labels(self._at(path))

    def expect(self, path: str, kind: str) -> None:
        path = self._at(path)
        self._links.pop(path, None)
        self._expected[path] = kind
        # Another resource may use another spelling of the path, such as /lib for /usr/lib.
        self._expected[self._real.of(path)] = kind

    def expect_link(self, path: str, target: str) -> None:
        path = self._at(path)
        self._expected.pop(path, None)
        self._links[path] = target

    def expect_content(self, path: str, content: bytes | None, attributes: Attributes | None = None) -> None:
        path = self._at(path)
        if content is None or attributes is None:
            self._contents[path] = None
            return
        number = len(self._contents) + 1
        mode = stat.S_IFREG | attributes.mode
        result = (mode, number, 0, 1, attributes.uid, attributes.gid, len(content), 0, 0, 0)
        self._contents[path] = os.stat_result(result), content

    def _at(self, path: str) -> str:
        """Return the path after following expected links in its parent directories."""
        if not self._links:
            return path
        above, name = os.path.split(path)
        return os.path.join(self.through_links(above), name)

    def through_links(self, path: str) -> str:
        for _ in range(_MOST_LINKS if self._links else 0):
            link = next((one for one in self._links if path == one or path.startswith(f"{one}/")), None)
            if link is None:
                break
            path = os.path.normpath(self._links[link] + path.removeprefix(link))
        return path

    def will_be_written(self, path: str, *, below: bool = False) -> bool:
        path = self.through_links(path)
        if not below or self._expected.get(path) == "file":
            return self._expected.get(path) == "file"
        return any(item.startswith(f"{path}/") and kind == "file" for item, kind in self._expected.items())

    def _expectation(self, path: str) -> str | None:
        """Return the expected kind of a path. Paths below a removed directory are absent."""
        if (here := self._expected.get(path)) or not self._expected:
            return here
        if here := self._expected.get(self._real.directory(path)):
            return here
        while path != "/":
            path = os.path.dirname(path)
            if above := self._expected.get(path):
                return "absent" if above in ("absent", EMPTY_DIRECTORY) else None
        return None

    def _is_hidden(self, path: str) -> bool:
        """Return whether a parent directory would be removed, replaced by a file or hidden by a new file system."""
        while self._expected and path != "/":
            path = os.path.dirname(path)
            if kind := self._expected.get(path):
                return kind in ("absent", "file", EMPTY_DIRECTORY)
        return False

    def expect_account(self, kind: AccountKind, name: str, number: int | None) -> None:
        self._accounts[kind][name] = number

    def expected_accounts(self, kind: AccountKind) -> Mapping[str, int | None]:
        return self._accounts[kind]

    def user_id(self, name: str) -> int | None:
        expected = self._accounts["user"]
        return expected[name] if name in expected else super().user_id(name)

    def group_id(self, name: str) -> int | None:
        expected = self._accounts["group"]
        return expected[name] if name in expected else super().group_id(name)

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
        raise MutationInNoop(f"{path}: would be written in noop")

    def make_directory(self, path: str, attributes: Attributes, *, within: str = "") -> None:
        raise MutationInNoop(f"{path}: would be made in noop")

    def make_link(
        self,
        path: str,
        target: str,
        looked_at: os.stat_result | None,
        owner: tuple[int, int] | None = None,
    ) -> None:
        raise MutationInNoop(f"{path}: would be made in noop")

    def rename(self, path: str, to: str, looked_at: os.stat_result) -> None:
        raise MutationInNoop(f"{path}: would be renamed in noop")

    def set_labels(self, path: str, labels: Mapping[str, bytes], looked_at: os.stat_result) -> None:
        raise MutationInNoop(f"{path}: labels would be set in noop")

    def set_attributes(
        self,
        path: str,
        attributes: Attributes,
        looked_at: os.stat_result,
        content: Iterable[bytes] | None = None,
        *,
        within: str = "",
    ) -> None:
        raise MutationInNoop(f"{path}: attributes would be set in noop")

    def set_note(self, path: str, key: str, text: str, *, within: str = "") -> None:
        raise MutationInNoop(f"{path}: would be noted on in noop")

    def remove(self, path: str, looked_at: os.stat_result, *, within: str = "") -> None:
        raise MutationInNoop(f"{path}: would be removed in noop")

    def remove_tree(self, path: str, looked_at: os.stat_result) -> None:
        raise MutationInNoop(f"{path}: would be removed in noop")

    def write_kernel(self, path: str, data: bytes) -> None:
        raise MutationInNoop(f"{path}: would be written in noop")

    def execute(self, command: "Command") -> "Completed":
        raise MutationInNoop(f"{command.arguments[0]}: would be executed in noop")

    def act_as(self, identity: "Identity", act: Callable[[], object]) -> None:
        raise MutationInNoop(f"noop must not change anything as {identity.name}")
