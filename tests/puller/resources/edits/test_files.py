"""Edited files: missing files, links, rejected files, and preserved attributes."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.resources.edits import planned_edits
from puller.system.local import LocalSystem
from puller.system.trusted_files import require_same

Apply = Callable[..., Any]
BOTH = pytest.mark.parametrize("noop", [True, False])


def line(path: Path, **others: Any) -> dict[str, dict[str, Any]]:
    return {"line#a": {"path": str(path), "line": "a", **others}}


def said(events: Any) -> str:
    (event,) = events.values()
    assert event.state == "failed", event
    return str(event.errors[0])


@BOTH
def test_a_missing_file_is_refused(apply: Apply, place: Path, noop: bool) -> None:
    path = place / "file"
    assert said(apply(line(path), noop=noop)) == f"{path} does not exist (create: true creates it)"
    assert not path.exists()


@pytest.mark.parametrize("path", ["file", "none/file"])
def test_missing_file_satisfies_absent(apply: Apply, place: Path, path: str) -> None:
    (event,) = apply(line(place / path, ensure="absent", create=True)).values()
    assert event.state == "stable"
    assert os.listdir(place) == []


def test_a_missing_file_is_made_where_that_is_said(apply: Apply, place: Path) -> None:
    path = place / "file"
    (foretold,) = apply(line(path, create=True), noop=True).values()
    assert (foretold.noop_message, path.exists()) == (f"Would have changed {path}", False)
    apply(line(path, create=True))
    status = path.stat()
    assert (path.read_text(), stat.S_IMODE(status.st_mode)) == ("a\n", 0o644)
    assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())


EDITS: dict[str, dict[str, Any]] = {
    "line": {"line": "a"},
    "block": {"content": "a", "marker": "# {mark} m"},
    "setting": {"format": "ini", "section": "s", "key": "k", "value": "v"},
}


@pytest.mark.parametrize("kind", EDITS)
def test_a_new_file_gets_the_declared_mode(apply: Apply, place: Path, kind: str) -> None:
    path = place / "file"
    edit = {f"{kind}#a": {"path": str(path), "create": True, "mode": "0640", **EDITS[kind]}}
    apply(edit)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o600)
    (event,) = apply(edit).values()
    assert event.state == "stable"
    path.write_text("")
    apply(edit)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "the attributes of an existing file stay"


@pytest.mark.root
@pytest.mark.parametrize("kind", EDITS)
def test_a_new_file_gets_the_declared_owner(apply: Apply, place: Path, kind: str) -> None:
    path = place / "file"
    apply(
        {
            f"{kind}#a": {
                "path": str(path),
                "create": True,
                "owner": "daemon",
                "group": 12345,
                **EDITS[kind],
            }
        }
    )
    assert (path.owner(), path.stat().st_gid) == ("daemon", 12345)


def test_an_edit_that_does_not_create_has_no_attributes_to_give(apply: Apply, place: Path) -> None:
    path = place / "file"
    edits = {
        **line(path, create=True),
        "line#b": {"path": str(path), "line": "b", "create": True, "mode": "0600"},
    }
    apply(edits)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "the mode of any creating edit counts"


@BOTH
@pytest.mark.parametrize("name", ["owner", "group"])
def test_an_unknown_account_prevents_the_new_file(apply: Apply, place: Path, name: str, noop: bool) -> None:
    failure = said(apply(line(place / "file", create=True, **{name: "nobody-here"}), noop=noop))
    assert failure.startswith(f"{name} is 'nobody-here', an unknown ")
    assert os.listdir(place) == []


@BOTH
def test_a_missing_directory_is_never_made(apply: Apply, place: Path, noop: bool) -> None:
    failure = said(apply(line(place / "none" / "file", create=True), noop=noop))
    assert failure == f"directory {place}/none does not exist"
    assert os.listdir(place) == []


def test_a_file_that_an_edit_before_makes_is_edited_with_it(apply: Apply, place: Path) -> None:
    path = place / "file"
    edits = {**line(path, create=True), "line#b": {"path": str(path), "line": "b"}}
    assert [str(event.state) for event in apply(edits, noop=True).values()] == ["would change"] * 2
    assert [str(event.state) for event in apply(edits).values()] == ["changed"] * 2
    assert path.read_text() == "a\nb\n"


def test_a_file_that_an_edit_behind_makes_is_not_there_yet(apply: Apply, place: Path) -> None:
    path = place / "file"
    edits = {**line(path), "line#b": {"path": str(path), "line": "b", "create": True}}
    assert [str(event.state) for event in apply(edits, noop=True).values()] == ["failed", "would change"]
    assert [str(event.state) for event in apply(edits).values()] == ["failed", "changed"]


@pytest.mark.parametrize("how", ["file", "exec"])
def test_a_file_that_an_earlier_resource_brings_is_foretold(apply: Apply, place: Path, how: str) -> None:
    path = place / "file"
    all_brings: dict[str, dict[str, dict[str, Any]]] = {
        "file": {
            f"file#{path}": {"ensure": "exists", "owner": os.geteuid(), "group": os.getegid(), "mode": "0640"}
        },
        "exec": {f"exec#touch {path}": {"creates": str(path)}},
    }
    edits = {**all_brings[how], **line(path)}
    assert [str(event.state) for event in apply(edits, noop=True).values()] == ["would change"] * 2
    assert [str(event.state) for event in apply(edits).values()] == ["changed"] * 2
    assert path.read_text() == "a\n"


def test_a_link_that_an_earlier_resource_makes_is_followed(apply: Apply, place: Path) -> None:
    (place / "target").write_text("")
    edits = {f"link#{place}/link": {"target": "target"}, **line(place / "link")}
    assert [str(event.state) for event in apply(edits, noop=True).values()] == ["would change"] * 2
    assert [str(event.state) for event in apply(edits).values()] == ["changed"] * 2
    assert (place / "target").read_text() == "a\n"


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o755)  # bind() rejects paths as long as tests use.


@pytest.mark.attack("edits.special")
@BOTH
@pytest.mark.parametrize(
    ("make", "kind"), [(Path.mkdir, "directory"), (make_fifo, "fifo"), (make_socket, "socket")]
)
@pytest.mark.parametrize("ensure", ["present", "absent"])
def test_special_file_is_refused(
    apply: Apply, place: Path, make: Callable[[Path], None], kind: str, ensure: str, noop: bool
) -> None:
    path = place / "file"
    make(path)
    failure = said(apply(line(path, ensure=ensure), noop=noop))
    assert failure == f"{path} is a {kind}, and only regular files are edited"


@pytest.mark.attack("edits.special")
def test_a_file_that_is_too_large_is_refused(
    apply: Apply, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place / "file"
    path.write_text("12345\n")
    monkeypatch.setattr(planned_edits, "LARGEST", 5)
    assert said(apply(line(path))) == f"{path} has 6 bytes, and files of more than 5 are not edited"


def test_owner_mode_and_attributes_of_the_file_stay(apply: Apply, place: Path) -> None:
    path = place / "file"
    path.write_text("")
    if os.geteuid() == 0:
        os.chown(path, 12345, 23456)
    path.chmod(0o4640)
    has_attributes = True
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:  # The file system lacks extended attributes.
        has_attributes = False
    before = path.stat()
    apply(line(path))
    after = path.stat()
    assert path.read_text() == "a\n"
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert not has_attributes or os.getxattr(path, "user.note") == b"kept"


# Links


def test_a_link_to_a_file_of_the_same_user_is_followed_and_stays(apply: Apply, place: Path) -> None:
    (place / "lib").mkdir()
    target, link = place / "lib" / "os-release", place / "os-release"
    target.write_text("NAME=x\n")
    (place / "hop").symlink_to("lib/os-release")
    link.symlink_to("hop")
    (event,) = apply(line(link)).values()
    assert event.state == "changed"
    assert target.read_text() == "NAME=x\na\n"
    assert os.readlink(link) == "hop"
    assert (place / "hop").is_symlink()
    (again,) = apply(line(link)).values()
    assert again.state == "stable"


@BOTH
def test_a_link_that_leads_to_nothing_is_refused(apply: Apply, place: Path, noop: bool) -> None:
    (place / "link").symlink_to("nothing")
    failure = said(apply(line(place / "link", create=True), noop=noop))
    assert failure == f"{place}/link is a link that leads to nothing"
    assert not (place / "nothing").exists()


def test_a_link_to_itself_is_refused(apply: Apply, place: Path) -> None:
    (place / "link").symlink_to("link")
    assert said(apply(line(place / "link", create=True))) == f"{place}/link is a link that leads to nothing"


@pytest.mark.attack("edits.special")
def test_a_link_to_a_directory_or_a_fifo_is_refused(apply: Apply, place: Path) -> None:
    make_fifo(place / "pipe")
    for target, kind in (("pipe", "fifo"), (".", "directory")):
        (place / "link").unlink(missing_ok=True)
        (place / "link").symlink_to(target)
        assert f"is a {kind}" in said(apply(line(place / "link")))


@pytest.mark.attack("edits.link")
@pytest.mark.root
@BOTH
@pytest.mark.parametrize(
    ("of_link", "of_target", "of_directory"),
    [(1000, 0, 0), (0, 1000, 0), (1000, 1001, 0), (1000, 0, 1000), (0, 1000, 1000), (0, 0, 1000)],
)
def test_a_link_between_two_users_is_refused(
    apply: Apply, place: Path, of_link: int, of_target: int, of_directory: int, noop: bool
) -> None:
    secret, theirs = place / "secret", place / "home"
    secret.write_text("secret\n")
    os.chown(secret, of_target, of_target)
    theirs.mkdir()
    (theirs / "link").symlink_to(secret)
    os.lchown(theirs / "link", of_link, of_link)
    os.chown(theirs, of_directory, of_directory)
    assert "so it is not followed" in said(apply(line(theirs / "link"), noop=noop))
    assert secret.read_text() == "secret\n"
    assert os.listdir(theirs) == ["link"]


@pytest.mark.root
def test_a_link_of_a_user_to_their_own_file_is_followed(apply: Apply, place: Path) -> None:
    theirs = place / "home"
    theirs.mkdir()
    (theirs / "file").write_text("")
    (theirs / "link").symlink_to("file")
    for name in ("file", "link", "."):
        os.chown(theirs / name, 1000, 1000, follow_symlinks=False)
    apply(line(theirs / "link"))
    assert (theirs / "file").read_text() == "a\n"
    assert (theirs / "file").stat().st_uid == 1000


@pytest.mark.attack("edits.link")
@pytest.mark.root
@BOTH
def test_a_users_link_among_the_directories_is_not_followed(apply: Apply, place: Path, noop: bool) -> None:
    (place / "real").mkdir()
    (place / "real" / "file").write_text("")
    (place / "home").mkdir()
    (place / "home" / "dir").symlink_to(place / "real")
    os.lchown(place / "home" / "dir", 1000, 1000)
    os.chown(place / "home", 1000, 1000)
    assert "so it is not followed" in said(apply(line(place / "home" / "dir" / "file"), noop=noop))
    assert (place / "real" / "file").read_text() == ""


@pytest.mark.attack("edits.hard-link")
@BOTH
def test_file_with_several_links_is_refused(apply: Apply, place: Path, noop: bool) -> None:
    path, other = place / "file", place / "other"
    other.write_text("secret\n")
    os.link(other, path)
    failure = said(apply(line(path), noop=noop))
    assert (
        failure == f"{path}: has 2 names (hard links), so it may be a file of another user, and is not edited"
    )
    assert other.read_text() == path.read_text() == "secret\n"
    assert os.path.samefile(path, other)
    (event,) = apply({"line#s": {"path": str(path), "line": "secret"}}, noop=noop).values()
    assert event.state == "stable"


@pytest.mark.attack("edits.exchange")
def test_a_file_that_is_exchanged_before_it_is_read_is_not_read(apply: Apply, place: Path) -> None:
    path, secret = place / "file", place / "secret"
    path.write_text("mine\n")
    secret.write_text("secret\n")

    class Exchanging(LocalSystem):
        def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
            os.replace(path, f"{path}.aside")
            os.link(secret, path)
            return super().read(path, looked_at)

    assert "another process replaced it" in said(apply(line(path), system=Exchanging()))
    assert path.read_text() == secret.read_text() == "secret\n"


@pytest.mark.attack("edits.pattern")
def test_growing_file_is_not_read_forever(apply: Apply, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "file"
    path.write_text("mine\n")

    def require_and_write(*looked_at: Any) -> None:
        """Append to the file right after Puller has checked its identity."""
        require_same(*looked_at)
        with path.open("a") as stream:
            stream.write("more\n")

    monkeypatch.setattr("puller.system.local.require_same", require_and_write)
    failure = said(apply(line(path)))
    assert failure == f"{path}: another process wrote to it while Puller read it"
    assert path.read_text() == "mine\nmore\n"
