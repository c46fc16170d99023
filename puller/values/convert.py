"""Plain values to typed ones: every problem of a mapping found, and said in a sentence.

Types of ours are read by their ``parse``; msgspec asks for it through ``parse_value``.
"""

import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from puller.values.suggestions import Path, did_you_mean

# The sentences of msgspec, of which the types are kept and put into words of YAML.
# Not compiled here: most of what is converted is right.
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
    """Read a value of one of our types."""
    return kind.parse(value)


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
    # msgspec ends with the first problem; every part is tried by itself to find the others.
    inner = list(_explain_inside(kind, value, path, place))
    yield from inner
    if not inner:
        choices = "" if place else _choices(kind)
        sentence = f"is {_shown(value)}, wanted {choices}" if choices else _sentence(said, value, place)
        yield path, f"{path[0]} {sentence}"


def _explain_inside(kind: Any, value: object, path: Path, place: str) -> Iterator[tuple[Path, str]]:
    """Problems of the parts that a value is made of, where it is made of any."""
    if isinstance(value, list):
        of = item_type(kind, list)
        for index, item in enumerate(value):
            yield from _explain_value(of, item, (*path, index), f"{place}[{index}]")
    elif isinstance(value, dict) and (struct := _struct_in(kind)) is not None:
        for inside, sentence in explain(struct, value, f"key of {path[0]}"):
            yield (*path, *inside), sentence
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _explain_value(key_type(kind, key), item, (*path, key), f"{place}.{key}")


def members(kind: Any) -> tuple[Any, ...]:
    """The types that a value may have."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    found = (member for member in members(kind) if isinstance(member, type))
    return next((member for member in found if issubclass(member, msgspec.Struct)), None)


def item_type(kind: Any, container: type) -> Any:
    """The type of the items of a list, or of the values of a mapping."""
    origins = (dict,) if container is dict else (tuple, list)
    found = next((get_args(member) for member in members(kind) if get_origin(member) in origins), (Any,))
    return found[-1] if container is dict else found[0]


def key_type(kind: Any, key: object) -> Any:
    """The type of the value of one key of a mapping."""
    if (struct := _struct_in(kind)) is None:
        return item_type(kind, dict)
    return next((field.type for field in msgspec.structs.fields(struct) if field.encode_name == key), Any)


def _choices(kind: Any) -> str:
    """What a value may be, where some of it is one of a few words."""
    found = [member for member in members(kind) if member is not type(None)]
    words = [word for member in found if get_origin(member) is Literal for word in get_args(member)]
    if not words:
        return ""
    return " or ".join([*(_WORDS[member.__name__] for member in found if isinstance(member, type)), *words])


def _sentence(error: str, value: object, place: str) -> str:
    match = re.match(_EXPECTED, error)
    if match is None:
        said = re.sub(_PLACE, "", error)
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
