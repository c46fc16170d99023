"""``puller site mirror``: output and exit status."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.web_server import serving

if TYPE_CHECKING:
    from tests.support.stories import Execute

ROOT = "site/public/metadata/1.root.json"


@pytest.fixture(autouse=True)
def public(new_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute: Execute) -> str:
    """The published directory of a site with one bundle, in the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(new_site, "site")
    Path("web").mkdir()
    Path("web/manifest.yaml").write_text("resources: []\n")
    assert execute("site", "publish", "site", "web", "--version", "1.0.0")[0] == 0
    return f"{tmp_path}/site/public"


def test_mirror_prints_its_plan_and_follows_it(execute: Execute, public: str) -> None:
    status, planned = execute("site", "mirror", public, "copy", "--root", ROOT, "--dry-run")
    assert (status, "files to copy" in planned, Path("copy").exists()) == (0, True, False)
    status, output = execute("site", "mirror", public, "copy", "--root", ROOT)
    assert (status, "files copied" in output) == (0, True), output
    assert execute("site", "mirror", public, "copy") == (0, "copy: up to date\n")


def test_it_copies_from_a_web_server(execute: Execute, public: str) -> None:
    with serving(Path(public)) as url:
        status, output = execute("site", "mirror", url, "copy", "--root", ROOT, "--bundle", "web")
        assert (status, "files copied" in output) == (0, True), output
        assert execute("site", "mirror", url, "copy", "--bundle", "web")[1] == "copy: up to date\n"


def test_mirror_prints_json(execute: Execute, public: str) -> None:
    status, output = execute("site", "mirror", public, "copy", "--root", ROOT, "--format", "json")
    done = json.loads(output)
    assert (status, done["site"], done["copied"][-2:], done["removed"]) == (
        0,
        public,
        ["metadata/timestamp.json", "metadata/1.root.json"],
        [],
    )


def test_failed_verification_has_the_status_of_a_host(execute: Execute, public: str) -> None:
    execute("site", "mirror", public, "copy", "--root", ROOT)
    timestamp = Path(public, "metadata/timestamp.json")
    changed = re.sub(rb'("expires": *")2', rb"\g<1>3", timestamp.read_bytes())
    timestamp.write_bytes(changed)
    status, output = execute("site", "mirror", public, "copy")
    assert (status, "timestamp" in output) == (10, True), output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["copy"], "the first run requires --root"),
        (["site", "--root", ROOT], "the site of a publisher and not a copy"),
        (["copy", "--root", ROOT, "--bundle", "Web/.."], "Web/.."),
        (["copy", "--root", ROOT, "--bundle", "db"], "bundle 'db'"),
    ],
)
def test_contradictory_options_are_refused(
    execute: Execute, public: str, arguments: list[str], words: str
) -> None:
    status, output = execute("site", "mirror", public, *arguments)
    assert (status != 0, words in output) == (True, True), output
