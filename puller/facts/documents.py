"""Facts in documents: JSON, YAML, ``key=value`` lines, and the output of a custom fact's executable.

* Every format gives a mapping of plain values whose keys are text, as in JSON.
* The value of ``key=value`` stays text: ``5.10``, ``0644`` and ``no`` are as often versions, modes and countries as
  numbers and booleans. Use JSON or YAML for numbers.
* A dot in a ``key`` leads into the tree: ``site.rack=b4`` is ``{site: {rack: b4}}``.
"""

from __future__ import annotations

import codecs
import os
from contextlib import suppress
from math import isfinite
from typing import Any

from hiera import parsing
from hiera.errors import ExpressionError, HieraError
from hiera.values import parse_path
from puller.facts.fact_values import FactError, merged, nested

_FORMS = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".txt": "txt"}

SIZE_LIMIT = 1 << 20
"""Maximum bytes of a document, and of an executable's output."""

DEPTH_LIMIT = 100
"""Maximum depth of nested mappings and lists."""

_LONGEST_NUMBER = 18  # characters, since a longer number is an identifier
_SHOWN = 80  # characters of a line in a message


def parse(text: bytes, form: str, source: str) -> dict[str, Any]:
    """Return the facts of a document in the ``form`` json, yaml or txt. Raises ``FactError`` that names ``source``."""
    facts = value(text, form, source)
    if not isinstance(facts, dict):
        result = "a list" if isinstance(facts, list) else f"only {facts!r}"
        raise FactError(source, f"holds {result}, expected a mapping of fact names to values")
    return facts


def value(text: bytes, form: str, source: str) -> Any:
    """Return the value of a document in the ``form`` json, yaml or txt. Raises ``FactError`` that names ``source``."""
    _verify_size(text, source)
    return _plain({"json": _json, "yaml": _yaml, "txt": _lines}[form](text, source), source, 1)


def printed(text: bytes, source: str) -> Any:
    """Return the single value in an executable's output: a mapping, a list, a number, or a line of text.

    Raises ``FactError`` that names ``source``, also for empty output and for several lines of plain text.
    """
    _verify_size(text, source)
    if not text.strip():
        raise FactError(source, "is empty, expected a value ({} for an empty mapping)")
    if _is_line_of_text(text):
        return _number_or_text(_decoded(text, source).strip())
    form = "json" if text.lstrip()[:1] == b"[" else form_of_output(text)
    result = value(text, form, source)
    if not isinstance(result, dict | list):
        shown = _shortened(_decoded(text, source).strip())
        raise FactError(source, f"is {shown!r}, expected a mapping, a list or one line of text")
    return result


def read(path: str) -> dict[str, Any]:
    """Return the facts of a file that the user named. An unknown ending means YAML. Raises ``OSError`` too."""
    return parse(content(path), form_of_name(path) or "yaml", path)


def content(path: str) -> bytes:
    """Return the bytes of a file, at most one byte above the size limit of ``parse``. Raises ``OSError``."""
    with open(path, "rb") as stream:
        return stream.read(SIZE_LIMIT + 1)


def form_of_name(path: str) -> str | None:
    """Return the form that follows from the name of a file, or ``None`` for any other name."""
    return _FORMS.get(os.path.splitext(path)[1].lower())


def form_of_output(text: bytes) -> str:
    """Return the format of an executable's output: JSON begins with a brace, ``key=value`` is unambiguous."""
    text = text.removeprefix(codecs.BOM_UTF8)
    if text.lstrip()[:1] == b"{":
        return "json"
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(b"#")]
    return "txt" if all(_is_assignment(line) for line in lines) else "yaml"


def assignment(text: str, source: str) -> dict[str, Any]:
    """Return the tree of a ``key=value`` text. Raises ``FactError``."""
    key, equals, value = text.partition("=")
    try:
        path = parse_path(key.strip())
    except ExpressionError:
        path = ()
    if not equals or not path:
        raise FactError(source, f"is {_shortened(text)!r}, expected NAME=VALUE or NAME.NAME=VALUE")
    return nested([_text(str(step), source) for step in path], _text(value.strip(), source))


def _number_or_text(line: str) -> int | float | str:
    """Return a number if it would be printed the same way. ``5.10`` and ``007`` stay text, such as a version."""
    if len(line) <= _LONGEST_NUMBER and line.isascii():
        for number in (int, float):
            with suppress(ValueError):
                if str(value := number(line)) == line and isfinite(value):
                    return value
    return line


def _is_line_of_text(text: bytes) -> bool:
    """Return whether it is a single line that is not JSON, ``key=value``, or a YAML mapping or list."""
    line = text.strip()
    if b"\n" in line or line[:1] in (b"{", b"[") or _is_assignment(line):
        return False
    return not (line.startswith((b"- ", b"#")) or b": " in line or line.endswith(b":"))


def _is_assignment(line: bytes) -> bool:
    key, equals, _ = line.partition(b"=")
    return bool(equals) and not any(letter in b" \t:\"'[]{}" for letter in key.strip())


def _lines(text: bytes, source: str) -> Any:
    facts: Any = {}
    for number, line in enumerate(_decoded(text, source).removeprefix("\ufeff").splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            facts = merged(facts, assignment(line, f"{source}:{number}"))
    return facts


def _yaml(text: bytes, source: str) -> Any:
    try:
        value = parsing.load_yaml(text, source, limit=SIZE_LIMIT)
    except HieraError as error:
        raise FactError(error.where, error.what) from error
    return {} if value is None else value


def _json(text: bytes, source: str) -> Any:
    try:
        return parsing.load_json(text, source)
    except HieraError as error:
        raise FactError(error.where, error.what) from error


def _decoded(text: bytes, source: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise FactError(f"{source}:{line}", "is not UTF-8 text") from error


def _verify_size(text: bytes, source: str) -> None:
    if len(text) > SIZE_LIMIT:
        raise FactError(source, f"has more than {SIZE_LIMIT} bytes")


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _plain(value: Any, source: str, depth: int) -> Any:
    """Return the value with text for keys. Raises ``FactError`` for values too deep to print, or with unusable text."""
    if depth > DEPTH_LIMIT:
        raise FactError(source, f"is nested more than {DEPTH_LIMIT} deep")
    if isinstance(value, dict):
        return {_text(str(name), source): _plain(below, source, depth + 1) for name, below in value.items()}
    if isinstance(value, list):
        return [_plain(below, source, depth + 1) for below in value]
    return _text(value, source) if isinstance(value, str) else value


def _text(value: str, source: str) -> str:
    # JSON's escapes, and the command line, can contain lone surrogates, which files cannot.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise FactError(source, f"{value!r} is not text") from error
    return value
