"""A user with an open or mapped file can still write to its inode, whatever owner and mode it gets later.

* A file gets a new inode with the compared bytes if it is taken from a user, closed to writers, or made a program.
* The dry run predicts the change, and a second run changes nothing.
"""

from __future__ import annotations

import io
import mmap
import os
import stat
import struct
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.errors import ChangedMeanwhile, ResourceError
from puller.resources.base import Context
from puller.resources.files.leftover_files import Original, Restored, RestoredProperties
from puller.system.local import LocalSystem
from puller.system.protocol import Attributes, requires_new_file

pytestmark = pytest.mark.root

JOE = 65534
CONTENT = b"#!/bin/sh\necho good\n"
EVIL = b"#!/bin/sh\necho evil\n"
RUN = "run"


class Place(NamedTuple):
    """A host where ``home`` belongs to Joe, and the bundle to root."""

    home: Path
    bundle: Path
    execute: Callable[..., tuple[int, str]]

    @property
    def path(self) -> Path:
        """Return the managed file."""
        return self.home / "app" / RUN

    def put(self, uid: int, gid: int, mode: int) -> None:
        """Create the managed file with the expected content before the run."""
        self.path.write_bytes(CONTENT)
        os.chown(self.path, uid, gid)
        self.path.chmod(mode)

    def apply(self, resource: dict[str, Any], *options: str) -> tuple[int, str]:
        manifest = self.bundle / "manifest.yaml"
        manifest.write_text(
            yaml.safe_dump({"resources": [{kind: [named] for kind, named in resource.items()}]})
        )
        state = ("--state-directory", str(self.bundle.parent / "state"))
        return self.execute("apply", str(manifest), *state, *options)


@pytest.fixture
def place(tmp_path: Path, execute: Callable[..., tuple[int, str]]) -> Place:
    place = Place(tmp_path / "home", tmp_path / "bundle", execute)
    place.path.parent.mkdir(parents=True)
    (place.bundle / "tree").mkdir(parents=True)
    (place.bundle / "tree" / RUN).write_bytes(CONTENT)
    for path in (place.home, place.path.parent):
        os.chown(path, JOE, JOE)
    return place


@contextmanager
def held_open(path: Path) -> Iterator[Callable[[], None]]:
    """Open and map a file. Return a function that writes to it through both."""
    descriptor = os.open(path, os.O_RDWR)
    mapped = mmap.mmap(descriptor, 0)

    def write() -> None:
        os.pwrite(descriptor, EVIL, 0)
        mapped[:] = EVIL
        mapped.flush()

    yield write
    mapped.close()
    os.close(descriptor)


Declare = Callable[[Place, str], dict[str, Any]]


def file(**properties: Any) -> Declare:
    def declare(place: Place, mode: str) -> dict[str, Any]:
        return {"file": {str(place.path): {"owner": "root", "group": "root", "mode": mode, **properties}}}

    return declare


def tree(**properties: Any) -> Declare:
    def declare(place: Place, mode: str) -> dict[str, Any]:
        provided = {"ensure": "directory", "recurse": True, "owner": "root", "group": "root", "mode": mode}
        return {"file": {str(place.path.parent): {**provided, **properties}}}

    return declare


def scaffold(place: Place, mode: str) -> dict[str, Any]:
    provided = {"source": "tree", "owner": "root", "group": "root", "mode": mode}
    return {"scaffold": {str(place.path.parent): provided}}


def scaffold_with_commands(place: Place, mode: str) -> dict[str, Any]:
    resource = scaffold(place, mode)
    resource["scaffold"][str(place.path.parent)]["post"] = [{"*": "sh -n {}"}]
    return resource


KNOWN: dict[str, Declare] = {
    "content": file(content=CONTENT.decode()),
    "source": file(source=f"tree/{RUN}"),
    "checksum": file(source="http://127.0.0.1:9/run", checksum=sha256(CONTENT).hexdigest()),
    "tree": tree(source="tree"),
    "scaffold": scaffold,
    "scaffold with commands": scaffold_with_commands,
}
UNKNOWN: dict[str, Declare] = {
    "attributes": file(),
    "exists": file(ensure="exists"),
    "not created": file(create=False),
    "tree without source": tree(),
}
TAKEN = {
    "from a user": ((JOE, JOE, 0o755), "0755"),
    "from a group": ((0, JOE, 0o775), "0755"),
    "from another group": ((0, JOE, 0o775), "0775"),
    "from others": ((0, 0, 0o757), "0755"),
}
GIVEN = {
    "setuid": ((0, 0, 0o755), "4755"),
    "setgid": ((0, 0, 0o755), "2755"),
    "setuid of a user": ((JOE, JOE, 0o4755), "4755"),
    "executable": ((0, 0, 0o644), "0755"),
}


def assert_not_held(place: Place, resource: dict[str, Any], mode: str) -> None:
    before = place.path.stat()
    with held_open(place.path) as write:
        code, predicted = place.apply(resource, "--noop")
        assert (code, "1 would change" in predicted) == (0, True)
        assert place.path.stat().st_ino == before.st_ino
        assert place.apply(resource)[0] == 0
        write()
    after = place.path.stat()
    assert place.path.read_bytes() == CONTENT
    assert after.st_ino != before.st_ino
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (0, 0, int(mode, 8))
    assert "1 stable" in place.apply(resource)[1]
    assert os.listdir(place.path.parent) == [RUN], "nothing is left under a temporary name"


@pytest.mark.attack("races.held-open")
@pytest.mark.parametrize("change", [*TAKEN, *GIVEN])
@pytest.mark.parametrize("kind", KNOWN)
@pytest.mark.representatives(20)
def test_a_program_is_not_written_by_its_former_owner(kind: str, change: str, place: Place) -> None:
    before, mode = {**TAKEN, **GIVEN}[change]
    place.put(*before)
    assert_not_held(place, KNOWN[kind](place, mode), mode)


@pytest.mark.attack("races.held-open")
@pytest.mark.parametrize("change", TAKEN)
@pytest.mark.parametrize("kind", UNKNOWN)
def test_unmanaged_content_is_copied_once_and_stays(kind: str, change: str, place: Place) -> None:
    before, mode = TAKEN[change]
    place.put(*before)
    assert_not_held(place, UNKNOWN[kind](place, mode), mode)


@pytest.mark.attack("races.held-open")
def test_an_archive_is_not_written_by_its_former_owner(place: Place) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a"))
    data, path = buffer.getvalue(), place.home / "app.tar"
    path.write_bytes(data)
    os.chown(path, JOE, JOE)
    url = {"url": "http://127.0.0.1:9/app.tar", "checksum": sha256(data).hexdigest()}
    resource = {"archive": {str(path): {**url, "owner": "root", "group": "root"}}}
    with held_open_any(path) as write:
        assert place.apply(resource)[0] == 0
        write()
    assert path.read_bytes() == data
    assert path.stat().st_uid == 0
    assert "1 stable" in place.apply(resource)[1]


@contextmanager
def held_open_any(path: Path) -> Iterator[Callable[[], None]]:
    descriptor = os.open(path, os.O_RDWR)

    def write() -> None:
        os.pwrite(descriptor, EVIL, 0)

    yield write
    os.close(descriptor)


@pytest.mark.attack("races.held-open")
def test_trial_owner_cannot_write_a_restored_file(place: Place) -> None:
    """A trial release gave the program to a user. The rollback takes it back."""
    place.put(JOE, JOE, 0o755)
    copy = place.bundle / "copy"
    copy.write_bytes(CONTENT)
    properties = RestoredProperties(
        name=str(place.path), original=Original("present", 0, 0, 0o4755), copy=str(copy)
    )
    resource = Restored(properties, context_of(place))
    with held_open(place.path) as write:
        actual = resource.look()
        resource.change(resource.differences(actual), actual)
        write()
    assert place.path.read_bytes() == CONTENT
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o4755
    assert not resource.differences(resource.look())


def context_of(place: Place) -> Context:
    def fetch(url: str) -> bytes:
        raise AssertionError(url)

    return Context(LocalSystem(), BundleFiles.of(place.bundle), Scope({}, {}), fetch, {}, lambda _: [])


# Attributes of the new file


@pytest.mark.attack("races.held-open")
def test_a_new_file_has_no_capability_and_no_list_of_users(place: Place) -> None:
    place.put(0, 0, 0o755)
    entries = [(1, 7, -1), (2, 7, JOE), (4, 5, -1), (0x10, 7, -1), (0x20, 5, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    capability = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
    try:
        os.setxattr(place.path, "system.posix_acl_access", acl)
        os.setxattr(place.path, "security.capability", capability)
        os.setxattr(place.path, "user.kept", b"yes")
    except OSError:
        pytest.skip("this file system has no such labels")
    assert place.apply(file(content=CONTENT.decode())(place, "4775"))[0] == 0
    names = {*os.listxattr(place.path)}
    assert not names & {"system.posix_acl_access", "security.capability"}
    assert "user.kept" in names


def test_a_new_file_keeps_the_time_of_its_content(place: Place) -> None:
    place.put(JOE, JOE, 0o644)
    os.utime(place.path, ns=(10**18, 10**18))
    assert place.apply(file(content=CONTENT.decode())(place, "0644"))[0] == 0
    assert place.path.stat().st_mtime_ns == 10**18


def test_other_changes_keep_the_inode(place: Place) -> None:
    """A log file stays open in its daemon if only its readers change."""
    place.put(0, 0, 0o644)
    inode = place.path.stat().st_ino
    assert place.apply(file(create=False)(place, "0640"))[0] == 0
    assert place.path.stat().st_ino == inode


def test_a_file_that_is_written_to_is_not_copied(place: Place) -> None:
    place.put(JOE, JOE, 0o644)
    system, path = LocalSystem(), str(place.path)
    looked_at = system.lstat(path)
    assert looked_at is not None
    with open(path, "ab") as log:
        log.write(b"one more line\n")
    with pytest.raises(ChangedMeanwhile):
        system.set_attributes(path, Attributes(0, 0, 0o644), looked_at)
    assert place.path.read_bytes() == CONTENT + b"one more line\n"


@pytest.mark.attack("races.hard-link-given")
def test_a_tree_gives_a_linked_file_a_new_inode(place: Place) -> None:
    other = place.bundle.parent / "other"
    other.write_bytes(CONTENT)
    place.path.hardlink_to(other)
    before = other.stat()
    assert place.apply(tree(source="tree")(place, "0640"))[0] == 0
    after = other.stat()
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)
    assert place.path.stat().st_ino != before.st_ino
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("before", "after", "is_new"),
    [
        ((0, 0, 0o644), (JOE, JOE, 0o644), False),
        ((0, 0, 0o664), (0, 0, 0o664), False),
        ((0, JOE, 0o664), (0, JOE, 0o660), False),
        ((0, JOE, 0o664), (0, 0, 0o664), True),
        ((JOE, JOE, 0o600), (JOE, 0, 0o600), False),
        ((JOE, JOE, 0o600), (1, JOE, 0o600), True),
        ((0, 0, 0o4755), (0, 0, 0o4711), False),
        ((0, 0, 0o4755), (0, JOE, 0o4755), True),
        ((0, 0, 0o755), (0, 0, 0o700), False),
        ((0, 0, 0o700), (0, 0, 0o711), True),
    ],
)
def test_inode_stays_when_write_access_stays(
    before: tuple[int, int, int], after: tuple[int, int, int], is_new: bool, place: Place
) -> None:
    place.put(*before)
    assert requires_new_file(place.path.lstat(), Attributes(*after)) is is_new


# Set-id bits require content chosen by the publisher

SET_ID = ("4755", "2755", "u+s", "ug=rwxs", "a=rwXs", "g+s,u+x")


@pytest.mark.attack("trees.set-id")
@pytest.mark.parametrize("mode", SET_ID)
@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_set_id_bit_needs_managed_content(kind: str, mode: str, place: Place) -> None:
    place.put(JOE, JOE, 0o755)
    code, output = place.apply(UNKNOWN[kind](place, mode))
    assert code == 13
    assert f"mode is {mode!r}, which gives a set-id bit to files whose content is not managed" in output
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o755


@pytest.mark.attack("trees.set-id")
@pytest.mark.parametrize("kind", ["source", "template", "tree", "directory of another"])
def test_a_set_id_program_is_not_copied_from_a_user(kind: str, place: Place) -> None:
    theirs = place.home / "theirs"
    theirs.mkdir()
    (theirs / RUN).write_bytes(CONTENT)
    os.chown(theirs / RUN, JOE, JOE)
    if kind != "directory of another":
        os.chown(theirs, JOE, JOE)
    declared = {
        "source": file(source=str(theirs / RUN)),
        "template": file(template=str(theirs / RUN)),
        "tree": tree(source=str(theirs)),
        "directory of another": tree(source=str(theirs)),
    }[kind]
    noop, run = (place.apply(declared(place, "4755"), *options) for options in (["--noop"], []))
    for code, output in (noop, run):
        assert code != 0
        assert "of a set-id file is not trusted" in output
        assert "put the file into the bundle" in output
    assert not place.path.exists()
    assert place.apply(declared(place, "0755"))[0] == 0


@pytest.mark.attack("trees.set-id")
def test_a_scaffold_of_set_id_files_is_in_the_bundle(place: Place) -> None:
    resource = scaffold(place, "4755")
    resource["scaffold"][str(place.path.parent)]["source"] = str(place.home)
    code, output = place.apply(resource)
    assert code == 13
    assert "the templates of set-id files must be in the bundle" in output


@pytest.mark.attack("races.held-open")
def test_a_forged_note_does_not_make_content_right(place: Place) -> None:
    """A user copies the note of a post command to a file with other content."""
    resource = scaffold_with_commands(place, "0755")
    resource["scaffold"][str(place.path.parent)]["post"] = [{"*": "sed -i s/good/better/ {}"}]
    assert place.apply(resource)[0] == 0
    note = os.getxattr(place.path, "user.puller.scaffold").split()[0]
    place.path.unlink()
    place.put(JOE, JOE, 0o755)
    place.path.write_bytes(EVIL)
    os.setxattr(place.path, "user.puller.scaffold", note + b" " + sha256(EVIL).hexdigest().encode())
    assert place.apply(resource)[0] == 0
    assert place.path.read_bytes() == CONTENT.replace(b"good", b"better")


def test_a_file_that_cannot_be_replaced_says_why(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put(JOE, JOE, 0o644)
    monkeypatch.setattr("puller.system.local_paths.mount_points", lambda: [str(place.path)])
    resource = file(create=False)(place, "0644")
    for options in (["--noop"], []):
        code, output = place.apply(resource, *options)
        assert code != 0
        assert "is a mount point, which cannot be replaced" in output


def test_the_attributes_of_an_unknown_owner_are_refused(place: Place) -> None:
    place.put(JOE, JOE, 0o644)
    system, path = LocalSystem(), str(place.path)
    looked_at = system.lstat(path)
    assert looked_at is not None
    os.link(place.path, place.home / "second")
    status = system.lstat(path)
    assert status is not None
    with pytest.raises(ResourceError, match="has 2 names"):
        system.set_attributes(path, Attributes(0, 0, 0o644), status)


# Paths that a user can replace


@pytest.mark.attack("races.swap")
def test_a_copy_below_a_home_is_not_validated(place: Place) -> None:
    """The directory belongs to root, but a user can replace it."""
    os.chown(place.path.parent, 0, 0)
    resource = file(content=CONTENT.decode(), validate="true {}")(place, "0644")
    code, output = place.apply(resource)
    assert code != 0
    assert "because others could exchange the new file while it is verified" in output
    assert not place.path.exists()


@pytest.mark.attack("state.planted")
@pytest.mark.parametrize("name", ["", "new/deep"])
def test_a_state_directory_of_a_user_is_not_used(name: str, place: Place) -> None:
    state = place.home / name if name else place.home
    resource = file(content="x")(place, "0644")
    code, output = place.apply(resource, "--state-directory", str(state))
    assert (code, "is not used" in output) == (78, True)
    assert not place.path.exists()


@pytest.mark.attack("races.swap")
def test_a_file_that_is_exchanged_is_not_kept_for_a_trial(place: Place) -> None:
    """A user moves a secret of root to a managed path, and would own its restored copy."""
    place.put(JOE, JOE, 0o644)
    system, path = LocalSystem(), str(place.path)
    status = system.lstat(path)
    secret = place.path.with_name("secret")
    secret.write_bytes(EVIL)
    os.replace(secret, place.path)
    with pytest.raises(ChangedMeanwhile):
        b"".join(system.read_chunks(path, status))
