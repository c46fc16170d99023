"""The notation ``${ … }`` of CCM for expressions.

* It is an expression in a document with a ``ccm`` section, and in ``hierarchy.order`` of every document.
* Elsewhere it is ordinary text.
* Parameter expansions of shells, such as ``${NAME}``, are ordinary text everywhere except in ``hierarchy.order``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from hiera.errors import HieraError
from hiera.text import parsing

Path = tuple[str | int, ...]

_ANY: Final = re.compile(r"\$\{[^{}][^}]*\}")
_NAME: Final = r"(?!(?:Facts|Data|Environ)\b)[A-Za-z_]\w*|\d+|[@*#?$!-]"
_OF_SHELL: Final = re.compile(rf"\$\{{[#!]?(?:{_NAME})(?:\[[^]]*\])?(?:\}}|:?[-=+?:#%/^,@])", re.ASCII)
_OF_TEXT: Final = re.compile(r"\$\{\s*(?:(?:[Dd]ata|[Ff]acts|[Ee]nviron)\.|lookup\s*\()[^{}\n]*\}")
"""Names of shell parameters never contain a dot."""
_LONGEST: Final = 60  # characters of an excerpt


SECTION: Final = "ccm"
"""The section of CCM's manifests with the keys of a run."""

ORDER: Final[Path] = ("hierarchy", "order")


class Foreign(NamedTuple):
    """An expression of CCM in a YAML text."""

    line: int
    text: str
    """The expression, shortened."""
    replacement: str
    is_evaluated: bool
    """Whether it is an expression at this place, and not ordinary text."""


def find_foreign(text: str) -> Iterator[Foreign]:
    """Yield each expression of CCM in a YAML text. Empty for invalid YAML."""
    if "${" not in text:
        return
    try:
        value = parsing.load_yaml(text, "")
    except HieraError:
        return
    is_of_ccm = isinstance(value, dict) and SECTION in value
    for path, expression in _walk(value, ()):
        is_evaluated = is_of_ccm or _is_in_order(path)
        line = parsing.locate(text, path)[0]
        replacement = re.sub(" {2,}", " ", _replacement(expression))
        yield Foreign(line, _shown(expression), _shown(replacement), is_evaluated)


def converted(value: Any, path: Path = ()) -> Any:
    """Return a value of a document with the expressions of CCM in Puller's notation, keys included."""
    if isinstance(value, str):
        return _converted_text(value, path) if "${" in value else value
    if isinstance(value, Mapping):
        return {
            converted(key, (*path, key)) if isinstance(key, str) else key: converted(item, (*path, key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [converted(item, (*path, index)) for index, item in enumerate(value)]
    return value


def _converted_text(text: str, path: Path) -> str:
    in_order = _is_in_order(path)
    return _ANY.sub(
        lambda match: _replacement(match[0]) if in_order or _is_foreign(match[0]) else match[0], text
    )


def _replacement(expression: str) -> str:
    from hiera.document.annotations import in_words  # rarely needed

    return f"{{{{ {in_words(expression[2:-1].strip())} }}}}"


def _shown(expression: str) -> str:
    first, *additional = expression.splitlines()
    return f"{first[:_LONGEST]}…" if additional or len(first) > _LONGEST else first


def find_foreign_in_template(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the line, column and text of each expression of CCM in a template. Its own notations are skipped."""
    for match in _OF_TEXT.finditer(text):
        before = text.rfind("\n", 0, match.start())
        yield text.count("\n", 0, match.start()) + 1, match.start() - before, match[0][:_LONGEST]


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield from ((path, expression) for expression in _expressions(value, path))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(key, (*path, key)) if isinstance(key, str) else ()
            yield from _walk(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index))


def _expressions(text: str, path: Path) -> Iterator[str]:
    in_order = _is_in_order(path)
    for match in _ANY.finditer(text):
        if in_order or _is_foreign(match[0]):
            yield match[0]


def _is_in_order(path: Path) -> bool:
    return path[:2] == ORDER


def _is_foreign(expression: str) -> bool:
    return not _OF_SHELL.match(expression)
