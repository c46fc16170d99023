"""apt and dpkg: commands, parsed output, and reactions to problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from puller.errors import ResourceError
from puller.resources.packages.apt import Apt, Policy, parse_database, parse_policies
from puller.resources.packages.manager import Installed, Job, Record, RequestedPackage
from puller.system.commands import Completed
from tests.simulators import packages

if TYPE_CHECKING:
    from tests.simulators.packages import Debian

NewJob = Callable[..., Job]

INSTALL = [
    "apt-get", "install", "-y", "-q",
    "-o", "DPkg::Options::=--force-confold", "-o", "Dpkg::Use-Pty=0", "-o", "APT::Cmd::Pattern-Only=true",
    "-o", "DPkg::Lock::Timeout=10",
]  # fmt: skip


@pytest.fixture
def debian() -> Debian:
    """Return a Debian that offers ``tool`` in two versions."""
    machine: Debian = packages.Debian(repository={"tool": ["1.0-1", "2.0-1"], "other": ["3.0"]})
    return machine


def test_a_package_is_installed_by_its_name(debian: Debian, job: NewJob) -> None:
    Apt().install(job(debian), [RequestedPackage("tool")], downgrades=False)
    assert debian.changed == [[*INSTALL, "--no-remove", "--", "tool"]]
    assert debian.versions("tool") == ["2.0-1"]


def test_only_a_version_that_was_asked_for_may_be_older(debian: Debian, job: NewJob) -> None:
    Apt().install(job(debian), [RequestedPackage("tool")], downgrades=False)
    with pytest.raises(ResourceError, match="Packages were downgraded and -y was used without"):
        Apt().install(job(debian), [RequestedPackage("tool", "1.0-1")], downgrades=False)
    Apt().install(job(debian), [RequestedPackage("tool", "1.0-1")], downgrades=True)
    assert debian.changed[-1] == [
        *INSTALL, "--no-remove", "--allow-downgrades", "--", "tool=1.0-1"
    ]  # fmt: skip


def test_a_package_is_removed_and_its_configuration_stays(debian: Debian, job: NewJob) -> None:
    Apt().install(job(debian), [RequestedPackage("tool"), RequestedPackage("other")], downgrades=False)
    Apt().remove(job(debian), ["tool", "other"])
    assert debian.changed[-1] == [INSTALL[0], "remove", *INSTALL[2:], "--", "tool", "other"]
    assert debian.packages["tool"].status == "config-files"


@pytest.mark.attack("apt.conffile")
def test_nothing_is_ever_asked(debian: Debian, job: NewJob) -> None:
    Apt().install(job(debian), [RequestedPackage("tool")], downgrades=False)
    (environment,) = debian.environments
    assert environment == {
        "DEBIAN_FRONTEND": "noninteractive",
        "APT_LISTBUGS_FRONTEND": "none",
        "APT_LISTCHANGES_FRONTEND": "none",
        "UCF_FORCE_CONFFOLD": "1",
    }


@pytest.mark.attack("apt.lock")
@pytest.mark.parametrize(("seconds", "option"), [(0, "0"), (0.5, "1"), (120.0, "120")])
def test_the_wait_for_the_lock_is_bounded(debian: Debian, job: NewJob, seconds: float, option: str) -> None:
    """The reference ignored other package managers."""
    debian.is_locked = True
    with pytest.raises(ResourceError, match="Unable to acquire the dpkg frontend lock"):
        Apt().install(job(debian, lock_timeout=seconds), [RequestedPackage("tool")], downgrades=False)
    assert f"DPkg::Lock::Timeout={option}" in debian.changed[0]


def test_a_failure_shows_the_end_of_stderr(debian: Debian, job: NewJob) -> None:
    """The reference dropped it."""
    debian.fails = {"tool"}
    with pytest.raises(ResourceError) as failure:
        Apt().install(job(debian), [RequestedPackage("tool")], downgrades=False)
    assert str(failure.value) == (
        "apt-get install tool: exit code 100; it printed:\n"
        "dpkg: error processing package tool (--configure):\n"
        "E: Sub-process /usr/bin/dpkg returned an error code (1)"
    )


# Failures that Puller repairs


@pytest.mark.attack("apt.interrupted")
def test_an_interrupted_dpkg_is_repaired_once_and_reported(
    debian: Debian, job: NewJob, log: list[str]
) -> None:
    debian.is_interrupted = True
    debian.packages["other"] = type(debian.packages["dpkg"])("3.0", "unpacked")
    Apt().install(job(debian), [RequestedPackage("tool")], downgrades=False)
    assert [command[0] for command in debian.changed] == ["apt-get", "dpkg", "apt-get"]
    assert debian.changed[1] == ["dpkg", "--force-confold", "--configure", "-a"]
    assert debian.environments[1]["DEBIAN_FRONTEND"] == "noninteractive"
    assert debian.versions("other") == ["3.0"]
    assert log == ["apt: dpkg had been interrupted; dpkg --configure -a has finished its work"]


def test_a_dpkg_that_is_interrupted_again_is_not_repaired_again(debian: Debian, job: NewJob) -> None:
    apt = Apt()
    debian.is_interrupted = True
    apt.install(job(debian), [RequestedPackage("tool")], downgrades=False)
    debian.is_interrupted = True
    with pytest.raises(ResourceError, match="dpkg was interrupted"):
        apt.install(job(debian), [RequestedPackage("other")], downgrades=False)


def test_a_repair_that_fails_is_the_failure(
    debian: Debian, job: NewJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    debian.is_interrupted = True
    broken = Completed(
        1, None, False, "", "dpkg: error: requested operation requires superuser privilege\n", 0.1
    )
    monkeypatch.setattr(debian, "dpkg", lambda arguments: broken)
    with pytest.raises(ResourceError) as failure:
        Apt().install(job(debian), [RequestedPackage("tool")], downgrades=False)
    assert str(failure.value) == (
        "dpkg was interrupted; dpkg --configure -a: exit code 1; it printed:\n"
        "dpkg: error: requested operation requires superuser privilege"
    )


def test_package_lists_are_fetched_when_a_package_is_not_in_them(
    debian: Debian, job: NewJob, log: list[str]
) -> None:
    """A fresh machine has no package lists."""
    debian.repository, debian.published = {}, debian.repository
    Apt().install(job(debian), [RequestedPackage("tool")], downgrades=False)
    assert [command[1] for command in debian.changed] == ["update", "install"]
    assert debian.versions("tool") == ["2.0-1"]
    assert log == ["apt: fetching the package lists anew"]


def test_package_lists_are_fetched_when_the_server_has_moved_on(debian: Debian, job: NewJob) -> None:
    debian.unfetchable = {"tool=2.0-1"}
    Apt().install(job(debian), [RequestedPackage("tool")], downgrades=False)
    assert [command[1] for command in debian.changed] == ["install", "update", "install"]


@pytest.mark.attack("apt.missing")
def test_package_lists_are_fetched_once_a_run(debian: Debian, job: NewJob) -> None:
    apt = Apt()
    for _ in range(2):
        with pytest.raises(ResourceError, match="Unable to locate package missing"):
            apt.install(job(debian), [RequestedPackage("missing")], downgrades=False)
    assert [command[1] for command in debian.changed] == ["update"]


def test_a_version_is_found_in_lists_that_were_fetched_anew(debian: Debian, job: NewJob) -> None:
    debian.published = {"tool": ["1.0-1", "2.0-1", "2.0-3", "2.0-2"]}
    apt = Apt()
    assert apt.find_version(job(debian), "tool", "1.0") == "1.0-1"
    assert debian.changed == []
    assert apt.find_version(job(debian), "tool", "2.0-2") == "2.0-2"
    assert apt.find_version(job(debian), "tool", "2.0") == "2.0-3"


def test_unavailable_version_is_refused_with_alternatives(debian: Debian, job: NewJob) -> None:
    apt = Apt()
    for name, there_is in (("tool", "1.0-1, 2.0-1"), ("missing", "none")):
        with pytest.raises(ResourceError) as failure:
            apt.find_version(job(debian, "tool", "missing"), name, "9")
        assert str(failure.value) == f"version 9 is not available (available: {there_is})"
    assert [command[1] for command in debian.changed] == ["update"]


def test_a_command_that_was_killed_has_no_remedy(
    debian: Debian, job: NewJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Completed(None, None, True, "", "E: Unable to fetch some archives\n", 60.0)
    summary = "0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.\n"
    simulated = Completed(0, None, False, f"{summary}Inst tool (2.0-1 localhost [amd64])\n", "", 0.1)
    monkeypatch.setattr(
        debian, "apt_get", lambda arguments: simulated if "--simulate" in arguments else killed
    )
    with pytest.raises(ResourceError, match=r"apt-get install tool: killed after 60\.0 s, its time limit"):
        Apt().install(job(debian), [RequestedPackage("tool")], downgrades=False)
    assert len(debian.changed) == 1


# Queries


def test_noop_leaves_apts_caches_as_they_are(debian: Debian, job: NewJob) -> None:
    for noop in (False, True):
        assert Apt().candidate(job(debian, "tool", noop=noop), "tool") == "2.0-1"
    real, dry = debian.looked
    assert "Dir::Cache::pkgcache=" not in real
    assert "Dir::Cache::pkgcache=" in dry
    assert "Dir::Cache::srcpkgcache=" in dry


@pytest.mark.attack("data-names.package")
def test_names_never_reach_apt_as_options_or_patterns(debian: Debian, job: NewJob) -> None:
    """Without ``Pattern-Only``, ``apt-get install python3.`` installs every package that matches the expression."""
    apt = Apt()
    apt.candidate(job(debian, "tool", "other"), "tool")
    apt.install(job(debian), [RequestedPackage("tool")], downgrades=True)
    apt.remove(job(debian), ["tool"])
    requested = [command for command in debian.looked if command[0] != "dpkg-query"]
    for command in [*requested, *debian.changed]:
        assert "APT::Cmd::Pattern-Only=true" in command
        assert {"tool", "tool=2.0-1"} & set(command[command.index("--") + 1 :])


ANSWER = """\
install\tinstalled\tdpkg\tamd64\t1.21.22\t
hold\tinstalled\ttool\tall\t1.0-1\tutility (= 3), kit
deinstall\tconfig-files\told\tamd64\t0.9\tkit
unknown\tnot-installed\tnever\tamd64\t\t
install\thalf-configured\tbad\tamd64\t1.0\tkit
install\ttriggers-awaited\tman-db\tamd64\t2.11.2-2\t
install\tinstalled\tmulti\tamd64\t1.0\tkit
install\tinstalled\tmulti\ti386\t1.0\t
"""


def test_the_records_of_dpkg_are_read() -> None:
    """The reference read one package at a time, and only whether it was installed."""
    database = parse_database(ANSWER)
    assert database.installed == {
        "dpkg": [Installed("1.21.22", "amd64")],
        "tool": [Installed("1.0-1", "all", held=True)],
        "bad": [Installed("1.0", "amd64", "half-configured")],
        "man-db": [Installed("2.11.2-2", "amd64")],
        "multi": [Installed("1.0", "amd64"), Installed("1.0", "i386")],
    }
    assert database.configured == {"old": {"amd64"}}
    tool, multi = Record("tool", "1.0-1", "all"), Record("multi", "1.0", "amd64")
    assert database.provided == {"utility": [tool], "kit": [tool, multi]}


POLICIES = """\
tool:
  Installed: 1.1-1
  Candidate: 2.0-1
  Version table:
     2.0-1 500
        500 http://deb.example.com/debian bookworm/main amd64 Packages
 *** 1.1-1 100
        100 /var/lib/dpkg/status
multi:i386:
  Installed: (none)
  Candidate: 1.0
  Version table:
     1.0 500 (phased 10%)
        500 http://deb.example.com/debian bookworm/main i386 Packages
pinned:
  Installed: (none)
  Candidate: (none)
  Version table:
     3.0 -1
        500 http://deb.example.com/debian bookworm/main amd64 Packages
"""


def test_policies_are_read_and_no_candidate_is_none() -> None:
    """The reference passed ``(none)`` on as a version."""
    assert parse_policies(POLICIES) == {
        "tool": Policy("2.0-1", ["2.0-1", "1.1-1"]),
        "multi:i386": Policy("1.0", ["1.0"]),
        "pinned": Policy(None, ["3.0"]),
    }


def test_a_policy_is_found_under_each_spelling_of_a_name(debian: Debian, job: NewJob) -> None:
    debian.repository["multi:i386"] = ["1.0"]
    apt = Apt()
    names = ("tool", "tool:amd64", "multi", "multi:i386")
    apt.installed(job(debian, *names), "tool")
    results = [apt.candidate(job(debian, *names), name) for name in names]
    assert results == ["2.0-1", "2.0-1", None, "1.0"]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (Completed(2, None, False, "", "dpkg-query: error: failed to open package info file\n", 0.1),
         "dpkg-query: exit code 2; it printed:\ndpkg-query: error: failed to open package info file"),
        (Completed(None, 9, False, "", "", 0.1), "dpkg-query: ended by signal SIGKILL"),
        (Completed(0, None, False, "", "", 0.1),
         "dpkg-query does not list dpkg, whose architecture is this machine's"),
        (Completed(0, None, False, "tool 1.0\n", "", 0.1), "dpkg-query printed 'tool 1.0', expected six fields"),
    ],
)  # fmt: skip
def test_a_database_that_cannot_be_read_is_not_an_empty_one(
    debian: Debian, job: NewJob, monkeypatch: pytest.MonkeyPatch, answer: Completed, sentence: str
) -> None:
    monkeypatch.setattr(debian, "query", lambda command: answer)
    with pytest.raises(ResourceError) as failure:
        Apt().installed(job(debian, "tool"), "tool")
    assert str(failure.value) == sentence


def test_the_answer_is_kept_whole(debian: Debian, job: NewJob) -> None:
    """The list of packages may exceed the default limit of output."""
    limits: list[int] = []
    plain = debian.query

    def query(command: Any) -> Completed:
        limits.append(command.output_limit)
        return plain(command)

    debian.query = query  # type: ignore[method-assign]  # records the limit of output
    Apt().installed(job(debian, "tool"), "tool")
    assert limits[0] >= 16 * 1024 * 1024
