"""The sources that apt reads, as far as it matters which repositories they name: URLs and suites."""

import re
from collections.abc import Iterator

_ONE_LINE = re.compile(r"\s*deb(?:-src)?\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)")
_OFF = ("no", "false", "0", "off", "without", "disable")


def parse_entries(path: str, text: str) -> Iterator[tuple[str, str]]:
    """The URL and suite of each entry that is in use; lines that apt would not understand are passed over."""
    return _of_stanzas(text) if path.endswith(".sources") else _of_lines(text)


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
    """Each field with all its lines; comments may stand anywhere."""
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
