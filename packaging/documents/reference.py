#!/usr/bin/env python3
"""Writes the generated reference pages: ``docs/commands.md``, ``docs/configuration.md`` and ``docs/limits.md``.

Their sources are ``--help``, the structs of the configuration, and constants. Run ``python
packaging/documents/reference.py`` after a change of either. A test compares the pages.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from inspect import cleandoc
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union

import click
import msgspec

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "packaging"), str(ROOT)]

from manual.commands import commands, summary_of  # noqa: E402  # needs the path above

from foundation.times import Duration  # noqa: E402
from hiera.values import Secret  # noqa: E402
from puller.cli.command_table import LazyGroup, cli  # noqa: E402
from puller.config.configuration import (  # noqa: E402
    BundleChoice,
    Configuration,
    HttpOptions,
    ReportOptions,
    SpoolOptions,
)
from puller.config.report_destinations import DestinationOptions  # noqa: E402
from puller.resources.registry import type_names  # noqa: E402
from puller.values.maintenance import Window  # noqa: E402

_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "": Configuration,
    "bundles": BundleChoice,
    "windows": Window,
    "http": HttpOptions,
    "reports": ReportOptions,
    "reports.to": DestinationOptions,
    "reports.spool": SpoolOptions,
}
Command = tuple[tuple[str, ...], click.Command, click.Context]
_ENSURE = ("puller", "ensure")
_IN_EACH = ("--color", "--help")
"""Options of every command, which the head of the page describes."""
_TYPES = {str: "text", int: "number", bool: "`true` or `false`", Duration: "duration", Secret: "text, secret"}
_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("MB", 10**6), ("KiB", 1 << 10), ("bytes", 1))
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def pages() -> dict[str, str]:
    """Return the text of each page by its name in ``docs/``."""
    return {
        "commands.md": _commands_page(),
        "configuration.md": _configuration_page(),
        "limits.md": _limits_page(),
    }


def _commands_page() -> str:
    listed = [command for command in commands(cli) if not _is_of_a_type(command[0])]
    pieces = [
        "# Commands",
        "This page contains the help of every command, as `puller COMMAND --help` prints it. It is generated.",
        "Every command accepts `--help`, and `--color auto|always|never` for "
        "[colour](operating.md#colour-and-progress). [Exit statuses](exit-statuses.md) apply to all commands.",
        _table(("command", "purpose"), _overview(listed)),
    ]
    for path, command, context in listed[1:]:
        pieces += [f"## {' '.join(path)}", *_command(path, command, context)]
    return "\n\n".join(pieces) + "\n"


def _overview(listed: Sequence[Command]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each heading of ``puller --help``, and for each command below it."""
    headings = cli.headings if isinstance(cli, LazyGroup) else {}
    for heading, names in headings.items():
        yield f"**{heading}**", ""
        for path, command, _ in listed:
            if path[1:2] and path[1] in names:
                yield _link(path), _cell(summary_of(command))


def _is_of_a_type(path: tuple[str, ...]) -> bool:
    """Return whether a command is ``puller ensure TYPE``. Its options are on the page of the type."""
    return path[:-1] == _ENSURE and path[-1] in type_names()


def _link(path: tuple[str, ...]) -> str:
    return f"[{' '.join(path)}](#{'-'.join(path)})"


def _command(path: tuple[str, ...], command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"```text\n{' '.join((*path, *command.collect_usage_pieces(context)))}\n```"
    for part in re.split(r"\n\s*\n", cleandoc(command.help or "").strip("\n")):
        if part.lstrip().startswith("\b"):
            yield f"```text\n{part.lstrip().removeprefix(chr(8)).strip(chr(10))}\n```"
        else:
            yield _prose(" ".join(part.split()))
    if isinstance(command, click.Group):
        names = [name for name in command.list_commands(context) if not _is_of_a_type((*path, name))]
        yield "Commands: " + ", ".join(_link((*path, name)) for name in names) + "."
        if path == _ENSURE:
            yield "A command for each [resource type](resource-types.md) has the properties of the type as options."
    options = (parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option))
    records = [
        record
        for option in options
        if not set(option.opts) & set(_IN_EACH) and (record := option.get_help_record(context))
    ]
    if records:
        yield _table(("option", "meaning"), ((_code(names), _cell(text)) for names, text in records))


def _prose(text: str) -> str:
    """Escape the markup of Markdown outside of code."""
    fields = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if number % 2 else re.sub(r"([*_<\[\]])", r"\\\1", part) for number, part in enumerate(fields)
    )


def _cell(text: str) -> str:
    return _prose(" ".join(text.split())).replace("|", "\\|")


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def _configuration_page() -> str:
    texts: Mapping[str, Mapping[str, str]] = msgspec.yaml.decode(
        Path(__file__).with_name("configuration.yaml").read_bytes()
    )
    pieces = [
        "# Configuration",
        "`/etc/puller/config.yaml` sets the site, the bundles and the behaviour of a host. `puller config sample` "
        "prints a commented example, and `puller config check` checks a file. This page is generated.",
        "```yaml\n# /etc/puller/config.yaml\nsite: https://puller.example.com/\nbundles:\n  - name: base\n```",
        "Paths are absolute. A duration has a unit, such as `30s`, `10m`, `4h` or `2d` "
        "([durations](input.md#durations)). Only root may have write access to the file.",
    ]
    for section, struct in _SECTIONS.items():
        pieces.append(f"## {section or 'Top level'}")
        pieces.append(_table(("key", "type", "default", "meaning"), _keys(struct, texts[section])))
    return "\n\n".join(pieces) + "\n"


def _keys(struct: type[msgspec.Struct], texts: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    hints = typing.get_type_hints(struct)
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    if fields.keys() != texts.keys():
        raise SystemExit(f"configuration.yaml: {struct.__name__}: {fields.keys() ^ texts.keys()}")
    for name, field in fields.items():
        if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
            default = "required"
        else:
            value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
            default = _default(value)
        yield f"`{name}`", _type(hints[field.name]), default, texts[name]


def _type(hint: Any) -> str:
    """Return the type of a value in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_type(argument) for argument in arguments if argument is not type(None))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "mapping"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return "mapping"
    names = {"Days": "list of days", "ClockTime": "time", "Zone": "text"}
    return _TYPES.get(hint) or names[hint.__name__]


def _default(value: Any) -> str:
    if value is None or value == "" or isinstance(value, msgspec.Struct):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Duration):
        return next(f"`{value / size:g}{unit}`" for unit, size in _UNITS if not value % size)
    if isinstance(value, frozenset):
        return "every day"
    if isinstance(value, tuple | list | dict):
        return f"`[{', '.join(map(str, value))}]`" if value or not isinstance(value, dict) else "`{}`"
    return f"`{value}`"


def _limits_page() -> str:
    sections: Mapping[str, Sequence[tuple[str, str, str]]] = msgspec.yaml.decode(
        Path(__file__).with_name("limits.yaml").read_bytes()
    )
    pieces = [
        "# Limits",
        "Puller rejects objects above these limits with an error. This page is generated from constants of the code. "
        "[Configuration](configuration.md) lists the limits that you can set.",
    ]
    for section, rows in sections.items():
        pieces.append(f"## {section}")
        pieces.append(_table(("object", "limit"), ((name, _limit(path, unit)) for name, path, unit in rows)))
    return "\n\n".join(pieces) + "\n"


def _limit(path: str, unit: str) -> str:
    """Return the value of a constant such as ``package.module:NAME.attribute``, with its unit."""
    module, _, name = path.partition(":")
    value = attrgetter(name)(import_module(module))
    match unit:
        case "bytes":
            return next(f"{value // size:,} {name}" for name, size in _SIZES if not value % size)
        case "hours" | "days":
            return f"{value / timedelta(**{unit: 1}):g} {unit}"
        case "seconds":
            return f"{value:g} seconds"
        case _:
            return f"{value:,}"


if __name__ == "__main__":
    for page_name, page_text in pages().items():
        (ROOT / "docs" / page_name).write_text(page_text, encoding="utf-8")
