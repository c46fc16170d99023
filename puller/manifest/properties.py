"""From values as written to typed ones, with every problem found and said in a sentence.

* One decoding of the whole in the usual case; only when that fails is each part looked at by itself, so that all
  problems are found and each has its own sentence.
* Types of ours are read by their ``parse``; msgspec asks for it through ``parse_value``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import msgspec

from puller.manifest.problems import Path, did_you_mean
from puller.resources.base import Properties, PropertyError, ResourceType

_EXPECTED = re.compile(r"Expected `(.*)`, got `(.*?)`(?: - at `\$(.*)`)?")
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
    """Every property of a resource that is unknown or does not decode."""
    for path, sentence in explain(
        resource_type.properties_type, raw, f"property of {resource_type.type_name}"
    ):
        key = str(path[0]) if path else sentence.partition(" ")[0]
        yield PropertyError(key, sentence.removeprefix(f"{key} "))


def decode_common(raw: Mapping[str, Any]) -> Properties:
    """What can be known of a resource whose own properties do not decode: its name, and what it requires."""
    common: dict[str, Any] = {}
    for field in msgspec.structs.fields(Properties):
        if field.encode_name in raw:
            try:
                common[field.name] = msgspec.convert(raw[field.encode_name], field.type, dec_hook=parse_value)
            except msgspec.ValidationError:
                continue
    return Properties(**{**common, "name": str(raw.get("name"))})


def explain(struct: type[msgspec.Struct], raw: Mapping[str, Any], what: str) -> Iterator[tuple[Path, str]]:
    """Every key of ``raw`` that does not fit ``struct``: its path, and a sentence that begins with the key.

    ``what`` names such a key: ``property of file``.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    for key, value in raw.items():
        if key not in fields:
            yield (key,), f"{key} is not a {what}{did_you_mean(str(key), fields)}"
            continue
        kind = fields[key].type
        try:
            msgspec.convert(value, kind, dec_hook=parse_value)
        except msgspec.ValidationError as error:
            inner = list(_explain_inside(kind, value, f"key of {key}"))
            yield from (((key, *path), sentence) for path, sentence in inner)
            if not inner:
                yield (key,), f"{key} {_sentence(str(error), value)}"
    for key, field in fields.items():
        if field.required and key not in raw:
            yield (), f"{key} is missing"


def _explain_inside(kind: Any, value: object, what: str) -> Iterator[tuple[Path, str]]:
    """Problems of the structs that a value is made of, where it is made of any."""
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from explain(kind, value, what)
    elif isinstance(value, list) and (of := get_args(kind)):
        for index, item in enumerate(value):
            yield from (((index, *path), sentence) for path, sentence in _explain_inside(of[0], item, what))


def _sentence(error: str, value: object) -> str:
    match = _EXPECTED.fullmatch(error)
    if match is None:
        return _PLACE.sub(lambda place: f", at {place[1].lstrip('.')}" if place[1] else "", error)
    expected, got, place = match.groups()
    kinds = [part.strip() for part in expected.split("|")]
    wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds if kind != "null")
    if place:
        return f"has {_WORDS.get(got, got)} at {place.lstrip('.')}, wanted {wanted}"
    hint = ": quote it" if "str" in kinds and got in ("int", "float", "bool") else ""
    # A text in the place of a mapping may be a password, one key too high.
    shown = _WORDS.get(got, got) if kinds == ["object"] else _shown(value)
    return f"is {shown}, wanted {wanted}{hint}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "empty" if value is None else repr(value)
