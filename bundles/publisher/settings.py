"""The choices of a site, ``site.yaml`` in its directory::

    expiry: {timestamp: 7d}     # how long signatures last, by role
    require: {tests: true}      # bundles are published only when their tests pass
    prune: {versions: 20, after: 90d, automatic: true}      # which versions stay, beside those that channels name
    watch: {failed: 2%, silent: 5%}     # what hosts may report of a release before its rollout is halted

* A key that nobody knows is refused: a rule that is misspelt must not be a rule that is off.
* It is the publisher's own file, and nothing that hosts see.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bundles.errors import PublishError
from bundles.format import strict_yaml
from bundles.publisher.expiry import Lifetimes, parse_duration
from bundles.publisher.pruning.rule import PruningRule
from bundles.publisher.watch_rule import WatchRule, parse_rule
from foundation.problems import ProblemCode

_KEYS = ("expiry", "require", "prune", "watch")
_PRUNE = ("versions", "after", "automatic")
_SWITCHES = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Required:
    """The demands on what is published."""

    tests: bool = False
    """Whether the tests of a bundle must pass, and it must have some."""


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """All choices of a site."""

    lifetimes: Lifetimes
    required: Required
    pruning: PruningRule = field(default_factory=PruningRule)
    watching: WatchRule = field(default_factory=WatchRule)

    @classmethod
    def parse(cls, data: bytes, where: str) -> "SiteSettings":
        """From the text of the file; raises `PublishError`."""
        try:
            written = strict_yaml.load(data)
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
        raise PublishError(where, f"wanted a mapping{keys}", code=ProblemCode.INVALID_VALUE)
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
