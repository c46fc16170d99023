"""Hooks of mkdocs that convert linked documents of a checkout to pages.

* Some documents outside of ``docs/`` are pages as well (``_PAGES``).
* A link to a document or picture becomes a link to its page, wherever the document is in the checkout.
* A link to code, tests or examples becomes a link below ``PULLER_SOURCE`` (the URL of a checkout). Without that
  variable it becomes text, because the pages do not contain the code. The target must exist in both cases.
* A broken link is a warning of mkdocs, which fails the build.
* The search ranks pages by ``search.yaml``, too.
* Forges require ``\\|`` for a pipe in a table. In a code span, mkdocs shows the backslash, so it is removed.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

import yaml
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
_ADDED = ("documents.css", "iframe-worker.js", "search-query.js")
_SEARCH = yaml.safe_load((Path(__file__).parent / "search.yaml").read_text())
_LOWER_BOOST = 0.1
_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/configurations/README.md": "examples/configurations/README.md",
    "examples/site/README.md": "examples/site/README.md",
}
"""Page by path in the checkout. Documents in ``docs/`` keep their paths."""

_LINK = re.compile(r"\[((?:`[^`\n]*`|[^\]`])*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"`[^`\n]+`")
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_FENCED = re.compile(r"^( *)(```+).*?^\1\2[ ]*$", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Link each page to its document below ``PULLER_SOURCE``."""
    if base := os.environ.get("PULLER_SOURCE"):
        config.edit_uri = f"{base.rstrip('/')}/docs/"
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the documents outside of ``docs/``, and the files that the pages load."""
    for source, page in _PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for name in _ADDED:
        files.append(File.generated(config, name, content=(Path(__file__).parent / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Map the links of a document, except in code blocks."""
    name = page.file.src_uri
    pieces, end = [], 0
    for fenced in _FENCED.finditer(markdown):
        pieces += [mapped(markdown[end : fenced.start()], name), fenced[0]]
        end = fenced.end()
    return "".join([*pieces, mapped(markdown[end:], name)])


@event_priority(100)
def on_post_build(config: Any) -> None:
    """Add the ranking of ``search.yaml`` to the index of the search, before its plugin writes the index."""
    entries = {entry["location"]: entry for entry in config.plugins["material/search"].search_index.entries}
    if unknown := {*_SEARCH["words"], *_SEARCH["lower"]} - entries.keys():
        raise PluginError(f"search.yaml: no page or section {', '.join(sorted(unknown))}")
    for location, words in _SEARCH["words"].items():
        entries[location]["tags"] = words.split()
    for location, entry in entries.items():
        if location.partition("#")[0] in _SEARCH["lower"]:
            entry["boost"] = _LOWER_BOOST


def mapped(text: str, page: str) -> str:
    """Return the text of a page with its links mapped to pages."""
    source = next((source for source, name in _PAGES.items() if name == page), f"docs/{page}")

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path.startswith("../") or not (ROOT / path).exists():
            return match[0]  # mkdocs prints a warning
        if (other := page_of(path)) is not None:
            return f"[{label}]({posixpath.relpath(other, posixpath.dirname(page) or '.')}{anchor})"
        if base := os.environ.get("PULLER_SOURCE"):
            return f"[{label}]({base.rstrip('/')}/{path}{anchor})"
        return label

    return _ROW.sub(without_escapes, _LINK.sub(link, text))


def without_escapes(row: re.Match[str]) -> str:
    """Return the row of a table with plain pipes in its code spans."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])


def page_of(path: str) -> str | None:
    """Return the page of a path in the checkout, or ``None``."""
    if path in ("docs/resources", "docs"):
        return {"docs/resources": "resources/common.md", "docs": "index.md"}[path]
    if path.startswith("docs/") and path.endswith((".md", ".svg", ".png")):
        return path.removeprefix("docs/")
    return _PAGES.get(path) or _PAGES.get(f"{path}/README.md")
