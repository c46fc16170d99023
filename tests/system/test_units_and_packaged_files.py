"""Units, alternatives and diversions on a booted Debian: applied, in sync, changed, and removed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

UNITS = ("job.service", "job.service.d/word.conf", "job.timer")


def apply(machine: Machine, resources: list[Any], *options: str) -> Completed:
    text = yaml.safe_dump({"resources": resources}, sort_keys=False)
    (machine.root / "root/manifest.yaml").write_text(text)
    return machine.run("puller", "apply", "/root/manifest.yaml", "--verbose", *options, check=False)


def converge(machine: Machine, resources: list[Any], changes: int) -> None:
    """Apply resources twice. The dry run predicts the first run, and the second run changes nothing."""
    dry = apply(machine, resources, "--noop")
    assert dry.stdout.count("would change") >= changes, dry.stdout + dry.stderr
    real = apply(machine, resources)
    assert real.returncode == 0, real.stdout + real.stderr
    assert f"{changes} changed" in real.stdout, real.stdout
    again = apply(machine, resources)
    assert again.returncode == 0
    assert "0 changed" in again.stdout, again.stdout


def shown(machine: Machine, unit: str, name: str) -> str:
    return str(machine.run("systemctl", "show", "--value", f"--property={name}", unit).stdout.strip())


def units(word: str) -> list[Any]:
    command = "/bin/sh -c 'echo $WORD > /var/tmp/word'"
    timer = {"OnActiveSec": "1s", "AccuracySec": "1s"}
    return [
        {
            "unit": [
                {"job.timer": {"sections": {"Timer": timer, "Install": {"WantedBy": "timers.target"}}}},
                {"job.service.d/word.conf": {"sections": {"Service": {"Environment": f"WORD={word}"}}}},
                {"job.service": {"sections": {"Service": {"Type": "oneshot", "ExecStart": command}}}},
            ]
        },
        {"service": [{"job.timer": {"enable": True, "subscribe": ["unit#job.timer"]}}]},
    ]


def test_timer_runs_its_service_until_both_are_removed(
    debian: Machine, wait_until: Callable[..., None]
) -> None:
    seen = debian.root / "var/tmp/word"
    converge(debian, units("one"), 4)
    wait_until(lambda: seen.exists() and seen.read_text() == "one\n", "the timer starts it", 60, debian.say)
    assert debian.run("systemctl", "is-enabled", "job.timer").stdout == "enabled\n"
    converge(debian, units("two"), 1)
    assert shown(debian, "job.service", "Environment") == "WORD=two"
    assert shown(debian, "job.service", "NeedDaemonReload") == "no"
    rejected = units("two")
    rejected[0]["unit"][2]["job.service"]["sections"]["Service"]["ExecStart"] = "/no/such/program"
    for options in (("--noop",), ()):
        failed = apply(debian, rejected, *options)
        assert failed.returncode != 0
        assert "/no/such/program is not executable" in failed.stdout + failed.stderr
    assert shown(debian, "job.service", "LoadState") == "loaded"
    # A file that systemd has not read, as after a killed run.
    drop_in = debian.root / "etc/systemd/system/job.service.d/word.conf"
    drop_in.write_text(drop_in.read_text().replace("two", "three"))
    assert apply(debian, units("three")).returncode == 0
    assert shown(debian, "job.service", "Environment") == "WORD=three"
    gone = [
        {"unit": [{name: {"ensure": "absent"}} for name in UNITS]},
        {"service": [{"job.timer": {"ensure": "stopped", "enable": False}}]},
    ]
    converge(debian, gone, 4)
    assert shown(debian, "job.timer", "LoadState") == shown(debian, "job.service", "LoadState") == "not-found"
    assert not list((debian.root / "etc/systemd/system").glob("**/job*"))


def package(machine: Machine, version: str) -> None:
    """Build a package with a program, and install it."""
    root = machine.root / "root/tool"
    for name, text in {
        "DEBIAN/control": f"Package: tool\nVersion: {version}\nArchitecture: all\nMaintainer: A <a@example.com>\n"
        "Description: A tool\n",
        "usr/bin/tool": f"#!/bin/sh\necho {version}\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "usr/bin/tool").chmod(0o755)
    machine.run("dpkg-deb", "--build", "--root-owner-group", "/root/tool", "/root/tool.deb")
    machine.run("dpkg", "--install", "/root/tool.deb")


def test_diversion_keeps_the_file_through_an_upgrade(debian: Machine) -> None:
    package(debian, "1.0")
    program = {"content": "#!/bin/sh\nexec tool.real\n", "owner": "root", "group": "root", "mode": "0755"}
    file, diverted = {"file": [{"/usr/bin/tool": program}]}, {"to": "/usr/bin/tool.real"}
    converge(debian, [file, {"diversion": [{"/usr/bin/tool": diverted}]}], 2)
    package(debian, "2.0")
    assert debian.run("tool").stdout == "2.0\n"
    assert (debian.root / "usr/bin/tool").read_text() == program["content"]
    assert "0 changed" in apply(debian, [file, {"diversion": [{"/usr/bin/tool": diverted}]}]).stdout
    gone = [{"diversion": [{"/usr/bin/tool": {"ensure": "absent"}}]}]
    refused = apply(debian, gone)
    assert "both exist, and removing its diversion would overwrite" in refused.stdout + refused.stderr
    (debian.root / "usr/bin/tool").unlink()
    converge(debian, gone, 1)
    assert "echo 2.0" in (debian.root / "usr/bin/tool").read_text()
    assert not (debian.root / "usr/bin/tool.real").exists()
    assert debian.run("dpkg", "--verify", "tool").stdout == ""


def test_alternative_selects_registers_and_returns(debian: Machine) -> None:
    package(debian, "1.0")
    links = debian.root / "etc/alternatives"
    for name, priority in (("one", "10"), ("two", "20")):
        debian.run("cp", "/usr/bin/tool", f"/usr/bin/{name}")
        arguments = ("/usr/bin/chosen", "chosen", f"/usr/bin/{name}", priority)
        debian.run("update-alternatives", "--install", *arguments)
    converge(debian, [{"alternative": [{"chosen": {"path": "/usr/bin/one"}}]}], 1)
    assert os.readlink(links / "chosen") == "/usr/bin/one"
    own = {"path": "/usr/bin/tool", "link": "/usr/bin/chosen", "priority": 5}
    converge(debian, [{"alternative": [{"chosen": own}]}], 1)
    assert os.readlink(links / "chosen") == "/usr/bin/tool"
    converge(debian, [{"alternative": [{"chosen": {**own, "auto": True}}]}], 1)
    assert os.readlink(links / "chosen") == "/usr/bin/two"
    converge(debian, [{"alternative": [{"chosen": {"ensure": "absent"}}]}], 1)
    listed = debian.run("update-alternatives", "--query", "chosen").stdout
    assert "Status: auto" in listed
    assert "/usr/bin/tool" not in listed
