"""The list of hosts in Debian's Chromium: filters, order and addresses work without a server, for ten thousand hosts.

A test script is added to the page's own. It acts like a reader and records the results.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from puller.fleet.host_document import read_document
from puller.fleet.pages.pages import make_pages
from puller.fleet.store.database import Store
from puller.fleet.store.queries import Reader
from puller.fleet.store.writing import put
from tests.simulators import fleet

pytestmark = pytest.mark.chromium

COUNT = 10_000
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
    "--virtual-time-budget=20000",
)  # fmt: skip
PROBE = """\
"use strict";
const seen = {};
const look = (name) => {
  const rows = [...document.querySelectorAll("#hosts tbody tr")];
  seen[name] = {
    said: document.getElementById("count").textContent,
    shown: rows.length,
    first: rows.length ? rows[0].cells[0].textContent : "",
    states: [...new Set(rows.map((row) => row.cells[1].textContent))],
    systems: [...new Set(rows.map((row) => row.cells[5].textContent))],
    address: location.hash,
    more: !document.getElementById("more").hidden,
  };
};
const form = document.getElementById("filter");
const set = (name, value) => {
  form.elements[name].value = value;
  form.elements[name].dispatchEvent(new Event("input", { bubbles: true }));
};
look("opened");
set("state", ""); look("all");
document.getElementById("more").click(); look("more");
set("text", "HOST00042"); look("text");
set("text", "");
set("bundle", "web"); set("version", "1.5.0"); look("version");
set("os", "Rocky 9"); look("system");
set("version", "1.4.0"); look("nothing is so");
form.elements.text.focus(); seen.focus = document.activeElement.id;
form.reset();
setTimeout(() => {
  look("reset");
  const sort = document.querySelector("button[data-column=host]");
  sort.click(); look("sorted");
  const link = document.querySelector("#hosts tbody a");
  seen.link = link.getAttribute("href");
  const done = document.createElement("pre");
  done.id = "seen";
  done.textContent = JSON.stringify(seen);
  document.body.append(done);
}, 50);
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of ten thousand hosts, a third of which fail."""
    directory = tmp_path_factory.mktemp("fleet")
    at = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    store = Store.open(str(directory / "fleet.db"), make=True)
    documents = []
    for name in fleet.names(COUNT):
        fails = (
            {"failed": {"service#web": "</script><b>no"}}
            if fleet.facts_of(name)["os"]["name"] == "Rocky"
            else {}
        )
        sent = fleet.sent(name, at, "1.5.0" if int(name[4:9]) % 2 else "1.4.0", **fails)
        documents.append(read_document(fleet.json_of(sent), name, at))
    with store.writing() as connection:
        put(connection, documents)
    make_pages(Reader(store, at + timedelta(minutes=1)), directory / "pages")
    store.close()
    made: Path = directory / "pages"
    (made / "probe.js").write_text(PROBE)
    page = (made / "hosts.html").read_text()
    (made / "probed.html").write_text(
        page.replace("</body>", '<script src="probe.js" defer></script>\n</body>')
    )
    return made


def opened(pages: Path, address: str, tmp_path: Path) -> tuple[str, str]:
    """Return the page after its scripts ran, and the browser's error messages."""
    command = [
        "chromium",
        *FLAGS,
        f"--user-data-dir={tmp_path}/profile",
        "--dump-dom",
        f"file://{pages}/{address}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def test_filters_order_and_address(pages: Path, tmp_path: Path, tell: Callable[[str], None]) -> None:
    page, errors = opened(pages, "probed.html#state=failed", tmp_path)
    assert errors == ""
    match = re.search(r'<pre id="seen">(.*?)</pre>', page, re.DOTALL)
    assert match, page[-2000:]
    seen: dict[str, Any] = json.loads(unescape(match[1]))
    rocky = sum(fleet.facts_of(name)["os"]["name"] == "Rocky" for name in fleet.names(COUNT))
    assert seen["opened"]["said"] == f"{rocky} of {COUNT} hosts"
    assert seen["opened"]["states"] == ["failed"]
    assert seen["all"]["said"] == f"{COUNT} hosts"
    assert (seen["all"]["shown"], seen["all"]["more"], seen["more"]["shown"]) == (250, True, 500)
    assert (seen["text"]["said"], seen["text"]["first"]) == (f"1 of {COUNT} hosts", "host00042.example.com")
    assert seen["version"]["said"] == f"{COUNT // 2} of {COUNT} hosts"
    assert "bundle=web" in seen["version"]["address"]
    assert "version=1.5.0" in seen["version"]["address"]
    assert seen["system"]["systems"] == ["Rocky 9"]
    assert seen["focus"] == "f-text"
    assert seen["reset"]["said"] == f"{COUNT} hosts"
    assert seen["sorted"]["first"] == f"host{COUNT - 1:05}.example.com"
    assert seen["link"] == f"hosts/host{COUNT - 1:05}.example.com.html"
    tell(f"hosts.html of {COUNT} hosts has {(pages / 'hosts.html').stat().st_size / 1e6:.1f} MB")


@pytest.mark.parametrize(
    "page", ["index.html", "failures.html", "bundles.html", "bundles/web.html", "resources.html"]
)
def test_no_page_has_an_error_or_asks_for_anything_else(pages: Path, tmp_path: Path, page: str) -> None:
    text, errors = opened(pages, page, tmp_path)
    assert errors == ""
    assert "<h1>" in text
