"""Record of a lookup for ``--explain``, the lookup keys, and ``ABSENT`` for a missing value.

* Each part of a lookup adds its own steps below the step of its caller. ``SILENT`` records nothing.
* The same record is printed for people (in the layout of ``puppet lookup --explain``) and returned as data.
* Secrets in the record are masked by their own ``repr``.
* A key is split into a root and the segments that dig into the value of the root.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from foundation.masking import VALUE_MASK
from hiera.errors import LookupFailure
from hiera.tree import ruby_values
from hiera.values import Secret

# ``ABSENT`` differs from null, which is a value.


class Absent(Enum):
    """The type of ``ABSENT``."""

    ABSENT = 0

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT


class Step:
    """A step of a lookup: its kind, its name, its result, and the steps below it."""

    __slots__ = ("about", "event", "key", "kind", "name", "notes", "steps", "value")

    def __init__(self, kind: str, name: str, about: dict[str, Any]) -> None:
        self.kind = kind
        self.name = name
        self.about = about
        self.event = ""
        self.key = ""
        self.value: Any = ABSENT
        self.notes: list[str] = []
        self.steps: list[Step] = []

    def add(self, kind: str, name: str, **about: Any) -> "Step":
        """Return a new step below this one."""
        step = Step(kind, name, about)
        self.steps.append(step)
        return step

    def found(self, key: object, value: Any, event: str = "found") -> None:
        """Record ``value`` for ``key``. ``event`` can be ``found_in_overrides`` or ``found_in_defaults``."""
        self.event, self.key, self.value = event, str(key), value

    def missing(self, key: object) -> None:
        """Record that ``key`` is missing."""
        self.event, self.key = "not_found", str(key)

    def skipped(self, event: str) -> None:
        """Record that this step was skipped: ``location_not_found``, ``module_not_found`` …"""
        self.event = event

    def result(self, value: Any) -> None:
        """Record ``value`` as the merge of the steps below."""
        self.event, self.value = "result", value

    def note(self, text: str) -> None:
        """Record additional information."""
        self.notes.append(text)

    def conceal(self) -> None:
        """Mask the values here and below, since the key is a secret."""
        if self.value is not ABSENT:
            self.value = Secret(self.value)
        if self.kind == "interpolation":
            self.name = VALUE_MASK
        for step in self.steps:
            step.conceal()

    def __str__(self) -> str:
        lines: list[str] = []
        for step in self.steps:
            _write(step, "", lines)
        lines += self.notes
        return "\n".join(lines)

    def holders(self) -> list[tuple[str, str]]:
        """Return the places of the last key that was searched for: the name of each level, and its file or URI."""
        searched = [step for step in self.steps if step.kind == "data"]
        return list(_holders(searched[-1], "")) if searched else []

    def as_data(self) -> dict[str, Any]:
        """Return this step and its inner steps as mappings and lists."""
        # As in Puppet's output, a merge of a single value is shown as that value.
        if self.kind == "merge" and len(self.steps) == 1:
            return self.steps[0].as_data()
        data: dict[str, Any] = {"type": self.kind, "name": self.name} if self.name else {"type": self.kind}
        data |= self.about
        if self.event:
            data["event"] = self.event
        if self.key:
            data["key"] = self.key
        if self.value is not ABSENT:
            data["value"] = self.value
        if self.notes:
            data["notes"] = self.notes
        if self.steps:
            data["branches"] = [step.as_data() for step in self.steps]
        return data


# Most lookups are not explained and skip the cost of a record.
class _Silent(Step):
    def add(self, kind: str, name: str, **about: Any) -> Step:
        return self

    def found(self, key: object, value: Any, event: str = "found") -> None:
        pass

    def missing(self, key: object) -> None:
        pass

    def skipped(self, event: str) -> None:
        pass

    def result(self, value: Any) -> None:
        pass

    def note(self, text: str) -> None:
        pass


SILENT = _Silent("silent", "", {})


def recorder() -> Step:
    """Return a step for recording a whole lookup."""
    return Step("root", "", {})


def _holders(step: Step, level: str) -> Iterator[tuple[str, str]]:
    if step.kind == "level":
        level = step.name
    if step.kind in ("path", "uri") and step.event == "found":
        yield level, step.name
    for inner in step.steps:
        # Keys that an interpolation looked up have their own holders.
        if inner.kind != "interpolation":
            yield from _holders(inner, level)


_EVENTS = {
    "module_not_found": 'Module "{}" not found',
    "module_provider_not_found": 'Module data provider for module "{}" not found',
}
_TITLES = {
    "data": 'Searching for "{}"',
    "options": 'Searching for "{}"',
    "merge": "Merge strategy {}",
    "path": 'Path "{}"',
    "uri": 'URI "{}"',
    "interpolation": 'Interpolation on "{}"',
    "sub_key": 'Sub key: "{}"',
    "level": 'Hierarchy entry "{}"',
    "invalid_key": 'Invalid key "{}"',
    "merge_source": 'Using merge options from "{}" hash',
}


def _write(step: Step, indent: str, lines: list[str]) -> None:
    if step.kind == "merge" and len(step.steps) <= 1:  # a merge of a single value is that value
        for branch in step.steps:
            _write(branch, indent, lines)
        return
    inner = indent
    if step.kind not in ("segment", "module"):
        lines.append(indent + _TITLES.get(step.kind, "{}").format(step.name))
        inner += "  "
    lines += (inner + line for line in _details(step, inner))
    for branch in step.steps:
        _write(branch, inner, lines)
    lines += (inner + line for line in (*_outcome(step, inner), *step.notes))


def _details(step: Step, indent: str) -> list[str]:
    about = step.about
    if about.get("options"):
        return [f"Options: {_dump(about['options'], indent)}"]
    if about.get("configuration"):
        return [f'Using configuration "{about["configuration"]}"']
    if "original" in about:
        return [f'Original {step.kind}: "{about["original"]}"']
    return []


def _outcome(step: Step, indent: str) -> list[str]:
    if step.event == "not_found":
        return [f'No such key: "{step.key}"']
    if step.event == "result":
        return [f"Merged result: {_dump(step.value, indent)}"]
    if step.event.startswith("found"):
        where = step.event.removeprefix("found").replace("_", " ")
        return [f'Found key: "{step.key}" value: {_dump(step.value, indent)}{where}']
    if step.event == "other_recipients":
        return ["Encrypted for other recipients, and optional"]
    if step.event == "location_not_found":
        return ["Path not found" if step.kind == "path" else "URI not found"]
    return [_EVENTS[step.event].format(step.name)] if step.event else []


def _dump(value: Any, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, dict) and value:
        items = (f"{inner}{_dump(name, inner)} => {_dump(item, inner)}" for name, item in value.items())
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(inner + _dump(item, inner) for item in value) + f"\n{indent}]"
    return ruby_values.inspect(value)


# Lookup keys.
#
# * A key without quotes and dots is its own root.
# * A quoted segment is literal. A segment that looks like a number is an integer, and indexes lists.
# * The text before the first ``::`` of the root is the name of the module.

Segment = str | int

_SEGMENT = re.compile(r"""\s*"[^"]+"\s*|\s*'[^']+'\s*|[^'".]+""", re.ASCII)
_INTEGER = re.compile(r"^:?[+-]?[0-9]+$", re.MULTILINE)
MAX_DIGITS: Final = 3000  # of one number: Python cannot read more than 4300
_BLANKS: Final = "\0\t\n\v\f\r "


class Key(NamedTuple):
    """``a.b.0`` is the root ``a`` and the segments ``b`` and ``0``."""

    text: str
    root: str
    segments: tuple[Segment, ...]

    @property
    def module(self) -> str | None:
        """Return the module whose data may hold the key, or ``None``. A leading ``::`` matches no module."""
        name, result, _ = self.root.partition("::")
        return name or self.root if result else None

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=4096)
def parse(text: str) -> Key:
    """Return ``text`` as a key. Raises ``LookupFailure``."""
    segments = split(text)
    if segments is None:
        raise LookupFailure(text, f"Syntax error in key: '{text}'")
    root = segments[0]
    if isinstance(root, int):
        raise LookupFailure(text, f"a key cannot begin with the number {root}. Quote it")
    return Key(text, root, segments[1:])


def literal(root: str) -> str:
    """Return a key that means ``root`` literally, dots included.

    As in Puppet, a root with both kinds of quotes cannot be written as a key.
    """
    if not any(char in root for char in ".'\""):
        return root
    return f'"{root}"' if '"' not in root else f"'{root}'"


def split(text: str) -> tuple[Segment, ...] | None:
    """Return the segments of ``text``, a key or a variable expression, or ``None`` if it is malformed."""
    if not any(char in text for char in "'\"."):
        return (text,)
    segments: list[Segment] = []
    position = 0
    while match := _SEGMENT.match(text, position):
        segments.append(_segment(match[0].strip(_BLANKS)))
        position = match.end()
        if position == len(text):
            return tuple(segments)
        if text[position] != ".":
            return None
        position += 1
    return None


def _segment(text: str) -> Segment:
    if text.startswith(("'", '"')):
        return text[1:-1]
    if _INTEGER.search(text):
        return 0 if text.startswith(":") else int(text[:MAX_DIGITS])  # Ruby's ":1".to_i is 0
    return text


def dig(text: str, segments: tuple[Segment, ...], value: Any, step: Step) -> Any | Absent:
    """Return the value at ``segments`` inside ``value``. Raises ``LookupFailure`` for a text or number on the path."""
    if not segments:
        return value
    step = step.add("sub_key", ".".join(map(str, segments)))
    for segment in segments:
        # Digging into null is allowed and finds nothing. Digging into a text or number is an error.
        if value is None or not _holds(text, segment, value):
            step.add("segment", str(segment)).missing(segment)
            return ABSENT
        value = value[segment]
        step.add("segment", str(segment)).found(segment, value)
    return value


def _holds(text: str, segment: Segment, value: Any) -> bool:
    if isinstance(value, list) and isinstance(segment, int):
        return 0 <= segment < len(value)
    if not isinstance(value, Mapping):
        detail = f"Got {ruby_values.class_name(value)} when a hash-like object was expected to access value"
        raise LookupFailure(
            text, f"Data Provider type mismatch: {detail} using '{segment}' from key '{text}'"
        )
    return segment in value
