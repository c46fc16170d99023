"""The file resource: every current state with every desired state, and rejected states."""

import itertools
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hiera.values import Secret
from puller.errors import ChangedMeanwhile, MutationInNoop, ResourceError
from puller.resources.base import PropertyError, Resource
from puller.resources.files.file import File

Make = Callable[..., Resource[Any, Any]]
Converge = Callable[[Resource[Any, Any]], list[str]]

TEXT = "wanted\n"


def nothing(path: Path) -> None:
    del path


def same_file(path: Path) -> None:
    path.write_text(TEXT)
    path.chmod(0o644)


def other_content(path: Path) -> None:
    path.write_text("something else\n")
    path.chmod(0o644)


def other_mode(path: Path) -> None:
    path.write_text(TEXT)
    path.chmod(0o600)


def empty_directory(path: Path) -> None:
    path.mkdir()


def full_directory(path: Path) -> None:
    path.mkdir()
    (path / "kept").write_text("precious")


def link_to_file(path: Path) -> None:
    (path.parent / "target").write_text("precious")
    path.symlink_to("target")


def link_to_directory(path: Path) -> None:
    full_directory(path.parent / "target")
    path.symlink_to("target")


def dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def socket_file(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # The address of a socket is shorter than most temporary paths.
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


ACTUAL = [
    nothing, same_file, other_content, other_mode, empty_directory, full_directory,
    link_to_file, link_to_directory, dangling_link, fifo, socket_file,
]  # fmt: skip

WANTED: dict[str, dict[str, Any]] = {
    "present with content": {"ensure": "present", "content": TEXT},
    "present with attributes only": {"ensure": "present"},
    "exists": {"ensure": "exists", "content": TEXT},
    "absent": {"ensure": "absent"},
    "directory": {"ensure": "directory", "mode": "0755"},
}

NEEDS_FORCE = {
    ("present with content", empty_directory), ("present with content", full_directory),
    ("present with attributes only", empty_directory), ("present with attributes only", full_directory),
    ("present with attributes only", link_to_file), ("present with attributes only", link_to_directory),
    ("present with attributes only", dangling_link),
    ("exists", empty_directory), ("exists", full_directory),
    ("absent", full_directory),
    ("directory", same_file), ("directory", other_content), ("directory", other_mode),
    ("directory", link_to_file), ("directory", link_to_directory), ("directory", dangling_link),
    ("directory", fifo), ("directory", socket_file),
}  # fmt: skip


def is_as_wanted(path: Path, desired: str) -> bool:
    if desired == "absent":
        return not os.path.lexists(path)
    status = path.lstat()
    if desired == "directory":
        return stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o755
    return stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o644


@pytest.mark.representatives(40)
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("wanted", "actual"), list(itertools.product(WANTED, ACTUAL)))
def test_every_state_converges_or_is_refused_untouched(
    make: Make,
    converge: Converge,
    ours: dict[str, str],
    tmp_path: Path,
    wanted: str,
    actual: Any,
    force: bool,
) -> None:
    path = tmp_path / "x"
    actual(path)
    properties = {**ours, **WANTED[wanted], "name": str(path), "force": force}
    if (wanted, actual) in NEEDS_FORCE and not force:
        before = path.lstat()
        with pytest.raises(ResourceError, match="requires force: true"):
            converge(make(File, properties))
        assert path.lstat() == before
        return
    converge(make(File, properties))
    assert is_as_wanted(path, wanted)
    assert converge(make(File, properties)) == [], "the second run changes nothing"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]
    if actual is link_to_directory and wanted != "absent":
        assert (tmp_path / "target" / "kept").read_text() == "precious", "nothing is done through a link"


@pytest.mark.representatives(40)
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("wanted", "actual"), list(itertools.product(WANTED, ACTUAL)))
def test_noop_predicts_the_run_and_changes_nothing(
    make: Make,
    converge: Converge,
    ours: dict[str, str],
    tmp_path: Path,
    wanted: str,
    actual: Any,
    force: bool,
) -> None:
    path = tmp_path / "x"
    actual(path)
    properties = {**ours, **WANTED[wanted], "name": str(path), "force": force}
    predicted, before = predict(make(File, properties, noop=True)), snapshot(tmp_path)
    assert snapshot(tmp_path) == before
    try:
        done = converge(make(File, properties))
    except ResourceError as error:
        assert predicted == f"failure: {error}"
    else:
        assert (predicted == "stable") == (done == [])


def predict(resource: Resource[Any, Any]) -> str:
    try:
        actual = resource.look()
        differences = resource.differences(actual)
        return resource.noop_message(differences, actual) if differences else "stable"
    except ResourceError as error:
        return f"failure: {error}"


def snapshot(directory: Path) -> list[tuple[str, os.stat_result]]:
    return sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in os.scandir(directory))


@pytest.mark.parametrize(
    ("wanted", "actual", "force", "message"),
    [
        ("present with content", nothing, False, "Would have created the file"),
        ("present with content", dangling_link, False, "Would have created the file"),
        ("present with content", other_content, False, "Would have updated the file"),
        ("present with content", other_mode, False, "Would have updated attributes"),
        ("present with attributes only", nothing, False, "Would have created the file"),
        ("exists", other_mode, False, "Would have updated attributes"),
        ("directory", nothing, False, "Would have created directory"),
        ("absent", same_file, False, "Would have removed the file"),
        ("absent", dangling_link, False, "Would have removed the file"),
        ("absent", empty_directory, False, "Would have removed the directory"),
        ("absent", full_directory, True, "Would have recursively removed the directory"),
        ("present with content", same_file, False, "stable"),
        ("absent", nothing, False, "stable"),
    ],
)
def test_noop_messages(
    make: Make, ours: dict[str, str], tmp_path: Path, wanted: str, actual: Any, force: bool, message: str
) -> None:
    path = tmp_path / "x"
    actual(path)
    resource = make(File, {**ours, **WANTED[wanted], "name": str(path), "force": force}, noop=True)
    assert predict(resource) == message


@pytest.mark.parametrize("mode", ["0640", "640", "0o640", "0O640"])
def test_a_mode_converges_however_it_is_spelled(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path, mode: str
) -> None:
    """The reference compares modes as text, so that ``644`` never converges."""
    properties = {**ours, "name": str(tmp_path / "x"), "content": "a", "mode": mode}
    assert converge(make(File, properties)) == ["ensure absent → present"]
    assert converge(make(File, properties)) == []


def test_a_mask_keeps_the_digits_that_it_leaves_open(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("a")
    (tmp_path / "x").chmod(0o654)
    assert converge(make(File, {**ours, "name": str(tmp_path / "x"), "mode": "7x0"})) == ["mode 0654 → 0750"]


def test_a_directory_gets_search_permission_where_it_gets_read(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path
) -> None:
    converge(make(File, {**ours, "name": str(tmp_path / "d"), "ensure": "directory", "mode": "0640"}))
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o750


def test_missing_parents_of_a_directory_are_made_for_everybody(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path
) -> None:
    converge(make(File, {**ours, "name": str(tmp_path / "a/b/c"), "ensure": "directory", "mode": "0700"}))
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/c")] == [
        0o755,
        0o755,
        0o700,
    ]


def test_the_umask_has_no_say(make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        converge(make(File, {**ours, "name": str(tmp_path / "x"), "content": "a"}))
        converge(make(File, {**ours, "name": str(tmp_path / "a/b"), "ensure": "directory", "mode": "0755"}))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


def test_a_missing_parent_of_a_file_is_named(make: Make, ours: dict[str, str], tmp_path: Path) -> None:
    resource = make(File, {**ours, "name": str(tmp_path / "no/x"), "content": "a"})
    actual = resource.look()
    with pytest.raises(ResourceError, match=f"directory {tmp_path}/no does not exist"):
        resource.change(resource.differences(actual), actual)


def test_noop_assumes_the_parent_of_an_earlier_resource(
    make: Make, ours: dict[str, str], tmp_path: Path
) -> None:
    directory = make(File, {**ours, "name": str(tmp_path / "d"), "ensure": "directory"}, noop=True)
    predict(directory)
    inside = make(File, {**ours, "name": str(tmp_path / "d/x"), "content": "a"}, noop=True)
    assert "does not exist" in predict(inside)
    inside.context.system.expect(str(tmp_path / "d"), "directory")
    assert predict(inside) == "Would have created the file"


def test_an_unknown_owner_is_named(make: Make, ours: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a")
    resource = make(File, {**ours, "name": str(tmp_path / "x"), "owner": "no-such-user"})
    with pytest.raises(ResourceError, match="owner is 'no-such-user', an unknown user"):
        resource.differences(resource.look())


def test_noop_assumes_an_owner_made_by_a_command(make: Make, ours: dict[str, str], tmp_path: Path) -> None:
    resource = make(
        File, {**ours, "name": str(tmp_path / "x"), "owner": "no-such-user"}, noop=True, uncertain=True
    )
    assert predict(resource) == "Would have created the file"


def test_owners_given_as_digits_are_ids(make: Make, converge: Converge, tmp_path: Path) -> None:
    ids = {"owner": str(os.geteuid()), "group": os.getegid(), "mode": "0600"}
    converge(make(File, {**ids, "name": str(tmp_path / "x"), "content": "a"}))
    assert (tmp_path / "x").stat().st_uid == os.geteuid()


@pytest.mark.root
def test_owner_and_group_are_set_and_mode_survives_it(make: Make, converge: Converge, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a")
    properties = {"name": str(tmp_path / "x"), "owner": "nobody", "group": "1", "mode": "0750"}
    assert converge(make(File, properties)) == [
        "owner root → nobody",
        "group root → 1",
        "mode 0644 → 0750",
    ]


@pytest.mark.root
def test_a_device_in_the_way_is_replaced_only_by_force(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path
) -> None:
    os.mknod(tmp_path / "x", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    properties = {**ours, "name": str(tmp_path / "x"), "content": "a"}
    with pytest.raises(
        ResourceError, match="is a character device; replacing it by a file requires force: true"
    ):
        converge(make(File, properties))
    converge(make(File, {**properties, "force": True}))
    assert (tmp_path / "x").read_text() == "a"


def test_a_source_is_copied_and_compared(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(b"\0\xff" * 3_000_000)
    properties = {**ours, "name": str(tmp_path / "x"), "source": "source"}
    converge(make(File, properties))
    assert (tmp_path / "x").read_bytes() == (tmp_path / "source").read_bytes()
    (tmp_path / "source").write_bytes(b"\0\xfe" * 3_000_000)
    assert converge(make(File, properties))[0].startswith("content: ")


def test_a_source_that_is_missing_is_named(make: Make, ours: dict[str, str], tmp_path: Path) -> None:
    resource = make(File, {**ours, "name": str(tmp_path / "x"), "source": "files/none"}, noop=True)
    assert (
        predict(resource)
        == f"failure: source {tmp_path}/files/none cannot be read: No such file or directory"
    )


DIGEST = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"  # of "a"


def test_remote_source_with_checksum_is_fetched_on_change(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path
) -> None:
    fetched = []

    def fetch(url: str) -> bytes:
        fetched.append(url)
        return b"a"

    properties = {
        **ours,
        "name": str(tmp_path / "x"),
        "source": "https://www.example.org/a",
        "checksum": DIGEST,
    }
    converge(make(File, properties, fetch=fetch))
    assert (tmp_path / "x").read_text() == "a"
    assert converge(make(File, properties, fetch=fetch)) == []
    assert fetched == ["https://www.example.org/a"]


def test_remote_source_with_a_wrong_checksum_is_discarded(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path
) -> None:
    properties = {
        **ours,
        "name": str(tmp_path / "x"),
        "source": "https://www.example.org/a",
        "checksum": DIGEST,
    }
    with pytest.raises(ResourceError, match=f"has sha256 .*, expected {DIGEST}"):
        converge(make(File, properties, fetch=lambda url: b"tampered"))
    assert not (tmp_path / "x").exists()


def test_content_is_written_in_the_encoding_asked_for(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path
) -> None:
    converge(make(File, {**ours, "name": str(tmp_path / "x"), "content": "é", "encoding": "latin-1"}))
    assert (tmp_path / "x").read_bytes() == b"\xe9"


@pytest.mark.attack("races.link", "races.writer")
def test_concurrently_created_file_is_not_overwritten(
    make: Make, ours: dict[str, str], tmp_path: Path
) -> None:
    resource = make(File, {**ours, "name": str(tmp_path / "x"), "content": "a"})
    actual = resource.look()
    differences = resource.differences(actual)
    (tmp_path / "x").symlink_to("/etc/passwd")
    with pytest.raises(ChangedMeanwhile, match="another process created it while Puller inspected it"):
        resource.change(differences, actual)
    assert (tmp_path / "x").is_symlink()


@pytest.mark.attack("races.link")
def test_attributes_are_not_set_through_a_late_link(make: Make, ours: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a")
    (tmp_path / "other").write_text("b")
    (tmp_path / "other").chmod(0o600)
    resource = make(File, {**ours, "name": str(tmp_path / "x"), "mode": "0666"})
    actual = resource.look()
    differences = resource.differences(actual)
    (tmp_path / "x").unlink()
    (tmp_path / "x").symlink_to("other")
    with pytest.raises(ChangedMeanwhile):
        resource.change(differences, actual)
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o600


@pytest.mark.attack("races.hard-link")
def test_a_hard_link_elsewhere_keeps_the_old_content(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("old")
    os.link(tmp_path / "x", tmp_path / "other")
    converge(make(File, {**ours, "name": str(tmp_path / "x"), "content": "new"}))
    assert ((tmp_path / "x").read_text(), (tmp_path / "other").read_text()) == ("new", "old")


def test_extended_attributes_of_a_replaced_file_are_kept(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    converge(make(File, {**ours, "name": str(path), "content": "new"}))
    assert os.getxattr(path, "user.note") == b"kept"


def test_a_noop_system_refuses_to_be_written_to(make: Make, ours: dict[str, str], tmp_path: Path) -> None:
    resource = make(File, {**ours, "name": str(tmp_path / "x"), "content": "a"}, noop=True)
    actual = resource.look()
    with pytest.raises(MutationInNoop):
        resource.change(resource.differences(actual), actual)


def test_diff_shows_the_change(make: Make, ours: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "x").write_text("one\ntwo\n")
    resource = make(File, {**ours, "name": str(tmp_path / "x"), "content": "one\nthree\n"})
    assert resource.diff(resource.look()) == (
        f"--- {tmp_path}/x (now)\n+++ {tmp_path}/x (wanted)\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
    )


def test_a_sensitive_file_shows_no_diff(make: Make, ours: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old secret")
    resource = make(File, {**ours, "name": str(tmp_path / "x"), "content": "new secret", "sensitive": True})
    actual = resource.look()
    assert resource.diff(actual) is None
    assert "secret" not in " ".join(map(str, resource.differences(actual)))


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"name": "etc/x"}, "name is 'etc/x', expected an absolute path"),
        ({"name": "/etc/../x"}, "name is '/etc/../x', expected an absolute path"),
        ({"name": "/etc//x"}, "name is '/etc//x', expected an absolute path"),
        ({"name": "/etc/"}, "name is '/etc/', expected an absolute path"),
        ({"name": "/", "ensure": "absent", "force": True}, "name is '/', which is not managed"),
        (
            {"ensure": "file"},
            "ensure is 'file' \\(did you mean 'present'\\?\\), expected one of present, absent, directory, exists",
        ),
        ({"content": "a", "source": "b"}, "source cannot be given together with content"),
        ({"content": "a", "ensure": "directory"}, "content has no effect with ensure: directory"),
        ({"owner": None}, "owner is missing; it is required unless ensure is absent"),
        ({"encoding": "no-such"}, "encoding is 'no-such', which is not a known encoding"),
        ({"template": "a", "engine": "erb"}, "engine is 'erb', expected jinja, jet or go"),
        ({"source": "https://a/b", "checksum": "abc"}, "checksum is 'abc', expected 64"),
        ({"source": "files/a", "checksum": DIGEST}, "checksum is only for a source that is a URL"),
    ],
)
def test_properties_that_make_no_sense_are_refused_at_load(
    make: Make, ours: dict[str, str], properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        make(File, {"name": "/etc/x", **ours, **properties})


def test_absent_needs_no_attributes(make: Make, converge: Converge, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a")
    assert converge(make(File, {"name": str(tmp_path / "x"), "ensure": "absent"})) == [
        "ensure present → absent"
    ]


@pytest.mark.parametrize("engine", ["jinja", "jet", "go"])
def test_a_template_that_uses_a_secret_shows_no_diff(
    make: Make, converge: Converge, ours: dict[str, str], tmp_path: Path, engine: str
) -> None:
    texts = {"jinja": "pw={{ data.pw }}\n", "jet": "pw=[[ data.pw ]]\n", "go": "pw={{ .data.pw }}\n"}
    (tmp_path / "template").write_text(texts[engine])
    properties = {**ours, "name": str(tmp_path / "x"), "template": "template", "engine": engine}
    resource = make(File, properties, data={"pw": Secret("canary")})
    actual = resource.look()
    shown = [resource.diff(actual), *map(str, resource.differences(actual))]
    converge(resource)
    assert (tmp_path / "x").read_text() == "pw=canary\n"
    assert "canary" not in repr(shown)
    assert shown[0] is None
