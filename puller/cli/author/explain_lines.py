"""Explanations of keys and resources as lines for people; ``--format json`` has the same values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from puller.values.visible import visible, visible_json

_COLOURS = {"stable": "green", "changed": "yellow", "refreshed": "yellow", "failed": "red", "skipped": "cyan"}


def key_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A key in one bundle: its value, and below it every source, the one that decided in colour."""
    where = f"{found['bundle']}, {found['manifest']}" if "manifest" in found else found["bundle"]
    yield _styled(f"{found['key']} in {where}: ", bold=True) + _outcome(found)
    decided = False
    for source in found["sources"]:
        is_first = source["found"] and not decided
        decided = decided or is_first
        yield visible(f"  {source['source']} {source['name']}: ") + _outcome(source, dim=not is_first)
        yield from (visible(f"    from {place}") for place in source.get("from", ()))
        yield from (_styled(f"    {text}", dim=True) for text in source.get("expressions", ()))
        yield from _used(source.get("inputs", ()), "    ")
        yield from (visible(f"    {sentence}") for sentence in source.get("hierarchy", ()))
        yield from (_styled(f"    {line}", dim=True) for line in source.get("lines", ()))


def _outcome(found: Mapping[str, Any], *, dim: bool = False) -> str:
    if "error" in found:
        return _styled(str(found["error"]), fg="red")
    if not found["found"]:
        return _styled("does not have it", dim=True) if "source" in found else "nothing has it"
    return _styled(_text(found["value"]), fg=None if dim else "green")


def resource_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A resource in one bundle: declaration, properties, the values that it uses, and the last run."""
    yield _styled(f"{found['resource']} in {found['bundle']}", bold=True)
    yield visible(f"  declared at {', '.join([found['declared'], *found.get('also_declared', ())])}")
    if "item" in found:
        yield visible(f"  {found['item']}")
    yield from (visible(f"  applied {sentence}") for sentence in found.get("applied", ()))
    if "failure" in found:
        yield "  cannot be applied on this host: " + _styled(found["failure"], fg="red")
    else:
        yield "  properties"
        yield from (f"    {visible(name)}: {_text(value)}" for name, value in found["properties"].items())
    if found["uses"]:
        yield "  uses"
        yield from _used(found["uses"], "  ")
    if "on_record" in found:
        yield "  on record"
        yield from (visible(f"    {sentence}") for sentence in found["on_record"])
    for name in ("requires", "subscribes", "reloads_for", "refreshes", "below"):
        yield from (visible(f"  {name.replace('_', ' ')} {reference}") for reference in found.get(name, ()))
    yield from _last_run_lines(found.get("last_run"))


def _used(uses: Iterable[Mapping[str, Any]], indent: str) -> Iterator[str]:
    for use in uses:
        yield f"{indent}  {_use(use)}"
        yield from (visible(f"{indent}    from {place}") for place in use.get("from", ()))


def _use(use: Mapping[str, Any]) -> str:
    if "whole" in use:
        return visible(f"{use['name']}: as a whole")
    return f"{visible(use['name'])}: {_text(use['value']) if 'value' in use else 'is not there'}"


def _last_run_lines(last: Mapping[str, Any] | None) -> Iterator[str]:
    if last is None:
        return
    colour = _COLOURS.get(last["state"])
    yield visible(f"  last run {last['finished']} ({last['version']}): ") + _styled(last["state"], fg=colour)
    if "held" in last:
        yield visible(f"    held: {last['held']}")
    yield from (visible(f"    {sentence}") for sentence in last.get("why", ()))


def _text(value: Any) -> str:
    return visible_json(json.dumps(value, ensure_ascii=False, default=str))


def _styled(text: str, **style: Any) -> str:
    """Return a text in colour; nothing in the text itself can be a command of the terminal."""
    return click.style(visible(text), **style)
