"""The archive resource: every current state with every desired state, and rejected properties."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import pwd
import shutil
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from foundation.problems import ProblemCode
from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import MutationInNoop, ResourceError
from puller.manifest.manifest import Manifest
from puller.manifest.problems import find_problems
from puller.reporting.report import State
from puller.reporting.run_log import Log
from puller.resources.archives import archive_receipts
from puller.resources.archives.archive import Archive
from puller.resources.base import PropertyError, Resource
from puller.system import commands
from puller.system.local import LocalSystem
from tests.simulators import fileserver as simulator

if TYPE_CHECKING:
    from tests.simulators.fileserver import FileServer

Make = Callable[..., Resource[Any, Any]]
Converge = Callable[[Resource[Any, Any]], list[str]]


CONTENTS = {"bin/app": "#!/bin/sh\necho new\n", "README": "read me\n"}
OLD = {"bin/app": "#!/bin/sh\necho old\n"}


def packed(files: dict[str, str], kind: str = "tar.gz") -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return buffer.getvalue()
    modes = {
        "tar.gz": "w:gz",
        "tgz": "w:gz",
        "tar.xz": "w:xz",
        "txz": "w:xz",
        "tar.bz2": "w:bz2",
        "tbz2": "w:bz2",
    }
    mode: Any = modes.get(kind, "w")
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o755
            tar.addfile(member, io.BytesIO(text.encode()))
    if kind in ("tar.zst", "tzst"):
        return subprocess.run(
            ["zstd", "-qc"], input=buffer.getvalue(), capture_output=True, check=True
        ).stdout
    return buffer.getvalue()


GOOD = packed(CONTENTS)
SHA256 = hashlib.sha256(GOOD).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with simulator.serving() as server:
        server.files["/app.tar.gz"] = GOOD
        yield server


class Place:
    """The paths of a test, and the properties of its archive."""

    def __init__(self, directory: Path, url: str, owner: str, group: str) -> None:
        (directory / "downloads").mkdir()
        self.archive = directory / "downloads/app.tar.gz"
        self.parent = directory / "opt/app"
        self.app = self.parent / "bin/app"
        self._common = {"url": f"{url}/app.tar.gz", "owner": owner, "group": group}

    def properties(self, **additional: Any) -> dict[str, Any]:
        return {"name": str(self.archive), **self._common, **additional}

    def extracting(self, **additional: Any) -> dict[str, Any]:
        return self.properties(extract_parent=str(self.parent), **additional)


@pytest.fixture
def place(tmp_path: Path, server: FileServer, ours: dict[str, str]) -> Place:
    return Place(tmp_path, server.url, ours["owner"], ours["group"])


def predict(resource: Resource[Any, Any]) -> str:
    try:
        actual = resource.look()
        differences = resource.differences(actual)
        return resource.noop_message(differences, actual) if differences else "stable"
    except ResourceError as error:
        return f"failure: {error}"


def everything_below(directory: Path) -> dict[str, Any]:
    result = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        result[str(path.relative_to(directory))] = (status.st_mode, status.st_ctime_ns, content)
    return result


# Every current state, built from an archive and extracted files, with every desired state

ARCHIVES = {"none": None, "right": GOOD, "other": packed(OLD)}
EXTRACTED = ("nothing", "ours", "ours of an old archive", "half of ours", "by somebody else")
WANTED: dict[str, dict[str, Any]] = {
    "absent": {"ensure": "absent"},
    "the archive": {},
    "the archive, known": {"checksum": SHA256},
    "extracted": {"extract_parent": True},
    "extracted, known": {"extract_parent": True, "checksum": SHA256},
    "extracted, with creates": {"extract_parent": True, "creates": True},
    "extracted, with creates, known": {"extract_parent": True, "creates": True, "checksum": SHA256},
    "cleaned up": {"extract_parent": True, "creates": True, "cleanup": True},
    "cleaned up, known": {"extract_parent": True, "creates": True, "cleanup": True, "checksum": SHA256},
}
EVERY_PAIR = list(itertools.product(ARCHIVES, EXTRACTED, WANTED))


def wanted_properties(place: Place, desired: str) -> dict[str, Any]:
    additional = dict(WANTED[desired])
    if "extract_parent" in additional:
        additional["extract_parent"] = str(place.parent)
    if "creates" in additional:
        additional["creates"] = str(place.app)
    return place.properties(**additional)


def bring_into(place: Place, make: Make, server: FileServer, archive: str, extracted: str) -> None:
    if extracted == "by somebody else":
        place.app.parent.mkdir(parents=True)
        place.app.write_text("somebody else's")
    elif extracted != "nothing":
        server.files["/app.tar.gz"] = packed(OLD) if extracted == "ours of an old archive" else GOOD
        apply(make(Archive, place.extracting()))
        server.files["/app.tar.gz"] = GOOD
    if extracted == "half of ours":
        known = archive_receipts.Receipts().place(str(place.parent))
        (filling,) = known.fillings
        place.app.unlink()
        begun = (msgspec.structs.replace(filling, finished=False),)
        archive_receipts.Receipts().save(msgspec.structs.replace(known, fillings=begun))
    place.archive.unlink(missing_ok=True)
    if (content := ARCHIVES[archive]) is not None:
        place.archive.write_bytes(content)
    server.requests.clear()


def apply(resource: Resource[Any, Any]) -> list[str]:
    actual = resource.look()
    if differences := resource.differences(actual):
        resource.change(differences, actual)
        assert not resource.differences(resource.look())
    return [str(difference) for difference in differences]


@pytest.mark.parametrize(("archive", "extracted", "wanted"), EVERY_PAIR)
@pytest.mark.representatives(28)
def test_every_state_converges_in_a_run_as_predicted(
    make: Make, place: Place, server: FileServer, tmp_path: Path, archive: str, extracted: str, wanted: str
) -> None:
    bring_into(place, make, server, archive, extracted)
    properties = wanted_properties(place, wanted)
    before = everything_below(tmp_path)
    predicted = predict(make(Archive, properties, noop=True))
    assert everything_below(tmp_path) == before
    assert server.asked == [], "noop fetches nothing"

    done = apply(make(Archive, properties))
    assert (predicted == "stable") == (done == [])
    assert ("downloaded" in predicted) == (server.asked == ["/app.tar.gz"])
    if wanted == "absent":
        assert not place.archive.exists()
    if "extracted" in wanted or "cleaned" in wanted:
        assert place.app.exists()
    if "cleaned" in wanted:
        assert not place.archive.exists()
    if "known" in wanted and place.archive.exists():
        assert hashlib.sha256(place.archive.read_bytes()).hexdigest() == SHA256
    if "known" in wanted and extracted.startswith(("ours", "half")) and "archive" not in wanted:
        assert place.app.read_text() == CONTENTS["bin/app"], (
            "what is in place is of the archive that is declared"
        )

    server.requests.clear()
    before = everything_below(tmp_path)
    assert apply(make(Archive, properties)) == []
    assert everything_below(tmp_path) == before, "the second run changes nothing"
    assert server.asked == []


@pytest.mark.parametrize(
    ("archive", "extracted", "wanted", "message"),
    [
        # The matrix of the design documents: archive, creates, checksum, cleanup.
        ("none", "nothing", "extracted, with creates", "Would have downloaded. Would have extracted"),
        ("right", "nothing", "extracted, with creates, known", "Would have extracted"),
        ("right", "by somebody else", "extracted, with creates, known", "stable"),
        ("none", "by somebody else", "cleaned up, known", "stable"),
        ("right", "by somebody else", "cleaned up, known", "Would have cleaned up"),
        # The remaining rows of that table.
        ("none", "nothing", "absent", "stable"),
        ("right", "nothing", "absent", "Would have removed"),
        ("none", "nothing", "the archive", "Would have downloaded"),
        ("other", "nothing", "the archive, known", "Would have downloaded"),
        ("other", "nothing", "the archive", "stable"),
        ("none", "by somebody else", "extracted, with creates", "stable"),
        ("none", "nothing", "cleaned up", "Would have downloaded. Would have extracted. Would have cleaned up"),
        ("right", "nothing", "cleaned up", "Would have extracted. Would have cleaned up"),
        ("other", "by somebody else", "extracted, with creates, known", "Would have downloaded. Would have extracted"),
        # Rows for archives with a receipt.
        ("right", "nothing", "extracted", "Would have extracted"),
        ("right", "ours", "extracted", "stable"),
        ("right", "half of ours", "extracted, with creates", "Would have extracted"),
        ("none", "ours", "extracted, with creates", "stable"),
        ("none", "ours of an old archive", "cleaned up, known",
         "Would have downloaded. Would have extracted. Would have cleaned up"),
        ("other", "ours", "cleaned up, known", "Would have cleaned up"),
    ],
)  # fmt: skip
def test_noop_messages(
    make: Make, place: Place, server: FileServer, archive: str, extracted: str, wanted: str, message: str
) -> None:
    bring_into(place, make, server, archive, extracted)
    assert predict(make(Archive, wanted_properties(place, wanted), noop=True)) == message


# Extraction


def test_a_failed_extraction_is_not_taken_for_a_finished_one(
    make: Make, place: Place, server: FileServer
) -> None:
    """In the reference the archive stays, the next run is stable, and its contents are never extracted."""
    place.parent.mkdir(parents=True)
    place.parent.joinpath("bin").write_text("in the way")
    with pytest.raises(
        ResourceError, match=f"{place.parent}/bin is a regular file, the archive has a directory there"
    ):
        apply(make(Archive, place.extracting()))
    assert not (place.parent / "README").exists(), "nothing is in place when not all can be"
    place.parent.joinpath("bin").unlink()
    assert apply(make(Archive, place.extracting())) == [f"contents half extracted → {place.parent}"]
    assert place.app.read_text() == CONTENTS["bin/app"]
    assert server.asked == ["/app.tar.gz"], "the archive was right, and is not fetched again"


def test_unverified_unreadable_archive_is_fetched_again(make: Make, place: Place, server: FileServer) -> None:
    server.files["/app.tar.gz"] = GOOD[:-20]
    with pytest.raises(ResourceError, match=r"app\.tar\.gz: is cut off: its compressed data is incomplete"):
        apply(make(Archive, place.extracting()))
    server.files["/app.tar.gz"] = GOOD
    apply(make(Archive, place.extracting()))
    assert place.app.read_text() == CONTENTS["bin/app"]


def test_an_archive_that_cannot_be_read_is_foretold(make: Make, place: Place) -> None:
    place.archive.write_bytes(GOOD[:-20])
    assert predict(make(Archive, place.extracting(), noop=True)) == (
        f"failure: {place.archive}: is cut off: its compressed data is incomplete"
    )


def test_files_that_are_there_are_replaced_and_others_stay(make: Make, place: Place) -> None:
    """The reference's unzip skips files that exist, and fails."""
    place.app.parent.mkdir(parents=True)
    place.app.write_text("old")
    (place.parent / "kept").write_text("kept")
    apply(make(Archive, place.extracting()))
    assert place.app.read_text() == CONTENTS["bin/app"]
    assert (place.parent / "kept").read_text() == "kept"


NEEDS_ZSTD = pytest.mark.skipif(not shutil.which("zstd"), reason="the zstd program is not installed")
KINDS = [
    *("tar.gz", "tgz", "tar.xz", "txz", "tar.bz2", "tbz2", "tar", "zip"),
    *(pytest.param(kind, marks=NEEDS_ZSTD) for kind in ("tar.zst", "tzst")),
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_archive_is_extracted(make: Make, place: Place, server: FileServer, kind: str) -> None:
    server.files[f"/app.{kind}"] = packed(CONTENTS, kind)
    properties = place.extracting(
        name=str(place.archive.with_name(f"app.{kind}")), url=f"{server.url}/app.{kind}"
    )
    apply(make(Archive, properties))
    assert {name: (place.parent / name).read_text() for name in CONTENTS} == CONTENTS


@NEEDS_ZSTD
def test_a_dry_run_reports_the_missing_zstd_program(
    make: Make, place: Place, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/app.tar.zst"] = packed(CONTENTS, "tar.zst")
    properties = place.extracting(
        name=str(place.archive.with_name("app.tar.zst")), url=f"{server.url}/app.tar.zst"
    )
    monkeypatch.setattr(commands, "SEARCH_PATH", str(place.parent))
    predicted = predict(make(Archive, properties, noop=True))
    assert predicted.startswith("failure: the program zstd is missing")
    with pytest.raises(ResourceError, match="the program zstd is missing"):
        apply(make(Archive, properties))
    assert server.asked == [], "the error comes before the download"


# Leading components of paths


VERSIONED = {f"app-1.4/{name}": text for name, text in CONTENTS.items()}


def contents_of(place: Place) -> dict[str, str]:
    return {
        str(path.relative_to(place.parent)): path.read_text()
        for path in place.parent.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_leading_components_are_removed(make: Make, place: Place, server: FileServer, kind: str) -> None:
    server.files[f"/app.{kind}"] = packed({**VERSIONED, "pax_global_header": "left out"}, kind)
    properties = place.extracting(
        name=str(place.archive.with_name(f"app.{kind}")),
        url=f"{server.url}/app.{kind}",
        creates=str(place.app),
        strip_components=1,
    )
    assert predict(make(Archive, properties, noop=True)) == "Would have downloaded. Would have extracted"
    assert apply(make(Archive, properties))
    assert contents_of(place) == CONTENTS
    assert apply(make(Archive, properties)) == []
    assert predict(make(Archive, properties, noop=True)) == "stable"


def test_another_number_of_components_replaces_the_contents(
    make: Make, place: Place, server: FileServer
) -> None:
    server.files["/app.tar.gz"] = packed(VERSIONED)
    apply(make(Archive, place.extracting()))
    assert contents_of(place) == VERSIONED
    for count, result in ((1, CONTENTS), (0, VERSIONED)):
        properties = place.extracting(strip_components=count)
        assert predict(make(Archive, properties, noop=True)).startswith("Would have extracted")
        (difference,) = apply(make(Archive, properties))
        assert difference.startswith("strip_components ")
        assert contents_of(place) == result, "the members of the earlier extraction are gone"
        assert apply(make(Archive, properties)) == []


def test_stripping_too_much_fails_and_changes_nothing(make: Make, place: Place, server: FileServer) -> None:
    properties = place.extracting(strip_components=2, checksum=SHA256)
    with pytest.raises(ResourceError, match="has no path of more than 2 components"):
        apply(make(Archive, properties))
    assert not place.parent.exists() or not list(place.parent.iterdir())


def test_contents_that_were_removed_come_back(make: Make, place: Place, server: FileServer) -> None:
    apply(make(Archive, place.extracting()))
    (place.parent / "README").unlink()
    assert apply(make(Archive, place.extracting())) == [
        f"contents without {place.parent}/README → {place.parent}"
    ]


def test_contents_move_to_another_declared_directory(make: Make, place: Place, tmp_path: Path) -> None:
    apply(make(Archive, place.extracting()))
    other = str(tmp_path / "srv")
    assert apply(make(Archive, place.properties(extract_parent=other))) == [f"contents: {other}"]
    assert (tmp_path / "srv/README").exists()


def test_archive_without_its_creates_path_is_not_cleaned_up(
    make: Make, place: Place, server: FileServer
) -> None:
    properties = place.extracting(creates=str(place.parent / "bin/other"), cleanup=True)
    with pytest.raises(ResourceError, match=r"creates is .*/bin/other, and the archive does not bring it"):
        apply(make(Archive, properties))
    assert place.archive.exists()


@pytest.mark.root
def test_owner_and_group_are_those_of_the_manifest_inside_too(make: Make, place: Place) -> None:
    """The reference's tar, as root, keeps the ids and setuid bits of the archive's author."""
    apply(make(Archive, place.extracting(owner="nobody", group=12345)))
    nobody = pwd.getpwnam("nobody").pw_uid
    paths = [place.archive, place.app, place.app.parent, place.parent / "README"]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in paths} == {(nobody, 12345)}
    assert place.parent.stat().st_uid == 0, (
        "a directory that was made on the way is not a part of the archive"
    )


# The archive itself


def test_it_is_readable_by_its_owner_alone(make: Make, place: Place) -> None:
    apply(make(Archive, place.properties()))
    assert stat.S_IMODE(place.archive.stat().st_mode) == 0o600


@pytest.mark.root
@pytest.mark.parametrize("checksum", [None, SHA256], ids=["no checksum", "a checksum"])
def test_an_owner_is_repaired_without_a_download(
    make: Make, place: Place, server: FileServer, checksum: str | None
) -> None:
    """The reference always fails if a checksum is declared, and downloads the whole archive again otherwise."""
    known = {} if checksum is None else {"checksum": checksum}
    apply(make(Archive, place.extracting(**known)))
    os.chown(place.archive, 12345, 12345)
    server.requests.clear()
    properties = place.extracting(**known)
    assert predict(make(Archive, properties, noop=True)) == "Would have updated attributes"
    assert apply(make(Archive, properties)) == ["owner 12345 → root", "group 12345 → root"]
    assert (place.archive.stat().st_uid, place.archive.stat().st_gid) == (0, 0)
    assert server.asked == []


def test_another_checksum_never_reaches_the_path(make: Make, place: Place, server: FileServer) -> None:
    server.files["/app.tar.gz"] = packed(OLD)
    with pytest.raises(
        ResourceError, match=r"app\.tar\.gz: has sha256 [0-9a-f]{64}, expected " + SHA256
    ) as raised:
        apply(make(Archive, place.properties(checksum=SHA256)))
    assert raised.value.code is ProblemCode.CHECKSUM_MISMATCH
    assert os.listdir(place.archive.parent) == []


def test_a_new_checksum_brings_the_new_archive_and_its_contents(
    make: Make, place: Place, server: FileServer
) -> None:
    server.files["/app.tar.gz"] = packed(OLD)
    digest = hashlib.sha256(server.files["/app.tar.gz"]).hexdigest()
    common = {"creates": str(place.app), "cleanup": True}
    apply(make(Archive, place.extracting(checksum=digest, **common)))
    server.files["/app.tar.gz"] = GOOD
    assert apply(make(Archive, place.extracting(checksum=SHA256, **common))) == [
        "ensure absent → present",
        f"contents sha256 {digest[:8]} → sha256 {SHA256[:8]}",
        "cleanup not done → done",
    ]
    assert place.app.read_text() == CONTENTS["bin/app"]


def test_an_archive_that_is_in_order_is_not_read_again(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(make(Archive, place.extracting(checksum=SHA256)))
    resource = make(Archive, place.extracting(checksum=SHA256))
    monkeypatch.setattr(resource.context.system, "read_chunks", lambda path: pytest.fail(f"{path} was read"))
    assert apply(resource) == []


def test_change_with_equal_size_and_time_is_noticed(make: Make, place: Place) -> None:
    apply(make(Archive, place.extracting(checksum=SHA256)))
    before = place.archive.stat()
    place.archive.write_bytes(bytes(len(GOOD)))
    os.utime(place.archive, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert apply(make(Archive, place.extracting(checksum=SHA256)))[0].startswith("checksum ")


@pytest.mark.parametrize("content", [b"", b"{garbage", b'{"format": 2}', b"[]"])
def test_unreadable_receipt_is_set_aside(make: Make, place: Place, state: Path, content: bytes) -> None:
    for more in ({}, {"creates": str(place.app)}):
        apply(make(Archive, place.extracting(**more)))
        for receipt in (*state.glob("*.place.json"), *state.glob("%*tar.gz.json")):
            receipt.write_bytes(content)
        why = "'unknown, because the receipt is unreadable'"
        assert apply(make(Archive, place.extracting(**more))) == [f"contents {why} → {place.archive}"]
    assert {path.name.rpartition(".")[2] for path in state.iterdir()} >= {"json", "unreadable"}


def test_a_link_in_its_place_is_replaced_and_not_followed(make: Make, place: Place, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    place.archive.symlink_to(tmp_path / "precious")
    assert apply(make(Archive, place.properties())) == ["ensure symbolic link → present"]
    assert not place.archive.is_symlink()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_fifo_in_its_place_hangs_nobody(make: Make, place: Place) -> None:
    os.mkfifo(place.archive)
    assert apply(make(Archive, place.properties(checksum=SHA256))) == ["ensure fifo → present"]


@pytest.mark.parametrize("ensure", ["present", "absent"])
def test_a_directory_in_its_place_is_left_alone(make: Make, place: Place, ensure: str) -> None:
    place.archive.mkdir()
    detail = "replaced" if ensure == "present" else "removed"
    sentence = f"{place.archive} is a directory, which is not {detail} by an archive"
    assert predict(make(Archive, place.properties(ensure=ensure), noop=True)) == f"failure: {sentence}"
    with pytest.raises(ResourceError, match=sentence):
        apply(make(Archive, place.properties(ensure=ensure)))


# Dry runs


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"owner": "no-such-user"}, "owner is 'no-such-user', an unknown user"),
        ({"group": "no-such-group"}, "group is 'no-such-group', an unknown group"),
        ({"name": "/no/such/directory/app.tar.gz"}, "directory /no/such/directory does not exist"),
        ({"extract_parent": "/etc/passwd/below"}, "/etc/passwd is not a directory"),
    ],
)
def test_failure_is_known_before_the_download(
    make: Make, place: Place, server: FileServer, more: dict[str, str], sentence: str
) -> None:
    """The reference looks up the owner only after the download, so its dry run misses the failure."""
    assert predict(make(Archive, place.properties(**more), noop=True)) == f"failure: {sentence}"
    with pytest.raises(ResourceError, match=sentence):
        apply(make(Archive, place.properties(**more)))
    assert server.asked == []


def test_noop_assumes_results_of_earlier_resources(make: Make, place: Place) -> None:
    resource = make(Archive, place.properties(name="/no/such/directory/app.tar.gz"), noop=True)
    resource.context.system.expect("/no/such/directory", "directory")
    assert predict(resource) == "Would have downloaded"
    assert resource.context.system.exists("/no/such/directory/app.tar.gz")


def test_a_noop_system_refuses_the_repairs_that_need_no_download(make: Make, place: Place) -> None:
    place.archive.write_bytes(GOOD)
    resource = make(Archive, place.properties(ensure="absent"), noop=True)
    actual = resource.look()
    with pytest.raises(MutationInNoop):
        resource.change(resource.differences(actual), actual)


# Secrets


def test_no_secret_is_shown_when_a_download_fails(make: Make, place: Place, server: FileServer) -> None:
    server.credentials = "deploy:right"
    secrets = {"username": "deploy", "password": "canary-password", "headers": {"X-Token": "canary-header"}}
    resource = make(Archive, place.properties(url=f"{server.url}/app.tar.gz?sig=canary-query", **secrets))
    with pytest.raises(ResourceError) as failure:
        apply(resource)
    assert "status 401 Unauthorized: wrong or missing credentials" in str(failure.value)
    shown = f"{failure.value!r} {failure.value} {resource.properties!r} {resource.properties}"
    assert "canary-password" not in shown
    assert "canary-header" not in shown
    assert "canary-query" not in str(failure.value)
    ((path, headers),) = server.requests
    assert (path, headers["x-token"]) == ("/app.tar.gz?sig=canary-query", "canary-header")


@pytest.mark.parametrize("credentials", ["deploy:canary-password", "deploy:other"])
def test_no_secret_gets_into_a_report_or_log(
    load: Callable[..., Manifest], place: Place, server: FileServer, tmp_path: Path, credentials: str
) -> None:
    server.credentials = credentials
    secrets = {"username": "deploy", "password": "canary-password", "headers": {"X-Token": "canary-header"}}
    properties = place.properties(url=f"{server.url}/app.tar.gz?sig=canary-query", **secrets)
    manifest = load(json.dumps({"resources": [{"archive": properties}]}))
    log = io.StringIO()
    settings = Settings(listener=lambda _, event: Log(log).event(event), diffs=True)
    (event,) = Engine(
        manifest, LocalSystem(), lambda url: b"", PendingRefreshes(tmp_path / "o", "web"), settings
    ).apply()
    assert event.state is (State.CHANGED if "canary" in credentials else State.FAILED)
    assert "canary" not in msgspec.json.encode(event).decode()
    assert "canary" not in log.getvalue()
    receipts_kept = [path.read_text() for path in (tmp_path / "state").glob("*")]
    assert not any("canary" in text for text in receipts_kept)


@pytest.mark.parametrize("name", ["password", "headers"])
def test_a_secret_that_is_no_text_is_refused_without_being_shown(make: Make, place: Place, name: str) -> None:
    value: Any = 8675309 if name == "password" else {"X-Token": 8675309}
    sentences = [str(problem) for problem in find_problems(Archive, place.properties(**{name: value}))]
    assert len(sentences) == 1
    assert "is not text; quote it" in sentences[0]
    assert "8675309" not in sentences[0]


# At load


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ensure": "extracted"}, "ensure is 'extracted', expected present or absent"),
        ({"name": "app.tar.gz"}, r"name is 'app\.tar\.gz', expected an absolute path"),
        ({"name": "/srv/../app.tar.gz"}, "name is .* expected an absolute path"),
        ({"name": "/srv/app.tar.lz"}, r"name is .*, expected a name that ends in \.tar\.gz, \.tgz, "),
        ({"name": "/srv/.zip"}, "name is .*, expected a name that ends in"),
        ({"url": None}, "url is missing; it is required unless ensure is absent"),
        ({"url": "/srv/app.tar.gz"}, "url is .*, expected an http:// or https:// URL"),
        ({"url": "ftp://example.org/app.tar.gz"}, "url is .*, expected an http:// or https:// URL"),
        ({"url": "http:///app.tar.gz"}, "url is .*, expected an http:// or https:// URL"),
        ({"url": "http://example.org:x/app.tar.gz"}, "url is .*: Port could not be cast"),
        ({"url": "https://example.org/"}, "url is .*, expected a URL that ends in"),
        ({"url": "https://example.org/app"}, "url is .*, expected a URL that ends in"),
        ({"url": "https://example.org/app.zip"}, "url is .*, which is a zip, and name is a tar.gz"),
        (
            {"url": "https://u:canary@example.org/app.rar?canary"},
            r"url is 'https://\*\*\*@example.org/app.rar', expected",
        ),
        ({"owner": None}, "owner is missing; it is required unless ensure is absent"),
        ({"group": ""}, "group is missing"),
        ({"checksum": "abc"}, "checksum is 'abc', expected 64 lower-case hexadecimal digits"),
        ({"creates": "bin/app"}, "creates is 'bin/app', expected an absolute path"),
        ({"extract_parent": "opt"}, "extract_parent is 'opt', expected an absolute path"),
        ({"cleanup": True}, "cleanup wants extract_parent"),
        ({"cleanup": True, "extract_parent": "/opt"}, "cleanup wants creates"),
        ({"username": "deploy"}, "username and password require each other"),
        ({"headers": {"X Y": "z"}}, "headers has 'X Y', whose name or value is not valid in a header"),
        ({"headers": {"X": "a\nEvil: b"}}, "headers has 'X', whose name or value"),
        ({"timeout": 0}, "timeout is 0, expected a positive duration"),
    ],
)  # fmt: skip
def test_properties_that_make_no_sense_are_refused_at_load(
    make: Make, place: Place, properties: dict[str, Any], message: str
) -> None:
    """The reference accepts relative paths, and detects an invalid scheme only during the run."""
    with pytest.raises(PropertyError, match=message) as refusal:
        make(Archive, place.properties(**properties))
    assert "canary" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("/srv/app.tgz", "https://example.org/app.tar.gz"),
        ("/srv/APP.TAR.GZ", "https://example.org/v1/app.tgz?token=x#part"),
        ("/srv/app.zip", "http://user:word@example.org/App.ZIP"),
    ],
)
def test_names_of_a_kind(make: Make, place: Place, name: str, url: str) -> None:
    assert make(Archive, place.properties(name=name, url=url))


def test_absent_needs_the_name_alone(make: Make, place: Place) -> None:
    """The reference requires a URL and an owner even for removal."""
    place.archive.write_bytes(GOOD)
    resource = make(Archive, {"name": str(place.archive), "ensure": "absent"})
    assert apply(resource) == ["ensure present → absent"]
