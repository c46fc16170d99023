"""``puller site prune``, ``site history`` and ``site list --all``: output and exit status."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.channels import Channels, RolloutRequest
from bundles.publisher.publication import publish_bundle
from bundles.publisher.site import Site

if TYPE_CHECKING:
    from tests.support.stories import Execute

LITTLE = ("--versions", "1", "--after", "30d")


def no_passphrase(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


@pytest.fixture(scope="module")
def published(new_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a site, and with the source of ``web`` 1.0.0 to 1.3.0, published 100 to 97 days ago."""
    directory = tmp_path_factory.mktemp("published")
    source = directory / "web"
    source.mkdir()
    shutil.copytree(new_site, directory / "site")
    for minor in range(4):
        then = datetime.now(UTC) - timedelta(days=100 - minor)
        (source / "manifest.yaml").write_text(f"# {minor}\nresources: []\n")
        made = Site(directory / "site", lambda then=then: then)  # type: ignore[misc]
        publish_bundle(made, source, no_passphrase, version=f"1.{minor}.0")
    return directory


@pytest.fixture(autouse=True)
def site(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of ``published`` as the working directory."""
    monkeypatch.chdir(shutil.copytree(published, tmp_path, dirs_exist_ok=True))
    return tmp_path / "site"


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_prune_plan_prints_sizes_and_changes_nothing(execute: Execute, site: Path) -> None:
    before = contents(site)
    status, output = execute("site", "prune", "site", *LITTLE, "--noop")
    assert status == 0
    assert re.search(r"^web 1\.0\.0 would be pruned, \d+ bytes, published 2\d{3}-\d\d-\d\d$", output, re.M)
    assert "web 1.1.0 would be pruned" in output
    assert "web 1.2.0" not in output  # the channel referred to it before 1.3.0
    assert contents(site) == before


def test_it_prunes_and_the_history_goes_on_to_tell(execute: Execute, site: Path) -> None:
    status, output = execute("site", "prune", "site", *LITTLE)
    assert status == 0
    assert re.search(r"^web 1\.1\.0 is pruned, \d+ bytes, ", output, re.M)
    assert re.search(r"^site: \d+ files \([\d.]+ \w+\) that no host can ask for are removed$", output, re.M)
    assert re.search(r"^site: \d+ files \([\d.]+ \w+\) stay until no host can be led to them, ", output, re.M)
    assert "pruned" not in execute("site", "prune", "site", *LITTLE)[1]
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    listed = execute("site", "list", "site", "--all")[1].splitlines()
    assert listed[0].split() == ["BUNDLE", "VERSION", "PUBLISHED", "SIZE", "CHANNELS", "FILES"]
    assert [line.split()[1] for line in listed[1:]] == ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]
    assert [line.split()[-1] for line in listed[1:]] == [today, today, "there", "there"]
    assert "stable" in listed[-1]


def test_the_rule_of_the_site_counts_where_no_other_is_given(execute: Execute, site: Path) -> None:
    assert "1.0.0" not in execute("site", "prune", "site", "--noop")[1]
    with (site / "site.yaml").open("a") as settings:
        settings.write("prune: {versions: 1, after: 30d}\n")
    assert "web 1.0.0 would be pruned" in execute("site", "prune", "site", "--noop")[1]


def test_history_lists_channel_changes_with_dates(execute: Execute, site: Path) -> None:
    channels = Channels(Site(site), no_passphrase)
    channels.promote("web", "stable", "canary", RolloutRequest(percent=10))
    channels.withdraw("web", "canary")
    status, output = execute("site", "history", "site", "web")
    assert status == 0
    statements = output.split("\n\n")[1].splitlines()
    assert statements[0].split() == ["WHEN", "CHANNEL", "SAID"]
    assert statements[1].endswith("stable   1.0.0 for all hosts")
    assert statements[-2].endswith("canary   1.3.0 for 10 % of the hosts; other hosts keep their versions")
    assert statements[-1].endswith("canary   nothing any more")


def test_programs_read_all_of_it(execute: Execute) -> None:
    planned = json.loads(execute("site", "prune", "site", *LITTLE, "--noop", "--format", "json")[1])
    assert [version["version"] for version in planned["versions"]] == ["1.0.0", "1.1.0"]
    assert planned["noop"] is True
    done = json.loads(execute("site", "prune", "site", *LITTLE, "--format", "json")[1])
    assert (done["versions"], done["noop"], bool(done["until"])) == (planned["versions"], False, True)
    listed = json.loads(execute("site", "list", "site", "--all", "--format", "json")[1])
    history = json.loads(execute("site", "history", "site", "web", "--format", "json")[1])
    assert listed["web"]["versions"] == history["versions"]
    assert [version["channels"] for version in history["versions"]] == [[], [], [], ["stable"]]
    assert [bool(version["pruned"]) for version in history["versions"]] == [True, True, False, False]
    assert [output["version"] for output in history["statements"]] == ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["prune", "site", "--after", "soon"],
            "--after is 'soon', expected a duration such as '30s', '1h30m' or '7d'",
        ),
        (["prune", "site", "--versions", "0"], "0 is not in the range x>=1"),
        (["prune", "web"], "web: is not a site"),
        (["history", "site", "app"], "app: was never published in site"),
        (["history", "site", "../web"], "expected"),
    ],
)
def test_impossible_pruning_is_reported(
    execute: Execute, site: Path, arguments: list[str], words: str
) -> None:
    before = contents(site)
    status, output = execute("site", *arguments)
    assert status != 0
    assert words in output
    assert contents(site) == before


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("[1]", "site/site.yaml: prune: expected a mapping"),
        ("{version: 3}", "site/site.yaml: prune: unknown key 'version'"),
        (
            "{versions: 0}",
            "site/site.yaml: prune: versions: is '0', expected a number of versions, at least 1",
        ),
        ("{versions: many}", "prune: versions: is 'many', expected a number"),
        ("{versions: [1]}", "prune: versions: is ['1'], expected a number"),
        ("{after: never}", "prune: after: is 'never', expected a duration"),
        ("{automatic: perhaps}", "prune: automatic: is 'perhaps', expected true or false"),
    ],
)
@pytest.mark.representatives(4)
def test_invalid_rule_is_refused_before_removing(execute: Execute, site: Path, rule: str, words: str) -> None:
    with (site / "site.yaml").open("a") as settings:
        settings.write(f"prune: {rule}\n")
    before = contents(site)
    for command in ("prune", "refresh"):
        status, output = execute("site", command, "site")
        assert (status != 0, words in output) == (True, True)
    assert contents(site) == before


@pytest.mark.parametrize("more", [(), ("--noop",)])
def test_publication_lists_pruned_versions(execute: Execute, site: Path, more: tuple[str, ...]) -> None:
    with (site / "site.yaml").open("a") as settings:
        settings.write("prune: {versions: 1, after: 30d}\n")
    (site.parent / "web/manifest.yaml").write_text("# 4\nresources: []\n")
    status, output = execute("site", "publish", "site", "web", "--version", "1.4.0", *more)
    assert (status, "  prunes 1.0.0, 1.1.0, 1.2.0, by the rule of site.yaml\n" in output) == (0, True), output
