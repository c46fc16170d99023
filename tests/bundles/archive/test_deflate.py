"""Compression: smaller where possible, stored otherwise, and always the same bytes."""

import random
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles.archive.pack import build_bundle, deflated, shrinks
from bundles.archive.unpack import inspect, unpack

WriteTree = Callable[[Path, Mapping[str, bytes]], Path]

PIECE = 256 * 1024
NOISE = random.Random(1).randbytes(2 * PIECE)
"""Incompressible data."""
TEXT = b"".join(b"line %d of a file that people write\n" % number for number in range(20_000))[: 2 * PIECE]


def packed(pieces: list[bytes]) -> bytes:
    return b"".join(deflated(pieces))


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=200),
            st.integers(0, 70_000).map(lambda size: NOISE[:size]),
            st.integers(0, 70_000).map(lambda size: TEXT[:size]),
        ),
        max_size=8,
    )
)
def test_inflated_bytes_equal_the_deflated_bytes(pieces: list[bytes]) -> None:
    compressed = packed(pieces)
    inflate = zlib.decompressobj(wbits=-15)
    assert inflate.decompress(compressed) == b"".join(pieces)
    assert inflate.eof
    assert not inflate.unused_data
    assert compressed == packed(pieces)


def test_noise_is_stored_as_it_is_and_costs_five_bytes_a_block() -> None:
    compressed = packed([NOISE[:PIECE], NOISE[PIECE:]])
    assert NOISE[:65_535] in compressed
    assert NOISE[PIECE : PIECE + 65_535] in compressed
    assert len(compressed) < len(NOISE) + 100


def test_text_is_compressed_and_stays_so_behind_noise() -> None:
    alone = len(packed([TEXT]))
    assert alone < len(TEXT) / 4
    assert len(packed([NOISE[:PIECE], TEXT])) < PIECE + alone + 100


def test_text_that_becomes_noise_is_compressed_up_to_there() -> None:
    assert [shrinks(piece) for piece in (TEXT[:PIECE], NOISE[:PIECE])] == [True, False]
    assert len(packed([TEXT[:PIECE], NOISE[:PIECE]])) < PIECE + PIECE / 4


def test_noise_with_zero_blocks_is_compressed() -> None:
    half = b"".join(NOISE[start : start + 512] + bytes(512) for start in range(0, PIECE // 2, 512))
    assert shrinks(half)


def test_a_small_piece_does_not_interrupt_the_text_around_it() -> None:
    assert shrinks(NOISE[:4095])
    assert not shrinks(NOISE[:4096])


def test_blocks_share_one_dictionary() -> None:
    pieces = [TEXT[start : start + 5000] for start in range(0, len(TEXT), 5000)]
    whole = zlib.compressobj(level=7, wbits=-15)
    in_one_go = len(whole.compress(TEXT) + whole.flush())
    assert len(packed(pieces)) < in_one_go * 1.01
    words = NOISE[:20_000]  # twice within the window, and in two blocks
    behind = [TEXT[: PIECE - 20_000], words[:3000], b"".join([words[3000:], bytes(4000)]), words[:3000]]
    assert zlib.decompress(packed(behind), wbits=-15) == b"".join(behind)


def test_the_number_of_processors_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [TEXT[:PIECE], NOISE[:PIECE], TEXT, NOISE[:100], TEXT[:PIECE]]
    expected = packed(pieces)
    for count in (1, 2, 7):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, count=count: set(range(count)))
        assert packed(pieces) == expected


def test_a_bundle_of_pictures_and_text_is_read_by_us_and_by_tar(
    tmp_path: Path, write_tree: WriteTree
) -> None:
    files = {
        "manifest.yaml": b"resources: []\n",
        "a.png": NOISE,
        "b.txt": TEXT,
        "c.png": NOISE[:5000],
        "mixed.img": TEXT + NOISE + TEXT,
    }
    source = write_tree(tmp_path / "web", files)
    built = build_bundle(source, tmp_path / "web.tar.gz", name="web", version="1.4.0")

    assert NOISE[:60_000] in built.path.read_bytes()
    assert built.size < 2 * len(NOISE) + 5000 + len(TEXT)
    assert inspect(built.path) == built.description
    unpack(built.path, tmp_path / "unpacked")
    with tarfile.open(built.path) as tar:
        for name, data in files.items():
            assert (tmp_path / "unpacked" / name).read_bytes() == data
            member = tar.extractfile(name)
            assert member is not None
            assert member.read() == data


def test_archive_does_not_depend_on_the_build_directory(tmp_path: Path, write_tree: WriteTree) -> None:
    """The files alone determine the pieces of the tar and their compression."""
    files = {"manifest.yaml": b"resources: []\n", "a.png": NOISE, "b.txt": TEXT}
    archives = [
        build_bundle(
            write_tree(tmp_path / place / "web", dict(order)),
            tmp_path / place / "web.tar.gz",
            name="web",
            version="1.4.0",
        ).path.read_bytes()
        for place, order in (("one", files.items()), ("other", reversed(files.items())))
    ]
    assert archives[0] == archives[1]
