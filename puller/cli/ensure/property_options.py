"""The properties of a resource type as options of a command, made from the type itself."""

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from hiera.errors import HieraError
from hiera.text import yaml_text
from puller.errors import UsageError
from puller.resources.base import ResourceType
from puller.resources.descriptions import describe_properties

_PREFIX = "property_"  # of parameters, so that they are never confused with those of the command itself
_ELSEWHERE = frozenset({"name", "ensure", "noop", "after", "control", "health_checks", "removed"})
_EMPTY = (None, (), msgspec.NODEFAULT)


def property_options(resource_type: ResourceType, taken: frozenset[str]) -> Iterator[click.Option]:
    """An option for each property; one whose name is ``taken`` is written with the type before it."""
    descriptions = describe_properties(resource_type.properties_type)
    for field in msgspec.structs.fields(resource_type.properties_type):
        if field.name in _ELSEWHERE:
            continue
        name = "--" + field.encode_name.replace("_", "-")
        if name in taken:
            name = f"--{resource_type.type_name}-{name.removeprefix('--')}"
        kind = _Kind.of(field.type)
        default = field.default if isinstance(field.default, str | int) and field.default else None
        shown = "" if default is None or isinstance(default, bool) else f"  [default: {default}]"
        yield click.Option(
            [f"{name}/--no-{name[2:]}" if kind.is_flag else name, _PREFIX + field.name],
            help=(descriptions.get(field.name) or f"The property {field.encode_name}.") + shown,
            multiple=kind.is_many,
            default=None,  # and not the property's: only what was typed is said, as in a manifest
            type=bool if kind.is_flag else str,
            metavar=None if kind.is_flag else kind.metavar,
        )
    yield from _common_options()


def properties_from(resource_type: ResourceType, values: Mapping[str, Any]) -> dict[str, Any]:
    """The properties as a manifest would say them; raises ``UsageError``."""
    properties: dict[str, Any] = {}
    for field in msgspec.structs.fields(resource_type.properties_type):
        value = values.get(_PREFIX + field.name)
        if value is not None and value != ():
            is_secret = field.name in resource_type.secret_properties
            properties[field.encode_name] = _Kind.of(field.type).read(
                field.encode_name, value, is_secret=is_secret
            )
    conditions = {name: values[f"control_{name}"] for name in ("if", "unless") if values[f"control_{name}"]}
    if conditions:
        properties["control"] = conditions
    if values["check"]:
        rest = {name: values[f"check_{name}"] for name in ("tries", "try_sleep", "timeout")}
        given = {name: value for name, value in rest.items() if value is not None}
        properties["health_checks"] = [{"command": command, **given} for command in values["check"]]
    return properties


def _common_options() -> Iterator[click.Option]:
    text: dict[str, Any] = {"default": None, "type": str}
    yield click.Option(
        ["--control-if"], metavar="EXPRESSION", help="Manage it only when this is true.", **text
    )
    yield click.Option(
        ["--control-unless"], metavar="EXPRESSION", help="Manage it only when this is false.", **text
    )
    yield click.Option(
        ["--check"],
        multiple=True,
        metavar="COMMAND",
        help="A command that tells whether it works, with the exit codes of Nagios.",
    )
    yield click.Option(["--check-tries"], type=int, default=None, help="How often to try each check.")
    yield click.Option(
        ["--check-sleep", "check_try_sleep"], metavar="TIME", help="How long to wait between tries.", **text
    )
    yield click.Option(["--check-timeout"], metavar="TIME", help="The time limit of one try.", **text)


class _Kind(msgspec.Struct, frozen=True):
    """How the text of an option becomes the value of a property."""

    read_one: typing.Callable[[str], Any] = str
    metavar: str = "TEXT"
    is_flag: bool = False
    is_many: bool = False
    is_mapping: bool = False

    @classmethod
    def of(cls, kind: Any) -> "_Kind":
        """From the type of a property."""
        is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
        members = typing.get_args(kind) if is_union else (kind,)
        members = tuple(member for member in members if member is not type(None))
        # Text, or a type of ours, which reads text itself and has its own sentence for what is wrong.
        if str in members or any(hasattr(member, "parse") for member in members):
            return cls()
        origin, arguments = typing.get_origin(members[0]) or members[0], typing.get_args(members[0])
        if origin is typing.Literal:
            return cls(metavar="|".join(arguments))
        if origin is bool:
            return cls(is_flag=True)
        if origin in (int, float):
            return cls(origin, "NUMBER")
        if isinstance(origin, type) and issubclass(origin, Mapping):
            free = not arguments or arguments[1] is Any
            return cls(_yaml if free else str, "KEY=VALUE", is_many=True, is_mapping=True)
        if origin in (tuple, list) and arguments:
            return msgspec.structs.replace(
                cls.of(arguments[0]), is_many=True, is_mapping=False, is_flag=False
            )
        return cls(_yaml, "YAML")

    def read(self, name: str, value: Any, *, is_secret: bool) -> Any:
        """From what click has parsed; raises ``UsageError``, which quotes no secret."""
        if self.is_flag:
            return value
        try:
            if self.is_mapping:
                return dict(_pair(text, self.read_one) for text in value)
            if self.metavar == "KEY=VALUE":
                return [dict([_pair(text, self.read_one)]) for text in value]
            return [self.read_one(text) for text in value] if self.is_many else self.read_one(value)
        except ValueError:
            # From None: what int() says of a secret has the secret in it.
            shown = "given otherwise" if is_secret else repr(value)
            raise UsageError(f"--{name.replace('_', '-')} is {shown}", expected=f"{self.metavar}") from None


def _pair(text: str, read: typing.Callable[[str], Any]) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError
    return key, read(value)


def _yaml(text: str) -> Any:
    try:
        return yaml_text.load(text, "value")
    except HieraError:
        raise ValueError from None
