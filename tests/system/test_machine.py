"""Tests of the harness: the machine of system tests is real and has Puller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]


def test_the_machine_runs_debians_systemd_and_python(debian: Machine) -> None:
    assert debian.run("cat", "/proc/1/comm").stdout == "systemd\n"
    assert debian.run("hostname").stdout == "web01.example.com\n"
    assert debian.run("/opt/puller/bin/python", "--version").stdout == "Python 3.11.2\n"
    assert debian.run("systemctl", "is-system-running").stdout == "running\n"
