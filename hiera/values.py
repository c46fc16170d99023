r"""Plain values (text, numbers, booleans, null, lists and mappings), secrets among them, merging, and dotted paths.

Secrets must not be shown:

* ``str``, ``repr`` and ``format`` of a secret are a mask. Only ``reveal`` returns the value.
* A text that contains a secret is a secret itself.
* Code without support for secrets, such as an HTTP library, only needs ``reveal``.

Merging:

* The later value wins in a merge. Null and empty values are values, too. Keys are never removed.
* A merge does not change its inputs. Unmerged parts are shared between input and result.

Paths are texts such as ``data.web.port``, ``data.hosts.0``, ``data.hosts.#`` and ``facts.a\.b``:

* A step into a mapping is a key. A step into a list is an index from 0, and a final ``#`` is the length of the list.
* A backslash makes the next character ordinary: ``\.`` a dot, ``\#`` a number sign, ``\\`` a backslash.
* A step of digits such as ``80`` matches a key that is a number or a text.
* *Missing* is a separate value, because null is a valid result.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

from foundation.masking import VALUE_MASK
from hiera.errors import ExpressionError, LimitError


class Secret:
    """A masked value. Two secrets with the same value are equal."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the secret of a password or token in settings and properties. Raises ValueError without the value."""
        if not isinstance(value, str):
            raise ValueError("is not text")
        return cls(value)

    def reveal(self) -> Any:
        """Return the value, for its final use: a file, an environment, a template."""
        return self._value

    def __repr__(self) -> str:
        return VALUE_MASK

    def __format__(self, spec: str) -> str:
        return format(VALUE_MASK, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and bool(self._value == other._value)

    def __hash__(self) -> int:
        # Hash the text, since lists and mappings are not hashable.
        return hash((Secret, str(self._value)))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a secret is not pickled: it would be readable in the result")


class Decrypted(Secret):
    """A text that was encrypted in the data. Puppet treats it as ordinary text, which other texts can contain."""

    __slots__ = ()


def has_secret(value: Any) -> bool:
    """Return whether ``value`` is a secret or contains one."""
    if isinstance(value, dict):
        return any(has_secret(name) or has_secret(item) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return any(map(has_secret, value))
    return isinstance(value, Secret)


def revealed(value: Any, kind: type[Secret] = Secret) -> Any:
    """Return a copy of ``value`` with each secret of ``kind`` in it replaced by its value."""
    if isinstance(value, dict):
        return {revealed(name, kind): revealed(item, kind) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [revealed(item, kind) for item in value]
        return items if isinstance(value, list) else getattr(type(value), "_make", tuple)(items)
    return revealed(value.reveal(), kind) if isinstance(value, kind) else value


class Each(str):
    """The type of ``EACH``. Its text is the form in printed paths."""

    __slots__ = ()


EACH: Final = Each("*")
"""The step of a path for every item of a list."""


def hidden_at(data: Mapping[Any, Any], path: Sequence[str | int]) -> dict[Any, Any]:
    """Return a copy of ``data`` in which all values at and below ``path`` are secrets."""
    return {key: hidden_below(value, path, (key,)) for key, value in data.items()}


def hidden_below(value: Any, path: Sequence[str | int], above: Sequence[str | int]) -> Any:
    """Return ``value``, found at ``above``, with secrets: the whole value, or the part at ``path``."""
    if not all(map(is_step, above, path)):
        return value
    return _hidden_under(value, path[len(above) :])


def _hidden_under(value: Any, path: Sequence[str | int]) -> Any:
    if not path:
        return hidden(value)
    step, *remainder = path
    if step is EACH:
        return [_hidden_under(item, remainder) for item in value] if isinstance(value, list) else value
    if not isinstance(value, Mapping):
        return value
    return {
        name: _hidden_under(item, remainder) if is_step(name, step) else item for name, item in value.items()
    }


def is_step(key: object, step: object) -> bool:
    """Return whether a key or an index matches the step of an annotation: the text of a key, or ``EACH``."""
    if step is EACH:
        return isinstance(key, int)
    return key == step or str(key) == str(step)


def hidden(value: Any) -> Any:
    """Return a copy of ``value`` in which every text, number and boolean is a secret. Null stays null."""
    if isinstance(value, Mapping):
        return {name: hidden(item) for name, item in value.items()}
    if isinstance(value, list):
        return [hidden(item) for item in value]
    return value if value is None or isinstance(value, Secret) else Secret(value)


TYPES: Final = frozenset({str, int, float, bool, type(None), list, dict})
"""The types of plain values."""

ITEM_LIMIT: Final = 4_000_000
"""Maximum items of a value, including nested lists and mappings."""

_KINDS: Final[tuple[tuple[Any, str], ...]] = (
    (str, "text"),
    (bool, "a boolean"),
    ((int, float), "a number"),
    (type(None), "null"),
    ((list, tuple), "a list"),
    (Mapping, "a mapping"),
    (Secret, "a secret"),
)


def described(value: Any) -> str:
    """Return the kind of a value, for a sentence. Never its content."""
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return "a function" if callable(value) else "no plain value"


def plain(value: Any) -> Any:
    """Return ``value`` with every mapping a dict and every iterable a list. A plain value is returned unchanged.

    Raises ExpressionError for a function or another object, LimitError for more than ``ITEM_LIMIT`` items.
    """
    return _Maker().made(value)


class _Maker:
    def __init__(self) -> None:
        self.left = ITEM_LIMIT

    def made(self, value: Any) -> Any:
        kind = type(value)
        if kind is dict or kind is list:
            return self.items(value, value.items() if kind is dict else enumerate(value))
        if kind in TYPES or isinstance(value, Secret):
            return value
        if isinstance(value, str):
            return str(value)
        if hasattr(kind, "_undefined_message"):
            return str(value)  # Jinja2's undefined: an error, or for a condition without else the empty text
        if isinstance(value, Mapping):
            return {key: self.counted(item) for key, item in value.items()}
        if isinstance(value, Iterable):
            return [self.counted(item) for item in value]
        raise ExpressionError("", f"is {described(value)}, not a value")

    def items(self, container: Any, items: Iterable[tuple[Any, Any]]) -> Any:
        copy = None
        for key, item in items:
            made = self.counted(item)
            if made is not item:
                copy = container.copy() if copy is None else copy
                copy[key] = made
        return container if copy is None else copy

    def counted(self, item: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise LimitError("", f"has more than {ITEM_LIMIT} items, counted with those inside them")
        return self.made(item)


# Merging.


def merge_first(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return ``base`` with top-level keys replaced by those in ``over``."""
    return {**base, **over}


def merge_deep(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return mappings merged recursively, and lists concatenated (``base`` first). Other values are replaced."""
    return _merged(base, over, join=True)


def merge_sources(base: Mapping[Any, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return mappings merged recursively. Lists and other values are replaced."""
    return _merged(base, over, join=False)


def _merged(base: Mapping[Any, Any], over: Mapping[Any, Any], *, join: bool) -> dict[Any, Any]:
    result = dict(base)
    for key, value in over.items():
        present = result.get(key)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            result[key] = _merged(present, value, join=join)
        elif join and isinstance(present, list) and isinstance(value, list):
            result[key] = present + value
        else:
            result[key] = value
    return result


class Missing:
    """The type of ``MISSING``, for a missing value."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()

LENGTH: Final = "#"
"""The last step of a path that requests a length. Write a key of this name with a backslash."""

_STEP: Final = r"(?:[^.\\]|\\.)+"
_MOST_STEPS: Final = 100  # the maximum depth of documents
_SHOWN: Final = 80  # characters of a path in a message
_LONGEST_INDEX: Final = 18  # digits, since longer numbers are no index and slow to convert


class Key(str):
    """A step that was written with a backslash: always a key, never the length."""

    __slots__ = ()


@functools.lru_cache(maxsize=4096)
def parse_path(text: str) -> tuple[str, ...]:
    """Return the steps of a dotted path.

    Raises ExpressionError for an empty step, a ``#`` before the last step, and too many steps.
    """
    steps = re.findall(_STEP, text, re.DOTALL) if "\\" in text else [step for step in text.split(".") if step]
    if len(steps) > _MOST_STEPS:
        detail = f"has {len(steps)} steps, at most {_MOST_STEPS} are followed"
        raise ExpressionError("", f"the path {text[:_SHOWN]!r}… {detail}")
    # Skipped characters (empty steps, and a backslash at the end) are missing in the sum.
    if sum(map(len, steps)) + len(steps) - 1 != len(text):
        raise ExpressionError("", f"the path {text!r} has an empty step or ends in a backslash")
    if LENGTH in steps[:-1]:
        raise ExpressionError("", f"the path {text!r} has a # that is not its last step")
    return tuple(
        Key(re.sub(r"\\(.)", r"\1", step, flags=re.DOTALL)) if "\\" in step else step for step in steps
    )


def find_value(value: Any, path: Sequence[str]) -> Any:
    """Return the value at ``path`` below ``value``, or ``MISSING``. A part of a secret is a secret."""
    for position, key in enumerate(path):
        if type(value) is not dict or (below := value.get(key, MISSING)) is MISSING:
            below = step(value, key)
        if below is MISSING:
            return _inside_secret(value, path[position:])
        value = below
    return value


def _inside_secret(value: Any, path: Sequence[str]) -> Any:
    below = find_value(value.reveal(), path) if isinstance(value, Secret) else MISSING
    return below if below is MISSING or isinstance(below, Secret) else Secret(below)


def step(value: Any, key: str | int) -> Any:
    """Return the value under one key or index, or ``MISSING``."""
    if type(value) is dict:  # the most common case, and faster than a test for a Mapping
        result = value.get(key, MISSING)
        return _other_spelling(value, key) if result is MISSING else result
    if isinstance(value, Mapping):
        try:
            return value[key]
        except KeyError:
            return _other_spelling(value, key)
    if not isinstance(value, (list, tuple)):
        return MISSING
    if key == LENGTH and type(key) is str:
        return len(value)
    index = _as_index(key)
    return value[index] if index is not None and 0 <= index < len(value) else MISSING


def _other_spelling(value: Mapping[Any, Any], key: str | int) -> Any:
    other = str(key) if isinstance(key, int) else _as_index(key)
    return MISSING if other is None else value.get(other, MISSING)


def _as_index(key: str | int) -> int | None:
    if isinstance(key, int):
        return key
    return int(key) if len(key) <= _LONGEST_INDEX and key.isascii() and key.isdecimal() else None


def first_missing(value: Any, path: Sequence[str]) -> tuple[Any, int]:
    """Return the last existing value on the path, and the number of steps to it."""
    for count, key in enumerate(path):
        below = step(value, key)
        if below is MISSING:
            return value, count
        value = below
    return value, len(path)


def path_text(keys: Iterable[str | int]) -> str:
    """Return a path in the form for messages: ``data.web.ports[0]``, with odd keys in brackets and quotes."""
    text = ""
    for key in keys:
        # The same as the expression [\w-]+, which few runs would need otherwise.
        if isinstance(key, str) and key.replace("-", "_").replace("_", "a").isalnum():
            text += f".{key}" if text else key
        else:
            text += f"[{key!r}]"
    return text
