"""Functions of Puppet that need more than a row of the table ``types.yaml``.

Each one returns an expression. It raises ``Untranslatable`` without an exact counterpart, and ``IndexError`` or
``ValueError`` for a wrong number of arguments.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from puller.authoring.importing.draft import Draft
from puller.authoring.importing.puppet.language.syntax import (
    Access,
    HashLiteral,
    Literal,
    Node,
    Regex,
    TypeName,
)
from puller.authoring.importing.puppet.scopes import Kind
from puller.authoring.importing.written_expressions import Untranslatable, grouped, is_literal, literal

_SPLIT: Final = (
    "`split` of Puppet drops empty texts at the end, and the only part of an empty text. Puller keeps them"
)
_FORMAT: Final = "`sprintf` with `%s` expects texts and numbers. Puller prints True where Puppet prints true"


class Translator(Protocol):
    """The scope of a call, which translates its arguments."""

    @property
    def render(self) -> Any:
        """The function for templates, or ``None`` in data, which cannot call functions of the bundle."""

    @property
    def draft(self) -> Draft:
        """The draft, which records decisions."""

    def expression(self, node: Node) -> str:
        """Return the expression for a node."""

    def group(self, node: Node) -> str:
        """Return an expression that needs no parentheses beside an operator."""

    def kind(self, node: Node | None) -> Kind:
        """Return the kind of the value of an expression."""

    def variable(self, name: str) -> tuple[str, Kind]:
        """Return the expression and kind of a variable."""

    def regex(self, pattern: str) -> str:
        """Return a regular expression of Ruby for Python."""

    def fact(self, keys: Sequence[str]) -> tuple[str, Kind]:
        """Return the expression for a fact."""


def _lookup(scope: Translator, arguments: Sequence[Node], *, merge: str = "") -> str:
    """Return a lookup of Hiera. Raises ``Untranslatable``."""
    key = scope.group(arguments[0])
    default = ""
    rest = list(arguments[1:])
    if rest and isinstance(rest[-1], HashLiteral):
        pairs = rest[-1].pairs
        rest.pop()
        options = {str(name.value): item for name, item in pairs if isinstance(name, Literal)}
        if "default_value" in options:
            default = scope.group(options["default_value"])
        strategy = options.get("merge")
        if isinstance(strategy, Literal):
            merge = str(strategy.value)
        elif strategy is not None:
            raise Untranslatable("the merge of a lookup has options")
    rest = [item for item in rest if not isinstance(item, TypeName) and not _is_type(item)]
    if rest and isinstance(rest[0], Literal) and rest[0].value in ("first", "unique", "hash", "deep"):
        merge = str(rest[0].value)
        rest.pop(0)
    rest = [item for item in rest if not (isinstance(item, Literal) and item.value is None and len(rest) > 1)]
    if rest:
        default = scope.group(rest[-1])
    if scope.render is None:
        # Data cannot call functions of the tree. A key of data has the merge of `lookup_options`.
        if (merge and merge != "first") or not is_literal(key):
            raise Untranslatable("a lookup with a merge or a variable key in data")
        return f"data[{key}] | default({default})" if default else f"data[{key}]"
    more = (f", merge='{merge}'" if merge and merge != "first" else "") + (
        f", default={default}" if default else ""
    )
    return f"hiera({key}{more})"


def _is_type(node: Node) -> bool:
    return isinstance(node, Access) and isinstance(node.target, TypeName)


def _pick(scope: Translator, arguments: Sequence[Node]) -> str:
    """Return the first argument that is neither undef nor empty."""
    result = scope.group(arguments[-1])
    for argument in reversed(arguments[:-1]):
        text = scope.group(argument)
        result = f"{text} if {text} is not none and {text} != '' else {grouped(result)}"
    return result


def _merge(scope: Translator, arguments: Sequence[Node], options: str = "") -> str:
    first, *others = (scope.group(argument) for argument in arguments)
    return f"{first} | combine({', '.join(others)}{options})" if others else first


def _concat(scope: Translator, arguments: Sequence[Node]) -> str:
    first, *others = arguments
    parts = [scope.group(first)]
    for other in others:
        text = scope.group(other)
        parts.append(text if scope.kind(other).name == "list" else f"([{text}] | flatten(1))")
    return " + ".join(parts)


def _sprintf(scope: Translator, arguments: Sequence[Node]) -> str:
    pattern, *values = arguments
    if isinstance(pattern, Literal) and re.search(
        r"%(?![-+ 0#]*\d*(?:\.\d+)?[sdxXofi%])", str(pattern.value)
    ):
        raise Untranslatable("the format of sprintf is unknown")
    if any(scope.kind(value).name not in ("text", "number", "boolean") for value in values):
        scope.draft.assume(_FORMAT)
    texts = [_printed(scope, value) for value in values]
    return f"{scope.group(pattern)} | format({', '.join(texts)})"


def _printed(scope: Translator, value: Node) -> str:
    """Return a value as an argument of ``format``. Puppet prints booleans in lower case."""
    text = scope.group(value)
    return f"({text} | lower)" if scope.kind(value).name == "boolean" else text


def _regsubst(scope: Translator, arguments: Sequence[Node]) -> str:
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
    return (
        f"{scope.group(target)} | regex_replace({literal(prefix + scope.regex(text))}, {literal(new)}{count})"
    )


def _split(scope: Translator, arguments: Sequence[Node]) -> str:
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
    scope.draft.assume(_SPLIT)
    return f"{scope.group(target)}.split({literal(plain)})"


def _delete(scope: Translator, arguments: Sequence[Node]) -> str:
    target, value = arguments
    if scope.kind(target).name != "list":
        raise Untranslatable("delete of a value that is no list")
    return f"{scope.group(target)} | reject('in', [{scope.group(value)}] | flatten(1)) | list"


def _dig(scope: Translator, arguments: Sequence[Node]) -> str:
    target, *keys = arguments
    place = "".join(f"[{scope.group(key)}]" for key in keys)
    return f"{scope.group(target)}{place} | default(none)"


def _getvar(scope: Translator, arguments: Sequence[Node]) -> str:
    name = arguments[0]
    if not isinstance(name, Literal) or not re.fullmatch(r"(?:::)?[\w:.]+", str(name.value)):
        raise Untranslatable("getvar with a variable name")
    first, *keys = str(name.value).removeprefix("::").split(".")
    if first == "facts":
        return scope.fact(keys)[0]
    return f"{scope.variable(first)[0]}{''.join(f'[{literal(key)}]' for key in keys)} | default(none)"


def _defined(scope: Translator, arguments: Sequence[Node]) -> str:
    name = arguments[0]
    if isinstance(name, Literal) and str(name.value).startswith("$"):
        return (
            f"{grouped(scope.variable(str(name.value).removeprefix('$').removeprefix('::'))[0])} is not none"
        )
    raise Untranslatable("defined() depends on the order of evaluation. Puller accepts equal declarations")


FUNCTIONS: Final[Mapping[str, Any]] = {
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
    "lookup": lambda scope, arguments: _lookup(scope, arguments),
    "hiera": lambda scope, arguments: _lookup(scope, arguments),
    "hiera_array": lambda scope, arguments: _lookup(scope, arguments, merge="unique"),
    "hiera_hash": lambda scope, arguments: _lookup(scope, arguments, merge="hash"),
    "Sensitive": lambda scope, arguments: scope.expression(arguments[0]),
    "unwrap": lambda scope, arguments: scope.expression(arguments[0]),
}
