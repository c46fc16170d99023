"""The output of ``apt-get --simulate``.

* The output has one line for each package (``Inst``, ``Remv``, ``Purg``) and a summary with their numbers.
* The lines must agree with the summary. Output that differs is an error. It never means that nothing changes.
"""

import re
from collections.abc import Iterable

from puller.errors import ResourceError
from puller.resources.packages.manager import Plan, Record

OPTIONS = ("--simulate", "-q=1", "-o", "APT::Output-Version=0")
"""The summary is missing if ``quiet`` is 2, and apt 3 has another one. The configuration can set both."""

# ``Inst tool:i386 [1.0] (2.0 Debian:12.5/stable [i386])``, ``Remv tool [1.0]``, ``Purg tool``
_INSTALLS = re.compile(r"Inst (\S+) (?:\[\S*\] )?\((\S+) .*\[(\S+)\]\)")
_REMOVES = re.compile(r"(?:Remv|Purg) (\S+)(?: |$)")
_ACTION = re.compile(r"(?:Inst|Remv|Purg)\b")
_SUMMARY = re.compile(
    r"(?P<upgraded>\d+) upgraded, (?P<new>\d+) newly installed, (?:(?P<again>\d+) reinstalled, )?"
    r"(?:(?P<older>\d+) downgraded, )?(?P<removed>\d+) to remove and \d+ not upgraded\."
)


def parse_simulation(text: str, native: str) -> Plan:
    """Return the packages that a simulated change installs and removes.

    ``native`` is the architecture of this machine. Raises ``ResourceError`` for output that is not understood.
    """
    installs: dict[tuple[str, str], Record] = {}
    removals: dict[str, None] = {}
    if not text.endswith("\n"):
        raise _not_understood("no end")
    lines = text.splitlines()
    for line in lines:
        if install := _INSTALLS.match(line):
            record = Record(install[1].partition(":")[0], install[2], install[3])
            installs[record.name, record.architecture] = record
        elif removal := _REMOVES.match(line):
            removals[removal[1].removesuffix(f":{native}")] = None
        elif _ACTION.match(line):
            raise _not_understood(f"the line {line!r}")
    for name, architecture in installs:  # apt removes a package for a moment, to resolve a loop of conflicts
        removals.pop(name if architecture in ("all", native) else f"{name}:{architecture}", None)
    _require_numbers(lines, len(installs), len(removals))
    return Plan(tuple(installs.values()), tuple(removals))


def _require_numbers(lines: Iterable[str], installs: int, removals: int) -> None:
    summaries = [match for line in lines if (match := _SUMMARY.fullmatch(line))]
    if len(summaries) != 1:
        raise _not_understood(f"{len(summaries)} summaries")
    numbers = {name: int(number or 0) for name, number in summaries[0].groupdict().items()}
    expected = numbers.pop("removed")
    if (installs, removals) != (sum(numbers.values()), expected):
        raise _not_understood(
            f"{installs} installations and {removals} removals, and the summary {sum(numbers.values())} and {expected}"
        )


def _not_understood(what: str) -> ResourceError:
    return ResourceError(f"the output of apt-get --simulate is not understood: it has {what}")
