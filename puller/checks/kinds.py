"""The kinds of health checks as manifests write them: a check has one of them, and how often it is tried.

* Types only: what carries a kind out is the module of its name beside this one, imported when a check asks for it.
* What is wrong with a value is raised when it is read, as a sentence that continues *has an entry at [0].tcp that*.
* All of them can be hashed: two declarations of one resource may have the same check, which is asked once.
"""

import re
from typing import Any, Literal

import msgspec

from foundation.durations import Duration
from puller.values.file_mode import FileMode

# Not compiled here: most manifests that are read have none of these.
_URL = r"https?://([^/?#\s@]+)(/\S*|\?\S*)?"
_ADDRESS = r"(\[[0-9a-fA-F:.%A-Za-z0-9_]+\]|[^\s:\[\]]+):([0-9]{1,5})"
_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*"
_PERCENT = r"([0-9]{1,2}(?:\.[0-9]+)?|100)%"
_BYTES = r"([0-9]+(?:\.[0-9]+)?)\s*([kMGTP]i?)?B?"
_POWERS = {"k": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class JsonValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A value in the JSON of an answer."""

    path: str
    """Names of keys and numbers of items, with dots between them: ``nodes.0.state``."""
    value: str | int | float | bool | None
    """What it must be, type included."""


class Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The answer of a web server."""

    url: str
    """``http://`` or ``https://``; with ``https://`` the certificate must be valid for its name."""
    status: int | tuple[int, ...] | None = None
    """The status, or several of which it must be one; by default any from 200 to 299."""
    contains: str | None = None
    """Text that must be in the first MiB of the body, which is not decompressed."""
    json: tuple[JsonValue, ...] = ()
    """Values that the body must have, each as ``path`` and ``value``."""
    certificate_days: int | None = None
    """For how many days from now the certificate must still be valid."""
    ca_bundle: str | None = None
    """A file of certificate authorities to trust, in place of those of the host."""
    connect: str | None = None
    """``HOST:PORT`` to connect to in place of that of the URL, which stays what is asked for and verified."""
    method: Literal["GET", "HEAD", "OPTIONS"] = "GET"
    """The method; only those that change nothing."""
    headers: tuple[str, ...] = ()
    """Further header lines: ``Name: value``."""
    redirects: int = 0
    """How many redirects are followed; by default none, and the status is that of the redirect."""

    def __post_init__(self) -> None:
        if not re.fullmatch(_URL, self.url) or not self.url.isascii():
            raise ValueError("has a url that is none: wanted http:// or https:// with a host, without user")
        statuses = self.status if isinstance(self.status, tuple) else (self.status,)
        if any(status is not None and not 100 <= status <= 599 for status in statuses) or statuses == ():
            raise ValueError("has a status that is none, wanted 100 to 599")
        if self.certificate_days is not None and not self.url.startswith("https://"):
            raise ValueError("asks for the days of a certificate, and its url is no https://")
        if self.certificate_days is not None and self.certificate_days < 0:
            raise ValueError(f"has certificate_days {self.certificate_days}, wanted 0 or more")
        if self.method == "HEAD" and (self.contains is not None or self.json):
            raise ValueError("asks for a body, which HEAD has none of")
        if self.connect is not None:
            parse_address(self.connect)
        if any(not re.fullmatch(_HEADER, header) for header in self.headers):
            raise ValueError("has a header that is none, wanted 'Name: value' in one line")
        if not 0 <= self.redirects <= 10:
            raise ValueError(f"has redirects {self.redirects}, wanted 0 to 10")
        if any(not one.path for one in self.json):
            raise ValueError("has a json path that is empty")
        _require_text("contains", self.contains)


class Tcp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A TCP port that takes connections."""

    address: str
    """``HOST:PORT``; IPv6 addresses in brackets."""
    greets: str | None = None
    """Text in what the server says first, of itself."""

    def __post_init__(self) -> None:
        parse_address(self.address)
        _require_text("greets", self.greets)


class Unix(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A stream socket at a path that takes connections."""

    path: str
    """The absolute path of the socket."""
    greets: str | None = None
    """Text in what the server says first, of itself."""

    def __post_init__(self) -> None:
        _require_absolute(self.path)
        if len(self.path.encode()) > _LONGEST_SOCKET:
            raise ValueError(
                f"has a path of more than {_LONGEST_SOCKET} bytes, the most that a socket may have"
            )
        _require_text("greets", self.greets)


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A unit of systemd."""

    unit: str
    """Its name; ``.service`` when it has no suffix."""
    active: bool = True
    """Whether it must be active; one that is on its way there is not."""
    enabled: bool | None = None
    """Whether it must start at boot; not looked at when not given."""
    scope: Literal["system", "user"] = "system"
    """Whose systemd is asked: that of the ``system``, or that of the ``user`` whom Puller runs as."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_:.\\@-]+", self.unit) or self.unit.startswith("-"):
            raise ValueError(f"has the unit {self.unit!r}, wanted the name of one unit")


class Process(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Processes of this machine; zombies and Puller itself are none."""

    name: str | None = None
    """The name, as ``ps -o comm`` shows it."""
    pidfile: str | None = None
    """An absolute path of a file with the number of the process; with ``name`` it must have that, too."""
    count: int | None = None
    """How many there must be, 0 for none; by default one or more."""

    def __post_init__(self) -> None:
        if self.name is None and self.pidfile is None:
            raise ValueError("names no process: wanted name or pidfile")
        if self.name is not None and (not self.name or "/" in self.name):
            raise ValueError(f"has the name {self.name!r}, wanted that of a program without its directory")
        if self.pidfile is not None:
            _require_absolute(self.pidfile)
        if self.count is not None and self.count < 0:
            raise ValueError(f"has the count {self.count}, wanted 0 or more")
        if self.pidfile is not None and self.count is not None and self.count > 1:
            raise ValueError("has a pidfile, which is of one process, and a count above 1")


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A file, links followed; all that is given must be so."""

    path: str
    """The absolute path."""
    exists: bool = True
    """Whether anything must be there."""
    type: Literal["file", "directory", "link", "socket", "fifo", "device"] | None = None
    """What it must be; a ``link`` itself is looked at only with this."""
    mode: FileMode | None = None
    """The permissions, in octal digits."""
    owner: str | int | None = None
    """The owner, by name or number."""
    group: str | int | None = None
    """The group, by name or number."""
    contains: str | None = None
    """Text that must be in it."""
    max_age: Duration | None = None
    """How long ago its content may have changed at most."""
    min_age: Duration | None = None
    """How long ago its content must have changed at least."""
    min_size: int | None = None
    """How many bytes it must have at least."""

    def __post_init__(self) -> None:
        _require_absolute(self.path)
        rest = (self.type, self.mode, self.owner, self.group, self.contains, self.max_age, self.min_age)
        if not self.exists and any(value is not None for value in (*rest, self.min_size)):
            raise ValueError("says more of a file that must not be there")
        if self.contains is not None and self.type not in (None, "file"):
            raise ValueError(f"asks for the text in a {self.type}")
        _require_text("contains", self.contains)


class Disk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The free space of the file system that a path is on."""

    path: str
    """An absolute path on it."""
    free: str | int | None = None
    """How much must be free for users: bytes, ``500MB``, ``2GiB``, or a part of what users can have, ``10%``."""
    inodes: str | int | None = None
    """How many inodes must be free: a number, or a part of all, ``5%``."""

    def __post_init__(self) -> None:
        _require_absolute(self.path)
        if self.free is None and self.inodes is None:
            raise ValueError("says nothing that must be free: wanted free or inodes")
        for value in (self.free, self.inodes):
            if value is not None:
                parse_amount(value)


class Dns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A name that the system's resolver knows, ``/etc/hosts`` and the like included."""

    name: str
    """The name."""
    type: Literal["A", "AAAA"] | None = None
    """IPv4 (``A``) or IPv6 (``AAAA``); by default either."""
    addresses: tuple[str, ...] = ()
    """All addresses that it must have, and no others; not looked at when not given."""

    def __post_init__(self) -> None:
        if not self.name or not re.fullmatch(r"[A-Za-z0-9_.-]+", self.name):
            raise ValueError(f"has the name {self.name!r}, wanted a host name")


Kind = Http | Tcp | Unix | Service | Process | File | Disk | Dns


class HealthCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A question that tells whether a resource works, asked after it was applied: a command, or one of the kinds."""

    command: str | None = None
    """A command with the exit codes of Nagios."""
    http: Http | None = None
    """The answer of a web server."""
    tcp: Tcp | None = None
    """A TCP port that takes connections."""
    unix: Unix | None = None
    """A stream socket at a path that takes connections."""
    service: Service | None = None
    """A unit of systemd."""
    process: Process | None = None
    """Processes of this machine."""
    file: File | None = None
    """A file that is there, its attributes and what is in it."""
    disk: Disk | None = None
    """What is free of a file system."""
    dns: Dns | None = None
    """A name that the system's resolver knows."""
    goss: str | None = None
    """A goss file of the bundle, whose tests are all asked."""
    name: str = ""
    """What messages and reports call it; by default the name of the program, or the kind."""
    tries: int = 1
    """How often it is tried until it is OK."""
    try_sleep: Duration = Duration(1.0)
    """The pause between two tries."""
    timeout: Duration = Duration(60.0)
    """After which one try is ended, as a whole."""

    def __post_init__(self) -> None:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            has = " and ".join(given) if given else "no kind"
            raise ValueError(f"has {has}, wanted one of {', '.join(KINDS)}")

    @property
    def kind(self) -> str:
        """Which of the kinds it is: ``http``."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def wanted(self) -> Any:
        """The question: a value of the kind's type, or the command."""
        return getattr(self, self.kind)


KINDS = ("command", "http", "tcp", "unix", "service", "process", "file", "disk", "dns", "goss")
"""The keys of a check of which it has one."""

_LONGEST_SOCKET = 107  # bytes; unix(7), without the NUL at the end


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; raises ``ValueError``."""
    match = re.fullmatch(_ADDRESS, text)
    if match is None or not 0 < int(match[2]) < 65536:
        raise ValueError(f"has the address {text!r}, wanted HOST:PORT")
    return match[1].strip("[]"), int(match[2])


def parse_amount(value: str | int) -> tuple[float, bool]:
    """How much, and whether that is in percent; raises ``ValueError``. ``kB`` is 1000 bytes, ``KiB`` 1024."""
    if isinstance(value, int):
        if value >= 0:
            return float(value), False
    elif match := re.fullmatch(_PERCENT, value.strip()):
        return float(match[1]), True
    elif match := re.fullmatch(_BYTES, value.strip().replace("K", "k")):
        unit = match[2] or ""
        base = 1024 if unit.endswith("i") else 1000
        return float(match[1]) * base ** _POWERS.get(unit[:1], 0), False
    raise ValueError(
        f"has the amount {value!r}, wanted a number, a size such as '500MB' or a part such as '10%'"
    )


def _require_absolute(path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"has the path {path!r}, wanted an absolute one")


def _require_text(name: str, text: str | None) -> None:
    # What is empty is contained in everything.
    if text == "":
        raise ValueError(f"has {name} with no text in it")
