"""The cron resource: every state of its file with every declaration, and the file's content."""

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError, MutationInNoop, ResourceError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.reporting.report import Event
from puller.resources.base import PropertyError, Resource
from puller.resources.services import cron
from puller.resources.services.cron import Cron
from puller.system.local import LocalSystem
from puller.system.protocol import Attributes

Make = Callable[..., Resource[Any, Any]]
Converge = Callable[[Resource[Any, Any]], list[str]]

JOB = {"name": "backup", "schedule": "30 4 * * *", "command": "/usr/local/bin/backup --all"}
HEADER = "# Puller writes this file: what is changed here is lost.\n"
TEXT = f"{HEADER}30 4 * * * root /usr/local/bin/backup --all\n"
ABSENT = {"name": "backup", "ensure": "absent"}
WRITTEN, REMOVED = "Would have written the cron job", "Would have removed the cron job"


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the job. The test's user owns all files, and a cron is installed."""
    directory = tmp_path / "cron.d"
    directory.mkdir()
    monkeypatch.setattr(cron, "DIRECTORY", str(directory))
    monkeypatch.setattr(cron, "ATTRIBUTES", Attributes(os.geteuid(), os.getegid(), 0o644))
    monkeypatch.setattr(cron, "_DAEMONS", (str(tmp_path),))
    return directory / "backup"


def write(path: Path, text: str = TEXT, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)


def with_other_name(path: Path) -> None:
    write(path)
    os.link(path, path.parent.with_name("other name"))


def to_elsewhere(path: Path) -> None:
    write(path.parent.with_name("precious"), TEXT)
    path.symlink_to("../precious")


def make_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o755)  # bind() rejects paths as long as tests use.


def make_full(path: Path) -> None:
    path.mkdir()
    (path / "precious").write_text("x")


FOUND: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "nothing, and no directory": lambda path: path.parent.rmdir(),
    "the same": write,
    "another schedule": lambda path: write(path, TEXT.replace("30 4", "31 4")),
    "a file of somebody else": lambda path: write(path, "@daily root reboot\n"),
    "without a newline at its end": lambda path: write(path, TEXT.rstrip("\n")),
    "writable for all": lambda path: write(path, mode=0o666),
    "with another name": with_other_name,
    "a link to the same": to_elsewhere,
    "a FIFO": lambda path: os.mkfifo(path),
    "a socket": make_socket,
    "an empty directory": lambda path: path.mkdir(),
    "a directory": make_full,
}


def said(found: str, wanted: Mapping[str, Any]) -> str:
    """Return the dry run's message, an empty text if in sync, or the reason of a rejection."""
    if found in ("an empty directory", "a directory"):
        return "is a directory, and only a file is replaced or removed"
    if wanted is ABSENT:
        return "" if found.startswith("nothing") else REMOVED
    return "" if found == "the same" else WRITTEN


EVERY_PAIR = [
    pytest.param(
        found, wanted, said(found, wanted), id=f"{found}, expected {wanted.get('ensure', 'present')}"
    )
    for found in FOUND
    for wanted in (JOB, ABSENT)
]


def picture(path: Path) -> tuple[Any, ...]:
    if not os.path.lexists(path):
        return ()
    status = path.lstat()
    return status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns


@pytest.mark.parametrize(("found", "wanted", "expected"), EVERY_PAIR)
def test_every_state_converges_in_a_run_or_is_refused(
    make: Make, converge: Converge, path: Path, found: str, wanted: dict[str, Any], expected: str
) -> None:
    FOUND[found](path)
    before = picture(path)
    if expected not in ("", WRITTEN, REMOVED):
        with pytest.raises(ResourceError, match=expected):
            converge(make(Cron, wanted))
        assert picture(path) == before
        return
    assert bool(converge(make(Cron, wanted))) is bool(expected)
    if wanted is ABSENT:
        assert not os.path.lexists(path)
    else:
        assert (path.read_text(), path.lstat().st_mode, path.lstat().st_nlink) == (TEXT, 0o100644, 1)
        assert path.parent.stat().st_mode & 0o777 == 0o755
    after = picture(path)
    assert bool(expected) is (before != after), "also where only the mode differs: cron looks at times"
    assert converge(make(Cron, wanted)) == []
    assert picture(path) == after, "the second run changes nothing"
    assert not list(path.parent.parent.glob("**/.*")), "nothing is left beside it"
    for precious in path.parent.parent.glob("precious"):
        assert precious.read_text() == TEXT


@pytest.mark.parametrize(("found", "wanted", "expected"), EVERY_PAIR)
def test_noop_predicts_the_run_and_changes_nothing(
    make: Make, path: Path, found: str, wanted: dict[str, Any], expected: str
) -> None:
    FOUND[found](path)
    before = picture(path)
    resource = make(Cron, wanted, noop=True)
    actual = resource.look()
    differences = resource.differences(actual)
    assert bool(differences) is bool(expected)
    if expected in (WRITTEN, REMOVED):
        with pytest.raises(MutationInNoop):
            resource.change(differences, actual)
        assert resource.noop_message(differences, actual) == expected
        assert resource.context.system.exists(str(path)) is (wanted is JOB), "and what comes later knows it"
    elif expected:
        with pytest.raises(ResourceError, match=expected):
            resource.noop_message(differences, actual)
    assert picture(path) == before


def test_idle_run_starts_no_process_and_writes_nothing(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path)
    resource = make(Cron, JOB)
    for forbidden in ("query", "execute", "replace_file", "set_attributes", "remove"):
        monkeypatch.setattr(resource.context.system, forbidden, None)
    assert resource.differences(resource.look()) == []
    assert resource.notes == []


# The content of the file


@pytest.mark.parametrize(
    ("properties", "lines"),
    [
        ({"schedule": " @daily "}, ["@daily root /usr/local/bin/backup --all"]),
        ({"user": "daemon"}, ["30 4 * * * daemon /usr/local/bin/backup --all"]),
        ({"command": "date +%F"}, [r"30 4 * * * root date +\%F"]),
        ({"command": r"date +\%F"}, [r"30 4 * * * root date +\%F"]),
        ({"command": r"printf '\t%s%%\n'"}, [r"30 4 * * * root printf '\t\%s\%\%\n'"]),
        ({"command": "  a  b "}, ["30 4 * * * root a  b"]),
        (
            {"environment": {"PATH": "/usr/bin:/bin", "MAILTO": "", "B": " a ", "C": "a 'b' \"c\""}},
            [
                "PATH=/usr/bin:/bin",
                'MAILTO=""',
                'B=" a "',
                "C=a 'b' \"c\"",
                "30 4 * * * root /usr/local/bin/backup --all",
            ],
        ),
        (
            {"environment": {"A": '"a" b', "B": "'b", "C": "x" * 997}},
            ["A='\"a\" b'", 'B="\'b"', f"C={'x' * 997}", "30 4 * * * root /usr/local/bin/backup --all"],
        ),
    ],
)
def test_written_file_has_the_documented_form(
    make: Make, converge: Converge, path: Path, properties: dict[str, Any], lines: list[str]
) -> None:
    converge(make(Cron, {**JOB, **properties}))
    assert path.read_text() == HEADER + "".join(f"{line}\n" for line in lines)


@pytest.mark.attack("secrets.sensitive")
def test_changes_are_shown_unless_sensitive(make: Make, path: Path) -> None:
    write(path, TEXT.replace("30 4", "31 4"))
    resource = make(Cron, JOB)
    shown = resource.diff(resource.look())
    assert shown
    assert "-31 4 * * * root" in shown
    assert "+30 4 * * * root" in shown
    resource = make(Cron, {**JOB, "sensitive": True})
    assert resource.diff(resource.look()) is None
    resource = make(Cron, ABSENT)
    assert "-31 4 * * * root" in (resource.diff(resource.look()) or "")


# The user of a job, and whether it runs


def test_unknown_user_is_a_failure_even_of_a_matching_file(
    make: Make, converge: Converge, path: Path
) -> None:
    """cron skips such a job, so a matching file is not enough."""
    write(path, TEXT.replace(" root ", " nobody-at-all "))
    for noop in (False, True):
        with pytest.raises(ResourceError, match="user is 'nobody-at-all', an unknown user"):
            make(Cron, {**JOB, "user": "nobody-at-all"}, noop=noop).look()
    assert converge(make(Cron, ABSENT)) == ["ensure present → absent"]


@pytest.mark.parametrize("how", ["by a resource that is predicted", "by a command"])
def test_in_noop_a_user_that_the_run_would_make_is_not_missed(make: Make, how: str) -> None:
    dry = make(Cron, {**JOB, "user": "app"}, noop=True, uncertain=how == "by a command")
    if how != "by a command":
        system: Any = dry.context.system
        system.user_id = lambda name: 1001 if name == "app" else None
    actual = dry.look()
    assert dry.noop_message(dry.differences(actual), actual) == WRITTEN


def test_a_machine_without_a_cron_gets_the_file_and_a_note(
    make: Make, converge: Converge, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cron, "_DAEMONS", ("/no/such/cron",))
    path.parent.rmdir()
    resource = make(Cron, JOB)
    converge(resource)
    assert path.read_text() == TEXT
    assert resource.notes == ["no cron is installed here, so nothing runs it"]
    assert make(Cron, JOB, noop=True, uncertain=True).notes == [], "an earlier resource may bring it"
    assert make(Cron, ABSENT).notes == ()


def test_two_days_of_which_either_is_enough_are_noted(make: Make) -> None:
    note = "both a day of the month and a day of the week are given: it runs on both kinds of days"
    assert make(Cron, {**JOB, "schedule": "0 0 1 * mon"}).notes == [note]
    assert make(Cron, {**JOB, "schedule": "0 0 * * mon"}).notes == []


# In runs


def apply(directory: Path, resources: list[Any], system: LocalSystem | None = None) -> list[Event]:
    file = directory / "manifest.yaml"
    file.write_text(yaml.safe_dump({"resources": resources}))
    manifest = load_manifest(file, "manifest.yaml", Inputs({}, {}))
    pending = PendingRefreshes(None, "test")
    return Engine(manifest, system or LocalSystem(), lambda url: b"", pending, Settings()).apply()


def test_versions_follow_each_other_there_and_back(tmp_path: Path, path: Path) -> None:
    def job(schedule: str) -> list[Any]:
        return [{"cron": [{"backup": {"schedule": schedule, "command": "true"}}]}]

    for schedule, states in (("@daily", ["changed"]), ("@hourly", ["changed"]), ("@daily", ["changed"])):
        assert [event.state for event in apply(tmp_path, job(schedule))] == states
        assert [event.state for event in apply(tmp_path, job(schedule))] == ["stable"]
        assert path.read_text() == f"{HEADER}{schedule} root true\n"


class Killed(BaseException):
    """Raised where a test simulates a kill."""


class KilledSystem(LocalSystem):
    """The real system, killed before or after change number ``at``."""

    def __init__(self, at: int, *, before: bool) -> None:
        super().__init__()
        self.at, self.before = at, before

    def _at(self, change: Callable[[], None]) -> None:
        self.at -= 1
        if self.at == 0 and self.before:
            raise Killed
        change()
        if self.at == 0:
            raise Killed

    def make_directory(self, *arguments: Any, **named: Any) -> None:
        self._at(lambda: LocalSystem.make_directory(self, *arguments, **named))

    def replace_file(self, path: str, chunks: Iterable[bytes], *arguments: Any, **named: Any) -> None:
        self._at(lambda: LocalSystem.replace_file(self, path, chunks, *arguments, **named))


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("at", [1, 2])
def test_run_after_a_kill_converges(tmp_path: Path, path: Path, at: int, before: bool) -> None:
    path.parent.rmdir()
    resources = [{"cron": [{"backup": {k: JOB[k] for k in ("schedule", "command")}}]}]
    with pytest.raises(Killed):
        apply(tmp_path, resources, KilledSystem(at, before=before))
    assert not path.exists() or path.read_text() == TEXT, "never half of it"
    apply(tmp_path, resources)
    assert path.read_text() == TEXT
    assert [event.state for event in apply(tmp_path, resources)] == ["stable"]


def test_a_file_in_its_place_is_found_when_the_manifest_is_read(tmp_path: Path, path: Path) -> None:
    file = {"content": "x", "owner": "root", "group": "root", "mode": "0644"}
    job = {"schedule": "@daily", "command": "true"}
    with pytest.raises(ManifestError, match=r"writes the whole file: cron#backup at "):
        apply(tmp_path, [{"cron": [{"backup": job}]}, {"file": [{str(path): file}]}])
    gone = [{"cron": [{"backup": {"ensure": "absent"}}]}, {"file": [{str(path): {"ensure": "absent"}}]}]
    assert [event.state for event in apply(tmp_path, gone)] == ["stable", "stable"]


def test_job_is_a_file_that_its_name_removes(make: Make, path: Path) -> None:
    resource = make(Cron, ABSENT)
    assert list(resource.changed_paths(resource.look()) or ()) == [str(path)]
    assert list(Cron.places(resource.properties)) == [str(path)]
    assert Cron.removable
    write(path)
    assert resource.describe(resource.look())["mode"] == "0644"


# Errors at load


@pytest.mark.attack("data-names.cron")
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ensure": "running"}, "ensure is 'running', expected present or absent"),
        (
            {"name": "my.job"},
            "name is 'my.job', expected at most 200 letters, digits, _ and -, as cron ignores",
        ),
        ({"name": "-x"}, "name is '-x', expected .*; the first must not be -"),
        ({"name": ""}, "name is '', expected"),
        ({"name": "a/b"}, "name is 'a/b', expected"),
        ({"name": "../cron"}, "name is '../cron', expected"),
        ({"name": "a\n"}, r"name is 'a\\n', expected"),
        ({"name": "a" * 201}, "expected at most 200"),
        ({"schedule": ""}, "schedule is missing; it is required unless ensure is absent"),
        ({"schedule": "61 * * * *"}, "schedule has '61' as its minute, expected 0 to 59"),
        ({"command": " "}, "command is missing; it is required unless ensure is absent"),
        ({"command": "a\nb"}, r"command is 'a\\nb', expected one line; a script may have more"),
        ({"command": "a\0b"}, "expected one line"),
        ({"command": r"printf '\\%s'"}, "which has two backslashes in a row, which crons read differently"),
        ({"command": "a\rb"}, "expected one line"),
        ({"command": "%" * 500}, "command has more than 999 bytes, and cron cuts off the rest"),
        ({"user": ""}, "user is '', expected the name of a user"),
        ({"user": "-u"}, "user is '-u', expected the name of a user"),
        ({"user": "a b"}, "user is 'a b', expected"),
        ({"user": "a:b"}, "user is 'a:b', expected"),
        ({"user": "1000"}, "user is '1000', expected the name of a user"),
        ({"environment": {"1A": "b"}}, "environment has '1A', expected the name of a variable"),
        ({"environment": {"-A": "b"}}, "environment has '-A', expected the name of a variable"),
        ({"environment": {"A\nB": "b"}}, "expected the name of a variable"),
        ({"environment": {"A": "a\nb"}}, r"environment has A with 'a\\nb', expected one line"),
        (
            {"environment": {"A": " ' \" "}},
            "which cron cannot quote: expected only one kind of quotes",
        ),
        ({"environment": {"A": '"a"'}}, "which begins and ends with quotes, and crons read that differently"),
        ({"environment": {"A": "'a b' "}}, "which begins and ends with quotes"),
        ({"environment": {"A": "x" * 998}}, "environment has A with more than 999 bytes"),
    ],
)
def test_properties_that_make_no_sense_are_refused_at_load(
    make: Make, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        make(Cron, {**JOB, **properties})
