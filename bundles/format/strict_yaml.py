"""Small YAML documents of a publisher's own, with one reading only.

* A key stands once in a mapping; there are no aliases, and no second document. What is written is text, and stays it.
* Size and depth are bounded before anything recurses: PyYAML's own loader ends the process on brackets without end.
"""

from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

LONGEST = 64 * 1024
"""Bytes."""
DEEPEST = 16
"""Mappings and lists inside one another."""

_TOO_DEEP = "exceeded maximum nesting depth"  # libyaml since 0.2.6, of a thousand


def load(data: bytes) -> Any:
    """Mappings, lists and text of a YAML text, ``None`` when it is empty; raises ``ValueError`` with a sentence."""
    if len(data) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} bytes")
    try:
        _check_events(data)
        # Nodes, and no values: YAML would make a number or a truth value of what was written as text.
        root = yaml.compose(data, yaml.CSafeLoader)
        return None if root is None else _value(root)
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        if getattr(error, "problem", None) == _TOO_DEEP:  # found by reading ahead of the events
            raise ValueError(f"line {mark.line + 1}: is nested more than {DEEPEST} deep") from None
        raise ValueError(f"is not YAML: {error}") from None


def _check_events(data: bytes) -> None:
    depth = 0
    for event in yaml.parse(data, yaml.CSafeLoader):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        mark: Any = event.start_mark
        line = mark.line + 1
        if depth > DEEPEST:
            raise ValueError(f"line {line}: is nested more than {DEEPEST} deep")
        if isinstance(event, AliasEvent):
            raise ValueError(f"line {line}: aliases are not read here")


def _value(node: Node) -> Any:
    if isinstance(node, MappingNode):
        return _mapping(node)
    if isinstance(node, SequenceNode):
        return [_value(item) for item in node.value]
    return node.value


def _mapping(node: MappingNode) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, ScalarNode):
            raise ValueError(f"line {line}: a list or a mapping cannot be a key")
        if key.value in values:
            raise ValueError(f"line {line}: the key {key.value!r} stands there twice")
        values[key.value] = _value(value)
    return values
