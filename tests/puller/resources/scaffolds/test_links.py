"""Links and other obstacles: no file outside of source and target is read, written or removed."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.system.local import LocalSystem
from puller.system.protocol import Attributes


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Create a directory that is unrelated to all scaffolds."""
    directory = tmp_path / "outside"
    (directory / "deep").mkdir(parents=True)
    (directory / "file").write_text("precious\n")
    (directory / "deep" / "a.conf").write_text("precious\n")
    return directory


def contents(directory: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(directory)): (path.read_text(), path.stat().st_mode)
        for path in directory.rglob("*")
        if path.is_file()
    }


# In the target


@pytest.mark.parametrize("to", ["outside/file", "outside", "nowhere", "target/app.conf"])
def test_link_in_place_of_a_file_is_replaced(bench: Any, outside: Path, to: str) -> None:
    bench.template("app.conf", "app\n")
    bench.target.mkdir()
    (bench.target / "app.conf").symlink_to(bench.directory / to)
    before = contents(outside)
    assert bench.apply(mode="0600").differences == ["app.conf a symbolic link → present"]
    assert bench.files() == {"app.conf": "app\n"}
    assert contents(outside) == before


def test_link_to_equal_content_is_still_replaced(bench: Any, outside: Path) -> None:
    bench.template("app.conf", "precious\n")
    bench.target.mkdir()
    (bench.target / "app.conf").symlink_to(outside / "file")
    bench.apply()
    assert not (bench.target / "app.conf").is_symlink()


def test_link_in_place_of_a_directory_needs_purge(bench: Any, outside: Path) -> None:
    bench.template("conf.d/a.conf", "a\n")
    bench.target.mkdir()
    (bench.target / "conf.d").symlink_to(outside / "deep")
    before = contents(outside)
    assert bench.fail() == (
        "/target/conf.d is a symbolic link, expected a directory; purge: true would replace it"
    )
    assert bench.apply(purge=True).noop == "Would have changed 2 scaffold files"
    assert bench.files() == {"conf.d/a.conf": "a\n"}
    assert contents(outside) == before


def test_purge_removes_links_and_keeps_their_targets(bench: Any, outside: Path) -> None:
    bench.template("app.conf", "app\n")
    bench.target.mkdir()
    (bench.target / "to-file").symlink_to(outside / "file")
    (bench.target / "to-directory").symlink_to(outside)
    (bench.target / "old").mkdir()
    (bench.target / "old" / "to-directory").symlink_to(outside)
    before = contents(outside)
    assert bench.apply(purge=True).noop == "Would have changed 4 scaffold files"
    assert bench.files() == {"app.conf": "app\n"}
    assert contents(outside) == before


def test_absent_removes_links_and_follows_none(bench: Any, outside: Path) -> None:
    bench.template("app.conf", "app\n")
    bench.template("deep/a.conf", "a\n")
    bench.template("deep/further/b.conf", "b\n")
    bench.target.mkdir()
    (bench.target / "app.conf").symlink_to(outside / "file")
    (bench.target / "deep").symlink_to(outside / "deep")
    (outside / "deep" / "further").mkdir()
    before = contents(outside)
    assert bench.apply(ensure="absent").noop == "Would have removed 1 scaffold files"
    assert bench.files() == {"deep": f"-> {outside / 'deep'}"}
    assert contents(outside) == before
    assert (outside / "deep" / "further").is_dir(), "it is empty, and not of this target"


def test_linked_target_directory_is_used(bench: Any, outside: Path) -> None:
    """The reference's purge unlinked such a target."""
    bench.template("app.conf", "app\n")
    bench.target.symlink_to(outside)
    bench.apply(purge=True)
    assert bench.target.is_symlink()
    assert contents(outside).keys() == {"app.conf"}
    bench.apply(ensure="absent")
    assert bench.target.is_symlink()
    assert list(outside.iterdir()) == []


def test_a_target_that_is_a_link_to_nothing_is_refused(bench: Any) -> None:
    bench.template("app.conf", "app\n")
    bench.target.symlink_to("nowhere")
    assert bench.fail() == "/target is a link to /nowhere, which does not exist"
    assert bench.apply(ensure="absent").noop == "stable"
    assert bench.target.is_symlink()


def test_target_that_is_no_directory_is_refused(bench: Any) -> None:
    bench.template("app.conf", "app\n")
    bench.target.write_text("a file")
    assert bench.fail(purge=True) == "/target is a regular file, expected a directory"
    assert bench.apply(ensure="absent").noop == "stable"
    assert bench.target.read_text() == "a file"


def test_a_file_above_the_target_is_refused(bench: Any) -> None:
    bench.template("app.conf", "app\n")
    bench.target.write_text("a file")
    bench.target = bench.target / "below" / "it"
    assert bench.fail() == "/target is not a directory"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # The address of a socket is shorter than most temporary paths.
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize("make", [fifo, bound_socket])
@pytest.mark.parametrize("purge", [False, True])
def test_a_fifo_or_socket_is_replaced_and_never_opened(
    bench: Any, make: Callable[[Path], None], purge: bool
) -> None:
    bench.template("app.conf", "app\n")
    bench.target.mkdir()
    make(bench.target / "app.conf")
    make(bench.target / "other")
    bench.apply(purge=purge)
    assert bench.files() == {"app.conf": "app\n"} | ({} if purge else {"other": "(special)"})
    bench.apply(ensure="absent")
    assert bench.target.exists() is not purge


@pytest.mark.root
def test_a_device_is_replaced_only_where_it_may_be_purged(bench: Any) -> None:
    bench.template("app.conf", "app\n")
    bench.target.mkdir()
    os.mknod(bench.target / "app.conf", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    assert "is a character device, expected a file; purge: true" in bench.fail()
    bench.apply(purge=True)
    assert bench.files() == {"app.conf": "app\n"}


@pytest.mark.parametrize("content", [[], ["kept"], ["a/b/c", "a/d"]])
def test_directory_in_place_of_a_file_needs_purge(bench: Any, content: list[str]) -> None:
    bench.template("d/app.conf", "app\n")
    (bench.target / "d" / "app.conf").mkdir(parents=True)
    for path in content:
        bench.present(f"d/app.conf/{path}")
    assert bench.fail().startswith("/target/d/app.conf is a directory, expected a file")
    assert bench.apply(ensure="absent").noop == "stable", "it belongs to somebody else"
    bench.apply(purge=True)
    assert bench.files() == {"d/app.conf": "app\n"}


def test_file_in_place_of_a_directory_needs_purge(bench: Any) -> None:
    bench.template("conf.d/a/b.conf", "b\n")
    bench.present("conf.d", "a file\n")
    assert (
        bench.fail() == "/target/conf.d is a regular file, expected a directory; purge: true would replace it"
    )
    bench.apply(purge=True)
    assert bench.files() == {"conf.d/a/b.conf": "b\n"}


def test_another_name_of_a_file_does_not_change_with_it(bench: Any, outside: Path) -> None:
    bench.template("app.conf", "precious\n")
    bench.target.mkdir()
    (outside / "file").chmod(0o644)
    os.link(outside / "file", bench.target / "app.conf")
    before = contents(outside)
    bench.apply(mode="0600")
    assert contents(outside) == before
    assert (bench.target / "app.conf").stat().st_nlink == 1


@pytest.mark.parametrize("name", ["new\nline", "bell\a", "\udcff"])
def test_foreign_names_are_escaped_in_reports(bench: Any, name: str) -> None:
    bench.template("app.conf", "app\n")
    bench.present(name)
    sentences = bench.apply(purge=True).differences
    assert all(sentence.isprintable() and sentence.encode() for sentence in sentences)
    assert bench.files() == {"app.conf": "app\n"}


# Concurrent changes of the target


def test_directory_swapped_for_a_link_leads_nothing_outside(bench: Any, outside: Path) -> None:
    bench.template("deep/a.conf", "a\n")
    bench.template("deep/new.conf", "new\n")
    bench.present("deep/a.conf", "old\n")
    bench.present("deep/foreign", "f\n")
    (outside / "deep" / "foreign").write_text("precious\n")
    before = contents(outside)
    scaffold = bench.scaffold(purge=True)
    actual = scaffold.look()
    (bench.target / "deep").rename(bench.target / "aside")
    (bench.target / "deep").symlink_to(outside / "deep")
    with pytest.raises(OSError, match="Not a directory"):
        scaffold.change(scaffold.differences(actual), actual)
    assert contents(outside) == before


@pytest.mark.parametrize("step", ["replace_file", "make_directory", "remove", "set_note"])
def test_no_step_goes_through_a_link_below_its_directory(tmp_path: Path, outside: Path, step: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "link").symlink_to(outside)
    path, system = f"{target}/link/file", LocalSystem()
    status, before = system.lstat(path), contents(outside)
    assert status is not None
    ours = Attributes(os.geteuid(), os.getegid(), 0o600)
    steps: dict[str, Callable[[], None]] = {
        "replace_file": lambda: system.replace_file(path, [b"x"], ours, status, within=str(target)),
        "make_directory": lambda: system.make_directory(f"{target}/link/new", ours, within=str(target)),
        "remove": lambda: system.remove(path, status, within=str(target)),
        "set_note": lambda: system.set_note(path, "key", "text", within=str(target)),
    }
    with pytest.raises(OSError, match="Not a directory"):
        steps[step]()
    assert contents(outside) == before
    assert sorted(path.name for path in outside.iterdir()) == ["deep", "file"]


# In the source


def test_links_inside_of_the_source_are_followed(bench: Any) -> None:
    """The reference failed for every link in a source."""
    bench.template("app.conf", "app\n")
    bench.template("d/a.conf", "a\n")
    (bench.source / "same.conf").symlink_to("app.conf")
    (bench.source / "e").symlink_to(bench.source / "d")
    bench.apply()
    assert bench.files() == {"app.conf": "app\n", "same.conf": "app\n", "d/a.conf": "a\n", "e/a.conf": "a\n"}


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("../outside/file", "is a link to /outside/file, outside of the source"),
        ("../outside", "is a link to /outside, outside of the source"),
        ("..", "is a link to , outside of the source"),
        ("d/../../outside/file", "is a link to /outside/file, outside of the source"),
        ("/etc/passwd", "is a link to /etc/passwd, outside of the source"),
        ("nowhere", "is a link to nothing"),
        (".", "is a link to a directory that it is in"),
        ("d", "is a link to a directory that it is in"),
    ],
)
def test_other_links_in_the_source_are_refused(bench: Any, outside: Path, to: str, message: str) -> None:
    bench.template("d/app.conf")
    where = bench.source / "d" / "link" if to == "d" else bench.source / "link"
    where.symlink_to(bench.source / "d" if to == "d" else to)
    name = where.relative_to(bench.source)
    assert bench.fail() == f"templates/{name}: " + message


def test_a_fifo_in_the_source_is_refused_and_never_opened(bench: Any) -> None:
    bench.template("app.conf")
    os.mkfifo(bench.source / "pipe")
    assert bench.fail() == "templates/pipe: is neither a file nor a directory"


# Hostile templates


@pytest.mark.parametrize("engine", ["jet", "go"])
@pytest.mark.parametrize(
    "path", ["../outside/file", "a/../../outside/file", "/../outside/file", "..", "../target2/x", "x\\x00y"]
)
def test_write_stays_inside_of_the_target(bench: Any, outside: Path, engine: str, path: str) -> None:
    call = {"jet": f'[[ write("{path}", "evil") ]]', "go": f'{{{{ write "{path}" "evil" }}}}'}[engine]
    bench.template("a/x", call)
    before = contents(outside)
    assert "templates/a/x:1:" in bench.fail(engine=engine)
    assert contents(outside) == before
    assert not bench.target.exists()


def test_write_goes_through_no_link_of_the_target(bench: Any, outside: Path) -> None:
    bench.template("deep/z", '[[ write("deep/a.conf", "evil") ]]')
    bench.target.mkdir()
    (bench.target / "deep").symlink_to(outside / "deep")
    before = contents(outside)
    bench.fail()
    bench.apply(purge=True)
    assert contents(outside) == before


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("jet", '[[ render("../outside/file", .) ]]'),
        ("jet", '[[ include "../outside/file" ]]'),
        ("jet", '[[ include "/outside/file" ]]'),
        ("jet", '[[ readFile("../outside") ]]'),
        ("jet", '[[ file("/etc/passwd") ]]'),
        ("jet", '[[ file("templates/../../etc/passwd") ]]'),
        ("go", '{{ render "../outside/file" . }}'),
        ("go", '{{ file "/etc/passwd" }}'),
        ("go", '{{ template "../outside/file" . }}'),
        ("jinja", "{% include '../outside/file' %}"),
        ("jinja", "{% include '/etc/passwd' %}"),
        ("jinja", "{% import 'outside/file' as f %}"),
        ("jinja", "{{ render('../outside/file', {}) }}"),
        ("jinja", "{{ read_file('/etc/passwd') }}"),
        ("jinja", "{{ ''.__class__.__mro__ }}"),
        ("jinja", "{{ lookup.__globals__ }}"),
        ("jet", "[[ facts.__class__.x ]]"),
    ],
)
def test_no_template_reads_outside_or_reaches_python(
    bench: Any, outside: Path, engine: str, text: str
) -> None:
    bench.template("app.conf", f"line\n{text}")
    failure = bench.fail(engine=engine)
    assert failure.startswith("templates/app.conf:2:")
    assert "precious" not in failure
    assert "root:" not in failure
