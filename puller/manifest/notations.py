"""Expressions in the notation of another tool, which are ordinary text here.

CCM uses ``${ … }`` beside ``{{ … }}``. Shells, systemd and others use ``${NAME}``, which is not an expression there.
Parameter expansions of shells are skipped, except in the order of a hierarchy.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hiera.errors import HieraError
from hiera.text import yaml_text

Path = tuple[str | int, ...]

_ANY: Final = re.compile(r"\$\{[^{}][^}]*\}")
_NAME: Final = r"(?!(?:Facts|Data|Environ)\b)[A-Za-z_]\w*|\d+|[@*#?$!-]"
_OF_SHELL: Final = re.compile(rf"\$\{{[#!]?(?:{_NAME})(?:\[[^]]*\])?(?:\}}|:?[-=+?:#%/^,@])", re.ASCII)
_OF_TEXT: Final = re.compile(r"\$\{\s*(?:(?:[Dd]ata|[Ff]acts|[Ee]nviron)\.|lookup\s*\()[^{}\n]*\}")
"""Names of shell parameters never contain a dot."""
_LONGEST: Final = 60  # characters of an excerpt


def find_foreign(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each expression of CCM in a YAML text. Empty for invalid YAML."""
    if "${" not in text:
        return
    try:
        value = yaml_text.load(text, "")
    except HieraError:
        return
    for path, found in _walk(value, ()):
        first, *more = found.splitlines()
        shown = f"{first[:_LONGEST]}…" if more or len(first) > _LONGEST else first
        yield yaml_text.locate(text, path)[0], shown


def find_foreign_in_template(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the line, column and text of each expression of CCM in a template. Its own notations are skipped."""
    for found in _OF_TEXT.finditer(text):
        before = text.rfind("\n", 0, found.start())
        yield text.count("\n", 0, found.start()) + 1, found.start() - before, found[0][:_LONGEST]


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield from ((path, found) for found in _expressions(value, path))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(key, (*path, key)) if isinstance(key, str) else ()
            yield from _walk(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index))


def _expressions(text: str, path: Path) -> Iterator[str]:
    in_order = path[:2] == ("hierarchy", "order")
    for found in _ANY.finditer(text):
        if in_order or not _OF_SHELL.match(found[0]):
            yield found[0]
