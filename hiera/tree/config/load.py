"""Reading a ``hiera.yaml``, whatever its version: 5, or 3 and 4 where Puppet 7 still reads them (``legacy``)."""

import re
from typing import Any

from hiera.errors import ConfigError
from hiera.tree.config import legacy, version5
from hiera.tree.config.documents import Documents, Kind
from hiera.tree.config.model import Config
from hiera.tree.context.interpolation import Warn, warning
from hiera.tree.ruby import psych, values


def load_config(path: str, documents: Documents, place: str, warn: Warn) -> Config | None:
    """The configuration at ``path``; ``None`` where Puppet ignores the file.

    ``place`` is ``GLOBAL``, ``ENVIRONMENT`` or ``MODULE``: some things are allowed in one of them only.
    Raises ``ConfigError``, and ``DocumentError`` for a file that cannot be read.
    """
    if documents.kind(path) is Kind.NOTHING:
        return version5.config(None, path, {"version": 5}, place, "")
    data = documents.read(path)
    content = psych.load(data, path)
    if not isinstance(content, dict):
        what = "File exists but does not contain a valid YAML hash. Falling back to Hiera version 3 default config"
        warn(warning(what, path))
        # It has no version, which makes it one of version 3, as in Puppet.
        content = {}
    version = _version(content.get("version"), path)
    if version in (3, 4):
        what = f"Use of 'hiera.yaml' version {version} is deprecated. It should be converted to version 5"
        warn(warning(what, path))
        return legacy.config(version, path, content, place, warn)
    if version != 5:
        raise ConfigError("", f"This runtime does not support hiera.yaml version {version} (file: {path})")
    return version5.config(path, path, content, place, data.decode())


def _version(given: Any, path: str) -> int:
    """As Ruby's ``to_i`` has it; what is not exactly 5 is refused later, with its type."""
    if given is None:
        return 3
    if isinstance(given, str):
        digits = re.match(r"\s*[-+]?[0-9]{1,9}", given)
        return int(digits[0]) if digits else 0
    if isinstance(given, bool) or not isinstance(given, (int, float)) or given != given or abs(given) > 10**9:
        raise ConfigError("", f"The version is {values.inspect(given)}, wanted 5 (file: {path})")
    return int(given)
