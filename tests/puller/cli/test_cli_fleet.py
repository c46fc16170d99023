"""``puller fleet``: import, status, facts and forget, as an operator uses them."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from foundation.extras import how_to_install
from puller.cli.fleet import reports
from puller.fleet.store.importer import Imported
from tests.simulators.fleet import deliver, names, now, sent
from tests.support.stories import Execute

_HOST = "web1.example.com"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").mkdir()
    return tmp_path / "reports"


def test_reports_are_imported_and_the_fleet_is_told(place: Path, execute: Execute) -> None:
    at = now() - timedelta(minutes=5)
    deliver(place, [sent(host, at) for host in names(3)])
    deliver(
        place, [sent(_HOST, at, failed={"service#web": "it is dead"}), sent("old", at - timedelta(days=1))]
    )
    status, output = execute("fleet", "import", "reports")
    assert status == 0, output
    assert "5 new reports" in output
    status, output = execute("fleet", "import", "reports")
    assert "0 new reports" in output
    assert "5 were imported before" in output
    status, output = execute("fleet", "status")
    assert status == 0, output
    assert "5 hosts: 1 failed, 1 silent, 3 in sync" in output
    assert "service#web: it is dead" in output
    status, output = execute("fleet", "status", "--format", "json")
    result = json.loads(output)
    assert (status, result["hosts"]) == (0, 5)
    assert result["states"] == {"failed": 1, "silent": 1, "in-order": 3}


def test_hosts_are_selected_by_their_facts(place: Path, execute: Execute) -> None:
    at = now() - timedelta(minutes=5)
    bookworm = {"os": {"name": "Debian", "release": {"major": "12"}}, "tags": ["a", "b"], "virtual": False}
    deliver(
        place,
        [
            sent(_HOST, at, failed={"file#/a": "no"}, facts=bookworm),
            sent("db1", at, facts=bookworm),
            sent("old", at - timedelta(days=1), facts={}),
        ],
    )
    execute("fleet", "import", "reports")

    def chosen(*options: str) -> list[str]:
        status, output = execute("fleet", "status", "--format", "json", *options)
        assert status == 0, output
        return [row["name"] if "name" in row else row["host"] for row in json.loads(output)]

    assert chosen("--failed") == [_HOST]
    assert chosen("--silent", "2h") == ["old"]
    assert chosen("--where", "os.release.major=12") == ["db1", _HOST]
    assert chosen("--where", "tags.1=b", "--where", "virtual=false", "--failed") == [_HOST]
    assert chosen("--where", "os.release.major=1") == []
    assert chosen("--failed", "--bundle", "other") == []
    assert "no host matches" in execute("fleet", "status", "--where", "a=b")[1]
    for wrong in (["--where", "os"], ["--where", ".a=1"], ["--silent", "soon"], ["--silent-after", "0s"]):
        assert execute("fleet", "status", *wrong)[0] == 64


def test_host_text_is_escaped_on_the_terminal(place: Path, execute: Execute) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\N{RIGHT-TO-LEFT OVERRIDE}"
    bad = sent(
        _HOST, now(), evil, published=evil, failed={f"file#{evil}": evil}, restless={f"file#{evil}": evil}
    )
    bad.bundles[0].name = evil
    deliver(place, [bad])
    (place / f"{_HOST}/{evil}.json".replace("/\x1b", "/x\x1b")).write_text("{")
    outputs = [execute("fleet", "import", "reports")[1]]
    outputs += [execute("fleet", "status", *options)[1] for options in ([], ["--failed"], ["--bundle", evil])]
    outputs.append(execute("fleet", "status", "--failed", "--format", "json")[1])
    for output in outputs:
        assert _HOST in output or "owned" in output or "1 " in output
        assert not set(output) & {"\x1b", "\x07"}, output


def test_invalid_report_files_are_reported_once_by_status(place: Path, execute: Execute) -> None:
    deliver(place, [sent(_HOST, now())])
    (place / _HOST / "bad.json").write_text("{")
    status, output = execute("fleet", "import", "reports")
    assert status == 4
    assert f"{_HOST}/bad.json: is not a report" in output
    assert "1 new report " in output
    status, output = execute("fleet", "import", "reports", "--format", "json")
    assert (status, json.loads(output)["refused"], json.loads(output)["newly_refused"]) == (4, 1, [])
    assert "1 file that arrived is not a report" in execute("fleet", "status")[1]


def test_facts_are_written_and_hosts_are_forgotten(place: Path, execute: Execute) -> None:
    deliver(place, [sent(_HOST, now(), facts={"a": {"b": 1}}), sent("db1", now(), facts={})])
    execute("fleet", "import", "reports", "--remove")
    assert not list(place.rglob("*.gz"))
    assert execute("fleet", "facts", "--where", "a.b=1", "--to", "facts")[0] == 0
    assert [file.name for file in Path("facts").iterdir()] == [f"{_HOST}.json"]
    assert json.loads(Path("facts", f"{_HOST}.json").read_text()) == {"a": {"b": 1}}
    status, output = execute("fleet", "forget", _HOST, "nobody")
    assert (status, output) == (1, output)
    assert f"{_HOST}: forgotten" in output
    assert "nobody: the store has no report of this host" in output
    assert "1 host" in execute("fleet", "status")[1]
    assert execute("fleet", "forget", "db1")[0] == 0
    assert "no report of any host was imported" in execute("fleet", "status")[1]


def test_invalid_store_or_directory_is_reported(place: Path, execute: Execute) -> None:
    for words in (["status"], ["facts", "--to", "x"], ["forget", "a"]):
        status, output = execute("fleet", *words)
        assert status not in (0, 1), output
        assert "fleet.db: the store is missing" in output
    assert not Path("fleet.db").exists()
    status, output = execute("fleet", "import", "absent")
    assert status not in (0, 1, 4)
    assert "absent" in output
    for url in ("nonsense://x", "://", "sqlite+nothing:///x"):
        status, output = execute("fleet", "status", "--store", url)
        assert status == 64, output
        assert "Traceback" not in output


def test_how_long_is_kept_and_who_is_silent_is_remembered(place: Path, execute: Execute) -> None:
    deliver(place, [sent(_HOST, now() - timedelta(hours=5), changed={"file#/a": "x"})])
    assert execute("fleet", "import", "reports", "--keep", "1h", "--silent-after", "9h")[0] == 0
    assert "1 host: 1 in sync" in execute("fleet", "status")[1]
    assert "1 silent" in execute("fleet", "status", "--silent-after", "1h")[1]
    assert execute("fleet", "import", "reports", "--keep", "never")[0] == 64


@pytest.mark.everything
def test_missing_sqlalchemy_names_the_install_command(place: Path) -> None:
    code = "import sys; sys.modules['sqlalchemy'] = None\nfrom puller.cli import main\nmain(sys.argv[1:])"
    for words in (["import", "reports"], ["status"], ["facts", "--to", "x"], ["forget", "a"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "fleet", *words],
            check=False,
            capture_output=True,
            text=True,
            cwd=place.parent,
        )
        assert done.returncode == 64, done.stderr
        assert f"needs SQLAlchemy, which is not installed. {how_to_install('fleet')}" in done.stderr
        assert "Traceback" not in done.stderr


def test_the_progress_of_an_import_stays_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reports, "can_redraw", lambda _: True)
    monkeypatch.setattr(reports, "_REDRAWN_AFTER", 0)
    progress = reports._Progress()
    progress.show(Imported(newest=2, known=1))
    assert capsys.readouterr().err.endswith("3 reports read")
    progress.clear()
    assert capsys.readouterr().err == "\r"  # click leaves out what only terminals read
