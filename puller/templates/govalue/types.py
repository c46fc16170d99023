"""The value model that the Jet and the Go engine share.

A value of Go is a plain Python value wherever that is enough:

| Go                       | Python                                    |
| ------------------------ | ----------------------------------------- |
| ``int``, ``float64``     | ``int``, ``float``                        |
| ``bool``, ``nil``        | ``bool``, ``None``                        |
| ``string``               | ``str``: see *text* below                 |
| ``[]byte``               | ``bytes``                                 |
| ``[]interface {}``       | ``list`` (or ``tuple``)                   |
| ``map[string]interface{}`` | ``dict``, always walked in key order    |
| ``int64``, ``uint8`` ... | :class:`Int64`, :class:`Uint8`            |
| ``[]string`` ...         | :class:`Strings` ...                      |
| anything else            | a subclass of :class:`GoObject`           |
| *no value at all*        | :data:`MISSING`: a missing key            |

* *Text.* A string of Go is bytes. Here it is ``str`` decoded with ``surrogateescape``: a string cut in the middle of a
  character survives, and positions count bytes (:func:`byte_slice`).
* ``nil`` and *no value* differ: a mapping may hold ``nil`` under a key.
* *Size.* Lists can contain the same list many times, or themselves. Call :func:`ensure_small` before a walk over a
  whole value.
* Names from templates never become Python attribute names.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

INT64_MAX: Final = 2**63 - 1
UINT64_MAX: Final = 2**64 - 1
MAX_DEPTH: Final = 200
MAX_ITEMS: Final = 1_000_000
MAX_CHARACTERS: Final = 64 * 1024 * 1024
_INT64_SIGN: Final = 2**63
_INT64_SPAN: Final = 2**64


class Missing(enum.Enum):
    """The type of :data:`MISSING`."""

    MISSING = "missing"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing.MISSING


class Int64(int):
    """Go's ``int64``: an ``int`` with another type name."""

    go_type: ClassVar[str] = "int64"


class Int32(int):
    """Go's ``int32``, and ``rune``."""

    go_type: ClassVar[str] = "int32"


class Uint8(int):
    """Go's ``uint8``: one byte of a string."""

    go_type: ClassVar[str] = "uint8"


class Uint64(int):
    """Go's ``uint64``: the result of arithmetic on bytes."""

    go_type: ClassVar[str] = "uint64"


class Strings(list[str]):
    """Go's ``[]string``."""

    go_type: ClassVar[str] = "[]string"


class Ints(list[int]):
    """Go's ``[]int``."""

    go_type: ClassVar[str] = "[]int"


class Lists(list[list[Any]]):
    """Go's ``[][]interface {}``."""

    go_type: ClassVar[str] = "[][]interface {}"


class StringMap(dict[str, str]):
    """Go's ``map[string]string``."""

    go_type: ClassVar[str] = "map[string]string"


class NilSlice(list[Any]):
    """A nil ``[]interface {}``: an empty list, but ``null`` in JSON."""

    go_type: ClassVar[str] = "[]interface {}"


class NilStrings(Strings):
    """A nil ``[]string``."""


class NilMap(dict[str, Any]):
    """A nil ``map[string]interface {}``: an empty map, but ``null`` in JSON."""

    go_type: ClassVar[str] = "map[string]interface {}"


class LazyMap(dict[str, Any]):
    """A ``map[string]interface {}`` with some values that are made when a template reads them.

    Listing its keys makes no values. Each way to read a value raises the errors of making it.
    """

    go_type: ClassVar[str] = "map[string]interface {}"

    def __init__(self, known: Mapping[str, Any], pending: Iterable[str], make: Callable[[str], Any]) -> None:
        """``make`` returns the value of a ``pending`` key."""
        super().__init__({**known, **dict.fromkeys(pending, _UNMADE)})
        self._make = make

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if value is _UNMADE:
            value = self[key] = self._make(key)
        return value

    def __iter__(self) -> Iterator[str]:
        # Without this method, ``dict(self)`` and similar calls would bypass __getitem__ and read unmade values.
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, else ``default``."""
        if key not in self:
            return default
        return self[key]

    def items(self) -> Any:
        """Return all keys with their values."""
        return [(key, self[key]) for key in self]

    def values(self) -> Any:
        """Return all values."""
        return [self[key] for key in self]


_UNMADE: Final = object()


class UnlistedMap(LazyMap):
    """A ``LazyMap`` over a mapping whose keys are listed only when a template needs all keys."""

    def __init__(self, source: Mapping[str, Any], make: Callable[[str], Any]) -> None:
        super().__init__({}, (), make)
        self._source = source
        self._is_listed = False

    def _list(self) -> None:
        if self._is_listed:
            return
        self._is_listed = True
        for key in self._source:
            self.setdefault(key, _UNMADE)

    def __missing__(self, key: str) -> Any:
        if self._is_listed or key not in self._source:
            raise KeyError(key)
        return _UNMADE

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (not self._is_listed and key in self._source)

    def __iter__(self) -> Iterator[str]:
        self._list()
        return super().__iter__()

    def __len__(self) -> int:
        self._list()
        return super().__len__()

    def keys(self) -> Any:
        """Return all keys."""
        self._list()
        return super().keys()

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a key and return its value, else ``default``."""
        self._list()  # otherwise the source would restore it
        return super().pop(key, *default)


class GoObject:
    """A value of another type: a time, a version, an error. Subclasses define how it prints."""

    go_type: ClassVar[str]
    go_kind: ClassVar[str] = "struct"

    def text(self) -> str:
        """Return the result of Go's ``String()`` or ``Error()``, for ``%v``, ``%s`` and ``%q``.

        Raises FunctionError for values that can only be printed.
        """
        raise NotImplementedError

    def as_integer(self) -> int | None:
        """Return the number that verbs for integers print, or ``None``, since most kinds are structs."""
        return None

    def json_value(self) -> Any:
        """Return the value's form in JSON. A struct of Go without exported fields is an empty object."""
        return {}


class GoError(GoObject):
    """Go's ``error``, as a value inside a template."""

    go_type: ClassVar[str] = "*errors.errorString"
    go_kind: ClassVar[str] = "ptr"

    def __init__(self, message: str) -> None:
        self.message = message

    def text(self) -> str:
        """Return the message."""
        return self.message


_TYPE_NAMES: Final[dict[type, str]] = {
    type(None): "<nil>",
    Missing: "<nil>",
    bool: "bool",
    int: "int",
    float: "float64",
    str: "string",
    bytes: "[]uint8",
    list: "[]interface {}",
    tuple: "[]interface {}",
    dict: "map[string]interface {}",
}

_KINDS: Final[dict[str, str]] = {
    "<nil>": "invalid",
    "bool": "bool",
    "int": "int",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "uint64": "uint64",
    "float64": "float64",
    "string": "string",
}


def type_name(value: Any) -> str:
    """Return the name of the value's type as Go prints it with ``%T``, for example ``map[string]interface {}``."""
    kind = type(value)
    name = _TYPE_NAMES.get(kind) or getattr(kind, "go_type", None)
    if name is not None:
        return str(name)
    if callable(value):
        return "func"
    return next((n for t, n in _TYPE_NAMES.items() if isinstance(value, t)), kind.__name__)


def kind_name(value: Any) -> str:
    """Return the kind of the value as Go's ``reflect`` names it: ``int``, ``slice``, ``map``. Nil is ``invalid``."""
    if isinstance(value, GoObject):
        return value.go_kind
    name = type_name(value)
    if name in _KINDS:
        return _KINDS[name]
    if name.startswith("[]"):
        return "slice"
    return "map" if name.startswith("map[") else "func" if callable(value) else "struct"


def is_integer(value: object) -> bool:
    """Return whether the value is an integer in Go (``bool`` is not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether the value is an integer or a float in Go (``bool`` is not)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_list(value: object) -> bool:
    """Return whether the value is a slice other than ``[]byte``."""
    return isinstance(value, (list, tuple))


def wrap_int64(number: int) -> int:
    """Return the number as the result of 64-bit arithmetic: Go's integers wrap around silently."""
    if -_INT64_SIGN <= number <= INT64_MAX:
        return number
    return (number + _INT64_SIGN) % _INT64_SPAN - _INT64_SIGN


def float_to_int(number: float) -> int:
    """Return Go's ``int(f)`` on amd64: cut towards zero. Out of range, the result is the smallest integer."""
    if -9223372036854775808.0 <= number < 9223372036854775808.0:
        return int(number)
    return -_INT64_SIGN


def int_to_float(number: int) -> float:
    """Return Go's ``float64(i)``. An integer beyond Go's range becomes an infinity at worst."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def map_keys(mapping: dict[Any, Any]) -> list[Any]:
    """Return the keys in the order in which Go prints a map, and in which both engines iterate."""
    try:
        return sorted(mapping)
    except TypeError:  # keys of several types: YAML allows them, Go's maps do not
        return sorted(mapping, key=lambda key: (type_name(key), str(key)))


def to_bytes(text: str) -> bytes:
    """Return the bytes of a Go string."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a UTF-16 pair, from JSON: Go's decoder puts U+FFFD there
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def from_bytes(data: bytes) -> str:
    """Return a Go string made of bytes."""
    return data.decode("utf-8", "surrogateescape")


def byte_length(text: str) -> int:
    """Go's ``len`` of a string."""
    return len(text) if text.isascii() else len(to_bytes(text))


def byte_slice(text: str, start: int, end: int) -> str:
    """Go's ``text[start:end]``. Both bounds are bytes and are within the string."""
    return text[start:end] if text.isascii() else from_bytes(to_bytes(text)[start:end])


def ensure_small(value: Any) -> None:
    """Reject a value that is too large to walk over for printing, encoding or comparing.

    Raises ValueError if the value is nested more than 200 levels deep (or contains itself), or has more than a million
    items or 64 Mi characters. A repeated item counts each time.
    """
    if not isinstance(value, (list, tuple, dict)):
        return
    level: list[Any] = [value]
    items = characters = 0
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for container in level:
            items += len(container)
            if items > MAX_ITEMS:
                raise ValueError(f"the value has more than {MAX_ITEMS} items")
            children = container.values() if isinstance(container, dict) else container
            characters += sum(len(child) for child in children if isinstance(child, str))
            if characters > MAX_CHARACTERS:
                raise ValueError(f"the value has more than {MAX_CHARACTERS} characters")
            inner += [child for child in children if isinstance(child, (list, tuple, dict))]
        if not inner:
            return
        level = inner
    raise ValueError(f"the value is nested more than {MAX_DEPTH} levels deep, or holds itself")
