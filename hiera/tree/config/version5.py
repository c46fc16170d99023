"""``hiera.yaml``, version 5.

* Everything is checked when the file is first used, all problems of its shape at once.
* A level has one function (its own, or the default one) and at most one kind of location.
"""

import re
from typing import Any

from hiera.errors import ConfigError
from hiera.tree.config import schema
from hiera.tree.config.documents import join
from hiera.tree.config.model import GLOBAL, MODULE, Config, LevelConfig, verify_shape

_FUNCTIONS = ("data_hash", "lookup_key", "data_dig", "hiera3_backend")
_ALL_FUNCTIONS = (*_FUNCTIONS, "v4_data_hash")
_LOCATIONS = ("path", "paths", "glob", "globs", "uri", "uris", "mapped_paths")
# Puppet hands the location to a function as one of these options.
_RESERVED = ("path", "uri")


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


def config(path: str | None, where: str, content: dict[Any, Any], place: str, text: str) -> Config:
    """The configuration that ``content`` says, for the layer ``place``; raises ``ConfigError``.

    ``path`` is ``None`` for what applies where there is no file at ``where``; ``text`` is the file as it was written,
    for the lines in messages.
    """
    content = {
        **content,
        "defaults": content.get("defaults") or _DEFAULTS,
        # No hierarchy, or null, is the default one; an empty list is none at all.
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
        what = f"Hierarchy name '{name}' defined more than once. First defined at (line: {first})"
        return ConfigError("", f"{what} (file: {self._path}, line: {others[0] if others else first})")

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
            what = f'Use "data_hash: {backend}_data" instead of "hiera3_backend: {backend}"'
            raise self.error(what, r"\shiera3_backend:")

    def _level(self, entry: dict[str, Any]) -> LevelConfig:
        own = next((name for name in _ALL_FUNCTIONS if name in entry), None)
        # A function of its own replaces the default one, options and datadir stay.
        source = entry if own else self._defaults
        kind = own or next(name for name in _FUNCTIONS if name in source)
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
