"""Layers of a tree and their levels: the global layer, the environment, and one layer for each module with data.

* A layer is a ``hiera.yaml``. Its levels are created with the facts when the layer is first used.
* Levels are searched in order (step 7 of ``lookup``), and in a level its files in order (7a). The strategy merges
  several values in both steps.
* The global layer always exists. Its default is one level, ``common.yaml``. A layer with a data provider of Puppet 4
  also exists without a ``hiera.yaml``.
* Data providers are ``environment_data_provider`` in ``environment.conf`` and ``data_provider`` in ``metadata.json``.
  Puppet 7 reads both, and ignores them beside a ``hiera.yaml`` of version 5.
* The module path of the environment determines the directory of each module.
"""

import json
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from hiera.errors import ConfigError, HieraError, LimitError, LookupFailure, RecipientError
from hiera.tree import backends
from hiera.tree.backends import DataFunction, Tools
from hiera.tree.explain import ABSENT, SILENT, Absent, Key, Step
from hiera.tree.hiera_yaml import load_config
from hiera.tree.interpolation import Invocation, Place, Warn, warning
from hiera.tree.locations import Documents, Kind, Location, Resolver, join
from hiera.tree.schema import ENVIRONMENT, GLOBAL, MODULE, Config, LevelConfig
from hiera.tree.strategies import Strategy


class Holder(NamedTuple):
    """The place of a key: the layer, the name of the level, and the file."""

    layer: str
    level: str
    path: str


class Level:
    """A level with its locations. It calls its function for each location."""

    def __init__(
        self,
        name: str,
        function: DataFunction,
        locations: list[Location] | None,
        *,
        is_optional: bool = False,
    ) -> None:
        """An ``is_optional`` level skips files that are encrypted for other recipients."""
        self.name = name
        self._is_optional = is_optional
        self._function = function
        self._locations: list[Location | None] = [None] if locations is None else [*locations]

    def names(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each file that exists, with its top-level keys."""
        for location in self._locations:
            if location is None or location.kind is not Kind.NOTHING:
                try:
                    names = self._function.names(location)
                except RecipientError:
                    if not self._is_optional:
                        raise
                    continue
                yield location.place if location else "", names

    def find(self, key: Key, strategy: Strategy, invocation: Invocation, step: Step) -> Any | Absent:
        """Return the level's value of the root of ``key``."""
        step = step.add("level", self.name)
        return strategy.gather(  # 7a.
            self._locations, lambda location, inner: self._ask(location, key, invocation, inner), step
        )

    def _ask(self, location: Location | None, key: Key, invocation: Invocation, step: Step) -> Any | Absent:
        if location is not None:
            step = step.add("uri" if location.is_uri else "path", location.place, original=location.original)
            if location.kind is Kind.NOTHING:
                step.skipped("location_not_found")
                return ABSENT
        try:
            value = self._read(location, key, invocation, step)
        except RecipientError:
            if not self._is_optional:
                raise
            step.skipped("other_recipients")
            return ABSENT
        if value is ABSENT:
            step.missing(key.root)
        else:
            step.found(key.root, value)
        return value

    def _read(self, location: Location | None, key: Key, invocation: Invocation, step: Step) -> Any | Absent:
        """Return the value at a location. Errors and warnings contain the place."""
        outer, invocation.place = (
            invocation.place,
            Place(location.place if location else "", self.name, key.root),
        )
        try:
            return self._function.value(key.root, location, invocation, step)  # 8.
        except (LookupFailure, LimitError) as error:
            raise error.beside("" if error.where else str(invocation.place)) from None
        finally:
            invocation.place = outer


class Layer:
    """The levels of one ``hiera.yaml``. ``module`` is the name of the module it belongs to."""

    def __init__(
        self, place: str, config: Config, tools: Tools, where: str, module: str | None = None
    ) -> None:
        self._config = config
        self._tools = tools
        self._where = where
        self._module = module
        self._made: list[Level] | None = None
        self._made_default: list[Level] | None = None
        self._name = f'{place} "{module}"' if module else place
        self._title = f"{self._name} Data Provider (hiera configuration version {config.version})"

    @property
    def version(self) -> int:
        """The version of its ``hiera.yaml``."""
        return self._config.version

    @property
    def has_default_hierarchy(self) -> bool:
        """Return whether the layer has levels for keys that are missing everywhere else."""
        return self._config.default_levels is not None

    def find(self, key: Key, strategy: Strategy, invocation: Invocation, step: Step) -> Any | Absent:
        """Return the layer's value of the root of ``key``."""
        return self._find(self.levels(invocation), key, strategy, invocation, step)

    def find_default(self, key: Key, strategy: Strategy, invocation: Invocation, step: Step) -> Any | Absent:
        """Return the default hierarchy's value of the root of ``key``."""
        self.levels(invocation)
        return self._find(self._made_default or [], key, strategy, invocation, step)

    def _find(
        self, levels: list[Level], key: Key, strategy: Strategy, invocation: Invocation, step: Step
    ) -> Any | Absent:
        with invocation.resolving(key.text):
            about = {"configuration": self._config.path} if self._config.path else {}
            step = step.add("layer", self._title, **about)
            if not levels:
                step.missing(key.text)
                return ABSENT
            # 7.
            return strategy.gather(
                levels, lambda level, inner: level.find(key, strategy, invocation, inner), step
            )

    def holders(self, invocation: Invocation) -> Iterator[tuple[Holder, list[str]]]:
        """Yield each file of the layer with its top-level keys, the default hierarchy last."""
        for level in [*self.levels(invocation), *(self._made_default or [])]:
            for path, names in level.names():
                yield Holder(self._name, level.name, path), names

    def levels(self, invocation: Invocation) -> list[Level]:
        """Return the levels, created once. Raises ``LookupFailure`` or ``ConfigError`` with the file of the levels."""
        if self._made is None:
            outer, invocation.place = invocation.place, Place(self._where)
            try:
                made = self._make(self._config.levels, invocation)
                self._made_default = self._make(self._config.default_levels or (), invocation)
            except HieraError as error:
                error.placed().what = f"{error.what} (file: {self._where})"
                raise
            finally:
                invocation.place = outer
            self._made = made
        return self._made

    def _make(self, configs: tuple[LevelConfig, ...], invocation: Invocation) -> list[Level]:
        resolver = Resolver(self._tools.interpolator, self._tools.files.documents, invocation, SILENT)
        levels = []
        for config in configs:
            locations = resolver.locations(config)
            if self._config.path is None:
                # The default hierarchy, used without a hiera.yaml, contains only levels whose files exist.
                locations = [location for location in locations or [] if location.kind is not Kind.NOTHING]
                if not locations:
                    continue
            options = resolver.options(config)
            function = backends.function(config, options, self._where, self._module, self._tools)
            levels.append(Level(config.name, function, locations, is_optional=config.is_optional))
        return levels


# Data providers: ``none``, ``hiera`` (the existing ``hiera.yaml``, or the default) or ``function`` (``NAME::data``,
# written in Ruby or Puppet).

NONE, HIERA, FUNCTION = "none", "hiera", "function"


class Provider:
    """A data provider setting: ``setting``, in the file at ``path``, has the value ``name``."""

    def __init__(self, setting: str, name: str, path: str) -> None:
        self.setting = setting
        self.name = name
        self.path = path

    def warn(self, warn: Warn, beside: int | None) -> None:
        """Warn that the setting is ignored or deprecated beside a ``hiera.yaml`` of this version."""
        is_ignored = beside is not None and beside >= 5
        detail = "is ignored, because a 'hiera.yaml' of version 5 exists" if is_ignored else "is deprecated"
        advice = ". Use a 'hiera.yaml' of version 5" if beside is None else ""
        warn(warning(f"{self.setting} '{self.name}' {detail}{advice}", self.path))

    def function(self, owner: str) -> Config:
        """Return the only level of an owner with its own data function."""
        function = f"{owner}::data"
        name = f"Legacy function '{function}'"
        level = LevelConfig(name, "v4_data_hash", function, posixpath.dirname(self.path), None, (), {})
        return Config(self.path, 5, (level,))

    def unknown(self, owner: str) -> ConfigError:
        """Return the error for an unknown provider name."""
        return ConfigError("", f"{owner}, cannot find {self.setting} '{self.name}' (file: {self.path})")


def of_environment(directory: str, documents: Documents) -> Provider | None:
    """Return the provider in ``environment.conf``, or ``None``."""
    path = posixpath.join(directory, "environment.conf")
    if documents.kind(path) is not Kind.FILE:
        return None
    # Only this setting matters here. Invalid bytes in other settings are ignored.
    text = documents.read(path).decode(errors="replace")
    match = re.search(r"^[ \t]*environment_data_provider[ \t]*=[ \t]*(.*?)[ \t\r]*$", text, re.MULTILINE)
    name = match[1].strip("'\"") if match else ""
    return Provider("environment_data_provider", name, path) if name else None


def of_module(directory: str, documents: Documents, warn: Warn) -> Provider | None:
    """Return the provider in ``metadata.json``, or ``None``. An unreadable file causes a warning."""
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


# The module path.

# The last directories of Puppet's own module path. Missing directories are harmless.
BASE = ("/etc/puppetlabs/code/modules", "/opt/puppetlabs/puppet/modules")


def module_path(environment: str, documents: Documents) -> list[str]:
    """Return the directories of modules: ``modulepath`` of ``environment.conf``, or ``modules``."""
    config = posixpath.join(environment, "environment.conf")
    if documents.kind(config) is Kind.FILE:
        text = documents.read(config).decode(errors="replace")
        match = re.search(r"^\s*modulepath\s*=\s*(.*?)\s*$", text, re.MULTILINE)
        if match:
            words = match[1]
            if len(words) > 1 and words[0] == words[-1] and words[0] in "'\"":
                words = words[1:-1]
            return [path for part in words.split(":") for path in _directories(part, environment)]
    return [posixpath.join(environment, "modules"), *BASE]


def _directories(part: str, environment: str) -> list[str]:
    if part.strip() in ("$basemodulepath", "${basemodulepath}"):
        return list(BASE)
    known = {"environment": posixpath.basename(environment), "codedir": "/etc/puppetlabs/code"}
    part = re.sub(r"\$\{?(\w+)\}?", lambda result: known.get(result[1], result[0]), part.strip())
    return [join(environment, part)] if part else []


def find(name: str, path: list[str], documents: Documents) -> str | None:
    """Return the directory of the module ``name``, from the first matching entry of ``path``."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return None
    candidates = (posixpath.join(directory, name) for directory in path)
    return next((candidate for candidate in candidates if documents.kind(candidate) is Kind.DIRECTORY), None)


class Layout:
    """The layers by name. Each ``hiera.yaml`` is read when its layer is first used."""

    def __init__(
        self,
        environment: str | None,
        config_path: str | None,
        global_config: str | None,
        module_path: Sequence[str],
        tools: Tools,
    ) -> None:
        """``config_path`` is the environment's configuration if it is not its ``hiera.yaml``."""
        self._environment = environment and os.path.abspath(environment)
        self._config_path = config_path and os.path.abspath(config_path)
        self._global_config = global_config and os.path.abspath(global_config)
        self._given_modules = [os.path.abspath(path) for path in module_path]
        self._tools = tools
        self._documents = tools.files.documents
        self._layers: dict[str, Layer | None] = {}
        self._environment_layer: Layer | Absent | None = ABSENT
        self._module_layers: dict[str, Layer | None] = {}

    def global_layer(self) -> Layer | None:
        """Return the highest layer, if there is a global ``hiera.yaml``."""
        return self._layer(GLOBAL, self._global_config) if self._global_config else None

    def environment_layer(self) -> Layer | None:
        """Return the layer of the environment, if it has a ``hiera.yaml``, or a data provider of Puppet 4."""
        if self._environment_layer is ABSENT:
            self._environment_layer = self._find_environment_layer()
        return self._environment_layer

    def _find_environment_layer(self) -> Layer | None:
        directory = self._environment
        path = self._config_path or (directory and posixpath.join(directory, "hiera.yaml"))
        provider = of_environment(directory, self._documents) if directory else None
        return self._provided(ENVIRONMENT, path, provider, None) if path else None

    def _provided(self, place: str, path: str, provider: Provider | None, module: str | None) -> Layer | None:
        """Return the layer of the ``hiera.yaml`` at ``path``. A provider counts unless the file has version 5."""
        exists = path in self._layers or self._documents.kind(path) is not Kind.NOTHING
        layer = self._layer(place, path, module) if exists else None
        if provider is None:
            return layer
        provider.warn(self._tools.warn, layer.version if layer else None)
        # A hiera.yaml of version 5 overrides every provider. The provider hiera also uses an older file.
        if (layer is not None and layer.version >= 5) or provider.name == HIERA:
            return layer or self._layer(place, path, module)
        if provider.name == NONE:
            return None
        if provider.name == FUNCTION:
            made = provider.function(module or place.lower())
            return Layer(place, made, self._tools, provider.path, module)
        raise provider.unknown(f"{place} '{module or posixpath.basename(self._environment or '')}'")

    def module_layer(self, module: str, step: Step) -> Layer | None:
        """Return the layer of ``module``. If it is missing, ``step`` records the reason."""
        directory = find(module, self._module_path, self._documents)
        if directory is None:
            step.add("module", module).skipped("module_not_found")
            return None
        if module not in self._module_layers:
            provider = of_module(directory, self._documents, self._tools.warn)
            path = posixpath.join(directory, "hiera.yaml")
            self._module_layers[module] = self._provided(MODULE, path, provider, module)
        layer = self._module_layers[module]
        if layer is None:
            step.add("module", module).skipped("module_provider_not_found")
        return layer

    def all_layers(self) -> list[Layer]:
        """Return every existing layer, with modules sorted by name."""
        names = (entry.name for path in self._module_path for entry in self._documents.entries(path))
        of_modules = [self.module_layer(name, SILENT) for name in sorted(set(names))]
        layers = [self.global_layer(), self.environment_layer(), *of_modules]
        return [layer for layer in layers if layer is not None]

    @cached_property
    def _module_path(self) -> list[str]:
        result = module_path(self._environment, self._documents) if self._environment else []
        return self._given_modules + result

    def _layer(self, place: str, path: str, module: str | None = None) -> Layer | None:
        if path not in self._layers:
            loaded = load_config(path, self._documents, place, self._tools.warn)
            self._layers[path] = Layer(place, loaded, self._tools, path, module) if loaded else None
        return self._layers[path]
