"""Dry runs of rollouts, ``puller site release``, and pushes after each change of a site."""

from __future__ import annotations

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from tests.simulators.fleet import deliver, names, now, sent
from tests.support.stories import Execute

DRY_RUN = "Dry run: nothing was signed"


@pytest.fixture(autouse=True)
def _place(new_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute: Execute) -> None:
    """Make a site with a rollout of ``web 1.1.0`` at 10 %."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PULLER_SITE", raising=False)
    shutil.copytree(new_site, "site")
    Path("web").mkdir()
    Path("web/manifest.yaml").write_text("resources: []\n")
    assert execute("site", "publish", "web", "--version", "1.0.0")[0] == 0
    assert execute("site", "publish", "web", "--version", "1.1.0", "--percent", "10")[0] == 0


def contents(directory: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(directory).rglob("*") if path.is_file()}


def set_destination(tmp_path: Path) -> None:
    with open("site/site.yaml", "a", encoding="utf-8") as settings:
        settings.write(f"push: {{destination: {tmp_path}/www}}\n")


def pushed_version(name: str = "timestamp") -> int:
    version: int = json.loads(Path(f"www/metadata/{name}.json").read_text())["signed"]["version"]
    return version


CHANGES = {
    "rollout web --percent 50": "web 1.1.0 would be in channel stable, for 50 % of the hosts",
    "rollout web --complete": "web 1.1.0 would be in channel stable, for all hosts",
    "halt web": "web 1.1.0 would be in channel stable, halted at 10 % of the hosts",
    "back web": "web 1.0.0 would be in channel stable, was 1.1.0, for all hosts",
    "promote web --from stable --to canary": "web 1.1.0 would be in channel canary, for all hosts",
    "withdraw web": "web 1.1.0 would leave channel stable",
    "rotate timestamp --no-passphrase": "site: would sign again: root, timestamp",
    "refresh": "site: would sign again: timestamp",
}


@pytest.mark.parametrize("alias", ["--noop", "--dry-run", "-n"])
@pytest.mark.parametrize("words", CHANGES)
def test_a_dry_run_shows_the_change_and_writes_nothing(words: str, alias: str, execute: Execute) -> None:
    before = contents("site")
    status, output = execute("site", *words.split(), alias)
    assert (status, CHANGES[words] in output, DRY_RUN in output) == (0, True, True), output
    assert contents("site") == before
    # The real command makes the announced change.
    status, output = execute("site", *words.split())
    done = CHANGES[words].replace("would be", "is").replace("would leave", "has left")
    done = done.replace("would sign", "in force, signed" if "rotate" in words else "signed")
    assert (status, done in output) == (0, True), output
    assert contents("site") != before


def test_a_dry_run_fails_like_the_command(execute: Execute) -> None:
    for words in ("halt none", "rollout web --percent 5", "back web --version 9.9.9", "withdraw none"):
        planned, made = (execute("site", *words.split(), *noop) for noop in (["--noop"], []))
        assert planned == made
        assert planned[0] == 64


@pytest.mark.parametrize("words", CHANGES)
def test_a_change_is_pushed_to_the_destination(words: str, tmp_path: Path, execute: Execute) -> None:
    set_destination(tmp_path)
    status, output = execute("site", *words.split())
    assert (status, "Next:" in output) == (0, False), output
    for path in Path("site/public/metadata").glob("*"):
        assert (Path("www/metadata") / path.name).read_bytes() == path.read_bytes()


def test_no_push_leaves_the_destination(tmp_path: Path, execute: Execute) -> None:
    set_destination(tmp_path)
    status, output = execute("site", "halt", "web", "--no-push")
    assert (status, "puller site push site\n" in output) == (0, True), output
    assert not Path("www").exists()


def test_release_publishes_and_pushes(tmp_path: Path, execute: Execute) -> None:
    set_destination(tmp_path)
    before = contents("site")
    status, output = execute("site", "release", "web", "--version", "1.2.0", "--noop")
    assert (status, "Dry run: nothing was signed or pushed." in output) == (0, True), output
    planned = re.findall(r"^copy   (\S+/\S+) \(", output, re.MULTILINE)
    assert planned[0].endswith(".web-1.2.0.tar.gz")
    assert planned[1:], "files that were published before, but never pushed"
    assert re.search(r"www: dry run, \d+ files to copy \([\d.]+ kB\)\n", output)
    assert contents("site") == before
    assert not Path("www").exists()
    document = json.loads(
        execute("site", "release", "web", "--version", "1.2.0", "--noop", "--format", "json")[1]
    )
    assert (document["push"]["noop"], document["push"]["copied"][0]) == (True, planned[0])
    assert execute("site", "release", "web", "--version", "1.2.0")[0] == 0
    assert [path for path in planned if not Path("www", path).is_file()] == []
    version = pushed_version()
    assert "web 1.2.0 is already in channel" in execute("site", "release", "web", "--version", "1.2.0")[1]
    assert pushed_version() == version
    output = execute("site", "release", "web", "--version", "1.2.0", "--noop")[1]
    assert "www: up to date\n" in output


def test_release_noop_fails_if_the_push_is_impossible(tmp_path: Path, execute: Execute) -> None:
    set_destination(tmp_path)
    assert execute("site", "init", "other", "--no-passphrase")[0] == 0
    shutil.copytree("other/public", "www")
    status, output = execute("site", "release", "web", "--version", "1.2.0", "--noop")
    assert (status, "contains another site" in output) == (64, True), output


def test_release_resumes_after_a_failed_push(tmp_path: Path, execute: Execute) -> None:
    set_destination(tmp_path)
    Path("www").write_text("a file, so the push fails")
    status, _ = execute("site", "release", "web", "--version", "1.2.0")
    assert status != 0
    Path("www").unlink()
    status, output = execute("site", "release", "web", "--version", "1.2.0", "--format", "json")
    document = json.loads(output[output.index("{") :])
    assert (status, document["bundles"][0]["published"]) == (0, False)
    assert document["push"]["copied"]
    assert pushed_version() > 0


def test_release_without_destination_publishes_nothing(execute: Execute) -> None:
    before = contents("site")
    status, output = execute("site", "release", "web", "--version", "1.2.0")
    assert (status, "site: DESTINATION is missing" in output) == (64, True)
    assert contents("site") == before


def test_a_rollout_names_the_hosts_that_it_reaches(execute: Execute) -> None:
    Path("reports").mkdir()
    deliver(Path("reports"), [sent(host, now() - timedelta(minutes=5)) for host in names(40)])
    assert execute("fleet", "import", "reports")[0] == 0
    store = ("--store", "fleet.db")
    status, output = execute(
        "site", "publish", "web", "--version", "1.2.0", "--percent", "25", "--noop", *store
    )
    assert status == 0, output
    line = next(line for line in output.splitlines() if line.startswith("web 1.2.0 reaches"))
    assert "of 40 hosts: " in line
    reached = int(line.split()[3])
    assert 0 < reached < 40
    status, output = execute("site", "rollout", "web", "--percent", "10.01", *store)
    assert " of 40 hosts" in output
    status, output = execute(
        "site", "publish", "web", "--version", "1.3.0", "--percent", "0.01", "--noop", *store
    )
    assert "puller: web 1.3.0 reaches 0 of 40 hosts in channel stable" in output


def test_a_missing_store_stops_the_publication(execute: Execute) -> None:
    before = contents("site")
    status, output = execute(
        "site", "publish", "web", "--version", "1.2.0", "--percent", "10", "--store", "none.db"
    )
    assert (status, "none.db: the store is missing" in output) == (64, True), output
    assert contents("site") == before
