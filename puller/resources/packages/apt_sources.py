"""The sources that apt reads: which repositories they name, and how to fetch the lists of one source alone."""

import os
import re
from collections.abc import Iterator

from puller.system.protocol import System

ACCEPTS_CHANGES = "X-Allow-Release-Info-Change"
"""A field of sources that apt ignores: the Release file may change its Label, Suite, Codename or Version."""

PARTS = "/etc/apt/sources.list.d"
_ONE_LINE = re.compile(r"\s*deb(?:-src)?\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)")
_OFF = ("no", "false", "0", "off", "without", "disable")


def parse_entries(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the URL and suite of each enabled entry. Skip lines that apt cannot parse."""
    return _of_stanzas(text) if path.endswith(".sources") else _of_lines(text)


def options_for_one(path: str, *, accepts_changes: bool) -> list[str]:
    """Return the options of ``apt-get update`` that fetch the lists of one source and keep all other lists."""
    options = {
        "Dir::Etc::sourcelist": path,
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Get::List-Cleanup": "0",
        "APT::Update::Error-Mode": "any",  # otherwise apt-get exits with 0 if a repository is unreachable
        **({"Acquire::AllowReleaseInfoChange": "1"} if accepts_changes else {}),
    }
    return [word for item in options.items() for word in ("-o", "=".join(item))]


def accepting_changes(system: System) -> list[str]:
    """Return the sources whose Release files may change their Label, Suite, Codename or Version."""
    try:
        names = [name for name, _ in system.children(PARTS) if name.endswith(".sources")]
        paths = [os.path.join(PARTS, name) for name in names]
        return [path for path in paths if f"\n{ACCEPTS_CHANGES}: yes\n".encode() in system.read(path)]
    except OSError:  # without permission or file, apt-get update reports the change
        return []


def _of_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if found := _ONE_LINE.match(line.partition("#")[0]):
            yield found[1], found[2]


def _of_stanzas(text: str) -> Iterator[tuple[str, str]]:
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields = dict(_fields(stanza))
        if fields.get("enabled", "yes").strip().lower() not in _OFF:
            for url in fields.get("uris", "").split():
                yield from ((url, suite) for suite in fields.get("suites", "").split())


def _fields(stanza: str) -> Iterator[tuple[str, str]]:
    """Yield each field with its continuation lines. Skip comments."""
    name, value = "", ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t"):
            value += f"\n{line}"
            continue
        yield name, value
        name, _, value = line.partition(":")
        name = name.strip().lower()
    yield name, value
