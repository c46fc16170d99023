"""When stored metadata expire. Only metadata that a host needs count."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bundles.client.revalidation import first_expiry
from bundles.format.index import index_path
from bundles.format.site_targets import bin_of

BITS = 4


def bin_name(bundle: str) -> str:
    return bin_of(index_path(bundle), BITS)


def store(trust: Path, **days: int) -> None:
    """Write metadata that expire on the given days of November."""
    for name, day in days.items():
        signed: dict[str, Any] = {"_type": name, "expires": f"2026-11-{day:02}T00:00:00Z"}
        if name == "targets":
            signed["delegations"] = {"keys": {}, "succinct_roles": {"bit_length": BITS, "keyids": []}}
        (trust / f"{name}.json").write_text(json.dumps({"signatures": [], "signed": signed}))


@pytest.fixture
def trust(tmp_path: Path) -> Path:
    store(
        tmp_path, root=25, timestamp=24, snapshot=26, targets=27, **{bin_name("web"): 28, bin_name("db"): 3}
    )
    return tmp_path


def november(day: int) -> datetime:
    return datetime(2026, 11, day, tzinfo=UTC)


def test_earliest_expiry_counts(trust: Path) -> None:
    assert first_expiry(trust, ["web"]) == november(24)
    store(trust, snapshot=20)
    assert first_expiry(trust, ["web"]) == november(20)
    store(trust, **{bin_name("web"): 19})
    assert first_expiry(trust, ["web"]) == november(19)


def test_expiry_of_an_unread_bin_does_not_count(trust: Path) -> None:
    assert bin_name("web") != bin_name("db")
    assert first_expiry(trust, ["web"]) == november(24)
    assert first_expiry(trust, ["web", "db"]) == november(3)


@pytest.mark.parametrize(
    "harm",
    [
        Path.unlink,
        lambda path: path.write_text("{"),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_text('{"signed": {"expires": "2026-11-24T00:00:00"}}'),
        lambda path: path.write_text('{"signed": {"expires": 5}}'),
    ],
)
@pytest.mark.parametrize("name", ["root", "timestamp", "snapshot", "targets"])
def test_metadata_that_are_not_whole_say_nothing(
    trust: Path, harm: Callable[[Path], object], name: str
) -> None:
    harm(trust / f"{name}.json")
    assert first_expiry(trust, ["web"]) is None


def test_a_number_of_bins_that_cannot_be_is_damage(trust: Path) -> None:
    path = trust / "targets.json"
    path.write_text(path.read_text().replace('"bit_length": 4', '"bit_length": 1000'))
    assert first_expiry(trust, ["web"]) is None


def test_a_host_without_metadata_has_no_expiry(tmp_path: Path) -> None:
    assert first_expiry(tmp_path / "missing", ["web"]) is None
