"""Settings of a site, ``site.yaml`` in its directory, and the strict YAML reader for it.

::

    expiry: {timestamp: 7d}     # how long signatures last, by role
    require: {tests: true}      # bundles are published only when their tests pass
    prune: {versions: 20, after: 90d, automatic: true}    # versions kept in addition to those in channels
    watch: {failed: 2%, silent: 5%}     # limits for problem reports of hosts before a rollout is halted

* Unknown keys are rejected, so that a misspelt rule is never silently ignored.
* The file belongs to the publisher and is not published.
* `load` rejects duplicate keys, aliases and second documents, and keeps every scalar as text. It bounds size and depth
  before any recursion, because PyYAML's own loader crashes the process on deeply nested brackets.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from bundles.errors import PublishError
from bundles.publisher.expiry import Lifetimes, parse_duration
from bundles.publisher.pruning.rule import PruningRule
from bundles.publisher.watch_rule import WatchRule, parse_rule
from foundation.problems import ProblemCode

# The YAML reader.

LONGEST = 64 * 1024
"""Size limit in bytes."""
DEEPEST = 16
"""Limit of nested mappings and lists."""

_TOO_DEEP = "exceeded maximum nesting depth"  # of libyaml since 0.2.6, at a depth of a thousand


def load(data: bytes) -> Any:
    """Return mappings, lists and texts of a YAML document. ``None`` if it is empty. Raises ``ValueError``."""
    if len(data) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} bytes")
    try:
        _check_events(data)
        # Nodes instead of values, because YAML would convert text to numbers or booleans.
        root = yaml.compose(data, yaml.CSafeLoader)
        return None if root is None else _value(root)
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        if getattr(error, "problem", None) == _TOO_DEEP:  # found by libyaml before the event
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
        return _yaml_mapping(node)
    if isinstance(node, SequenceNode):
        return [_value(item) for item in node.value]
    return node.value


def _yaml_mapping(node: MappingNode) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, ScalarNode):
            raise ValueError(f"line {line}: a list or a mapping cannot be a key")
        if key.value in values:
            raise ValueError(f"line {line}: the key {key.value!r} stands there twice")
        values[key.value] = _value(value)
    return values


_KEYS = ("expiry", "require", "prune", "watch")
_PRUNE = ("versions", "after", "automatic")
_SWITCHES = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Required:
    """The requirements for publications."""

    tests: bool = False
    """Whether a bundle must have tests, and they must pass."""


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """All settings of a site."""

    lifetimes: Lifetimes
    required: Required
    pruning: PruningRule = field(default_factory=PruningRule)
    watching: WatchRule = field(default_factory=WatchRule)

    @classmethod
    def parse(cls, data: bytes, where: str) -> "SiteSettings":
        """Parse the text of the file. Raises `PublishError`."""
        try:
            written = load(data)
        except ValueError as error:
            raise PublishError(where, str(error), code=ProblemCode.INVALID_DOCUMENT) from None
        settings = _mapping({} if written is None else written, where, _KEYS)
        expiry = _mapping(settings.get("expiry", {}), f"{where}: expiry")
        required = _mapping(settings.get("require", {}), f"{where}: require", ("tests",))
        return cls(
            Lifetimes.parse(expiry, f"{where}: expiry"),
            Required(_switch(required.get("tests", "false"), f"{where}: require: tests")),
            _pruning(_mapping(settings.get("prune", {}), f"{where}: prune", _PRUNE), f"{where}: prune"),
            parse_rule(settings.get("watch", {}), f"{where}: watch"),
        )


def _pruning(written: Mapping[str, Any], where: str) -> PruningRule:
    rule = PruningRule()
    return PruningRule(
        _count(written["versions"], f"{where}: versions") if "versions" in written else rule.versions,
        parse_duration(written["after"], f"{where}: after") if "after" in written else rule.after,
        _switch(written.get("automatic", "true"), f"{where}: automatic"),
    )


def _mapping(value: Any, where: str, known: tuple[str, ...] = ()) -> Mapping[str, Any]:
    keys = f" with the keys {' and '.join(known)}" if known else ""
    if not isinstance(value, dict):
        raise PublishError(where, f"expected a mapping{keys}", code=ProblemCode.INVALID_VALUE)
    if known and (other := sorted(value.keys() - set(known))):
        raise PublishError(
            where, f"unknown key {other[0]!r}", code=ProblemCode.UNKNOWN_KEY, expected=f"{' or '.join(known)}"
        )
    return value


def _switch(text: Any, where: str) -> bool:
    if not isinstance(text, str) or text not in _SWITCHES:
        raise PublishError(where, f"is {text!r}", code=ProblemCode.INVALID_VALUE, expected="true or false")
    return _SWITCHES[text]


def _count(text: Any, where: str) -> int:
    if not isinstance(text, str) or not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise PublishError(
            where, f"is {text!r}", code=ProblemCode.INVALID_VALUE, expected="a number of versions from 1 on"
        )
    return int(text)
