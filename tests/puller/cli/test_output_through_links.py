"""Output files that root writes into another user's directory: commands do not follow links there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from puller.fleet.store.database import Store

if TYPE_CHECKING:
    from tests.support.stories import Execute, Publisher

pytestmark = pytest.mark.root
MALLORY = 65534
MANIFEST = "resources:\n- file:\n  - /x: {content: x, owner: root, group: root, mode: '0644'}\n"


class Place:
    """``home`` belongs to Mallory and has links to ``victim``, a directory of root."""

    def __init__(self, top: Path) -> None:
        self.home, self.victim = top / "home", top / "victim"
        self.home.mkdir()
        self.victim.mkdir(mode=0o700)
        (self.victim / "file").write_text("precious")
        (self.victim / "file").chmod(0o600)
        self.link("dir", self.victim)
        self.link("file", self.victim / "file")
        os.chown(self.home, MALLORY, MALLORY)
        self.bundle = top / "web"
        self.bundle.mkdir()
        (self.bundle / "manifest.yaml").write_text(MANIFEST)
        (top / "facts").mkdir()
        (top / "facts/one.json").write_text('{"host": {"name": "one"}}')
        (top / "template.jinja").write_text("text")
        self.top = top

    def link(self, name: str, target: Path) -> None:
        (self.home / name).symlink_to(target)
        os.chown(self.home / name, MALLORY, MALLORY, follow_symlinks=False)

    def assert_untouched(self) -> None:
        result = {path.name: path.read_text() for path in self.victim.rglob("*") if path.is_file()}
        assert result == {"file": "precious"}
        assert sorted(path.name for path in self.victim.iterdir()) == ["file"]
        assert (self.victim / "file").stat().st_mode & 0o777 == 0o600
        assert self.victim.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


FILES: dict[str, Callable[[Place, str], list[str]]] = {
    "preview": lambda place, out: [
        "preview", str(place.bundle), "--from", str(place.bundle), "--facts", f"{place.top}/facts", "-o", out,
    ],
    "render": lambda place, out: ["render", f"{place.top}/template.jinja", "-o", out],
    "build": lambda place, out: ["bundle", "build", str(place.bundle), "-o", out],
    "facts": lambda _, out: ["facts", "--save", out],
    "key": lambda _, out: ["site", "keys", "new", out, "--no-passphrase"],
}  # fmt: skip
DIRECTORIES: dict[str, Callable[[Place, str], list[str]]] = {
    "bundle new": lambda _, out: ["bundle", "new", "web", "--directory", out],
    "site init": lambda _, out: ["site", "init", out, "--no-passphrase"],
    "keys": lambda _, out: ["hiera", "keys", "create", "--directory", out],
    "units": lambda _, out: ["install-units", "--root", out],
    "fleet page": lambda place, out: ["fleet", "page", "--store", f"{place.top}/fleet.db", "--to", out],
    "fleet facts": lambda place, out: ["fleet", "facts", "--store", f"{place.top}/fleet.db", "--to", out],
    "render": lambda place, out: ["render", str(place.top / "templates"), "--engine", "jinja", "-o", out],
}


@pytest.mark.attack("output-links.file")
@pytest.mark.parametrize("command", FILES)
def test_output_file_follows_no_link(place: Place, execute: Execute, command: str) -> None:
    for name in ("dir/new", "dir/file"):
        status, output = execute(*FILES[command](place, str(place.home / name)))
        assert status not in (0, 2), output
        assert "Traceback" not in output
        assert "of user 65534" in output or "never written over" in output
    status, output = execute(*FILES[command](place, str(place.home / "file")))
    assert status != 0, output
    assert "Traceback" not in output
    place.assert_untouched()


@pytest.mark.attack("output-links.directory")
@pytest.mark.parametrize("command", DIRECTORIES)
def test_output_directory_follows_no_link(place: Place, execute: Execute, command: str) -> None:
    Store.open(str(place.top / "fleet.db"), make=True).close()
    (place.top / "templates").mkdir()
    (place.top / "templates/new").write_text("text")
    for out in (place.home / "dir", place.home / "dir/new"):
        status, output = execute(*DIRECTORIES[command](place, str(out)))
        assert status != 0, output
        assert "Traceback" not in output
    place.assert_untouched()


@pytest.mark.attack("output-links.site")
@pytest.mark.parametrize("at", ["", "/targets", "/metadata", "/targets/web", "/metadata/timestamp.json"])
def test_push_and_mirror_follow_no_link(
    place: Place, execute: Execute, publisher: Publisher, at: str
) -> None:
    publisher.publish("1.0.0")
    root = str(publisher.site.anchor)
    for out, public, command in (
        ("www", "www", ["site", "push", str(publisher.site.directory)]),
        ("copy", "copy/public", ["site", "mirror", str(publisher.site.public)]),
    ):
        link = Path(f"{place.home}/{public}{at}")
        link.parent.mkdir(parents=True, exist_ok=True)
        for directory in (link.parent, *link.parent.parents[: public.count("/") + at.count("/")]):
            os.chown(directory, MALLORY, MALLORY)
        place.link(str(link.relative_to(place.home)), place.victim / ("file" if at.endswith("json") else ""))
        words = [*command, str(place.home / out), *(["--root", root] if "mirror" in command else [])]
        status, output = execute(*words)
        assert "Traceback" not in output
        assert status != 0 or not link.is_symlink(), output
        place.assert_untouched()


@pytest.mark.attack("output-links.site")
def test_mirror_state_of_another_user_is_refused(
    place: Place, execute: Execute, publisher: Publisher
) -> None:
    publisher.publish("1.0.0")
    (place.home / "copy").mkdir()
    place.link("copy/mirror", place.victim)
    words = ["site", "mirror", str(publisher.site.public), str(place.home / "copy")]
    status, output = execute(*words, "--root", str(publisher.site.anchor))
    assert status != 0, output
    place.assert_untouched()


def test_mirror_into_a_directory_of_another_user_works(
    place: Place, execute: Execute, publisher: Publisher
) -> None:
    publisher.publish("1.0.0")
    words = [
        "site",
        "mirror",
        str(publisher.site.public),
        str(place.home),
        "--root",
        str(publisher.site.anchor),
    ]
    assert execute(*words)[0] == 0
    publisher.publish("1.1.0")
    assert execute(*words)[0] == 0
    assert "nothing to do" in execute(*words)[1] or execute(*words)[0] == 0
