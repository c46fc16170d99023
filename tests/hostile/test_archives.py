"""Malicious archives, each with a name.

* The tar writer has no checks and shares no code with the product.
* Every hostile archive is rejected with the message in its row. Surrounding files keep their contents, modes and times.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles.archive.unpack import inspect, unpack
from bundles.errors import UnpackError
from bundles.filesystem.trees import remove_tree
from bundles.format import fields
from bundles.format.size_limits import Limits
from tests.hostile import tables
from tests.simulators import archivewriter as writer

GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"
END = bytes(1024)
LIMITS = Limits(archive=100_000, size=1_000_000, description=10_000, ratio=20, ratio_from=100_000)


# Root owns everything, and user and group names are empty, as in a bundle.
ROOT = {"owner": b"0000000\0", "group": b"0000000\0", "user_name": b"", "group_name": b""}
Member: Callable[..., writer.Member] = partial(writer.Member, **ROOT)


def pax(*records: bytes, kind: bytes = b"x") -> Any:
    """Return a PAX header in which each record has its correct length."""
    return replace(writer.pax(*records, kind=kind), **ROOT)


MANIFEST = Member("manifest.yaml", b"resources: []\n")
A = Member("web.conf", b"a")
B = Member("x/b", b"b")
LONG = Member("n" * 150, b"long")  # requires a PAX record
LONG_PAX = pax(b"path=" + b"n" * 150)


def describe(*members: Any, **changes: object) -> Any:
    """Return the bundle.json that lists ``members``."""
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


def described(old: bytes, new: bytes) -> Any:
    """Return the bundle.json of a good bundle with one replacement."""
    good = describe(MANIFEST, A)
    assert old in good.data
    return replace(good, data=good.data.replace(old, new))


def compress(tar: bytes) -> bytes:
    deflate = zlib.compressobj(level=9, wbits=-15)
    trailer = zlib.crc32(tar).to_bytes(4, "little") + (len(tar) % 2**32).to_bytes(4, "little")
    return GZIP_HEADER + deflate.compress(tar) + deflate.flush() + trailer


def archive(*members: Any, end: bytes = END) -> bytes:
    return compress(b"".join(member.to_bytes() for member in members) + end)


def unlisted(*members: Any, end: bytes = END) -> bytes:
    """Return a good bundle with additional members that bundle.json does not list."""
    return archive(describe(MANIFEST), MANIFEST, *members, end=end)


def listed(*members: Any) -> bytes:
    """Return a bundle whose bundle.json also lists these members, even invalid ones."""
    return archive(
        describe(MANIFEST, *members), *sorted([MANIFEST, *members], key=lambda item: str(item.name))
    )


def instead(*members: Any) -> bytes:
    """Return a bundle that lists web.conf with the contents `a`, and has these members in its place."""
    return archive(describe(MANIFEST, A), MANIFEST, *members)


def changed(**fields: Any) -> bytes:
    """Return a bundle with a changed header of web.conf."""
    return instead(replace(A, **fields))


# fmt: off
KINDS = {
    "a symbolic link to a parent": ("links.parent", b"2", b"../canary", "is a symbolic link to '../canary'"),
    "an absolute symbolic link": ("links.absolute", b"2", b"/etc/passwd", "is a symbolic link to '/etc/passwd'"),
    "a symbolic link to itself": ("links.itself", b"2", b"web.conf", "is a symbolic link to 'web.conf'"),
    "a symbolic link to nothing": ("links.missing", b"2", b"nowhere", "is a symbolic link to 'nowhere'"),
    "a symbolic link without a target": ("links.missing", b"2", b"", "is a symbolic link to ''"),
    "a hard link to a member": ("links.hard", b"1", b"manifest.yaml", "is a hard link to 'manifest.yaml'"),
    "a hard link to a parent": ("links.hard", b"1", b"../canary", "is a hard link to '../canary'"),
    "an absolute hard link": ("links.hard", b"1", b"/etc/shadow", "is a hard link to '/etc/shadow'"),
    "a character device": ("special.character-device", b"3", b"", "is a character device"),
    "a block device": ("special.block-device", b"4", b"", "is a block device"),
    "a directory": ("special.directory", b"5", b"", "is a directory, which a bundle does not list"),
    "a FIFO": ("special.fifo", b"6", b"", "is a FIFO"),
    "a contiguous file": ("special.contiguous", b"7", b"", "is a contiguous file"),
    "a GNU sparse file": ("special.gnu-sparse", b"S", b"", "is a GNU sparse file"),
    "a GNU long name": ("parser.gnu-name", b"L", b"", "is a GNU long name"),
    "a GNU long link target": ("parser.gnu-name", b"K", b"", "is a GNU long link target"),
    "a GNU directory listing": ("special.gnu", b"D", b"", "is a GNU directory listing"),
    "a GNU volume label": ("special.gnu", b"V", b"", "is a GNU volume label"),
    "the rest of a file on another volume":
        ("special.gnu", b"M", b"", "is a continued file of another GNU volume"),
    "a global PAX header": ("parser.pax-global", b"g", b"", "is a global PAX header"),
    "a Solaris PAX header": ("special.unknown", b"X", b"", "is a member of the unknown type 'X'"),
    "an unknown type": ("special.unknown", b"Z", b"", "is a member of the unknown type 'Z'"),
    "a type beyond ASCII": ("special.unknown", b"\xff", b"", "is a member of the unknown type 'ÿ'"),
}
# fmt: on

Row = tuple[str, bytes, str]
"""The attack, the archive, and a part of the message."""


def names_at_both_doors() -> Iterator[str | Row]:
    """Yield bad names in a header and in bundle.json."""
    for what, row in tables.bad_names("bundle").items():
        yield row["case"]
        yield f"a name {what}, not listed", unlisted(Member(row["name"])), row["says"]
        yield f"a name {what}, listed", listed(Member(row["name"])), row["says"]


def kinds_beside_and_instead() -> Iterator[str | Row]:
    """Yield invalid types in addition to listed members and instead of them."""
    for what, (case, kind, link, says) in KINDS.items():
        yield case
        yield f"{what}, not listed", unlisted(Member("web.conf", kind=kind, link=link)), f"'web.conf': {says}"
        yield f"{what} instead of a file", changed(kind=kind, link=link), f"'web.conf': {says}"


# fmt: off
# A line of text is the case of attacks.yaml for the rows after it.
ROWS: list[str | Row] = [
    *names_at_both_doors(),
    *kinds_beside_and_instead(),
    "names.control",
    ("a name with a NUL, not listed", unlisted(Member("a\0b")), "'a': is not listed in bundle.json"),
    ("a name with a NUL, listed", listed(Member("a\0b")), "the name contains the control character U+0000"),
    ("a name with more after a NUL", changed(name="web.conf\0/../../canary"), r"name is 'web.conf\x00/../../canary'"),
    "names.encoding",
    ("a name that is not UTF-8", unlisted(Member(b"a\xff")), r"'a\\xff': the name is not UTF-8"),
    ("half a surrogate",
     archive(described(b"web.conf", rb"a\ud800")), "bundle.json: an escaped half of a surrogate pair"),
    "names.long",
    ("an over-long component", listed(Member("n" * 256)), "has 256 bytes, at most 255 are allowed"),
    ("an over-long name", listed(Member("/".join(["n" * 200] * 6))), "has 1205 bytes, at most 1024 are allowed"),
    "names.parent",
    ("a prefix that leaves the root", unlisted(Member("canary", prefix=b"..")), "'../canary': the name contains the"),
    "names.absolute",
    ("an absolute prefix", unlisted(Member("passwd", prefix=b"/etc")), "'/etc/passwd': the name is absolute"),
    "parser.pax-path",
    ("a prefix where none is needed", archive(describe(MANIFEST, B), MANIFEST, Member("b", b"b", prefix=b"x")),
     "'x/b': name is 'b' in the archive, expected 'x/b'"),
    ("a PAX path where the name fits", instead(pax(b"path=../canary"), A), "is a PAX header, expected a regular file"),
    ("a PAX path that differs from bundle.json",
     archive(describe(MANIFEST, LONG), MANIFEST, pax(b"path=" + b"m" * 150), LONG),
     "the path in its PAX record differs"),
    ("two PAX headers", archive(describe(MANIFEST, LONG), MANIFEST, LONG_PAX, LONG_PAX, LONG), "is a PAX header"),
    ("a PAX header and nothing after it", archive(describe(MANIFEST, LONG), MANIFEST, LONG_PAX), "is missing"),
    "links.chain",
    ("a directory that is a link, then a file through it",
     archive(describe(MANIFEST, B), MANIFEST, Member("x", kind=b"2", link=b"../.."), B),
     "'x': is a symbolic link to '../..'"),
    ("a chain of links", unlisted(Member("l1", kind=b"2", link=b"l2"), Member("l2", kind=b"2", link=b"..")),
     "'l1': is a symbolic link to 'l2'"),
    "links.replaced",
    ("a directory that is later replaced by a link",
     archive(describe(MANIFEST, B, Member("x/c")), MANIFEST, B, Member("x", kind=b"2", link=b".."), Member("x/c")),
     "'x': is a symbolic link to '..'"),
    "links.hard-to-symbolic",
    ("a hard link to a symbolic link",
     unlisted(Member("s", kind=b"2", link=b"/etc/passwd"), Member("h", kind=b"1", link=b"s")),
     "'s': is a symbolic link to '/etc/passwd'"),
    "links.absolute",
    ("bundle.json is a link", archive(Member("bundle.json", kind=b"2", link=b"/etc/passwd"), MANIFEST),
     "'bundle.json': is a symbolic link to '/etc/passwd'"),
    "links.parent",
    ("a PAX link target", unlisted(pax(b"linkpath=../canary"), Member("s", kind=b"2")), "is a PAX header"),
    "duplicates.name",
    ("the same name twice", unlisted(MANIFEST), "'manifest.yaml': is repeated"),
    ("a listed name twice", instead(A, A), "'web.conf': is repeated"),
    ("bundle.json twice", unlisted(describe(MANIFEST, A)), "'bundle.json': is not listed in bundle.json"),
    ("bundle.json twice at the start", archive(describe(MANIFEST), describe(MANIFEST), MANIFEST),
     "'bundle.json': is not listed in bundle.json"),
    "duplicates.file-directory",
    ("a file, then a directory of its name", listed(A, Member("web.conf/x")), "cannot exist together"),
    ("a directory, then a file of its name", listed(B, Member("x")), "cannot exist together"),
    "duplicates.folding",
    ("a name in capitals, listed", listed(A, Member("WEB.conf")), "cannot exist together"),
    ("a name in capitals, not listed", unlisted(Member("Manifest.YAML")),
     "'Manifest.YAML': differs from 'manifest.yaml' only by case or Unicode normalisation"),
    ("a directory in capitals", listed(B, Member("X/c")), "cannot exist together"),
    ("a sharp s", listed(Member("straße"), Member("strasse")), "cannot exist together"),
    "duplicates.normalisation",
    ("an accent in two spellings", listed(Member("caf\u00e9"), Member("cafe\u0301")), "cannot exist together"),
    "format.duplicate-keys",
    ("a key twice in bundle.json", archive(described(b'"format":1', b'"format":1,"format":1')),
     "the key 'format' is duplicate"),
    "parser.pax-size",
    ("a PAX size that differs from the header", instead(pax(b"size=99"), A),
     "is a PAX header, expected a regular file"),
    ("two records in a PAX header",
     archive(describe(MANIFEST, LONG), MANIFEST, pax(b"path=" + b"n" * 150, b"size=0"), LONG),
     "size is 169 in the archive, expected 160"),
    "parser.pax-global",
    ("a global PAX header first", archive(pax(b"path=x", kind=b"g"), describe(MANIFEST), MANIFEST),
     "is a global PAX header, expected a regular file"),
    "parser.zero-record",
    ("a zero-length PAX record", unlisted(Member("././@PaxHeader", b"0 path=x\n", b"x"), A), "is a PAX header"),
    ("a PAX record that says it is longer", unlisted(Member("././@PaxHeader", b"9999 path=x\n", b"x"), A),
     "is a PAX header"),
    "special.pax-sparse",
    ("PAX sparse", unlisted(pax(b"GNU.sparse.major=1", b"GNU.sparse.name=../canary"), A), "is a PAX header"),
    "metadata.attributes",
    ("a PAX extended attribute", unlisted(pax(b"SCHILY.xattr.security.capability=x"), A), "is a PAX header"),
    "parser.gnu-name",
    ("a GNU long name with a file", unlisted(Member("././@LongLink", b"../canary\0", b"L"), A), "is a GNU long name"),
    "parser.negative-size",
    ("a negative size", changed(size=b"\xff" * 12), r"'web.conf': size is '\\xff\\xff"),
    ("a negative size of bundle.json", archive(Member("bundle.json", size=b"\xff" * 12)), "'bundle.json': size is"),
    ("a size with a minus", changed(size=b"-0000000001"),
     "'web.conf': size is '-0000000001' in the archive, expected 1"),
    "parser.numbers",
    ("a GNU header", changed(magic=b"ustar  \0"), "'web.conf': magic is 'ustar  ' in the archive, expected 'ustar"),
    ("a header without magic", changed(magic=b""), "'web.conf': its header has the magic "),
    ("a size to the base 256", changed(size=b"\x80" + bytes(10) + b"\x01"), r"'web.conf': size is '\\x80\x00"),
    ("a size in few digits", changed(size=b"1"), r"'web.conf': size is 1, spelled '1\x00"),
    ("a size that differs from bundle.json", changed(data=b"aa"), "'web.conf': size is 2 in the archive, expected 1"),
    ("contents that differ from bundle.json", changed(data=b"b"),
     f"'web.conf': sha256 is {hashlib.sha256(b'b').hexdigest()} in the archive, "
     f"{hashlib.sha256(b'a').hexdigest()} in bundle.json"),
    ("a wrong checksum", changed(checksum=b"000000\0 "), r"the checksum of its header is '000000\x00 ', expected 0"),
    ("a checksum spelled otherwise", changed(checksum=b"%07o\0" % int(A.to_bytes()[148:154], 8)),
     "'web.conf': checksum is '00"),
    "parser.hidden",
    ("something in the padding", changed(padding=b"#"), "'web.conf': the padding after its contents is not empty"),
    ("something after the last field", changed(rest=b"#"), "'web.conf': padding is '#' in the archive, expected ''"),
    ("a link with contents", unlisted(Member("s", b"/etc/passwd", b"2")), "'s': is a symbolic link to ''"),
    ("a file with a link target", changed(link=b"/etc/x"), "'web.conf': link target is '/etc/x' in the archive"),
    ("a gzip header with a file name", b"\x1f\x8b\x08\x08\0\0\0\0\x02\xff../canary\0" + unlisted()[10:],
     "is not a bundle of `puller bundle build`: its first"),
    "parser.trailing",
    ("bytes after the end", unlisted(end=END + b"x"), "has bytes after the end of the tar archive"),
    ("empty blocks after the end", unlisted(end=END + bytes(512)), "has bytes after the end of the tar archive"),
    ("bytes after the gzip member", unlisted() + b"x", "has bytes after the end of the gzip member"),
    "parser.second-archive",
    ("a second archive after the end", unlisted(end=END + A.to_bytes() + END), "has bytes after the end of the tar"),
    "parser.end-blocks",
    ("one empty block at the end", unlisted(end=bytes(512)), "the end: the tar archive is truncated here"),
    ("no empty blocks at the end", unlisted(end=b""), "the end: the tar archive is truncated here"),
    ("half a block at the end", unlisted(end=bytes(700)), "the end: the tar archive is truncated here"),
    ("a member after one empty block", unlisted(end=bytes(512) + A.to_bytes() + END), "'web.conf': is not listed"),
    ("no header where one should be", unlisted(Member("", magic=b"#" * 8)), "the end: is followed by more bytes"),
    ("an empty tar", compress(b""), "bundle.json: the tar archive is truncated here"),
    ("a tar of empty blocks", compress(END), "'bundle.json': is missing because the archive ends before it"),
    "parser.compression",
    ("a tar that is not compressed", describe(MANIFEST).to_bytes() + MANIFEST.to_bytes() + END, "is not a bundle of "),
    ("an empty file", b"", "is not a bundle of `puller bundle build`: its first"),
    ("a wrong CRC-32", unlisted()[:-8] + bytes(4) + unlisted()[-4:], "the compressed data is damaged here: "),
    ("a wrong length in the trailer", unlisted()[:-4] + bytes(4), "the compressed data is damaged here: "),
    ("garbage where deflate should be", unlisted()[:30] + bytes(100) + unlisted()[30:], "is damaged here: "),
    "metadata.setuid",
    ("setuid", changed(mode=b"0004755\0"), "'web.conf': mode is 4755, setuid, in the archive, expected 0644"),
    "metadata.setgid",
    ("setgid", changed(mode=b"0002755\0"), "'web.conf': mode is 2755, setgid, in the archive, expected 0644"),
    "metadata.sticky",
    ("sticky", changed(mode=b"0001644\0"), "'web.conf': mode is 1644, sticky, in the archive, expected 0644"),
    "metadata.world-writable",
    ("world-writable", changed(mode=b"0000666\0"), "mode is 0666, group-writable, world-writable, in the archive"),
    "metadata.mode",
    ("unreadable", changed(mode=b"0000000\0"), "'web.conf': mode is 0000 in the archive, expected 0644"),
    ("executable against bundle.json", changed(mode=b"0000755\0"), "'web.conf': mode is 0755 in the archive, expected"),
    ("a type in the mode", changed(mode=b"0100644\0"), "'web.conf': mode is 100644 in the archive, expected 0644"),
    ("device numbers", changed(device=b"0000001\0"), "'web.conf': device major is 1 in the archive, expected 0"),
    "metadata.owner",
    ("a foreign owner", changed(owner=b"0001750\0"), "'web.conf': owner is 1000 in the archive, expected 0"),
    ("an owner by name", changed(user_name=b"root"), "'web.conf': user name is 'root' in the archive, expected ''"),
    "metadata.future",
    ("a time in the future", changed(time=b"77777777777\0"), "time is 8589934591 in the archive, expected 0"),
    "entry.missing",
    ("no manifest", archive(describe(A), A), "files: 'manifest.yaml' is missing at the top of the bundle"),
    ("a manifest that is listed and missing", archive(describe(MANIFEST)), "'manifest.yaml': is missing because"),
    "entry.deeper",
    ("a manifest only deeper down", archive(describe(Member("web/manifest.yaml")), Member("web/manifest.yaml")),
     "and 'web/manifest.yaml' is in a subdirectory"),
    "entry.description",
    ("no bundle.json", archive(MANIFEST), "'manifest.yaml': is in the place of 'bundle.json'"),
    ("bundle.json second", archive(MANIFEST, describe(MANIFEST)), "'manifest.yaml': is in the place of 'bundle.json'"),
    ("a later format", archive(describe(MANIFEST, format=2), MANIFEST), "format: is 2, and this version of Puller"),
    "partial.missing",
    ("a file that is listed and missing", instead(), "'web.conf': is missing because the archive ends before it"),
    "partial.extra",
    ("a file that is not listed", unlisted(A), "'web.conf': is not listed in bundle.json"),
    ("a file too early", archive(describe(MANIFEST, A, B), MANIFEST, B, A), "'x/b': is in the place of 'web.conf'"),
    "bombs.ratio",
    ("a high ratio", listed(Member("zeros", bytes(900_000))), "at most 20 times as many are allowed"),
    ("zeros after the end", unlisted(end=END + bytes(5_000_000)), "has bytes after the end of the tar archive"),
    "bombs.members",
    ("many members", listed(*(Member(f"f{number:03}") for number in range(60))), "files: more than 50 files and"),
    ("many members, not listed", unlisted(*(Member(f"f{number}") for number in range(1000))), "'f0': is not listed"),
    "bombs.gzip-members",
    ("a second gzip member", unlisted() + unlisted(), "has bytes after the end of the gzip member"),
    "bombs.huge-file",
    ("one huge file", listed(Member("zeros", bytes(2_000_000))), "files: 2000014 bytes, at most 1000000 are allowed"),
    ("a file that says it is huge", changed(size=b"77777777777\0"), "size is 8589934591 in the archive, expected 1"),
    ("a file that bundle.json calls huge", archive(described(b'"size":14', b'"size":8589934591'), MANIFEST),
     "files: 8589934592 bytes, at most 1000000 are allowed"),
    ("a large download", listed(Member("noise", os.urandom(150_000))), "bytes, at most 100000 are allowed"),
    ("a huge bundle.json", archive(Member("bundle.json", b" " * 20_000)), "bundle.json: 20000 bytes, at most 10000"),
    ("a bundle.json that says it is huge", archive(Member("bundle.json", b"{}", size=b"77777777777\0")),
     "bundle.json: 8589934591 bytes, at most 10000 are allowed"),
    ("a bundle in the place of bundle.json", archive(Member("bundle.json", unlisted())), "bundle.json: "),
    "bombs.directories",
    ("many directories", listed(*(Member(f"{number}/{'d/' * 20}x") for number in range(3))), "files: more than 50"),
    "bombs.nesting",
    ("deep nesting", listed(Member("d/" * 100 + "x")), "the name is 101 levels deep, at most 32 are allowed"),
    "bombs.long-names",
    ("long names", listed(*(Member(f"{number}" + "n" * 250) for number in range(40))), "at most 10000 are allowed"),
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
    """Lower the limit of entries, so that the test of too many entries is fast."""
    monkeypatch.setattr(fields, "MOST_ENTRIES", 50)


@pytest.fixture
def surroundings(tmp_path: Path) -> Path:
    """Return a directory with targets for attacks. Bundles go into its `store`."""
    outer: Path = tables.make_surroundings(tmp_path)
    return outer


def look(surroundings: Path) -> Any:
    """Return the visible state of the directory."""
    return tables.look(surroundings, busy="store")


@pytest.mark.parametrize(("data", "says"), tables.params(ROWS))
@pytest.mark.representatives(99)
def test_a_hostile_bundle_is_refused_and_nothing_is_touched(
    surroundings: Path, data: bytes, says: str
) -> None:
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


def test_attack_names_are_unique() -> None:
    names = [row[0] for row in ROWS if not isinstance(row, str)]
    assert len(set(names)) == len(names)


def good() -> Iterator[Any]:
    for name, data in GOOD.items():
        marks = [pytest.mark.attack("names.dots-are-fine")] if name == "names with dots" else []
        yield pytest.param(data, id=name, marks=marks)


@pytest.mark.parametrize("data", list(good()))
def test_the_same_writer_can_write_good_bundles(surroundings: Path, data: bytes) -> None:
    """Proves that the attacks are rejected for their contents, and not for the format of this writer."""
    archive = surroundings.parent / "web.tar.gz"
    archive.write_bytes(data)
    before = look(surroundings)
    unpack(archive, surroundings / "store/out", name="web", version="1.4.0", limits=LIMITS)
    remove_tree(surroundings / "store/out")
    assert look(surroundings) == before


# fmt: off
nasty_names = st.sampled_from([
    "manifest.yaml", "bundle.json", "web.conf", "x", "x/b", "../canary", "../../canary", "/outer/canary", "canary",
    "./x", "", ".", "link", "store/out/x", "x\0y", "Manifest.yaml",
])
nasty_members = st.builds(
    Member,
    name=nasty_names,
    data=st.sampled_from([b"", b"a", b"resources: []\n", b"path=../canary\n", bytes(600)]),
    kind=st.sampled_from([b"0", b"0", b"0", b"1", b"2", b"5", b"g", b"x", b"L", b"\0"]),
    link=st.sampled_from([b"", b"", b"..", b"../../canary", b"/", b"/outer/private", b"x", b"manifest.yaml"]),
    mode=st.sampled_from([b"0000644\0", b"0000755\0", b"0006777\0"]),
    size=st.sampled_from([None, None, None, b"00000000000\0", b"00000001000\0", b"77777777777\0", b"\xff" * 12]),
    prefix=st.sampled_from([b"", b"", b"", b"..", b"x", b"/"]),
)
# fmt: on


good_members = st.builds(
    Member,
    name=st.sampled_from(["web.conf", "x/b", "x/c/d", "..a", "run"]),
    data=st.sampled_from([b"", b"a", bytes(600)]),
    mode=st.sampled_from([b"0000644\0", b"0000755\0"]),
)
mostly_good = st.integers(0, 5).flatmap(lambda number: good_members if number else nasty_members)
ends = st.integers(0, 5).flatmap(
    lambda number: st.just(END) if number else st.sampled_from([b"", END + b"x"])
)
changes = st.tuples(st.integers(0, 2**16), st.integers(0, 255))
noise = st.integers(0, 2).flatmap(lambda number: st.just([]) if number else st.lists(changes, max_size=2))


@pytest.mark.attack("any-archive.bundle")
@given(
    listed=st.lists(mostly_good, max_size=4),
    unlisted=st.lists(nasty_members, max_size=2),
    place=st.integers(0, 5),
    end=ends,
    noise=noise,
)
@settings(
    max_examples=4 * settings().max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_archive_content_stays_inside(
    surroundings: Path,
    listed: list[Any],
    unlisted: list[Any],
    place: int,
    end: bytes,
    noise: list[tuple[int, int]],
) -> None:
    listed, unlisted = ([aimed(member, surroundings) for member in each] for each in (listed, unlisted))
    by_name = {str(member.name): member for member in (MANIFEST, *listed)}
    members = [by_name[name] for name in sorted(by_name)]
    stream = [describe(*members), *members]
    stream[place:place] = unlisted
    tar = bytearray(b"".join(member.to_bytes() for member in stream) + end)
    for position, value in noise:
        tar[position % len(tar)] = value
    archive, out = surroundings.parent / "web.tar.gz", surroundings / "store/out"
    archive.write_bytes(compress(bytes(tar)))

    before = look(surroundings)  # for each example, because all examples share the fixture
    try:
        description = unpack(archive, out)
    except UnpackError:
        assert look(surroundings) == before
        return
    assert {path.text for path in description.files} == set(by_name)
    assert {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()} == {
        *by_name,
        "bundle.json",
    }
    remove_tree(out)
    assert look(surroundings) == before


def aimed(member: Any, outer: Path) -> Any:
    """Replace `/outer` in name and link by the directory of the test."""
    name, link = (
        str(member.name).replace("/outer", str(outer)),
        member.link.replace(b"/outer", os.fsencode(outer)),
    )
    return replace(member, name=name, link=link)
