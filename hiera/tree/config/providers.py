"""The settings of Puppet 4 that give an environment or a module data without a ``hiera.yaml`` of version 5.

``environment_data_provider`` in ``environment.conf`` and ``data_provider`` in ``metadata.json``: ``none``, ``hiera``
(the ``hiera.yaml`` that is there, or what applies where there is none), or ``function`` (``NAME::data``, which is
written in Ruby or Puppet). Puppet 7 reads both, and ignores them beside a ``hiera.yaml`` of version 5.
"""

import json
import posixpath
import re

from hiera.errors import ConfigError
from hiera.tree.config.documents import Documents, Kind
from hiera.tree.config.model import Config, LevelConfig
from hiera.tree.context.interpolation import Warn, warning

NONE, HIERA, FUNCTION = "none", "hiera", "function"


class Provider:
    """The statement of one file: ``setting``, in the file at ``path``, has the value ``name``."""

    def __init__(self, setting: str, name: str, path: str) -> None:
        self.setting = setting
        self.name = name
        self.path = path

    def warn(self, warn: Warn, beside: int | None) -> None:
        """Say what becomes of it beside a ``hiera.yaml`` of this version."""
        is_ignored = beside is not None and beside >= 5
        what = "is ignored, as there is a 'hiera.yaml' of version 5" if is_ignored else "is deprecated"
        advice = "; a 'hiera.yaml' of version 5 should be used instead" if beside is None else ""
        warn(warning(f"{self.setting} '{self.name}' {what}{advice}", self.path))

    def function(self, owner: str) -> Config:
        """The only level of an owner whose data is made by a function of its own."""
        function = f"{owner}::data"
        name = f"Legacy function '{function}'"
        level = LevelConfig(name, "v4_data_hash", function, posixpath.dirname(self.path), None, (), {})
        return Config(self.path, 5, (level,))

    def unknown(self, owner: str) -> ConfigError:
        """For a name that is none of the three."""
        return ConfigError("", f"{owner}, cannot find {self.setting} '{self.name}' (file: {self.path})")


def of_environment(directory: str, documents: Documents) -> Provider | None:
    """The provider that ``environment.conf`` names, if any."""
    path = posixpath.join(directory, "environment.conf")
    if documents.kind(path) is not Kind.FILE:
        return None
    # One setting matters; a stray byte in the others is Puppet's business.
    text = documents.read(path).decode(errors="replace")
    found = re.search(r"^[ \t]*environment_data_provider[ \t]*=[ \t]*(.*?)[ \t\r]*$", text, re.MULTILINE)
    name = found[1].strip("'\"") if found else ""
    return Provider("environment_data_provider", name, path) if name else None


def of_module(directory: str, documents: Documents, warn: Warn) -> Provider | None:
    """The provider that ``metadata.json`` names, if any; a file that cannot be read names none, and is warned of."""
    path = posixpath.join(directory, "metadata.json")
    if documents.kind(path) is not Kind.FILE:
        return None
    try:
        metadata = json.loads(documents.read(path))
    except (ValueError, RecursionError) as error:
        warn(warning(f"is not JSON, so a data_provider in it is not known: {error}", path))
        return None
    name = metadata.get("data_provider") if isinstance(metadata, dict) else None
    return None if name is None else Provider("data_provider", str(name), path)
