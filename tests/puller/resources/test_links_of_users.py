"""Links that an ordinary user creates at or above a managed path, and hard links, in runs by root.

* One rule holds for all types: Puller never writes, changes, removes or runs files through a link if the user who can
  have created it lacks write access to the target. The resource fails and names the link, and a dry run reports the
  same error.
* A file with several hard links, which may belong to another user, is never given away.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from puller.errors import ChangedMeanwhile, ResourceError
from puller.system.local import LocalSystem
from puller.system.local_paths import open_safely, resolve
from puller.system.protocol import Attributes

if TYPE_CHECKING:
    from tests.support.stories import Host
    from tests.support.sweeps import Sweep

pytestmark = pytest.mark.root

JOE = 65534
ROOT = {"owner": "root", "group": "root", "mode": "0644"}
ROOTS = Attributes(0, 0, 0o644)


class Place(NamedTuple):
    """A host where ``home`` belongs to Joe, ``victim`` to root."""

    home: Path
    victim: Path
    directory: Path
    """The directory of the manifest."""
    execute: Callable[..., tuple[int, str]]

    def joe(self, *command: str | Path, group: int = JOE) -> None:
        """Run a command as Joe in ``home``."""
        subprocess.run(command, cwd=self.home, user=JOE, group=group, extra_groups=[], check=True)

    def apply(self, resource: dict[str, Any], *options: str) -> tuple[int, str]:
        manifest = self.directory / "manifest.yaml"
        manifest.write_text(
            yaml.safe_dump({"resources": [{kind: [named] for kind, named in resource.items()}]})
        )
        state = ("--state-directory", str(self.directory / "state"))
        return self.execute("apply", str(manifest), *state, *options)


@pytest.fixture
def place(tmp_path: Path, execute: Callable[..., tuple[int, str]]) -> Iterator[Place]:
    """Return the host, and check after the test that ``victim`` is unchanged."""
    place = Place(tmp_path / "home", tmp_path / "victim", tmp_path / "bundle", execute)
    for directory in (place.home, place.victim, place.directory):
        directory.mkdir()
    (place.victim / "conf").mkdir()
    for path in ("passwd", "conf/app.conf"):
        (place.victim / path).write_text("precious\n")
    (place.directory / "templates").mkdir()
    (place.directory / "templates" / "app.conf").write_text("app\n")
    pack(place.directory / "app-1.0.tar", {"app.conf": b"app\n"})
    os.chown(place.home, JOE, JOE)
    before = picture(place.victim)
    yield place
    assert picture(place.victim) == before


def pack(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def picture(directory: Path) -> list[tuple[Any, ...]]:
    status = [(path, path.lstat()) for path in [directory, *sorted(directory.rglob("*"))]]
    return [
        (path, s.st_ino, s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns, s.st_ctime_ns) for path, s in status
    ]


# Every type that changes a path, with a path below a link ``site``, or with the link itself.

Declare = Callable[[Place], dict[str, Any]]


def file(path: str, **properties: Any) -> Declare:
    return lambda place: {"file": {str(place.home / path): {**ROOT, **properties}}}


def scaffold(path: str, **properties: Any) -> Declare:
    return lambda place: {"scaffold": {str(place.home / path): {"source": "templates", **properties}}}


def archive(name: str, parent: str) -> Declare:
    """Return a declaration of an archive that exists already, so that no download is needed."""

    def declare(place: Place) -> dict[str, Any]:
        archive, data = place.directory.parent / name, (place.directory / "app-1.0.tar").read_bytes()
        if not archive.exists():
            archive.write_bytes(data)
        properties = {"url": "http://127.0.0.1:9/app-1.0.tar", "checksum": sha256(data).hexdigest()}
        where = {"extract_parent": str(place.home / parent), "owner": "root", "group": "root"}
        return {"archive": {str(archive): {**properties, **where}}}

    return declare


def fetched(name: str) -> Declare:
    properties = {"url": "http://127.0.0.1:9/app-1.0.tar", "owner": "root", "group": "root"}
    return lambda place: {"archive": {str(place.home / name): properties}}


def command(cwd: str) -> Declare:
    return lambda place: {"exec": {"touch here": {"cwd": str(place.home / cwd)}}}


EVERY: dict[str, Declare] = {
    "a file that is new": file("site/new", content="x"),
    "a file that is there": file("site/passwd", content="x"),
    "a file whose attributes differ": file("site/passwd", owner="daemon"),
    "a file to be written once": file("site/new", ensure="exists", content="x"),
    "a file that is as it should be": file("site/passwd", content="precious\n"),
    "a file to be removed": file("site/passwd", ensure="absent"),
    "a file that is not there, to be removed": file("site/nothing", ensure="absent"),
    "a directory": file("site/new", ensure="directory"),
    "a directory whose mode differs": file("site/conf", ensure="directory", mode="0700"),
    "a directory with parents": file("site/new/deep", ensure="directory"),
    "a directory to be removed": file("site/conf", ensure="absent", force=True),
    "a scaffold at the link": scaffold("site"),
    "a scaffold at the link, with purge": scaffold("site", purge=True),
    "a scaffold at the link, to be removed": scaffold("site/conf", ensure="absent"),
    "a scaffold below the link": scaffold("site/conf"),
    "a scaffold below the link, with purge": scaffold("site/conf", purge=True),
    "a scaffold in a new directory": scaffold("site/new/deep"),
    "a scaffold below the link, to be removed": scaffold("site/conf", ensure="absent"),
    "an archive below the link": fetched("site/app.tar"),
    "an archive to be removed": lambda place: {
        "archive": {str(place.home / "site" / "app.tar"): {"ensure": "absent"}}
    },
    "the contents of an archive at the link": archive("app.tar", "site"),
    "the contents of an archive below the link": archive("app.tar", "site/conf"),
    "the contents of an archive in a new directory": archive("app.tar", "site/new/deep"),
    "a command that works there": command("site"),
    "a command that works below it": command("site/conf"),
}


@pytest.mark.attack("races.user-link")
@pytest.mark.parametrize("declared", EVERY)
@pytest.mark.representatives(11)
def test_user_link_into_a_foreign_directory_is_not_followed(declared: str, place: Place) -> None:
    place.joe("ln", "-s", place.victim, "site")
    assert_refused(
        place, EVERY[declared](place), "the link 'site' of user 65534 leads to a directory of user 0"
    )


@pytest.mark.attack("races.user-link")
@pytest.mark.parametrize("declared", EVERY)
@pytest.mark.representatives(11)
def test_root_link_moved_by_a_user_is_not_followed(declared: str, place: Place) -> None:
    """Only its parent directory distinguishes it from a link created by root."""
    (place.home / "mine").symlink_to(place.victim)
    place.joe("mv", "mine", "site")
    message = "the link 'site' in a directory of user 65534 leads to a directory of user 0"
    assert_refused(place, EVERY[declared](place), message)


def assert_refused(place: Place, resource: dict[str, Any], message: str) -> None:
    """Check that the dry run and the real run fail with the same message and change nothing."""
    before = picture(place.home)
    dry, foretold = place.apply(resource, "--noop")
    status, output = place.apply(resource)
    assert f"{message}, so it is not followed" in output
    assert (dry, status) == (4, 4)
    assert message in foretold
    assert picture(place.home) == before


@pytest.mark.attack("races.user-link")
def test_root_link_with_a_second_name_belongs_to_the_linker(place: Place) -> None:
    """If hard links are not protected, any user can hard-link any symbolic link, even in a sticky directory."""
    place.home.chmod(0o1777)
    os.chown(place.home, 0, 0)
    (place.directory / "link").symlink_to(place.victim)
    os.link(place.directory / "link", place.home / "site", follow_symlinks=False)
    message = "the link 'site' in a directory writable by others (mode 1777) leads to a directory of user 0"
    with pytest.raises(ResourceError) as refused, open_safely(str(place.home / "site")):
        pass
    assert message in str(refused.value)
    (place.directory / "link").unlink()
    assert resolve(str(place.home / "site")) == str(place.victim), (
        "in /tmp, nobody can move what root has put there"
    )


@pytest.mark.attack("races.user-link")
@pytest.mark.parametrize("mode", [0o775, 0o777, 0o757])
def test_link_in_a_writable_directory_leads_to_writable_paths(mode: int, place: Place) -> None:
    os.chown(place.home, 0, 50)
    place.home.chmod(mode)
    (place.home / "mine").symlink_to(place.victim)
    place.joe("mv", "mine", "site", group=50 if mode & 0o020 else JOE)
    message = (
        f"in a directory writable by others (mode {mode:04o}) leads to a directory of user 0 that is not"
    )
    assert_refused_as(place, file("site/new", content="x")(place), message)
    (place.home / "site").unlink()
    (place.home / "as-open").mkdir()
    os.chown(place.home / "as-open", 0, 50)
    (place.home / "as-open").chmod(mode)
    (place.home / "site").symlink_to("as-open")
    assert place.apply(file("site/new", content="x")(place))[0] == 0
    assert (place.home / "as-open" / "new").read_text() == "x"


def test_links_that_only_root_can_have_put_there_are_followed(place: Place) -> None:
    """Also if root's own group may write, as after a ``umask 002``."""
    for directory, link in ((place.directory, "site"), (place.home, "far")):
        (directory / link).symlink_to(place.directory / "real")
    os.chown(place.home, 0, 0)
    place.home.chmod(0o775)
    (place.directory / "real").mkdir()
    assert place.apply(file("far/new", content="x")(place))[0] == 0
    assert resolve(str(place.directory / "site" / "new")) == str(place.directory / "real" / "new")


def test_user_link_to_own_directories_is_followed(place: Place) -> None:
    place.joe("mkdir", "data")
    place.joe("ln", "-s", "data", "site")
    (place.home / "data" / "conf").mkdir()
    assert place.apply(file("site/conf/app.conf", content="x")(place))[0] == 0
    assert (place.home / "data" / "conf" / "app.conf").read_text() == "x"
    (place.home / "data" / "foreign").write_text("x")
    status, output = place.apply(scaffold("site", purge=True)(place))
    assert (status, sorted(os.listdir(place.home / "data"))) == (0, ["app.conf"]), output
    assert (place.home / "site").is_symlink()


@pytest.mark.attack("races.user-link")
@pytest.mark.parametrize("key", ["source", "template"])
def test_source_in_a_user_directory_stays_with_the_user(key: str, place: Place) -> None:
    """Root could read the target, and would copy it to a path that the user can read."""
    place.joe("ln", "-s", place.victim / "passwd", "motd")
    out = str(place.directory / "motd")
    resource = {"file": {out: {**ROOT, key: str(place.home / "motd")}}}
    assert_refused_as(place, resource, "the link 'motd' of user 65534 leads to a file of user 0")
    assert not os.path.exists(out)


def assert_refused_as(place: Place, resource: dict[str, Any], message: str) -> None:
    for options in (("--noop",), ()):
        status, output = place.apply(resource, *options)
        assert message in output
        assert status == 4


@pytest.mark.attack("races.user-link")
def test_metrics_are_written_by_the_same_rule(place: Place, settled: Host) -> None:
    """The directory of metrics often belongs to the user that collects them."""
    place.joe("ln", "-s", place.victim, "site")
    settled.configure(reports={"textfile": str(place.home / "site" / "puller.prom")})
    outcome = settled.run()
    assert outcome.status == 78
    settled.assert_told(
        "cannot write the metrics: .*: the link 'site' of user 65534 leads to a directory", outcome
    )
    settled.configure(reports={"textfile": str(place.home / "puller.prom")})
    assert settled.run().status == 0
    assert "puller_last_run_exit_status 0\n" in (place.home / "puller.prom").read_text()


# -- while Puller is at work ------------------------------------------------------------------------

CALLS = (
    "open",
    "lstat",
    "stat",
    "mkdir",
    "rename",
    "unlink",
    "rmdir",
    "scandir",
    "listdir",
    "chmod",
    "readlink",
)

WORK: dict[str, Declare] = {
    "a file": file("site/passwd", content="x"),
    "a new file": file("site/new", content="x"),
    "attributes": file("site/passwd", owner="daemon"),
    "a directory": file("site/new/deep", ensure="directory"),
    "a tree to be removed": file("site/conf", ensure="absent", force=True),
    "a scaffold": scaffold("site/conf", purge=True),
    "a scaffold at it": scaffold("site", purge=True),
    "a scaffold to be removed": scaffold("site/conf", ensure="absent"),
    "contents": archive("app.tar", "site/conf"),
    "contents at it": archive("app.tar", "site"),
}


@pytest.mark.attack("races.swap")
@pytest.mark.parametrize("work", WORK)
@pytest.mark.representatives(5)
def test_directory_swapped_at_any_step_leads_nothing_outside(
    work: str, place: Place, monkeypatch: pytest.MonkeyPatch, sweep: Sweep
) -> None:
    """The swap happens before each relevant system call, in one run after another."""
    resource = WORK[work](place)

    def is_swapped_at(step: int) -> bool:
        return Swap(place, monkeypatch, step).happens_while(lambda: place.apply(resource))

    assert sweep(is_swapped_at) > 3


class Swap:
    """Replaces ``site`` by a link to the victim before one of the calls that a run makes in Joe's home."""

    def __init__(self, place: Place, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
        self.place = place
        self.monkeypatch = monkeypatch
        self.left = step
        self.done = False
        site = place.home / "site"
        subprocess.run(["rm", "-rf", site, place.home / "aside", place.directory / "state"], check=True)
        (site / "conf").mkdir(parents=True)
        for path in ("passwd", "conf/app.conf", "conf/foreign"):
            (site / path).write_text("joe's\n")
        for made in (site, *site.rglob("*")):
            os.chown(made, JOE, JOE)

    def happens_while(self, run: Callable[[], object]) -> bool:
        with self.monkeypatch.context() as patches:
            for name in CALLS:
                patches.setattr(os, name, self.watched(getattr(os, name)))
            run()
        return self.done

    def watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if not self.done and self.is_ours(arguments, named):
                self.left -= 1
                if self.left < 0:
                    self.done = True
                    self.swap()
            return real(*arguments, **named)

        return call

    def is_ours(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
        on_the_way = str(arguments[0]).startswith(str(self.place.home)) if arguments else False
        return on_the_way or self.in_home(named.get("dir_fd")) or self.in_home(named.get("dst_dir_fd"))

    def in_home(self, descriptor: int | None) -> bool:
        return descriptor is not None and str(self.place.home) in REAL_READLINK(f"/proc/self/fd/{descriptor}")

    def swap(self) -> None:
        site = self.place.home / "site"
        REAL_RENAME(site, self.place.home / "aside")
        os.symlink(self.place.victim, site)
        os.chown(site, JOE, JOE, follow_symlinks=False)


REAL_READLINK, REAL_RENAME = os.readlink, os.rename


@pytest.mark.attack("races.swap")
def test_swapped_new_directory_is_not_given_away(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joe may rename root's directory in his home, but not read it."""
    secret = place.home / "secret"
    secret.mkdir(mode=0o700)
    (secret / "key").write_text("root's")
    real = os.mkdir

    def mkdir(path: str, *arguments: Any, **named: Any) -> None:
        real(path, *arguments, **named)
        (place.home / path).rename(place.home / "aside")
        secret.rename(place.home / path)

    with monkeypatch.context() as patches:
        patches.setattr(os, "mkdir", mkdir)
        with pytest.raises(
            ChangedMeanwhile, match="data: another process replaced it while Puller created it"
        ):
            LocalSystem().make_directory(str(place.home / "data"), Attributes(JOE, JOE, 0o755))
    assert {path.stat().st_uid for path in place.home.iterdir()} == {0}
    assert [path.read_text() for path in place.home.glob("*/key")] == ["root's"]


_ENTRIES = [(1, 6, -1), (2, 4, JOE), (4, 0, -1), (0x10, 4, -1), (0x20, 0, -1)]
JOE_MAY_READ = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in _ENTRIES)


@pytest.mark.attack("modes.planted")
@pytest.mark.parametrize(("owner", "is_kept"), [("root", False), ("nobody", True)])
def test_acl_of_a_foreign_file_is_not_kept(owner: str, is_kept: bool, place: Place) -> None:
    """Joe creates a file at the path of root's file, with an access control list that includes him."""
    place.joe("touch", "secret")
    os.setxattr(place.home / "secret", "system.posix_acl_access", JOE_MAY_READ)
    assert place.apply(file("secret", content="for the group\n", mode="0640", owner=owner)(place))[0] == 0
    assert ("system.posix_acl_access" in os.listxattr(place.home / "secret")) is is_kept
    assert stat.S_IMODE((place.home / "secret").stat().st_mode) == 0o640


@pytest.mark.attack("modes.planted")
def test_default_acl_of_a_user_directory_is_not_inherited(place: Place) -> None:
    os.setxattr(place.home, "system.posix_acl_default", JOE_MAY_READ)
    for resource in (
        file("secret", content="for the group\n", mode="0640")(place),
        file("directory", ensure="directory", mode="0750")(place),
        file("directory/secret", content="for the group\n", mode="0640")(place),
        scaffold("scaffold", mode="0640")(place),
        archive("app.tar", "contents")(place),
        archive("app-2.tar", ".")(place),
    ):
        assert place.apply(resource)[0] == 0
    made = list(place.home.rglob("*"))
    assert len(made) == 8
    assert [path for path in made if os.listxattr(path)] == []
    assert place.apply(file("mine", content="joe's\n", owner="nobody")(place))[0] == 0
    assert os.listxattr(place.home / "mine") == ["system.posix_acl_access"]


# -- hard links to files of other users -------------------------------------------------------------


@pytest.fixture
def linked(place: Place) -> Iterator[Path]:
    """Hard-link a file of root in Joe's home, writable by Joe's group, and check that it stays unchanged."""
    shadow = place.directory / "shadow"
    shadow.write_text("root's secret\n")
    os.chown(shadow, 0, JOE)
    shadow.chmod(0o660)  # so that Joe may link it even if hard links are protected
    (place.directory).chmod(0o755)
    os.link(shadow, place.home / "app.log")
    yield shadow
    status = shadow.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (0, JOE, 0o660)
    assert shadow.read_text() == "root's secret\n"


WIDER: dict[str, dict[str, Any]] = {
    "owner": {"owner": "nobody"},
    "group": {"group": "daemon", "mode": "0660"},
    "mode": {"mode": "0664", "group": JOE},
    "mask": {"mode": "xx4", "group": JOE},
    "once": {"owner": "nobody", "ensure": "exists", "content": "x"},
}


@pytest.mark.attack("races.hard-link-given")
@pytest.mark.parametrize("given", WIDER)
def test_a_file_with_other_names_is_not_given_to_anybody(given: str, place: Place, linked: Path) -> None:
    resource = file("app.log", **WIDER[given])(place)
    message = "has 2 names (hard links), so it may be a file of another user"
    assert_refused_as(place, resource, f"{message}, and its owner, group and mode are not changed")


@pytest.mark.attack("races.hard-link-given")
@pytest.mark.parametrize("content", ["x\n", "root's secret\n"])
def test_file_with_known_content_is_replaced_by_a_new_inode(content: str, place: Place, linked: Path) -> None:
    resource = file("app.log", owner="nobody", content=content)(place)
    assert "Would have updated the file" in place.apply(resource, "--noop")[1]
    assert place.apply(resource)[0] == 0
    status = (place.home / "app.log").stat()
    assert (status.st_uid, status.st_nlink) == (JOE, 1)
    assert place.apply(resource, "--detailed-exitcodes")[0] == 0


@pytest.mark.attack("races.hard-link-given")
def test_archive_file_with_several_links_changes_no_owner(place: Place, linked: Path) -> None:
    os.link(linked, place.home / "app.tar")
    properties = {"url": "http://127.0.0.1:9/app.tar", "owner": "nobody", "group": "nogroup"}
    resource = {"archive": {str(place.home / "app.tar"): properties}}
    assert_refused_as(place, resource, "names (hard links), so it may be a file of another user")


def test_a_directory_has_many_names_and_is_managed_all_the_same(place: Place) -> None:
    (place.home / "a" / "b").mkdir(parents=True)
    assert place.apply(file("a", ensure="directory", owner="nobody", mode="0750")(place))[0] == 0
    assert (place.home / "a").stat().st_uid == JOE
