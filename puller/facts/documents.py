"""Facts written down: JSON, YAML, ``key=value`` lines, and what the executable of a custom fact prints.

* Every form gives a mapping of plain values whose keys are text, as JSON has them.
* The value of ``key=value`` stays the text that was written: ``5.10``, ``0644`` and ``no`` are as often
  versions, modes and countries as numbers and answers. Who wants a number writes JSON or YAML.
* A dot in a ``key`` leads into the tree: ``site.rack=b4`` is ``{site: {rack: b4}}``.
"""

from __future__ import annotations

import codecs
import os
from contextlib import suppress
from math import isfinite
from typing import Any

from hiera.errors import ExpressionError, HieraError
from hiera.text import json_text, yaml_text
from hiera.values.data_paths import parse_path
from puller.facts.fact_values import FactError, merged, nested

_FORMS = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".txt": "txt"}

SIZE_LIMIT = 1 << 20
"""Bytes of one document; also of what an executable may print."""

DEPTH_LIMIT = 100
"""Mappings and lists inside one another."""

_LONGEST_NUMBER = 18  # characters; a longer one is an identifier
_SHOWN = 80  # characters of a line in a message


def parse(text: bytes, form: str, source: str) -> dict[str, Any]:
    """Facts of a document in the ``form`` json, yaml or txt; raises ``FactError`` that names ``source``."""
    facts = value(text, form, source)
    if not isinstance(facts, dict):
        found = "a list" if isinstance(facts, list) else f"only {facts!r}"
        raise FactError(source, f"holds {found}, wanted a mapping of fact names to values")
    return facts


def value(text: bytes, form: str, source: str) -> Any:
    """Whatever a document in the ``form`` json, yaml or txt holds; raises ``FactError`` that names ``source``."""
    _verify_size(text, source)
    return _plain({"json": _json, "yaml": _yaml, "txt": _lines}[form](text, source), source, 1)


def printed(text: bytes, source: str) -> Any:
    """The one value that an executable has printed: a mapping, a list, a number, or a line of text as it stands there.

    Raises ``FactError`` that names ``source``, also for nothing and for several lines that are only text.
    """
    _verify_size(text, source)
    if not text.strip():
        raise FactError(source, "is empty, wanted a value; {} stands for nothing")
    if _is_line_of_text(text):
        return _number_or_text(_decoded(text, source).strip())
    form = "json" if text.lstrip()[:1] == b"[" else form_of_output(text)
    found = value(text, form, source)
    if not isinstance(found, dict | list):
        shown = _shortened(_decoded(text, source).strip())
        raise FactError(source, f"is {shown!r}, wanted a mapping, a list or one line of text")
    return found


def read(path: str) -> dict[str, Any]:
    """The facts of a file that somebody has named; without a known ending it is YAML. Raises ``OSError`` too."""
    return parse(content(path), form_of_name(path) or "yaml", path)


def content(path: str) -> bytes:
    """The bytes of a file, up to one more than ``parse`` takes; raises ``OSError``."""
    with open(path, "rb") as stream:
        return stream.read(SIZE_LIMIT + 1)


def form_of_name(path: str) -> str | None:
    """The form that the name of a file tells; ``None`` for any other name."""
    return _FORMS.get(os.path.splitext(path)[1].lower())


def form_of_output(text: bytes) -> str:
    """Which form an executable has printed: JSON begins with a brace, ``key=value`` is like no other."""
    text = text.removeprefix(codecs.BOM_UTF8)
    if text.lstrip()[:1] == b"{":
        return "json"
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(b"#")]
    return "txt" if all(_is_assignment(line) for line in lines) else "yaml"


def assignment(text: str, source: str) -> dict[str, Any]:
    """The tree that ``key=value`` stands for; raises ``FactError``."""
    key, equals, value = text.partition("=")
    try:
        path = parse_path(key.strip())
    except ExpressionError:
        path = ()
    if not equals or not path:
        raise FactError(source, f"is {_shortened(text)!r}, wanted NAME=VALUE or NAME.NAME=VALUE")
    return nested([_text(str(step), source) for step in path], _text(value.strip(), source))


def _number_or_text(line: str) -> int | float | str:
    """Return a number if it is written exactly so; ``5.10`` and ``007`` are text, such as a version."""
    if len(line) <= _LONGEST_NUMBER and line.isascii():
        for number in (int, float):
            with suppress(ValueError):
                if str(value := number(line)) == line and isfinite(value):
                    return value
    return line


def _is_line_of_text(text: bytes) -> bool:
    """Whether it is one line that neither JSON, nor ``key=value``, nor a mapping or list of YAML would be."""
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
        value = yaml_text.load(text, source, limit=SIZE_LIMIT)
    except HieraError as error:
        raise FactError(error.where, error.what) from error
    return {} if value is None else value


def _json(text: bytes, source: str) -> Any:
    try:
        return json_text.load(text, source)
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
        raise FactError(source, f"is longer than the {SIZE_LIMIT} bytes that are read")


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _plain(value: Any, source: str, depth: int) -> Any:
    """With text for keys, and nothing in it that could not be printed or walked through later."""
    if depth > DEPTH_LIMIT:
        raise FactError(source, f"is nested more than {DEPTH_LIMIT} deep")
    if isinstance(value, dict):
        return {_text(str(name), source): _plain(below, source, depth + 1) for name, below in value.items()}
    if isinstance(value, list):
        return [_plain(below, source, depth + 1) for below in value]
    return _text(value, source) if isinstance(value, str) else value


def _text(value: str, source: str) -> str:
    # JSON's escapes, and the command line, can bring halves of characters that no file can hold.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise FactError(source, f"{value!r} is not text") from error
    return value
