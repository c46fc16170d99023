"""The choice of a level's function: ``yaml_data``, ``json_data`` or ``eyaml_lookup_key``.

A function that Puller does not have is an error that names it, when something is to be read with it: Puppet, too,
passes over a level whose files are not there.
"""

from collections.abc import Mapping
from typing import Any

from hiera.errors import ConfigError
from hiera.eyaml.eyaml import Decryptor, key_reader
from hiera.tree.backends.base import DataFunction, Tools
from hiera.tree.backends.data_hash import DataHash
from hiera.tree.backends.eyaml_lookup_key import Eyaml
from hiera.tree.config.documents import join
from hiera.tree.config.locations import Location
from hiera.tree.config.model import LevelConfig
from hiera.tree.context.absent import Absent
from hiera.tree.context.explain import Step
from hiera.tree.context.invocation import Invocation

_KNOWN = {"yaml_data": "data_hash", "json_data": "data_hash", "eyaml_lookup_key": "lookup_key"}


def function(
    level: LevelConfig, options: Mapping[str, Any], config_path: str, module: str | None, tools: Tools
) -> DataFunction:
    """The function of ``level``, in the ``hiera.yaml`` at ``config_path``."""
    # Nothing is raised yet: a level whose files are not there is passed over, whatever its function.
    if _KNOWN.get(level.function) != level.kind:
        return _Unavailable(_unavailable(level, config_path))
    if level.kind == "data_hash":
        return DataHash(level.function, bool(options), module, tools)
    return _eyaml(options, config_path.rpartition("/")[0], tools)


def _eyaml(options: Mapping[str, Any], directory: str, tools: Tools) -> DataFunction:
    """``directory`` is where relative paths of keys begin."""

    def read(path: str) -> bytes:
        return tools.files.documents.read(join(directory, path))

    return Eyaml(Decryptor(key_reader(options, read, tools.private_key)), tools)


def _unavailable(level: LevelConfig, config_path: str) -> str:
    where = f"(file: {config_path}, hierarchy entry '{level.name}')"
    if level.kind == "hiera3_backend":
        return f"Puller has no hiera3_backend '{level.function}': backends of Hiera 3 are written in Ruby {where}"
    if level.function in _KNOWN:
        return f"'{level.function}' is a {_KNOWN[level.function]} function, not a {level.kind} one {where}"
    missing = f"Unable to find '{level.kind}' function named '{level.function}' {where}"
    return f"{missing}: functions written in Ruby or Puppet are not run"


class _Unavailable:
    """A function that is written in Ruby or Puppet, or that does not exist."""

    def __init__(self, what: str) -> None:
        self._what = what

    def names(self, location: Location | None) -> list[str]:
        raise ConfigError("", self._what)

    def value(self, key: str, location: Location | None, invocation: Invocation, step: Step) -> Any | Absent:
        raise ConfigError("", self._what)
