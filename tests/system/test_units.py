"""The systemd units are valid, justify each line, and hide no change."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

import pytest

from puller.exit_status import ExitStatus
from tests.support.rows import each_row

if TYPE_CHECKING:
    from tests.support.machines import Machine

UNITS = Path(__file__).parents[2] / "systemd"
STATUSES = UNITS.parent / "docs/exit-statuses.md"

# Each of these gives the service a mount namespace (systemd.exec(5)): mounts of a bundle would be lost with it.
NAMESPACING = re.compile(
    r"""^(
        Protect(System|Home|Proc|ControlGroups|Hostname|Clock|Kernel\w+) | Private\w+ | ProcSubset
        | MountFlags
        | Bind(ReadOnly)?Paths | ReadOnlyPaths | ReadWritePaths | InaccessiblePaths | TemporaryFileSystem
        | RootDirectory | RootImage | DynamicUser
    )=""",
    re.MULTILINE | re.VERBOSE,
)


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units as installed, with a command that exists here."""
    for unit in (*UNITS.glob("*.service"), *UNITS.glob("*.timer")):
        (tmp_path / unit.name).write_text(unit.read_text().replace("@PULLER@", "/bin/true"))
    return sorted(tmp_path.iterdir())


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_units(
    units: list[Path], run_checked: Callable[..., CompletedProcess[str]]
) -> None:
    assert run_checked("systemd-analyze", "verify", "--man=no", *units).stdout == ""


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_readme_has_systemd_s_names_of_our_exit_statuses(
    run_checked: Callable[..., CompletedProcess[str]],
) -> None:
    output = run_checked("systemd-analyze", "exit-status", "--no-pager").stdout
    names = {int(number): name for name, number in re.findall(r"^([A-Z]\w+) +(\d+) ", output, re.MULTILINE)}
    table = STATUSES.read_text().split("## Exit statuses")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([\d, ]+) \|.*\| ([A-Z, ]*) \|$", table, re.MULTILINE)
    listed = {
        int(number): name
        for numbers, named in rows
        for number, name in zip_longest(numbers.split(", "), named.split(", "), fillvalue="")
    }
    assert listed == {int(status): names.get(status, "") for status in ExitStatus}


@each_row("name", sorted(path.name for path in UNITS.iterdir()))
def test_every_block_of_lines_begins_with_its_reason(name: str) -> None:
    blocks = re.split(r"\n\s*\n", (UNITS / name).read_text())
    settings = [block.splitlines() for block in blocks if re.search(r"^\w+=", block, re.M)]
    for block in settings:
        lines = [line for line in block if not line.startswith("[")]
        assert lines[0].startswith("#") or lines[0].startswith(("Description=", "WantedBy=")), block


def test_a_run_shares_the_machines_mounts() -> None:
    assert not NAMESPACING.search((UNITS / "puller.service").read_text())


@pytest.mark.parametrize("name", ["puller", "puller-check"])
def test_the_timer_starts_the_service_of_its_name(name: str) -> None:
    timer = configparser.ConfigParser(interpolation=None)
    timer.read(UNITS / f"{name}.timer")
    assert "unit" not in timer["Timer"]
    assert (UNITS / f"{name}.service").exists()


@pytest.mark.parametrize("name", ["puller", "puller-user"])
def test_a_machine_that_is_up_for_five_minutes_runs(name: str) -> None:
    """The first run after boot is at most five minutes late, whatever the interval of the regular timer."""
    regular, boot = (configparser.ConfigParser(interpolation=None) for _ in range(2))
    regular.read(UNITS / f"{name}.timer")
    boot.read(UNITS / f"{name}-boot.timer")
    assert regular["Unit"]["Wants"] == "puller-boot.timer"
    assert boot["Unit"]["PartOf"] == "puller.timer"
    assert boot["Timer"]["Unit"] == "puller.service"
    minutes = [int(boot["Timer"][key].removesuffix("min")) for key in ("OnActiveSec", "RandomizedDelaySec")]
    assert sum(minutes) <= 5


def test_a_check_that_makes_a_run_has_the_settings_of_a_run() -> None:
    """Only the command and the accepted exit statuses differ."""

    def settings(name: str) -> set[str]:
        text = (UNITS / name).read_text().split("[Service]")[1]
        return {line for line in text.splitlines() if re.match(r"\w+=", line)}

    different = settings("puller.service") ^ settings("puller-check.service")
    assert {line.partition("=")[0] for line in different} == {"ExecStart", "SuccessExitStatus"}


# --- the score of systemd, quoted in docs/security.md ---------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs/security.md"
SETTING = re.compile(r"^ *([✗✓]) (\S+=\S*) +(.*?)$", re.MULTILINE)
EXAMPLE = re.compile(r" \(e\.g\. [^)]*\)")  # examples depend on the processor


def settings_in(text: str) -> dict[str, tuple[str, set[str]]]:
    """Return each setting with its sign, description and exposure, in any order."""
    return {
        name: (sign, set(re.split(r" {2,}", EXAMPLE.sub("", rest).strip())))
        for sign, name, rest in SETTING.findall(text)
    }


@pytest.mark.booted
@pytest.mark.root
def test_security_page_quotes_systemd_analyze(debian: Machine) -> None:
    debian.run("puller", "install-units")
    debian.run("systemctl", "daemon-reload")
    output = debian.run("systemd-analyze", "security", "--no-pager", "puller.service").stdout
    page = PAGE.read_text()
    assert settings_in(page) == settings_in(output)
    (score,) = re.findall(r"→ (Overall exposure level for puller.service: \S+ \w+)", output)
    assert score in page


def test_open_restrictions_have_a_reason() -> None:
    section = PAGE.read_text().split("What cannot be tightened")[1].split("\n## ")[0]
    blocks = re.split(r"\n\s*\n", section.strip())[1:]
    reasons, lines = blocks[::2], blocks[1::2]
    assert len(reasons) == len(lines)
    assert all(reason.startswith("**") for reason in reasons)
    assert all(settings_in(block) and "✓" not in block for block in lines)


# --- profiles, as in docs/units.md ---------------------------------------------------------------------------

PROFILES = Path(__file__).parents[2] / "docs/units.md"
TIGHT = UNITS / "puller-tight.conf"
SERVICES = ("puller.service", "puller-check.service")

# Each of these hides or replaces the files that it protects, so a run would see a wrong current state.
HIDING = re.compile(
    r"""^(
        Private\w+ | ProtectHome=(yes|tmpfs) | ProtectProc | ProcSubset | ProtectKernelModules | ProtectKernelLogs
        | InaccessiblePaths | TemporaryFileSystem | Bind(ReadOnly)?Paths | RootDirectory | RootImage | DynamicUser
    )""",
    re.MULTILINE | re.VERBOSE,
)


def exposure(directory: Path, name: str, *drop_ins: Path) -> str:
    """Return the score of a service, such as ``9.2 UNSAFE``. No machine has to run the service."""
    unit = directory / name
    unit.write_text((UNITS / name).read_text().replace("@PULLER@", "/bin/true"))
    for drop_in in drop_ins:
        (directory / f"{name}.d").mkdir()
        shutil.copy(drop_in, directory / f"{name}.d/50-tight.conf")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (score,) = re.findall(rf"→ Overall exposure level for {re.escape(name)}: (\S+ \w+)", done.stdout)
    return str(score)


def is_systemd_of_the_page() -> bool:
    """Return whether systemd is that of Debian 12: other versions score other settings."""
    if not shutil.which("systemd-analyze"):
        return False
    return subprocess.check_output(["systemd-analyze", "--version"], text=True).split()[1] == "252"


@pytest.mark.skipif(not is_systemd_of_the_page(), reason="systemd-analyze is not that of Debian 12")
def test_the_page_of_profiles_has_the_figures_of_systemd(tmp_path: Path) -> None:
    table = re.findall(
        r"^\| (ordinary|tight) \|.*\| (\S+ \w+) \| (\S+ \w+) \|$", PROFILES.read_text(), re.MULTILINE
    )
    output = {
        profile: tuple(exposure(tmp_path / profile, name, *drop_ins) for name in SERVICES)
        for profile, drop_ins in (("ordinary", ()), ("tight", (TIGHT,)))
        if not (tmp_path / profile).mkdir()  # type: ignore[func-returns-value]
    }
    assert {profile: tuple(scores) for profile, *scores in table} == output


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_tight_profile(
    tmp_path: Path, run_checked: Callable[..., CompletedProcess[str]]
) -> None:
    for name in SERVICES:
        exposure(tmp_path, name, TIGHT)
        assert run_checked("systemd-analyze", "verify", "--man=no", tmp_path / name).stdout == ""


def test_the_tight_profile_hides_nothing_from_a_run() -> None:
    assert not HIDING.search(TIGHT.read_text())


def test_every_line_that_forbids_is_in_the_table_of_symptoms() -> None:
    rows = PROFILES.read_text().split("## What it forbids")[1].split("## Allow one")[0]
    lines = set(re.findall(r"^(\w+)=", TIGHT.read_text(), re.MULTILINE))
    told_otherwise = {"Environment", "SystemCallErrorNumber", "ProtectControlGroups"}
    assert {line for line in lines - told_otherwise if f"`{line}=" not in rows} == set()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_documented_drop_in_has_its_effect(
    tmp_path: Path, run_checked: Callable[..., CompletedProcess[str]]
) -> None:
    exposure(tmp_path, "puller.service", TIGHT)
    (example,) = re.findall(r"^```ini\n(.*?)^```", PROFILES.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "puller.service.d/60-own.conf").write_text(example)
    assert run_checked("systemd-analyze", "verify", "--man=no", tmp_path / "puller.service").stdout == ""
    output = run_checked(
        "systemd-analyze", "security", "--offline=true", "--no-pager", tmp_path / "puller.service"
    ).stdout
    assert re.search(r"✗ ProtectHome= .*full access to home directories", output)
