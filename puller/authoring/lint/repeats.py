"""Findings that say again what another says better: of a name that is wrong, that its resource fails, too."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.sentences import FAILED

_OF_NAMES: Final = frozenset({"expression-syntax", "unknown-function", "unknown-name"})
_OF_FILES: Final = frozenset({"missing-file", "template-syntax"})
_OF_RESOLVING: Final = frozenset({FAILED, "manifest", "resource-fails"})
_FILE: Final = re.compile(r"[\w.@+-]*[./][\w./@+-]*\w")
_QUOTED: Final = re.compile(r"'[^']+'")
_FACT: Final = re.compile(r"\bfacts\.(\w+)")
_PLACE: Final = re.compile(r"([^\s/:]+):(\d+):")


def without_repeats(findings: Iterable[Finding]) -> list[Finding]:
    """The findings without those of resolving that come of a name, or an expression, that is wrong in any case.

    Of a fact that is not at hand the resource tells that needs it.
    """
    found = list(findings)
    needed = {
        (one.place.file, fact) for one in found if one.rule == FAILED for fact in _FACT.findall(one.message)
    }
    found = [one for one in found if one.severity is not Severity.UNCHECKED or not _needs(one, needed)]
    words: dict[tuple[str, int], set[str]] = defaultdict(set)
    for one in found:
        if one.rule in _OF_NAMES and one.severity is Severity.ERROR:
            word = _QUOTED.search(one.message)
            words[os.path.basename(one.place.file), one.place.line].add(
                one.message if one.rule == "expression-syntax" or word is None else word[0]
            )
    for one in found:
        if one.rule in _OF_FILES:
            words[os.path.basename(one.place.file), one.place.line].update(_files_of(one))
    return [one for one in found if not (one.rule in _OF_RESOLVING and _is_said(one, words))]


def _files_of(one: Finding) -> Iterator[str]:
    """The names of files that the failure names, too, which comes of one that is missing or is no template."""
    yield from _FILE.findall(one.message)
    if one.rule == "template-syntax":
        yield f"{os.path.basename(one.place.file)}:{one.place.line}:"


def _needs(one: Finding, needed: set[tuple[str, str]]) -> bool:
    """Whether a resource tells of all facts that are named here; what only it says is kept."""
    return one.rule in _OF_NAMES and any(
        (one.place.file, fact) in needed for fact in _FACT.findall(one.message)
    )


def _is_said(one: Finding, words: dict[tuple[str, int], set[str]]) -> bool:
    return any(word in one.message for place in _places(one) for word in words.get(place, ()))


def _places(one: Finding) -> Iterator[tuple[str, int]]:
    """Where it is, and the places of templates that its sentence names."""
    yield os.path.basename(one.place.file), one.place.line
    for file, line in _PLACE.findall(one.message):
        yield file, int(line)
