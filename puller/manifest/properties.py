"""From values as written to typed ones, with every problem found and said in a sentence.

* One decoding of the whole in the usual case; only when that fails is each part looked at by itself, so that all
  problems are found and each has its own sentence.
* Types of ours are read by their ``parse``; msgspec asks for it through ``parse_value``.
"""

import re
from collections.abc import Container, Iterator, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from hiera.values.secrets import Secret
from puller.manifest.problems import Path, did_you_mean
from puller.resources.base import Properties, PropertyError, ResourceType

_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_PLACE = re.compile(r" - at `\$(.*)`$")
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
    """Read a value of one of our types."""
    return kind.parse(value)


def decode(resource_type: ResourceType, raw: Mapping[str, Any]) -> Properties:
    """The typed properties of a resource; raises ``msgspec.ValidationError`` for the first problem."""
    return msgspec.convert(raw, resource_type.properties_type, dec_hook=parse_value)


def find_problems(resource_type: ResourceType, raw: Mapping[str, Any]) -> Iterator[PropertyError]:
    """Every property of a resource that is unknown, missing, or does not decode."""
    for path, sentence in explain(
        resource_type.properties_type, raw, f"property of {resource_type.type_name}"
    ):
        key = str(path[0]) if path else sentence.partition(" ")[0]
        yield PropertyError(key, sentence.removeprefix(f"{key} "), place=path[1:])


def as_texts(resource_type: ResourceType, raw: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Make the decimal text of every number that an expression gave where only text is wanted.

    ``given`` has these properties as they were written. Permissions are no decimal numbers, and not made of any.
    """
    fields = {
        field.encode_name: field.type for field in msgspec.structs.fields(resource_type.properties_type)
    }
    for key, written in given.items():
        if key in fields:
            raw[key] = _as_text(fields[key], raw[key], written)


def _as_text(kind: Any, value: Any, written: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_text = isinstance(written, str) and not {str, Secret}.isdisjoint(_members(kind))
        return str(value) if is_text and not _fits(kind, value) else value
    if isinstance(value, list) and isinstance(written, list):
        of = _of_items(kind, list)
        return [_as_text(of, *pair) for pair in zip(value, written, strict=True)]
    if isinstance(value, dict) and isinstance(written, dict):
        return {key: _as_text(_of_key(kind, key), item, written[key]) for key, item in value.items()}
    return value


def decode_known(resource_type: ResourceType, raw: Mapping[str, Any], unknown: Container[str]) -> Properties:
    """The properties of a resource of which some are ``unknown``: these are as written, or as if they were not given.

    When not even that can be decoded, only what all types have: its name, and what it requires.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(resource_type.properties_type)}
    known = {
        key: value
        for key, value in raw.items()
        if key not in unknown or (key in fields and _fits(fields[key].type, value))
    }
    missing = (key for key, field in fields.items() if field.required and key not in known)
    try:
        return decode(resource_type, {**dict.fromkeys(missing, ""), **known})
    except msgspec.ValidationError:
        return _decode_common(raw)


def _decode_common(raw: Mapping[str, Any]) -> Properties:
    common = {
        field.name: msgspec.convert(raw[field.encode_name], field.type, dec_hook=parse_value)
        for field in msgspec.structs.fields(Properties)
        if field.encode_name in raw and _fits(field.type, raw[field.encode_name])
    }
    return Properties(**{**common, "name": str(raw.get("name"))})


def value_at(value: Any, path: Path) -> Any:
    """What a path leads to; ``None`` where it leads nowhere."""
    for key in path:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return None
    return value


def explain(struct: type[msgspec.Struct], raw: Mapping[str, Any], what: str) -> Iterator[tuple[Path, str]]:
    """Every key of ``raw`` that does not fit ``struct``: its path, and a sentence that begins with the key.

    ``what`` names such a key: ``property of file``.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    for key, value in raw.items():
        if key not in fields:
            yield (key,), f"{key} is not a {what}{did_you_mean(str(key), fields)}"
        else:
            yield from _explain_value(fields[key].type, value, (key,), "")
    for key, field in fields.items():
        if field.required and key not in raw:
            yield (), f"{key} is missing"


def _explain_value(kind: Any, value: object, path: Path, place: str) -> Iterator[tuple[Path, str]]:
    """What is wrong with the value of the key that ``path`` begins with, ``place`` being where in it."""
    try:
        msgspec.convert(value, kind, dec_hook=parse_value)
        return
    except msgspec.ValidationError as error:
        said = str(error)
    inner = list(_explain_inside(kind, value, path, place))
    yield from inner
    if not inner:
        yield path, f"{path[0]} {_sentence(said, value, place)}"


def _explain_inside(kind: Any, value: object, path: Path, place: str) -> Iterator[tuple[Path, str]]:
    """Problems of the parts that a value is made of, where it is made of any."""
    if isinstance(value, list):
        of = _of_items(kind, list)
        for index, item in enumerate(value):
            yield from _explain_value(of, item, (*path, index), f"{place}[{index}]")
    elif isinstance(value, dict) and (struct := _struct_in(kind)) is not None:
        for inside, sentence in explain(struct, value, f"key of {path[0]}"):
            yield (*path, *inside), sentence
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _explain_value(_of_key(kind, key), item, (*path, key), f"{place}.{key}")


def _members(kind: Any) -> tuple[Any, ...]:
    """The types that a value may have."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    members = (member for member in _members(kind) if isinstance(member, type))
    return next((member for member in members if issubclass(member, msgspec.Struct)), None)


def _of_items(kind: Any, container: type) -> Any:
    """What the items of a list, or the values of a mapping, have to be."""
    origins = (dict,) if container is dict else (tuple, list)
    found = next((get_args(member) for member in _members(kind) if get_origin(member) in origins), (Any,))
    return found[-1] if container is dict else found[0]


def _of_key(kind: Any, key: object) -> Any:
    """The same of one key of a mapping."""
    if (struct := _struct_in(kind)) is None:
        return _of_items(kind, dict)
    return next((field.type for field in msgspec.structs.fields(struct) if field.encode_name == key), Any)


def _fits(kind: Any, value: object) -> bool:
    try:
        msgspec.convert(value, kind, dec_hook=parse_value)
    except msgspec.ValidationError:
        return False
    return True


def _sentence(error: str, value: object, place: str) -> str:
    match = _EXPECTED.match(error)
    if match is None:
        said = _PLACE.sub("", error)
        return f"has an entry at {place.lstrip('.')} that {said}" if place else said
    expected, got = match.groups()
    kinds = [part.strip() for part in expected.split("|")]
    wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds if kind != "null")
    hint = ": quote it" if "str" in kinds and got in ("int", "float", "bool") else ""
    if place:
        return f"has {_WORDS.get(got, got)} at {place.lstrip('.')}, wanted {wanted}{hint}"
    # A text in the place of a mapping may be a password, one key too high.
    shown = _WORDS.get(got, got) if kinds == ["object"] else _shown(value)
    return f"is {shown}, wanted {wanted}{hint}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "empty" if value is None else repr(value)
