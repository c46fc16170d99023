"""The journal of a trial is synced before each change, once for all changes that are made together."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from puller.system.local import LocalSystem

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stories import Host, Publisher

MACHINE = "{{ facts.machine }}"
OWNED = {"owner": os.geteuid(), "group": os.getegid()}
FAILS = {"exec": [{"fails": {"command": "false"}}]}
COUNT = 50


class Syncs:
    """Number of syncs of a trial's journal, and its size at the last sync."""

    def __init__(self, journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.journal, self.count, self.size = journal, 0, 0
        fsync = os.fsync

        def counted(descriptor: int) -> None:
            fsync(descriptor)
            if os.readlink(f"/proc/self/fd/{descriptor}") == str(journal):
                self.count += 1
                self.size = os.fstat(descriptor).st_size

        monkeypatch.setattr(os, "fsync", counted)

    def require_synced(self) -> None:
        assert self.journal.exists()
        assert self.journal.stat().st_size == self.size


RESOURCES: dict[str, list[dict[str, Any]]] = {
    "edits of one file": [
        {
            "line": [
                {f"l{number}": {"path": f"{MACHINE}/shared.conf", "line": f"# {number}"}}
                for number in range(COUNT)
            ]
        }
    ],
    "tree": [
        {
            "file": [
                {
                    f"{MACHINE}/T": {
                        **OWNED,
                        "mode": "0644",
                        "ensure": "directory",
                        "source": "tree",
                        "recurse": True,
                    }
                }
            ]
        }
    ],
}


@pytest.mark.parametrize("kind", RESOURCES)
def test_changes_made_together_share_a_sync(
    host: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    host.machine.mkdir()
    (host.machine / "shared.conf").write_text("# by hand\n")
    (host.machine / "T").mkdir()
    for number in range(COUNT):
        (host.machine / f"T/{number}").write_text("before\n")
    files = {f"tree/{number}": b"after\n" for number in range(COUNT)}
    publisher.publish("1.0.0", json.dumps({"resources": []}), files=files)
    host.run()
    manifest = {"resources": [*RESOURCES[kind], FAILS]}
    publisher.publish("2.0.0", json.dumps(manifest), files=files)
    syncs = Syncs(host.state / "trials/web/journal", monkeypatch)
    replace = LocalSystem.replace_file

    def replaced(system: LocalSystem, path: str, *arguments: Any, **named: Any) -> Any:
        if path.startswith(str(host.machine)):
            syncs.require_synced()
        return replace(system, path, *arguments, **named)

    monkeypatch.setattr(LocalSystem, "replace_file", replaced)
    assert host.run().status == 6
    text = (host.machine / "shared.conf").read_text() + (host.machine / "T/0").read_text()
    assert "after" in text or f"# {COUNT - 1}" in text
    assert 1 <= syncs.count <= 4
