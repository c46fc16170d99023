"""Accessibility of the pages in Debian's Chromium: axe-core, keyboard, focus, dark mode and narrow screens.

All pages are opened in frames of one page, because a browser takes seconds to start, and its window is at least 500
pixels wide.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from html import unescape
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.chromium

AXE = "axe-core@4.14.1"
INTEGRITY = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--virtual-time-budget=60000", "--window-size=1400,900",
)  # fmt: skip
DARK = "--blink-settings=preferredColorScheme=0"
OUTER = """\
"use strict";
const results = [];
addEventListener("message", (event) => {
  results.push(event.data);
  if (results.length === document.querySelectorAll("iframe").length) {
    const done = document.createElement("pre");
    done.id = "results";
    done.textContent = JSON.stringify(results);
    document.body.append(done);
  }
});
"""
SECTIONS = ("index", "hosts", "bundles", "failures", "resources", "problems")


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The script of axe-core, from the npm registry."""
    directory = tmp_path_factory.mktemp("axe")
    command = ["npm", "pack", "--silent", AXE]
    name = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    package = directory / name.strip()
    digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    assert digest == INTEGRITY, f"{AXE} has other contents"
    with tarfile.open(package) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script
        return script.read()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, incident: Path, axe: bytes) -> Path:
    """A copy of the pages of a fleet with problems of each kind, with the scripts that test them."""
    pages = Path(shutil.copytree(incident, tmp_path_factory.mktemp("probed") / "pages"))
    (pages / "axe.js").write_bytes(axe)
    (pages / "probe.js").write_text((Path(__file__).parent / "accessibility.js").read_text())
    (pages / "outer.js").write_text(OUTER)
    return pages


def all_kinds(pages: Path) -> list[str]:
    """Return a page of each kind."""
    kinds = ("bundles", "failures", "releases", "resources")
    names = [sorted((pages / kind).iterdir())[0].relative_to(pages).as_posix() for kind in kinds]
    hosts = [f"hosts/host{number:05}.example.com.html" for number in (4, 5, 15)]
    return [*(f"{name}.html" for name in SECTIONS), *names, *hosts]


def probe(pages: Path, width: int, profile: Path, *flags: str) -> list[dict[str, Any]]:
    """Return the results of a page of each kind, in frames of ``width`` pixels."""
    names = all_kinds(pages)
    frames = []
    for name in names:
        page = (pages / name).read_text()
        top = "../" * name.count("/")
        scripts = f'<script src="{top}axe.js" defer></script><script src="{top}probe.js" defer></script>'
        copy = name.removesuffix(".html") + ".probed.html"
        (pages / copy).write_text(page.replace("</body>", f"{scripts}</body>"))
        frames.append(f'<iframe name="{name}" src="{copy}" width="{width}" height="900"></iframe>')
    (pages / "outer.html").write_text(f'<body><script src="outer.js"></script>{"".join(frames)}</body>')
    command = ["chromium", *FLAGS, *flags, f"--user-data-dir={profile}", "--dump-dom"]
    done = subprocess.run(
        [*command, (pages / "outer.html").as_uri()], capture_output=True, text=True, check=True, timeout=240
    )
    match = re.search(r'<pre id="results">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, "not every page has sent its results"
    results: list[dict[str, Any]] = json.loads(unescape(match[1]))
    assert {result["page"] for result in results} == set(names)
    return results


@pytest.mark.parametrize(
    ("width", "flags", "ground"),
    [
        (1280, (), "rgb(255, 255, 255)"),
        (1280, (DARK,), "rgb(18, 22, 27)"),
        (360, (), "rgb(255, 255, 255)"),
    ],
    ids=["light", "dark", "narrow"],
)
def test_pages_are_accessible(
    pages: Path, tmp_path: Path, width: int, flags: tuple[str, ...], ground: str
) -> None:
    findings: dict[str, Any] = {}
    for result in probe(pages, width, tmp_path / "profile", *flags):
        assert result["rules"] > 10
        assert result["ground"] == ground
        serious = [rule for rule in result["violations"] if rule["impact"] in ("serious", "critical")]
        problems = {"axe": serious, "wide": max(result["wide"], 0)}
        problems |= {name: result[name] for name in ("unreachable", "unmarked")}
        if any(problems.values()):
            findings[result["page"]] = problems
    assert not findings, json.dumps(findings, indent=1)
