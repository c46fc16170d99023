"""The record of a lookup, made while it goes on.

* Every part of a lookup is given the step it belongs to and adds its own below; ``SILENT`` records nothing.
* The same record is printed for people (in the layout of ``puppet lookup --explain``) and given as data.
* Secrets in it are masked by their own ``repr``.
"""

from collections.abc import Iterator
from typing import Any

from foundation.masking import VALUE_MASK
from hiera.tree.context.absent import ABSENT
from hiera.tree.ruby import values
from hiera.values.secrets import Secret


class Step:
    """One thing that was looked at: its kind, its name, what it gave, and the steps below it."""

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
        """A step below this one."""
        step = Step(kind, name, about)
        self.steps.append(step)
        return step

    def found(self, key: object, value: Any, event: str = "found") -> None:
        """This step gave ``value`` for ``key``; ``event`` may say ``found_in_overrides`` or ``found_in_defaults``."""
        self.event, self.key, self.value = event, str(key), value

    def missing(self, key: object) -> None:
        """This step does not have ``key``."""
        self.event, self.key = "not_found", str(key)

    def skipped(self, event: str) -> None:
        """This step was not looked into: ``location_not_found``, ``module_not_found`` …"""
        self.event = event

    def result(self, value: Any) -> None:
        """The steps below were merged into ``value``."""
        self.event, self.value = "result", value

    def note(self, text: str) -> None:
        """Something to say that is not an outcome."""
        self.notes.append(text)

    def conceal(self) -> None:
        """Mask what was found here and below: the key turned out to be a secret one."""
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
        """The places that gave the last key searched for: the name of each level, and its file or URI."""
        searched = [step for step in self.steps if step.kind == "data"]
        return list(_holders(searched[-1], "")) if searched else []

    def as_data(self) -> dict[str, Any]:
        """This step and those below it as mappings and lists."""
        # As Puppet shows it: a merge of one thing is that thing.
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


# Most lookups are not explained, and should not pay for a record.
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
    """The step that a whole lookup is recorded below."""
    return Step("root", "", {})


def _holders(step: Step, level: str) -> Iterator[tuple[str, str]]:
    if step.kind == "level":
        level = step.name
    if step.kind in ("path", "uri") and step.event == "found":
        yield level, step.name
    for inner in step.steps:
        # Keys that an interpolation looked up on the way have holders of their own.
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
    if step.kind == "merge" and len(step.steps) <= 1:  # a merge of one thing is that thing
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
    return values.inspect(value)
