"""Expressions of Puppet as expressions of Puller.

* A translation is exact, or it raises ``Untranslatable`` with the reason. General differences, such as the case of
  texts in comparisons, are recorded as decisions of the draft.
* Only ``undef`` and ``false`` are false in Puppet. A condition on any other kind of value tests for these two.
* A variable of a class has the key ``class::variable`` in the data. Variables of a define are plain keys.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from hiera import parsing
from puller.authoring.importing.draft import Draft
from puller.authoring.importing.puppet.syntax import (
    Access,
    Assignment,
    Binary,
    Call,
    Case,
    Default,
    HashLiteral,
    If,
    ListLiteral,
    Literal,
    Node,
    Parameter,
    Regex,
    Selector,
    Text,
    TypeName,
    Unary,
    Variable,
)
from puller.authoring.importing.written_expressions import (
    Untranslatable,
    data_name,
    is_simple,
    literal,
    verify_expression,
)

_TABLE: Final = Path(__file__).with_name("types.yaml")
_CASE: Final = "Puppet compares texts without regard to case. The draft compares them exactly"
_UNKNOWN: Final = "A value of unknown type is printed as text. Puller prints True where Puppet prints true"
_CUSTOM: Final = "A variable without a definition is read as a custom fact, and is null without it"
_KINDS: Final = {
    **dict.fromkeys(("String", "Enum", "Pattern", "Regexp"), "text"),
    **dict.fromkeys(("Integer", "Float", "Numeric"), "number"),
    **dict.fromkeys(("Array", "Tuple"), "list"),
    **dict.fromkeys(("Hash", "Struct"), "hash"),
    "Boolean": "boolean",
}
_TYPE_TESTS: Final = {
    "Array": "{0} is sequence and {0} is not string and {0} is not mapping",
    "Boolean": "{0} is boolean",
    "Hash": "{0} is mapping",
    "Integer": "{0} is integer",
    "Float": "{0} is float",
    "Numeric": "{0} is number and {0} is not boolean",
    "String": "{0} is string",
    "Undef": "{0} is none",
    "NotUndef": "{0} is not none",
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
_RESULTS: Final = {"==": "==", "!=": "!=", "<": "<", ">": ">", "<=": "<=", ">=": ">="}


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


class Scope(msgspec.Struct, frozen=True):
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
    render: Callable[["Scope", Call], str] | None = None
    """Returns the expression for a call of ``template``, ``epp`` or ``file``."""

    def with_local(self, local: Mapping[str, tuple[str, Kind]]) -> "Scope":
        """Return the scope with more local variables."""
        return msgspec.structs.replace(self, local={**self.local, **local})

    # Variables.

    def variable(self, name: str) -> tuple[str, Kind]:
        """Return the expression and kind of a variable. Raises ``Untranslatable``."""
        if name in self.local:
            return self.local[name]
        if name.isdigit():
            raise Untranslatable(f"${name} is a match of a regular expression")
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
                path = self._fact_path(node)
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
        row = _function_row(node)
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

    # Expressions.

    def expression(self, node: Node) -> str:
        """Return the expression for a node. Raises ``Untranslatable``."""
        match node:
            case Literal():
                if isinstance(node.value, Default):
                    return "'default'"
                return literal(node.value)
            case Text():
                return " ~ ".join(
                    literal(part) if isinstance(part, str) else self._joined(part) for part in node.parts
                )
            case Variable():
                if node.name in ("facts", "trusted") and node.name not in self.local:
                    return "facts"
                return self.variable(node.name)[0]
            case ListLiteral():
                return f"[{', '.join(self._item(item) for item in node.items)}]"
            case HashLiteral():
                pairs = (f"{self._item(key)}: {self._item(value)}" for key, value in node.pairs)
                return f"{{{', '.join(pairs)}}}"
            case Access():
                return self._access(node)
            case Unary():
                return self._unary(node)
            case Binary():
                return self._binary(node)
            case Selector():
                return self._selector(node)
            case If() | Case():
                return self._chosen(node)
            case Call():
                return self._call(node)
            case Regex():
                raise Untranslatable("a regular expression is used as a value")
            case TypeName():
                raise Untranslatable(f"the type {node.name} is used as a value")
            case Assignment():
                raise Untranslatable("an assignment is used as a value")
        raise Untranslatable("a statement is used as a value")

    def _item(self, node: Node) -> str:
        """Return an element of a list or mapping. A filter binds tighter than a comma."""
        text = self.expression(node)
        return (
            f"({text})" if re.search(r" if | \| | or | and | not ", text) and not _is_literal(text) else text
        )

    def group(self, node: Node) -> str:
        """Return an expression that needs no parentheses beside an operator."""
        return grouped(self.expression(node))

    def _joined(self, node: Node) -> str:
        """Return a part of a text as an operand of ``~``."""
        kind, text = self.kind(node), grouped(self.expression(node))
        if kind.name in ("list", "hash"):
            raise Untranslatable("a list or mapping is printed in a text")
        if kind.name == "boolean":
            return f"({text} | lower)"
        if kind.name == "unknown":
            self.draft.assume(_UNKNOWN)
        if kind.optional:
            return f"({text} if {text} is not none else '')"
        return text

    def condition(self, node: Node) -> str:
        """Return a condition that is true where Puppet's is. Raises ``Untranslatable``."""
        if isinstance(node, Binary) and node.operator in ("and", "or"):
            sides = [self.condition(side) for side in (node.left, node.right)]
            other = "or" if node.operator == "and" else "and"
            return f" {node.operator} ".join(
                f"({side})" if re.search(rf"\b(?:{other}|if)\b", side) else side for side in sides
            )
        if isinstance(node, Unary) and node.operator == "!":
            return negated(self.condition(node.operand))
        if isinstance(node, Literal):
            return "false" if node.value is None or node.value is False else "true"
        kind, text = self.kind(node), self.expression(node)
        if kind.name == "boolean":
            return text
        text = grouped(text)
        if kind.name == "unknown":
            return f"{text} is not none and {text} is not false"
        return f"{text} is not none" if kind.optional else "true"

    def value(self, node: Node, depth: int = 0) -> Any:
        """Return the value of a property: plain data, or texts with expressions. Raises ``Untranslatable``."""
        match node:
            case Literal():
                if isinstance(node.value, Default):
                    return "default"
                return escaped(node.value) if isinstance(node.value, str) else node.value
            case Text():
                return "".join(
                    escaped(part) if isinstance(part, str) else self.braced(part) for part in node.parts
                )
            case ListLiteral():
                return [self.value(item) for item in node.items if not _is_splat(item)]
            case HashLiteral():
                return {self._key_of(key): self.value(value) for key, value in node.pairs}
            case Unary(operator="-", operand=Literal(value=int() | float() as number)):
                return -number
            case Call(name="Sensitive", arguments=(Literal(value=str()),)):
                raise Untranslatable("the secret is left out. Put it into encrypted data")
            case Call(name="Sensitive", arguments=(inner,)):
                return self.value(inner)
        text = self.expression(node)
        verify_expression(text)
        return f"{{{{ {text} }}}}"

    def braced(self, node: Node) -> str:
        """Return a part of a text in braces."""
        text = self._joined(node)
        if text.startswith("(") and text.endswith(")") and _is_one_group(text):
            text = text[1:-1]
        verify_expression(text)
        return f"{{{{ {text} }}}}"

    def _key_of(self, node: Node) -> Any:
        if isinstance(node, Literal) and isinstance(node.value, (str, int)):
            return node.value
        raise Untranslatable("a key of a mapping is variable")

    # Parts.

    def _fact_path(self, node: Access) -> list[str]:
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

    def _access(self, node: Access) -> str:
        path = self._fact_path(node)
        if path:
            return self.fact(path)[0]
        if isinstance(node.target, TypeName):
            raise Untranslatable(f"a reference to {node.target.name} is used as a value")
        target: Node = node
        steps: list[str] = []
        while isinstance(target, Access):
            keys = [self.group(key) for key in target.keys]
            if len(keys) == 2:
                steps.insert(0, f"[{keys[0]}:{keys[0]} + {keys[1]}]")
            elif len(keys) == 1:
                steps.insert(0, f"[{keys[0]}]")
            else:
                raise Untranslatable("an access has no key")
            target = target.target
        base = self.group(target)
        if isinstance(target, Literal):
            raise Untranslatable("an access to a text")
        return f"{base}{''.join(steps)} | default(none)"

    def _unary(self, node: Unary) -> str:
        if node.operator == "!":
            return negated(self.condition(node.operand))
        if node.operator == "-":
            return f"-{self.group(node.operand)}"
        raise Untranslatable("the operator * is used in a value")

    def _binary(self, node: Binary) -> str:
        operator = node.operator
        if operator in ("and", "or"):
            return self.condition(node)
        if operator in ("=~", "!~"):
            text = self._match(node.left, node.right)
            return text if operator == "=~" else negated(text)
        if isinstance(node.left, Call) and node.left.name == "versioncmp" and operator in _RESULTS:
            if isinstance(node.right, Literal) and node.right.value == 0 and len(node.left.arguments) == 2:
                first, second = (self.group(item) for item in node.left.arguments)
                return f"{first} is version({second}, '{operator}')"
            raise Untranslatable("versioncmp is compared with another number than 0")
        if operator in ("==", "!="):
            return self._equal(node.left, node.right, negative=operator == "!=")
        left, right = self.group(node.left), self.group(node.right)
        kinds = self.kind(node.left).name, self.kind(node.right).name
        if operator == "in":
            if "text" in kinds:
                self.draft.assume(_CASE)
            return f"{left} in {right}"
        if operator == "<<":
            return f"{left} + [{right}]"
        if operator == "+":
            if "hash" in kinds:
                return f"{left} | combine({right})"
            if kinds[0] == "list":
                return f"{left} + {right}" if kinds[1] == "list" else f"{left} + ([{right}] | flatten(1))"
            if "list" in kinds:
                return f"([{left}] | flatten(1)) + {right}"
            if "number" not in kinds:
                raise Untranslatable("the operands of + have an unknown type")
        if operator == "-" and kinds[0] == "list":
            return f"{left} | difference([{right}] | flatten(1))"
        if operator == "/":
            if kinds != ("number", "number"):
                raise Untranslatable("the operands of / have an unknown type")
            return f"{left} // {right}"
        return f"{left} {operator} {right}"

    def _equal(self, left: Node, right: Node, *, negative: bool) -> str:
        word = "is not" if negative else "is"
        for side, other in ((right, left), (left, right)):
            if isinstance(side, Literal) and (side.value is None or isinstance(side.value, bool)):
                return f"{self.group(other)} {word} {literal(side.value)}"
        if any(
            isinstance(side, Literal) and re.search("[A-Za-z]", str(side.value)) for side in (left, right)
        ):
            self.draft.assume(_CASE)
        return f"{self.group(left)} {'!=' if negative else '=='} {self.group(right)}"

    def _match(self, left: Node, right: Node) -> str:
        text = self.group(left)
        if isinstance(right, Regex):
            return f"{text} is search({literal(python_regex(right.pattern))})"
        if isinstance(right, Literal) and isinstance(right.value, str):
            return f"{text} is search({literal(python_regex(right.value))})"
        name = right.name if isinstance(right, TypeName) else ""
        if isinstance(right, Access) and isinstance(right.target, TypeName):
            name = right.target.name
            values = [item.value for item in right.keys if isinstance(item, Literal)]
            if name == "Enum" and len(values) == len(right.keys):
                return f"{text} in [{', '.join(literal(value) for value in values)}]"
            if name == "Array":
                return _TYPE_TESTS["Array"].format(text)
            if name == "String" and len(right.keys) == 1:
                return f"{text} is string and {text} | length >= {self.group(right.keys[0])}"
            name = ""
        if name not in _TYPE_TESTS:
            raise Untranslatable("a match with this type")
        return _TYPE_TESTS[name].format(text)

    def test(self, subject: Node, option: Node) -> str:
        """Return the condition that an option of ``case`` or of a selector matches. Empty for ``default``.

        Raises ``Untranslatable``.
        """
        if isinstance(option, Literal) and option.value is Default.DEFAULT:
            return ""
        if isinstance(subject, Literal) and subject.value is True:
            return self.condition(option)
        if isinstance(option, (Regex, TypeName)) or (
            isinstance(option, Access) and isinstance(option.target, TypeName)
        ):
            return self._match(subject, option)
        if isinstance(option, Unary) and option.operator == "*":
            return f"{self.group(subject)} in {self.group(option.operand)}"
        return self._equal(subject, option, negative=False)

    def _selector(self, node: Selector) -> str:
        result = "none"
        tests = [(self.test(node.subject, option), value) for option, value in node.options]
        for value in (value for test, value in tests if not test):
            result = self._item(value)
        for test, value in reversed([pair for pair in tests if pair[0]]):
            result = f"{self._item(value)} if {test} else {grouped(result)}"
        return result

    def _chosen(self, node: If | Case) -> str:
        branches: list[tuple[str, tuple[Node, ...]]] = []
        otherwise: tuple[Node, ...] = ()
        if isinstance(node, If):
            branches = [(self.condition(condition), body) for condition, body in node.branches]
            otherwise = node.otherwise
        else:
            for options, body in node.options:
                tests = [self.test(node.subject, option) for option in options]
                if "" in tests:
                    otherwise = body
                else:
                    branches.append((any_of(tests), body))
        result = self._item(_single(otherwise)) if otherwise else "none"
        for condition, body in reversed(branches):
            result = f"{self._item(_single(body))} if {condition} else {grouped(result)}"
        return result

    # Functions.

    def _call(self, node: Call) -> str:
        if node.block is not None:
            raise Untranslatable(f"the function {node.name} has a block")
        if node.name in ("template", "epp", "file") and self.render is not None:
            return self.render(self, node)
        row = _function_row(node)
        if row is not None:
            return self._from_row(node, row[0])
        special = _FUNCTIONS.get(node.name)
        if special is None:
            raise Untranslatable(f"the function {node.name} has no counterpart")
        try:
            text: str = special(self, node.arguments)
            return text
        except (IndexError, ValueError):
            raise Untranslatable(f"the arguments of the function {node.name} are unexpected") from None

    def _from_row(self, node: Call, template: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            index = int(match[1])
            if index >= len(node.arguments):
                raise Untranslatable(f"the function {node.name} lacks an argument")
            argument = node.arguments[index]
            return grouped(self.condition(argument)) if match[2] else self.group(argument)

        if node.name == "empty" and self.kind(node.arguments[0] if node.arguments else None).name in (
            "text",
            "list",
            "hash",
        ):
            text = self.group(node.arguments[0])
            is_optional = self.kind(node.arguments[0]).optional
            return f"({text} or '') | length == 0" if is_optional else f"{text} | length == 0"
        return re.sub(r"{(\d)(\?)?}", replaced, template)

    def lookup(self, arguments: Sequence[Node], *, merge: str = "") -> str:
        """Return a lookup of Hiera. Raises ``Untranslatable``."""
        key = self.group(arguments[0])
        default = ""
        rest = list(arguments[1:])
        if rest and isinstance(rest[-1], HashLiteral):
            pairs = rest[-1].pairs
            rest.pop()
            options = {str(name.value): item for name, item in pairs if isinstance(name, Literal)}
            if "default_value" in options:
                default = self.group(options["default_value"])
            strategy = options.get("merge")
            if isinstance(strategy, Literal):
                merge = str(strategy.value)
            elif strategy is not None:
                raise Untranslatable("the merge of a lookup has options")
        rest = [item for item in rest if not isinstance(item, TypeName) and not _is_type(item)]
        if rest and isinstance(rest[0], Literal) and rest[0].value in ("first", "unique", "hash", "deep"):
            merge = str(rest[0].value)
            rest.pop(0)
        rest = [
            item for item in rest if not (isinstance(item, Literal) and item.value is None and len(rest) > 1)
        ]
        if rest:
            default = self.group(rest[-1])
        more = (f", merge='{merge}'" if merge and merge != "first" else "") + (
            f", default={default}" if default else ""
        )
        return f"hiera({key}{more})"


def grouped(text: str) -> str:
    """Return an expression in parentheses, unless it needs none beside an operator."""
    if is_simple(text) or re.fullmatch(r"data\['[\w:]+'\]", text) or _is_literal(text) or _is_one_group(text):
        return text
    if re.fullmatch(r"\w+\('[^']*'(?:, [\w'.]+)?\)", text):
        return text
    return f"({text})"


def negated(text: str) -> str:
    """Return the negation of a condition."""
    match = re.fullmatch(r"not (\S+|\(.*\))", text)
    if match and (" " not in match[1] or _is_one_group(match[1])):
        return match[1]
    return "false" if text == "true" else "true" if text == "false" else f"not {grouped(text)}"


def any_of(conditions: Sequence[str]) -> str:
    """Return the disjunction of conditions."""
    if len(conditions) == 1:
        return conditions[0]
    return " or ".join(f"({text})" if re.search(r"\b(?:and|if)\b", text) else text for text in conditions)


def escaped(text: str) -> str:
    """Return a text whose braces stay literal."""
    return text.replace("{{", "{{ '{{' }}")


def python_regex(pattern: str) -> str:
    """Return a regular expression of Ruby for Python. Raises ``Untranslatable``."""
    if re.search(r"\[\[:|\(\?<[A-Za-z]|\(\?[a-z]*m|\\h|\\p\{|\\G|\(\?>", pattern):
        raise Untranslatable(f"the regular expression {pattern} has a form that only Ruby has")
    # Ruby's ^ and $ match at each line, and \Z before a final line break.
    result = pattern.replace("\\z", "\\Z")
    try:
        re.compile(result)
    except (re.error, OverflowError, RecursionError):
        raise Untranslatable(f"the regular expression {pattern} is invalid") from None
    return result


def _is_literal(text: str) -> bool:
    return bool(re.fullmatch(r"'(?:[^'\\]|\\.)*'|-?\d+(?:\.\d+)?|true|false|none", text))


def _is_one_group(text: str) -> bool:
    """Return whether one pair of brackets contains the complete expression."""
    if not text or text[0] not in "([{" or text[-1] not in ")]}":
        return False
    depth, quote, position = 0, "", 0
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0 and position < len(text) - 1:
                return False
        position += 1
    return depth == 0


def _is_splat(node: Node) -> bool:
    if isinstance(node, Unary) and node.operator == "*":
        raise Untranslatable("the operator * is used in a list")
    return False


def _is_type(node: Node) -> bool:
    return isinstance(node, Access) and isinstance(node.target, TypeName)


def _single(body: tuple[Node, ...]) -> Node:
    if len(body) != 1:
        raise Untranslatable("a branch of a value has several statements")
    return body[0]


def _values(node: If | Case) -> list[Node]:
    bodies = (
        [*(body for _, body in node.branches), node.otherwise]
        if isinstance(node, If)
        else [body for _, body in node.options]
    )
    return [body[-1] for body in bodies if body]


def _function_row(node: Call) -> list[str] | None:
    functions = table()["functions"]
    row = functions.get(f"{node.name}/{len(node.arguments)}", functions.get(node.name))
    return list(row) if row and node.block is None else None


def _pick(scope: Scope, arguments: Sequence[Node]) -> str:
    """Return the first argument that is neither undef nor empty."""
    result = scope.group(arguments[-1])
    for argument in reversed(arguments[:-1]):
        text = scope.group(argument)
        result = f"{text} if {text} is not none and {text} != '' else {grouped(result)}"
    return result


def _merge(scope: Scope, arguments: Sequence[Node], options: str = "") -> str:
    first, *others = (scope.group(argument) for argument in arguments)
    return f"{first} | combine({', '.join(others)}{options})" if others else first


def _concat(scope: Scope, arguments: Sequence[Node]) -> str:
    first, *others = arguments
    parts = [scope.group(first)]
    for other in others:
        text = scope.group(other)
        parts.append(text if scope.kind(other).name == "list" else f"([{text}] | flatten(1))")
    return " + ".join(parts)


def _sprintf(scope: Scope, arguments: Sequence[Node]) -> str:
    pattern, *values = arguments
    if isinstance(pattern, Literal) and re.search(
        r"%(?![-+ 0#]*\d*(?:\.\d+)?[sdxXofi%])", str(pattern.value)
    ):
        raise Untranslatable("the format of sprintf is unknown")
    return f"{scope.group(pattern)} | format({', '.join(scope.group(value) for value in values)})"


def _regsubst(scope: Scope, arguments: Sequence[Node]) -> str:
    target, pattern, replacement, *flags = arguments
    if scope.kind(target).name == "list":
        raise Untranslatable("regsubst of a list")
    text = (
        pattern.pattern
        if isinstance(pattern, Regex)
        else pattern.value
        if isinstance(pattern, Literal)
        else None
    )
    if not isinstance(text, str) or not isinstance(replacement, Literal):
        raise Untranslatable("the pattern of regsubst is variable")
    letters = str(flags[0].value) if flags and isinstance(flags[0], Literal) else ""
    if set(letters) - set("GI"):
        raise Untranslatable(f"the flags {letters} of regsubst")
    prefix = "(?i)" if "I" in letters else ""
    new = re.sub(r"\\0", r"\\g<0>", str(replacement.value))
    count = "" if "G" in letters else ", count=1"
    return f"{scope.group(target)} | regex_replace({literal(prefix + python_regex(text))}, {literal(new)}{count})"


def _split(scope: Scope, arguments: Sequence[Node]) -> str:
    target, pattern = arguments
    text = (
        pattern.pattern
        if isinstance(pattern, Regex)
        else pattern.value
        if isinstance(pattern, Literal)
        else None
    )
    if not isinstance(text, str):
        raise Untranslatable("the pattern of split is variable")
    plain = re.sub(r"\\([^\w\s])", r"\1", text)
    if re.search(r"[\\^$*+?()\[\]{}|]", text.replace("\\.", "").replace("\\|", "")) or (
        text == "." or not plain
    ):
        raise Untranslatable("split with a regular expression")
    return f"{scope.group(target)}.split({literal(plain)})"


def _delete(scope: Scope, arguments: Sequence[Node]) -> str:
    target, value = arguments
    if scope.kind(target).name != "list":
        raise Untranslatable("delete of a value that is no list")
    return f"{scope.group(target)} | difference([{scope.group(value)}] | flatten(1))"


def _dig(scope: Scope, arguments: Sequence[Node]) -> str:
    target, *keys = arguments
    place = "".join(f"[{scope.group(key)}]" for key in keys)
    return f"{scope.group(target)}{place} | default(none)"


def _getvar(scope: Scope, arguments: Sequence[Node]) -> str:
    name = arguments[0]
    if not isinstance(name, Literal) or not re.fullmatch(r"(?:::)?[\w:.]+", str(name.value)):
        raise Untranslatable("getvar with a variable name")
    first, *keys = str(name.value).removeprefix("::").split(".")
    if first == "facts":
        return scope.fact(keys)[0]
    return f"{scope.variable(first)[0]}{''.join(f'[{literal(key)}]' for key in keys)} | default(none)"


def _defined(scope: Scope, arguments: Sequence[Node]) -> str:
    name = arguments[0]
    if isinstance(name, Literal) and str(name.value).startswith("$"):
        return (
            f"{grouped(scope.variable(str(name.value).removeprefix('$').removeprefix('::'))[0])} is not none"
        )
    raise Untranslatable("defined() depends on the order of evaluation. Puller accepts equal declarations")


_FUNCTIONS: Final[Mapping[str, Any]] = {
    "pick": _pick,
    "pick_default": _pick,
    "merge": _merge,
    "stdlib::merge": _merge,
    "deep_merge": lambda scope, arguments: _merge(scope, arguments, ", recursive=true"),
    "concat": _concat,
    "sprintf": _sprintf,
    "regsubst": _regsubst,
    "split": _split,
    "delete": _delete,
    "dig": _dig,
    "get": lambda scope, arguments: _dig(
        scope, [arguments[0], *(Literal(key) for key in str(getattr(arguments[1], "value", "?")).split("."))]
    ),
    "getvar": _getvar,
    "defined": _defined,
    "lookup": lambda scope, arguments: scope.lookup(arguments),
    "hiera": lambda scope, arguments: scope.lookup(arguments),
    "hiera_array": lambda scope, arguments: scope.lookup(arguments, merge="unique"),
    "hiera_hash": lambda scope, arguments: scope.lookup(arguments, merge="hash"),
    "Sensitive": lambda scope, arguments: scope.expression(arguments[0]),
    "unwrap": lambda scope, arguments: scope.expression(arguments[0]),
}


def parameters_kinds(scope: Scope, parameters: Sequence[Parameter]) -> dict[str, Kind]:
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
