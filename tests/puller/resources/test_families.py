"""One row for each resource type (``tests/cases/families.yaml``), and the tests that every row has.

A new type without a row fails. So does a row whose type states other paths, names or contradictions.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.engine.transactions import Parts
from puller.errors import ManifestError
from puller.manifest.graph.host_catalog import HostCatalog
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.resources import locale, unit
from puller.resources.base import Context, Part, Resource
from puller.resources.files.file_or_tree import FileOrTree
from puller.resources.host import host_entry, hostname, timezone
from puller.resources.kernel import fstab, module_files
from puller.resources.owned_paths import owned_below
from puller.resources.packages import alternative
from puller.resources.packages.apt import AptLayout
from puller.resources.registry import find_remover, find_type, is_ours, type_names
from puller.resources.scaffolds.scaffold import Scaffold
from puller.resources.services import cron, unit_links
from puller.system.local import LocalSystem

DATA = yaml.load(Path(__file__).parents[2].joinpath("cases/families.yaml").read_text(), yaml.CSafeLoader)
ROWS: dict[str, dict[str, Any]] = DATA["types"]
OTHERS: dict[str, dict[str, Any]] = DATA["others"]
NATIVE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
Entry = dict[str, Any]


@pytest.fixture(autouse=True)
def system_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redirect the system directories that types write to into the directory of the test."""
    directory = str(tmp_path / "dir")
    monkeypatch.setattr(cron, "DIRECTORY", directory)
    monkeypatch.setattr(unit_links, "DIRECTORY", directory)
    monkeypatch.setattr(unit, "DIRECTORY", directory)
    monkeypatch.setattr(alternative, "DIRECTORY", directory)
    monkeypatch.setattr(module_files, "ROOT", directory)
    monkeypatch.setattr(host_entry, "HOSTS", f"{directory}/hosts")
    monkeypatch.setattr(hostname, "HOSTNAME", f"{directory}/hostname")
    monkeypatch.setattr(locale, "ETC", directory)
    monkeypatch.setattr(timezone, "ETC", directory)
    monkeypatch.setattr(fstab, "FSTAB", f"{directory}/fstab")
    monkeypatch.setattr(AptLayout, "root", directory)
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to("dir")
    for bundle in ("web", "base"):
        (tmp_path / bundle / "templates").mkdir(parents=True)
        (tmp_path / bundle / "templates" / "rendered").write_text("rendered")
        (tmp_path / bundle / "child.yaml").write_text("resources: []\n")


def placed(value: Any, tmp_path: Path, path: str = "") -> Any:
    """Return a value of the table with its placeholders replaced by directories of the test."""
    text = msgspec.json.encode(value).decode()
    for name, text_of in (
        ("DIR", str(tmp_path / "dir")),
        ("LINK", str(tmp_path / "link")),
        ("PATH", path),
        ("NATIVE", NATIVE),
    ):
        text = text.replace(name, text_of)
    return msgspec.json.decode(text)


def load(tmp_path: Path, *entries: Entry, bundle: str = "web") -> Manifest:
    beside = [other for entry in entries for name in entry for other in ROWS.get(name, {}).get("beside", ())]
    entries = (*placed(beside, tmp_path), *entries)
    path = tmp_path / bundle / "manifest.yaml"
    path.write_text(yaml.safe_dump({"resources": list(entries)}, sort_keys=False))
    return load_manifest(path, f"{bundle}/manifest.yaml", Inputs({}, {}))


def declared(type_name: str, tmp_path: Path, name: str = "", **more: Any) -> Entry:
    """Return the resource of a row, optionally with another name and further properties."""
    ((own, properties),) = placed(ROWS[type_name]["resource"], tmp_path).items()
    return {type_name: [{placed(name, tmp_path) or own: {**properties, **placed(more, tmp_path)}}]}


def test_every_type_has_a_row() -> None:
    assert {*ROWS} == {name for name in type_names() if is_ours(name)}


@pytest.mark.parametrize("type_name", ROWS)
def test_a_row_names_every_column(type_name: str) -> None:
    assert {"resource", "owned", "writes", "refused", "end", "removal"} <= ROWS[type_name].keys()


# Owned paths


def rows_with(column: str) -> list[str]:
    return [name for name, row in ROWS.items() if row.get(column)]


def make_owned(row: dict[str, Any], tmp_path: Path) -> list[str]:
    """Create the owned paths of a row. Return them relative to the purged directory."""
    paths = []
    for path in placed(row["owned"], tmp_path):
        place = Path(path, "inner") if path.endswith("/") else Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("owned")
        paths.append(str(place.relative_to(tmp_path / "dir")))
    return paths


def context_of(manifest: Manifest, tmp_path: Path) -> Context:
    pieces = Parts(manifest, noop=False)
    files = BundleFiles.of(tmp_path / "web")
    return Context(
        LocalSystem(), files, Scope({}, {}), lambda url: b"", {}, manifest.names_of, resources=pieces.all
    )


OWN = {"owner": os.geteuid(), "group": os.getegid()}
PURGES = [
    pytest.param("scaffold", "dir", Scaffold, {"source": "templates"}, id="scaffold-dir"),
    pytest.param("scaffold", "link", Scaffold, {"source": "templates"}, id="scaffold-link"),
    pytest.param("file", "dir", FileOrTree, {**OWN, "ensure": "directory", "mode": "0755"}, id="file-dir"),
]


@pytest.mark.parametrize(("purging", "spelling", "kind", "properties"), PURGES)
@pytest.mark.parametrize("type_name", rows_with("owned"))
def test_purge_leaves_paths_of_the_type(
    tmp_path: Path, type_name: str, purging: str, spelling: str, kind: Any, properties: Entry
) -> None:
    owned = make_owned(ROWS[type_name], tmp_path)
    (tmp_path / "dir/stray").write_text("stray")
    name = str(tmp_path / spelling)
    purger = {purging: [{name: {**properties, "purge": True}}]}
    manifest = load(tmp_path, declared(type_name, tmp_path), purger)
    purge: Any = next(
        declaration.properties
        for declaration in manifest.declarations
        if str(declaration.reference) == f"{purging}#{name}"
    )
    resource: Resource[Any, Any] = kind(purge, context_of(manifest, tmp_path))
    actual = resource.look()
    resource.change(resource.differences(actual), actual)
    assert not (tmp_path / "dir/stray").exists()
    assert [path for path in owned if not (tmp_path / "dir" / path).exists()] == []
    assert not resource.differences(resource.look())


@pytest.mark.parametrize("type_name", rows_with("owned"))
def test_forced_removal_is_refused_for_owned_paths(tmp_path: Path, type_name: str) -> None:
    make_owned(ROWS[type_name], tmp_path)
    manifest = load(tmp_path, declared(type_name, tmp_path))
    gone: Any = FileOrTree.properties_type(name=str(tmp_path / "dir"), ensure="absent", force=True)
    resource = FileOrTree(gone, context_of(manifest, tmp_path))
    actual = resource.look()
    differences = resource.differences(actual)
    with pytest.raises(Exception, match=f"cannot be removed: {type_name}#"):
        resource.noop_message(differences, actual)
    with pytest.raises(Exception, match=f"cannot be removed: {type_name}#"):
        resource.change(differences, actual)


def test_type_without_claims_keeps_its_name(tmp_path: Path) -> None:
    class ThirdParty(FileOrTree):
        type_name = "third_party"

        @classmethod
        def claims(cls, properties: Any) -> Any:
            return Resource.claims.__func__(cls, properties)  # type: ignore[attr-defined]

    properties: Any = ThirdParty.properties_type(name=str(tmp_path / "dir/kept"))
    context = context_of(load(tmp_path), tmp_path)
    part = Part("third_party#kept", ThirdParty, properties)
    owned = owned_below(
        str(tmp_path / "dir"), msgspec.structs.replace(context, resources=lambda: [part]), "scaffold#x"
    )
    assert owned.places == {"kept"}


# Canonical identity

SPELLED = [(name, spelling) for name, row in ROWS.items() for spelling in row.get("spellings", ())]


def references(manifest: Manifest | HostCatalog, type_name: str) -> list[str]:
    return [
        str(declaration.reference)
        for declaration in manifest.declarations
        if declaration.type.type_name == type_name
    ]


@pytest.mark.parametrize(("type_name", "spelling"), SPELLED)
def test_two_spellings_are_a_single_resource(tmp_path: Path, type_name: str, spelling: str) -> None:
    first, second = declared(type_name, tmp_path), declared(type_name, tmp_path, spelling)
    assert len(references(load(tmp_path, first, second), type_name)) == 1
    if type_name != "scaffold":  # A scaffold is rendered with the data of its bundle.
        base = load(tmp_path, first, bundle="base")
        assert len(references(HostCatalog.of([base, load(tmp_path, second)]), type_name)) == 1


@pytest.mark.parametrize(("type_name", "spelling"), SPELLED)
def test_two_spellings_have_to_agree(tmp_path: Path, type_name: str, spelling: str) -> None:
    first = declared(type_name, tmp_path)
    second = declared(type_name, tmp_path, spelling, **ROWS[type_name]["disagrees"])
    with pytest.raises(ManifestError, match=r"is declared twice, .* and the two differ: "):
        load(tmp_path, first, second)
    base, web = load(tmp_path, first, bundle="base"), load(tmp_path, second)
    with pytest.raises(ManifestError, match=r"is declared twice, .* and the two differ: "):
        HostCatalog.of([base, web])
    (tmp_path / "web/child.yaml").write_text(yaml.safe_dump({"resources": [second]}))
    with pytest.raises(ManifestError, match=r"is declared twice, .* and the two differ: "):
        load(tmp_path, first, {"apply": ["child.yaml"]})


@pytest.mark.parametrize("type_name", rows_with("distinct"))
def test_distinct_names_are_two_resources(tmp_path: Path, type_name: str) -> None:
    other: Entry = ROWS[type_name].get("differs", {})
    second = declared(type_name, tmp_path, ROWS[type_name]["distinct"], **other)
    assert len(references(load(tmp_path, declared(type_name, tmp_path), second), type_name)) == 2


# Contradictions with each other type that writes a path


def pairs() -> list[Any]:
    return [
        pytest.param(name, path, other, id=f"{name}-{number}-{other}")
        for name, row in ROWS.items()
        for number, path in enumerate(row["writes"])
        for other in OTHERS
        if other not in row.get("unites", ())
        if not is_same_object(row, name, other, path)
        if other != "archive" or other in row["refused"]  # the path is not a valid archive name
    ]


def is_same_object(row: dict[str, Any], name: str, other: str, path: str) -> bool:
    """Return whether the other resource is a second declaration of the row."""
    return [*OTHERS[other]] == [name] and path in row["resource"]


@pytest.mark.parametrize(("type_name", "path", "other"), pairs())
@pytest.mark.representatives(55)
def test_resources_at_a_path_contradict_as_listed(
    tmp_path: Path, type_name: str, path: str, other: str
) -> None:
    row = ROWS[type_name]
    first = declared(type_name, tmp_path)
    where = placed(path, tmp_path)
    ((kind, entries),) = placed(OTHERS[other], tmp_path, where).items()
    second = {kind: [entries]}
    for order in ([first, second], [second, first]):
        if other not in row["refused"]:
            load(tmp_path, *order)
            continue
        with pytest.raises(ManifestError) as raised:
            load(tmp_path, *order)
        text = "\n".join(map(str, raised.value.problems))
        assert f"{kind}#" in text
        assert f"{type_name}#" in text
    if other in row["refused"]:
        with pytest.raises(ManifestError):
            HostCatalog.of([load(tmp_path, first, bundle="base"), load(tmp_path, second)])


@pytest.mark.parametrize("type_name", rows_with("contents"))
def test_purge_of_a_filled_directory_is_refused(tmp_path: Path, type_name: str) -> None:
    where = placed(ROWS[type_name]["contents"], tmp_path)
    purge = {"file": [placed(OTHERS["purge"], tmp_path, where)["file"]]}
    with pytest.raises(ManifestError, match="another resource"):
        load(tmp_path, declared(type_name, tmp_path), purge)


# The end of a run, and removal


@pytest.mark.parametrize("type_name", ROWS)
def test_leftovers_of_the_type_are_removed_as_listed(type_name: str) -> None:
    assert (find_remover(type_name) is not None) is ROWS[type_name]["removal"]["leftover"]


@pytest.mark.parametrize("type_name", ROWS)
def test_subjects_of_the_type_are_as_listed(tmp_path: Path, type_name: str) -> None:
    kind = find_type(type_name)
    assert kind is not None
    manifest = load(tmp_path, declared(type_name, tmp_path))
    (declaration,) = [one for one in manifest.declarations if one.type is kind]
    listed = placed(ROWS[type_name]["end"]["subjects"], tmp_path)
    subjects = {*kind.subjects(declaration.properties)}
    assert {*listed} <= subjects
    # A later change at an owned path causes another check of the resource.
    for path in placed(ROWS[type_name]["owned"], tmp_path) if type_name != "service" else ():
        above = (subject for subject in subjects if subject.endswith("/"))
        assert path.rstrip("/") in subjects or any(f"{path}/".startswith(one) for one in above)
