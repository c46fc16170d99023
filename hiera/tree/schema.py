"""Schema of ``hiera.yaml``, with Puppet's error messages, and the parsed configuration.

* A check takes a value and the words for its place (``entry 'hierarchy' index 0``), and returns all problems.
* `Config` and `LevelConfig` are the same for all versions of the file. They contain the levels before any fact is
  interpolated.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from hiera.errors import ConfigError
from hiera.tree import ruby_values

Check = Callable[[Any, str], Iterator[str]]

_OPTION_NAME = r"\A[A-Za-z](:?[0-9A-Za-z_-]*[0-9A-Za-z])?\z"


def problems(value: Any, check: Check) -> list[str]:
    """Return the problems of ``value``, each with its place."""
    return [problem.strip() for problem in check(value, "")]


def text(value: Any, where: str) -> Iterator[str]:
    """Check that the value is a nonempty text."""
    if not isinstance(value, str):
        yield f"{where} expects a String value, got {ruby_values.type_name(value)}"
    elif not value:
        yield f"{where} expects a String[1] value, got String"


def integer(desired: int) -> Check:
    """Return a check for the number ``desired``."""

    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, int) or isinstance(value, bool):
            yield f"{where} expects an Integer value, got {ruby_values.type_name(value)}"
        elif value != desired:
            yield f"{where} expects an Integer[{desired}, {desired}] value, got Integer[{value}, {value}]"

    return check


def boolean(value: Any, where: str) -> Iterator[str]:
    """Check that the value is a boolean."""
    if not isinstance(value, bool):
        yield f"{where} expects a Boolean value, got {ruby_values.type_name(value)}"


def list_of(item: Check, least: int = 0, most: int | None = None) -> Check:
    """Return a check for a list of ``least`` to ``most`` items."""

    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{where} expects an Array value, got {ruby_values.type_name(value)}"
        elif len(value) < least or (most is not None and len(value) > most):
            expected = f"{least}" if most == least else f"at least {least}"
            yield f"{where} expects size to be {expected}, got {len(value)}"
        else:
            for index, entry in enumerate(value):
                yield from item(entry, f"{where} index {index}")

    return check


def struct(known: dict[str, Check], required: tuple[str, ...] = ()) -> Check:
    """Return a check for a mapping without unknown keys."""

    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{where} expects a Struct value, got {ruby_values.type_name(value)}"
            return
        for name, entry in known.items():
            if name in value:
                yield from entry(value[name], f"{where} entry '{name}'")
            elif name in required:
                yield f"{where} expects a value for key '{name}'"
        for name in value:
            if name not in known:
                yield f"{where} unrecognized key '{ruby_values.to_s(name)}'"

    return check


def options(value: Any, where: str) -> Iterator[str]:
    """Check the options of a function: names of letters and digits, values that are data."""
    if not isinstance(value, dict):
        yield f"{where} expects a Hash value, got {ruby_values.type_name(value)}"
        return
    for name, entry in value.items():
        # The pattern is for Python. Messages show Ruby's pattern.
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z](:?[0-9A-Za-z_-]*[0-9A-Za-z])?", name):
            detail = f"expects a match for Pattern[/{_OPTION_NAME}/], got '{ruby_values.to_s(name)}'"
            yield f"{where} key of entry '{ruby_values.to_s(name)}' {detail}"
        elif not ruby_values.is_data(entry):
            yield f"{where} entry '{name}' expects a Data value, got {ruby_values.type_name(entry)}"


# The configuration.

GLOBAL, ENVIRONMENT, MODULE = "Global", "Environment", "Module"
"""The layers, as Puppet names them in messages. Some settings are allowed only in certain layers."""


class LevelConfig(NamedTuple):
    """An entry of a hierarchy. ``kind`` is the way to call ``function``, ``location`` the kind of its ``places``."""

    name: str
    kind: str
    function: str
    datadir: str  # absolute, may contain expressions like the places
    location: str | None
    places: tuple[str, ...]
    options: Mapping[str, Any]
    extension: str = ""  # appended to each place that lacks it
    is_optional: bool = False  # skip encrypted files for other recipients. Puppet has no such key


class Config(NamedTuple):
    """A ``hiera.yaml``. ``path`` is ``None`` for the default without a file."""

    path: str | None
    version: int
    levels: tuple[LevelConfig, ...]
    default_levels: tuple[LevelConfig, ...] | None = None


def verify_shape(content: Any, check: Check, path: str) -> None:
    """Raise ``ConfigError`` with a line for each problem of ``check``."""
    findings = problems(content, check)
    if findings:
        start = f"The Lookup Configuration at '{path}' has wrong type, "
        raise ConfigError("", "\n".join(start + problem for problem in findings))
