"""A ``hiera.yaml`` as all versions of it are understood: the levels it declares, before any fact is put in."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from hiera.errors import ConfigError
from hiera.tree.config import schema

GLOBAL, ENVIRONMENT, MODULE = "Global", "Environment", "Module"
"""The layers, as Puppet names them in messages; some settings are allowed in one of them only."""


class LevelConfig(NamedTuple):
    """One entry of a hierarchy. ``kind`` is what calls ``function``; ``location`` is the kind of its ``places``."""

    name: str
    kind: str
    function: str
    datadir: str  # absolute; may hold expressions, as the places do
    location: str | None
    places: tuple[str, ...]
    options: Mapping[str, Any]
    extension: str = ""  # put behind each place that lacks it


class Config(NamedTuple):
    """A ``hiera.yaml``; ``path`` is ``None`` for what applies where there is none."""

    path: str | None
    version: int
    levels: tuple[LevelConfig, ...]
    default_levels: tuple[LevelConfig, ...] | None = None


def verify_shape(content: Any, check: schema.Check, path: str) -> None:
    """Raise ``ConfigError`` with a line for each problem that ``check`` finds."""
    found = schema.problems(content, check)
    if found:
        start = f"The Lookup Configuration at '{path}' has wrong type, "
        raise ConfigError("", "\n".join(start + problem for problem in found))
