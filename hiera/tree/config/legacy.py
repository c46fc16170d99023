"""``hiera.yaml`` of the versions 3 and 4, where Puppet 7 still reads them: 3 in the global layer, 4 in the others."""

from collections.abc import Iterator
from typing import Any

from hiera.errors import ConfigError
from hiera.tree.config import schema
from hiera.tree.config.documents import join
from hiera.tree.config.model import ENVIRONMENT, GLOBAL, Config, LevelConfig, verify_shape
from hiera.tree.context.interpolation import Warn, warning
from hiera.tree.ruby import values

_DATADIR_3 = "/etc/puppetlabs/code/environments/%{::environment}/hieradata"
_BACKENDS = {"yaml": ("yaml_data", ".yaml"), "json": ("json_data", ".json"), "hocon": ("hocon_data", ".conf")}


def config(version: int, path: str, content: dict[Any, Any], place: str, warn: Warn) -> Config | None:
    """The configuration, or ``None`` for a version 3 outside the global layer, which Puppet ignores with a warning."""
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
        # Version 4: a level without a path is read from the file of its name.
        places=tuple(entry.get("paths") or [entry.get("path") or entry["name"]]),
        options={},
        extension=extension,
    )


def _one_or_more(value: Any, where: str) -> Iterator[str]:
    """A text or a list of texts."""
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
    # Each backend may have settings below its own name, of any shape.
    known = dict.fromkeys(
        ("logger", "merge_behavior", "deep_merge_options", *map(values.to_s, backends)), _anything
    )
    shape = schema.struct(
        {"version": schema.integer(3), "backends": _one_or_more, "hierarchy": _one_or_more, **known}
    )
    verify_shape(content, shape, path)
    return Config(path, 3, tuple(_level_3(path, backend, content) for backend in backends))


def _level_3(path: str, backend: str, content: dict[str, Any]) -> LevelConfig:
    """In version 3 a backend goes through the whole hierarchy before the next one is asked."""
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
        # The other functions take no options; to eyaml its settings say where the keys are.
        options={name: value for name, value in settings.items() if backend == "eyaml" and name != "datadir"},
        extension=f".{settings['extension']}" if settings.get("extension") else extension,
    )
