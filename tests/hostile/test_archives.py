"""Archives that somebody made to do harm, each with a name.

* They are written by a tar writer of this file, which knows no rules and shares no code with the product.
* Whatever an archive holds: it is refused with the sentence in its row, and nothing around the destination is
  created, changed, or has its mode or times touched.
"""

import hashlib
import json
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles import paths
from bundles.errors import UnpackError
from bundles.limits import Limits
from bundles.trees import remove_tree
from bundles.unpack import inspect, unpack

GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"
END = bytes(1024)
LIMITS = Limits(archive=100_000, size=1_000_000, description=10_000, ratio=20, ratio_from=100_000)


@dataclass(frozen=True)
class Member:
    """A member of a tar; the defaults are those of a file in a bundle."""

    name: bytes | str
    data: bytes = b""
    kind: bytes = b"0"
    link: bytes = b""
    mode: bytes = b"0000644\0"
    owner: bytes = b"0000000\0"
    size: bytes | None = None
    time: bytes = b"00000000000\0"
    checksum: bytes | None = None
    magic: bytes = b"ustar\00000"
    user: bytes = b""
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
            *((name, 100), (self.mode, 8), (self.owner, 8), (b"0000000\0", 8), (size, 12), (self.time, 12)),
            *((checksum, 8), (self.kind, 1), (self.link, 100), (self.magic, 8), (self.user, 32), (b"", 32)),
            *((self.device, 8), (b"0000000\0", 8), (self.prefix, 155), (self.rest, 12)),
        ]
        return b"".join(value[:width].ljust(width, b"\0") for value, width in fields)


def pax(*records: bytes, kind: bytes = b"x") -> Member:
    """A PAX header; each record gets the length it should have."""
    return Member("././@PaxHeader", b"".join(with_length(record) for record in records), kind)


def with_length(record: bytes) -> bytes:
    length = len(record)
    while len(b"%d %s\n" % (length, record)) != length:
        length += 1
    return b"%d %s\n" % (length, record)


MANIFEST = Member("manifest.yaml", b"resources: []\n")
A = Member("web.conf", b"a")
B = Member("x/b", b"b")
LONG = Member("n" * 150, b"long")  # a name that needs a PAX record
LONG_PAX = pax(b"path=" + b"n" * 150)


def describe(*members: Member, **changes: object) -> Member:
    """The bundle.json that lists ``members``."""
    files = {
        str(member.name): {
            "mode": "0755" if member.mode == b"0000755\0" else "0644",
            "sha256": hashlib.sha256(member.data).hexdigest(),
            "size": len(member.data),
        }
        for member in members
    }
    document = {"files": files, "format": 1, "name": "web", "version": "1.4.0", **changes}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return Member("bundle.json", text.encode())


def described(old: bytes, new: bytes) -> Member:
    """The bundle.json of a good bundle with other words in it."""
    good = describe(MANIFEST, A)
    assert old in good.data
    return replace(good, data=good.data.replace(old, new))


def compress(tar: bytes) -> bytes:
    deflate = zlib.compressobj(level=9, wbits=-15)
    trailer = zlib.crc32(tar).to_bytes(4, "little") + (len(tar) % 2**32).to_bytes(4, "little")
    return GZIP_HEADER + deflate.compress(tar) + deflate.flush() + trailer


def archive(*members: Member, end: bytes = END) -> bytes:
    return compress(b"".join(member.to_bytes() for member in members) + end)


def unlisted(*members: Member, end: bytes = END) -> bytes:
    """A good bundle with more members, of which bundle.json says nothing."""
    return archive(describe(MANIFEST), MANIFEST, *members, end=end)


def listed(*members: Member) -> bytes:
    """A bundle whose bundle.json lists these members too, whatever they are."""
    return archive(describe(MANIFEST, *members), *sorted([MANIFEST, *members], key=lambda one: str(one.name)))


def instead(*members: Member) -> bytes:
    """A bundle that lists web.conf with the contents `a`, and has this in its place."""
    return archive(describe(MANIFEST, A), MANIFEST, *members)


def changed(**fields: Any) -> bytes:
    """A bundle in which the header of web.conf is another."""
    return instead(replace(A, **fields))


NAMES = {
    "of the parent": ("../canary", "'../canary': the name holds the component '..'"),
    "of a parent further up": ("../../canary", "'../../canary': the name holds the component '..'"),
    "through a directory": ("a/../b", "'a/../b': the name holds the component '..'"),
    "that ends in dots": ("a/..", "'a/..': the name holds the component '..'"),
    "that is two dots": ("..", "'..': the name holds the component '..'"),
    "that is absolute": ("/etc/x", "'/etc/x': the name is absolute"),
    "that is the root": ("/", "'/': the name is absolute"),
    "with a dot before": ("./x", "'./x': the name holds the component '.'"),
    "that is a dot": (".", "'.': the name holds the component '.'"),
    "with an empty component": ("a//b", "'a//b': the name holds the component ''"),
    "that ends in a slash": ("a/", "'a/': the name holds the component ''"),
    "with a backslash": ("a\\b", r"'a\\b': the name holds a backslash"),
    "with a drive": ("C:\\x", r"'C:\\x': the name holds a backslash"),
    "with a drive and a slash": ("C:/x", "'C:/x': the name starts with a drive letter"),
    "that is empty": ("", "'': the name is empty"),
    "with a line end": ("a\nb", r"'a\nb': the name holds the control character U+000A"),
    "with an escape": ("a\x1b[2J", r"'a\x1b[2J': the name holds the control character U+001B"),
    "over-deep": ("/".join("d" * 33), "the name is 33 levels deep, at most 32 are allowed"),
}
KINDS = {
    "a symbolic link to a parent": (b"2", b"../canary", "is a symbolic link to '../canary'"),
    "an absolute symbolic link": (b"2", b"/etc/passwd", "is a symbolic link to '/etc/passwd'"),
    "a symbolic link to itself": (b"2", b"web.conf", "is a symbolic link to 'web.conf'"),
    "a symbolic link to nothing": (b"2", b"nowhere", "is a symbolic link to 'nowhere'"),
    "a symbolic link without a target": (b"2", b"", "is a symbolic link to ''"),
    "a hard link to a member": (b"1", b"manifest.yaml", "is a hard link to 'manifest.yaml'"),
    "a hard link to a parent": (b"1", b"../canary", "is a hard link to '../canary'"),
    "an absolute hard link": (b"1", b"/etc/shadow", "is a hard link to '/etc/shadow'"),
    "a character device": (b"3", b"", "is a character device"),
    "a block device": (b"4", b"", "is a block device"),
    "a directory": (b"5", b"", "is a directory; in a bundle they follow from the files in them"),
    "a FIFO": (b"6", b"", "is a FIFO"),
    "a contiguous file": (b"7", b"", "is a contiguous file"),
    "a GNU sparse file": (b"S", b"", "is a GNU sparse file"),
    "a GNU long name": (b"L", b"", "is a GNU long name"),
    "a GNU long link target": (b"K", b"", "is a GNU long link target"),
    "a GNU directory listing": (b"D", b"", "is a GNU directory listing"),
    "a GNU volume label": (b"V", b"", "is a GNU volume label"),
    "the rest of a file on another volume": (b"M", b"", "is the rest of a file from another GNU volume"),
    "a global PAX header": (b"g", b"", "is a global PAX header"),
    "a Solaris PAX header": (b"X", b"", "is of the unknown type 'X'"),
    "an unknown type": (b"Z", b"", "is of the unknown type 'Z'"),
    "a type beyond ASCII": (b"\xff", b"", "is of the unknown type 'ÿ'"),
}

# Each row is the attack, the archive, and a part of the message.
# fmt: off
ROWS = [
    # Names, at both doors: a header, and bundle.json.
    *((f"a name {what}, not listed", unlisted(Member(name)), says) for what, (name, says) in NAMES.items()),
    *((f"a name {what}, listed", listed(Member(name)), says) for what, (name, says) in NAMES.items()),
    ("a name with a NUL, not listed", unlisted(Member("a\0b")), "'a': is not listed in bundle.json"),
    ("a name with a NUL, listed", listed(Member("a\0b")), "the name holds the control character U+0000"),
    ("a name with more after a NUL", changed(name="web.conf\0/../../canary"), r"name is 'web.conf\x00/../../canary'"),
    ("a name that is not UTF-8", unlisted(Member(b"a\xff")), r"'a\\xff': the name is not UTF-8"),
    ("half a surrogate", archive(described(b"web.conf", rb"a\ud800")), r"'a\ud800': the name is not UTF-8"),
    ("an over-long component", listed(Member("n" * 256)), "has 256 bytes, at most 255 are allowed"),
    ("an over-long name", listed(Member("/".join(["n" * 200] * 6))), "has 1205 bytes, at most 1024 are allowed"),
    ("a prefix that leaves the root", unlisted(Member("canary", prefix=b"..")), "'../canary': the name holds the"),
    ("an absolute prefix", unlisted(Member("passwd", prefix=b"/etc")), "'/etc/passwd': the name is absolute"),
    ("a prefix where none is needed", archive(describe(MANIFEST, B), MANIFEST, Member("b", b"b", prefix=b"x")),
     "'x/b': name is 'b' in the archive, wanted 'x/b'"),

    # Links and special members, beside what is listed and in its place.
    *((f"{what}, not listed", unlisted(Member("web.conf", kind=kind, link=link)), f"'web.conf': {says}")
      for what, (kind, link, says) in KINDS.items()),
    *((f"{what} instead of a file", changed(kind=kind, link=link), f"'web.conf': {says}")
      for what, (kind, link, says) in KINDS.items()),
    ("a directory that is a link, then a file through it",
     archive(describe(MANIFEST, B), MANIFEST, Member("x", kind=b"2", link=b"../.."), B),
     "'x': is a symbolic link to '../..'"),
    ("a directory that is later replaced by a link",
     archive(describe(MANIFEST, B, Member("x/c")), MANIFEST, B, Member("x", kind=b"2", link=b".."), Member("x/c")),
     "'x': is a symbolic link to '..'"),
    ("a chain of links", unlisted(Member("l1", kind=b"2", link=b"l2"), Member("l2", kind=b"2", link=b"..")),
     "'l1': is a symbolic link to 'l2'"),
    ("a hard link to a symbolic link",
     unlisted(Member("s", kind=b"2", link=b"/etc/passwd"), Member("h", kind=b"1", link=b"s")),
     "'s': is a symbolic link to '/etc/passwd'"),
    ("a link with contents", unlisted(Member("s", b"/etc/passwd", b"2")), "'s': is a symbolic link to ''"),
    ("a file with a link target", changed(link=b"/etc/x"), "'web.conf': link target is '/etc/x' in the archive"),
    ("bundle.json is a link", archive(Member("bundle.json", kind=b"2", link=b"/etc/passwd"), MANIFEST),
     "'bundle.json': is a symbolic link to '/etc/passwd'"),
    ("a PAX link target", unlisted(pax(b"linkpath=../canary"), Member("s", kind=b"2")), "is a PAX header"),

    # Duplicates.
    ("the same name twice", unlisted(MANIFEST), "'manifest.yaml': is there a second time"),
    ("a listed name twice", instead(A, A), "'web.conf': is there a second time"),
    ("bundle.json twice", unlisted(describe(MANIFEST, A)), "'bundle.json': is not listed in bundle.json"),
    ("bundle.json twice at the start", archive(describe(MANIFEST), describe(MANIFEST), MANIFEST),
     "'bundle.json': is not listed in bundle.json"),
    ("a file, then a directory of its name", listed(A, Member("web.conf/x")), "cannot stand side by side"),
    ("a directory, then a file of its name", listed(B, Member("x")), "cannot stand side by side"),
    ("a name in capitals, listed", listed(A, Member("WEB.conf")), "cannot stand side by side"),
    ("a name in capitals, not listed", unlisted(Member("Manifest.YAML")),
     "'Manifest.YAML': differs from 'manifest.yaml' only by case or Unicode normalisation"),
    ("a directory in capitals", listed(B, Member("X/c")), "cannot stand side by side"),
    ("a sharp s", listed(Member("straße"), Member("strasse")), "cannot stand side by side"),
    ("an accent in two spellings", listed(Member("caf\u00e9"), Member("cafe\u0301")), "cannot stand side by side"),
    ("a key twice in bundle.json", archive(described(b'"format":1', b'"format":1,"format":1')),
     "the key 'format' stands there twice"),

    # Parser tricks.
    ("a PAX size that differs from the header", instead(pax(b"size=99"), A), "is a PAX header; wanted a regular file"),
    ("a PAX path where the name fits", instead(pax(b"path=../canary"), A), "is a PAX header; wanted a regular file"),
    ("a PAX path that differs from bundle.json",
     archive(describe(MANIFEST, LONG), MANIFEST, pax(b"path=" + b"m" * 150), LONG),
     "the PAX record before it is not its path"),
    ("two records in a PAX header",
     archive(describe(MANIFEST, LONG), MANIFEST, pax(b"path=" + b"n" * 150, b"size=0"), LONG),
     "size is 169 in the archive, wanted 160"),
    ("two PAX headers", archive(describe(MANIFEST, LONG), MANIFEST, LONG_PAX, LONG_PAX, LONG), "is a PAX header"),
    ("a PAX header and nothing after it", archive(describe(MANIFEST, LONG), MANIFEST, LONG_PAX), "is missing"),
    ("a global PAX header first", archive(pax(b"path=x", kind=b"g"), describe(MANIFEST), MANIFEST),
     "is a global PAX header; wanted a regular file"),
    ("a zero-length PAX record", unlisted(Member("././@PaxHeader", b"0 path=x\n", b"x"), A), "is a PAX header"),
    ("a PAX record that says it is longer", unlisted(Member("././@PaxHeader", b"9999 path=x\n", b"x"), A),
     "is a PAX header"),
    ("PAX sparse", unlisted(pax(b"GNU.sparse.major=1", b"GNU.sparse.name=../canary"), A), "is a PAX header"),
    ("a PAX extended attribute", unlisted(pax(b"SCHILY.xattr.security.capability=x"), A), "is a PAX header"),
    ("a GNU long name with a file", unlisted(Member("././@LongLink", b"../canary\0", b"L"), A), "is a GNU long name"),
    ("a GNU header", changed(magic=b"ustar  \0"), "'web.conf': magic is 'ustar  ' in the archive, wanted 'ustar"),
    ("a header without magic", changed(magic=b""), "'web.conf': its header has the magic "),
    ("a negative size", changed(size=b"\xff" * 12), r"'web.conf': size is '\\xff\\xff"),
    ("a negative size of bundle.json", archive(Member("bundle.json", size=b"\xff" * 12)), "'bundle.json': size is"),
    ("a size with a minus", changed(size=b"-0000000001"), "'web.conf': size is '-0000000001' in the archive, wanted 1"),
    ("a size to the base 256", changed(size=b"\x80" + bytes(10) + b"\x01"), r"'web.conf': size is '\\x80\x00"),
    ("a size in few digits", changed(size=b"1"), r"'web.conf': size is 1, spelled '1\x00"),
    ("a size that differs from bundle.json", changed(data=b"aa"), "'web.conf': size is 2 in the archive, wanted 1"),
    ("contents that differ from bundle.json", changed(data=b"b"),
     f"'web.conf': sha256 is {hashlib.sha256(b'b').hexdigest()} in the archive, "
     f"{hashlib.sha256(b'a').hexdigest()} in bundle.json"),
    ("something in the padding", changed(padding=b"#"), "'web.conf': something is hidden in the padding after"),
    ("something after the last field", changed(rest=b"#"), "'web.conf': padding is '#' in the archive, wanted ''"),
    ("a wrong checksum", changed(checksum=b"000000\0 "), r"the checksum of its header is '000000\x00 ', computed 0"),
    ("a checksum spelled otherwise", changed(checksum=b"%07o\0" % int(A.to_bytes()[148:154], 8)),
     "'web.conf': checksum is '00"),
    ("bytes after the end", unlisted(end=END + b"x"), "has bytes after the end of the tar archive"),
    ("empty blocks after the end", unlisted(end=END + bytes(512)), "has bytes after the end of the tar archive"),
    ("a second archive after the end", unlisted(end=END + A.to_bytes() + END), "has bytes after the end of the tar"),
    ("bytes after the gzip member", unlisted() + b"x", "has bytes after the end of the gzip member"),
    ("one empty block at the end", unlisted(end=bytes(512)), "the end: the tar archive is cut off here"),
    ("no empty blocks at the end", unlisted(end=b""), "the end: the tar archive is cut off here"),
    ("half a block at the end", unlisted(end=bytes(700)), "the end: the tar archive is cut off here"),
    ("a member after one empty block", unlisted(end=bytes(512) + A.to_bytes() + END), "'web.conf': is not listed"),
    ("no header where one should be", unlisted(Member("", magic=b"#" * 8)), "the end: is followed by more bytes"),
    ("an empty tar", compress(b""), "bundle.json: the tar archive is cut off here"),
    ("a tar of empty blocks", compress(END), "'bundle.json': is missing, the archive ends before it"),
    ("a tar that is not compressed", describe(MANIFEST).to_bytes() + MANIFEST.to_bytes() + END, "is not a bundle: it"),
    ("an empty file", b"", "is not a bundle: it starts with b''"),
    ("a gzip header with a file name", b"\x1f\x8b\x08\x08\0\0\0\0\x02\xff../canary\0" + unlisted()[10:],
     "is not a bundle: it starts with"),
    ("a wrong CRC-32", unlisted()[:-8] + bytes(4) + unlisted()[-4:], "the compressed data is damaged here: "),
    ("a wrong length in the trailer", unlisted()[:-4] + bytes(4), "the compressed data is damaged here: "),
    ("garbage where deflate should be", unlisted()[:30] + bytes(100) + unlisted()[30:], "is damaged here: "),

    # Metadata. Extended attributes can only come in PAX headers.
    ("setuid", changed(mode=b"0004755\0"), "'web.conf': mode is 4755, setuid, in the archive, wanted 0644"),
    ("setgid", changed(mode=b"0002755\0"), "'web.conf': mode is 2755, setgid, in the archive, wanted 0644"),
    ("sticky", changed(mode=b"0001644\0"), "'web.conf': mode is 1644, sticky, in the archive, wanted 0644"),
    ("world-writable", changed(mode=b"0000666\0"), "mode is 0666, group-writable, world-writable, in the archive"),
    ("unreadable", changed(mode=b"0000000\0"), "'web.conf': mode is 0000 in the archive, wanted 0644"),
    ("executable against bundle.json", changed(mode=b"0000755\0"), "'web.conf': mode is 0755 in the archive, wanted"),
    ("a type in the mode", changed(mode=b"0100644\0"), "'web.conf': mode is 100644 in the archive, wanted 0644"),
    ("a foreign owner", changed(owner=b"0001750\0"), "'web.conf': owner is 1000 in the archive, wanted 0"),
    ("an owner by name", changed(user=b"root"), "'web.conf': user name is 'root' in the archive, wanted ''"),
    ("a time in the future", changed(time=b"77777777777\0"), "time is 8589934591 in the archive, wanted 0"),
    ("device numbers", changed(device=b"0000001\0"), "'web.conf': device major is 1 in the archive, wanted 0"),

    # Entry point, and what is missing, extra, or not what was asked for.
    ("no manifest", archive(describe(A), A), "files: there is no 'manifest.yaml' at the root"),
    ("a manifest only deeper down", archive(describe(Member("web/manifest.yaml")), Member("web/manifest.yaml")),
     "only 'web/manifest.yaml', which is too deep"),
    ("a manifest that is listed and missing", archive(describe(MANIFEST)), "'manifest.yaml': is missing, the archive"),
    ("a file that is listed and missing", instead(), "'web.conf': is missing, the archive ends before it"),
    ("a file that is not listed", unlisted(A), "'web.conf': is not listed in bundle.json"),
    ("a file too early", archive(describe(MANIFEST, A, B), MANIFEST, B, A), "'x/b': stands where 'web.conf' should"),
    ("no bundle.json", archive(MANIFEST), "'manifest.yaml': stands where 'bundle.json' should"),
    ("bundle.json second", archive(MANIFEST, describe(MANIFEST)), "'manifest.yaml': stands where 'bundle.json' should"),
    ("a later format", archive(describe(MANIFEST, format=2), MANIFEST), "format: is 2, this version of Puller"),

    # Bombs.
    ("one huge file", listed(Member("zeros", bytes(2_000_000))), "files: 2000014 bytes, at most 1000000 are allowed"),
    ("a high ratio", listed(Member("zeros", bytes(900_000))), "at most 20 times as many are allowed"),
    ("many members", listed(*(Member(f"f{number:03}") for number in range(60))), "files: more than 50 files and"),
    ("many members, not listed", unlisted(*(Member(f"f{number}") for number in range(1000))), "'f0': is not listed"),
    ("many directories", listed(*(Member(f"{number}/{'d/' * 20}x") for number in range(3))), "files: more than 50"),
    ("deep nesting", listed(Member("d/" * 100 + "x")), "the name is 101 levels deep, at most 32 are allowed"),
    ("long names", listed(*(Member(f"{number}" + "n" * 250) for number in range(40))), "at most 10000 are allowed"),
    ("a huge bundle.json", archive(Member("bundle.json", b" " * 20_000)), "bundle.json: 20000 bytes, at most 10000"),
    ("a bundle.json that says it is huge", archive(Member("bundle.json", b"{}", size=b"77777777777\0")),
     "bundle.json: 8589934591 bytes, at most 10000 are allowed"),
    ("a file that says it is huge", changed(size=b"77777777777\0"), "size is 8589934591 in the archive, wanted 1"),
    ("a file that bundle.json calls huge", archive(described(b'"size":14', b'"size":8589934591'), MANIFEST),
     "files: 8589934592 bytes, at most 1000000 are allowed"),
    ("a large download", listed(Member("noise", os.urandom(150_000))), "bytes, at most 100000 are allowed"),
    ("zeros after the end", unlisted(end=END + bytes(5_000_000)), "has bytes after the end of the tar archive"),
    ("a second gzip member", unlisted() + unlisted(), "has bytes after the end of the gzip member"),
    ("a bundle in the place of bundle.json", archive(Member("bundle.json", unlisted())), "bundle.json: "),
]
GOOD = {
    "the smallest": unlisted(),
    "two files": listed(A, B),
    "names with dots": listed(Member("..a"), Member("a..b"), Member("...")),
    "an executable": listed(Member("run", b"#!/bin/sh\n", mode=b"0000755\0")),
    "a PAX path": archive(describe(LONG, MANIFEST), MANIFEST, LONG_PAX, LONG),
    "a ustar prefix": archive(describe(MANIFEST, Member(f"{'p' * 150}/b")), MANIFEST, Member("b", prefix=b"p" * 150)),
}
# fmt: on


@pytest.fixture(autouse=True)
def few_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that "many" takes no time."""
    monkeypatch.setattr(paths, "MOST_ENTRIES", 50)


@pytest.fixture
def surroundings(tmp_path: Path) -> Path:
    """A directory with what an attack might aim at; bundles go into its `store`."""
    outer = tmp_path / "outer"
    (outer / "store").mkdir(parents=True)
    (outer / "canary").write_text("sings")
    (outer / "store" / "canary").write_text("sings")
    (outer / "private").mkdir(mode=0o700)
    (outer / "private" / "key").write_text("secret")
    (outer / "link").symlink_to("private")
    return outer


def look(directory: Path) -> dict[str, tuple[object, ...]]:
    """All that can be seen of a tree; of `store`, into which bundles go, not the times."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (directory, *sorted(directory.rglob("*"))):
        status = path.lstat()
        times = (status.st_mtime_ns, status.st_ctime_ns) if path.name != "store" else ()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_uid, status.st_ino, *times, content)
    return found


@pytest.mark.parametrize(("data", "says"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_it_is_refused_and_nothing_is_touched(surroundings: Path, data: bytes, says: str) -> None:
    archive = surroundings.parent / "web.tar.gz"
    archive.write_bytes(data)
    before = look(surroundings)
    with pytest.raises(UnpackError) as unpacking:
        unpack(archive, surroundings / "store/out", limits=LIMITS)
    with pytest.raises(UnpackError) as inspecting:
        inspect(archive, limits=LIMITS)
    assert says in str(unpacking.value)
    assert str(unpacking.value).startswith(f"{archive}: ")
    assert len(str(unpacking.value)) < 1000
    assert str(inspecting.value) == str(unpacking.value)
    assert look(surroundings) == before


def test_no_two_attacks_have_one_name() -> None:
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("data", GOOD.values(), ids=GOOD)
def test_the_same_writer_can_write_good_bundles(surroundings: Path, data: bytes) -> None:
    """So the attacks are refused for what they are, and not for how this file writes them."""
    archive = surroundings.parent / "web.tar.gz"
    archive.write_bytes(data)
    before = look(surroundings)
    unpack(archive, surroundings / "store/out", name="web", version="1.4.0", limits=LIMITS)
    remove_tree(surroundings / "store/out")
    assert look(surroundings) == before


# fmt: off
nasty_names = st.sampled_from([
    "manifest.yaml", "bundle.json", "web.conf", "x", "x/b", "../canary", "../../canary", "/tmp/canary", "canary",
    "./x", "", ".", "link", "store/out/x", "x\0y", "Manifest.yaml",
])
nasty_members = st.builds(
    Member,
    name=nasty_names,
    data=st.sampled_from([b"", b"a", b"resources: []\n", b"path=../canary\n", bytes(600)]),
    kind=st.sampled_from([b"0", b"0", b"0", b"1", b"2", b"5", b"g", b"x", b"L", b"\0"]),
    link=st.sampled_from([b"", b"", b"..", b"../../canary", b"/", b"x", b"manifest.yaml"]),
    mode=st.sampled_from([b"0000644\0", b"0000755\0", b"0006777\0"]),
    size=st.sampled_from([None, None, None, b"00000000000\0", b"00000001000\0", b"77777777777\0", b"\xff" * 12]),
    prefix=st.sampled_from([b"", b"", b"", b"..", b"x", b"/"]),
)
# fmt: on


@given(
    shown=st.lists(nasty_members, max_size=3),
    hidden=st.lists(nasty_members, max_size=3),
    end=st.sampled_from([END, b"", bytes(512), END + b"x"]),
    noise=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=2),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example looks before and after
def test_whatever_an_archive_holds_it_stays_inside(
    surroundings: Path,
    shown: list[Member],
    hidden: list[Member],
    end: bytes,
    noise: list[tuple[int, int]],
) -> None:
    members = sorted(
        {str(member.name): member for member in (MANIFEST, *shown)}.values(), key=lambda one: str(one.name)
    )
    tar = bytearray(b"".join(member.to_bytes() for member in (describe(*members), *members, *hidden)) + end)
    for position, value in noise:
        tar[position % len(tar)] = value
    archive, out = surroundings.parent / "web.tar.gz", surroundings / "store/out"
    archive.write_bytes(compress(bytes(tar)))

    before = look(surroundings)
    try:
        description = unpack(archive, out)
    except UnpackError:
        assert look(surroundings) == before
        return
    assert {path.text for path in description.files} == {member.name for member in members}
    remove_tree(out)
    assert look(surroundings) == before
