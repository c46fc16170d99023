"""The files (or URIs) of a level, once the facts are put in."""

from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hiera.errors import ConfigError
from hiera.tree.config import globs
from hiera.tree.config.documents import Documents, Kind, join
from hiera.tree.config.model import LevelConfig
from hiera.tree.context.explain import Step
from hiera.tree.context.interpolation import Interpolator
from hiera.tree.context.invocation import Invocation
from hiera.tree.ruby import values


class Location(NamedTuple):
    """``place`` is where to look, ``original`` what the configuration says, ``kind`` what stands there."""

    place: str
    original: str
    kind: Kind
    is_uri: bool = False


class Resolver:
    """Turns what a level declares into locations; raises ``LookupFailure`` and ``ConfigError``."""

    def __init__(
        self, interpolator: Interpolator, documents: Documents, invocation: Invocation, step: Step
    ) -> None:
        self._interpolator = interpolator
        self._documents = documents
        self._run = invocation
        self._step = step

    def locations(self, level: LevelConfig) -> list[Location] | None:
        """Existing and missing ones, in order; ``None`` for a level that declares no location at all."""
        if level.location is None:
            return None
        if level.location in ("uri", "uris"):
            return [self._uri(place) for place in level.places]
        datadir = self.text(level.datadir)
        if level.location in ("glob", "globs"):
            return [location for place in level.places for location in self._globbed(datadir, place)]
        if level.location == "mapped_paths":
            return self._mapped(datadir, *level.places)
        return [self._path(datadir, place, level.extension) for place in level.places]

    def text(self, template: str) -> str:
        """``template`` with its variables replaced."""
        return values.to_s(self._interpolator.resolve(template, self._run, self._step, methods=False))

    def options(self, level: LevelConfig) -> Any:
        """The options of the level's function."""
        return self._interpolator.resolve(level.options, self._run, self._step, methods=False)

    def _path(self, datadir: str, template: str, extension: str = "") -> Location:
        path = self.text(template)
        path = join(datadir, path if path.endswith(extension) else path + extension)
        return Location(path, template, self._documents.kind(path))

    def _globbed(self, datadir: str, template: str) -> list[Location]:
        pattern = join(datadir, self.text(template))
        return [Location(path, pattern, Kind.FILE) for path in globs.expand(pattern, self._documents)]

    def _uri(self, template: str) -> Location:
        uri = self.text(template)
        try:
            urlsplit(uri)
            valid = not any(char.isspace() for char in uri)
        except ValueError:
            valid = False
        if not valid:
            raise ConfigError("", f"bad URI(is not URI?): {values.inspect(uri)}")
        # Whether anything is there is for the function to find out.
        return Location(uri, template, Kind.FILE, is_uri=True)

    def _mapped(self, datadir: str, variable: str, name: str, template: str) -> list[Location]:
        """One path for each element of a variable; the element has a name of its own inside the template."""
        value = self._interpolator.variable(variable, "mapped_path[0]", self._run, self._step)
        if value is None or value in ("", [], {}):
            return []
        # Puppet crashes here: it asks a number whether it is empty.
        if isinstance(value, (int, float)):
            what = f"mapped_paths wants a text, a list or a mapping, and '{variable}' is"
            raise ConfigError("", f"{what} {values.inspect(value)}")
        found = []
        for element in _elements(value):
            with self._interpolator.scope.binding(name, element):
                found.append(self._path(datadir, template))
        return found


def _elements(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) else [[name, item] for name, item in value.items()]
