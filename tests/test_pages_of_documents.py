"""The documents as a site: the build has no warnings, every link works, and nothing is loaded from other sites."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

import pytest

ROOT = Path(__file__).parents[1]
SHOWN = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "examples", "packaging"]
LINKED = [
    "tests",
    "puller",
    "hiera",
    "bundles",
    "systemd",
    "LICENSE",
    "CODE_OF_CONDUCT.md",
    "MAINTAINERS.md",
    "SECURITY.md",
    "pyproject.toml",
    ".pre-commit-hooks.yaml",
]


pytestmark = pytest.mark.everything  # needs mkdocs, of the extra check


def build(directory: Path, *arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "packaging/pages"), str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return all pages. The build takes two seconds."""
    directory = tmp_path_factory.mktemp("pages") / "site"
    done = build(directory)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return directory


def test_every_document_is_a_page(pages: Path) -> None:
    documents = {
        str(path.relative_to(ROOT / "docs").with_suffix(".html")) for path in (ROOT / "docs").rglob("*.md")
    }
    result = {str(path.relative_to(pages)) for path in pages.rglob("*.html")}
    assert documents | {"index.html", "changelog.html", "contributing.html"} <= result


def test_code_in_tables_shows_pipes_without_backslashes(pages: Path) -> None:
    text = (pages / "templates.html").read_text()
    assert "<code>{{ data.name | upper }}</code>" in text
    for page in pages.rglob("*.html"):
        assert not re.findall(r"<td>[^\n]*<code>[^<\n]*\\\|", page.read_text()), page


def test_nothing_is_loaded_from_elsewhere(pages: Path) -> None:
    for page in pages.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="?(?:https?:)?//', text), page
        assert not re.findall(r'<link[^>]+href="?(?:https?:)?//', text), page
    for style in pages.rglob("*.css"):
        assert not re.findall(r"url\([\"']?(?:https?:)?//|@import", style.read_text()), style


def test_code_links_without_a_destination_are_text(pages: Path) -> None:
    text = (pages / "security.html").read_text()
    assert "tests/hostile" not in "".join(re.findall(r'href="([^"]+)"', text))
    assert 'href="mirrors.html"' in text


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Create a checkout with a copy of the documents, to change them, and links to all other files."""
    root = tmp_path / "checkout"
    root.mkdir()
    for name in SHOWN:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, root / name)
    for name in LINKED:
        os.symlink(ROOT / name, root / name)
    return root


def test_broken_link_fails_the_build_by_name(checkout: Path, tmp_path: Path) -> None:
    with open(checkout / "docs/shell.md", "a") as page:
        page.write("\n[a](gone.md) [b](data.md#gone) [c](../tests/gone.py)\n")
    (checkout / "docs/stray.md").write_text("# In no list\n")
    done = build(tmp_path / "site", root=checkout)
    assert done.returncode == 1
    for output in ("'gone.md'", "no anchor '#gone'", "'../tests/gone.py'", "stray.md"):
        assert output.replace("no anchor", "not contain an anchor") in done.stderr, output


def test_links_to_code_lead_to_where_the_code_is_shown(checkout: Path, tmp_path: Path) -> None:
    for page in (checkout / "docs").rglob("*.md"):
        if page.name == "security.md":
            assert "](../tests/hostile/" in page.read_text()
    done = build(tmp_path / "site", "--source", "https://git.example.com/puller/blob/1.0/", root=checkout)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "site/security.html").read_text()
    assert 'href="https://git.example.com/puller/blob/1.0/docs/security.md"' in text
    assert 'href="https://git.example.com/puller/blob/1.0/tests/hostile/test_archives.py"' in text


FIRST_PAGES = {
    "--check": "from-ansible",
    "agent certificate": "from-puppet",
    "ansible-pull": "from-ansible-pull",
    "become": "from-ansible",
    "catalog": "from-puppet",
    "cron": "resources/cron",
    "delegate_to": "from-ansible",
    "ensure => installed": "resources/package",
    "exit status 11": "troubleshooting",
    "facter": "facts",
    "file": "resources/file",
    "galaxy": "from-ansible",
    "handler": "from-ansible",
    "health check": "health-checks",
    "hiera lookup": "hiera5",
    "how do I restart a service when a file changes?": "resources/service",
    "how do I stop all changes on a host": "holding",
    "lineinfile": "resources/line",
    "loop": "resources/common",
    "notify": "from-ansible",
    "prometheus": "monitoring",
    "proxy": "mirrors",
    "puppetdb": "from-puppet",
    "quarantine": "holding",
    "r10k": "from-puppet",
    "register": "from-ansible",
    "run without root": "as-user",
    "service": "resources/service",
    "tags": "from-ansible",
    "vault": "from-ansible",
    "what happens if the clock of a host is wrong?": "troubleshooting",
    "when": "from-ansible",
}
"""The page that the search must show first for a query."""

SEARCH = """<!doctype html><title>Queries</title><script src="{base}/search/search_index.js"></script><body>
<script src="{base}/iframe-worker.js"></script><script src="{base}/search-query.js"></script>
<script>
  const queries = {queries}, pages = {{}};
  const worker = new Worker("{base}/{worker}");
  const query = () => {{
    if (queries.length) worker.postMessage({{type: 2, data: queries[0]}});
    else document.body.innerHTML = `<pre>${{JSON.stringify(pages)}}</pre>`;
  }};
  worker.addEventListener("message", ({{data}}) => {{
    if (data.type === 3) pages[queries.shift()] = data.data.items.map((sections) => sections[0].location);
    query();
  }});
  worker.postMessage({{type: 0, data: {{...__index, options: {{suggest: true}}}}}});
</script>"""
"""A page that runs queries with the scripts and the index of the search, as its input field does."""


def page_in_chromium(url: str) -> str:
    """Return the document of a page after its scripts. Takes six seconds: a browser starts."""
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
    arguments += ["--disable-background-networking", "--virtual-time-budget=8000", "--dump-dom"]
    chromium = shutil.which("chromium") or "chromium"
    command = [chromium, *arguments, url]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.chromium
def test_the_search_works_in_pages_opened_as_files(pages: Path) -> None:
    text = page_in_chromium(f"{(pages / 'resources/file.html').as_uri()}?{urlencode({'q': 'lineinfile'})}")
    results = re.findall(r'href="([^"]+)" class="md-search-result__link"', text)
    assert any("/from-ansible.html" in link for link in results), results


@pytest.mark.chromium
def test_the_first_result_of_a_query_is_its_page(pages: Path, tmp_path: Path) -> None:
    (worker,) = re.findall(r'"search": ?"([^"]+)"', (pages / "quick-start.html").read_text())
    text = SEARCH.format(base=pages.as_uri(), worker=worker, queries=json.dumps(list(FIRST_PAGES)))
    (tmp_path / "queries.html").write_text(text)
    shown = page_in_chromium((tmp_path / "queries.html").as_uri())
    (result,) = re.findall("<pre>(.*?)</pre>", shown)
    pages_of = json.loads(html.unescape(result))
    first = {query: next(iter(pages_of[query]), "").partition(".html")[0] for query in FIRST_PAGES}
    assert first == FIRST_PAGES


def test_ranking_of_a_missing_page_fails_the_build(checkout: Path, tmp_path: Path) -> None:
    with open(checkout / "packaging/documents/search.yaml", "a") as ranking:
        ranking.write("  - gone.html\n")
    done = build(tmp_path / "site", root=checkout)
    assert done.returncode == 1
    assert "search.yaml: no page or section gone.html" in done.stderr
