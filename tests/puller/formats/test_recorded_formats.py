"""Every later version reads the files that released versions have written, and keeps the names that they promised."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from puller.version import __version__
from tests.puller.formats.record_formats import (
    CASES,
    HOSTS,
    PASSPHRASE,
    SAMPLE,
    SEALED,
    TOKEN,
    interface,
    on_host,
    puller,
    source,
    unpack,
)
from tests.support.stories import execute_here

# A plain run reads the files of the oldest version.
pytestmark = pytest.mark.representatives(1)

RECORDS = sorted(CASES.glob("*.tar.xz"), key=lambda path: [int(part) for part in path.name[:-7].split(".")])


@pytest.fixture(params=RECORDS, ids=[path.name.removesuffix(".tar.xz") for path in RECORDS])
def record(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return the directory of a version, unpacked."""
    # A short path: receipts of long paths have other names.
    root = tmp_path_factory.mktemp("r")
    unpack(request.param, root)
    (root / "record-version").write_text(request.param.name.removesuffix(".tar.xz"))
    monkeypatch.setenv("PULLER_PASSPHRASE", PASSPHRASE)
    return root


def record_version(root: Path) -> str:
    return (root / "record-version").read_text()


def contents(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return mode, modification time and content of everything in a directory."""
    result = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        data = (
            os.fsencode(os.readlink(path))
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else b""
        )
        changed = status.st_mtime_ns if stat.S_ISREG(status.st_mode) else 0
        result[str(path.relative_to(directory))] = (status.st_mode, changed, data)
    return result


def report(root: Path, host: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((root / host / "state/last-run.json").read_bytes())
    return result


def enforced(root: Path, host: str) -> str:
    status = json.loads(on_host(root, host, "status", "--format", "json"))
    version: str = status["bundles"][0]["enforced"]
    return version


def test_this_version_has_a_record() -> None:
    assert CASES / f"{__version__}.tar.xz" in RECORDS, "python -m tests.puller.formats.record_formats"


def test_record_was_written_by_its_version(record: Path, request: pytest.FixtureRequest) -> None:
    version = request.node.callspec.params["record"].name.removesuffix(".tar.xz")
    assert [report(record, host)["puller"] for host in HOSTS] == [version] * len(HOSTS)


def test_host_in_sync_changes_nothing(record: Path) -> None:
    before = [contents(record / "settled" / name) for name in ("machine", "edited")]
    for _ in range(2):
        on_host(record, "settled", "run")
        result = report(record, "settled")
        assert (result["exit_status"], result.get("problems", [])) == (0, [])
        assert [bundle["summary"].get("changed", 0) for bundle in result["bundles"]] == [0]
        assert [contents(record / "settled" / name) for name in ("machine", "edited")] == before
    assert enforced(record, "settled") == "1.2.0"
    assert "1.1.0" in on_host(record, "settled", "quarantine", "list")
    assert not list(record.rglob("*.unreadable*"))
    assert "1.1.0" in on_host(record, "settled", "history")
    machine = record / "settled/machine"
    for name in ("motd", "tree", "scaffold", "app.tar.gz"):
        kind = {"scaffold": "scaffold", "app.tar.gz": "archive"}.get(name, "file")
        assert "1.2.0" in on_host(record, "settled", "explain", f"{kind}#{machine}/{name}")


def test_receipts_still_lead_to_the_removal_of_leftovers(record: Path) -> None:
    assert (record / "settled/machine/only-1.2.0").exists()
    text = "resources: []\n"
    manifest = source(record, "2.0.0") / "manifest.yaml"
    head = manifest.read_text().partition("\nresources:")[0]
    manifest.write_text(f"{head}\n{text}")
    puller("site", "publish", record / "publisher/site", manifest.parent, "--version", "2.0.0")
    on_host(record, "settled", "run")
    assert not (record / "settled/machine/only-1.2.0").exists()


def test_trial_that_has_begun_can_end(record: Path) -> None:
    before = contents(record / "trial/machine")
    on_host(record, "trial", "run")
    assert contents(record / "trial/machine") == before
    assert enforced(record, "trial") == "1.2.0"
    assert not report(record, "trial").get("problems", [])


def test_trial_that_has_begun_can_be_rolled_back(record: Path) -> None:
    on_host(record, "trial", "rollback", "web")
    assert (record / "trial/machine/motd").read_text() == "Good day from 1.0.0\n"
    assert not (record / "trial/machine/only-1.2.0").exists()
    assert enforced(record, "trial") == "1.0.0"


def test_disabled_and_pinned_host_stays_so_until_released(record: Path) -> None:
    before = contents(record / "disabled/machine")
    on_host(record, "disabled", "run", status=20)
    assert contents(record / "disabled/machine") == before
    assert "a disk is replaced" in on_host(record, "disabled", "status")
    on_host(record, "disabled", "enable")
    on_host(record, "disabled", "run")
    assert enforced(record, "disabled") == "1.0.0"
    on_host(record, "disabled", "unpin", "web")
    on_host(record, "disabled", "run")
    assert enforced(record, "disabled") == "1.2.0"


def test_publisher_continues_with_the_site(record: Path) -> None:
    site = record / "publisher/site"
    puller("site", "verify", site)
    assert "1.1.0" in puller("site", "history", site, "web")
    puller(
        "site", "publish", site, record / "publisher/sources/1.2.0/web", "--version", "1.2.0"
    )  # the same bytes
    puller("site", "publish", site, source(record, "1.3.0"), "--version", "1.3.0")
    puller("site", "push", site, record / "copy")
    puller("site", "mirror", site / "public", record / "mirror")
    for place in ("publisher/site/public", "copy", "mirror/public"):
        config = record / "settled/config.yaml"
        config.write_text(config.read_text().replace("publisher/site/public", place, 1))
        on_host(record, "settled", "run")
        assert enforced(record, "settled") == "1.3.0"


def test_bundle_passes_its_checks(record: Path) -> None:
    web = record / "publisher/sources/1.2.0/web"
    puller("test", web)
    puller("lint", web)
    assert (record / "downloads/app.tar.gz").read_bytes() == SAMPLE


def test_reports_and_store_are_read(record: Path) -> None:
    with closing(sqlite3.connect(record / "fleet.db")) as database:
        database.executescript((record / "fleet.sql").read_text())
    (record / "fleet.db").chmod(0o600)
    for store in ("fleet.db", "new.db"):
        puller("fleet", "import", record / "reports", "--store", record / store)
        output = json.loads(puller("fleet", "status", "--store", record / store, "--format", "json"))
        assert output["hosts"] == len(HOSTS)


def test_encrypted_files_are_read_and_stay(record: Path) -> None:
    if not (record / "settled/age.txt").exists():
        assert record_version(record) == "0.1.0"  # without encrypted files
        return
    machine = record / "settled/machine"
    for name, secret in (("token", TOKEN), ("sealed", SEALED)):
        (machine / name).unlink()
        output = on_host(record, "settled", "run")
        assert (machine / name).read_text() == f"{secret}\n"
        assert secret not in output
    assert report(record, "settled")["exit_status"] == 0
    path, key = record / "publisher/secrets.yaml", ("--identity", str(record / "publisher/age.txt"))
    assert TOKEN in puller("secrets", "decrypt", path, *key)
    before = path.read_bytes()
    assert puller("secrets", "rekey", path, *key) == "1 file unchanged\n"
    assert path.read_bytes() == before
    recipients = puller("secrets", "recipients", path)
    readers = {line.strip() for line in recipients.splitlines()[1:]}
    assert readers == {"alice", *(f"{name}.example.com" for name in HOSTS)}


def test_waiting_reports_are_sent_unchanged(record: Path) -> None:
    waiting = {path.name: path.read_bytes() for path in record.glob("settled/state/spool/*/*.json.gz")}
    if not waiting:
        assert record_version(record) == "0.1.0"
        return
    (record / "received").mkdir()
    (record / "received/spooled").mkdir()
    (spool,) = {path.parent for path in record.glob("settled/state/spool/*/*.json.gz")}
    on_host(record, "settled", "run")
    assert {name: (spool / name).read_bytes() for name in waiting} == waiting
    place = record / "received/settled.example.com"
    place.mkdir()
    for name, data in waiting.items():
        (place / name).write_bytes(data)
    puller("fleet", "import", record / "received", "--store", record / "received.db")
    shown = puller("fleet", "recipients", "--store", record / "received.db", "--format", "json")
    assert json.loads(shown)["settled.example.com"]["recipient"].startswith("age1")


DOCUMENTS = (
    "settled/state/journal.json",
    "settled/state/managed.json",
    "settled/state/quarantine.json",
    "settled/state/exports.json",
    "settled/state/owed.json",
    "settled/state/commands.json",
    "settled/state/last-run.json",
    "settled/state/archives/*.place.json",
    "settled/state/edits/*.json",
    "settled/state/scaffolds/*.json",
    "settled/state/trees/*.json",
    "settled/state/data/*.json",
    "settled/run/status.json",
    "trial/state/journal.json",
    "disabled/state/disabled.json",
    "disabled/state/pins.json",
)
LACKING = {"0.1.0": {"settled/state/commands.json"}}
"""Documents that later versions introduced, by the record without them."""


@pytest.mark.representatives(4)
@pytest.mark.parametrize("damage", ["truncated", "later"])
@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.sample(20)
def test_damaged_or_later_file_is_reported_or_replaced(record: Path, name: str, damage: str) -> None:
    paths = list(record.glob(name))
    if name in LACKING.get(report(record, "settled")["puller"], ()):
        assert not paths
        return
    (path,) = paths
    data = path.read_bytes()
    if damage == "later":
        document = json.loads(data)
        data = json.dumps({**document, "format": document["format"] + 1}).encode()
    else:
        data = data[: len(data) // 2]
    path.write_bytes(data)
    host = name.partition("/")[0]
    if path.parent.name in ("edits", "scaffolds", "trees"):  # read only for a change
        (record / "settled/edited/list").write_text("first\n")
        (record / "settled/machine/tree/two").unlink()
        (record / "settled/machine/scaffold/conf/tool.conf").unlink()
    config = str(record / host / "config.yaml")
    motd = (record / host / "machine/motd").read_bytes()
    outputs = [execute_here(command, "--config", config) for command in ("status", "run", "status")]
    text = "\n".join(output for _, output in outputs)
    assert "Traceback" not in text
    assert "a bug in Puller" not in text
    assert 1 not in {status for status, _ in outputs}
    assert (record / host / "machine/motd").read_bytes() == motd
    assert str(path) in text or not path.exists() or path.read_bytes() != data


def test_promised_names_still_exist(record: Path) -> None:
    recorded, current = (
        json.loads((record / "interface.json").read_text()),
        json.loads(json.dumps(interface())),
    )
    for kind in ("commands", "resource types"):
        for name, parts in recorded[kind].items():
            assert name in current[kind], f"{kind}: {name} is missing"
            assert set(parts) <= set(current[kind][name]), f"{kind}: {name}"
    assert recorded["exit statuses"].items() <= current["exit statuses"].items()
    assert set(recorded["problem codes"]) <= set(current["problem codes"])
