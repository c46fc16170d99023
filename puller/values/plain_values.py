"""Plain values: their conversion to typed values, with all problems of a mapping, and their identity.

* The types of Puller have a method ``parse``, which msgspec calls through ``parse_value``.
* Identity is stricter than equality: ``1``, ``1.0`` and ``true`` differ.
"""

import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from foundation.problems import KeyPath, Problem, ProblemCode
from foundation.suggestions import Meant, meant
from hiera.values import Secret

# Messages of msgspec, whose types become words of YAML. Not compiled here, because most values are valid.
_EXPECTED = r"Expected `([^`]*)`, got `([^`]*)`"
_PLACE = r" - at `\$(.*)`$"
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def parse_value(kind: Any, value: object) -> Any:
    """Return a value parsed by one of Puller's types."""
    return kind.parse(value)


class Mismatch(NamedTuple):
    """A key of a mapping whose value does not fit its type."""

    path: KeyPath
    """The path of the mistake. Empty for a missing key."""
    key: str
    message: str
    """Continues after the key."""
    code: ProblemCode = ProblemCode.INVALID_VALUE
    names: Meant | None = None
    """Similar names."""
    expected: str = ""
    is_unquoted: bool = False
    """Whether the value would be valid as quoted text."""
    inner_key: str = ""
    """The key inside of the value that the message is about."""
    shows_value: bool = True
    """Whether messages may show the written text."""

    @property
    def hint(self) -> str:
        """How to fix it."""
        return QUOTE if self.is_unquoted else ""

    def problem(self) -> Problem:
        """Return the problem, without its place."""
        return Problem(
            code=self.code,
            message=f"{self.inner_key or self.key} {self.message}",
            property=self.key,
            **(self.names or {}),
            expected=self.expected,
            hint=self.hint,
        )


QUOTE = "quote it"


def explain(struct: type[msgspec.Struct], raw: Mapping[str, Any], what: str) -> Iterator[Mismatch]:
    """Yield every key of ``raw`` that does not fit ``struct``. ``what`` describes such a key: ``property of file``.

    A required key that is only misspelt is not missing as well.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    misspelt: set[str] = set()
    for key, value in raw.items():
        if key not in fields:
            names = meant(str(key), fields)
            misspelt.update(names.get("suggestions", ()))
            yield Mismatch((key,), str(key), f"is not a {what}", ProblemCode.UNKNOWN_PROPERTY, names)
        else:
            yield from _explain_value(fields[key].type, value, (key,), "")
    for key, field in fields.items():
        if field.required and key not in raw and key not in misspelt:
            yield Mismatch((), key, "is missing", ProblemCode.MISSING_PROPERTY)


def _explain_value(kind: Any, value: object, path: KeyPath, place: str) -> Iterator[Mismatch]:
    """Yield the mismatches of a value. ``path`` starts with its key, and ``place`` is the place inside of the value."""
    try:
        msgspec.convert(value, kind, dec_hook=parse_value)
        return
    except msgspec.ValidationError as error:
        reason = str(error)
    # msgspec stops at the first problem. Each part is converted alone to find the others.
    inner = list(_explain_inside(kind, value, path, place))
    yield from inner
    if not inner:
        choices = "" if place else _choices(kind)
        message, expected = (f"is {_shown(value)}", choices) if choices else _sentence(reason, value, place)
        yield Mismatch(
            path,
            str(path[0]),
            message,
            expected=expected,
            is_unquoted=isinstance(value, int | float) and fits(kind, _shown(value)),
            shows_value=Secret not in members(kind),
        )


def fits(kind: Any, value: object) -> bool:
    """Return whether a value is valid for a type."""
    try:
        msgspec.convert(value, kind, dec_hook=parse_value)
    except msgspec.ValidationError:
        return False
    return True


def _explain_inside(kind: Any, value: object, path: KeyPath, place: str) -> Iterator[Mismatch]:
    """Yield the mismatches of the parts of a value."""
    if isinstance(value, list):
        of = item_type(kind, list)
        for index, item in enumerate(value):
            yield from _explain_value(of, item, (*path, index), f"{place}[{index}]")
    elif isinstance(value, dict) and (struct := _struct_in(kind)) is not None:
        for inside in explain(struct, value, f"key of {path[0]}"):
            inner_key = inside.inner_key or inside.key
            yield inside._replace(path=(*path, *inside.path), key=str(path[0]), inner_key=inner_key)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _explain_value(key_type(kind, key), item, (*path, key), f"{place}.{key}")


def members(kind: Any) -> tuple[Any, ...]:
    """Return the types that a value may have."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    result = (member for member in members(kind) if isinstance(member, type))
    return next((member for member in result if issubclass(member, msgspec.Struct)), None)


def item_type(kind: Any, container: type) -> Any:
    """Return the type of the items of a list, or of the values of a mapping."""
    origins = (dict,) if container is dict else (tuple, list)
    result = next((get_args(member) for member in members(kind) if get_origin(member) in origins), (Any,))
    return result[-1] if container is dict else result[0]


def key_type(kind: Any, key: object) -> Any:
    """Return the type of the value of one key of a mapping."""
    if (struct := _struct_in(kind)) is None:
        return item_type(kind, dict)
    return next((field.type for field in msgspec.structs.fields(struct) if field.encode_name == key), Any)


def _choices(kind: Any) -> str:
    """Return the allowed words of a value, with its other types. Empty without words."""
    results = [member for member in members(kind) if member is not type(None)]
    words = [word for member in results if get_origin(member) is Literal for word in get_args(member)]
    if not words:
        return ""
    return " or ".join([*(_WORDS[member.__name__] for member in results if isinstance(member, type)), *words])


def _sentence(error: str, value: object, place: str) -> tuple[str, str]:
    """Return the message for an error of msgspec, and the expected values."""
    match = re.match(_EXPECTED, error)
    if match is None:
        text = re.sub(_PLACE, "", error)
        return (f"has an entry at {place.lstrip('.')} that {text}" if place else text), ""
    expected, got = match.groups()
    kinds = [part.strip() for part in expected.split("|")]
    desired = " or ".join(_WORDS.get(kind, kind) for kind in kinds if kind != "null")
    if place:
        return f"has {_WORDS.get(got, got)} at {place.lstrip('.')}", desired
    # A text in place of a mapping may be a password at the wrong level.
    shown = _WORDS.get(got, got) if kinds == ["object"] else _shown(value)
    return f"is {shown}", desired


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "empty" if value is None else repr(value)


def identical(first: Any, other: Any) -> bool:
    """Return whether both values always have the same effect. Mappings have no order."""
    if first is other:
        return True
    if isinstance(first, Mapping) and isinstance(other, Mapping):
        same_keys = {(type(key), key) for key in first} == {(type(key), key) for key in other}
        return same_keys and all(identical(first[key], other[key]) for key in first)
    if isinstance(first, Secret) and isinstance(other, Secret):
        return identical(first.reveal(), other.reveal())
    if type(first) is not type(other):
        return False
    if isinstance(first, list | tuple):
        return len(first) == len(other) and all(map(identical, first, other))
    return bool(first == other) or (first != first and other != other)  # .nan of YAML never equals itself


def fingerprint(value: Any) -> int:
    """Return a number that is the same for identical values."""
    if isinstance(value, Mapping):
        return hash(frozenset((key, fingerprint(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return hash(tuple(map(fingerprint, value)))
    return hash((type(value), repr(value)))
