"""The rule by which a rollout is halted: what hosts may report of a release before it reaches no more of them.

The limits hold for all hosts that have the release, and for those of each kind of machine: what breaks one machine in
twenty of a kind that is a tenth of the fleet is half a percent of the whole.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from bundles.errors import PublishError
from bundles.publisher.expiry import parse_duration
from foundation.problems import ProblemCode

KEYS = ("failed", "silent", "at_least", "silent_after", "kinds", "may", "grow", "each", "tell", "prometheus")
_TELL = ("command", "url")
_PROMETHEUS = ("url", "query")


class May(StrEnum):
    """The statement that may be signed without a person."""

    NOTHING = "nothing"
    """Only say that it should be."""
    HALT = "halt"
    BACK = "back"
    """Halt by going back to the release before, for all hosts."""


@dataclass(frozen=True, slots=True)
class WatchRule:
    """The choices of ``watch`` in site.yaml."""

    failed: float = 2.0
    """Percent of hosts that may fail or give the release up, of those that have it."""
    silent: float = 5.0
    """Percent of hosts that may not be heard of any more."""
    at_least: int = 3
    """Hosts that must be so before anything is halted: one of two is half of them."""
    silent_after: timedelta | None = None
    """How long a host may send nothing; ``None``: as the store was told."""
    kinds: tuple[str, ...] = ("os.name", "os.release.major")
    """Facts by which hosts are of one kind."""
    may: May = May.HALT
    grow: float = 0.0
    """Percent of all hosts by which a rollout without a schedule grows at a look that finds it in order."""
    each: timedelta = timedelta(minutes=30)
    """How long after the last statement about it that may be."""
    command: tuple[str, ...] = ()
    """Called with a sentence as its last argument when something is halted."""
    url: str = ""
    """Told the same by POST, as JSON."""
    prometheus: str = ""
    """URL of a Prometheus server that is the judge, too."""
    query: str = ""
    """Its query, which must hold: give something, and nothing but numbers other than 0."""


def parse_rule(written: Any, where: str) -> WatchRule:
    """The rule in site.yaml; raises `PublishError`."""
    fields = _mapping(written, where, KEYS)
    tell = _mapping(fields.get("tell", {}), f"{where}: tell", _TELL)
    prometheus = _mapping(fields.get("prometheus", {}), f"{where}: prometheus", _PROMETHEUS)
    if prometheus and set(prometheus) != set(_PROMETHEUS):
        raise PublishError(
            f"{where}: prometheus", "wanted both 'url' and 'query'", code=ProblemCode.INVALID_VALUE
        )
    if "each" in fields and "grow" not in fields:
        raise PublishError(
            f"{where}: each", "is for 'grow', which is not given", code=ProblemCode.INVALID_VALUE
        )
    rule = WatchRule()
    return WatchRule(
        _percent(fields["failed"], f"{where}: failed") if "failed" in fields else rule.failed,
        _percent(fields["silent"], f"{where}: silent") if "silent" in fields else rule.silent,
        _count(fields["at_least"], f"{where}: at_least") if "at_least" in fields else rule.at_least,
        parse_duration(fields["silent_after"], f"{where}: silent_after")
        if "silent_after" in fields
        else None,
        _texts(fields["kinds"], f"{where}: kinds") if "kinds" in fields else rule.kinds,
        _may(fields["may"], f"{where}: may") if "may" in fields else rule.may,
        _percent(fields["grow"], f"{where}: grow") if "grow" in fields else rule.grow,
        parse_duration(fields["each"], f"{where}: each") if "each" in fields else rule.each,
        _texts(tell["command"], f"{where}: tell: command") if "command" in tell else (),
        _url(tell["url"], f"{where}: tell: url") if "url" in tell else "",
        _url(prometheus["url"], f"{where}: prometheus: url") if prometheus else "",
        str(prometheus["query"]) if prometheus else "",
    )


def _mapping(value: Any, where: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise PublishError(
            where, f"wanted a mapping with the keys {' and '.join(known)}", code=ProblemCode.INVALID_VALUE
        )
    if other := sorted(value.keys() - set(known)):
        raise PublishError(
            where, f"unknown key {other[0]!r}", code=ProblemCode.UNKNOWN_KEY, expected=f"{' or '.join(known)}"
        )
    return value


def _percent(text: Any, where: str) -> float:
    if not isinstance(text, str) or not (found := re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,2})?)%", text)):
        raise PublishError(
            where, f"is {text!r}", code=ProblemCode.INVALID_VALUE, expected="a part of the hosts such as 2%"
        )
    if (percent := float(found[1])) > 100:
        raise PublishError(where, f"is {text!r}", code=ProblemCode.INVALID_VALUE, expected="at most 100%")
    return percent


def _count(text: Any, where: str) -> int:
    if not isinstance(text, str) or not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise PublishError(
            where, f"is {text!r}", code=ProblemCode.INVALID_VALUE, expected="a number of hosts from 1 on"
        )
    return int(text)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise PublishError(where, "wanted a list of texts", code=ProblemCode.INVALID_VALUE)
    return tuple(value)


def _may(text: Any, where: str) -> May:
    if text not in set(May):
        raise PublishError(
            where, f"is {text!r}", code=ProblemCode.INVALID_VALUE, expected=f"{' or '.join(May)}"
        )
    return May(text)


def _url(text: Any, where: str) -> str:
    if not isinstance(text, str) or not text.startswith(("http://", "https://")):
        raise PublishError(
            where, "wanted a URL that begins with https:// or http://", code=ProblemCode.INVALID_VALUE
        )
    return text
