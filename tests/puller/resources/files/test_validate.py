"""``validate`` of a file: new content is used only after a program accepts it."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bundles.filesystem.atomic import remove_leftovers
from puller.errors import ChangedMeanwhile, ResourceError
from puller.resources import tool
from puller.resources.base import PropertyError, Resource
from puller.resources.files.file import File
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem

Make = Callable[..., Resource[Any, Any]]
Converge = Callable[[Resource[Any, Any]], list[str]]
as_root = pytest.mark.root


@pytest.fixture
def wanted(make: Make, ours: dict[str, str], tmp_path: Path) -> Callable[..., Resource[Any, Any]]:
    """Return a function that makes a file ``app.conf`` with the given ``validate`` command."""

    def build(
        command: str, *, noop: bool = False, uncertain: bool = False, **additional: Any
    ) -> Resource[Any, Any]:
        properties = {
            "name": f"{tmp_path}/app.conf",
            **ours,
            "content": "new\n",
            "validate": command,
            **additional,
        }
        return make(File, properties, noop=noop, uncertain=uncertain)

    return build


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.conf"
    path.write_text("old\n")
    path.chmod(0o644)
    return path


def test_content_that_the_command_accepts_takes_its_place(
    wanted: Make, converge: Converge, file: Path
) -> None:
    assert converge(wanted("grep -qx new {}"))
    assert file.read_text() == "new\n"


@pytest.mark.parametrize("is_there", [True, False])
def test_rejected_content_changes_nothing_and_shows_the_output(
    is_there: bool, wanted: Make, converge: Converge, file: Path
) -> None:
    if not is_there:
        file.unlink()
    before = file.stat().st_ino if is_there else None
    with pytest.raises(ResourceError) as failure:
        converge(wanted("echo {}: line 1 is wrong >&2; exit 3", provider="shell"))
    assert str(failure.value) == (
        f"validate 'echo {{}}: line 1 is wrong >&2; exit 3': exit code 3, expected 0, so {file} stays as it was;"
        f" it printed:\n{file}: line 1 is wrong"
    )
    assert (file.stat().st_ino if file.exists() else None) == before
    assert os.listdir(file.parent) == (["app.conf"] if is_there else [])


def test_validated_copy_has_directory_owner_mode_and_suffix(
    wanted: Make, converge: Converge, file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    seen = tmp_path_factory.mktemp("seen") / "seen"
    converge(wanted(f"stat -c '%n %a %u' {{}} > {seen}", provider="shell", mode="0600"))
    path, mode, uid = seen.read_text().split()
    assert os.path.dirname(path) == str(file.parent)
    assert path.endswith(".conf")
    assert os.path.basename(path).startswith(".app.conf.")
    assert (mode, uid) == ("600", str(os.geteuid()))


def test_a_new_program_can_be_started_to_validate_it(wanted: Make, converge: Converge, file: Path) -> None:
    """A file open for writing cannot be executed."""
    converge(wanted("{} --check", content='#!/bin/sh\n[ "$1" = --check ]\n', mode="0755"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "harm",
    ["echo more >> {}", "chmod 0666 {}", "rm {}", "cp {} {}.x; mv {}.x {}"],
    ids=["content", "mode", "removed", "another file"],
)
def test_a_copy_that_the_command_has_changed_is_a_failure(
    harm: str, make: Make, ours: dict[str, str], converge: Converge, file: Path
) -> None:
    script = file.with_name("harm")
    script.write_text(f"#!/bin/sh\n{harm.replace('{}', '$1')}\n")
    script.chmod(0o755)
    resource = make(File, {"name": str(file), **ours, "content": "new\n", "validate": f"{script} {{}}"})
    with pytest.raises(ChangedMeanwhile, match="its private copy was changed while it was verified"):
        converge(resource)
    assert file.read_text() == "old\n"


def test_a_command_that_takes_too_long_is_ended_and_is_a_failure(
    wanted: Make, converge: Converge, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tool.TIME_LIMIT == 60
    monkeypatch.setattr(tool, "TIME_LIMIT", 0.2)
    with pytest.raises(
        ResourceError, match=r"validate 'sleep 60; true \{\}': killed after .* its time limit"
    ):
        converge(wanted("sleep 60; true {}", provider="shell"))
    assert file.read_text() == "old\n"


def test_nothing_is_asked_about_content_that_stays(wanted: Make, converge: Converge, file: Path) -> None:
    file.write_text("new\n")
    assert converge(wanted("false {}")) == []
    file.chmod(0o600)
    assert converge(wanted("false {}")) == ["mode 0600 → 0644"]


def test_a_file_that_is_only_made_is_asked_about_once(wanted: Make, converge: Converge, file: Path) -> None:
    assert converge(wanted("false {}", ensure="exists")) == []
    file.unlink()
    with pytest.raises(ResourceError, match="exit code 1, expected 0"):
        converge(wanted("false {}", ensure="exists"))


@pytest.mark.parametrize(
    ("is_there", "message"),
    [
        (True, "Would have updated the file (not validated)"),
        (False, "Would have created the file (not validated)"),
    ],
)
def test_a_dry_run_asks_nothing_and_says_so(is_there: bool, message: str, wanted: Make, file: Path) -> None:
    if not is_there:
        file.unlink()
    resource = wanted("false {}", noop=True)
    actual = resource.look()
    assert resource.noop_message(resource.differences(actual), actual) == message


def test_missing_validator_fails_in_noop_unless_expected(
    wanted: Make, converge: Converge, file: Path
) -> None:
    with pytest.raises(ResourceError, match="unknown program 'no-such-tool'"):
        converge(wanted("no-such-tool {}"))
    assert file.read_text() == "old\n"
    for uncertain in (False, True):
        resource = wanted("no-such-tool {}", noop=True, uncertain=uncertain)
        actual = resource.look()
        differences = resource.differences(actual)
        if uncertain:
            assert resource.noop_message(differences, actual)
        else:
            with pytest.raises(ResourceError, match="unknown program 'no-such-tool'"):
                resource.noop_message(differences, actual)


@pytest.mark.attack("secrets.sensitive")
def test_validator_output_about_a_secret_is_masked(wanted: Make, converge: Converge, file: Path) -> None:
    with pytest.raises(ResourceError) as failure:
        converge(wanted("cat {}; false", content="hunter2\n", sensitive=True, provider="shell"))
    assert "hunter2" not in str(failure.value)
    assert str(failure.value).endswith("stays as it was; its output may be secret")
    assert file.read_text() == "old\n"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"validate": "true"}, "validate is 'true', expected a command with one {}"),
        ({"validate": "diff {} {}"}, "validate is 'diff {} {}', expected a command with one {}"),
        ({"validate": "diff {} {}", "validate_in_place": True}, "expected a command with at most one {}"),
        ({"validate": "'' {}"}, "validate names no program"),
        ({"validate": "true '{}"}, "has a single quote that is not closed"),
        ({"validate": "true {}\0"}, "which has a NUL in it"),
        (
            {"validate": "true {}", "ensure": "directory"},
            "validate is only for a file whose content is managed",
        ),
        ({"validate": "true {}", "ensure": "absent"}, "validate is only for a file whose content is managed"),
        ({"validate": "true {}", "content": None}, "validate is only for a file whose content is managed"),
        ({"validate_in_place": True}, "validate_in_place is only for validate"),
        ({"provider": "shell"}, "provider is 'shell', which is only for validate"),
    ],
)
def test_impossible_properties_are_refused_at_load(
    more: dict[str, Any], sentence: str, make: Make, ours: dict[str, str]
) -> None:
    content = {} if more.get("ensure") else {"content": "new"}
    provided = {"name": "/x", **ours, **content, **more}
    with pytest.raises(PropertyError) as error:
        make(File, {name: value for name, value in provided.items() if value is not None})
    assert sentence in str(error.value)


def test_blocking_directory_stays_until_content_is_valid(
    wanted: Make, converge: Converge, tmp_path: Path
) -> None:
    (tmp_path / "app.conf").mkdir()
    with pytest.raises(
        ResourceError, match="is a directory, which is not replaced where validate may refuse"
    ):
        converge(wanted("true {}", force=True))
    assert (tmp_path / "app.conf").is_dir()


@pytest.mark.attack("validation.exchange")
@as_root
@pytest.mark.parametrize(
    ("uid", "mode", "who"),
    [
        (65534, 0o755, "belongs to user 65534"),
        (0, 0o757, "can be written by others (mode 0757)"),
        (0, 0o1777, ""),
    ],
)
def test_copy_in_a_writable_directory_is_not_validated(
    uid: int, mode: int, who: str, wanted: Make, converge: Converge, file: Path
) -> None:
    """A server may load code named by its configuration, as root, when it tests the configuration."""
    os.chown(file.parent, uid, -1)
    file.parent.chmod(mode)
    if not who:
        assert converge(wanted("grep -qx new {}"))
        return
    with pytest.raises(
        ResourceError, match=re.escape(f"its directory {who}, who could exchange the new file")
    ):
        converge(wanted("grep -qx new {}"))
    assert file.read_text() == "old\n"
    assert os.listdir(file.parent) == ["app.conf"]


def test_copy_of_a_killed_run_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".app.conf.0123456789ab.new.conf").write_text("half")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    remove_leftovers(descriptor)
    os.close(descriptor)
    assert os.listdir(tmp_path) == []


def test_copy_under_validation_is_not_taken_for_a_leftover(
    wanted: Make, converge: Converge, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def query(self: LocalSystem, command: Command) -> Completed:
        descriptor = os.open(file.parent, os.O_RDONLY)
        remove_leftovers(descriptor)
        os.close(descriptor)
        return Completed(0, None, False, "", "", 0.0)

    monkeypatch.setattr(LocalSystem, "query", query)
    converge(wanted("true {}"))
    assert file.read_text() == "new\n"


# The check runs with the file in place


@as_root
@pytest.mark.parametrize("was", ["a file", "a link", "nothing"])
def test_in_place_copy_is_visible_to_the_command_only(
    was: str, wanted: Make, converge: Converge, file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "other"
    other.write_text("old\n")
    if was != "a file":
        file.unlink()
    if was == "a link":
        file.symlink_to(other)
    (file.parent / "main.conf").write_text("include app.conf\n")
    look = f"cat {file.parent}/main.conf {file}; stat -c %a%F {file}; cat /proc/$PPID/root{file} 2>&1; false"
    with pytest.raises(ResourceError) as failure:
        converge(wanted(look, validate_in_place=True, provider="shell", mode="0640"))
    output = str(failure.value).split("it printed:\n")[1].splitlines()
    assert output[:3] == ["include app.conf", "new", "640regular file"]
    assert "new" not in output[3:]
    assert other.read_text() == "old\n"
    assert (file.exists() and file.read_text()) == (was != "nothing" and "old\n")
    assert sorted(os.listdir(file.parent)) == sorted(
        ["main.conf", *(["app.conf"] if was != "nothing" else [])]
    )
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(file.parent) not in mounts
    assert converge(wanted(f"grep -qx new {file}", validate_in_place=True, mode="0640"))
    assert (file.read_text(), file.is_symlink()) == ("new\n", False)


@as_root
def test_in_place_the_braces_are_the_path_itself(wanted: Make, converge: Converge, file: Path) -> None:
    assert converge(wanted("grep -qx new {}", validate_in_place=True))
    assert file.read_text() == "new\n"


@as_root
def test_in_place_a_command_that_writes_to_the_file_is_a_failure(
    wanted: Make, converge: Converge, file: Path
) -> None:
    with pytest.raises(ChangedMeanwhile, match="its private copy was changed"):
        converge(wanted("echo more >> {}", validate_in_place=True, provider="shell"))
    assert file.read_text() == "old\n"


def test_in_place_wants_root_and_a_dry_run_knows_it(
    wanted: Make, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = wanted("true", validate_in_place=True, noop=True)
    actual = resource.look()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ResourceError, match="mounting the copy in place requires root"):
        resource.noop_message(resource.differences(actual), actual)
