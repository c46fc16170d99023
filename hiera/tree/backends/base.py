"""The interface of a data function, and what all of them share.

* A function is asked for one top-level key at a time; the files behind it are read once.
* A value must be data: texts, numbers, booleans, null, lists, and mappings whose keys are texts or numbers.
"""

from typing import Any, NamedTuple, Protocol

from hiera.errors import LookupFailure
from hiera.tree.backends.data_files import DataFiles
from hiera.tree.config.locations import Location
from hiera.tree.context.absent import Absent
from hiera.tree.context.explain import Step
from hiera.tree.context.interpolation import Interpolator, Warn
from hiera.tree.context.invocation import Invocation
from hiera.tree.ruby.values import OddKey, Symbol


class DataFunction(Protocol):
    """Data by top-level key. Raises ``LookupFailure``, ``DocumentError``, ``ConfigError`` or ``LimitError``."""

    def names(self, location: Location | None) -> list[str]:
        """The keys at a location."""
        ...

    def value(self, key: str, location: Location | None, invocation: Invocation, step: Step) -> Any | Absent:
        """The value of a key at a location, interpolated (step 8 of ``lookup``)."""
        ...


class Tools(NamedTuple):
    """Tools that all functions share; ``private_key`` is the path of the key for levels that name none."""

    files: DataFiles
    interpolator: Interpolator
    warn: Warn
    private_key: str | None


PATHS = "one of 'path', 'paths' 'glob', 'globs' or 'mapped_paths' must be declared in hiera.yaml"


def texts(content: dict[Any, Any]) -> list[str]:
    """The keys that somebody can ask for."""
    return [name for name in content if isinstance(name, str)]


def verify_value(value: Any, source: str, key: str, location: Location) -> None:
    """Raise ``LookupFailure`` for a value with a symbol, or with a key that is neither text nor number, in it."""
    bad = _bad(value)
    if bad is not None:
        what = f"Value for key '{key}', {source}, when using location '{location.place}', has wrong type"
        raise LookupFailure("", f"{what}, expects Puppet::LookupValue, got {bad}").placed()


def _bad(value: Any) -> str | None:
    if isinstance(value, dict):
        for name, item in value.items():
            bad = f"the mapping key {name!r}" if isinstance(name, OddKey) else _bad(item)
            if bad is not None:
                return bad
    elif isinstance(value, list):
        return next((bad for bad in map(_bad, value) if bad is not None), None)
    # These two are values to Puppet: undef and the default of a case.
    elif isinstance(value, Symbol) and value.name not in ("undef", "default"):
        return f"the symbol {value!r}"
    return None
