#!/usr/bin/env python3
"""Counts of constructions that make texts hard to read, in messages, docstrings, comments and pages.

    python -m tests.plain_english [--worst N] [--kind KIND] [UNIT...]

It prints the number of each construction in 100 sentences, for each unit: a folder of the product, or a page. A unit
above ``LIMITS`` fails ``test_plain_english.py``. Lower the limits when texts improve.
"""

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

from tests.messages import PACKAGES, ROOT, texts

_VERB: Final = (
    r"(?:is|are|was|were|has|have|had|can|cannot|must|may|does|do|did|will|would|should|it|they|you|an?|the)"
)
CONSTRUCTIONS: Final[Mapping[str, re.Pattern[str]]] = {
    # "what is left behind": write a noun, such as "leftover resources"
    "clause": re.compile(
        rf"\b(?:what|whatever|whoever)\s+{_VERB}\b|\b(?:by|of|to|for|with|from) whom\b", re.I
    ),
    # "one that is killed, of which the other": repeat the noun
    "pronoun": re.compile(
        r"\b(?:that|those|ones?) of\b|\bof (?:which|whom|it|them|these|those)\b|\bones? (?:that|which|who|of)\b"
        r"|\bthe (?:others?|former|latter)\b|\bthose (?:that|which|who)\b",
        re.I,
    ),
    # "nobody may write it": name the role
    "somebody": re.compile(r"\b(?:no|some|any|every)body\b|\b(?:some|any)one\b|\bwhoever\b", re.I),
    # "the index says": programs print, return and report
    "personified": re.compile(
        r"\b(?:is|are|was|were|be|been) (?:told|said|asked|believed|given(?! up)|meant)\b"
        r"|\b(?:says|asks|tells|believes|wants|knows|minds|speaks|sees|thinks)\b"
    ),
    # "there is no such key": write "unknown key"
    "negated": re.compile(
        r"\b(?:is|are|was|were|has|have) no(?:thing|ne)?\b|\b(?:any|no) more\b|\bthere (?:is|are|was|were)\b"
        r"|\bnothing (?:is|of|that|else)\b",
        re.I,
    ),
    # Two sentences are easier to read.
    "semicolon": re.compile(r";\s"),
}

Limits = Mapping[str, float]

LIMITS: Final[Mapping[str, Limits]] = {
    "messages": {
        "clause": 1, "pronoun": 2.5, "somebody": 0.5, "personified": 2, "negated": 4, "semicolon": 2,
    },
    "docstrings": {
        "clause": 2, "pronoun": 4, "somebody": 0.5, "personified": 3, "negated": 4, "semicolon": 3,
    },
    "comments": {
        "clause": 2, "pronoun": 4, "somebody": 1, "personified": 3, "negated": 4, "semicolon": 5,
    },
    "pages": {
        "clause": 2, "pronoun": 5, "somebody": 0.5, "personified": 3, "negated": 4, "semicolon": 5,
    },
}  # fmt: skip
"""The highest number of each construction in 100 sentences."""

_ACCIDENTS: Final = 2
"""Further occurrences that each unit may have, because a share of few sentences is accidental."""


class Sentence(NamedTuple):
    """One sentence with its place."""

    unit: str
    """The folder or page."""
    place: str
    """``path:line``."""
    text: str

    @property
    def constructions(self) -> list[str]:
        """The constructions in it."""
        return [name for name, pattern in CONSTRUCTIONS.items() if pattern.search(self.text)]


def sentences_of(kind: str) -> list[Sentence]:
    """Return all sentences of a kind of text."""
    return {"messages": _messages, "docstrings": _docstrings, "comments": _comments, "pages": _pages}[kind]()


def excess(kind: str) -> dict[str, list[str]]:
    """Return the units of a kind that are above a limit, each with the constructions."""
    units: dict[str, list[Sentence]] = {}
    for sentence in sentences_of(kind):
        units.setdefault(sentence.unit, []).append(sentence)
    over = {unit: _excess(sentences, LIMITS[kind]) for unit, sentences in units.items()}
    return {unit: names for unit, names in over.items() if names}


def _excess(sentences: list[Sentence], limits: Limits) -> list[str]:
    counts = Counter(name for sentence in sentences for name in sentence.constructions)
    return [
        f"{name}: {counts[name]} of {len(sentences)}"
        for name, limit in limits.items()
        if counts[name] > _ACCIDENTS + limit * len(sentences) / 100
    ]


def split(text: str) -> Iterator[str]:
    """Yield the sentences of a paragraph with at least four words. Code becomes ``X``."""
    text = " ".join(re.sub(r"``?[^`]*``?|\{[^{}]*\}", "X", text).split())
    yield from (part for part in re.split(r"(?<=[.!?:]) +(?=[A-Z\"'(*])", text) if len(part.split()) >= 4)


@cache
def _messages() -> list[Sentence]:
    return [
        Sentence(_folder(text.path), f"{text.path}:{text.line}", sentence)
        for text in texts()
        if text.kind != "field"
        for sentence in split(text.text)
    ]


@cache
def _docstrings() -> list[Sentence]:
    return [
        Sentence(_folder(name), f"{name}:{node.lineno}", sentence)
        for name, source in _modules().items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for paragraph in re.split(r"\n\s*\n|\n\s*[*-] ", node.value.value)
        for sentence in split(paragraph)
    ]


@cache
def _comments() -> list[Sentence]:
    return [
        Sentence(_folder(name), f"{name}:{source[: block.start()].count(chr(10)) + 1}", sentence)
        for name, source in _modules().items()
        for block in re.finditer(r"(?:^[ \t]*# (?!noqa|type:|mypy|ruff|fmt).*\n)+", source, re.M)
        for sentence in split(re.sub(r"^[ \t]*# ", "", block[0], flags=re.M))
    ]


@cache
def _modules() -> dict[str, str]:
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


@cache
def _pages() -> list[Sentence]:
    pages = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    return [
        Sentence(name := str(page.relative_to(ROOT)), f"{name}:{number}", sentence)
        for page in pages
        if page.name != "CHANGELOG.md"
        for number, paragraph in paragraphs(page.read_text(encoding="utf-8"))
        for sentence in split(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph))
    ]


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs, list items and cells of tables of a page, with their lines. Code is left out."""
    is_code, block, start = False, list[str](), 0
    for number, line in enumerate([*page.splitlines(), ""], start=1):
        if is_fence := line.lstrip().startswith("```"):
            is_code = not is_code
        is_item = re.match(r"\s*([*-]|\d+\.) ", line) is not None
        is_prose = not (is_fence or is_code or line.startswith(("    ", "|", "#", "<")) or not line.strip())
        if block and (is_item or not is_prose):
            yield start, " ".join(block)
            block = []
        if line.startswith("|") and not is_code:
            yield from ((number, cell) for cell in line.strip("|").split("|"))
        elif is_prose:
            start = start if block else number
            block.append(re.sub(r"^\s*([*-]|\d+\.) ", "", line).strip())


def _folder(name: str) -> str:
    """Return ``puller/run`` for a module in it, and the package for all modules of another package."""
    package, *inner = name.split("/")
    return f"{package}/{inner[0]}" if package == "puller" and len(inner) > 1 else package


def _print(kind: str, units: Iterable[str], worst: int) -> None:
    chosen = [item for item in sentences_of(kind) if not units or item.unit.startswith(tuple(units))]
    counts = Counter(name for sentence in chosen for name in sentence.constructions)
    shares = ", ".join(f"{name} {100 * counts[name] / len(chosen):.1f}" for name in CONSTRUCTIONS if chosen)
    print(f"{kind} ({len(chosen)} sentences): {shares}")
    over = excess(kind)
    for unit, names in over.items():
        if not units or unit.startswith(tuple(units)):
            print(f"  {unit}: {', '.join(names)}")
    for sentence in sorted(chosen, key=lambda item: -len(item.constructions))[:worst]:
        print(f"  {sentence.place}: [{', '.join(sentence.constructions)}] {sentence.text[:200]}")


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description="Count constructions that make texts hard to read.")
    parser.add_argument("units", nargs="*", help="only these folders and pages")
    parser.add_argument("--worst", type=int, default=0, help="also print this number of sentences")
    parser.add_argument("--kind", choices=tuple(LIMITS))
    options = parser.parse_args()
    for kind in [options.kind] if options.kind else LIMITS:
        _print(kind, options.units, options.worst)


if __name__ == "__main__":
    main()
