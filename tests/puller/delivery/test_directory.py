"""A directory as a destination: atomic, readable for others, and safe against links of other users."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bundles.deadline import Deadline, DeadlineError
from bundles.errors import TransportError
from puller.config.report_destinations import DestinationOptions
from puller.delivery.destination import DirectoryDestination

NOBODY = 65534
NAME, RUN = "web01.example.com", "20261123T080000.000000Z"


if TYPE_CHECKING:
    from puller.config.configuration import Configuration


@pytest.fixture
def configuration() -> "Configuration":
    from puller.config.configuration import BundleChoice, Configuration

    return Configuration(site="/site", bundles=(BundleChoice(name="web"),))


def send(configuration: "Configuration", directory: Path, data: bytes = b"x", seconds: float = 10) -> None:
    destination = DirectoryDestination(configuration, DestinationOptions(directory=str(directory)))
    destination.send(NAME, RUN, data, Deadline(seconds))


def test_a_file_is_there_whole_and_for_everybody(configuration: "Configuration", tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        send(configuration, tmp_path)
        send(configuration, tmp_path, b"again")
    finally:
        os.umask(umask)
    path = tmp_path / NAME / f"{RUN}.json.gz"
    assert path.read_bytes() == b"again"
    assert [oct(item.stat().st_mode & 0o777) for item in (path, path.parent)] == ["0o644", "0o755"]
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_a_directory_that_is_not_there_is_not_made(configuration: "Configuration", tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        send(configuration, tmp_path / "not mounted")
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_the_host_is_not_followed(
    configuration: "Configuration", tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / NAME).symlink_to("elsewhere")
    with pytest.raises(OSError, match=NAME):
        send(configuration, tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.root
def test_a_link_of_another_user_leads_root_nowhere(configuration: "Configuration", tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    (theirs / "reports").symlink_to(ours)
    os.chown(theirs / "reports", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(TransportError, match="reports"):
        send(configuration, theirs / "reports")
    assert list(ours.iterdir()) == []


def test_a_link_of_the_file_is_replaced_and_not_written_through(
    configuration: "Configuration", tmp_path: Path
) -> None:
    (tmp_path / NAME).mkdir()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / NAME / f"{RUN}.json.gz").symlink_to(victim)
    send(configuration, tmp_path)
    assert victim.read_text() == "mine"
    assert not (tmp_path / NAME / f"{RUN}.json.gz").is_symlink()


def test_nothing_is_written_when_the_time_is_over(
    configuration: "Configuration", tmp_path: Path, monkeypatch: Any
) -> None:
    with pytest.raises(DeadlineError):
        send(configuration, tmp_path, seconds=0)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
