"""Expressions of Puller that importers write.

* Every expression is checked for syntax and known filters before it enters a draft.
* Parentheses, negations and alternatives are combined as texts.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from jinja2 import nodes

from hiera.errors import HieraError
from hiera.expressions.jinja import tree_of

_METHODS: Final = frozenset(
    {"clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault"}
)
"""Variables with these names need brackets, because ``data.items`` is a method."""
_MORE_METHODS: Final = frozenset({"update", "values"})


class Untranslatable(Exception):
    """An expression without an exact counterpart. The text is the reason, as a clause."""


def literal(value: Any) -> str:
    """Return a scalar as an expression. Raises ``Untranslatable``."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, str):
        raise Untranslatable("a value with a tag")
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"'{escaped}'"


def is_simple(expression: str) -> bool:
    """Return whether an expression needs no parentheses beside an operator."""
    return bool(re.fullmatch(r"[\w.]+(\[['\"]?[\w.-]+['\"]?\])*", expression))


def data_name(name: str) -> str:
    """Return the expression for a variable."""
    if name in _METHODS or name in _MORE_METHODS:
        return f"data['{name}']"
    return f"data.{name}"


def verify_expression(expression: str) -> None:
    """Check the syntax, and the names of filters and tests. Raises ``Untranslatable``."""
    try:
        tree, environment = tree_of(expression)
    except HieraError as error:
        raise Untranslatable(f"is an invalid expression of Puller ({error})") from None
    for node in (tree, *tree.find_all(nodes.Node)):
        if isinstance(node, nodes.Filter) and node.name not in environment.filters:
            raise Untranslatable(f"uses the filter {node.name}, which Puller lacks")
        if isinstance(node, nodes.Test) and node.name not in environment.tests:
            raise Untranslatable(f"uses the test {node.name}, which Puller lacks")


def conjuncts(condition: str) -> list[str]:
    """Split a condition at ``and`` outside of brackets and quotes. A condition with ``or`` stays whole."""
    parts, depth, quote, start = [], 0, "", 0
    if re.search(r"\b(or|if)\b", condition):
        return [condition]
    for match in re.finditer(r"['\"()\[\]{}]|\band\b", condition):
        text = match.group()
        if quote:
            quote = "" if text == quote else quote
        elif text in "'\"":
            quote = text
        elif text in "([{":
            depth += 1
        elif text in ")]}":
            depth -= 1
        elif depth == 0:
            parts.append(condition[start : match.start()].strip())
            start = match.end()
    return [*parts, condition[start:].strip()]


def all_of(conditions: Sequence[str]) -> str:
    """Return the conjunction of conditions."""
    parts = list(dict.fromkeys(condition for condition in conditions if condition != "true"))
    if len(parts) == 1:
        return parts[0]
    return " and ".join(f"({part})" if re.search(r"\b(or|if)\b", part) else part for part in parts)


def escaped(text: str) -> str:
    """Return a text without expressions: its braces stay literal."""
    return text.replace("{{", "{{ '{{' }}")


def grouped(text: str) -> str:
    """Return an expression in parentheses, unless it needs none beside an operator."""
    if is_simple(text) or re.fullmatch(r"data\['[\w:]+'\]", text) or is_literal(text) or is_one_group(text):
        return text
    if re.fullmatch(r"\w+\('[^']*'(?:, [\w'.]+)?\)", text):
        return text
    return f"({text})"


def negated(text: str) -> str:
    """Return the negation of a condition."""
    match = re.fullmatch(r"not (\S+|\(.*\))", text)
    if match and (" " not in match[1] or is_one_group(match[1])):
        return match[1]
    return "false" if text == "true" else "true" if text == "false" else f"not {grouped(text)}"


def any_of(conditions: Sequence[str]) -> str:
    """Return the disjunction of conditions."""
    if len(conditions) == 1:
        return conditions[0]
    return " or ".join(f"({text})" if re.search(r"\b(?:and|if)\b", text) else text for text in conditions)


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


def is_literal(text: str) -> bool:
    """Return whether an expression is a literal."""
    return bool(re.fullmatch(r"'(?:[^'\\]|\\.)*'|-?\d+(?:\.\d+)?|true|false|none", text))


def is_one_group(text: str) -> bool:
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
