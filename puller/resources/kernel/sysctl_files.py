"""Files of kernel parameters (sysctl.d(5)): parameter names, edits, and the order at boot.

* A key uses dots or slashes, and the first separator decides. In a key with dots, a slash stands for a dot inside a
  name, as in ``net.ipv4.conf.eth0/100.rp_filter``.
* Values are compared word by word, because the kernel separates words with tabs.
* The last line for a key in a file counts. A line for a pattern does not apply to a key that has its own line in any
  file.
* An edit changes the value only. Comments, blank lines, the dash that ignores failures and the spelling of keys stay.
* At boot the files of all directories are read in the order of their names. If several directories have a file of the
  same name, the first directory counts. ``/etc/sysctl.conf`` is read only if a link points to it, as on Debian 12 and
  Red Hat. Debian 13 has neither.
* A record lists the parameters with lines outside the default file. A parameter that is no longer declared has only its
  key.
"""

import os
import re
import stat
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple, Self

import msgspec

from puller.resources.base import Context
from puller.state import StateFile
from puller.system import trusted_files

# Keys of kernel parameters, and their paths below ``/proc/sys``.

_SWAPPED = str.maketrans("./", "/.")
_FORBIDDEN = re.compile(r"[\s=*?\[\]\0]")
_COMMENT_OR_DASH = ("#", ";", "-")

_MODULES = {
    "net/bridge/": "br_netfilter",
    "net/netfilter/nf_conntrack": "nf_conntrack",
    "net/nf_conntrack": "nf_conntrack",
    "net/ipv4/vs/": "ip_vs",
    "net/ipv6/": "ipv6",
    "net/mptcp/": "mptcp",
    "net/sctp/": "sctp",
    "net/dccp/": "dccp",
    "net/rds/": "rds",
    "net/rxrpc/": "rxrpc",
    "net/smc/": "smc",
    "net/tipc/": "tipc",
    "net/x25/": "x25",
    "net/ax25/": "ax25",
    "fs/nfs/nlm_": "lockd",
    "fs/nfs/": "nfs",
    "sunrpc/": "sunrpc",
    "dev/cdrom/": "cdrom",
    "dev/parport/": "parport",
    "dev/raid/": "md_mod",
    "fs/binfmt_misc/": "binfmt_misc",
}
_OF_AN_INTERFACE = re.compile(r"net/(?:ipv4|ipv6|mpls)/(?:conf|neigh)/([^/]+)/.")
_SETS_OTHERS = ("net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding", "net/ipv6/conf/all/forwarding")
"""Parameters whose change resets other parameters to their defaults."""


def normalized(key: str) -> str:
    """Return a key as the path below ``/proc/sys``."""
    first = re.search(r"[./]", key)
    return key.translate(_SWAPPED) if first and first[0] == "." else key


def spellings(normal: str) -> tuple[str, str]:
    """Return both spellings of a key."""
    return normal.translate(_SWAPPED), normal


def problem_of_key(key: str) -> str | None:
    """Return the problem of a key as written, ``None`` if it is valid."""
    if not key or _FORBIDDEN.search(key) or key.startswith(_COMMENT_OR_DASH):
        return "expected a key such as 'net.ipv4.ip_forward', without blanks, '=' and wildcards"
    if any(name in ("", ".", "..") for name in normalized(key).split("/")):
        return "which has a part without a name"
    return None


def path_of(normal: str) -> str:
    """Return the file of a key below ``/proc/sys``."""
    return f"{trusted_files.PROC_SYS}/{normal}"


def same_words(first: str | None, other: str | None) -> bool:
    """Return whether both values are equal for the kernel. ``None`` differs from an empty value."""
    return first is not None and other is not None and first.split() == other.split()


def module_of(normal: str) -> str | None:
    """Return the module that provides a key, if known."""
    return next((module for start, module in _MODULES.items() if normal.startswith(start)), None)


def why_missing(normal: str) -> str:
    """Return why a key may be missing, for a message."""
    interface = _OF_AN_INTERFACE.match(normal)
    if interface and os.path.isdir(path_of(normal[: interface.start(1)])):
        if not os.path.isdir(path_of(normal[: interface.end(1)])):
            return f"unknown network interface {interface[1]}"
    elif module := module_of(normal):
        return f"unknown key: it comes with the module {module}, which may not be loaded"
    return "unknown key in this kernel"


def why_not_writable(path: str) -> str:
    """Return why an existing key cannot be changed, empty if it can."""
    if os.access(path, os.W_OK):
        return ""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if not mode & 0o222:
        return f"is read-only (mode {mode:04o}): the kernel rejects changes"
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"cannot be changed here: {trusted_files.PROC_SYS} is read-only, as in a container"
    return (
        f"may not be changed by this user (mode {mode:04o}), which in a container is not the machine's root"
    )


def set_before(normal: str) -> Iterator[str]:
    """Yield the keys that must be set first, because their change would reset this key."""
    if normal.startswith(("net/ipv4/conf/", "net/ipv6/conf/")):
        family = normal.split("/")[1]
        yield from (key for key in _SETS_OTHERS if key != normal and key.split("/")[1] == family)
        interface = _OF_AN_INTERFACE.match(normal)
        if interface and interface[1] != "all":
            yield f"{normal[: interface.start(1)]}all{normal[interface.end(1) :]}"


DIRECTORIES = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
"""The first has precedence."""
OLD = "/etc/sysctl.conf"

_START = re.compile(r"\s*+(?:-\s*+)?")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")  # split only at newlines: a form feed does not end a line
_Identity = tuple[object, ...]


class Edit(msgspec.Struct, frozen=True):
    """A desired line: a key as written, and its value. ``None`` removes the line."""

    key: str
    value: str | None


class _Line(NamedTuple):
    """A line with a key and a value, in parts. After a ``-`` before the key, sysctl(8) ignores failures."""

    start: str
    key: str
    between: str
    value: str
    end: str

    @classmethod
    def find(cls, line: str) -> Self | None:
        """Return the parts of a line, ``None`` for a comment or an invalid line."""
        # A single regular expression would need quadratic time on a line with a megabyte of blanks.
        left, equals, right = line.partition("=")
        start = match[0] if (match := _START.match(left)) else ""
        key = left[len(start) :].rstrip()
        if not equals or not key or key[0] in "#;-":
            return None
        body = right.removesuffix("\n")
        value = body.strip()
        blanks = body[: len(body) - len(body.lstrip())]
        between = left[len(start) + len(key) :] + equals + blanks
        return cls(start, key, between, value, right[len(blanks) + len(value) :])


def parse(text: str) -> dict[str, str]:
    """Return the values in a file by normalised key."""
    result = map(_Line.find, text.split("\n"))
    return {normalized(line.key): line.value for line in result if line}


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return the text after all edits. New lines are appended in their order."""
    lines = _LINES.findall(text)
    places: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        if found_line := _Line.find(line):
            places.setdefault(normalized(found_line.key), []).append(index)
    for edit in edits:
        result = places.setdefault(normalized(edit.key), [])
        if edit.value is None:
            for index in result:
                lines[index] = ""
            result.clear()
        elif result:
            lines[result[-1]] = _with_value(lines[result[-1]], edit.value)
        else:
            result.append(len(lines))
            _append(lines, f"{edit.key} = {edit.value}\n")
    return "".join(lines)


def _with_value(line: str, value: str) -> str:
    result = _Line.find(line)
    return line if result is None else "".join(result._replace(value=value))


def _append(lines: list[str], line: str) -> None:
    if (last := next((one for one in reversed(lines) if one), "\n"))[-1] != "\n":
        lines[lines.index(last)] += "\n"
    lines.append(line)


class BootFiles:
    """All files that are read at boot. They are read again only if one has changed."""

    def __init__(self) -> None:
        self._changes = -1
        self._identities: list[_Identity] = []
        self._values: list[tuple[str, dict[str, str]]] = []
        """The values of each file by normalised key, in the order of the boot."""
        self._paths: frozenset[str] = frozenset()

    @classmethod
    def of(cls, context: Context) -> "BootFiles":
        """Return the current instance, shared by all resources of a run."""
        shared: BootFiles = context.shared.setdefault(cls, cls())
        if (changes := context.changes()) != shared._changes:
            shared._look()
            shared._changes = changes
        return shared

    def reads(self, path: str) -> bool:
        """Return whether a file is read at boot.

        False for other directories, and for a file hidden by the same name.
        """
        return path in self._paths

    def last(self, key: str) -> tuple[str, str] | None:
        """Return the last file that sets a normalised key, and the value."""
        return next(((path, values[key]) for path, values in reversed(self._values) if key in values), None)

    def others(self, key: str, paths: Container[str]) -> str | None:
        """Return the value that all files except these set last. ``None`` if they do not set the normalised key."""
        values = (
            values[key] for path, values in reversed(self._values) if key in values and path not in paths
        )
        return next(values, None)

    def _look(self) -> None:
        paths = [*_in_order()]
        identities = [(path, *(_identity(_stat(path)) or ())) for path in paths]
        if identities != self._identities:
            self._identities, self._paths = identities, frozenset(paths)
            self._values = [(path, _read(path)) for path in paths]


def _in_order() -> Iterator[str]:
    by_name: dict[str, str] = {}
    for directory in DIRECTORIES:
        try:
            names = os.listdir(directory)
        except OSError:  # missing, or not readable
            continue
        for name in names:
            if name.endswith(".conf"):
                by_name.setdefault(name, f"{directory}/{name}")
    for name in sorted(by_name):
        path = by_name[name]
        yield OLD if os.path.islink(path) and os.path.realpath(path) == OLD else path


def _read(path: str) -> dict[str, str]:
    """Return the values of a file, empty if it cannot be read."""
    try:
        with open(path, "rb", buffering=0, opener=_without_waiting) as stream:
            return parse(_decoded(stream.readall() or b""))
    except OSError:
        return {}


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _identity(status: os.stat_result | None) -> _Identity | None:
    if status is None:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


# The record of files other than the default file.

_LOSS = "lines of parameters in files of their own stay when they are no longer declared"


class _Places(msgspec.Struct, forbid_unknown_fields=True, tag_field="format", tag=1):
    """The file of each normalised key."""

    paths: dict[str, str] = {}


def remember(paths: Mapping[str, str], context: Context) -> None:
    """Record the files of keys. Raises ``OSError``."""
    if (file := _record(context)) is not None:
        known = (file.load(context.log) or _Places()).paths
        if not paths.items() <= known.items():
            file.save(_Places({**known, **paths}))


def find_place(key: str, context: Context) -> str | None:
    """Return the file of a normalised key, ``None`` for the default file. Raises ``OSError``."""
    file = _record(context)
    result = file and file.load(context.log, noop=context.noop)
    return result.paths.get(key) if result else None


def _record(context: Context) -> "StateFile[_Places] | None":
    state = context.state_directory
    return None if state is None else StateFile(state / "sysctls.json", _Places, _LOSS)
