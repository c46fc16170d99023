"""``hiera.yaml``, version 5: the levels it declares, before any fact is put in.

* Everything is checked when the file is first used, all problems of its shape at once.
* A level has one function (its own, or the default one) and at most one kind of location.
* Files of version 3 and 4 are read where Puppet still reads them (``legacy``).
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from hiera.errors import ConfigError
from hiera.tree.config import schema
from hiera.tree.config.documents import Documents, Kind, join
from hiera.tree.context.interpolation import Warn
from hiera.tree.ruby import psych, values

GLOBAL, ENVIRONMENT, MODULE = "Global", "Environment", "Module"

FUNCTIONS = ("data_hash", "lookup_key", "data_dig", "hiera3_backend")
_ALL_FUNCTIONS = (*FUNCTIONS, "v4_data_hash")
_LOCATIONS = ("path", "paths", "glob", "globs", "uri", "uris", "mapped_paths")
_RESERVED = ("path", "uri")


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


def load(path: str, documents: Documents, place: str, warn: Warn) -> Config | None:
    """The configuration at ``path``; ``None`` where Puppet ignores the file.

    ``place`` is ``GLOBAL``, ``ENVIRONMENT`` or ``MODULE``: some things are allowed in one of them only.
    Raises ``ConfigError``, and ``DocumentError`` for a file that cannot be read.
    """
    if documents.kind(path) is Kind.NOTHING:
        return _config(None, path, {"version": 5}, place, "")
    data = documents.read(path)
    content = psych.load(data, path)
    if not isinstance(content, dict):
        what = "File exists but does not contain a valid YAML hash. Falling back to Hiera version 3 default config"
        warn(f"{path}: {what}")
        content = {}
    version = _version(content.get("version"), path)
    if version in (3, 4):
        from hiera.tree.config import legacy

        warn(
            f"{path}: Use of 'hiera.yaml' version {version} is deprecated. It should be converted to version 5"
        )
        return legacy.config(version, path, content, place, warn)
    if version != 5:
        raise ConfigError("", f"This runtime does not support hiera.yaml version {version} (file: {path})")
    return _config(path, path, content, place, data.decode())


def _version(given: Any, path: str) -> int:
    """As Ruby's ``to_i`` has it; what is not exactly 5 is refused later, with its type."""
    if given is None:
        return 3
    if isinstance(given, str):
        digits = re.match(r"\s*[-+]?\d{1,9}", given)
        return int(digits[0]) if digits else 0
    if isinstance(given, bool) or not isinstance(given, (int, float)) or given != given or abs(given) > 10**9:
        raise ConfigError("", f"The version is {values.inspect(given)}, wanted 5 (file: {path})")
    return int(given)


_HIERARCHY = schema.list_of(
    schema.struct(
        {
            "name": schema.text,
            "options": schema.options,
            **dict.fromkeys(
                ("data_hash", "lookup_key", "hiera3_backend", "v4_data_hash", "data_dig"), schema.text
            ),
            **dict.fromkeys(("path", "glob", "uri", "datadir"), schema.text),
            **dict.fromkeys(("paths", "globs", "uris"), schema.list_of(schema.text, 1)),
            "mapped_paths": schema.list_of(schema.text, 3, 3),
        },
        required=("name",),
    )
)
_CONFIG = schema.struct(
    {
        "version": schema.integer(5),
        "defaults": schema.struct(
            {
                **dict.fromkeys(("data_hash", "lookup_key", "data_dig", "datadir"), schema.text),
                "options": schema.options,
            }
        ),
        **dict.fromkeys(("hierarchy", "plan_hierarchy", "default_hierarchy"), _HIERARCHY),
    },
    required=("version",),
)


def verify_shape(content: Any, check: schema.Check, path: str) -> None:
    """Raise ``ConfigError`` with a line for each problem that ``check`` finds."""
    found = schema.problems(content, check)
    if found:
        start = f"The Lookup Configuration at '{path}' has wrong type, "
        raise ConfigError("", "\n".join(start + problem for problem in found))


def _config(path: str | None, where: str, content: dict[Any, Any], place: str, text: str) -> Config:
    content = {
        **content,
        "defaults": content.get("defaults") or _DEFAULTS,
        "hierarchy": content.get("hierarchy") or ([] if content.get("hierarchy") == [] else _COMMON),
    }
    verify_shape(content, _CONFIG, where)
    reader = _Reader(where, content["defaults"], place, text)
    reader.verify_defaults()
    levels = reader.levels(content["hierarchy"])
    reader.levels(content.get("plan_hierarchy", []))  # used by plans only, but checked
    if "default_hierarchy" not in content:
        return Config(path, 5, levels)
    if place != MODULE:
        raise reader.error(
            "'default_hierarchy' is only allowed in the module layer", r"(?:^|\s)default_hierarchy:"
        )
    return Config(path, 5, levels, reader.levels(content["default_hierarchy"]))


_DEFAULTS = {"datadir": "data", "data_hash": "yaml_data"}
_COMMON = [{"name": "Common", "path": "common.yaml"}]


class _Reader:
    """Makes levels from the entries of one file, whose shape was checked."""

    def __init__(self, path: str, defaults: dict[str, Any], place: str, text: str) -> None:
        self._path = path
        self._root = path.rpartition("/")[0] or "/"
        self._defaults = defaults
        self._place = place
        self._text = text

    def error(self, what: str, line_matching: str | None = None) -> ConfigError:
        lines = self._lines(line_matching) if line_matching else []
        line = f", line: {lines[0]}" if lines else ""
        return ConfigError("", f"{what} (file: {self._path}{line})")

    def _lines(self, pattern: str) -> list[int]:
        return [number for number, line in enumerate(self._text.splitlines(), 1) if re.search(pattern, line)]

    def verify_defaults(self) -> None:
        if sum(name in self._defaults for name in FUNCTIONS) > 1:
            raise self.error(f"Only one of {_ONE_FUNCTION} can be defined in defaults")
        for name in _RESERVED:
            if name in self._defaults.get("options", ()):
                raise self.error(f"Option key '{name}' used in defaults is reserved by Puppet")

    def levels(self, entries: list[dict[str, Any]]) -> tuple[LevelConfig, ...]:
        for entry in entries:
            self._verify(entry)
        names = [entry["name"] for entry in entries]
        for name in names:
            if names.count(name) > 1:
                raise self._twice(name)
        return tuple(map(self._level, entries))

    def _twice(self, name: str) -> ConfigError:
        pattern = rf"name['\"]?:\s*['\"]?{re.escape(name)}(?:\W|$)"
        first, *others = self._lines(pattern) or [0]
        what = f"Hierarchy name '{name}' defined more than once. First defined at (line: {first})"
        return ConfigError("", f"{what} (file: {self._path}, line: {others[0] if others else first})")

    def _verify(self, entry: dict[str, Any]) -> None:
        name = entry["name"]
        functions = sum(function in entry for function in _ALL_FUNCTIONS)
        if functions > 1:
            raise self.error(f"Only one of {_ONE_FUNCTION} can be defined in hierarchy '{name}'")
        if not functions and not any(function in self._defaults for function in FUNCTIONS):
            raise self.error(f"One of {_ONE_FUNCTION} must be defined in hierarchy '{name}'")
        self._verify_backend(entry.get("hiera3_backend"))
        if sum(location in entry for location in _LOCATIONS) > 1:
            raise self.error(f"Only one of {_ONE_LOCATION} can be defined in hierarchy '{name}'")
        for option in _RESERVED:
            if option in entry.get("options", ()):
                raise self.error(f"Option key '{option}' used in hierarchy '{name}' is reserved by Puppet")

    def _verify_backend(self, backend: str | None) -> None:
        if backend is not None and self._place != GLOBAL:
            raise self.error("'hiera3_backend' is only allowed in the global layer", r"\shiera3_backend:")
        if backend in ("yaml", "json", "hocon"):
            what = f'Use "data_hash: {backend}_data" instead of "hiera3_backend: {backend}"'
            raise self.error(what, r"\shiera3_backend:")

    def _level(self, entry: dict[str, Any]) -> LevelConfig:
        own = next((name for name in _ALL_FUNCTIONS if name in entry), None)
        source = entry if own else self._defaults
        kind = own or next(name for name in FUNCTIONS if name in source)
        location = next((name for name in _LOCATIONS if name in entry), None)
        given = entry[location] if location else []
        return LevelConfig(
            name=entry["name"],
            kind=kind,
            function=source[kind],
            datadir=join(self._root, entry.get("datadir") or self._defaults.get("datadir") or "data"),
            location=location,
            places=tuple(given) if isinstance(given, list) else (given,),
            options=entry.get("options", self._defaults.get("options", {})),
        )


_ONE_FUNCTION = "data_hash, lookup_key, data_dig, or hiera3_backend"
_ONE_LOCATION = "path, paths, glob, globs, uri, uris, or mapped_paths"
