"""dnf and rpm: commands, parsed output, and reactions to problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from puller.errors import ResourceError
from puller.resources.packages.dnf import Dnf, parse_locks, parse_records, parse_updates
from puller.resources.packages.manager import Installed, Job, Record, RequestedPackage
from puller.system.commands import Completed
from tests.simulators import packages as simulator

if TYPE_CHECKING:
    from tests.simulators.packages import Fedora

NewJob = Callable[..., Job]


@pytest.fixture
def fedora() -> Fedora:
    """Return a Fedora that offers ``tool`` in two versions, and in one with another epoch."""
    versions = ["1.0-1.el9", "2.0-1.el9", "1:1.5-1.el9"]
    machine: Fedora = simulator.Fedora(repository=[simulator.Rpm("tool", version) for version in versions])
    return machine


def test_a_package_is_installed_by_its_name(fedora: Fedora, job: NewJob) -> None:
    Dnf().install(job(fedora), [RequestedPackage("tool")], downgrades=False)
    assert fedora.changed == [["dnf", "install", "-y", "--", "tool"]]
    assert fedora.versions("tool") == ["1:1.5-1.el9"]


def test_a_version_is_named_with_its_epoch(fedora: Fedora, job: NewJob) -> None:
    """The reference ignored epochs."""
    dnf = Dnf()
    for requested, specification in [("2.0", "tool-0:2.0-1.el9"), ("1.5-1.el9", "tool-1:1.5-1.el9")]:
        version = dnf.find_version(job(fedora, "tool"), "tool", requested)
        dnf.install(job(fedora, "tool"), [RequestedPackage("tool", version)], downgrades=True)
        assert fedora.changed[-1] == ["dnf", "install", "-y", "--", specification]
        assert fedora.versions("tool") == [version]


def test_a_package_is_removed_with_all_its_versions(fedora: Fedora, job: NewJob) -> None:
    fedora.packages = [simulator.Rpm("tool", "1.0-1.el9"), simulator.Rpm("tool", "2.0-1.el9")]
    Dnf().remove(job(fedora), ["tool"])
    assert fedora.changed == [["dnf", "remove", "-y", "--", "tool"]]
    assert fedora.versions("tool") == []


def test_old_dnf_is_called_without_end_of_options(fedora: Fedora, job: NewJob) -> None:
    """dnf 5 before 5.4.3 rejects ``--``. After the first error, Puller omits it for the whole run."""
    fedora.generation = 5
    fedora.packages = [simulator.Rpm("tool", "2.0-1.el9")]
    dnf = Dnf()
    assert dnf.candidate(job(fedora, "tool"), "tool") == "1:1.5-1.el9"
    assert set(dnf.available(job(fedora, "tool"), "tool")) == {"1.0-1.el9", "2.0-1.el9", "1:1.5-1.el9"}
    dnf.install(job(fedora), [RequestedPackage("tool")], downgrades=False)
    assert [command for command in [*fedora.looked, *fedora.changed] if "--" in command] == [fedora.looked[0]]
    assert fedora.changed == [["dnf", "install", "-y", "tool"]]


def test_metadata_is_fetched_when_a_package_is_not_in_it(fedora: Fedora, job: NewJob, log: list[str]) -> None:
    fedora.repository, fedora.published = [], fedora.repository
    Dnf().install(job(fedora), [RequestedPackage("tool")], downgrades=False)
    assert [command[-1] for command in fedora.changed] == ["--refresh", "tool"]
    assert log == ["dnf: fetching the metadata of the repositories anew"]


def test_unavailable_version_is_refused_with_alternatives(fedora: Fedora, job: NewJob) -> None:
    with pytest.raises(ResourceError) as failure:
        Dnf().find_version(job(fedora, "tool"), "tool", "3.0")
    there_is = "1.0-1.el9, 2.0-1.el9, 1:1.5-1.el9"
    assert str(failure.value) == f"version 3.0 is not available (available: {there_is})"
    assert fedora.changed == [["dnf", "-q", "makecache", "--refresh"]]


def test_a_failure_shows_the_end_of_stderr(fedora: Fedora, job: NewJob) -> None:
    fedora.fails = {"tool"}
    with pytest.raises(ResourceError) as failure:
        Dnf().install(job(fedora), [RequestedPackage("tool")], downgrades=False)
    assert str(failure.value) == "dnf install tool: exit code 1; it printed:\nError: Transaction failed: tool"


# Queries


def test_noop_downloads_nothing(fedora: Fedora, job: NewJob) -> None:
    Dnf().candidate(job(fedora, "tool", noop=True), "tool")
    assert "--cacheonly" in fedora.looked[0]
    fedora.is_cached = False
    with pytest.raises(
        ResourceError, match="dnf check-update: exit code 1; it printed:\nError: Cache-only enabled"
    ):
        Dnf().candidate(job(fedora, "tool", noop=True), "tool")


def test_name_ambiguous_for_rpm_is_no_package(fedora: Fedora, job: NewJob) -> None:
    fedora.packages = [simulator.Rpm("tool", "1.0-1.el9")]
    dnf = Dnf()
    assert dnf.installed(job(fedora, "tool", "tool-1.0"), "tool-1.0") == ()
    assert dnf.installed(job(fedora, "tool", "tool-1.0"), "tool") == (Installed("1.0-1.el9", "x86_64"),)


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (Completed(1, None, False, "package tool is not installed\n", "error: cannot open Packages database\n", 0.1),
         "rpm -q: exit code 1; it printed:\nerror: cannot open Packages database"),
        (Completed(1, None, False, "", "", 0.1), "rpm -q: exit code 1"),
        (Completed(0, None, False, "package tool is not installed\n", "", 0.1),
         "rpm -q: exit code 0; it printed:\npackage tool is not installed"),
        (Completed(None, 11, False, "", "", 0.1), "rpm -q: ended by signal SIGSEGV"),
    ],
)  # fmt: skip
def test_a_database_that_cannot_be_read_is_not_an_empty_one(
    fedora: Fedora, job: NewJob, monkeypatch: pytest.MonkeyPatch, answer: Completed, end: str
) -> None:
    """If rpm cannot open its database, it reports every package as not installed."""
    monkeypatch.setattr(fedora, "query", lambda command: answer)
    with pytest.raises(ResourceError) as failure:
        Dnf().installed(job(fedora, "tool"), "tool")
    assert str(failure.value) == end


def test_records_are_read_and_an_epoch_of_zero_is_not_written() -> None:
    text = "tool\t0:1.0-1.el9\tx86_64\n\nkernel\t1:5-1\tx86_64\ntool\t0:1.0-1.el9\tx86_64\npackage x is not installed\n"
    records = [Record("tool", "1.0-1.el9", "x86_64"), Record("kernel", "1:5-1", "x86_64")]
    assert parse_records(text) == (records, ["package x is not installed"])


UPDATES = """
tool.noarch                            1:1.5-1.el9                      local
a-package-with-a-name-that-is-very-long-indeed.x86_64
                                       2:12.0.0-2.20240101git.el9_4     a-repository
python3.11.x86_64                      3.11.7-1.el9                     appstream
Security: kernel-core-5.14.0-427.el9.x86_64 is an installed security update
Obsoleting Packages
new.x86_64                             2.0-1.el9                        local
    old.x86_64                         1.0-1.el9                        @local
"""


def test_the_table_of_updates_is_read() -> None:
    assert parse_updates(UPDATES) == [
        Record("tool", "1:1.5-1.el9", "noarch"),
        Record("a-package-with-a-name-that-is-very-long-indeed", "2:12.0.0-2.20240101git.el9_4", "x86_64"),
        Record("python3.11", "3.11.7-1.el9", "x86_64"),
    ]


def test_nothing_newer_is_no_candidate(fedora: Fedora, job: NewJob) -> None:
    fedora.packages = [simulator.Rpm("tool", "1:1.5-1.el9")]
    assert Dnf().candidate(job(fedora, "tool"), "tool") is None


def test_the_locks_of_both_generations_are_read() -> None:
    fourth = "tool-0:1.0-1.el9.*\n!unwanted-0:2-1.*\nlib-x11-1:2.0~rc1-3.*\n"
    fifth = (
        "# Added by 'versionlock add' command on 2026-11-22\nPackage name: tool\nevr = 1.0-1.el9\n\n"
        "Package name: lib-x11\nevr = 1:2.0-3\n"
    )
    assert parse_locks(fourth) == parse_locks(fifth) == {"tool", "lib-x11"}


@pytest.mark.parametrize("text", ["", "\x1b[1mtool.x86_64\x1b[0m  2.0-1  local\n", "Aktualisierungen: 1\n"])
def test_updates_that_are_not_understood_are_an_error(
    fedora: Fedora, job: NewJob, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(fedora, "check_update", lambda names: Completed(100, None, False, text, "", 0.1))
    with pytest.raises(ResourceError, match="output of dnf check-update is not understood"):
        Dnf().candidate(job(fedora, "tool"), "tool")
