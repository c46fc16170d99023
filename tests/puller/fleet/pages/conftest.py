"""The pages of a fleet in the middle of a rollout, with a host for each kind of problem."""

import re
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import pytest

from puller.fleet.pages.pages import make_pages
from puller.fleet.store.database import Store
from puller.fleet.store.queries import Reader
from tests.puller.fleet.conftest import imported
from tests.simulators import fleet


@pytest.fixture(scope="session")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of pages that tests only read."""
    place = tmp_path_factory.mktemp("incident")
    (place / "reports").mkdir()
    fleet.deliver(place / "reports", fleet.incident(fleet.now()))
    store = Store.open(str(place / "fleet.db"), make=True)
    imported(store, place / "reports")
    make_pages(Reader(store, datetime.now(UTC)), place / "pages")
    store.close()
    return place / "pages"


def text_of(html: str) -> str:
    """Return the text that a reader sees, in one line."""
    without_scripts = re.sub(r"<(style|script).*?</\1>", "", html, flags=re.DOTALL)
    text = re.sub(
        r'</?(li|dd|dt|h\d|p|td|tr|summary|div|pre)\b|<span class="advice"', r" \g<0>", without_scripts
    )
    return " ".join(unescape(re.sub(r"<[^>]+>", "", text)).split())


def host_text(incident: Path, number: int) -> str:
    """Return the text of the page of a host."""
    return text_of((incident / f"hosts/host{number:05}.example.com.html").read_text())
