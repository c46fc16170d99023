"""The first line of a template of Ansible that says how it is to be read: ``#jinja2: lstrip_blocks: True``.

It is honoured as Ansible does it, and is no part of what comes out. What it cannot say is an error at that line.
"""

from __future__ import annotations

import ast
from typing import Any, Final, NamedTuple

from puller.templates.errors import FunctionError

MARK: Final = "#jinja2:"

_NEWLINES: Final = ("\n", "\r\n", "\r")
_SWITCHES: Final = frozenset({"keep_trailing_newline", "lstrip_blocks", "trim_blocks"})
_MARKS: Final = frozenset(
    f"{what}_{end}_string" for what in ("block", "comment", "variable") for end in ("end", "start")
)
_PREFIXES: Final = frozenset({"line_comment_prefix", "line_statement_prefix"})
_KEYS: Final = tuple(sorted({"newline_sequence", *_SWITCHES, *_MARKS, *_PREFIXES}))


class Header(NamedTuple):
    """A template without its first line, and what that line says, as options of Jinja2."""

    text: str
    options: dict[str, Any]


def read_header(text: str) -> Header | None:
    """The header of a template; None for one that has none.

    Raises FunctionError for what Ansible's headers cannot say.
    """
    if not text.startswith(MARK):
        return None
    line, newline, rest = text.partition("\n")
    if not newline:
        raise FunctionError(f"{MARK} is a line of its own, with the template below it")
    options = dict(_option(pair) for pair in line.removeprefix(MARK).rstrip("\r").split(","))
    # A file ends as its template does, whatever this says: so it is with Ansible.
    options.pop("keep_trailing_newline", None)
    return Header(rest, options)


def _option(pair: str) -> tuple[str, Any]:
    key, colon, written = (part.strip() for part in pair.partition(":"))
    if not colon:
        raise FunctionError(f"{MARK} has {pair.strip()!r}, wanted key: value, with commas between")
    if key not in _KEYS:
        raise FunctionError(f"{MARK} has {key!r}, which cannot be said here, only {', '.join(_KEYS)}")
    try:
        value = ast.literal_eval(written)
    except (MemoryError, RecursionError, SyntaxError, ValueError):
        value = None
    if (wanted := _wanted(key, value)) is not None:
        raise FunctionError(f"{MARK} {key} is {written}, wanted {wanted}")
    return key, value


def _wanted(key: str, value: Any) -> str | None:
    """What a value should be; None for one that is right."""
    if key in _SWITCHES:
        return None if isinstance(value, bool) else "True or False"
    if key == "newline_sequence":
        return None if value in _NEWLINES else r"'\n', '\r\n' or '\r'"
    return None if isinstance(value, str) and value.strip() else "text in quotes"
