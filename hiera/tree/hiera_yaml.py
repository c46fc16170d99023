"""Parsers of ``hiera.yaml``: version 5, and versions 3 and 4 where Puppet 7 still reads them.

* Puppet 7 reads version 3 in the global layer, and version 4 in the other layers.
* The whole file is checked when it is first used, and all errors of its structure are reported together.
* A level has one function (its own or the default function) and at most one kind of location.
"""

import re
from collections.abc import Iterator
from typing import Any

from hiera.errors import ConfigError
from hiera.tree import psych, ruby_values, schema
from hiera.tree.interpolation import Warn, warning
from hiera.tree.locations import Documents, Kind, join
from hiera.tree.schema import ENVIRONMENT, GLOBAL, MODULE, Config, LevelConfig, verify_shape

# Versions 3 and 4.

_DATADIR_3 = "/etc/puppetlabs/code/environments/%{::environment}/hieradata"
_BACKENDS = {"yaml": ("yaml_data", ".yaml"), "json": ("json_data", ".json"), "hocon": ("hocon_data", ".conf")}


def legacy_config(version: int, path: str, content: dict[Any, Any], place: str, warn: Warn) -> Config | None:
    """Return the configuration of version 3 or 4.

    ``None`` for version 3 outside of the global layer, which Puppet ignores with a warning.
    """
    if version == 4:
        return _version_4(path, content, place)
    checked = _version_3(path, content)
    if place == GLOBAL:
        return checked
    where = "the environment root" if place == ENVIRONMENT else "module root"
    warn(warning(f"hiera.yaml version 3 found at {where} was ignored (file: {path})"))
    return None


_LEVEL_4 = schema.struct(
    {
        **dict.fromkeys(("backend", "name", "datadir", "path"), schema.text),
        "paths": schema.list_of(schema.text),
    },
    required=("backend", "name"),
)
_CONFIG_4 = schema.struct(
    {"version": schema.integer(4), "datadir": schema.text, "hierarchy": schema.list_of(_LEVEL_4)},
    required=("version",),
)


def _version_4(path: str, content: dict[Any, Any], place: str) -> Config:
    if place == GLOBAL:
        raise ConfigError("", f"hiera.yaml version 4 cannot be used in the global layer (file: {path})")
    content = {
        **content,
        "datadir": content.get("datadir") or "data",
        "hierarchy": content.get("hierarchy") or [{"name": "common", "backend": "yaml"}],
    }
    verify_shape(content, _CONFIG_4, path)
    return Config(path, 4, tuple(_level_4(path, entry, content["datadir"]) for entry in content["hierarchy"]))


def _level_4(path: str, entry: dict[str, Any], datadir: str) -> LevelConfig:
    backend = entry["backend"]
    if backend not in _BACKENDS:
        raise ConfigError("", f"No data provider is registered for backend '{backend}' (file: {path})")
    function, extension = _BACKENDS[backend]
    return LevelConfig(
        name=entry["name"],
        kind="data_hash",
        function=function,
        datadir=join(path.rpartition("/")[0], entry.get("datadir", datadir)),
        location="paths",
        # Version 4: the path of a level defaults to its name.
        places=tuple(entry.get("paths") or [entry.get("path") or entry["name"]]),
        options={},
        extension=extension,
    )


def _one_or_more(value: Any, where: str) -> Iterator[str]:
    """Check that the value is a text or a list of texts."""
    if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
        return
    yield from schema.text(value, f"{where} variant 0")
    if isinstance(value, list):
        yield from schema.list_of(schema.text)(value, f"{where} variant 1")


def _anything(value: Any, where: str) -> Iterator[str]:
    return iter(())


def _version_3(path: str, content: dict[Any, Any]) -> Config:
    content = {
        **content,
        "version": content.get("version") or 3,
        "backends": content.get("backends") or ["yaml"],
        "hierarchy": content.get("hierarchy") or ["nodes/%{::trusted.certname}", "common"],
    }
    backends = content["backends"] if isinstance(content["backends"], list) else [content["backends"]]
    # Each backend may have settings of any type below its own name.
    known = dict.fromkeys(
        ("logger", "merge_behavior", "deep_merge_options", *map(ruby_values.to_s, backends)), _anything
    )
    shape = schema.struct(
        {"version": schema.integer(3), "backends": _one_or_more, "hierarchy": _one_or_more, **known}
    )
    verify_shape(content, shape, path)
    return Config(path, 3, tuple(_level_3(path, backend, content) for backend in backends))


def _level_3(path: str, backend: str, content: dict[str, Any]) -> LevelConfig:
    """Return a backend of version 3 as a level: it searches the whole hierarchy before the next backend does."""
    settings = content.get(backend)
    settings = settings if isinstance(settings, dict) else {}
    function, extension = _BACKENDS.get(
        backend, ("eyaml_lookup_key" if backend == "eyaml" else backend, f".{backend}")
    )
    kind = "data_hash" if backend in _BACKENDS else "lookup_key" if backend == "eyaml" else "hiera3_backend"
    root = path.rpartition("/")[0]
    places = content["hierarchy"]
    return LevelConfig(
        name=backend,
        kind=kind,
        function=function,
        datadir=join(root, settings.get("datadir") or _DATADIR_3),
        location="paths",
        places=tuple(places) if isinstance(places, list) else (places,),
        # Other functions take no options. The settings of eyaml name its keys.
        options={name: value for name, value in settings.items() if backend == "eyaml" and name != "datadir"},
        extension=f".{settings['extension']}" if settings.get("extension") else extension,
    )


# Version 5.

_FUNCTIONS = ("data_hash", "lookup_key", "data_dig", "hiera3_backend")
_ALL_FUNCTIONS = (*_FUNCTIONS, "v4_data_hash")
_LOCATIONS = ("path", "paths", "glob", "globs", "uri", "uris", "mapped_paths")
# Puppet passes the location to a function in either of these options.
_RESERVED = ("path", "uri")


_HIERARCHY = schema.list_of(
    schema.struct(
        {
            "name": schema.text,
            "options": schema.options,
            "optional": schema.boolean,
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


def config(path: str | None, where: str, content: dict[Any, Any], place: str, text: str) -> Config:
    """Return the configuration in ``content`` for the layer ``place``. Raises ``ConfigError``.

    ``path`` is ``None`` for the default configuration if ``where`` does not exist. ``text`` is the source of the file,
    for the lines in messages.
    """
    content = {
        **content,
        "defaults": content.get("defaults") or _DEFAULTS,
        # A missing or null hierarchy means the default. An empty list means no levels.
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
    """Makes levels from the entries of a file with a valid structure."""

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
        if sum(name in self._defaults for name in _FUNCTIONS) > 1:
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
        detail = f"Hierarchy name '{name}' defined more than once. First defined at (line: {first})"
        return ConfigError("", f"{detail} (file: {self._path}, line: {others[0] if others else first})")

    def _verify(self, entry: dict[str, Any]) -> None:
        name = entry["name"]
        functions = sum(function in entry for function in _ALL_FUNCTIONS)
        if functions > 1:
            raise self.error(f"Only one of {_ONE_FUNCTION} can be defined in hierarchy '{name}'")
        if not functions and not any(function in self._defaults for function in _FUNCTIONS):
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
            detail = f'Use "data_hash: {backend}_data" instead of "hiera3_backend: {backend}"'
            raise self.error(detail, r"\shiera3_backend:")

    def _level(self, entry: dict[str, Any]) -> LevelConfig:
        own = next((name for name in _ALL_FUNCTIONS if name in entry), None)
        # An own function replaces only the default function. Default options and datadir still apply.
        source = entry if own else self._defaults
        kind = own or next(name for name in _FUNCTIONS if name in source)
        location = next((name for name in _LOCATIONS if name in entry), None)
        provided = entry[location] if location else []
        return LevelConfig(
            name=entry["name"],
            kind=kind,
            function=source[kind],
            datadir=join(self._root, entry.get("datadir") or self._defaults.get("datadir") or "data"),
            location=location,
            places=tuple(provided) if isinstance(provided, list) else (provided,),
            options=entry.get("options", self._defaults.get("options", {})),
            is_optional=entry.get("optional", False),
        )


_ONE_FUNCTION = "data_hash, lookup_key, data_dig, or hiera3_backend"
_ONE_LOCATION = "path, paths, glob, globs, uri, uris, or mapped_paths"


def load_config(path: str, documents: Documents, place: str, warn: Warn) -> Config | None:
    """Return the configuration at ``path``, or ``None`` if Puppet ignores the file.

    ``place`` is ``GLOBAL``, ``ENVIRONMENT`` or ``MODULE``, which differ in the allowed settings. Raises
    ``ConfigError``, and ``DocumentError`` for an unreadable file.
    """
    if documents.kind(path) is Kind.NOTHING:
        return config(None, path, {"version": 5}, place, "")
    data = documents.read(path)
    content = psych.load(data, path)
    if not isinstance(content, dict):
        detail = "File exists but does not contain a valid YAML hash. Falling back to Hiera version 3 default config"
        warn(warning(detail, path))
        # As in Puppet, a missing version means version 3.
        content = {}
    version = _version(content.get("version"), path)
    if version in (3, 4):
        detail = f"Use of 'hiera.yaml' version {version} is deprecated. It should be converted to version 5"
        warn(warning(detail, path))
        return legacy_config(version, path, content, place, warn)
    if version != 5:
        raise ConfigError("", f"This runtime does not support hiera.yaml version {version} (file: {path})")
    return config(path, path, content, place, data.decode())


def _version(provided: Any, path: str) -> int:
    """Return the version as Ruby's ``to_i`` does. Versions other than 5 are rejected later, with their type."""
    if provided is None:
        return 3
    if isinstance(provided, str):
        digits = re.match(r"\s*[-+]?[0-9]{1,9}", provided)
        return int(digits[0]) if digits else 0
    if (
        isinstance(provided, bool)
        or not isinstance(provided, (int, float))
        or provided != provided
        or abs(provided) > 10**9
    ):
        raise ConfigError("", f"The version is {ruby_values.inspect(provided)}, expected 5 (file: {path})")
    return int(provided)
