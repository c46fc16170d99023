"""Malicious archives from other sources, each with a name.

* The writer has no checks and shares no code with the product.
* Files around the destination keep their contents, modes and times. Rejected archives fail with the message in their
  row, and leave the destination unchanged.
"""

from __future__ import annotations

import bz2
import gc
import lzma
import os
import shutil
import stat
import subprocess
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles.errors import FormatError
from puller.errors import ResourceError
from puller.resources.archives.extract import Form, listed
from puller.resources.archives.members import Kind, Limits
from puller.system import commands
from tests.hostile import tables
from tests.simulators import archivewriter as writer
from tests.simulators.extraction import extract

Member, Packed = writer.Member, writer.Packed
tar, gzip, zipped, zipped64, pax = writer.tar, writer.gzip, writer.zipped, writer.zipped64, writer.pax
symlink, hard_link, directory = writer.symlink, writer.hard_link, writer.directory


LIMITS = Limits(archive=100_000, size=1_000_000, entries=50, directory=10_000, ratio=20, ratio_from=100_000)
END = bytes(1024)
needs_zstd = pytest.mark.skipif(not shutil.which("zstd"), reason="the zstd program is not installed")
A = Member("a", b"alpha")
Z = Packed("a", b"alpha")

NAMES = tables.bad_names("archive")
# fmt: off
LINKS = {
    "to a parent": ("links.parent", "x", "../canary", "'x': is a symbolic link to '../canary', which is outside"),
    "to a parent, from a directory":
        ("links.parent", "d/x", "../../canary", "'d/x': is a symbolic link to '../../canary'"),
    "to a parent behind dots": ("links.parent", "x", "./.././canary", "which is outside"),
    "that is absolute":
        ("links.absolute", "x", "/etc/passwd", "is a symbolic link to '/etc/passwd', which is absolute"),
    "to nothing": ("links.missing", "x", "", "is a symbolic link to '', expected a path"),
    "up behind a name":
        ("links.chain", "d/x", "e/../../canary", "which may be outside: '..' is only allowed at the start"),
    "up through another link":
        ("links.chain", "x", "d/../..", "which may be outside: '..' is only allowed at the start"),
    "with a line end": ("names.control", "x", "a\nb", r"is a symbolic link to 'a\nb', expected a path"),
}
KINDS = {
    b"3": ("special.character-device", "a character device"),
    b"4": ("special.block-device", "a block device"),
    b"6": ("special.fifo", "a FIFO"),
    b"7": ("special.contiguous", "a contiguous file"),
    b"S": ("special.gnu-sparse", "a GNU sparse file"),
    b"D": ("special.gnu", "a GNU directory listing"),
    b"V": ("special.gnu", "a GNU volume label"),
    b"M": ("special.gnu", "the rest of a file from another GNU volume"),
    b"X": ("special.unknown", "a Solaris PAX header"),
    b"Z": ("special.unknown", "of the unknown type 'Z'"),
}
# fmt: on


def zstd(data: bytes) -> bytes:
    """Compress with the program, which the product also requires."""
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


Row = tuple[str, bytes, str]
"""The attack, the archive, and a part of the message."""


def names_in_every_header() -> Iterator[str | Row]:
    for what, row in NAMES.items():
        name = row["name"]
        yield row["case"]
        yield f"a name {what}", tar(A, Member(name, b"x")), row["says"]
        yield f"a directory with a name {what}", tar(A, directory(name)), row["says"]
        yield f"a PAX name {what}", tar(A, pax(b"path=" + name.encode()), Member("ok", b"x")), row["says"]
        yield f"a GNU name {what}", tar(A, writer.gnu_name(name.encode()), Member("ok", b"x")), row["says"]


def links_and_kinds() -> Iterator[str | Row]:
    for what, (case, name, target, says) in LINKS.items():
        yield case
        yield f"a link {what}", tar(A, symlink(name, target)), says
    for kind, (case, what) in KINDS.items():
        yield case
        yield f"a member that is {what}", tar(A, Member("x", kind=kind)), f"'x': is {what}, expected a file"


# fmt: off
# A line of text is the case of attacks.yaml for the rows after it.
TAR_ROWS: list[str | Row] = [
    *names_in_every_header(),
    *links_and_kinds(),
    "names.control",
    ("a PAX name with a NUL", tar(pax(b"path=a\0/../../canary"), A), "contains the control character U+0000"),
    ("a GNU name with a NUL", tar(writer.gnu_name(b"a\0/../canary"), A), "contains the control character U+0000"),
    "names.encoding",
    ("a name that is not UTF-8", tar(A, Member(b"a\xff")), r"'a\\xff': the name is not UTF-8"),
    ("a link that is not UTF-8", tar(Member("x", kind=b"2", link=b"\xff")), "which is not UTF-8"),
    "names.long",
    ("an over-long name", tar(pax(b"path=" + b"n" * 2000), A), "the name has 2000 bytes, at most 1024 are allowed"),
    ("an over-long component", tar(pax(b"path=" + b"n" * 300), A), "a component of the name has 300 bytes"),
    "names.parent",
    ("a name in a prefix", tar(A, Member("canary", prefix=b"..")), "'../canary': the name contains the component '..'"),
    "names.empty-component",
    ("a name that ends in a slash", tar(Member("a/", b"x")), "'a/': the name contains the component ''"),
    "links.parent",
    ("a PAX link to a parent", tar(pax(b"linkpath=../canary"), symlink("x", "a")), "to '../canary', which is outside"),
    ("a GNU link to a parent", tar(writer.gnu_name(b"../canary", b"K"), symlink("x", "a")), "which is outside"),
    "links.chain",
    ("a file through a link", tar(symlink("d", "e"), directory("e"), Member("d/x", b"x")), "'d': stands twice"),
    ("a link through a link", tar(symlink("d", "e"), symlink("d/x", "y")), "'d/x': requires 'd' to be a directory"),
    ("a hard link through a link", tar(symlink("l", "d"), Member("d/a"), hard_link("x", "l/a")),
     "to 'l/a', which is not a previous file"),
    "links.replaced",
    ("a file through a link that came later", tar(Member("d/x", b"x"), symlink("d", "e")), "'d': stands twice"),
    ("a link where a file is", tar(A, symlink("a", "b")), "'a': stands twice"),
    ("a file where a link is", tar(symlink("a", "b"), A), "'a': stands twice"),
    "links.hard-to-symbolic",
    ("a hard link to a link", tar(symlink("l", "a"), A, hard_link("x", "l")), "to 'l', which is not a previous file"),
    "links.hard",
    ("a hard link to a parent", tar(hard_link("x", "../canary")), "'../canary': the name contains the component '..'"),
    ("an absolute hard link", tar(hard_link("x", "/etc/shadow")), "'/etc/shadow': the name is absolute"),
    ("a hard link to a directory", tar(directory("d"), hard_link("x", "d")), "to 'd', which is not a previous file"),
    ("a hard link to the root", tar(hard_link("x", ".")), "'.': the name contains the component '.'"),
    ("a hard link to what was there before", tar(hard_link("x", "kept")), "to 'kept', which is not a previous file"),
    "links.itself",
    ("a hard link to itself", tar(hard_link("x", "x")), "to 'x', which is not a previous file of the archive"),
    "links.missing",
    ("a hard link to what comes later", tar(hard_link("x", "a"), A),
     "to 'a', which is not a previous file of the archive"),
    "parser.hidden",
    ("a hard link with contents", tar(A, Member("x", b"y", b"1", b"a")),
     "'x': is a hard link with 1 bytes of contents"),
    ("a link with contents", tar(Member("x", b"y", b"2", b"a")), "'x': is a symbolic link with 1 bytes of contents"),
    ("a directory with contents", tar(Member("x", b"y", b"5")), "'x': is a directory with 1 bytes of contents"),
    ("something else in the second end block", tar(A, end=bytes(512) + b"#" * 512), "is one empty block, expected two"),
    "duplicates.name",
    ("a file twice", tar(A, A), "'a': stands twice"),
    "duplicates.file-directory",
    ("a file, then a directory", tar(A, directory("a")), "'a': requires 'a' to be a directory"),
    ("a directory, then a file", tar(directory("a"), A), "'a': stands twice"),
    ("a file below a file", tar(A, Member("a/b")), "'a/b': requires 'a' to be a directory"),
    "parser.pax-size",
    ("a PAX size that differs", tar(pax(b"size=99"), A), "'a': size is 5, its PAX header has '99'"),
    ("a PAX size that is no number", tar(pax(b"size=-1"), A), "'a': size is 5, its PAX header has '-1'"),
    ("a PAX size with a fraction", tar(pax(b"size=5.0"), A), "its PAX header has '5.0'"),
    "parser.pax-path",
    ("a PAX name twice", tar(pax(b"path=x", b"path=y"), A), "'y': is the second path for one member"),
    ("two PAX headers", tar(pax(b"path=x"), pax(b"path=y"), A), "'y': is the second path for one member"),
    ("a PAX and a GNU name", tar(pax(b"path=x"), writer.gnu_name(b"y"), A), "'y': is the second path for one member"),
    ("a PAX header and nothing after it", tar(A, pax(b"path=x")), "ends after the header of a member"),
    "parser.pax-global",
    ("a PAX name for all", tar(pax(b"path=x", kind=b"g"), A), "'path': must not be in a global PAX header"),
    ("a PAX size for all", tar(pax(b"size=5", kind=b"g"), A), "'size': must not be in a global PAX header"),
    "parser.gnu-name",
    ("a GNU name and nothing after it", tar(A, writer.gnu_name(b"x")), "ends after the header of a member"),
    "parser.zero-record",
    ("a zero-length PAX record", tar(Member("p", b"0 path=x\n", b"x"), A), "is not a record of a PAX header"),
    ("a PAX record that says it is longer", tar(Member("p", b"9999 path=x\n", b"x"), A),
     "is not a record of a PAX header"),
    ("a PAX record that says it is shorter", tar(Member("p", b"4 path=x\n", b"x"), A),
     "is not a record of a PAX header"),
    ("a PAX record without an end", tar(Member("p", b"10 path=xy", b"x"), A), "is not a record of a PAX header"),
    "special.pax-sparse",
    ("PAX sparse", tar(pax(b"GNU.sparse.major=1"), A), "'GNU.sparse.major': makes a sparse file"),
    "parser.negative-size",
    ("a negative size", tar(Member("x", size=b"\xff" * 12)), r"'x': size is '\\xff\\xff"),
    ("a size with a minus", tar(Member("x", size=b"-0000000001\0")), "'x': size is '-0000000001"),
    "parser.numbers",
    ("a wrong checksum", tar(Member("x", checksum=b"000007\0 ")), "'x': the checksum of its header is 7, computed"),
    ("a header without magic", tar(Member("x", magic=b"#")), "is not a tar archive: a header is missing"),
    ("no tar at all", b"#" * 2048, "is not a tar archive"),
    "parser.end-blocks",
    ("nothing", b"", "a header: the archive is cut off here"),
    ("missing end blocks", tar(A, end=b""), "a header: the archive is cut off here"),
    ("one end block", tar(A, end=bytes(512)), "the end: the archive is cut off here"),
    ("a member that is cut off", tar(A)[:514], "'a': the archive is cut off here"),
    "parser.trailing",
    ("bytes after the end", tar(A, end=END + b"x"), "goes on after its end"),
    "parser.second-archive",
    ("a second archive after the end", tar(A, end=END) + tar(Member("b")), "goes on after its end"),
    "bombs.huge-file",
    ("a size that is huge", tar(Member("x", size=b"\x80" + b"\x7f" * 11)), "is cut off here"),
    "bombs.long-names",
    ("many long names", tar(*(part for n in range(40) for part in (pax(b"path=%d/" % n + b"n/" * 400), A))),
     "levels deep, at most 32 are allowed"),
    ("a huge PAX header", tar(Member("p", b"", b"x", size=b"77777777777\0")), "'p': is 8589934591 bytes of names"),
    "bombs.members",
    ("many members", tar(*(Member(f"f{n}") for n in range(60))), "holds more than 50 files, directories and links"),
    ("many links", tar(*(symlink(f"l{n}", "a") for n in range(60))), "holds more than 50 files, directories and links"),
    "bombs.nesting",
    ("deep nesting", tar(pax(b"path=" + b"d/" * 100 + b"x"), A), "the name is 101 levels deep, at most 32 are allowed"),
    "bombs.directories",
    ("many directories that no member names", tar(*(Member(f"{n}/{'d/' * 20}x") for n in range(3))),
     "holds more than 50 directories"),
    ("many directories", tar(*(directory(f"d{n}") for n in range(60))), "holds more than 50 files"),
]
GZIP_ROWS: list[str | Row] = [

    "bombs.ratio",
    ("one huge file", gzip(tar(Member("x", bytes(2_000_000)))), "holds more than 20 times its own"),
    ("zeros after the end", gzip(tar(A) + bytes(5_000_000)), "holds more than 20 times its own"),
    "bombs.huge-file",
    ("a file that is too large for anybody", gzip(tar(Member("x", os.urandom(60_000) * 20))), "holds more than"),
    "bombs.gzip-members",
    ("many gzip members", gzip(bytes(512)) * 2 + gzip(bytes(5_000_000)), "holds more than 20 times its own"),
    "parser.trailing",
    ("bytes after the gzip member", gzip(tar(A)) + b"x", "is not gzip: 'x' stands where"),
    "parser.second-archive",
    ("a second archive in a second member", gzip(tar(A)) + gzip(tar(Member("b"))), "goes on after its end"),
    "parser.compression",
    ("a cut off gzip member", gzip(tar(A))[:-1], "is cut off: its compressed data is incomplete"),
    ("a wrong CRC-32", gzip(tar(A))[:-8] + bytes(8), "its compressed data is damaged: "),
    ("garbage where deflate should be", gzip(tar(A))[:12] + bytes(100), "its compressed data is damaged: "),
    ("a tar that is not compressed", tar(A), "is not gzip: 'a"),
    ("an empty file", b"", "is not gzip: '' stands where"),
]


def compressed_rows(kind: Kind, compress: Callable[[bytes], bytes], name: str, cut: str) -> list[str | Row]:
    """Return the attacks on a compression that ``compress`` writes. ``name`` and ``cut`` are parts of messages."""
    good, zeros = compress(tar(A)), bytes(5_000_000)
    return [
        "bombs.ratio",
        ("one huge file", compress(tar(Member("x", bytes(2_000_000)))), "holds more than 20 times its own"),
        ("zeros after the end", compress(tar(A) + zeros), "holds more than 20 times its own"),
        "bombs.gzip-members",
        ("many streams", compress(bytes(512)) * 2 + compress(zeros), "holds more than 20 times its own"),
        "parser.trailing",
        ("bytes after the stream", good + b"x", f"is not {name}" if name != "zstd" else "is damaged: "),
        "parser.second-archive",
        ("a second archive in a second stream", good + compress(tar(Member("b"))), "goes on after its end"),
        "parser.compression",
        ("a cut off stream", good[:-1], cut),
        ("garbage in the data", good[:15] + bytes(len(good) - 15), "is damaged: "),
        ("a tar that is not compressed", tar(A), f"is not {name}: 'a"),
        ("another compression", gzip(tar(A)), f"is not {name}: "),
        ("an empty file", b"", f"is not {name}: '' stands where"),
    ]


def with_large_dictionary(data: bytes) -> bytes:
    """Declare a dictionary of 1 GiB in the first block of an xz file. A compressor would need 10 GiB for it."""
    end = 12 + (data[12] + 1) * 4 - 4  # of the block header, without its CRC-32
    header = data[12:16] + bytes([36]) + data[17:end]
    return data[:12] + header + zlib.crc32(header).to_bytes(4, "little") + data[end + 4 :]


XZ_ROWS = [
    *compressed_rows(Kind.TAR_XZ, lzma.compress, "xz", "is cut off: its compressed data is incomplete"),
    "parser.trailing",
    ("zeros that are no padding", lzma.compress(tar(A)) + bytes(6), "has 6 zeros after a stream"),
    "bombs.ratio",
    ("a dictionary of a gigabyte", with_large_dictionary(lzma.compress(tar(A))),
     "its compressed data is damaged: Memory usage limit exceeded"),
]
BZIP2_ROWS = compressed_rows(
    Kind.TAR_BZ2, bz2.compress, "bzip2", "is cut off: its compressed data is incomplete"
)
ZSTD_ROWS = (
    compressed_rows(Kind.TAR_ZST, zstd, "zstd", "its compressed data is damaged: ")
    if shutil.which("zstd")
    else []
)
ZIP_ROWS: list[str | Row] = [
    "zip.names",
    *((f"a name {what}", zipped(Z, Packed(row["name"], b"x")), row["says"]) for what, row in NAMES.items()),
    "zip.links",
    *((f"a link {what}", zipped(Z, Packed(name, target.encode(), 0o120777)), says)
      for what, (_, name, target, says) in LINKS.items()),
    "zip.names",
    ("a name that is cut at NUL", zipped(Packed(b"a\0../canary")), r"'a\x00../canary': the name contains the control"),
    ("a name that is not UTF-8", zipped(Packed(b"a\xff")), r"'a\\xff': the name is not UTF-8"),
    "zip.links",
    ("a link that is a directory", zipped(Packed("x/", b"y", 0o120777)), "'x': is a symbolic link, expected a file"),
    ("a link of many bytes", zipped(Packed("x", b"y" * 5000, 0o120777)), "'x': is a symbolic link of 5000 bytes"),
    ("a file through a link", zipped(Packed("d", b"e", 0o120777), Packed("d/x")), "'d': stands twice"),
    "special.fifo",
    ("a fifo", zipped(Packed("x", mode=0o010644)), "'x': is a FIFO, expected a file, a directory or a link"),
    "special.block-device",
    ("a device", zipped(Packed("x", mode=0o060644)), "'x': is a block device, expected a file"),
    "special.unknown",
    ("a socket", zipped(Packed("x", mode=0o140644)), "'x': is a socket, expected a file"),
    "parser.hidden",
    ("a directory with contents", zipped(Packed("d/", b"x")), "'d/': is a directory with 1 bytes of contents"),
    ("a file in the table of contents", zipped(Packed("a", b"x", method=0, in_table={"packed": 9, "size": 9},
     in_header={"packed": 9, "size": 9})), "'a': overlaps with the table of contents"),
    ("two files in the same bytes", zipped(Z, Packed("b", b"alpha", in_table={"offset": 0, "name": b"a"})),
     "'a': overlaps with another file"),
    ("something before it", b"#" * 100 + zipped(Z), "has a table of contents that ends at"),
    "duplicates.name",
    ("a file twice", zipped(Z, Z), "'a': stands twice"),
    "zip.conflict",
    ("another name in its own header", zipped(Packed("a", in_header={"name": b"../canary"})),
     "'a': is called '../canary' in its own header"),
    ("another method in its own header", zipped(Packed("a", b"x", in_header={"method": 0})),
     "'a': is packed by method 0 in its own header, 8 in the table"),
    ("another size in its own header", zipped(Packed("a", b"x", in_header={"size": 9})), "in its own header, ("),
    ("another checksum in its own header", zipped(Packed("a", b"x", in_header={"crc": 9})),
     "(9, 3, 1) in its own header, "),
    ("sizes that follow, and others before", zipped(Packed("a", b"x", flags=8, in_header={"size": 9})),
     "in its own header, "),
    ("no header of its own", zipped(Packed("a", in_table={"offset": 3})), "'a': has no header"),
    ("a header that is not there", zipped(Packed("a", in_table={"offset": 2**31})), "the header of 'a' is not there"),
    ("more files than there are", zipped(Z, count=2), "has a table of contents of 47 bytes for 2 files"),
    ("fewer files than there are", zipped(Z, Packed("b"), count=1), "of 94 bytes, but 47 for 1 file"),
    ("a table that is elsewhere", zipped(Z, offset=lambda offset: offset - 1), "has a table of contents that ends at"),
    ("a table that is larger", zipped(Z, size=lambda size: size + 1), "has a table of contents that ends at"),
    ("in several files", zipped(Z, disk=1), "is a part of an archive in several files"),
    ("a file in another file", zipped(Packed("a", in_table={"disk": 1})), "'a': is in another file"),
    ("two ends", zipped(Z, comment=zipped(Z)), "has two ends"),
    "zip.encrypted",
    ("encrypted", zipped(Packed("a", b"x", flags=1)), "'a': is encrypted, which is not unpacked"),
    ("encrypted says its own header", zipped(Packed("a", b"x", in_header={"flags": 1})), "'a': is encrypted"),
    ("strongly encrypted", zipped(Packed("a", b"x", flags=64)), "'a': is encrypted, which is not unpacked"),
    ("a masked header", zipped(Packed("a", b"x", flags=1 << 13)), "'a': has a masked header"),
    ("a patch", zipped(Packed("a", b"x", flags=32)), "'a': is a patch"),
    ("another method", zipped(Packed("a", b"x", method=12)), "'a': is packed by method 12, expected 0 (stored) or 8"),
    "zip.crc",
    ("a bad checksum", zipped(Packed("a", b"x", in_table={"crc": 7}, in_header={"crc": 7})),
     "'a': has 1 bytes with CRC-32 8cdc1683, the table has 1 with 00000007"),
    "parser.compression",
    ("more than it says", zipped(Packed("a", bytes(9000), in_table={"size": 10}, in_header={"size": 10})),
     "'a': holds more than the 10 bytes in the table"),
    ("less than it says", zipped(Packed("a", b"x", in_table={"size": 2}, in_header={"size": 2})), "the table has 2"),
    ("stored, and more than it says", zipped(Packed("a", b"xy", method=0, in_table={"size": 1}, in_header={"size": 1})),
     "'a': holds more than the 1 bytes"),
    ("damaged data", zipped(Packed("a", b"x", packed=b"\xff\xff\xff")), "'a': its compressed data is damaged"),
    ("data that is cut off", zipped(Packed("a", b"x" * 99, packed=b"\x4b")), "does not end where it should"),
    ("data that goes on", zipped(Packed("a", b"x", packed=writer._deflated(b"x") + b"y")),
     "does not end where it should"),
    "parser.trailing",
    ("bytes after the end", zipped(Z) + b"x", "is not a zip archive: its end record is missing"),
    "parser.end-blocks",
    ("no zip at all", b"#" * 2000, "is not a zip archive: its end record is missing"),
    ("nothing", b"", "is not a zip archive: its end record is missing"),
    "zip.zip64",
    ("a zip64 record that says otherwise", zipped64(Z, count=2, here=2), "says 1 at its end and 2 in its zip64 record"),
    ("a zip64 record elsewhere", zipped64(Z, position=-1), "has a zip64 record that is not where it should be"),
    ("a zip64 record that is not there", zipped64(Z, position=2**40), "its zip64 record is not there"),
    ("a zip64 record of several files", zipped64(Z, disks=2), "is a part of an archive in several files"),
    ("a zip64 size without its field", zipped(Packed("a", b"x", in_table={"size": 0xFFFFFFFF})),
     "lacks the zip64 field"),
    ("a zip64 field that is too short", zipped(Packed("a", b"x", in_table={"size": 0xFFFFFFFF,
     "extra": b"\x01\x00\x04\x00abcd"})), "has a zip64 field that is too short"),
    "zip.bombs",
    ("many directories", zipped(*(Packed(f"{n}/{'d/' * 20}x") for n in range(3))), "holds more than 50 directories"),
    ("deep nesting", zipped(Packed("d/" * 100 + "x")), "the name is 101 levels deep, at most 32 are allowed"),
    ("a long name", zipped(Packed("n" * 2000)), "the name has 2000 bytes, at most 1024 are allowed"),
    ("one huge file", zipped(Packed("x", bytes(2_000_000))), "holds more than 20 times its own"),
    ("many files", zipped(*(Packed(f"f{n}") for n in range(60))), "holds more than 50 files, directories and links"),
    ("a table that is too large", zipped(*(Packed(f"{n}" + "n" * 250) for n in range(40))), "has a table of"),
]
ROWS = [
    *tables.params(TAR_ROWS, "tar: ", Kind.TAR),
    *tables.params(GZIP_ROWS, "tar.gz: ", Kind.TAR_GZ),
    *tables.params(XZ_ROWS, "tar.xz: ", Kind.TAR_XZ),
    *tables.params(BZIP2_ROWS, "tar.bz2: ", Kind.TAR_BZ2),
    *tables.params(ZSTD_ROWS, "tar.zst: ", Kind.TAR_ZST),
    *tables.params(ZIP_ROWS, "zip: ", Kind.ZIP),
]
# fmt: on


@pytest.fixture
def surroundings(tmp_path: Path) -> Path:
    """Return a directory with targets for attacks. Archives go into its `store/out`, which has a file."""
    outer: Path = tables.make_surroundings(tmp_path)
    (outer / "store/out").mkdir()
    (outer / "store/out/kept").write_text("kept")
    return outer


def look(surroundings: Path, *, inside: bool = True) -> Any:
    """Return the visible state, with or without the contents of `out`."""
    return tables.look(surroundings, busy="out", inside=inside)


def put(surroundings: Path, kind: Kind, data: bytes) -> None:
    archive = surroundings.parent / "archive"
    archive.write_bytes(data)
    extract(archive, kind, surroundings / "store/out", LIMITS)


@pytest.mark.parametrize(("kind", "data", "says"), ROWS)
@pytest.mark.representatives(115)
def test_a_hostile_archive_is_refused_and_nothing_is_touched(
    surroundings: Path, kind: Kind, data: bytes, says: str
) -> None:
    before = look(surroundings)
    with pytest.raises(FormatError) as refusal:
        put(surroundings, kind, data)
    assert says in str(refusal.value)
    assert len(str(refusal.value)) < 1000
    assert look(surroundings) == before


def test_attack_names_are_unique() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)


GOOD = {
    "a tar": (Kind.TAR, tar(A)),
    "no members": (Kind.TAR, tar()),
    "a dot before names": (Kind.TAR, tar(directory("./"), directory("./d/"), Member("./d/x"))),
    "the root as a dot": (Kind.TAR, tar(directory("."), A)),
    "names with dots": (Kind.TAR, tar(Member("..a"), Member("a..b"), Member("..."))),
    "names that differ in case": (Kind.TAR, tar(Member("readme"), Member("README"))),
    "a directory twice": (Kind.TAR, tar(directory("d"), Member("d/x"), directory("d/"))),
    "a link within a directory": (Kind.TAR, tar(Member("lib/a.so.1", b"x"), symlink("lib/a.so", "a.so.1"))),
    "a link up and down again": (Kind.TAR, tar(Member("a/x"), symlink("b/y", "../a/x"))),
    "a link to the root": (Kind.TAR, tar(symlink("d/x", ".."))),
    "a link to itself": (Kind.TAR, tar(symlink("x", "x"))),
    "a link that dangles": (Kind.TAR, tar(symlink("x", "not/here"))),
    "links through links": (Kind.TAR, tar(Member("d/e/x"), symlink("l", "d/e"), symlink("m", "l/x"))),
    "a hard link": (Kind.TAR, tar(A, hard_link("d/b", "a"), hard_link("c", "./a"))),
    "a PAX name": (Kind.TAR, tar(pax(b"path=n/" + b"n" * 150, b"mtime=1.5", b"uid=0"), Member("n"))),
    "a GNU name": (Kind.TAR, tar(writer.gnu_name(b"n" * 150), Member("n", magic=b"ustar  \0"))),
    "a comment for all": (Kind.TAR, tar(pax(b"comment=0123456789abcdef", kind=b"g"), A)),
    "a prefix": (Kind.TAR, tar(Member("b", prefix=b"p" * 150))),
    "GNU's times where the prefix is": (Kind.TAR, tar(Member("b", prefix=b"17", magic=b"ustar  \0"))),
    "the oldest dialect": (
        Kind.TAR,
        tar(Member("d/", kind=b"\0", magic=b""), Member("d/x", kind=b"\0", magic=b"")),
    ),
    "a size to the base 256": (Kind.TAR, tar(Member("x", b"ab", size=b"\x80" + bytes(10) + b"\x02"))),
    "a size that is said twice": (Kind.TAR, tar(pax(b"size=5"), A)),
    "blocks of zeros after the end": (Kind.TAR, tar(A, end=bytes(10240))),
    "a time before 1970": (Kind.TAR, tar(pax(b"mtime=-5"), A)),
    "several gzip members": (Kind.TAR_GZ, gzip(tar(A)[:700]) + gzip(tar(A)[700:])),
    "several xz streams": (
        Kind.TAR_XZ,
        lzma.compress(tar(A)[:700]) + bytes(8) + lzma.compress(tar(A)[700:]) + bytes(4),
    ),
    "several bzip2 streams": (Kind.TAR_BZ2, bz2.compress(tar(A)[:700]) + bz2.compress(tar(A)[700:])),
    "a zip": (Kind.ZIP, zipped(Z)),
    "an empty zip": (Kind.ZIP, zipped()),
    "a stored file": (Kind.ZIP, zipped(Packed("a", b"x", method=0))),
    "a zip with directories": (Kind.ZIP, zipped(Packed("d/", mode=0o040755), Packed("d/x"))),
    "a zip with a comment": (Kind.ZIP, zipped(Z, comment=b"made on a Tuesday")),
    "a zip in a zip": (Kind.ZIP, zipped(Packed("a.zip", zipped(Z), method=0))),
    "a zip64": (Kind.ZIP, zipped64(Z)),
    "a zip without modes": (Kind.ZIP, zipped(Packed("a", mode=0), Packed("d/", mode=0))),
    "sizes that follow the data": (
        Kind.ZIP,
        zipped(Packed("a", b"x", flags=8, in_header={"crc": 0, "packed": 0, "size": 0})),
    ),
    "a link in a zip": (Kind.ZIP, zipped(Packed("d/x"), Packed("l", b"d/x", 0o120777))),
    "a zip64 field": (
        Kind.ZIP,
        zipped(Packed("a", b"x", in_table={"size": 0xFFFFFFFF, "extra": b"\x01\x00\x08\x00\x01" + bytes(7)})),
    ),
}


GOOD_CASES = {
    "names with dots": "names.dots-are-fine",
    "a dot before names": "names.dot-first",
    "the root as a dot": "names.dot",
    "links through links": "links.chain",
    "a link to itself": "links.itself",
    "a link that dangles": "links.missing",
    "a hard link": "links.hard",
    "names that differ in case": "duplicates.folding",
    "a PAX name": "parser.pax-path",
    "a size that is said twice": "parser.pax-size",
    "a GNU name": "parser.gnu-name",
    "a comment for all": "parser.pax-global",
    "several gzip members": "bombs.gzip-members",
    "a link in a zip": "zip.links",
    "a zip64": "zip.zip64",
}
"""Cases that are rejected in a bundle or resemble an attack, but are harmless here."""


def good() -> Iterator[Any]:
    for name, row in GOOD.items():
        marks = [pytest.mark.attack(GOOD_CASES[name])] if name in GOOD_CASES else []
        yield pytest.param(row, id=name, marks=marks)


@pytest.mark.parametrize("row", list(good()))
def test_the_same_writer_can_write_good_archives(surroundings: Path, row: tuple[Kind, bytes]) -> None:
    """Proves that attacks are rejected for their contents, not for the writer's format. Oddities are harmless."""
    before = look(surroundings, inside=False)
    put(surroundings, *row)
    with listed(
        str(surroundings.parent / "archive"), Form(row[0]), str(surroundings / "store/out"), LIMITS
    ) as read:
        result = (surroundings / "store/out").rglob("*")
        names = {str(path.relative_to(surroundings / "store/out")) for path in result} - {"kept"}
        assert set(read.members) == names
    assert look(surroundings, inside=False) == before
    assert_harmless(surroundings)
    assert (surroundings / "store/out/kept").read_text() == "kept"


def everything(surroundings: Path) -> Iterator[Path]:
    return (surroundings / "store/out").rglob("*")


def assert_harmless(surroundings: Path) -> None:
    """Check that there are only files, directories and internal links, with ordinary owners and modes."""
    out = surroundings / "store/out"
    for path in everything(surroundings):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            inside = os.path.realpath(path)
            assert inside == str(out) or inside.startswith(f"{out}/"), f"{path} leads to {inside}"
            continue
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode), path
        assert not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX | stat.S_IWGRP | stat.S_IWOTH), path
        assert path.lstat().st_uid == os.geteuid(), path


@pytest.mark.parametrize(
    ("mode", "becomes"),
    [
        pytest.param(0o4755, 0o755, marks=pytest.mark.attack("metadata.setuid")),
        pytest.param(0o2755, 0o755, marks=pytest.mark.attack("metadata.setgid")),
        pytest.param(0o1777, 0o755, marks=pytest.mark.attack("metadata.sticky")),
        pytest.param(0o666, 0o644, marks=pytest.mark.attack("metadata.world-writable")),
        pytest.param(0o400, 0o600, marks=pytest.mark.attack("metadata.mode")),
        pytest.param(0o0, 0o644, marks=pytest.mark.attack("metadata.mode")),
    ],
)
def test_permissions_are_those_of_an_ordinary_file(surroundings: Path, mode: int, becomes: int) -> None:
    """The tar of the reference keeps setuid bits if root runs it."""
    put(surroundings, Kind.TAR, tar(Member("x", mode=b"%07o\0" % mode), directory("d", b"%07o\0" % mode)))
    put(surroundings, Kind.ZIP, zipped(Packed("y", mode=0o100000 | mode)))
    out = surroundings / "store/out"
    assert [stat.S_IMODE((out / name).stat().st_mode) for name in "xy"] == [becomes, becomes]
    assert stat.S_IMODE((out / "d").stat().st_mode) & 0o7777 in (0o755, 0o744, 0o700)


@pytest.mark.attack("metadata.owner", "metadata.attributes")
def test_neither_owners_nor_extended_attributes_are_taken_over(surroundings: Path) -> None:
    xattr = pax(b"SCHILY.xattr.user.evil=1", b"uid=65534", b"gid=65534", b"uname=nobody")
    put(surroundings, Kind.TAR, tar(xattr, Member("x", owner=b"0177776\0")))
    status = (surroundings / "store/out/x").stat()
    assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
    assert os.listxattr(surroundings / "store/out/x") == []


@pytest.mark.attack("metadata.future")
def test_a_time_in_the_future_is_that_of_now(surroundings: Path) -> None:
    put(surroundings, Kind.TAR, tar(Member("x", time=b"77777777777\0"), Member("y", time=b"07346545000\0")))
    out = surroundings / "store/out"
    assert (out / "x").stat().st_mtime <= (out / "x").stat().st_ctime
    assert (out / "y").stat().st_mtime == 0o7346545000


# Existing contents of the directory


@pytest.mark.attack("links.replaced")
def test_a_link_in_the_directory_is_not_followed(surroundings: Path) -> None:
    (surroundings / "store/out/d").symlink_to("../../private")
    before = look(surroundings)
    with pytest.raises(ResourceError, match="out/d is a symbolic link, the archive has a directory there"):
        put(surroundings, Kind.TAR, tar(A, Member("d/key", b"overwritten")))
    assert look(surroundings) == before


def test_a_link_in_the_place_of_a_file_is_replaced_itself(surroundings: Path) -> None:
    (surroundings / "store/out/a").symlink_to("../../canary")
    put(surroundings, Kind.TAR, tar(A))
    assert (surroundings / "store/out/a").read_text() == "alpha"
    assert (surroundings / "canary").read_text() == "sings"


def test_a_hard_link_in_the_place_of_a_file_loses_its_name_only(surroundings: Path) -> None:
    os.link(surroundings / "canary", surroundings / "store/out/a")
    put(surroundings, Kind.TAR, tar(A))
    assert (surroundings / "canary").read_text() == "sings"


@pytest.mark.parametrize(
    ("there", "data", "says"),
    [
        ("file", tar(Member("x/y")), "out/x is a regular file, the archive has a directory there"),
        ("directory", tar(Member("x")), "out/x is a directory, the archive has a regular file there"),
        (
            "directory",
            tar(symlink("x", "kept")),
            "out/x is a directory, the archive has a symbolic link there",
        ),
        ("fifo", tar(Member("x/y")), "out/x is a FIFO, the archive has a directory there"),
    ],
)
def test_a_file_is_no_directory(surroundings: Path, there: str, data: bytes, says: str) -> None:
    path = surroundings / "store/out/x"
    {"file": lambda: path.touch(), "directory": lambda: path.mkdir(), "fifo": lambda: os.mkfifo(path)}[
        there
    ]()
    before = look(surroundings)
    with pytest.raises(ResourceError, match=says):
        put(surroundings, Kind.TAR, data)
    assert look(surroundings) == before


# fmt: off
good_names = st.sampled_from(["a", "d/x", "d/e/y", "l", "l/x", "m", "kept", "./a", "d/", "."])
bad_names = st.sampled_from(["../canary", "../../canary", "/outer/canary", "link/key", "x\0y", "", "d/../a", "d/.."])
names = st.integers(0, 9).flatmap(lambda number: good_names if number else bad_names)
targets = st.one_of(
    st.lists(st.sampled_from(["..", "..", "d", "e", "l", "m", "."]), min_size=1, max_size=4).map("/".join),
    st.sampled_from(["", "/", "/etc", "../../canary", "../../link/key", "a"]),
).map(str.encode)
tar_members = st.one_of(
    st.builds(Member, name=st.sampled_from(["l", "m", "d/x", "d/e/y"]), link=targets, kind=st.just(b"2")),
    st.builds(
        Member, name=names, data=st.sampled_from([b"", b"x", bytes(600)]), link=targets,
        kind=st.sampled_from([b"0", b"0", b"1", b"2", b"5", b"5", b"6", b"x", b"L", b"K", b"\0"]),
        mode=st.sampled_from([b"0000644\0", b"0006777\0", b"0000000\0"]),
        magic=st.sampled_from([b"ustar\00000", b"ustar  \0", b""]),
        prefix=st.sampled_from([b"", b"", b"..", b"d"]),
    ),
)
files = st.one_of(
    st.builds(Packed, name=st.sampled_from(["l", "m", "d/x", "d/e/y"]), data=targets, mode=st.just(0o120777)),
    st.builds(
        Packed, name=names, data=targets, method=st.sampled_from([0, 8]),
        mode=st.sampled_from([0, 0o100644, 0o104755, 0o120777, 0o040755]),
        in_header=st.sampled_from([{}, {}, {}, {"name": b"a"}, {"size": 1}]),
        in_table=st.sampled_from([{}, {}, {}, {"offset": 0}, {"name": b"a"}]),
    ),
)
changes = st.tuples(st.integers(0, 2**16), st.integers(0, 255))
noise: st.SearchStrategy[list[tuple[int, int]]] = st.one_of(st.just([]), st.lists(changes, max_size=2))
# fmt: on


many = settings(
    max_examples=4 * settings().max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.attack("any-archive.tar")
@given(st.lists(tar_members, max_size=4), noise)
@many
def test_tar_content_stays_inside(
    surroundings: Path, members: list[Any], noise: list[tuple[int, int]]
) -> None:
    put_something(surroundings, Kind.TAR, tar(*(aimed(member, surroundings) for member in members)), noise)


@pytest.mark.attack("any-archive.zip")
@given(st.lists(files, max_size=4), noise)
@many
def test_zip_content_stays_inside(
    surroundings: Path, members: list[Any], noise: list[tuple[int, int]]
) -> None:
    put_something(surroundings, Kind.ZIP, zipped(*(aimed(member, surroundings) for member in members)), noise)


def aimed(member: Any, outer: Path) -> Any:
    """Replace `/outer` in the name by the directory of the test."""
    return replace(member, name=member.name.replace("/outer", str(outer)))


def put_something(surroundings: Path, kind: Kind, archive: bytes, noise: list[tuple[int, int]]) -> None:
    """Extract an archive with noise, and compare the surroundings before and after."""
    out = surroundings / "store/out"
    shutil.rmtree(out)
    out.mkdir()
    (out / "kept").write_text("kept")
    data = bytearray(archive)
    for position, value in noise if data else []:
        data[position % len(data)] = value
    before, all_before = look(surroundings, inside=False), look(surroundings)
    try:
        put(surroundings, kind, bytes(data))
    except (FormatError, ResourceError):
        assert look(surroundings) == all_before, "all or nothing"
    assert look(surroundings, inside=False) == before
    assert_harmless(surroundings)


# Leading components that are removed (strip_components)


def put_stripped(surroundings: Path, data: bytes, count: int = 1) -> None:
    archive = surroundings.parent / "archive"
    archive.write_bytes(data)
    extract(archive, Kind.TAR, surroundings / "store/out", LIMITS, strip=count)


STRIPPED_ROWS: list[str | Row] = [
    "links.parent",
    ("a link that would lead outside", tar(Member("a/x"), symlink("a/l", "../canary")), "which is outside"),
    "links.hard",
    ("a hard link to a member that is left out", tar(A, hard_link("d/b", "a")), "which strip_components leaves out"),
    "duplicates.name",
    ("two members of one name", tar(Member("a/x"), Member("b/x")), "stands twice in the archive"),
    "duplicates.file-directory",
    ("a file and a directory of one name", tar(Member("a/x"), Member("b/x/y")), "to be a directory, but the archive"),
    "names.through-parent",
    ("a name with dots behind the removed part", tar(Member("a/../canary")), "'a/../canary': "),
    "names.empty",
    ("no member that is deep enough", tar(A, directory("d")), "has no path of more than 1 components"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "says"), tables.params(STRIPPED_ROWS, "stripped: "))
def test_stripped_paths_are_checked_again(surroundings: Path, data: bytes, says: str) -> None:
    before = look(surroundings)
    with pytest.raises(FormatError) as refusal:
        put_stripped(surroundings, data)
    assert says in str(refusal.value)
    assert look(surroundings) == before


def test_stripped_members_keep_links_between_them(surroundings: Path) -> None:
    members = (
        Member("app-1/README", b"r"),
        Member("app-1/lib/a.so.1", b"x"),
        symlink("app-1/lib/a.so", "a.so.1"),
        symlink("app-1/bin/lib", "../lib"),
        hard_link("app-1/COPYING", "app-1/README"),
        Member("top", b"left out"),
    )
    put_stripped(surroundings, tar(directory("app-1/"), *members))
    out = surroundings / "store/out"
    assert sorted(os.listdir(out)) == ["COPYING", "README", "bin", "kept", "lib"]
    assert (out / "COPYING").samefile(out / "README")
    assert (out / "lib/a.so").read_bytes() == b"x"
    assert (out / "bin/lib/a.so").read_bytes() == b"x"
    assert_harmless(surroundings)


@needs_zstd
def test_zstd_frames_are_one_archive(surroundings: Path) -> None:
    put(surroundings, Kind.TAR_ZST, zstd(tar(A)[:700]) + zstd(tar(A)[700:]))
    assert (surroundings / "store/out/a").read_bytes() == b"alpha"


@needs_zstd
def test_the_zstd_program_ends_with_the_reader(tmp_path: Path) -> None:
    """A refused archive leaves no process that still writes."""
    (tmp_path / "archive").write_bytes(zstd(tar(Member("../x")) + os.urandom(3_000_000)))
    (tmp_path / "out").mkdir()
    before = children()
    with pytest.raises(FormatError):
        extract(tmp_path / "archive", Kind.TAR_ZST, tmp_path / "out")
    gc.collect()
    assert children() <= before


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@needs_zstd
def test_missing_zstd_is_an_error_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "archive").write_bytes(zstd(tar(A)))
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(commands, "SEARCH_PATH", str(tmp_path))
    with pytest.raises(ResourceError, match=r"program zstd is missing") as refusal:
        extract(tmp_path / "archive", Kind.TAR_ZST, tmp_path / "out")
    assert "package zstd" in refusal.value.problems[0].hint
