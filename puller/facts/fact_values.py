"""Values of facts: their types and errors, and the record of the values that bundles read.

Fact values, the errors of fact sources, and the time limit for slow sources.

* A value is a mapping, list, text, number, boolean or ``None``. A missing fact is omitted. It never has an empty
  placeholder.
* Mappings are merged deeply. Any other value replaces the earlier one, so a later source can also remove values.
* A source that fails never stops the collection of facts. The fact is omitted, and ``Facts.problems`` contains the
  error. An expression that reads a failed fact of a bundle fails with this error (``bundled.py``).

The facts that the bundles of a run read, for a preview of the fleet.

* Single values are recorded: ``os.family``, not ``os``. A mapping whose keys a bundle lists is recorded completely.
* Missing facts are recorded too, so that a reader can distinguish *the host lacks it* from *the host did not send it*.
* A recorded mapping is a ``dict``, so that expressions, templates and filters treat it as the original one.
* All facts together are never recorded, even if a bundle lists them.

Facts in documents: JSON, YAML, ``key=value`` lines, and the output of a custom fact's executable.

* Every format gives a mapping of plain values whose keys are text, as in JSON.
* The value of ``key=value`` stays text: ``5.10``, ``0644`` and ``no`` are as often versions, modes and countries as
  numbers and booleans. Use JSON or YAML for numbers.
* A dot in a ``key`` leads into the tree: ``site.rack=b4`` is ``{site: {rack: b4}}``.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from contextlib import suppress
from math import isfinite
from typing import Any

from bundles.deadline import Deadline, DeadlineError, aside
from foundation.formatting import text_of
from foundation.problems import Location, Problem, ProblemCode
from hiera import parsing
from hiera.errors import ExpressionError, HieraError
from hiera.values import parse_path
from puller.system import processes

ABSENT: Any = object()
"""A missing fact. ``None`` is a valid value of a custom fact."""


def present(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts without ``None``, which marks missing facts of a built-in source."""
    return {name: value for name, value in facts.items() if value is not None}


def merged(lower: Any, upper: Any) -> Any:
    """Return ``upper`` merged over ``lower``. Both stay unchanged."""
    if not isinstance(lower, dict) or not isinstance(upper, dict):
        return lower if upper is ABSENT else upper
    result = dict(lower)
    for name, value in upper.items():
        result[name] = merged(result.get(name, ABSENT), value)
    return result


def find(facts: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value at a path of names, or ``ABSENT``."""
    value: Any = facts
    for name in path:
        try:
            value = value[name]
        except (KeyError, TypeError, IndexError):
            return ABSENT
    return value


def nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a tree that contains only ``value``, at ``path``."""
    for name in reversed(path):
        value = {name: value}
    result: dict[str, Any] = value
    return result


class FactError(Exception):
    """A fact source that failed. ``str()`` formats its problem: *where: what*."""

    def __init__(self, where: str, what: str, *, is_left_out: bool = False) -> None:
        """``is_left_out``: the fact exists on hosts, but was not gathered here."""
        super().__init__(where, what)
        self.where = where
        self.what = what
        self.is_left_out = is_left_out

    def __str__(self) -> str:
        return text_of(self.problems[0])

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problem as a value."""
        code = ProblemCode.UNDEFINED_FACT if self.is_left_out else ProblemCode.UNAVAILABLE_FACT
        return (Problem(code=code, message=self.what, location=Location(self.where)),)


# Time limit for sources that can hang, such as a dead file server or a silent name service. The source runs in a
# thread, since signals do not interrupt every system call. After the limit, its result is discarded and its thread
# ends with the process.

LIMIT = 5.0
"""Default time limit of a source, in seconds."""


def within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(*arguments)``, with its errors. Raises ``TimeoutError`` after ``seconds``."""
    try:
        return aside(lambda: function(*arguments), Deadline(seconds, processes.check))
    except DeadlineError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None


Path = tuple[Any, ...]
"""The keys that lead to a fact: ``("os", "family")``."""


class FactReads:
    """The facts that were read, by path, in the order of the first access."""

    def __init__(self) -> None:
        self.values: dict[Path, Any] = {}
        """Values, and ``{}`` for mappings of which only some keys were read."""
        self.absent: dict[Path, None] = {}
        self.whole: dict[Path, None] = {}
        """Complete mappings in ``values``."""
        self.is_complete = False
        """Whether the manifests of all bundles were read."""
        self._mappings: dict[Path, RecordedMapping] = {}

    def read(self, path: Path, value: Any) -> Any:
        """Record an access, and return the value. A mapping records further accesses."""
        if not isinstance(value, dict):
            self.values[path] = value
            return value
        self.values.setdefault(path, {})
        mapping = self._mappings.get(path)
        if mapping is None:
            mapping = self._mappings[path] = RecordedMapping(value, self, path)
        return mapping

    def miss(self, path: Path) -> None:
        """Record an access to a missing fact."""
        self.absent[path] = None

    def list_keys(self, path: Path, value: dict[Any, Any]) -> None:
        """Record that all keys of a mapping were read."""
        self.whole[path] = None
        self.values[path] = value


class RecordedMapping(dict[Any, Any]):
    """A mapping in the facts that records each access to it."""

    unlisted = True
    """A template reads only the names that it uses."""

    def __init__(self, values: dict[Any, Any], reads: FactReads, path: Path) -> None:
        super().__init__(values)
        self._plain, self._reads, self._path = values, reads, path

    def __getitem__(self, key: Any) -> Any:
        path = (*self._path, key)
        if not super().__contains__(key):
            self._reads.miss(path)
            raise KeyError(key)
        return self._reads.read(path, super().__getitem__(key))

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        try:
            self[key]
        except KeyError:
            return False
        return True

    def _list(self) -> dict[Any, Any]:
        self._reads.list_keys(self._path, self._plain)
        return self._plain

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list())

    def __reversed__(self) -> Iterator[Any]:
        yield from reversed(self._list())

    def __len__(self) -> int:
        return len(self._list())

    def keys(self) -> KeysView[Any]:  # type: ignore[override]  # the views of the plain mapping
        return self._list().keys()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return self._list().values()

    def items(self) -> ItemsView[Any, Any]:  # type: ignore[override]
        return self._list().items()

    def __eq__(self, other: object) -> bool:
        return self._list() == other

    def __ne__(self, other: object) -> bool:
        return self._list() != other

    __hash__ = None  # as every dict

    def __or__(self, other: Any) -> Any:
        return self._list() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._list()

    def __repr__(self) -> str:
        return repr(self._list())

    def copy(self) -> dict[Any, Any]:
        return self._list().copy()

    def __copy__(self) -> dict[Any, Any]:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        import copy  # 0.7 % of an idle run, which copies no facts

        return copy.deepcopy(self._list(), memo)


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
