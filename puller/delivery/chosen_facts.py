"""The facts that go along with a report, as plain values.

* A fact that is not there, cannot be gathered, or is no plain value is left out; it is never the failure of the run.
* Nothing else is gathered than what is asked for.
"""

from collections.abc import Iterable, Mapping
from typing import Any

_DEEPEST = 16
_LONGEST = 4096  # characters of one text


def chosen_facts(facts: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The facts at these dotted paths, nested as in expressions."""
    found: dict[str, Any] = {}
    for name in names:
        steps = name.split(".")
        value = _at(facts, steps)
        if value is not _ABSENT:
            _put(found, steps, value)
    return found


_ABSENT: Any = object()


def _at(facts: Mapping[str, Any], steps: list[str]) -> Any:
    value: Any = facts
    for step in steps:
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except Exception:  # noqa: BLE001  facts are gathered now, by whatever code somebody has put there
            return _ABSENT
    return _plain(value, 0)


def _put(found: dict[str, Any], steps: list[str], value: Any) -> None:
    for step in steps[:-1]:
        inner = found.setdefault(step, {})
        if not isinstance(inner, dict):  # the whole of it is there already
            return
        found = inner
    there = found.get(steps[-1])
    if isinstance(there, dict) and isinstance(value, dict):
        value = {**there, **value}
    found[steps[-1]] = value


def _plain(value: Any, depth: int) -> Any:
    """A value that JSON has, of its own: what is kept of it is not changed by anybody else."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return printable(value[:_LONGEST])
    if depth >= _DEEPEST:
        return _ABSENT
    if isinstance(value, Mapping):
        items = ((printable(str(key)), _plain(item, depth + 1)) for key, item in value.items())
        return {key: item for key, item in items if item is not _ABSENT}
    if isinstance(value, list | tuple):
        items_of_list = (_plain(item, depth + 1) for item in value)
        return [item for item in items_of_list if item is not _ABSENT]
    return _ABSENT


def printable(text: str) -> str:
    """A text that can be written as UTF-8: bytes of the system that are no text are written out."""
    return text.encode(errors="backslashreplace").decode()
