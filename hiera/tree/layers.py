"""Layers and their levels: global, environment, and one for each module.

* A layer is a ``hiera.yaml``. Its levels are created with the facts when the layer is first used.
* Levels are searched in order (step 7 of ``lookup``), and in a level its files in order (7a). The strategy merges
  several values in both steps.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from hiera.errors import HieraError, LimitError, LookupFailure
from hiera.tree import backends
from hiera.tree.backends import DataFunction, Tools
from hiera.tree.config.documents import Kind
from hiera.tree.config.locations import Location, Resolver
from hiera.tree.config.schema import Config, LevelConfig
from hiera.tree.context.explain import ABSENT, SILENT, Absent, Key, Step
from hiera.tree.context.invocation import Invocation, Place
from hiera.tree.strategies import Strategy


class Holder(NamedTuple):
    """The place of a key: the layer, the name of the level, and the file."""

    layer: str
    level: str
    path: str


class Level:
    """A level with its locations. It calls its function for each location."""

    def __init__(self, name: str, function: DataFunction, locations: list[Location] | None) -> None:
        self.name = name
        self._function = function
        self._locations: list[Location | None] = [None] if locations is None else [*locations]

    def names(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each file that exists, with its top-level keys."""
        for location in self._locations:
            if location is None or location.kind is not Kind.NOTHING:
                yield location.place if location else "", self._function.names(location)

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
        value = self._read(location, key, invocation, step)
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
            levels.append(Level(config.name, function, locations))
        return levels
