"""Tar and zip archives written byte by byte, valid or not. Shares no code with the product."""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

END = bytes(1024)


@dataclass(frozen=True)
class Member:
    """A member of a tar. The defaults are those of an ordinary file."""

    name: bytes | str
    data: bytes = b""
    kind: bytes = b"0"
    link: bytes = b""
    mode: bytes = b"0000644\0"
    owner: bytes = b"0001750\0"
    group: bytes = b"0001750\0"
    size: bytes | None = None
    time: bytes = b"00000000000\0"
    checksum: bytes | None = None
    magic: bytes = b"ustar\00000"
    user_name: bytes = b"user"
    group_name: bytes = b"group"
    device: bytes = b"0000000\0"
    prefix: bytes = b""
    rest: bytes = b""
    padding: bytes = b"\0"

    def to_bytes(self) -> bytes:
        header = self._header(b" " * 8)
        header = self._header(self.checksum or b"%06o\0 " % sum(header))
        return header + self.data + self.padding * (-len(self.data) % 512)

    def _header(self, checksum: bytes) -> bytes:
        name = self.name.encode() if isinstance(self.name, str) else self.name
        size = b"%011o\0" % len(self.data) if self.size is None else self.size
        fields = [
            *((name, 100), (self.mode, 8), (self.owner, 8), (self.group, 8), (size, 12), (self.time, 12)),
            *((checksum, 8), (self.kind, 1), (self.link, 100), (self.magic, 8)),
            *((self.user_name, 32), (self.group_name, 32), (self.device, 8), (b"0000000\0", 8)),
            *((self.prefix, 155), (self.rest, 12)),
        ]
        return b"".join(value[:width].ljust(width, b"\0") for value, width in fields)


def symlink(name: str, target: str) -> Member:
    return Member(name, kind=b"2", link=target.encode(), mode=b"0000777\0")


def hard_link(name: str, target: str) -> Member:
    return Member(name, kind=b"1", link=target.encode())


def directory(name: str, mode: bytes = b"0000755\0") -> Member:
    return Member(name, kind=b"5", mode=mode)


def pax(*records: bytes, kind: bytes = b"x") -> Member:
    """Return a PAX header with the correct length of each record."""
    return Member("././@PaxHeader", b"".join(_with_length(record) for record in records), kind)


def gnu_name(name: bytes, kind: bytes = b"L") -> Member:
    return Member("././@LongLink", name + b"\0", kind, magic=b"ustar  \0")


def _with_length(record: bytes) -> bytes:
    length = len(record)
    while len(b"%d %s\n" % (length, record)) != length:
        length += 1
    return b"%d %s\n" % (length, record)


def tar(*members: Member, end: bytes = END) -> bytes:
    return b"".join(member.to_bytes() for member in members) + end


def gzip(data: bytes) -> bytes:
    deflate = zlib.compressobj(level=9, wbits=31)
    return deflate.compress(data) + deflate.flush()


@dataclass(frozen=True)
class Packed:
    """A file of a zip. ``in_table`` and ``in_header`` override values in one of its two headers."""

    name: bytes | str
    data: bytes = b""
    mode: int = 0o100644
    method: int = 8
    flags: int = 0
    in_table: dict[str, Any] = field(default_factory=dict)
    in_header: dict[str, Any] = field(default_factory=dict)
    packed: bytes | None = None

    def values(self) -> dict[str, Any]:
        data = self.data if self.method != 8 else _deflated(self.data)
        data = data if self.packed is None else self.packed
        name = self.name.encode() if isinstance(self.name, str) else self.name
        return {
            "name": name, "flags": self.flags, "method": self.method, "crc": zlib.crc32(self.data),
            "packed": len(data), "size": len(self.data), "extra": b"", "data": data, "mode": self.mode, "disk": 0,
        }  # fmt: skip


def _deflated(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-15)
    return deflate.compress(data) + deflate.flush()


def zipped(
    *files: Packed, comment: bytes = b"", prefix: bytes = b"", **end: int | Callable[[int], int]
) -> bytes:
    """Return a zip. ``end`` overrides values of its end record: ``count``, ``size``, ``offset``, ``disk``."""
    body, table = prefix, b""
    for file in files:
        common = file.values()
        offset = len(body)
        head = {**common, **file.in_header}
        numbers = [head[key] for key in ("flags", "method")]
        body += b"PK\3\4" + struct.pack("<H2H2H", 20, *numbers, 0, 0x21)
        body += struct.pack(
            "<3L2H", head["crc"], head["packed"], head["size"], len(head["name"]), len(head["extra"])
        )
        body += head["name"] + head["extra"] + head["data"]
        row = {**common, "offset": offset, **file.in_table}
        table += b"PK\1\2" + struct.pack("<2H2H2H", 0x0314, 20, row["flags"], row["method"], 0, 0x21)
        table += struct.pack("<3L", row["crc"], row["packed"], row["size"])
        table += struct.pack("<3H", len(row["name"]), len(row["extra"]), 0)
        table += struct.pack("<2H2L", row["disk"], 0, row["mode"] << 16, row["offset"])
        table += row["name"] + row["extra"]
    reported = {"disk": 0, "count": len(files), "size": len(table), "offset": len(body)}
    reported |= {key: value(reported[key]) if callable(value) else value for key, value in end.items()}
    tail = struct.pack(
        "<4H2LH",
        reported["disk"],
        reported["disk"],
        reported["count"],
        reported["count"],
        reported["size"],
        reported["offset"],
        len(comment),
    )
    return body + table + b"PK\5\6" + tail + comment


def zipped64(*files: Packed, position: int = 0, **changes: int) -> bytes:
    """Return a zip with a zip64 record. ``changes`` override its values. ``position`` shifts the recorded one."""
    plain = zipped(*files)
    end = plain[-22:]
    count, _, size, offset = struct.unpack("<2H2L", end[8:20])
    reported = {"here": count, "count": count, "size": size, "offset": offset, "disks": 1} | changes
    record = b"PK\6\6" + struct.pack("<Q2H2L", 44, 45, 45, 0, 0)
    record += struct.pack("<4Q", reported["here"], reported["count"], reported["size"], reported["offset"])
    locator = b"PK\6\7" + struct.pack("<LQL", 0, len(plain) - 22 + position, reported["disks"])
    return plain[:-22] + record + locator + end
