"""A pin holds a bundle at a version until it is removed, and may not contradict the configuration."""

from pathlib import Path

import pytest

from puller.errors import ConfigurationError
from puller.run.policy.holds import Pins
from puller.state import Directories


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    return Directories(tmp_path / "state", tmp_path / "run")


def load(directories: Directories) -> Pins:
    return Pins.load(directories, pytest.fail)


def test_a_pin_holds_in_later_runs_until_it_is_removed(directories: Directories) -> None:
    pins = load(directories)
    pins.set("web", "1.3.0")
    pins.set("web", "1.4.0")
    pins.set("base", "2")
    assert load(directories).entries == pins.entries == {"web": "1.4.0", "base": "2"}
    assert load(directories).find("db") is None
    assert load(directories).remove("web") == "1.4.0"
    assert load(directories).remove("web") is None
    assert load(directories).entries == {"base": "2"}
    assert directories.pins.stat().st_mode & 0o777 == 0o600


def test_a_dry_run_writes_nothing(directories: Directories) -> None:
    pins = Pins.load(directories, pytest.fail, noop=True)
    pins.set("web", "1.4.0")
    assert pins.find("web") == "1.4.0"
    assert not directories.state.exists()


@pytest.mark.parametrize(
    ("pinned", "configured", "version"),
    [
        (None, None, None),
        ("1.4.0", None, "1.4.0"),
        (None, "1.4.0", "1.4.0"),
        ("1.4.0", "1.4.0", "1.4.0"),
    ],
)
def test_a_pin_and_the_configuration_may_agree(
    directories: Directories, pinned: str | None, configured: str | None, version: str | None
) -> None:
    pins = load(directories)
    if pinned:
        pins.set("web", pinned)
    assert pins.version_for("web", configured) == version
    assert pins.version_for("base", None) is None


def test_pin_conflicting_with_the_configuration_names_both(
    directories: Directories,
) -> None:
    pins = load(directories)
    pins.set("web", "1.4.0")
    with pytest.raises(ConfigurationError) as error:
        pins.version_for("web", "1.5.0")
    assert str(error.value) == (
        "web: is pinned to 1.4.0, but the configuration has version 1.5.0; "
        "run `puller unpin web` to use the configuration"
    )


@pytest.mark.parametrize(
    "damage",
    [b"", b'{"format": 1', b'{"format": 2, "bundles": {}}', b'{"format": 1, "bundles": {"web": 1}}', b"\xff"],
)
def test_damage_says_loudly_that_pins_are_lost(directories: Directories, damage: bytes) -> None:
    load(directories).set("web", "1.4.0")
    directories.pins.write_bytes(damage)
    notes: list[str] = []
    assert Pins.load(directories, notes.append, noop=True).entries == {}
    assert directories.pins.read_bytes() == damage
    assert Pins.load(directories, notes.append).entries == {}
    assert directories.pins.with_name("pins.json.unreadable").read_bytes() == damage
    assert len(notes) == 2
    for note in notes:
        assert "PINS ARE LOST: pinned bundles follow their channel again" in note
