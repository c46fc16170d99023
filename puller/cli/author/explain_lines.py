"""Explanations of keys and resources as lines for people; ``--format json`` has the same values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

_COLOURS = {"stable": "green", "changed": "yellow", "refreshed": "yellow", "failed": "red", "skipped": "cyan"}


def key_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A key in one bundle: its value, and below it every source, the one that decided in colour."""
    where = f"{found['bundle']}, {found['manifest']}" if "manifest" in found else found["bundle"]
    yield click.style(f"{found['key']} in {where}: ", bold=True) + _outcome(found)
    decided = False
    for source in found["sources"]:
        is_first = source["found"] and not decided
        decided = decided or is_first
        yield f"  {source['source']} {source['name']}: {_outcome(source, dim=not is_first)}"
        yield from (f"    from {place}" for place in source.get("from", ()))
        yield from (f"    {sentence}" for sentence in source.get("hierarchy", ()))
        yield from (click.style(f"    {line}", dim=True) for line in source.get("lines", ()))


def _outcome(found: Mapping[str, Any], *, dim: bool = False) -> str:
    if "error" in found:
        return click.style(str(found["error"]), fg="red")
    if not found["found"]:
        return click.style("does not have it", dim=True) if "source" in found else "nothing has it"
    return click.style(_text(found["value"]), fg=None if dim else "green")


def resource_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A resource in one bundle: declaration, properties, the values that it uses, and the last run."""
    yield click.style(f"{found['resource']} in {found['bundle']}", bold=True)
    yield f"  declared at {', '.join([found['declared'], *found.get('also_declared', ())])}"
    if "item" in found:
        yield f"  {found['item']}"
    yield from (f"  applied {sentence}" for sentence in found.get("applied", ()))
    if "failure" in found:
        yield "  cannot be applied on this host: " + click.style(found["failure"], fg="red")
    else:
        yield "  properties"
        yield from (f"    {name}: {_text(value)}" for name, value in found["properties"].items())
    if found["uses"]:
        yield "  uses"
        for use in found["uses"]:
            yield f"    {_use(use)}"
            yield from (f"      from {place}" for place in use.get("from", ()))
    if "on_record" in found:
        yield "  on record"
        yield from (f"    {sentence}" for sentence in found["on_record"])
    for name in ("requires", "subscribes", "reloads_for", "refreshes", "below"):
        yield from (f"  {name.replace('_', ' ')} {reference}" for reference in found.get(name, ()))
    yield from _last_run_lines(found.get("last_run"))


def _use(use: Mapping[str, Any]) -> str:
    if "whole" in use:
        return f"{use['name']}: as a whole"
    return f"{use['name']}: {_text(use['value']) if 'value' in use else 'is not there'}"


def _last_run_lines(last: Mapping[str, Any] | None) -> Iterator[str]:
    if last is None:
        return
    colour = _COLOURS.get(last["state"])
    yield f"  last run {last['finished']} ({last['version']}): " + click.style(last["state"], fg=colour)
    if "held" in last:
        yield f"    held: {last['held']}"
    yield from (f"    {sentence}" for sentence in last.get("why", ()))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
