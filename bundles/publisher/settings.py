"""Settings of a site: ``site.yaml`` in its directory, the lifetimes and rules in it, and its strict YAML reader.

::

    expiry: {timestamp: 7d}     # how long signatures last, by role
    require: {tests: true}      # bundles are published only when their tests pass
    prune: {versions: 20, after: 90d, automatic: true}    # versions kept in addition to those in channels
    watch: {failed: 2%, silent: 5%}     # limits for problem reports of hosts before a rollout is halted
    push: {destination: www:/srv/www/puller}    # the server that hosts read

* Unknown keys are rejected, so that a misspelt rule is never silently ignored.
* The file belongs to the publisher and is not published.
* `load` rejects duplicate keys, aliases and second documents, and keeps every scalar as text. It bounds size and depth
  before any recursion, because PyYAML's own loader crashes the process on deeply nested brackets.

The timestamp has a short lifetime, which limits how long a mirror can withhold new content unnoticed. The root has a
long lifetime, because its key should be kept where access requires a person.

Pruning keeps a version of a bundle if one of these holds:

* A channel names it: for all hosts, in a running or halted rollout, or for the hosts outside a rollout (the version of
  `puller site back`).
* It is the previous version of a channel.
* It is among the latest published versions of its bundle.
* A channel named it until recently, or it was published recently.

The limits of the rule that halts a rollout apply to all hosts with the release, and to the hosts of each kind of
machine. Otherwise a problem on one in twenty machines of a kind that makes up a tenth of the fleet would only count as
half a percent.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from bundles.errors import PublishError
from bundles.format.index import History, Version, named_by
from bundles.publisher.published import Record
from foundation.problems import ProblemCode
from foundation.times import Duration

DEFAULT_LIFETIMES = {"root": "365d", "targets": "90d", "snapshot": "30d", "timestamp": "7d"}
"""By role. ``puller site init`` writes them into ``site.yaml``. They are also the defaults for missing roles."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Time from signing to expiry, by role."""

    root: timedelta
    targets: timedelta
    snapshot: timedelta
    timestamp: timedelta

    @classmethod
    def parse(cls, texts: Mapping[str, str], where: str) -> "Lifetimes":
        """Parse ``{"timestamp": "7d"}`` and the like. Other roles have their defaults. Raises `PublishError`."""
        for role in texts:
            if role not in DEFAULT_LIFETIMES:
                roles = ", ".join(DEFAULT_LIFETIMES)
                detail = f"unknown role {role!r}"
                raise PublishError(where, detail, code=ProblemCode.UNKNOWN_KEY, expected=roles)
        all_texts = {**DEFAULT_LIFETIMES, **texts}
        return cls(**{role: parse_duration(text, f"{where}: {role}") for role, text in all_texts.items()})

    def of(self, role: str) -> timedelta:
        """Return the lifetime of one role."""
        value: timedelta = getattr(self, role)
        return value


def parse_duration(text: object, where: str) -> timedelta:
    """Parse a duration of more than zero. Raises `PublishError`."""
    try:
        return Duration.parse_text(text, above_zero=True).delta
    except ValueError as error:
        raise PublishError(where, str(error), code=ProblemCode.INVALID_VALUE) from None


@dataclass(frozen=True, slots=True)
class PruningRule:
    """The versions to keep in addition to those that channels name."""

    versions: int = 20
    """The latest of each bundle."""
    after: timedelta = timedelta(days=90)
    """How long other versions stay after the last channel stopped naming them."""
    automatic: bool = True
    """Whether each publication and each refresh also prunes."""

    def outdated(self, record: Record, now: datetime) -> list[Version]:
        """Return the versions of a bundle to prune now, in the order of publication."""
        there = [version for version in record.history.versions.values() if version.pruned is None]
        stay = {*record.index.named(), *_named_before(record.history)}
        stay |= {version.version for version in there[-self.versions :]}
        since = unnamed_since(record)
        old = (version for version in there if version.version not in stay)
        return [version for version in old if now - since[version.version] >= self.after]

    def applied(self, record: Record, now: datetime) -> Record:
        """Return ``record`` with outdated versions pruned."""
        outdated = self.outdated(record, now)
        return record.without_files([version.version for version in outdated], now) if outdated else record


def unnamed_since(record: Record) -> dict[str, datetime]:
    """Return since when no channel names each version. Excludes versions that channels name now."""
    since = {name: version.published for name, version in record.history.versions.items()}
    for version, until in _endings(record.history):
        since[version] = max(until, since.get(version, until))
    return {version: when for version, when in since.items() if version not in record.index.named()}


def _endings(history: History) -> Iterator[tuple[str, datetime]]:
    """Yield each version that a channel stopped naming, with the time."""
    named: dict[str, set[str]] = {}
    for text in history.statements:
        following = {release.version for release in named_by(text.release)} if text.release else set()
        for version in named.get(text.channel, set()) - following:
            yield version, text.at
        named[text.channel] = following


def _named_before(history: History) -> set[str]:
    """Return the previous version of each channel."""
    versions: dict[str, list[str]] = {}
    for text in history.statements:
        named = versions.setdefault(text.channel, [])
        if text.release is not None and named[-1:] != [text.release.version]:
            named.append(text.release.version)
    return {named[-2] for named in versions.values() if len(named) > 1}


WATCH_KEYS = (
    "failed",
    "silent",
    "at_least",
    "silent_after",
    "kinds",
    "may",
    "grow",
    "each",
    "notify",
    "prometheus",
)
_NOTIFY = ("command", "url")
_PROMETHEUS = ("url", "query")


class AutomaticStatement(StrEnum):
    """The statement that may be signed automatically."""

    NOTHING = "nothing"
    """Only report the problem."""
    HALT = "halt"
    BACK = "back"
    """Halt by a return to the previous release, for all hosts."""


@dataclass(frozen=True, slots=True)
class WatchRule:
    """The settings ``watch`` in site.yaml."""

    failed: float = 2.0
    """Limit for failed hosts or rollbacks, in percent of the hosts with the release."""
    silent: float = 5.0
    """Limit for silent hosts, in percent."""
    at_least: int = 3
    """Minimal number of affected hosts for a halt: one host of two would already be half of them."""
    silent_after: timedelta | None = None
    """Time after which a host counts as silent. ``None``: the setting of the store."""
    kinds: tuple[str, ...] = ("os.name", "os.release.major")
    """Facts that define the kind of a host."""
    may: AutomaticStatement = AutomaticStatement.HALT
    grow: float = 0.0
    """Percentage of all hosts by which a healthy rollout without a schedule grows at each check."""
    each: timedelta = timedelta(minutes=30)
    """Minimal time since the last statement about the rollout."""
    command: tuple[str, ...] = ()
    """Command that is called on a halt, with a sentence as its last argument."""
    url: str = ""
    """URL that receives the same sentence by POST, as JSON."""
    prometheus: str = ""
    """URL of a Prometheus server that also judges the rollout."""
    query: str = ""
    """Query of Prometheus. It holds if the result is not empty and contains only numbers other than 0."""


def parse_rule(written: Any, where: str) -> WatchRule:
    """Parse the rule in site.yaml. Raises `PublishError`."""
    fields = _mapping(written, where, WATCH_KEYS)
    notify = _mapping(fields.get("notify", {}), f"{where}: notify", _NOTIFY)
    prometheus = _mapping(fields.get("prometheus", {}), f"{where}: prometheus", _PROMETHEUS)
    if prometheus and set(prometheus) != set(_PROMETHEUS):
        raise PublishError(
            f"{where}: prometheus", "expected both 'url' and 'query'", code=ProblemCode.INVALID_VALUE
        )
    if "each" in fields and "grow" not in fields:
        raise PublishError(
            f"{where}: each", "requires 'grow', which is missing", code=ProblemCode.INVALID_VALUE
        )
    rule = WatchRule()
    return WatchRule(
        _percent(fields["failed"], f"{where}: failed") if "failed" in fields else rule.failed,
        _percent(fields["silent"], f"{where}: silent") if "silent" in fields else rule.silent,
        _count(fields["at_least"], f"{where}: at_least", "hosts") if "at_least" in fields else rule.at_least,
        parse_duration(fields["silent_after"], f"{where}: silent_after")
        if "silent_after" in fields
        else None,
        _texts(fields["kinds"], f"{where}: kinds") if "kinds" in fields else rule.kinds,
        _may(fields["may"], f"{where}: may") if "may" in fields else rule.may,
        _percent(fields["grow"], f"{where}: grow") if "grow" in fields else rule.grow,
        parse_duration(fields["each"], f"{where}: each") if "each" in fields else rule.each,
        _texts(notify["command"], f"{where}: notify: command") if "command" in notify else (),
        _url(notify["url"], f"{where}: notify: url") if "url" in notify else "",
        _url(prometheus["url"], f"{where}: prometheus: url") if prometheus else "",
        str(prometheus["query"]) if prometheus else "",
    )


def _percent(text: Any, where: str) -> float:
    if not isinstance(text, str) or not (match := re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,2})?)%", text)):
        raise PublishError(
            where, f"is {text!r}", code=ProblemCode.INVALID_VALUE, expected="a share of the hosts such as 2%"
        )
    if (percent := float(match[1])) > 100:
        raise PublishError(where, f"is {text!r}", code=ProblemCode.INVALID_VALUE, expected="at most 100%")
    return percent


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise PublishError(where, "expected a list of text", code=ProblemCode.INVALID_VALUE)
    return tuple(value)


def _may(text: Any, where: str) -> AutomaticStatement:
    if text not in set(AutomaticStatement):
        raise PublishError(
            where,
            f"is {text!r}",
            code=ProblemCode.INVALID_VALUE,
            expected=f"{' or '.join(AutomaticStatement)}",
        )
    return AutomaticStatement(text)


def _url(text: Any, where: str) -> str:
    if not isinstance(text, str) or not text.startswith(("http://", "https://")):
        raise PublishError(
            where, "expected a URL that begins with https:// or http://", code=ProblemCode.INVALID_VALUE
        )
    return text


# The YAML reader.

LONGEST = 64 * 1024
"""Size limit in bytes."""
DEEPEST = 16
"""Limit of nested mappings and lists."""

_TOO_DEEP = "exceeded maximum nesting depth"  # of libyaml since 0.2.6, at a depth of a thousand


def load(data: bytes) -> Any:
    """Return mappings, lists and texts of a YAML document. ``None`` if it is empty. Raises ``ValueError``."""
    if len(data) > LONGEST:
        raise ValueError(f"has more than {LONGEST} bytes")
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
            raise ValueError(f"line {line}: aliases are not supported")


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
            raise ValueError(f"line {line}: the key {key.value!r} is repeated")
        values[key.value] = _value(value)
    return values


_KEYS = ("expiry", "require", "prune", "watch", "push")
_PRUNE = ("versions", "after", "automatic")
_SWITCHES = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Required:
    """The requirements for publications."""

    tests: bool = False
    """Whether a bundle must have tests, and they must pass. The command runs them before it calls this package."""


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """All settings of a site."""

    lifetimes: Lifetimes
    required: Required
    pruning: PruningRule = field(default_factory=PruningRule)
    watching: WatchRule = field(default_factory=WatchRule)
    destination: str = ""
    """The destination of pushes. Empty: pushes need an argument."""

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
            _destination(_mapping(settings.get("push", {}), f"{where}: push", ("destination",)), where),
        )


def _destination(written: Mapping[str, Any], where: str) -> str:
    destination = written.get("destination", "")
    if not isinstance(destination, str) or not destination.isprintable():
        raise PublishError(
            f"{where}: push: destination",
            "must be text",
            code=ProblemCode.INVALID_VALUE,
            expected="a directory or URL such as www:/srv/www/puller",
        )
    return destination


def _pruning(written: Mapping[str, Any], where: str) -> PruningRule:
    rule = PruningRule()
    return PruningRule(
        _count(written["versions"], f"{where}: versions", "versions")
        if "versions" in written
        else rule.versions,
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


def _count(text: Any, where: str, unit: str) -> int:
    if not isinstance(text, str) or not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise PublishError(
            where, f"is {text!r}", code=ProblemCode.INVALID_VALUE, expected=f"a number of {unit}, at least 1"
        )
    return int(text)
