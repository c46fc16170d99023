"""Secret values, which must not be shown.

* ``str``, ``repr`` and ``format`` of a secret are a mask. Only ``reveal`` returns the value.
* A text that contains a secret is a secret itself.
* Code without support for secrets, such as an HTTP library, only needs ``reveal``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from foundation.masking import VALUE_MASK


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
