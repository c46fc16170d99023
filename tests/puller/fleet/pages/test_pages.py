"""The pages of a fleet: they escape text from hosts, every link works, and only changed pages are written."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from puller.errors import SourceError, UsageError
from puller.fleet.pages.environment import file_name, host_page, release_page, resource_page
from puller.fleet.pages.pages import LIST, Made, make_pages
from puller.fleet.store.database import Store
from puller.fleet.store.import_sources import DirectorySource
from puller.fleet.store.importer import import_documents
from puller.fleet.store.queries import Reader
from tests.simulators import fleet

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)> \x1b[31m \u2028 \"'><a href='javascript:x'>"
OURS = {"hosts.js", ""}

Make = Callable[[], Made]


def write_reports(directory: Path) -> Path:
    """Write the reports of a fleet whose release fails on one kind of machine, and of a host with hostile text."""
    now = fleet.now()
    fleet.deliver(directory, fleet.wave(fleet.names(12), now - timedelta(hours=4), 2, breaks="RedHat"))
    host = "evil.example.com"
    output = fleet.sent(
        host,
        now,
        f"1.0{HOSTILE}",
        published=f"2{HOSTILE}",
        failed={f"file#/etc/{HOSTILE}": HOSTILE},
        changed={f"file#/{HOSTILE}": HOSTILE},
        diff=f"--- a\n+++ b\n+{HOSTILE}\n",
        problems=[HOSTILE],
        held=HOSTILE,
        quarantined=[f"3{HOSTILE}"],
        restless={f"exec#{HOSTILE}": HOSTILE},
        facts={HOSTILE: {HOSTILE: HOSTILE}, "os": {"name": HOSTILE, "release": {"major": HOSTILE}}},
        left_out=HOSTILE,
        pin=HOSTILE,
        waits_until=HOSTILE,
    )
    fleet.deliver(directory, [output, fleet.sent("silent.example.com", now - timedelta(days=2))])
    return directory


def make_in(place: Path) -> Made:
    """Import the reports in ``arrived`` and write the directory ``pages``."""
    store = Store.open(str(place / "fleet.db"), make=True)
    source = DirectorySource.open(str(place / "arrived"))
    try:
        import_documents(store, [source])
        return make_pages(Reader(store, datetime.now(UTC)), place / "pages", name=HOSTILE)
    finally:
        source.close()
        store.close()


@pytest.fixture
def arrived(tmp_path: Path) -> Path:
    """The directory of reports that ``make`` imports."""
    return write_reports(tmp_path / "arrived")


@pytest.fixture
def make(arrived: Path, tmp_path: Path) -> Make:
    """Import arrived reports and write the pages."""
    return partial(make_in, tmp_path)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of pages that tests only read. Its charts take a second of processor time."""
    place = tmp_path_factory.mktemp("fleet")
    write_reports(place / "arrived")
    make_in(place)
    return place / "pages"


class Page(HTMLParser):
    """The parsed content of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.sources: list[str] = []
        self.scripts: list[dict[str, str | None]] = []
        self.attributes: set[str] = set()
        self.elements: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        result = dict(attrs)
        self.elements.append(tag)
        self.ids.add(result.get("id") or "")
        self.attributes |= {name for name in result if name != "onerror" or tag != "img"} | set(result)
        if tag == "a":
            self.links.append(result.get("href") or "")
        if tag in ("link", "script", "img") and (place := result.get("href") or result.get("src")):
            self.sources.append(place)
        if tag == "script":
            self.scripts.append(result)


@pytest.fixture
def pages(directory: Path) -> dict[str, Page]:
    return {str(path.relative_to(directory)): Page(path.read_text()) for path in directory.rglob("*.html")}


def test_nothing_that_hosts_say_is_markup(pages: dict[str, Page]) -> None:
    assert len(pages) > 20
    for name, page in pages.items():
        assert {script.get("src") or "" for script in page.scripts} <= OURS, name
        assert all(script.get("type", "") in ("", "application/json") for script in page.scripts), name
        assert "img" not in page.elements, name
        assert not [attribute for attribute in page.attributes if attribute.startswith("on")], name


def test_links_lead_to_pages_and_no_external_resource(pages: dict[str, Page], directory: Path) -> None:
    root = directory.resolve()
    for name, page in pages.items():
        for link in [*page.links, *page.sources]:
            assert not re.match(r"[a-z]+:|//|/", link), (name, link)
            if link.startswith("#"):
                continue
            target = (root / name).parent / link.partition("#")[0]
            assert target.resolve().is_relative_to(root), (name, link)
            assert target.exists(), (name, link)


def test_codes_lead_to_their_explanations(pages: dict[str, Page]) -> None:
    links = {link.rpartition("/")[2] for page in pages.values() for link in page.links}
    codes = {link.partition("#")[2] for link in links if link.startswith("problems.html#")}
    assert codes
    assert codes <= pages["problems.html"].ids


def test_control_characters_are_written_out(directory: Path) -> None:
    for path in directory.rglob("*.html"):
        assert "\x1b" not in path.read_text(), path
    data = (directory / "hosts.html").read_text()
    assert (
        "\u2028" not in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', data, re.DOTALL)[0]
    )


def test_tables_have_heads_and_pictures_have_names(pages: dict[str, Page], directory: Path) -> None:
    for name, page in pages.items():
        assert page.elements.count("h1") == 1, name
        assert page.elements.count("table") == page.elements.count("thead"), name
    overview = (directory / "index.html").read_text()
    assert overview.count("<svg") == overview.count('role="img" aria-label="')
    assert overview.count("<svg") == 1
    assert not re.search(r"#0[a0][0-9a-f]{4}", overview.partition("<svg")[2])  # the page defines each colour


@pytest.mark.everything
def test_unchanged_page_is_not_written_again(make: Make, arrived: Path, tmp_path: Path) -> None:
    first = make()
    assert first.hosts == 14
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "pages/hosts").iterdir()}
    assert make().removed == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "pages/hosts").iterdir()} == stamps
    later = fleet.now() + timedelta(minutes=10)  # than reports of the same second
    fleet.deliver(arrived, [fleet.sent("host00001.example.com", later, "1.5.0")])
    make()
    changed = [path.name for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp]
    assert changed == ["host00001.example.com.html"]


def test_pages_that_are_gone_go_and_no_file_of_anybody_else_does(make: Make, tmp_path: Path) -> None:
    make()
    pages = tmp_path / "pages"
    (pages / "theirs.html").write_text("theirs")
    store = Store.open(str(tmp_path / "fleet.db"))
    with store.writing() as connection:
        from puller.fleet.store.importer import forget_hosts

        assert forget_hosts(connection, ["silent.example.com"]) == ["silent.example.com"]
    made = make_pages(Reader(store, datetime.now(UTC)), pages)
    store.close()
    assert made.removed >= 1
    assert not (pages / host_page("silent.example.com")).exists()
    assert (pages / "theirs.html").read_text() == "theirs"


def test_foreign_directory_is_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/theirs").write_text("theirs")
    with pytest.raises(UsageError, match="is not empty, and no directory of pages"):
        make()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format":1,"files":{"../outside":"x","/etc/x":"y","a/b/c":"z"}}']
)
@pytest.mark.everything
def test_forged_page_list_removes_nothing_outside(make: Make, tmp_path: Path, text: str) -> None:
    make()
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "pages" / LIST).write_text(text)
    try:
        make()
    except SourceError as error:
        assert "is damaged" in str(error)
    assert (tmp_path / "outside").read_text() == "kept"


def test_names_of_files_are_safe_and_no_two_the_same() -> None:
    texts = [
        "a",
        "A",
        "a/b",
        "a b",
        "..",
        ".",
        "",
        "a\0",
        "ä",
        "Ä",
        "x" * 300,
        "x" * 301,
        "con.html",
        "a~b",
        "a-b",
    ]
    names = [file_name(text) for text in texts]
    assert len({name.lower() for name in names}) == len(texts)
    for name in names:
        assert re.fullmatch(r"[a-z0-9][a-z0-9._+~-]*", name), name
    assert release_page("web", "1.0.0") != release_page("web1", ".0.0")
    assert resource_page("../../x").startswith("resources/")
