"""A host whose objects of all types are files below its machine directory, or simulated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from puller.resources.kernel import module_files
from puller.resources.services import cron
from puller.system.protocol import Attributes
from tests.puller.run.left.simulated_tools import Tools
from tests.puller.run.left.test_trial_endings import TOOLS, Story

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stories import Host, Publisher


@pytest.fixture
def story(
    host: Host,
    publisher: Publisher,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> Story:
    monkeypatch.setattr(module_files, "ROOT", str(host.machine))
    monkeypatch.setattr(cron, "DIRECTORY", str(host.machine / "cron.d"))
    monkeypatch.setattr(cron, "ATTRIBUTES", Attributes(os.geteuid(), os.getegid(), 0o644))
    monkeypatch.setattr("puller.system.trusted_files.PROC_SYS", str(host.machine / "proc"))
    (host.machine / "proc/vm").mkdir(parents=True)
    (host.machine / "proc/vm/swappiness").write_text("60\n")
    for path in sorted((host.machine).rglob("*")):
        assert path.exists()
    os.rename(host.machine, f"{host.machine}.made")
    story = Story(host, publisher)
    os.rename(f"{host.machine}.made/proc", host.machine / "proc")
    os.rmdir(f"{host.machine}.made")
    if getattr(request.node, "callspec", None) and request.node.callspec.params.get("kind") in TOOLS:
        story.tools = Tools(tmp_path / "tools", monkeypatch)
        host.configure(undo_packages=True)
    return story
