"""What every released version has written is read, or refused in words; what none has written yet is refused, too."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from puller.version import __version__
from tests.puller.states.make import CASES, pack, unpack

if TYPE_CHECKING:
    from tests.support.stories import Host

STATES = sorted(CASES.glob("*.tar.gz"))
OF_THIS_VERSION = STATES[-1]


def given(host: Host, state: Path) -> Host:
    """The host with this state, whose reports go to a directory."""
    shutil.rmtree(host.state, ignore_errors=True)
    directory = host.configuration.parent
    unpack(state, directory)
    reports = directory / "reports"
    reports.mkdir()
    host.configure(reports={"to": [str(reports)]})
    (spool,) = (host.state / "spool").iterdir()
    spool.rename(spool.with_name(hashlib.sha256(str(reports).encode()).hexdigest()[:16]))
    return host


def test_there_are_states() -> None:
    assert STATES


@pytest.mark.parametrize("state", STATES, ids=[path.name for path in STATES])
def test_a_state_is_read_in_full(host: Host, state: Path) -> None:
    given(host, state)
    before = host.status()
    assert before["last_run"]["exit_status"] == 6
    assert before["bundles"][0]["enforced"] == "1.1.0"

    (host.machine / "reloadable").touch()
    outcome = host.run("--offline")
    assert (outcome.status, host.report().get("problems", [])) == (0, []), outcome.output
    assert host.states()["exec#reload"] == "refreshed", "what was pending"
    assert not list(host.state.rglob("*.unreadable*"))
    assert "1.2.0" in host.puller("quarantine", "list").output
    assert host.report()["last_good"] != before["last_run"]["finished"]
    assert len(list((host.configuration.parent / "reports").rglob("*.json.gz"))) == 6, "five had waited"

    assert host.run("--offline").status == 0
    assert set(host.states().values()) == {"stable"}
    status, output = host.puller("explain", f"file#{host.machine}/motd")
    assert (status, "1.1.0" in output) == (0, True), output


def read(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def write(path: Path, document: Any) -> None:
    data = json.dumps(document).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


# What was verified has versions of its own (TUF's), and bundles are compared with their SHA-256 before they are read.
_VERIFIED = ("trust", "bundles")

REFUSALS = {
    "journal.json": "set aside as .* trials of bundles start again",
    "managed.json": "set aside as .* count as foreign and are never removed",
    "owed.json": "set aside as .* its pending refreshes are lost",
    "pins.json": "pins.json: has format 2",
    "quarantine.json": "quarantine.json: has format 2",
    "last-run.json": "is not a report .*. The next run replaces it",
}
"""What is said of each document that a run reads, when it is of a later format."""
PASSED_ON = {"spool", "runs"}
"""What waits to be sent is not opened; older reports are for people."""


def versioned(host: Host) -> dict[str, list[Path]]:
    """Every document that Puller itself has written, by its name, or that of the directory at the top."""
    result: dict[str, list[Path]] = {}
    for path in sorted(host.state.rglob("*.json*")):
        top = path.relative_to(host.state).parts[0]
        if top not in _VERIFIED:
            result.setdefault(top, []).append(path)
    return result


def later(path: Path) -> None:
    """Make it a document of a format that no version has written yet."""
    document = read(path)
    write(path, {**document, "format": document["format"] + 1})


def test_every_document_of_a_state_says_its_format(host: Host) -> None:
    result = versioned(given(host, OF_THIS_VERSION))
    assert set(result) == {*REFUSALS, *PASSED_ON}
    assert {type(read(path)["format"]) for paths in result.values() for path in paths} == {int}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_later_format_is_refused_in_words_and_stops_nothing(host: Host, name: str) -> None:
    (path,) = versioned(given(host, OF_THIS_VERSION))[name]
    number = read(path)["format"] + 1
    later(path)
    (host.machine / "reloadable").touch()
    outcomes = [
        host.puller(*words)
        for words in (("status",), ("run", "--offline"), ("status",), ("quarantine", "list"))
    ]
    output = "\n".join(outcome.output for outcome in outcomes)
    assert "Traceback" not in output
    assert "a bug in Puller" not in output
    assert re.search(
        f"{path}: .*has format {number}, which Puller {re.escape(__version__)} cannot read", output
    )
    assert re.search(REFUSALS[name], output)
    assert (host.machine / "motd").read_text() == "Hello from 1.1.0\n", "what can be gone on with is enforced"


def test_opaque_state_may_have_any_format(host: Host) -> None:
    result = versioned(given(host, OF_THIS_VERSION))
    for path in (path for top in PASSED_ON for path in result[top]):
        later(path)
    for words in (
        ("status",),
        ("run", "--offline"),
        ("explain", f"file#{host.machine}/motd"),
        ("status", "--check"),
    ):
        outcome = host.puller(*words)
        assert "Traceback" not in outcome.output
        assert "a bug in Puller" not in outcome.output
    sent = [read(path)["format"] for path in (host.configuration.parent / "reports").rglob("*.json.gz")]
    assert sorted(sent) == [3, 4, 4, 4, 4, 4]


def test_packing_a_state_and_unpacking_it_gives_the_same(host: Host, tmp_path: Path) -> None:
    given(host, OF_THIS_VERSION)
    shutil.rmtree(host.configuration.parent / "reports")
    (spool,) = (host.state / "spool").iterdir()
    with_its_name = next(path for path in names(OF_THIS_VERSION) if path.parent.name == "spool")
    spool.rename(spool.with_name(with_its_name.name))
    pack(host.configuration.parent, tmp_path / "again.tar.gz")
    assert names(tmp_path / "again.tar.gz") == names(OF_THIS_VERSION)


def names(state: Path) -> list[Path]:
    with tarfile.open(state) as archive:
        return [Path(name) for name in archive.getnames()]
