"""``puller site push``: output and exit status."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.push.plan import Plan
from puller.cli.publisher.push import _Progress

if TYPE_CHECKING:
    from tests.support.stories import Execute


@pytest.fixture(autouse=True)
def site(new_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute: Execute) -> Path:
    """A site with one bundle, in the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(new_site, "site")
    Path("web").mkdir()
    Path("web/manifest.yaml").write_text("resources: []\n")
    assert execute("site", "publish", "site", "web", "--version", "1.0.0")[0] == 0
    return tmp_path / "site"


def test_push_prints_its_plan_and_follows_it(execute: Execute, tmp_path: Path) -> None:
    status, planned = execute("site", "push", "site", "www", "--noop")
    assert status == 0
    count = len(list(Path("site/public").rglob("*.*")))
    assert "copy   metadata/1.snapshot.json (" in planned or f"copy   and {count - 20} more" in planned
    assert f"{tmp_path}/www: dry run, {count} files to copy (" in planned
    assert not Path("www").exists()
    status, output = execute("site", "push", "site", "www")
    assert (status, f"{count} of {count} files, " in output) == (0, True)
    assert execute("site", "push", "site", "www") == (0, f"{tmp_path}/www: up to date\n")
    assert execute("site", "push", "site", "www", "--noop") == (0, f"{tmp_path}/www: up to date\n")


def test_push_prints_json(execute: Execute) -> None:
    status, output = execute("site", "push", "site", "www", "--noop", "--format", "json")
    plan = json.loads(output)
    assert (status, plan["noop"], plan["copied"][-2:], plan["removed"]) == (
        0,
        True,
        ["metadata/timestamp.json", "metadata/1.root.json"],
        [],
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["www", "--keep", "soon"], "--keep is 'soon', expected a duration such as '30s', '1h30m' or '7d'"),
        (
            ["ftp://www/srv"],
            "ftp://: is an unknown kind of destination, expected a directory, ssh://, https:// or s3://",
        ),
        (["http://me:geheim@[::1/x"], "expected a URL"),
        (["www\n:/srv"], "is not a destination, because it contains control characters"),
    ],
)
def test_contradictory_options_are_refused(execute: Execute, arguments: list[str], words: str) -> None:
    status, output = execute("site", "push", "site", *arguments)
    assert (status != 0, words in output, "geheim" in output) == (True, True, False), output


def test_missing_ssh_is_named_and_leaves_nothing(
    execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    monkeypatch.setenv("PATH", str(tmp_path / "scratch"))
    status, output = execute("site", "push", "site", "www:/srv/puller")
    assert (status, output) == (64, "puller: ssh://www/srv/puller: ssh is not installed on this machine\n")
    assert not list((tmp_path / "scratch").iterdir())


def test_directory_without_a_site_is_not_pushed(execute: Execute) -> None:
    status, output = execute("site", "push", "web", "www")
    assert (status != 0, "is not a site" in output, Path("www").exists()) == (True, True, False)


def test_delayed_removals_are_listed(execute: Execute, site: Path) -> None:
    execute("site", "push", "site", "www")
    (site / "public/metadata/1.snapshot.json").unlink()
    execute("site", "publish", "site", "web", "--version", "1.0.1")
    output = execute("site", "push", "site", "www")[1]
    assert "1 to remove later, when no host requests them" in output
    output = execute("site", "publish", "site", "web", "--version", "1.0.2")[1]
    assert " to remove (" not in execute("site", "push", "site", "www")[1]


def test_who_watches_sees_how_far_a_large_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn = io.StringIO()
    monkeypatch.setattr("puller.cli.publisher.push.can_redraw", lambda stream: True)
    monkeypatch.setattr("sys.stderr", drawn)
    times = iter(range(100))
    monkeypatch.setattr("time.monotonic", lambda: float(next(times)))
    progress = _Progress("www")
    progress.planned(Plan((("a", "b"),), sizes={"a": 4_000_000, "b": 1_000_000}))
    progress.moved("a", 1_000_000)
    progress.moved("a", 2_000_000)
    progress.moved("a", 500_000)  # sent again
    progress.sent("b", 1_000_000)
    progress.sent("a", 4_000_000)
    assert drawn.getvalue().replace("\x1b[K", "").split("\r") == [
        "www: 2 files to copy (5.0 MB)\n",
        "0 of 2 files, 1.0 MB of 5.0 MB, 1.0 MB/s, 4 s left",
        "0 of 2 files, 2.0 MB of 5.0 MB, 1.0 MB/s, 3 s left",
        "0 of 2 files, 500.0 kB of 5.0 MB, 166.7 kB/s, 27 s left",
        "1 of 2 files, 1.5 MB of 5.0 MB, 375.0 kB/s, 9 s left",
        "www: 2 of 2 files, 5.0 MB of 5.0 MB in 5.0 s\n",
    ]
