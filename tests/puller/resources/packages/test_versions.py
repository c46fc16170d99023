"""Version comparison, tested with documented examples and with thousands of pairs from the real dpkg and rpm."""

import itertools
import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.resources.packages.providers import DPKG, RPM, Order, Version, parse_version
from tests.support.rows import each_row

RELATIONS = {-1: "lt", 0: "eq", 1: "gt"}

DEBIAN = [
    "1.0~~ < 1.0~ < 1.0 = 1.0-0 < 1.0-1~bpo1 < 1.0-1 < 1.0-1+b1",
    "1.0-1 < 1.0-1ubuntu1 < 1.0-1+b1",
    "1.0 < 1.0a < 1.0+",
    "9:99-99 < 10:01-01",
    "a1b2d-d9 < a1b2d-d13",
    "2.36-9+deb12u9 < 2.36-9+deb12u10",
    "01.0 = 1.0 = 1.00",
    "1.0~rc1 < 1.0 < 1.0.1",
    "1.0A < 1.0a",
    "1.18446744073709551615 < 1.18446744073709551616 < 1.99999999999999999999999999",
    "0:1.0 = 1.0 < 1:0.1",
]
RED_HAT = [
    "1.0~rc1 < 1.0 < 1.0^git1 < 1.0.1",
    "1.0^ < 1.0a < 1.0.0",
    "1.0-1.el9 < 1.0-1.el9_2 < 1.0-2.el9 < 1.0-10.el9",
    "1.0_1-1 = 1.0.1-1",
    "1.001 = 1.1",
    "1.0-1 < 1:0.1-1",
    "0:1.0-1 = 1.0-1",
    "1.a < 1.1",
    "5.14.0-70.el9 < 5.14.0-427.el9",
    "1.18446744073709551615 < 1.18446744073709551616",
]


def pairs_of(chains: list[str]) -> list[tuple[str, int, str]]:
    """Return every ordered pair in chains such as ``a < b = c``."""
    pairs = []
    for chain in chains:
        words = chain.split()
        ranks = list(itertools.accumulate((word == "<" for word in words[1::2]), initial=0))
        for (first, one), (second, two) in itertools.product(zip(words[::2], ranks, strict=True), repeat=2):
            pairs.append((first, (one > two) - (one < two), second))
    return pairs


@each_row(("first", "relation", "second"), pairs_of(DEBIAN))
def test_debian_versions_compare_as_documented(first: str, relation: int, second: str) -> None:
    """The reference's own order was wrong for a fifth of the pairs, and clamped numbers at 64 bits."""
    assert DPKG.compare(first, second) == relation


@each_row(("first", "relation", "second"), pairs_of(RED_HAT))
def test_rpm_versions_compare_as_documented(first: str, relation: int, second: str) -> None:
    """The reference used one order for all systems, without tilde, epoch or release."""
    assert RPM.compare(first, second) == relation


def test_upper_and_lower_case_differ() -> None:
    """The reference treated versions that differ only in case as equal, whatever followed."""
    assert DPKG.compare("1.0a-2", "1.0A-1") == 1
    assert RPM.compare("1.0a-2", "1.0A-1") == 1


@each_row("order", [DPKG, RPM], ids=["dpkg", "rpm"])
@each_row(
    ("installed", "requested", "relation"),
    [
        ("1.24.0-1.el9", "1.24.0-1.el9", 0),
        ("1.24.0-1.el9", "1.24.0", 0),
        ("1.24.0-1.el9", "1:1.24.0-1.el9", -1),
        ("1:1.24.0-1.el9", "1:1.24.0-1.el9", 0),
        ("1:1.24.0-1.el9", "1.24.0-1.el9", 0),
        ("1:1.24.0-1.el9", "1.24.0", 0),
        ("1:1.24.0-1.el9", "1:1.24.0", 0),
        ("1:1.24.0-1.el9", "2:1.0", -1),
        ("1:1.24.0-1.el9", "1.25", -1),
        ("1:1.24.0-1.el9", "1.23.9", 1),
        ("1.24.0-1.el9", "1.24.0-2.el9", -1),
        ("1.24.0-1.el9", "0:1.24.0", 0),
        ("1.24.0~rc1-1", "1.24.0", -1),
    ],
)
def test_a_request_without_epoch_or_release_matches_any(
    order: Order, installed: str, requested: str, relation: int
) -> None:
    """The reference compared requests with the bare version, so ``1.24.0-1.el9`` was never in sync."""
    assert order.compare_to_request(installed, requested) == relation


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1:2.0-3-4", Version("1", "2.0-3", "4")),
        ("2.0", Version(None, "2.0", None)),
        ("a:2.0-1", Version(None, "a:2.0", "1")),
        (":2.0", Version(None, ":2.0", None)),
        ("2.0-", Version(None, "2.0", "")),
    ],
)
def test_a_version_is_taken_apart(text: str, version: Version) -> None:
    assert parse_version(text) == version


VERSIONS = st.from_regex(r"([0-9]{1,3}:)?[0-9][0-9A-Za-z.+~^]{0,8}(-[0-9A-Za-z.+~^]{1,5})?", fullmatch=True)


@pytest.mark.parametrize("order", [DPKG, RPM], ids=["dpkg", "rpm"])
@given(first=VERSIONS, second=VERSIONS, third=VERSIONS)
def test_an_order_is_total(order: Order, first: str, second: str, third: str) -> None:
    assert order.compare(first, first) == 0
    assert order.compare(first, second) == -order.compare(second, first)
    low, middle, high = sorted((first, second, third), key=order.key)
    assert order.compare(low, middle) <= 0
    assert order.compare(low, high) <= 0


@pytest.mark.parametrize("order", [DPKG, RPM], ids=["dpkg", "rpm"])
@given(st.text())
def test_any_text_has_a_place(order: Order, text: str) -> None:
    assert order.compare(text, text) == 0


def test_a_very_long_number_compares() -> None:
    assert DPKG.compare("9" * 5000, "9" * 4999) == 1
    assert RPM.compare("9" * 5000, "9" * 4999) == 1


# Comparisons with the real tools. Most pairs are near misses: a version, and a copy with a few changed characters.


def generated_pairs(count: int, digits: str, characters: str) -> list[tuple[str, str]]:
    seed = int(os.environ.get("PULLER_TEST_SEED", "20240229"))
    chance = random.Random(seed)

    def text(characters: str, least: int, most: int) -> str:
        return "".join(chance.choices(characters, k=chance.randint(least, most)))

    def version() -> str:
        epoch = f"{chance.randint(0, 2)}:" if chance.random() < 0.2 else ""
        release = f"-{text(characters, 1, 5)}" if chance.random() < 0.6 else ""
        return f"{epoch}{chance.choice(digits)}{text(characters, 0, 7)}{release}"

    def altered(version: str) -> str:
        start = version.index(":") + 2 if ":" in version else 1
        for _ in range(chance.randint(0, 2)):
            at = chance.randint(start, len(version))
            version = version[:at] + chance.choice(characters) + version[at + chance.randint(0, 1) :]
        return version

    return [(first, altered(first)) for first in (version() for _ in range(count))]


@pytest.mark.packages
def test_dpkg_agrees_on_thousands_of_pairs() -> None:
    pairs = generated_pairs(2500, digits="0019", characters="0019aZ.+~")
    lines = "".join(f"{first} {RELATIONS[DPKG.compare(first, second)]} {second}\n" for first, second in pairs)
    script = 'while read -r a is b; do dpkg --compare-versions "$a" "$is" "$b" || echo "not $a $is $b"; done'
    done = subprocess.run(["sh", "-c", script], input=lines, capture_output=True, text=True, check=True)
    assert not [line for line in done.stderr.splitlines() if "bad syntax" not in line]
    assert not done.stdout.splitlines()


@pytest.mark.packages
def test_rpm_agrees_on_thousands_of_pairs(tmp_path: Path) -> None:
    pairs = generated_pairs(5000, digits="0019aZ", characters="0019aZ.+~^_")
    assert rpm_compares(pairs, tmp_path) == [RPM.compare(first, second) for first, second in pairs]


def rpm_compares(pairs: list[tuple[str, str]], directory: Path) -> list[int]:
    """Compare all pairs in one process, with a script for rpm's own interpreter."""
    script = directory / "compare.lua"
    script.write_text(
        "".join(f'print(rpm.vercmp("{first}", "{second}") .. "\\n")\n' for first, second in pairs)
    )
    command = ["rpm", "--eval", f"%{{lua: dofile('{script}')}}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]
