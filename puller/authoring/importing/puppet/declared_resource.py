"""One declaration of Puppet during its translation, with typed access to its attributes."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from puller.authoring.importing.draft import Resource
from puller.authoring.importing.puppet.expressions import Scope
from puller.authoring.importing.puppet.syntax import Literal, Node
from puller.authoring.importing.written_expressions import Untranslatable


class Unfinished(Untranslatable):
    """A resource with a proposal that needs a part from you."""

    def __init__(self, reason: str, resources: list[Resource]) -> None:
        super().__init__(reason)
        self.resources = resources


class Work(msgspec.Struct):
    """One declaration during its translation."""

    type: str
    title: str
    """The title as a value. It can contain expressions."""
    attributes: dict[str, Node]
    scope: Scope
    content_of: Callable[[Scope, Node], dict[str, Any]]
    """Returns the properties for a content: ``content``, or ``template`` and ``data``."""
    find_source: Callable[[str], str]
    """Returns the path in the draft for the path of a source. Raises ``Untranslatable``."""
    reasons: list[str] = []

    def raw(self, *names: str) -> Node | None:
        """Remove attributes and return the first one that is set."""
        nodes = [self.attributes.pop(name) for name in names if name in self.attributes]
        nodes = [node for node in nodes if not (isinstance(node, Literal) and node.value is None)]
        return nodes[0] if nodes else None

    def value(self, *names: str) -> Any:
        """Remove attributes and return the value of the first one. Raises ``Untranslatable``."""
        node = self.raw(*names)
        return None if node is None else self.scope.value(node)

    def text(self, *names: str) -> str | None:
        """Remove attributes and return the first one as text. Raises ``Untranslatable``."""
        value = self.value(*names)
        if isinstance(value, (list, dict)):
            raise Untranslatable(f"the attribute {names[0]} is a list or mapping")
        return None if value is None else as_text(value)

    def name(self, *names: str) -> str:
        """Remove attributes and return the first one, or the title."""
        return self.text(*names) or self.title

    def required(self, *names: str) -> str:
        """Remove attributes and return the first one as text. Raises ``Untranslatable``."""
        text = self.text(*names)
        if not text:
            raise Untranslatable(f"the attribute {names[0]} is missing")
        return text

    def literal(self, *names: str) -> Any:
        """Remove attributes and return the first one if it has no expressions. Raises ``Untranslatable``."""
        value = self.value(*names)
        if has_expression(value):
            raise Untranslatable(f"the attribute {names[0]} is variable")
        return value

    def boolean(self, *names: str) -> Any:
        """Remove attributes and return a boolean, or an expression."""
        value = self.value(*names)
        if isinstance(value, str) and value in ("true", "yes", "false", "no"):
            return value in ("true", "yes")
        return value

    def flag(self, name: str) -> bool | None:
        """Remove an attribute and return a boolean. Note a value with an expression. Raises ``Untranslatable``."""
        value = self.boolean(name)
        if has_expression(value):
            self.remark(f"a variable {name} is not mapped")
        return value if isinstance(value, bool) else None

    def ignore(self, *names: str) -> None:
        """Remove attributes that do not change the result."""
        for name in names:
            self.attributes.pop(name, None)

    def remark(self, reason: str) -> None:
        """Note a part that is missing or needs a check."""
        if reason not in self.reasons:
            self.reasons.append(reason)

    def finish(self) -> None:
        """Note all attributes that no function has taken."""
        for name in sorted(self.attributes):
            node = self.attributes[name]
            if not (isinstance(node, Literal) and node.value is None):
                self.remark(f"the attribute {name} is not mapped")
        self.attributes.clear()


def has_expression(value: Any) -> bool:
    """Return whether a value contains an expression."""
    if isinstance(value, dict):
        return any(has_expression(item) for pair in value.items() for item in pair)
    if isinstance(value, list):
        return any(has_expression(item) for item in value)
    return isinstance(value, str) and "{{" in value


def as_text(value: Any) -> str:
    """Return a scalar as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def expression_of(value: Any) -> str | None:
    """Return the expression of a value that is one expression, or ``None``."""
    match = re.fullmatch(r"{{ ((?:(?!}}).)*) }}", value, re.S) if isinstance(value, str) else None
    return match[1] if match else None


def needs_shell(text: str) -> bool:
    """Return whether Ruby runs a command with a shell because of its characters."""
    return bool(re.search(r"[*?{}\[\]<>()~&|\\$;`\n#%]", re.sub(r"{{.*?}}", "", text)))
