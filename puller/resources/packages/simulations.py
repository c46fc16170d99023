"""Parsers for the simulations of package managers: ``apt-get --simulate`` and ``dnf --assumeno`` (dnf 4 and dnf 5).

* apt prints one line for each package (``Inst``, ``Remv``, ``Purg``) and a summary with their numbers.
* dnf prints a table of packages under headings and a summary, or states that nothing changes.
* Every line, heading and row must be known, and the numbers must agree with the summary. Any other output is an error
  and never counts as a run without changes.
"""

import re
from collections.abc import Iterable, Iterator

from puller.errors import ResourceError
from puller.resources.packages.manager import Plan, Record

APT_OPTIONS = ("--simulate", "-q=1", "-o", "APT::Output-Version=0")
"""With ``quiet`` set to 2 the summary is missing, and apt 3 has a different one. The configuration can set both."""

# ``Inst tool:i386 [1.0] (2.0 Debian:12.5/stable [i386])``, ``Remv tool [1.0]``, ``Purg tool``
_INSTALLS = re.compile(r"Inst (\S+) (?:\[\S*\] )?\((\S+) .*\[(\S+)\]\)")
_REMOVES = re.compile(r"(?:Remv|Purg) (\S+)(?: |$)")
_ACTION = re.compile(r"(?:Inst|Remv|Purg)\b")
_SUMMARY = re.compile(
    r"(?P<upgraded>\d+) upgraded, (?P<new>\d+) newly installed, (?:(?P<again>\d+) reinstalled, )?"
    r"(?:(?P<older>\d+) downgraded, )?(?P<removed>\d+) to remove and \d+ not upgraded\."
)


def parse_apt_simulation(text: str, native: str) -> Plan:
    """Return the packages that a simulated change installs and removes.

    ``native`` is the architecture of this machine. Raises ``ResourceError`` for unknown output.
    """
    installs: dict[tuple[str, str], Record] = {}
    removals: dict[str, None] = {}
    if not text.endswith("\n"):
        raise _apt_not_understood("no end")
    lines = text.splitlines()
    for line in lines:
        if install := _INSTALLS.match(line):
            record = Record(install[1].partition(":")[0], install[2], install[3])
            installs[record.name, record.architecture] = record
        elif removal := _REMOVES.match(line):
            removals[removal[1].removesuffix(f":{native}")] = None
        elif _ACTION.match(line):
            raise _apt_not_understood(f"the line {line!r}")
    for name, architecture in installs:  # apt may remove it first, to break a loop of conflicts
        removals.pop(name if architecture in ("all", native) else f"{name}:{architecture}", None)
    _require_apt_numbers(lines, len(installs), len(removals))
    return Plan(tuple(installs.values()), tuple(removals))


def _require_apt_numbers(lines: Iterable[str], installs: int, removals: int) -> None:
    summaries = [match for line in lines if (match := _SUMMARY.fullmatch(line))]
    if len(summaries) != 1:
        raise _apt_not_understood(f"{len(summaries)} summaries")
    numbers = {name: int(number or 0) for name, number in summaries[0].groupdict().items()}
    expected = numbers.pop("removed")
    if (installs, removals) != (sum(numbers.values()), expected):
        raise _apt_not_understood(
            f"{installs} installations and {removals} removals, and the summary {sum(numbers.values())} and {expected}"
        )


def _apt_not_understood(description: str) -> ResourceError:
    return ResourceError(f"the output of apt-get --simulate is not understood: it has {description}")


# The output of ``dnf --assumeno``.

DNF_OPTIONS = ("--assumeno", "--setopt=color=never", "--setopt=debuglevel=2")
"""The table is missing or has escape sequences with other values, which the configuration can set."""

_TABLE = re.compile(r"^ ?Package +Arch.*$", re.MULTILINE)
_END = re.compile(r"^(?:Transaction Summary:?|Nothing to do\.)$", re.MULTILINE)
_NOTHING = re.compile(r"^Nothing to do\.$", re.MULTILINE)

# ``Removing dependent packages:``
_PACKAGES = re.compile(
    r"(Installing|Upgrading|Downgrading|Reinstalling|Removing)"
    r"(?: dependencies| weak dependencies| dependent packages| unused dependencies| group/module packages)?:"
)
# Sections without packages, or with packages that do not change.
_OTHERS = re.compile(
    r"(?:Skipping packages with |Changing reason"
    r"|(?:\w+ )+(?:module|modules|groups|Groups|environmental|Environment)\b).*:"
)
_NOTE = re.compile(r"=+|\(.*\):?|")

# `` Install  2 Packages`` of dnf 4, `` Installing:  2 packages`` of dnf 5
_NUMBER = re.compile(
    r"^ ?(Install|Upgrad|Downgrad|Remov|Replac)(?:e|ing)?:? +(\d+) [Pp]ackages?$", re.MULTILINE
)


def has_plan(text: str) -> bool:
    """Return whether a simulation ended with a table of packages or without changes."""
    return bool(_TABLE.search(text) or _NOTHING.search(text))


def parse_dnf_simulation(text: str) -> Plan:
    """Return the packages that a simulated change installs and removes.

    Raises ``ResourceError`` for unknown output.
    """
    table = _TABLE.search(text)
    if table is None:
        if _NOTHING.search(text):
            return Plan()
        raise _dnf_not_understood("neither a table of packages nor the words 'Nothing to do.'")
    end = _END.search(text, table.end())
    if end is None:
        raise _dnf_not_understood("a table without an end")
    installs, removals, again = [], [], 0
    replaced: list[str] = []
    for verb, words in _rows(text[table.end() : end.start()]):
        if words[0] == "replacing":
            replaced.append(_replaced_name(words))
        elif verb == "Removing":
            removals.append(_record(words).name)
        else:
            installs.append(_record(words))
            again += verb == "Reinstalling"
    _require_dnf_numbers(text[end.start() :], len(installs) - again, len(removals), len(replaced))
    # dnf 5 also lists the older version of a package itself.
    obsoleted = {*replaced} - {record.name for record in installs}
    return Plan(tuple(installs), (*removals, *sorted(obsoleted)))


def _rows(table: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the verb of the heading and the words of each package. dnf 4 may wrap a row."""
    verb: str | None = None  # empty in skipped sections
    row: list[str] = []
    for line in table.splitlines():
        is_continued = line.startswith("  ") and not line.lstrip().startswith("replacing ")
        if is_continued and row:
            row += line.split()
            continue
        if row and verb:
            yield verb, row
        row = []
        if line.startswith(" ") and line.strip():
            if verb is None:
                raise _dnf_not_understood(f"the line {line!r} before the first heading")
            row = line.split()
        elif heading := _PACKAGES.fullmatch(line):
            verb = heading[1]
        elif _OTHERS.fullmatch(line):
            verb = ""
        elif not _NOTE.fullmatch(line):
            raise _dnf_not_understood(f"the line {line!r}")
    if row and verb:
        yield verb, row


def _record(words: list[str]) -> Record:
    """Return the package of a row: name, architecture, version, repository, size."""
    if len(words) < 5 or "-" not in words[2]:
        raise _dnf_not_understood(f"the row {' '.join(words)!r}")
    name, architecture, version, *_ = words
    return Record(name, version.removeprefix("0:"), architecture)


def _replaced_name(words: list[str]) -> str:
    """Return the name in ``replacing tool.noarch 1.0-1`` of dnf 4, or ``replacing tool noarch 0:1.0-1 …`` of dnf 5."""
    if len(words) == 3:
        return words[1].rpartition(".")[0]
    if len(words) < 5:
        raise _dnf_not_understood(f"the row {' '.join(words)!r}")
    return words[1]


def _require_dnf_numbers(summary: str, installs: int, removals: int, replaced: int) -> None:
    numbers: dict[str, int] = {}
    for kind, number in _NUMBER.findall(summary):
        numbers[kind] = int(number)
    # dnf 4 does not count replaced packages.
    expected = (numbers.pop("Remov", 0), numbers.pop("Replac", replaced))
    if (installs, removals, replaced) != (sum(numbers.values()), *expected):
        raise _dnf_not_understood(
            f"{installs} installations, {removals} removals and {replaced} replacements, "
            f"and the summary {sum(numbers.values())}, {expected[0]} and {expected[1]}"
        )


def _dnf_not_understood(description: str) -> ResourceError:
    return ResourceError(f"the output of dnf --assumeno is not understood: it has {description}")
