"""Groups of hosts that need attention: the problem, its hosts, since when, and the next step.

* Each host with a failure, a hold or without reports is in at least one group.
* The most serious group with the most hosts comes first.
* Next steps are those of ``puller status`` on a host.
* This module does no I/O.
"""

import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from foundation.times import minute_text
from puller.fleet.host_document import without_host
from puller.fleet.views import Attention, Condition, EventView, FailureView, HostRow, RolloutView

CHECK_THE_HOST = "`puller doctor`"
ENABLE = "`puller enable`, if an operator has disabled the agent"
UNPIN = "`puller unpin {}`, if the pin is no longer needed"
REFRESH_THE_SITE = "`puller site refresh`, then `puller site push`"
NextStep = Callable[[str], tuple[str, str]]
"""Returns the next step for a host, and the host for its commands. Empty: the publisher's machine."""
_SEVERITY = {condition: place for place, condition in enumerate(Condition)}


def find_attention(
    hosts: Iterable[HostRow],
    failures: Iterable[FailureView],
    rolled_back: Mapping[tuple[str, str], Sequence[HostRow]],
    rollouts: Iterable[RolloutView],
    *,
    next_step: NextStep,
    last_failures: Callable[[str, Sequence[HostRow]], Sequence[EventView]],
) -> list[Attention]:
    """Return the groups, the most serious one first.

    ``rolled_back`` has the hosts that gave up a published version, by bundle and version. ``next_step`` returns the
    step for a host and the host of its command, and ``last_failures`` the newest failures of a bundle on hosts.
    """
    groups = [group for failure in failures if (group := _failed(failure, next_step)) is not None]
    extending = {(rollout.bundle, rollout.version) for rollout in rollouts}
    for (bundle, version), unsorted in rolled_back.items():
        rows = sorted(unsorted, key=lambda host: host.name)
        causes = last_failures(bundle, rows)
        groups.append(_given_up(bundle, version, rows, causes, is_extending=(bundle, version) in extending))
    covered = {host.name for group in groups for host in group.hosts}
    groups += _remaining((host for host in hosts if host.name not in covered), next_step)
    return sorted(groups, key=lambda group: (_SEVERITY[group.condition], -len(group.hosts), group.title))


def expiring(rows: Sequence[tuple[HostRow, datetime]]) -> Attention:
    """Return the group of hosts whose metadata expire soon or have expired."""
    hosts = [host for host, _ in rows]
    first = min(when for _, when in rows)
    title = f"The signed metadata expire, first at {minute_text(first)}"
    return Attention(Condition.HELD, title, hosts, None, REFRESH_THE_SITE)


def _failed(failure: FailureView, next_step: NextStep) -> Attention | None:
    """Return the group of an error. ``None`` if its hosts rolled back or are silent, because other groups have them."""
    hosts = [host for host in failure.hosts if host.state not in (Condition.GAVE_UP, Condition.SILENT)]
    if not hosts:
        return None
    example = failure.example_host if failure.example_host in {host.name for host in hosts} else hosts[0].name
    todo, on = next_step(example)
    # The reference of the group has a placeholder for the name of each host.
    if failure.reference and "<host>" not in failure.reference:
        todo, on = f"`puller explain {_argument(failure.reference)}`", example
    return Attention(
        Condition.FAILED,
        failure.message,
        hosts,
        failure.first,
        todo,
        on,
        failure=failure,
        bundle=failure.bundle,
    )


def _given_up(
    bundle: str,
    version: str,
    hosts: Sequence[HostRow],
    causes: Sequence[EventView],
    *,
    is_extending: bool,
) -> Attention:
    halt = f"`puller site halt {_argument(bundle)}`, then " if is_extending else ""
    return Attention(
        Condition.GAVE_UP,
        f"{bundle} {version} was rolled back",
        hosts,
        _earliest(hosts),
        f"{halt}correct the bundle and publish a new version",
        bundle=bundle,
        version=version,
        causes=causes,
    )


def _remaining(hosts: Iterable[HostRow], next_step: NextStep) -> list[Attention]:
    """Return the groups of hosts that no failure and no rollback explains, by state and reason."""
    groups: dict[tuple[Condition, str], list[HostRow]] = defaultdict(list)
    for host in hosts:
        condition = Condition(host.state)
        if condition is Condition.SILENT:
            groups[condition, ""].append(host)
        elif not condition.is_well:
            groups[condition, without_host(host.why, host.name)].append(host)
    return [_for_reason(condition, why, rows, next_step) for (condition, why), rows in groups.items()]


def _for_reason(condition: Condition, why: str, hosts: list[HostRow], next_step: NextStep) -> Attention:
    hosts.sort(key=lambda host: (host.since.timestamp() if host.since else math.inf, host.name))
    todo, on = next_step(hosts[0].name)
    title = why or ("The last report is too old" if condition is Condition.SILENT else condition.label)
    return Attention(condition, title, hosts, _earliest(hosts), todo, on)


def _argument(text: str) -> str:
    """Return a text as an argument for a shell. A number sign within a word needs no quotes."""
    is_plain = shlex.quote(text.replace("#", "")) == text.replace("#", "") and not text.startswith("#")
    return text if is_plain else shlex.quote(text)


def _earliest(hosts: Sequence[HostRow]) -> datetime | None:
    return min((host.since for host in hosts if host.since), default=None)
