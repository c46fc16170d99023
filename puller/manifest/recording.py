"""The facts and data that a resource uses, recorded while its values are resolved.

* The recording mappings behave like the original ones. They read no additional values.
* The deepest requested part counts as used: ``facts.os.family``, not ``facts.os``. An iterated mapping counts as used
  as a whole.
* Missing keys are recorded too, because a default may have replaced them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from foundation.problems import KeyPath
from hiera.expressions.expressions import Scope
from hiera.values.plain import MISSING
from puller.bundle_paths import BundleFiles
from puller.templates.functions import bundle_functions

_METHODS = frozenset({"get", "items", "keys", "values"})
"""Methods that an expression may call. Keys of the same name take precedence."""

DataPath = tuple[Any, ...]
"""The keys that lead to a value: ``("data", "web", "port")``."""


class Uses:
    """The facts and data that one resource has used."""

    def __init__(self) -> None:
        self.values: dict[DataPath, Any] = {}
        """By path. ``MISSING`` for missing keys."""

    def note(self, path: DataPath, value: Any) -> None:
        """Record the use of ``value``. Its parent was only a step on the path."""
        # ``facts.os.family`` requests ``facts.os`` first, which does not count as used.
        self.values.pop(path[:-1], None)
        self.values[path] = value

    def scope(self, scope: Scope, files: BundleFiles) -> Scope:
        """Return a scope with the names of ``scope`` that records its use."""
        recording = Scope(
            Recording(scope.facts, ("facts",), self),
            Recording(scope.data, ("data",), self),
            Recording(scope.environ, ("environ",), self),
            {**scope.functions, "hiera": self._hiera(scope)},
        )
        return recording.with_names(bundle_functions(files, recording))

    def _hiera(self, scope: Scope) -> Any:
        def hiera(key: str, *arguments: Any, **named: Any) -> Any:
            value = scope.functions["hiera"](key, *arguments, **named)
            self.note(("hiera", key), value)
            return value

        return hiera


class Recording(Mapping[Any, Any]):
    """A mapping that records its use."""

    def __init__(self, values: Mapping[Any, Any], path: DataPath, uses: Uses) -> None:
        self._values = values
        self._path = path
        self._uses = uses
        self._whole = False

    def __getitem__(self, key: Any) -> Any:
        path = (*self._path, key)
        try:
            value = self._values[key]
        except KeyError:
            if not self._whole and key not in _METHODS:
                self._uses.note(path, MISSING)
            raise
        if self._whole:
            return value
        self._uses.note(path, value)
        return Recording(value, path, self._uses) if isinstance(value, Mapping) else value

    def __iter__(self) -> Iterator[Any]:
        # Iteration may use every key, so single keys are not recorded any longer.
        self._whole = True
        if len(self._path) == 1:  # all facts or all data, without a key
            self._uses.values[self._path] = {}
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __bool__(self) -> bool:
        return bool(self._values)


class Recorder:
    """The facts and data that each resource of a manifest has used. ``watch`` is for ``Inputs``."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, KeyPath, int], tuple[Uses, Scope]] = {}

    def watch(self, source: str, path: KeyPath, around: Scope, scope: Scope, files: BundleFiles) -> Scope:
        """Return a recording scope for the resource at ``path`` of the text ``source``. Its manifest has the scope
        ``around``.
        """
        return self.of(source, path, around).scope(scope, files)

    def of(self, source: str, path: KeyPath, around: Scope) -> Uses:
        """Return the facts and data that the resource at ``path`` of the text ``source`` has used."""
        # A child that is applied with several data is read once with each scope. Scopes are kept so that ids stay
        # unique.
        return self._uses.setdefault((source, path, id(around)), (Uses(), around))[0]
