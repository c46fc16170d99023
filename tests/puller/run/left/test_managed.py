"""The record of managed resources: its size, its cost, and its durability."""

from pathlib import Path

import pytest

from puller.manifest.graph.host_catalog import HostCatalog
from puller.manifest.manifest import Manifest
from puller.reporting.report import Event, State
from puller.resources.packages.package import Package
from puller.run.leftovers.leftovers import InForce, Leftovers
from puller.run.leftovers.removals import removal
from puller.state import Directories
from tests.puller.conftest import Load
from tests.support.rows import each_row

IN_FORCE = {"web": InForce("1.0.0", "a" * 64)}


def concluded(manifest: Manifest, directories: Directories) -> Leftovers:
    """Return the leftovers after a run in which all resources were in sync."""
    leftovers = Leftovers(directories, pytest.fail)
    leftovers.before(HostCatalog.of([manifest]), ["web"], IN_FORCE)
    events = [
        Event(type=declaration.type.type_name, name=declaration.properties.name, state=State.STABLE)
        for declaration in manifest.declarations
    ]
    leftovers.after(events)
    return leftovers


@pytest.mark.everything
def test_ten_thousand_resources_take_less_than_two_megabytes(load: Load, tmp_path: Path) -> None:
    names = [f"/srv/data/of/some/application/with/a/long/path/file-{number:05d}" for number in range(10_000)]
    manifest = load(
        "resources: [{file: [{defaults: {ensure: absent}}, "
        + ", ".join(
            f"{{{name}: {{ensure: directory, owner: '0', group: '0', mode: '0755'}}}}" for name in names
        )
        + "]}]"
    )
    directories = Directories(tmp_path / "state", tmp_path / "run")
    concluded(manifest, directories)
    assert directories.managed.stat().st_size < 2_000_000


@each_row(
    ("reference", "is_taken_away"),
    [
        ("file#/a", True),
        ("scaffold#/a", True),
        ("archive#/a.tar.gz", True),
        ("package#nginx", True),
        ("service#nginx", False),
        ("exec#true", False),
        ("apply#child.yaml", False),
        ("gone#type", False),
    ],
)
def test_removable_leftovers_depend_on_the_type(reference: str, is_taken_away: bool) -> None:
    result = removal(reference)
    assert (result is not None) is is_taken_away
    if result is not None:
        assert (result.reference, result.properties.ensure) == (reference, "absent")
        assert [*result.type.problems(result.properties)] == []


def test_a_package_is_taken_away_by_its_own_type() -> None:
    result = removal("package#nginx")
    assert result is not None
    assert result.type is Package


def test_truncated_line_of_a_killed_run_is_skipped(load: Load, tmp_path: Path) -> None:
    directories = Directories(tmp_path / "state", tmp_path / "run")
    directories.state.mkdir(mode=0o700)
    directories.makings.write_bytes(b'["web","file#/a",true]\n["web","file#/b"')
    manifest = load("resources: [{exec: {name: 'true'}}]")
    leftovers = concluded(manifest, directories)
    assert [(item.reference, item.made) for item in leftovers.managed.left("web")] == [("file#/a", True)]
