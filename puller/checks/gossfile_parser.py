"""The parser of gossfiles: returns the checks, and the unsupported parts with their places.

The parser ignores nothing. A file with an unknown kind, attribute or matcher yields an unknown result, since the
omitted part might be the failing one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hiera import parsing
from hiera.errors import HieraError
from puller.checks.gossfile_matchers import Path, problems

LARGEST = 1 << 20
"""Maximum bytes of a file."""

_COMMON = frozenset({"title", "meta", "skip"})
_LINES = frozenset({"contents", "contains", "stdout", "stderr", "body", "headers"})
ATTRIBUTES: Mapping[str, tuple[str, frozenset[str], frozenset[str]]] = {
    "addr": ("reachable", frozenset({"reachable"}), frozenset({"address", "timeout"})),
    "command": (
        "exit-status",
        frozenset({"exit-status", "stdout", "stderr"}),
        frozenset({"exec", "timeout"}),
    ),
    "dns": ("resolvable", frozenset({"resolvable", "addrs"}), frozenset({"resolve", "timeout"})),
    "file": (
        "exists",
        frozenset(
            {"exists", "mode", "size", "owner", "group", "uid", "gid", "filetype", "contents", "contains"}
            | {"md5", "sha256", "sha512", "linked-to"}
        ),
        frozenset({"path"}),
    ),
    "group": ("exists", frozenset({"exists", "gid"}), frozenset({"groupname"})),
    "http": (
        "status",
        frozenset({"status", "headers", "body"}),
        frozenset({"url", "no-follow-redirects", "timeout", "request-headers", "ca-file", "method"}),
    ),
    "interface": ("exists", frozenset({"exists", "addrs", "mtu"}), frozenset({"name"})),
    "kernel-param": ("value", frozenset({"value"}), frozenset({"name"})),
    "matching": ("matches", frozenset({"matches"}), frozenset({"content"})),
    "mount": (
        "exists",
        frozenset({"exists", "opts", "vfs-opts", "source", "filesystem", "usage"}),
        frozenset({"mountpoint", "timeout"}),
    ),
    "package": ("installed", frozenset({"installed", "versions"}), frozenset({"name"})),
    "port": ("listening", frozenset({"listening", "ip"}), frozenset({"port"})),
    "process": ("running", frozenset({"running"}), frozenset({"comm"})),
    "service": ("", frozenset({"enabled", "running"}), frozenset({"name"})),
    "user": (
        "exists",
        frozenset({"exists", "uid", "gid", "groups", "home", "shell"}),
        frozenset({"username"}),
    ),
}
"""The kinds: required attribute, attributes to compare, and options of the query."""

_TEXTS = frozenset(
    {"address", "exec", "resolve", "path", "groupname", "url", "ca-file", "method", "name", "mountpoint"}
    | {"port", "comm", "username"}
)
_MODES = ("GET", "HEAD", "OPTIONS")


class Test(msgspec.Struct, frozen=True):
    """One resource of a gossfile: what to query, and the expected values."""

    kind: str
    name: str
    """Its key in the file."""
    wanted: Mapping[str, Any]
    """The matchers, by attribute."""
    options: Mapping[str, Any]
    """Options of the query."""
    skip: bool = False


class Problem(msgspec.Struct, frozen=True):
    """An unsupported or invalid part of a file."""

    path: Path
    sentence: str

    def __str__(self) -> str:
        return f"{': '.join(map(str, self.path))}: {self.sentence}" if self.path else self.sentence


def read(text: str, source: str) -> tuple[list[Test], list[Problem]]:
    """Return the tests and the problems of a gossfile."""
    if "{{" in text:
        line = text[: text.index("{{")].count("\n") + 1
        return [], [
            Problem((), f"line {line} has a template ({{{{ … }}}}) of goss, and templates are not supported")
        ]
    try:
        value = parsing.load_yaml(text, source, limit=LARGEST)
    except HieraError as error:
        return [], [Problem((), str(error))]
    if not isinstance(value, dict) or not value:
        return [], [Problem((), "must be a mapping of kinds to tests")]
    tests: list[Test] = []
    problems: list[Problem] = []
    for kind, resources in value.items():
        if kind not in ATTRIBUTES:
            problems.append(Problem((kind,), "is not a supported kind"))
        elif not isinstance(resources, dict) or not resources:
            problems.append(Problem((kind,), "must be a mapping of tests"))
        else:
            for name, attributes in resources.items():
                problems += _problems(kind, name, attributes)
                if isinstance(attributes, dict):
                    tests.append(_test(kind, str(name), attributes))
    if not problems and not any(not test.skip for test in tests):
        problems.append(Problem((), "skips all of its tests"))
    return tests, problems


def _test(kind: str, name: str, attributes: dict[Any, Any]) -> Test:
    _, compared, options = ATTRIBUTES[kind]
    return Test(
        kind,
        name,
        {key: value for key, value in attributes.items() if key in compared},
        {key: value for key, value in attributes.items() if key in options},
        attributes.get("skip") is True,
    )


def _problems(kind: str, name: str | int, attributes: Any) -> Iterator[Problem]:
    here: Path = (kind, name)
    if not isinstance(attributes, dict):
        yield Problem(here, "must be a mapping of attributes")
        return
    required, compared, options = ATTRIBUTES[kind]
    for key, value in attributes.items():
        place = (*here, key)
        if key in compared:
            for path, sentence in problems(value, place, lines=key in _LINES):
                yield Problem(path, sentence)
        elif key in options:
            if sentence := _option_problem(kind, key, value):
                yield Problem(place, sentence)
        elif key not in _COMMON:
            yield Problem(place, "is not a supported attribute")
        elif key == "skip" and not isinstance(value, bool):
            yield Problem(place, "must be true or false")
    if required and required not in attributes:
        yield Problem(here, f"{required} is missing")
    if kind == "matching" and "content" not in attributes:
        yield Problem(here, "content is missing")
    if not required and not compared & {*attributes}:
        yield Problem(here, f"checks no attribute, expected one of {', '.join(sorted(compared))}")
    yield from _of_kind(kind, here, attributes)


def _of_kind(kind: str, here: Path, attributes: dict[Any, Any]) -> Iterator[Problem]:
    name = str(here[1])
    if kind == "addr":
        address = str(attributes.get("address", name))
        if not address.startswith("tcp://"):
            yield Problem(here, f"is not supported: {address!r}, expected tcp://HOST:PORT")
    if kind == "dns" and ":" in str(attributes.get("resolve", name)):
        yield Problem(here, "is not supported: Puller cannot query a DNS server for one record type")
    if kind == "port":
        port = str(attributes.get("port", name))
        protocol, _, number = port.rpartition(":")
        if protocol not in ("", "tcp", "tcp6", "udp", "udp6") or not (
            number.isascii() and number.isdecimal()
        ):
            yield Problem(here, f"is {port!r}, expected a port such as 'tcp:22'")
    if kind == "file" and isinstance(attributes.get("mode"), int):
        yield Problem((*here, "mode"), "is a number that YAML reads as octal, so quote it")


def _option_problem(kind: str, key: str, value: Any) -> str:
    if key == "timeout":
        is_time = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        return "" if is_time else "must be a number of milliseconds"
    if key == "no-follow-redirects":
        return "" if isinstance(value, bool) else "must be true or false"
    if key == "request-headers":
        is_list = isinstance(value, list) and all(isinstance(item, str) and ":" in item for item in value)
        return "" if is_list else "must be a list of 'Name: value'"
    if key == "method" and value not in _MODES:
        return f"is not supported: {value!r}, expected {' or '.join(_MODES)}"
    if key in _TEXTS and not isinstance(value, str) and not (kind == "port" and isinstance(value, int)):
        return "must be text"
    return ""
