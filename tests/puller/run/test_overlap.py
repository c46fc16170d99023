"""Overlapping runs: processes that a command leaves running never block the next run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

# Commands that end immediately and leave a process running, in the background or in its own session.
LEAVES = {
    "in the background": "sleep 60 & echo $! > left",
    "in a session of its own": "setsid sh -c 'echo $$ > left; exec sleep 60' &",
    "with its output closed": "sleep 60 >&- 2>&- & echo $! > left",
}


def run(host: Host) -> tuple[int, str]:
    """Run Puller in its own process, because the lock belongs to a process."""
    done = subprocess.run(
        [sys.executable, "-m", "puller", "run", "--config", str(host.configuration)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.everything
@pytest.mark.attack("overlap.child")
@pytest.mark.parametrize("how", LEAVES)
@pytest.mark.representatives(1)
def test_background_process_does_not_keep_the_lock(
    how: str, settled: Host, publisher: Publisher, tmp_path: Path
) -> None:
    (tmp_path / "leave").write_text(
        f"cd {settled.machine}\n{LEAVES[how]}\nwhile [ ! -s left ]; do sleep 0.01; done\n"
    )
    leave = f"""\
      - leave:
          command: sh {tmp_path}/leave
          creates: {settled.machine}/left
"""
    publisher.publish("1.1.0", publisher.story.replace("  - exec:\n", f"  - exec:\n{leave}"))
    assert run(settled)[0] == 0
    remaining = int((settled.machine / "left").read_text())
    try:
        assert not [fd for fd in Path(f"/proc/{remaining}/fd").iterdir() if os.readlink(fd).endswith("/lock")]
        assert run(settled)[0] == 0, "and not 75"
    finally:
        os.kill(remaining, signal.SIGKILL)


@pytest.mark.attack("commands.hang", "commands.children")
def test_hanging_command_is_killed_and_the_next_run_works(
    settled: Host, publisher: Publisher, tmp_path: Path
) -> None:
    (tmp_path / "hang").write_text(
        f"(setsid sh -c 'echo $$ > {settled.machine}/left; exec sleep 60' >&- 2>&- &)\nsleep 60\n"
    )
    hang = f"""\
      - hang:
          command: sh {tmp_path}/hang
          timeout: 1s
          creates: {tmp_path}/never
"""
    publisher.publish("1.1.0", publisher.story.replace("  - exec:\n", f"  - exec:\n{hang}"))
    status, output = run(settled)
    assert status == 6, output
    assert "its time limit" in output
    assert not Path(f"/proc/{(settled.machine / 'left').read_text().strip()}").exists()

    publisher.publish("1.2.0")
    assert run(settled)[0] == 0
    settled.assert_enforces("1.2.0")
