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
from xdist.scheduler import EachScheduling

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


class ShareScheduling(EachScheduling):  # type: ignore[misc]  # the library has no annotations
    """Scheduler of pytest-xdist: each worker runs all tests that it collected."""

    def schedule(self) -> None:
        session: Any = self.config.pluginmanager.get_plugin("session")
        session.testscollected = sum(map(len, self.node2collection.values()))  # for the progress
        super().schedule()
