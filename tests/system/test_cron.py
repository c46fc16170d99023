"""Debian's cron runs the jobs that Puller writes, and commands run as another user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

SCHEDULES = [
    "* * * * *",
    "0 0 1 1 0",
    "59 23 31 12 7",
    "*/59 */23 */31 */12 */7",
    "1-9/2,30,*/20 * * * *",
    "00 05 * * *",
    "0 6 * jan-mar,DEC Mon-Fri",
    "0 6 * * fri-7",
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
    "@reboot",
]
ENVIRONMENT = {
    "A": "  two  blanks",
    "B": "",
    "C": '"quoted" in 100%',
    "D": "'",
    "E": "$HOME # 100%",
}
PRINTED = "app|" + "|".join(ENVIRONMENT.values()) + "|100%|%d\n"
SHOW = r"""printf '%s|%s|%s|%s|%s|%s|100%%|\%s\n' "$(id -un)" "$A" "$B" "$C" "$D" "$E" %d > /var/tmp/seen-$(date +%Y)"""


def apply(machine: Machine, resources: list[Any], *options: str) -> Completed:
    text = yaml.safe_dump({"resources": resources}, sort_keys=False)
    (machine.root / "root/manifest.yaml").write_text(text)
    return machine.run("puller", "apply", "/root/manifest.yaml", "--verbose", *options, check=False)


def install_cron(machine: Machine) -> None:
    machine.run("apt-get", "update", "-q")
    machine.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "cron")


def test_debian_cron_runs_every_job_as_declared(debian: Machine, wait_until: Callable[..., None]) -> None:
    debian.run("useradd", "app")
    job = {"user": "app", "schedule": "@reboot", "command": SHOW, "environment": ENVIRONMENT}
    others = [
        {f"job-{number}": {"schedule": text, "command": "true"}} for number, text in enumerate(SCHEDULES)
    ]
    resources = [{"cron": [{"show": job}, *others]}]
    before = apply(debian, resources)
    assert "no cron is installed here, so nothing runs it" in before.stdout
    install_cron(debian)
    again = apply(debian, resources)
    assert f"{len(others) + 1} stable" in again.stdout
    assert "no cron is installed" not in again.stdout
    # Without a trace of an earlier start, cron takes its start for a boot.
    debian.run("rm", "-f", "/run/crond.reboot")
    debian.run("systemctl", "restart", "cron")
    seen = debian.root / "var/tmp"
    wait_until(lambda: list(seen.glob("seen-*")), "the job has run", 60, debian.say)
    (result,) = seen.glob("seen-*")
    assert result.name.removeprefix("seen-").isdecimal()
    wait_until(lambda: result.read_text().endswith("\n"), "all is written", 60, debian.say)
    assert result.read_text() == PRINTED
    output = [entry["MESSAGE"] for entry in debian.journal("cron.service")]
    assert not [line for line in output if "Error" in line or "bad" in line.lower() or "WRONG" in line], (
        output
    )


def test_unreadable_cron_file_is_repaired(debian: Machine, wait_until: Callable[..., None]) -> None:
    """cron skips files with other names or that others can write, and reports it only in its log."""
    install_cron(debian)
    resources = [{"cron": [{"job": {"schedule": "@daily", "command": "true"}}]}]
    assert "cron#job changed" in apply(debian, resources).stdout
    for hinder in (["chmod", "666", "/etc/cron.d/job"], ["ln", "/etc/cron.d/job", "/root/job"]):
        debian.run(*hinder)
        debian.run("systemctl", "restart", "cron")
        wait_until(
            lambda: any("job" in entry["MESSAGE"] for entry in debian.journal("cron.service")[-4:]),
            "cron refuses it",
            60,
            debian.say,
        )
        assert "cron#job changed" in apply(debian, resources).stdout
        assert "cron#job stable" in apply(debian, resources).stdout
        debian.run("systemctl", "restart", "cron")


def test_cron_command_has_user_groups_and_reads_a_secret(debian: Machine) -> None:
    debian.run("groupadd", "extra")
    debian.run("useradd", "--create-home", "--groups", "extra", "app")
    script = 'read -r word; echo "$(id -un) $(id -gn) $(id -Gn) $HOME $PWD $word" > seen'
    command = {
        "command": script,
        "provider": "shell",
        "user": "app",
        "cwd": "/home/app",
        "stdin": "hunter2\n",
        "creates": "seen",
    }
    assert "exec#show changed" in apply(debian, [{"exec": [{"show": command}]}]).stdout
    home = debian.root / "home/app"
    assert (home / "seen").read_text() == "app app app extra /home/app /home/app hunter2\n"
    assert (home / "seen").owner() == (home).owner()
    debian.run("chmod", "700", "/home/app")
    debian.run("useradd", "other")
    other = {"command": "true", "user": "other", "cwd": "/home/app"}
    done = apply(debian, [{"exec": [{"other": other}]}])
    assert "cwd /home/app cannot be entered by user other" in done.stdout
    for options in ((), ("--noop",)):
        nobody = apply(debian, [{"exec": [{"nobody": {"command": "true", "user": "nobody-here"}}]}], *options)
        assert "user is 'nobody-here', an unknown user" in nobody.stdout
