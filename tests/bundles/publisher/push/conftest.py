"""Destinations without a system server: a directory, and an ``ssh`` that stays on this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bundles.publisher.push.destination import Destination
from bundles.publisher.push.plan import Plan
from bundles.publisher.push.push import open_destination

SSH = """#!/bin/sh
# What a server does with the last argument, without one; -O exit is asked of a master that there is not.
for last; do :; done
[ "$FAILS" ] && [ ! -e "$FAILS" ] && { touch "$FAILS"; echo "connection refused" >&2; exit 255; }
case " $* " in *" -O exit "*) exit 255;; esac
exec sh -c "$last"
"""


class Silent:
    """A watch that records all calls."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.files: list[str] = []
        self.parts: list[tuple[str, int]] = []

    def planned(self, steps: Plan) -> None:
        self.plans.append(steps)

    def moved(self, path: str, have: int) -> None:
        self.parts.append((path, have))

    def sent(self, path: str, size: int) -> None:
        assert size >= 0
        self.files.append(path)


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a program that replaces ``ssh`` and runs remote commands locally."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ssh").write_text(SSH)
    (tools / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return tools / "ssh"


@pytest.fixture
def www(tmp_path: Path) -> Path:
    """Return the directory that hosts read, locally or by SSH."""
    return tmp_path / "www"


@pytest.fixture
def opened() -> Iterator[Callable[[str], Destination]]:
    """Yield a function that opens destinations, which are closed after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda location: stack.enter_context(contextlib.closing(open_destination(location)))


@pytest.fixture(params=["directory", "ssh"])
def open_www(
    request: pytest.FixtureRequest, www: Path, opened: Callable[[str], Destination]
) -> Callable[[], Destination]:
    """Return a function that opens ``www`` as a destination, directly and as a directory of another machine."""
    if request.param == "ssh":
        request.getfixturevalue("ssh")
    return lambda: opened(str(www) if request.param == "directory" else f"host:{www}")
