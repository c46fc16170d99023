"""Rule that halts a rollout: the limits for problem reports of hosts that have the release.

The limits apply to all hosts with the release, and to the hosts of each kind of machine. Otherwise a problem
on one in twenty machines of a kind that makes up a tenth of the fleet would only count as half a percent.
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
    may: May = May.HALT
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
    fields = _mapping(written, where, KEYS)
    tell = _mapping(fields.get("tell", {}), f"{where}: tell", _TELL)
    prometheus = _mapping(fields.get("prometheus", {}), f"{where}: prometheus", _PROMETHEUS)
    if prometheus and set(prometheus) != set(_PROMETHEUS):
        raise PublishError(
            f"{where}: prometheus", "expected both 'url' and 'query'", code=ProblemCode.INVALID_VALUE
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
            where, f"expected a mapping with the keys {' and '.join(known)}", code=ProblemCode.INVALID_VALUE
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
        raise PublishError(where, "expected a list of texts", code=ProblemCode.INVALID_VALUE)
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
            where, "expected a URL that begins with https:// or http://", code=ProblemCode.INVALID_VALUE
        )
    return text
