"""The kinds of health checks in manifests, and the outcome of a check.

* This module has only types. Another module runs a kind, and is imported when a check needs it.
* A check has one kind, and settings for its attempts.
* A type raises ``ValueError`` for an invalid value. The message continues *has an entry at [0].tcp that*.
* All types are hashable. Two declarations of one resource may have the same check, which runs once.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from foundation.times import Duration
from puller.values.file_mode import FileMode

# Not compiled at import, because most manifests have no such values.
_URL = r"https?://([^/?#\s@]+)(/\S*|\?\S*)?"
_ADDRESS = r"(\[[0-9a-fA-F:.%A-Za-z0-9_]+\]|[^\s:\[\]]+):([0-9]{1,5})"
_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*"
_PERCENT = r"([0-9]{1,2}(?:\.[0-9]+)?|100)%"
_BYTES = r"([0-9]+(?:\.[0-9]+)?)\s*([kMGTP]i?)?B?"
_POWERS = {"k": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class JsonValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A value in a JSON response."""

    path: str
    """Keys and list indexes, separated by dots: ``nodes.0.state``."""
    value: str | int | float | bool | None
    """The expected value, of the same type."""


class Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A response of a web server."""

    url: str
    """``http://`` or ``https://``. With ``https://``, the certificate must be valid for the host name."""
    status: int | tuple[int, ...] | None = None
    """The expected status, or a list of them. The default is 200 to 299."""
    contains: str | None = None
    """Text in the first MiB of the body, without decompression."""
    json: tuple[JsonValue, ...] = ()
    """Values in the body, each with ``path`` and ``value``."""
    certificate_days: int | None = None
    """Minimum number of days until the certificate expires."""
    ca_bundle: str | None = None
    """A file of trusted certificate authorities, instead of the authorities of the host."""
    connect: str | None = None
    """``HOST:PORT`` of the connection. The request and the verification still use the host of the URL."""
    method: Literal["GET", "HEAD", "OPTIONS"] = "GET"
    """The method."""
    headers: tuple[str, ...] = ()
    """Additional header lines: ``Name: value``."""
    redirects: int = 0
    """Maximum number of redirects to follow. With 0, the default, the status is the status of the redirect."""

    def __post_init__(self) -> None:
        if not re.fullmatch(_URL, self.url) or not self.url.isascii():
            raise ValueError("has an invalid url, expected http:// or https:// with a host, without user")
        statuses = self.status if isinstance(self.status, tuple) else (self.status,)
        if any(status is not None and not 100 <= status <= 599 for status in statuses) or statuses == ():
            raise ValueError("has an invalid status, expected 100 to 599")
        if self.certificate_days is not None and not self.url.startswith("https://"):
            raise ValueError("has certificate_days, which require a url with https://")
        if self.certificate_days is not None and self.certificate_days < 0:
            raise ValueError(f"has certificate_days {self.certificate_days}, expected 0 or more")
        if self.method == "HEAD" and (self.contains is not None or self.json):
            raise ValueError("has contains or json, which require another method than HEAD")
        if self.connect is not None:
            parse_address(self.connect)
        if any(not re.fullmatch(_HEADER, header) for header in self.headers):
            raise ValueError("has an invalid header, expected 'Name: value' in one line")
        if not 0 <= self.redirects <= 10:
            raise ValueError(f"has redirects {self.redirects}, expected 0 to 10")
        if any(not item.path for item in self.json):
            raise ValueError("has an empty json path")
        _require_text("contains", self.contains)


class Tcp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A TCP port that accepts connections."""

    address: str
    """``HOST:PORT``. Write IPv6 addresses in brackets."""
    greets: str | None = None
    """Text in the greeting of the server."""

    def __post_init__(self) -> None:
        parse_address(self.address)
        _require_text("greets", self.greets)


class Unix(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A stream socket at a path that accepts connections."""

    path: str
    """The absolute path of the socket."""
    greets: str | None = None
    """Text in the greeting of the server."""

    def __post_init__(self) -> None:
        _require_absolute(self.path)
        if len(self.path.encode()) > _LONGEST_SOCKET:
            raise ValueError(f"has a path of more than {_LONGEST_SOCKET} bytes, the limit for a socket")
        _require_text("greets", self.greets)


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A unit of systemd."""

    unit: str
    """The name. ``.service`` is the default suffix."""
    active: bool = True
    """Whether the unit must be active. An activating unit is not active."""
    enabled: bool | None = None
    """Whether the unit must start at boot. Unset: not checked."""
    scope: Literal["system", "user"] = "system"
    """The manager: of the ``system``, or of the ``user`` that runs Puller."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_:.\\@-]+", self.unit) or self.unit.startswith("-"):
            raise ValueError(f"has unit {self.unit!r}, expected the name of one unit")


class Process(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Processes of this host, except zombies and Puller itself."""

    name: str | None = None
    """The name, as in ``ps -o comm``."""
    pidfile: str | None = None
    """The absolute path of a file with the process id. With ``name``, the process must have this name too."""
    count: int | None = None
    """The expected number, or 0. The default is one or more."""

    def __post_init__(self) -> None:
        if self.name is None and self.pidfile is None:
            raise ValueError("names no process, expected name or pidfile")
        if self.name is not None and (not self.name or "/" in self.name):
            raise ValueError(f"has name {self.name!r}, expected a program name without directory")
        if self.pidfile is not None:
            _require_absolute(self.pidfile)
        if self.count is not None and self.count < 0:
            raise ValueError(f"has count {self.count}, expected 0 or more")
        if self.pidfile is not None and self.count is not None and self.count > 1:
            raise ValueError("has a pidfile, which names one process, and a count above 1")


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A file with the given attributes. Links are followed."""

    path: str
    """The absolute path."""
    exists: bool = True
    """Whether an object must exist at the path."""
    type: Literal["file", "directory", "link", "socket", "fifo", "device"] | None = None
    """The type. ``link`` checks the link itself."""
    mode: FileMode | None = None
    """The permissions, in octal digits."""
    owner: str | int | None = None
    """The owner, by name or number."""
    group: str | int | None = None
    """The group, by name or number."""
    contains: str | None = None
    """Text in the file."""
    max_age: Duration | None = None
    """Maximum time since the last change of the content."""
    min_age: Duration | None = None
    """Minimum time since the last change of the content."""
    min_size: int | None = None
    """Minimum size in bytes."""

    def __post_init__(self) -> None:
        _require_absolute(self.path)
        remainder = (self.type, self.mode, self.owner, self.group, self.contains, self.max_age, self.min_age)
        if not self.exists and any(value is not None for value in (*remainder, self.min_size)):
            raise ValueError("has exists: false and checks of a file, which exclude each other")
        if self.contains is not None and self.type not in (None, "file"):
            raise ValueError(f"has contains for a {self.type}, and only a file has content")
        _require_text("contains", self.contains)


class Disk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Free space of the file system at a path."""

    path: str
    """An absolute path in the file system."""
    free: str | int | None = None
    """Minimum free space for users: bytes, ``500MB``, ``2GiB``, or a share of the space for users, ``10%``."""
    inodes: str | int | None = None
    """Minimum number of free inodes, or a share of all inodes, ``5%``."""

    def __post_init__(self) -> None:
        _require_absolute(self.path)
        if self.free is None and self.inodes is None:
            raise ValueError("has no limit, expected free or inodes")
        for value in (self.free, self.inodes):
            if value is not None:
                parse_amount(value)


class Dns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A name that the resolver of the system can resolve, including ``/etc/hosts``."""

    name: str
    """The name."""
    type: Literal["A", "AAAA"] | None = None
    """IPv4 (``A``) or IPv6 (``AAAA``). The default is either."""
    addresses: tuple[str, ...] = ()
    """The complete list of expected addresses. Unset: not checked."""

    def __post_init__(self) -> None:
        if not self.name or not re.fullmatch(r"[A-Za-z0-9_.-]+", self.name):
            raise ValueError(f"has name {self.name!r}, expected a host name")


class GossRules(str):
    """The tests of a goss file, written in a manifest. The text is JSON, so that checks can be compared."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> "GossRules":
        """Read the mapping of a manifest. Raise ``ValueError`` for tests that are not supported."""
        import json  # 1 % of an idle apply, which needs no JSON

        # 1 % of an idle apply, and few manifests have goss tests
        from puller.checks.gossfile_parser import read

        if not isinstance(value, dict) or not value:
            raise ValueError("is not a mapping of goss tests")
        text = cls(json.dumps(value, ensure_ascii=False))
        if problems := read(text, "goss_rules")[1]:
            raise ValueError(f"has a test that goss checks cannot run: {problems[0]}")
        return text


Kind = Http | Tcp | Unix | Service | Process | File | Disk | Dns


class HealthCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A check that runs after its resource was applied: a command, or another kind."""

    command: str | None = None
    """A command with the exit codes of Nagios."""
    http: Http | None = None
    """A response of a web server."""
    tcp: Tcp | None = None
    """A TCP port that accepts connections."""
    unix: Unix | None = None
    """A stream socket at a path that accepts connections."""
    service: Service | None = None
    """A unit of systemd."""
    process: Process | None = None
    """Processes of this machine."""
    file: File | None = None
    """An existing file, its attributes and content."""
    disk: Disk | None = None
    """Free space of a file system."""
    dns: Dns | None = None
    """A resolvable name, and its addresses."""
    goss: str | None = None
    """A goss file of the bundle. All its tests must pass."""
    goss_rules: GossRules | None = None
    """The tests of a goss file, as a mapping."""
    format: Literal["nagios", "goss"] | None = None
    """The format of the result, as CCM names it: ``nagios`` for ``command``, ``goss`` for ``goss_rules``."""
    name: str = ""
    """The name in messages and reports. The default is the name of the program or the kind."""
    tries: int = 1
    """Number of attempts until the check is OK."""
    try_sleep: Duration = Duration(1.0)
    """Pause between two attempts."""
    timeout: Duration = Duration(60.0)
    """Time limit of an attempt with all its processes."""

    def __post_init__(self) -> None:
        provided = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(provided) != 1:
            has = " and ".join(provided) if provided else "no kind"
            raise ValueError(f"has {has}, expected one of {', '.join(KINDS)}")
        if self.format is not None and provided[0] not in (keys := _OF_FORMAT[self.format]):
            raise ValueError(f"has the format {self.format}, which requires {' or '.join(keys)}")

    @property
    def kind(self) -> str:
        """The name of its kind: ``http``."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def desired(self) -> Any:
        """The value of its kind, or the command."""
        return getattr(self, self.kind)


KINDS = ("command", "http", "tcp", "unix", "service", "process", "file", "disk", "dns", "goss", "goss_rules")
"""The names of all kinds. A check has exactly one."""

_OF_FORMAT = {"nagios": ("command",), "goss": ("goss_rules", "goss")}
_LONGEST_SOCKET = 107  # bytes; unix(7), without the NUL at the end


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``. Raise ``ValueError``."""
    match = re.fullmatch(_ADDRESS, text)
    if match is None or not 0 < int(match[2]) < 65536:
        raise ValueError(f"has address {text!r}, expected HOST:PORT")
    return match[1].strip("[]"), int(match[2])


def parse_amount(value: str | int) -> tuple[float, bool]:
    """Return the amount, and whether it is a percentage. ``kB`` is 1000 bytes, ``KiB`` 1024. Raise ``ValueError``."""
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
        f"has amount {value!r}, expected a number, a size such as '500MB' or a share such as '10%'"
    )


def _require_absolute(path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"has path {path!r}, expected an absolute path")


def _require_text(name: str, text: str | None) -> None:
    # What is empty is contained in everything.
    if text == "":
        raise ValueError(f"has an empty {name}")


class Answer(msgspec.Struct, frozen=True):
    """The result of one attempt of a check, as sentences."""

    wrong: Sequence[str]
    """The problems. Empty: the check passed."""
    found: str = ""
    """The observed state, for reports of a passed check."""


class NotCarriedOut(Exception):
    """A check without a result. The message is the reason."""
