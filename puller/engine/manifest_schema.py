"""JSON Schema (2020-12) of manifests and of requests, generated from the types that parse them.

* The schema accepts every valid manifest. It also accepts some invalid manifests, since it has no conditions between
  properties, references or expressions.
* Descriptions come from the docstrings in the source. ``--help`` shows the same descriptions.
"""

import ast
import inspect
import sys
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, Final, get_args

import msgspec

from foundation.times import Duration
from puller.bundle_paths import LIBRARY_NAME
from puller.checks import kinds
from puller.engine.ensure import REQUEST
from puller.manifest.entries import DEFAULTS, FOR
from puller.resources.base import Properties, ResourceType
from puller.resources.reboots.schedule import Share
from puller.resources.registry import find_type, type_names
from puller.values import export_types
from puller.values.common_properties import LABEL, Reference, Removed
from puller.values.file_mode import FileMode
from puller.values.maintenance import Days

# Descriptions of properties, from the docstrings in the source.


@cache
def describe_properties(properties: type[Properties]) -> dict[str, str]:
    """Return the docstring below each property, by name, common properties first. Empty without source code."""
    result: dict[str, str] = {}
    for base in reversed(properties.__mro__):
        if issubclass(base, Properties):
            result |= _described(base)
    return result


@cache
def describe_fields(struct: type) -> dict[str, str]:
    """Return the docstring below each field of a struct, by name. Empty without source code."""
    return _described(struct)


def _described(properties: type) -> dict[str, str]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[properties.__module__]))
    except (OSError, TypeError):  # a module without source
        return {}
    # Python stores no docstrings of properties, so they are read from the source code.
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == properties.__name__:
            return dict(_pairs(node))
    return {}


def _pairs(node: ast.ClassDef) -> list[tuple[str, str]]:
    return [
        (assigned.target.id, " ".join(text.value.value.replace("``", "").split()))
        for assigned, text in zip(node.body, node.body[1:], strict=False)
        if isinstance(assigned, ast.AnnAssign) and isinstance(assigned.target, ast.Name)
        if isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    ]


Schema = dict[str, Any]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCES: Final = "#/$defs/{name}"
_OF_OUR_TYPES: Final[dict[type, Schema]] = {
    Reference: {"type": "string", "pattern": "^[^#]+#."},
    Duration: {"type": ["string", "number"], "description": "30s, 5m, 1h30m, or a number of seconds"},
    kinds.GossRules: {"type": "object"},
    Removed: {"enum": ["keep", "absent"]},
    Days: {"type": "array", "items": {"type": "string"}, "minItems": 1},
    Share: {"type": ["string", "number"], "description": "20%, or a number from 1 to 100"},
    FileMode: {"type": "string", "pattern": f"{FileMode.PATTERN}|[{{][{{]"},
}
_CHECKS: Final = {
    struct.__name__: struct for struct in (kinds.HealthCheck, kinds.JsonValue, *get_args(kinds.Kind))
}
"""The structs of a health check, which have a description for each key."""
_EXPRESSION: Final[Schema] = {"type": "string", "pattern": "[{][{]"}
_TEXT: Final[Schema] = {"type": "string"}


def _exports() -> Schema:
    words = {"enum": sorted(export_types.TYPES)}
    value = {"type": ["string", "integer", "boolean", "array"]}
    declared = {
        "type": "object",
        "properties": {
            "type": {"oneOf": [words, {"type": "array", "items": words, "minItems": 1, "maxItems": 1}]},
            "value": value,
        },
        "required": ["value"],
        "additionalProperties": False,
    }
    return {
        "description": "Values that the host exports to its fleet.",
        "type": "object",
        "maxProperties": export_types.MOST,
        "propertyNames": {"pattern": f"^{export_types.NAME}$"},
        "additionalProperties": {"oneOf": [value, declared]},
    }


def manifest_schema() -> Schema:
    """Return the JSON Schema of ``manifest.yaml``."""
    kinds = _types()
    run = {
        "resources": {"type": "array", "items": {"$ref": "#/$defs/resource"}},
        "resources_template": _TEXT,
        "as_user": {"type": "boolean"},
        "fail_on_error": {"type": "boolean"},
        "give_up_after": {"type": "integer", "minimum": 0},
        "trial": {
            "type": "object",
            "properties": {"duration": _OF_OUR_TYPES[Duration], "runs": {"type": "integer", "minimum": 1}},
            "additionalProperties": False,
        },
        "removed": _OF_OUR_TYPES[Removed],
        "exports": _exports(),
        "pre_message": _TEXT,
        "post_message": _TEXT,
    }
    ccm = {**run, "resources_jet_file": _TEXT}
    return {
        "$schema": _DIALECT,
        "title": "A manifest of Puller",
        "type": "object",
        "properties": {
            "data": {"type": ["object", "null"]},
            "hierarchy": _HIERARCHY,
            "libraries": _LIBRARIES,
            "overrides": {"type": ["object", "null"]},
            "requires": _REQUIRES,
            **run,
            "ccm": {"type": "object", "properties": ccm, "additionalProperties": False},
        },
        "additionalProperties": False,
        "$defs": {
            **_definitions(kinds, _looped_body),
            FOR: _LOOP,
            "resource": {
                "description": "One type, with one resource or a list of resources.",
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "properties": {name: {"$ref": f"#/$defs/{name}"} for name in kinds},
                "additionalProperties": False,
            },
        },
    }


def request_schema() -> Schema:
    """Return the JSON Schema of the requests that ``puller ensure api pipe`` reads."""
    kinds = _types()
    return {
        "$schema": _DIALECT,
        "title": "A request to ensure one resource",
        "type": "object",
        "properties": {"protocol": {"const": REQUEST}, "type": {"enum": list(kinds)}, "properties": {}},
        "required": ["protocol", "type", "properties"],
        "additionalProperties": False,
        "oneOf": [
            {"properties": {"type": {"const": name}, "properties": {"$ref": f"#/$defs/{name}"}}}
            for name in kinds
        ],
        "$defs": _definitions(kinds, _body),
    }


_NAME: Final[Schema] = {
    "description": "Only a name. The resource has the defaults of its list.",
    "type": "string",
    "not": {"enum": [DEFAULTS, FOR]},
}
_CLAUSE: Final[Schema] = {
    "type": "string",
    "pattern": r"^\s*[A-Za-z_]\w*(\s*,\s*[A-Za-z_]\w*)?\s+in\s+\S",
}
_LOOP: Final[Schema] = {
    "description": "One resource for each item: NAME in EXPRESSION, KEY, VALUE in EXPRESSION, or a list of them.",
    "anyOf": [_CLAUSE, {"type": "array", "minItems": 1, "items": _CLAUSE}],
}
_LABEL: Final[Schema] = {
    "description": "A name for all resources of a loop or list. References use label#NAME.",
    "type": "string",
    "pattern": "^[^#{*]+$",
}
_HIERARCHY: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {"order": {"type": "array", "items": _TEXT}, "merge": {"enum": ["first", "deep"]}},
    "additionalProperties": False,
}


_REQUIRES: Final[Schema] = {
    "description": "The versions of Puller that may apply this manifest. Other versions reject it before any change.",
    "type": "object",
    "properties": {"puller": {"type": "string", "examples": [">=1.2", ">=1.2, <2"]}},
    "required": ["puller"],
    "additionalProperties": False,
}
_LIBRARIES: Final[Schema] = {
    "description": "Directories of child manifests, templates, files and data that several bundles share, by name.",
    "type": ["object", "null"],
    "propertyNames": {"pattern": f"^{LIBRARY_NAME}$"},
    "additionalProperties": _TEXT,
}


def _types() -> dict[str, ResourceType]:
    return {name: result for name in type_names() if (result := find_type(name)) is not None}


def _definitions(kinds: dict[str, ResourceType], body: Callable[[str, Schema], Schema]) -> Schema:
    structs = [_with_plain_defaults(found.properties_type) for found in kinds.values()]
    _, components = msgspec.json.schema_components(
        # Types with a parser are text.
        structs,
        schema_hook=lambda kind: dict(_OF_OUR_TYPES.get(kind, _TEXT)),
        ref_template=_REFERENCES,
    )
    definitions: Schema = {}
    for name, schema in components.items():  # expressions may have any value
        properties = schema.get("properties", {})
        text = describe_fields(_CHECKS[name]) if name in _CHECKS else {}
        flexible = {
            key: _or_expression(value) | ({"description": text[key]} if key in text else {})
            for key, value in properties.items()
        }
        definitions[name] = {**schema, "properties": flexible}
    for name, found in kinds.items():
        own = found.properties_type.__name__
        definitions[own] = _properties(found, definitions[own])
        definitions[name] = body(own, definitions[own])
    return definitions


@cache
def _with_plain_defaults(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return a copy of a struct for msgspec's generator, which cannot show defaults of Puller's own types."""
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(struct):
        settings: dict[str, Any] = {"name": field.encode_name}
        if not field.required:
            shown = type(field.default) in (str, int, float, bool, tuple, type(None))
            settings |= {"default": field.default} if shown else {"default_factory": object}
        fields.append((field.name, _plain(field.type), msgspec.field(**settings)))
    return msgspec.defstruct(struct.__name__, fields, kw_only=True, forbid_unknown_fields=True)


def _plain(kind: Any) -> Any:
    """Return a type with its structs replaced."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _with_plain_defaults(kind)
    if typing.get_origin(kind) is tuple:
        return tuple[tuple(_plain(item) for item in typing.get_args(kind))]  # type: ignore[misc]  # made at run time
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return typing.Union[tuple(_plain(item) for item in typing.get_args(kind))]  # noqa: UP007  made at run time
    return kind


def _properties(resource_type: ResourceType, schema: Schema) -> Schema:
    """Return the schema of a type's properties. All are optional, because defaults may provide them."""
    own = describe_properties(resource_type.properties_type)
    fields = msgspec.structs.fields(resource_type.properties_type)
    descriptions = {field.encode_name: own.get(field.name, "") for field in fields}
    properties = {
        name: {"description": descriptions.get(name, ""), **value}
        for name, value in {**schema["properties"], **resource_type.spellings}.items()
    }
    return {
        "description": (resource_type.__doc__ or "").strip(),
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _or_expression(schema: Schema) -> Schema:
    """Return a schema for a value, for expressions in it, and for ``null``, which selects the default."""
    default = {"default": schema["default"]} if "default" in schema else {}
    value = {key: item for key, item in schema.items() if key != "default"}
    if not value:  # any value is allowed already
        return schema
    if isinstance(value.get("items"), dict):
        value["items"] = _or_expression(value["items"])
    choices = [*value.pop("anyOf", []), *([value] if value else [])]
    others = [choice for choice in (_EXPRESSION, {"type": "null"}) if choice not in choices]
    # Expressions are text, so a schema for any text includes them.
    if _TEXT in choices:
        others.remove(_EXPRESSION)
    return {"anyOf": [*choices, *others], **default}


def _looped_body(own: str, schema: Schema) -> Schema:
    """Return a schema for both forms of a body in manifests, where each resource may be a loop."""
    schema["properties"] = {**schema["properties"], LABEL: _LABEL}
    loop = {FOR: {"$ref": f"#/$defs/{FOR}"}}
    item = {
        "type": "object",
        "properties": {**loop, LABEL: {"anyOf": [_LABEL, {"$ref": f"#/$defs/{own}"}, {"type": "null"}]}},
        "additionalProperties": {"anyOf": [{"$ref": f"#/$defs/{own}"}, {"type": "null"}]},
        "minProperties": 1,
        "maxProperties": 3,
        # Two names are invalid. A loop stands beside one name, and a label may stand beside both.
        "if": {"required": [FOR]},
        "then": {
            "minProperties": 2,
            "not": {"required": ["defaults"]},
            "if": {"not": {"required": [LABEL]}},
            "then": {"maxProperties": 2},
        },
        "else": {"if": {"required": [LABEL]}, "then": {"maxProperties": 2}, "else": {"maxProperties": 1}},
    }
    properties = {name: {"$ref": f"#/$defs/{own}/properties/{name}"} for name in schema["properties"]}
    named = {
        "type": "object",
        "properties": {**loop, **properties},
        "additionalProperties": False,
        "required": ["name"],
    }
    return {"anyOf": [{"type": "array", "minItems": 1, "items": {"anyOf": [_NAME, item]}}, named]}


def _body(own: str, schema: Schema) -> Schema:
    """Return a schema for both forms of a body: a list of names with properties, or one mapping with its name."""
    del schema
    properties = {"$ref": f"#/$defs/{own}"}
    named = {"type": "object", "minProperties": 1, "maxProperties": 1}
    items = {**named, "additionalProperties": {"anyOf": [properties, {"type": "null"}]}}
    return {
        "anyOf": [
            {"type": "array", "minItems": 1, "items": items},
            {**properties, "required": ["name"]},
        ]
    }
