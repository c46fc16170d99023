"""Names of Puppet: variables, facts, and the known kinds of their values.

* A variable of a class has the key ``class::variable`` in the data. Variables of a define are plain keys.
* A fact has its expression from the table ``types.yaml``.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from hiera import parsing
from puller.authoring.importing.draft import Draft
from puller.authoring.importing.puppet.language.syntax import (
    Access,
    Binary,
    Call,
    Case,
    HashLiteral,
    If,
    ListLiteral,
    Literal,
    Node,
    Parameter,
    Selector,
    Text,
    TypeName,
    Unary,
    Variable,
)
from puller.authoring.importing.written_expressions import Untranslatable, data_name, literal

_TABLE: Final = Path(__file__).with_name("types.yaml")
_CUSTOM: Final = "A variable without a definition is read as a custom fact, and is null without it"
_KINDS: Final = {
    **dict.fromkeys(("String", "Enum", "Pattern", "Regexp"), "text"),
    **dict.fromkeys(("Integer", "Float", "Numeric"), "number"),
    **dict.fromkeys(("Array", "Tuple"), "list"),
    **dict.fromkeys(("Hash", "Struct"), "hash"),
    "Boolean": "boolean",
}
_ALWAYS_PRESENT: Final = (
    "os.name",
    "os.family",
    "os.release.full",
    "os.release.major",
    "os.hardware",
    "os.architecture",
    "kernel",
    "networking.hostname",
    "networking.fqdn",
)
_STRUCTURED: Final = frozenset(
    {
        "os",
        "networking",
        "memory",
        "processors",
        "dmi",
        "mountpoints",
        "disks",
        "partitions",
        "kernel",
        "virtual",
    }
    | {
        "kernelversion",
        "kernelrelease",
        "kernelmajversion",
        "is_virtual",
        "timezone",
        "path",
        "ssh",
        "identity",
    }
    | {"filesystems", "system_uptime", "load_averages", "fips_enabled"}
)


@functools.cache
def table() -> Mapping[str, Any]:
    """Return the table of facts, functions and types."""
    value = parsing.load_yaml(_TABLE.read_text(), _TABLE.name)
    return {key: dict(value[key]) for key in ("facts", "constants", "functions", "types")} | {
        "checks": frozenset(value["checks"])
    }


class Kind(msgspec.Struct, frozen=True):
    """The known type of a value: text, number, boolean, list, hash or unknown."""

    name: str = "unknown"
    optional: bool = True
    """Whether it can be ``undef``."""


UNKNOWN: Final = Kind()


class Names(msgspec.Struct):
    """All variables of the source."""

    kinds: dict[str, Kind] = {}
    """By the key of the class variable."""
    parents: dict[str, str] = {}
    """The inherited class, by class."""
    classes: set[str] = set()
    aliases: dict[str, Node] = {}
    """Type aliases by name."""


class NameScope(msgspec.Struct, frozen=True):
    """The names that an expression can use."""

    names: Names
    draft: Draft
    owner: str = ""
    """The class or define. Empty for the top scope."""
    is_define: bool = False
    module: str = ""
    own: Mapping[str, Kind] = {}
    """Variables of the class or define."""
    local: Mapping[str, tuple[str, Kind]] = {}
    """Expressions of loop variables and of variables in loops."""
    render: Callable[[Any, Call], str] | None = None
    """Returns the expression for a call of ``template``, ``epp`` or ``file``."""

    inlined: Callable[[str, str], str | None] | None = None
    """Returns the expression for a variable that data cannot contain, by owner and name."""

    def with_local(self, local: Mapping[str, tuple[str, Kind]]) -> Self:
        """Return the scope with more local variables."""
        return msgspec.structs.replace(self, local={**self.local, **local})

    # Variables.

    def variable(self, name: str) -> tuple[str, Kind]:
        """Return the expression and kind of a variable. Raises ``Untranslatable``."""
        if name in self.local:
            return self.local[name]
        if name.isdigit():
            raise Untranslatable(f"${name} is a match of a regular expression")
        if self.inlined is not None and (text := self.inlined(self.owner, name)) is not None:
            if self.render is None:
                raise Untranslatable(f"${name} contains a template, which data cannot call")
            return text, UNKNOWN
        if "::" in name:
            return self._qualified(name)
        if name in self.own:
            key = data_name(name) if self.is_define else f"data['{self._key(name)}']"
            return key, self.own[name]
        if name in ("title", "name"):
            if self.is_define:
                return "data.title", Kind("text", optional=False)
            return literal(self.owner), Kind("text", optional=False)
        if name == "module_name":
            return literal(self.module), Kind("text", optional=False)
        parent, count = self.names.parents.get(self.owner, ""), 0
        while parent and count < 20:
            if f"{parent}::{name}" in self.names.kinds:
                return f"data['{parent}::{name}']", self.names.kinds[f"{parent}::{name}"]
            parent, count = self.names.parents.get(parent, ""), count + 1
        if name in self.names.kinds:
            return f"data['{name}']", self.names.kinds[name]
        return self.fact([name])

    def _key(self, name: str) -> str:
        return f"{self.owner}::{name}" if self.owner else name

    def _qualified(self, name: str) -> tuple[str, Kind]:
        if name in self.names.kinds:
            return f"data['{name}']", self.names.kinds[name]
        owner, _, short = name.rpartition("::")
        parent = self.names.parents.get(owner, "")
        if parent and f"{parent}::{short}" in self.names.kinds:
            return f"data['{parent}::{short}']", self.names.kinds[f"{parent}::{short}"]
        if owner in self.names.classes:
            raise Untranslatable(f"the class {owner} does not set ${short}")
        raise Untranslatable(f"${name} belongs to the class {owner}, which is not part of the source")

    def fact(self, keys: Sequence[str]) -> tuple[str, Kind]:
        """Return the expression for a fact. Raises ``Untranslatable``."""
        facts, constants = table()["facts"], table()["constants"]
        path = ".".join(keys)
        if path in constants:
            if constants[path] is None:
                raise Untranslatable(f"${keys[0]} belongs to Puppet itself")
            return constants[path], Kind("text", optional=False)
        if keys[0] in (
            "trusted",
            "server_facts",
            "settings",
            "servername",
            "serverip",
            "environment",
            "serverversion",
        ):
            raise Untranslatable(f"${keys[0]} is set by the Puppet server")
        if keys[0] in facts:
            if facts[keys[0]] is None:
                raise Untranslatable(f"the fact {keys[0]} has no counterpart")
            keys = [*facts[keys[0]].split("."), *keys[1:]]
            path = ".".join(keys)
        elif keys[0] not in _STRUCTURED:
            self.draft.assume(_CUSTOM)
        if any(not re.fullmatch(r"\w+", key) for key in keys):
            place = "".join(f"[{literal(key)}]" for key in keys)
            return f"facts{place} | default(none)", UNKNOWN
        if path == "os.selinux.enabled" or path in ("is_virtual", "fips_enabled"):
            return f"lookup('facts.{path}', false)", Kind("boolean", optional=False)
        if path in _ALWAYS_PRESENT:
            return f"facts.{path}", Kind("text", optional=False)
        if path in _STRUCTURED and path not in ("kernel", "virtual"):
            return f"facts.{path}", Kind("hash", optional=False)
        return f"lookup('facts.{path}', none)", Kind("text") if keys[0] in _STRUCTURED else UNKNOWN

    # Kinds.

    def kind_of_type(self, node: Node | None, depth: int = 0) -> Kind:
        """Return the kind of a declared type."""
        if depth > 10:
            return UNKNOWN
        arguments: tuple[Node, ...] = ()
        if isinstance(node, Access):
            arguments = node.keys
            node = node.target
        if not isinstance(node, TypeName):
            return UNKNOWN
        if node.name in _KINDS:
            return Kind(_KINDS[node.name], optional=False)
        if node.name in ("Optional", "NotUndef", "Sensitive") and len(arguments) == 1:
            inner = arguments[0]
            if isinstance(inner, Literal):
                return Kind("text", optional=node.name == "Optional")
            return Kind(self.kind_of_type(inner, depth + 1).name, optional=node.name == "Optional")
        if node.name == "Variant":
            kinds = [self.kind_of_type(item, depth + 1) for item in arguments]
            is_optional = any(kind.optional for kind in kinds)
            if len({kind.name for kind in kinds}) == 1:
                return Kind(kinds[0].name, is_optional)
            if {kind.name for kind in kinds} <= {"text", "number"}:
                return Kind("text", is_optional)
            return Kind("unknown", is_optional)
        if node.name in self.names.aliases:
            return self.kind_of_type(self.names.aliases[node.name], depth + 1)
        if node.name.startswith("Stdlib::"):
            return Kind("number" if "Port" in node.name else "text", optional=False)
        return UNKNOWN

    def kind(self, node: Node | None) -> Kind:
        """Return the kind of the value of an expression."""
        match node:
            case Literal(value=None) | None:
                return UNKNOWN
            case Literal(value=bool()):
                return Kind("boolean", optional=False)
            case Literal(value=str()) | Text():
                return Kind("text", optional=False)
            case Literal(value=int() | float()):
                return Kind("number", optional=False)
            case ListLiteral():
                return Kind("list", optional=False)
            case HashLiteral():
                return Kind("hash", optional=False)
            case Variable():
                try:
                    return self.variable(node.name)[1]
                except Untranslatable:
                    return UNKNOWN
            case Access():
                path = self.fact_path(node)
                try:
                    return self.fact(path)[1] if path else UNKNOWN
                except Untranslatable:
                    return UNKNOWN
            case Unary(operator="!"):
                return Kind("boolean", optional=False)
            case Unary(operator="-"):
                return Kind("number", optional=False)
            case Binary(operator="+"):
                kinds = {self.kind(node.left).name, self.kind(node.right).name} - {"unknown"}
                return Kind(kinds.pop() if len(kinds) == 1 else "unknown", optional=False)
            case Binary(operator="-" | "*" | "/" | "%"):
                return Kind("list" if self.kind(node.left).name == "list" else "number", optional=False)
            case Binary(operator="<<"):
                return Kind("list", optional=False)
            case Binary():
                return Kind("boolean", optional=False)
            case Selector():
                return self._common([value for _, value in node.options])
            case If():
                return self._common(_values(node))
            case Case():
                return self._common(_values(node))
            case Call():
                return self._kind_of_call(node)
        return UNKNOWN

    def _common(self, nodes: Sequence[Node]) -> Kind:
        kinds = [self.kind(node) for node in nodes if not (isinstance(node, Literal) and node.value is None)]
        optional = len(kinds) < len(nodes) or any(kind.optional for kind in kinds)
        return Kind(kinds[0].name, optional) if len({kind.name for kind in kinds}) == 1 else UNKNOWN

    def _kind_of_call(self, node: Call) -> Kind:
        row = function_row(node)
        if row is not None:
            return Kind(row[1], optional=row[1] == "unknown")
        if node.name in ("merge", "deep_merge", "stdlib::merge"):
            return Kind("hash", optional=False)
        if node.name in ("concat", "split"):
            return Kind("list", optional=False)
        if node.name in ("sprintf", "regsubst", "template", "epp", "file"):
            return Kind("text", optional=False)
        if node.name in ("pick", "pick_default"):
            return Kind(self._common(node.arguments).name, optional=False)
        if node.name == "Sensitive" and node.arguments:
            return self.kind(node.arguments[0])
        return UNKNOWN

    def fact_path(self, node: Access) -> list[str]:
        """Return the path of a fact, or nothing for another value."""
        keys: list[str] = []
        current: Node = node
        while isinstance(current, Access):
            if len(current.keys) != 1 or not isinstance(current.keys[0], Literal):
                return []
            keys.insert(0, str(current.keys[0].value))
            current = current.target
        if not isinstance(current, Variable) or current.name in self.local:
            return []
        if current.name == "facts":
            return [part for key in keys for part in (key.split(".") if len(keys) == 1 else [key])]
        if current.name == "trusted":
            return ["trusted", *keys]
        if current.name in _STRUCTURED and current.name not in self.own:
            return [current.name, *keys]
        return []


def _values(node: If | Case) -> list[Node]:
    bodies = (
        [*(body for _, body in node.branches), node.otherwise]
        if isinstance(node, If)
        else [body for _, body in node.options]
    )
    return [body[-1] for body in bodies if body]


def function_row(node: Call) -> list[str] | None:
    """Return a row of the table for a function, or ``None``: expression, kind, and a general difference if any."""
    functions = table()["functions"]
    row = functions.get(f"{node.name}/{len(node.arguments)}", functions.get(node.name))
    return list(row) if row and node.block is None else None


def parameters_kinds(scope: NameScope, parameters: Sequence[Parameter]) -> dict[str, Kind]:
    """Return the kinds of parameters, from their types or their defaults."""
    kinds = {}
    for parameter in parameters:
        kind = scope.kind_of_type(parameter.type)
        if kind.name == "unknown" and isinstance(
            parameter.default, (Literal, Text, ListLiteral, HashLiteral)
        ):
            default = scope.kind(parameter.default)
            # An untyped parameter can receive another type, but its default shows the intended type.
            kind = default if parameter.type is None else kind
        kinds[parameter.name] = kind
    return kinds
