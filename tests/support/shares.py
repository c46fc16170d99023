"""A plugin that gives each worker of a plain run its own test files.

* A worker imports and collects its share of the files. Otherwise each worker imports all files and creates all tests,
  which takes a fifth of the processor time.
* Workers get the files of a folder in turn, because such files have similar durations.
* If a worker ends at a time limit, its successor gets the same share and runs the remaining tests.
* ``--left-out``, ``--everything`` and single files use ``worksteal``, because some tests take minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

unassigned = pytest.StashKey[list[int]]()
"""Shares that need a worker, in the process that starts the workers."""
numbers = pytest.StashKey[dict[Path, int]]()
"""Test files in the order of the collection, which is the same for all workers."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[numbers] = {}


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, like the next three
def pytest_configure_node(node: Any) -> None:
    options = node.config.option
    if not (options.left_out or options.everything) and all(map(_is_directory, node.config.args)):
        count = node.workerinput["workercount"]
        node.workerinput["share"] = node.config.stash.setdefault(unassigned, list(range(count))).pop(0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    if error and "share" in node.workerinput:
        node.config.stash[unassigned].append(node.workerinput["share"])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config) -> ShareScheduling | None:
    return ShareScheduling(config) if unassigned in config.stash else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    worker = getattr(config, "workerinput", {})
    if "share" not in worker or not (
        collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    ):
        return None
    files = config.stash[numbers]
    number = files.setdefault(collection_path, len(files))
    return True if number % worker["workercount"] != worker["share"] else None


def _is_directory(argument: str) -> bool:
    return Path(argument).is_dir()


class ShareScheduling:
    """Scheduler of pytest-xdist: each worker runs all tests that it collected."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._collected: dict[int, list[str]] = {}
        """Test names by share."""
        self._pending: dict[Any, list[int]] = {}
        """Positions of the tests that a worker has not completed."""
        self._remaining: dict[int, list[int]] = {}
        """The pending tests of ended workers, by share."""
        self._ready: list[Any] = []
        """Workers that have collected their tests and wait."""

    @property
    def nodes(self) -> list[Any]:
        return list(self._pending)

    @property
    def collection_is_completed(self) -> bool:
        return all(node.workerinput["workercount"] == len(self._collected) for node in self._pending)

    @property
    def tests_finished(self) -> bool:
        are_last = all(len(pending) < 2 for pending in self._pending.values())
        return self.collection_is_completed and bool(self._collected) and are_last and not self._remaining

    @property
    def has_pending(self) -> bool:
        return any(self._pending.values())

    def add_node(self, node: Any) -> None:
        self._pending[node] = []

    def add_node_collection(self, node: Any, collection: list[str]) -> None:
        share = node.workerinput["share"]
        if share in self._collected:
            self._pending[node] = self._remaining.pop(share, [])
        else:
            self._collected[share] = list(collection)
            self._pending[node] = list(range(len(collection)))
        self._ready.append(node)

    def schedule(self) -> None:
        session: Any = self._config.pluginmanager.get_plugin("session")
        session.testscollected = sum(map(len, self._collected.values()))  # for the progress
        for node in self._ready:
            node.send_runtest_some(self._pending[node])
            node.shutdown()  # after these tests
        self._ready.clear()

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        self._pending[node].remove(item_index)

    def mark_test_pending(self, item: str) -> None:
        raise NotImplementedError

    def remove_pending_tests_from_node(self, node: Any, indices: list[int]) -> None:
        raise NotImplementedError

    def remove_node(self, node: Any) -> str | None:
        """Remove an ended worker, and return the test that ended it."""
        pending, share = self._pending.pop(node), node.workerinput["share"]
        is_running = bool(pending) and node not in self._ready
        running = self._collected[share][pending.pop(0)] if is_running else None
        if pending:
            self._remaining[share] = pending
        self._ready = [other for other in self._ready if other is not node]
        return running
