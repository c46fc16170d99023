"""``yaml_data`` and ``json_data``: functions of the kind ``data_hash``, which give a whole file at once."""

from typing import Any

from hiera.errors import ConfigError, LookupFailure
from hiera.tree.backends.base import PATHS, Tools, texts, verify_value
from hiera.tree.config.locations import Location
from hiera.tree.context.absent import ABSENT, Absent
from hiera.tree.context.explain import Step
from hiera.tree.context.interpolation import warning
from hiera.tree.context.invocation import Invocation


class DataHash:
    """``data_hash``: a whole file at once. In ``module`` all keys belong to it, or nobody finds them."""

    def __init__(self, name: str, has_options: bool, module: str | None, tools: Tools) -> None:
        self._name = name
        self._read = tools.files.yaml if name == "yaml_data" else tools.files.json
        self._has_options = has_options
        self._module = module
        self._tools = tools
        self._seen: set[str] = set()

    def names(self, location: Location | None) -> list[str]:
        return texts(self._content(location)[0])

    def value(self, key: str, location: Location | None, invocation: Invocation, step: Step) -> Any | Absent:
        content, location = self._content(location)  # 8a.
        value = content.get(key, ABSENT)
        if value is ABSENT:
            return ABSENT
        verify_value(value, f"in hash returned from data_hash function '{self._name}'", key, location)  # 8b.
        return self._tools.interpolator.resolve(value, invocation, step)  # 8c.

    def _content(self, location: Location | None) -> tuple[dict[Any, Any], Location]:
        # Puppet's functions take a path and nothing else; any option or a URI is refused in these words.
        if location is None or location.is_uri or self._has_options:
            what = f"'{self._name}' {PATHS} when using this data_hash function"
            raise ConfigError("", f"{what}; it takes no options")
        content = self._read(location.place)
        # Once a file: every key of the module comes by here.
        if self._module and location.place not in self._seen:
            self._seen.add(location.place)
            self._verify_qualified(content, location)
        return content, location

    def _verify_qualified(self, content: dict[Any, Any], location: Location) -> None:
        source = (
            f"Value returned from data_hash function '{self._name}', when using location '{location.place}'"
        )
        for name in content:
            if not isinstance(name, str):
                what = f"Module '{self._module}': {source}: the key {name!r} is no text"
                raise LookupFailure("", what).placed()
            if name != "lookup_options" and not name.startswith(f"{self._module}::"):
                what = "must use keys qualified with the name of the module"
                self._tools.warn(warning(f"Module '{self._module}': {source}, {what}: '{name}' is not"))
