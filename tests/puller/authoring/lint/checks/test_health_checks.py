"""Health checks that wait without their own limit, and programs by relative paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Execute


def linted(execute: Execute, directory: Path, resource: str) -> str:
    (directory / "web").mkdir()
    (directory / "web/manifest.yaml").write_text(f"resources:\n  - exec:\n      - {resource}\n")
    status, output = execute("lint", str(directory / "web"))
    assert status == 0, output
    return output


WAITING = {
    "command: curl -fsS http://localhost/": "curl may wait for the default limit of 60s: set a",
    "command: /usr/bin/wget -qO- http://localhost/, tries: 3": "wget may wait for the default limit of 60s",
    "command: curl localhost, tries: 3": "curl may wait for the default limit of 60s in each of 3 tries",
    "command: ssh web02 true": "ssh may wait",
    "command: sh -c 'until test -e /run/app; do sleep 1; done'": "until may wait",
    "command: \"bash -c 'curl -s http://{{ facts.networking.ip }}/ | grep -q ok'\"": "curl may wait",
}  # fmt: skip


@pytest.mark.parametrize("check", WAITING)
def test_a_health_check_that_waits_has_a_limit_of_its_own(
    execute: Execute, tmp_path: Path, check: str
) -> None:
    output = linted(execute, tmp_path, f"'true': {{health_checks: [{{{check}}}]}}")
    assert f"web/manifest.yaml:3:35: warning: {WAITING[check]}" in output
    assert "[health-check-limit]" in output


LIMITED = [
    "command: curl -fsS http://localhost/, timeout: 5s",
    "command: curl -fsS -m 5 http://localhost/",
    "command: curl -fsS --max-time 5 http://localhost/",
    "command: curl -sm5 http://localhost/",
    "command: timeout 5 curl http://localhost/",
    "command: sh -c 'timeout 5 curl http://localhost/'",
    "command: wget -T 5 -qO- http://localhost/",
    "command: ssh -o ConnectTimeout=5 web02 true",
    "command: test -s /etc/app.conf",
    "command: /usr/lib/nagios/plugins/check_http -H localhost",
    "command: systemctl is-active app",
    'command: "{{ facts.os.name }}"',
    "command: echo while you curl",
]


@pytest.mark.parametrize("check", LIMITED)
def test_check_with_a_timeout_or_without_waiting_is_fine(
    execute: Execute, tmp_path: Path, check: str
) -> None:
    assert "health-check-limit" not in linted(execute, tmp_path, f"'true': {{health_checks: [{{{check}}}]}}")


@pytest.mark.parametrize(
    "resource",
    [
        "./install.sh --all",
        "bin/install",
        "../x/y",
        "a: {command: bin/install}",
        "a: {command: /bin/true, onlyif: bin/check}",
        "'true': {cwd: /srv, health_checks: [{command: bin/check}]}",
    ],
)
def test_a_relative_program_without_a_directory_is_warned_of(
    execute: Execute, tmp_path: Path, resource: str
) -> None:
    output = linted(execute, tmp_path, resource)
    assert "is relative to /, because cwd is missing" in output
    assert "[relative-program]" in output


@pytest.mark.parametrize(
    "resource",
    [
        "make install",
        "/usr/bin/make install",
        "./install.sh: {cwd: /srv/app}",
        "a: {command: bin/install, provider: shell}",
        'a: {command: "{{ facts.os.name }}/bin/x"}',
        "a: {command: \"'{{ facts.os.name }}/bin/x' y\"}",
        "echo a/b",
    ],
)
def test_a_program_that_starts_somewhere_is_fine(execute: Execute, tmp_path: Path, resource: str) -> None:
    assert "relative-program" not in linted(execute, tmp_path, resource)
