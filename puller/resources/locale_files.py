"""Names of locales, and edits of ``/etc/locale.gen`` and of the file with the variables of the machine, as text.

* Names are compared as the C library does: ``en_US.UTF-8`` is ``en_US.utf8``.
* ``/etc/locale.gen`` has a name and a charset on each line. A comment character switches a line off.
* The variables are assignments, as in ``setting`` with ``format: shell``. All other lines stay, byte by byte.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from puller.resources.edits.formats import shell
from puller.resources.edits.formats.text_lines import Setting

VARIABLES = (
    "LANG",
    "LC_ADDRESS",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
)
"""The variables that locale.conf(5) accepts, without ``LANGUAGE``, which contains several languages."""

_NAME = re.compile(r"([A-Za-z]+(?:_[A-Za-z0-9]+)?)(?:\.([A-Za-z0-9_-]+))?(@[A-Za-z0-9_-]+)?")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_ENTRY = re.compile(r"[ \t]*(?P<off>#[# \t]*)?(?P<name>\S+)[ \t]+(?P<charset>[A-Za-z0-9_.-]+)[ \t\r]*\n?")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]")


class Entry(NamedTuple):
    """A locale that can be generated: its name and its charset."""

    name: str
    charset: str


class Assignments(NamedTuple):
    """The desired variables of a locale, with its name as their value.

    ``variables`` is ``None`` if the locale does not manage them, and empty if no variable may have it as its value.
    """

    name: str
    variables: Collection[str] | None


def is_locale(name: str) -> bool:
    """Return whether a text can be the name of a locale."""
    return _NAME.fullmatch(name) is not None


def normal(name: str) -> str:
    """Return the name as the C library compares it. Other texts are returned as they are."""
    base, codeset, modifier = _parts(name)
    return f"{base}{'.' + _normal_codeset(codeset) if codeset else ''}{modifier}"


def with_charset(entry: Entry) -> str:
    """Return the normal name with the charset, such as ``de_DE.iso88591`` for ``de_DE``."""
    base, codeset, modifier = _parts(entry.name)
    return f"{base}.{_normal_codeset(codeset or entry.charset)}{modifier}"


def _parts(name: str) -> tuple[str, str, str]:
    """Return language, codeset and modifier. Any other text is returned as the language."""
    match = _NAME.fullmatch(name)
    return (name, "", "") if match is None else (match[1], match[2] or "", match[3] or "")


def _normal_codeset(codeset: str) -> str:
    plain = _NOT_IN_NAMES.sub("", codeset.lower())
    return f"iso{plain}" if plain.isdecimal() else plain


def parse_entries(text: str) -> dict[str, Entry]:
    """Return the active entries of a text, by normal name."""
    matches = filter(None, map(_ENTRY.fullmatch, _LINES.findall(text)))
    return {
        normal(match["name"]): Entry(match["name"], match["charset"]) for match in matches if not match["off"]
    }


def with_entries(text: str, added: Iterable[Entry], removed: Collection[str]) -> str:
    """Return the text after all edits. ``removed`` are normal names, whose lines become comments."""
    lines: list[str] = _LINES.findall(text)
    matches = [_ENTRY.fullmatch(line) for line in lines]
    for index, match in enumerate(matches):
        if match and not match["off"] and normal(match["name"]) in removed:
            lines[index] = f"# {lines[index].lstrip()}"
    for entry in added:
        if normal(entry.name) in parse_entries("".join(lines)):
            continue
        commented = (
            index
            for index, match in enumerate(matches)
            if match
            and match["off"]
            and (normal(match["name"]), match["charset"]) == (normal(entry.name), entry.charset)
        )
        line = f"{entry.name} {entry.charset}\n"
        if (place := next(commented, None)) is not None:
            lines[place] = line
            continue
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        lines.append(line)
    return "".join(lines)


def parse_variables(text: str) -> Mapping[str, str]:
    """Return the variables of the locale by name. Raises ``FormatError`` for a text that is not only assignments."""
    states = {name: shell.find(text, Setting(key=name)) for name in VARIABLES}
    return {name: str(state.value) for name, state in states.items() if state.is_there}


def with_variables(text: str, desired: Collection[Assignments]) -> str:
    """Return the text after all edits. Raises ``FormatError``.

    1. Variables get their locale.
    2. Other variables lose a locale that is not desired for them. They then have the value of ``LANG``.
    """
    # 1. Set
    for name, variables in desired:
        for variable in variables or ():
            if normal(parse_variables(text).get(variable, "")) != normal(name):
                text = shell.with_value(text, Setting(key=variable, value=name))
    # 2. Remove
    for name, variables in desired:
        for variable, value in parse_variables(text).items():
            if variables is not None and variable not in variables and normal(value) == normal(name):
                text = shell.without(text, Setting(key=variable))
    return text
