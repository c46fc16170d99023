"""Puller handles signals even if its parent process ignored or blocked them."""

import subprocess
import sys
from pathlib import Path

import pytest

MANIFEST = """\
resources:
  - exec: {name: fails, command: "sh -c 'sleep 0.1; exit 3'"}
  - exec: {name: late, command: "sleep 60", timeout: 1s}
  - exec:
      name: slow
      command: "true"
      environment: ["A={{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab' | regex_search('(a+)+$') }}"]
"""

ODD_PARENT = """\
import os, signal, sys

import pytest
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.execv(sys.executable, [sys.executable, "-m", "puller", "apply", *sys.argv[1:]])
"""


@pytest.mark.everything
def test_inherited_signal_masks_do_not_matter(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(MANIFEST)
    finished = subprocess.run(
        [sys.executable, "-c", ODD_PARENT, str(manifest), "--state-directory", str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "exit code 3, expected 0" in finished.stdout
    assert "its time limit" in finished.stdout
    assert "took more than 1 s" in finished.stdout
    assert finished.returncode == 4
