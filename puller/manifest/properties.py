"""From values as written to typed ones, with every problem found and said in a sentence.

* One decoding of the whole in the usual case; only when that fails is each part looked at by itself, so that all
  problems are found and each has its own sentence.
* Types of ours are read by their ``parse``; msgspec asks for it through ``parse_value``.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Any

import msgspec

from hiera.values.secrets import Secret
from puller.resources.base import Properties, PropertyError, ResourceType
from puller.values.convert import explain, fits, item_type, key_type, members, parse_value
from puller.values.suggestions import Path


def decode(resource_type: ResourceType, raw: Mapping[str, Any]) -> Properties:
    """The typed properties of a resource; raises ``msgspec.ValidationError`` for the first problem."""
    return msgspec.convert(raw, resource_type.properties_type, dec_hook=parse_value)


def find_problems(resource_type: ResourceType, raw: Mapping[str, Any]) -> Iterator[PropertyError]:
    """Every property of a resource that is unknown, missing, or does not decode."""
    for mismatch in explain(resource_type.properties_type, raw, f"property of {resource_type.type_name}"):
        yield PropertyError(
            mismatch.key,
            f"{mismatch.inner_key} {mismatch.message}" if mismatch.inner_key else mismatch.message,
            place=mismatch.path[1:],
            code=mismatch.code,
            names=mismatch.names,
            expected=mismatch.expected,
            hint=mismatch.hint,
            is_unquoted=mismatch.is_unquoted,
            shows_value=mismatch.shows_value,
        )


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
        is_text = isinstance(written, str) and not {str, Secret}.isdisjoint(members(kind))
        return str(value) if is_text and not fits(kind, value) else value
    if isinstance(value, list) and isinstance(written, list):
        of = item_type(kind, list)
        return [_as_text(of, *pair) for pair in zip(value, written, strict=True)]
    if isinstance(value, dict) and isinstance(written, dict):
        return {key: _as_text(key_type(kind, key), item, written[key]) for key, item in value.items()}
    return value


def decode_known(resource_type: ResourceType, raw: Mapping[str, Any], unknown: Container[str]) -> Properties:
    """The properties of a resource of which some are ``unknown``: these are as written, or as if they were not given.

    When not even that can be decoded, only what all types have: its name, and what it requires.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(resource_type.properties_type)}
    known = {
        key: value
        for key, value in raw.items()
        if key not in unknown or (key in fields and fits(fields[key].type, value))
    }
    # A required property that is open would keep all others from being read; its failure is noted already.
    missing = (key for key, field in fields.items() if field.required and key not in known)
    try:
        return decode(resource_type, {**dict.fromkeys(missing, ""), **known})
    except msgspec.ValidationError:
        return _decode_common(raw)


def _decode_common(raw: Mapping[str, Any]) -> Properties:
    common = {
        field.name: msgspec.convert(raw[field.encode_name], field.type, dec_hook=parse_value)
        for field in msgspec.structs.fields(Properties)
        if field.encode_name in raw and fits(field.type, raw[field.encode_name])
    }
    return Properties(**{**common, "name": str(raw.get("name"))})


def value_at(value: Any, path: Path) -> Any:
    """The value at a path; ``None`` where there is none."""
    for key in path:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return None
    return value
