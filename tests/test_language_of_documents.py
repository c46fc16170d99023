"""Pages are easy to read and to find: limits for their language, short titles, and a navigation of small groups.

The patterns are the frequent marks of hard sentences. Shares are counted per 100 sentences outside of code. Pages in
``UNFINISHED`` exceed a limit. Remove a page from the list after you have revised it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LIMITS = {
    "clause instead of a noun": (
        r"\b(?:[Ww]hat|[Ww]hatever|[Ww]hoever)\s+(?:is|was|are|has|have|it|can|does|an?|the)\b",
        2,
    ),
    "chain of pronouns": (
        r"\bof (?:which|whom|it|them|these|those)\b|\b[Oo]ne (?:that|which|who)\b|\bthose (?:that|who)\b",
        5,
    ),
    "unnamed person": (r"\b(?:[Nn]obody|[Ss]omebody|[Aa]nybody|[Ee]verybody|[Ww]hoever)\b", 0.5),
    "speaking program": (
        r"\b(?:is|are|was|were) (?:told|said|asked|believed)\b|\b(?:says|asks|tells|wants|knows|speaks)\b",
        3,
    ),
    "negated noun": (
        r"\b(?:is|are|was|were|has|have) no(?:thing|ne)?\b|\b[Nn]one\b|\bany more\b|\b[Tt]here (?:is|are)\b",
        4,
    ),
    "semicolon": (r";\s", 5),
    "more than 30 words": (r"^(?:\S+\s+){30,}\S+", 6),
}
UNFINISHED = frozenset(
    (
        "docs/adding-a-type.md",
        "docs/architecture.md",
        "docs/authoring.md",
        "docs/commands.md",
        "docs/composing.md",
        "docs/crash-safety.md",
        "docs/data.md",
        "docs/exports.md",
        "docs/fleet-store.md",
        "docs/fleet.md",
        "docs/health-checks.md",
        "docs/hiera5.md",
        "docs/input.md",
        "docs/keys.md",
        "docs/libraries.md",
        "docs/lint-names.md",
        "docs/lint.md",
        "docs/mirroring.md",
        "docs/mirrors.md",
        "docs/preview.md",
        "docs/publishing.md",
        "docs/pushing.md",
        "docs/recipes.md",
        "docs/resources/apply.md",
        "docs/resources/archive.md",
        "docs/resources/block.md",
        "docs/resources/checkout.md",
        "docs/resources/common.md",
        "docs/resources/cron.md",
        "docs/resources/exec.md",
        "docs/resources/file.md",
        "docs/resources/group.md",
        "docs/resources/kernel_module.md",
        "docs/resources/line.md",
        "docs/resources/link.md",
        "docs/resources/mount.md",
        "docs/resources/package.md",
        "docs/resources/repository.md",
        "docs/resources/scaffold.md",
        "docs/resources/service.md",
        "docs/resources/setting.md",
        "docs/resources/sysctl.md",
        "docs/resources/user.md",
        "docs/rollouts.md",
        "docs/secrets.md",
        "docs/security.md",
        "docs/shell.md",
        "docs/templates.md",
        "docs/testing-bundles.md",
        "docs/trials.md",
        "docs/units.md",
    )
)
MOST_WORDS_OF_A_TITLE = 3
MOST_ENTRIES = 9


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page, with code as ``X``."""
    text = re.sub(r"^( *)```.*?^\1```$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"``?[^`]*``?", "X", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    lines = [line for line in text.splitlines() if not line.startswith(("    ", "\t", "#", "<"))]
    cells = [cell for line in lines if line.startswith("|") for cell in line.strip("|").split("|")]
    prose = "\n".join("" if line.startswith("|") else line for line in lines)
    paragraphs = re.split(r"\n\s*\n|\n\s*(?:[*-]|\d+\.) ", f"\n{prose}")
    for paragraph in (*paragraphs, *(cell for cell in cells if len(cell.split()) > 5)):
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z\"'(X*])", " ".join(paragraph.split())):
            if len(sentence.split()) > 3:
                yield sentence


def pages() -> list[Path]:
    return sorted([ROOT / "README.md", *DOCS.rglob("*.md")])


def excesses(page: Path) -> list[str]:
    """Return a description of each exceeded limit, with an example."""
    counted = list(sentences(page.read_text()))
    found = []
    for name, (pattern, limit) in LIMITS.items():
        matches = [sentence for sentence in counted if re.search(pattern, sentence)]
        if len(matches) > max(2, len(counted) * limit / 100):
            found.append(f"{name}: {len(matches)} of {len(counted)} sentences, such as: {matches[0]}")
    title = page.read_text().partition("\n")[0].removeprefix("# ")
    if len(title.split()) > MOST_WORDS_OF_A_TITLE:
        found.append(f"title with more than {MOST_WORDS_OF_A_TITLE} words: {title}")
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_keeps_the_limits(page: Path) -> None:
    name = str(page.relative_to(ROOT))
    if name not in UNFINISHED:
        assert not excesses(page)


def test_unfinished_pages_exist() -> None:
    assert not [name for name in UNFINISHED if not (ROOT / name).exists()]


def groups(entries: list[object]) -> Iterator[list[object]]:
    yield entries
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else ():
            if isinstance(value, list):
                yield from groups(value)


def test_navigation_has_at_most_nine_entries_a_level() -> None:
    text = (ROOT / "packaging/documents/mkdocs.yml").read_text()
    navigation = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    assert not [group for group in groups(navigation) if len(group) > MOST_ENTRIES]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130
