"""Expressions of Puppet as expressions of Puller.

* A translation is exact, or it raises ``Untranslatable`` with the reason. General differences, such as the case of
  texts in comparisons, are recorded as decisions of the draft.
* Only ``undef`` and ``false`` are false in Puppet. A condition on any other kind of value tests for these two.
"""

import re
from typing import Any, Final

from puller.authoring.importing.puppet.functions import FUNCTIONS
from puller.authoring.importing.puppet.language.syntax import (
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
    Regex,
    Selector,
    Text,
    TypeName,
    Unary,
    Variable,
)
from puller.authoring.importing.puppet.scopes import NameScope, function_row
from puller.authoring.importing.written_expressions import (
    Untranslatable,
    any_of,
    escaped,
    grouped,
    is_literal,
    is_one_group,
    literal,
    negated,
    python_regex,
    verify_expression,
)

_CASE: Final = "Puppet compares texts without regard to case. The draft compares them exactly"
_DIVISION: Final = "A division has a whole number as its result, as Puppet has for whole numbers only"
_LINES: Final = (
    "`^` and `$` of regular expressions match at the ends of a text. In Puppet, they match at each line"
)
_VERSION: Final = (
    "Versions are compared by the rules of Python. Pre-releases can have another order in Puppet"
)
_UNKNOWN: Final = "A value of unknown type is printed as text. Puller prints True where Puppet prints true"
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
_RESULTS: Final = {"==": "==", "!=": "!=", "<": "<", ">": ">", "<=": "<=", ">=": ">="}


class Scope(NameScope, frozen=True):
    """The names that an expression can use, and the translation of expressions with them."""

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
            f"({text})" if re.search(r" if | \| | or | and | not ", text) and not is_literal(text) else text
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
        if text.startswith("(") and text.endswith(")") and is_one_group(text):
            text = text[1:-1]
        if re.fullmatch(r"'[^'\\{]*'", text):
            return text[1:-1]  # a constant, such as $module_name
        verify_expression(text)
        return f"{{{{ {text} }}}}"

    def _key_of(self, node: Node) -> Any:
        if isinstance(node, Literal) and isinstance(node.value, (str, int)):
            return node.value
        raise Untranslatable("a key of a mapping is variable")

    # Parts.

    def _access(self, node: Access) -> str:
        path = self.fact_path(node)
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
                self.draft.assume(_VERSION)
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
            return f"{left} | reject('in', [{right}] | flatten(1)) | list"
        if operator == "/":
            if kinds != ("number", "number"):
                raise Untranslatable("the operands of / have an unknown type")
            self.draft.assume(_DIVISION)
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
            return f"{text} is search({literal(self.regex(right.pattern))})"
        if isinstance(right, Literal) and isinstance(right.value, str):
            return f"{text} is search({literal(self.regex(right.value))})"
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

    def regex(self, pattern: str) -> str:
        """Return a regular expression of Ruby for Python. Raises ``Untranslatable``."""
        if re.search(r"(?<![\\\[])\^|(?<!\\)\$", pattern):
            self.draft.assume(_LINES)
        return python_regex(pattern)

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
        row = function_row(node)
        if row is not None:
            for difference in row[2:]:
                self.draft.assume(difference)
            return self._from_row(node, row[0])
        special = FUNCTIONS.get(node.name)
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


def _is_splat(node: Node) -> bool:
    if isinstance(node, Unary) and node.operator == "*":
        raise Untranslatable("the operator * is used in a list")
    return False


def _single(body: tuple[Node, ...]) -> Node:
    if len(body) != 1:
        raise Untranslatable("a branch of a value has several statements")
    return body[0]
