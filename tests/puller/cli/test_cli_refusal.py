"""``puller bundle build`` and ``puller site publish`` reject lint errors, but no problem that hosts could solve."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.archive.pack import build_bundle

if TYPE_CHECKING:
    from tests.support.stories import Execute

BROKEN = {
    "no YAML": ("a: [", "manifest.yaml:2:1: did not find"),
    "an unknown property": (
        "resources: [{exec: [a: {comand: x}]}]",
        "manifest.yaml:1:25: resources[0] exec#a: comand is not a property of exec (did you mean 'command'?)",
    ),
    "a misspelt annotation": (
        "data:\n  # @sensitve\n  token: hunter2\nresources: []",
        "manifest.yaml:2:5: unknown annotation @sensitve (did you mean '@sensitive'?)",
    ),
    "a mode that is a number": (
        "resources: [{file: [/a: {mode: 0644, owner: r, group: r, content: x}]}]",
        "manifest.yaml:1:26: resources[0] file#/a: mode is a number",
    ),
    "an unknown property beside a fact": (
        "resources: [{exec: [a: {comand: '{{ facts.role }}'}]}]",
        "manifest.yaml:1:25: resources[0] exec#a: comand is not a property of exec",
    ),
}
SOUND = {
    "data of a fact": "data: {a: '{{ facts.role }}'}\nresources: []",
    "a hierarchy of facts": "hierarchy: {order: ['role:{{ facts.role }}']}\nresources: []",
    "a fact of the environment": "resources: [{exec: [a: {command: 'echo {{ environ.NOWHERE }}'}]}]",
    "a loop over facts": "resources: [{exec: {name: 'a {{ x }}', for: x in facts.disks, command: b}}]",
    "data that hosts must give": "data:\n  # @require\n  token:\nresources: []",
    "data that hosts must choose": "data:\n  # @validate value != 'x'\n  token: x\nresources: []",
    "a resource of another bundle": "resources: [{exec: [a: {command: b, require: [package#nginx]}]}]",
    "a warning": "data: {mode: 0644}\nresources: []",
}
NAMES = [
    "run-backup",
    "decrypt-backup",
    "with the private key",
    "a, which is not declared",
    "unknown key",
    "did you mean 'a'?",
    "fails; quote it",
    "needs facts, data or environ",
    "declared by another bundle",
    "is encrypted: [secret]",
    "a: b: c",
]
"""Names of resources that consist of words from messages."""


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for a bundle, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web").mkdir()
    return tmp_path / "web"


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("text", "sentence"), BROKEN.values(), ids=BROKEN)
def test_broken_bundles_are_neither_built_nor_published(
    web: Path, new_site: Path, execute: Execute, text: str, sentence: str
) -> None:
    (web / "manifest.yaml").write_text(f"{text}\n")
    shutil.copytree(new_site, "site")
    before = files(web.parent)
    for command in (
        ("bundle", "build", "web", "--version", "1.0.0"),
        ("site", "publish", "site", "web", "--version", "1.0.0"),
        ("site", "publish", "site", "web", "--version", "auto", "--noop"),
    ):
        status, output = execute(*command)
        assert status == 13, output
        assert f"puller: web/{sentence}" in output
        assert "hunter2" not in output
    assert files(web.parent) == before
    status, output = execute("lint", "web", "--no-system-facts")
    place, _, words = sentence.partition(": ")
    assert (status, f"web/{place}: error: {words}" in output) == (1, True), output


@pytest.mark.parametrize("text", SOUND.values(), ids=SOUND)
def test_host_dependent_problems_do_not_block_publishing(
    web: Path, new_site: Path, execute: Execute, text: str
) -> None:
    (web / "manifest.yaml").write_text(f"{text}\n")
    shutil.copytree(new_site, "site")
    assert execute("bundle", "build", "web", "--version", "1.0.0")[0] == 0
    status, output = execute("site", "publish", "site", "web", "--version", "1.0.0")
    assert (status, "is in channel stable" in output) == (0, True), output


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.representatives(4)
def test_a_name_decides_nothing(web: Path, new_site: Path, execute: Execute, name: str) -> None:
    shutil.copytree(new_site, "site")
    properties: dict[str, object] = {"timeoutt": "5s", "require": [f"exec#other {name}"], "cwd": "/srv"}
    for key, value in properties.items():
        resource = {name: {"command": "/usr/bin/true", key: value}}
        (web / "manifest.yaml").write_text(json.dumps({"resources": [{"exec": [resource]}]}))
        expected = 13 if key == "timeoutt" else 0
        for command in (
            ("bundle", "build", "web", "--version", "1.0.0", "--output", f"{key}.tar.gz"),
            ("site", "publish", "site", "web", "--version", "auto", "--noop"),
            ("site", "publish", "site", "web", "--version", "auto"),
        ):
            status, output = execute(*command)
            assert status == expected, output
    assert sorted(path.name for path in Path().glob("*.tar.gz")) == ["cwd.tar.gz", "require.tar.gz"]


def test_all_that_is_wrong_with_several_bundles_is_told_at_once(
    web: Path, new_site: Path, execute: Execute
) -> None:
    shutil.copytree(new_site, "site")
    for name in ("web", "db"):
        Path(name).mkdir(exist_ok=True)
        Path(name, "manifest.yaml").write_text("resources: [{exec: [a: {comand: x}]}]\n")
    status, output = execute("site", "publish", "site", "web", "db", "--version", "1.0.0")
    assert status == 13
    for name in ("web", "db"):
        assert f"puller: {name}/manifest.yaml:1:25: resources[0] exec#a: comand is not a property" in output


def test_an_archive_that_was_built_elsewhere_is_checked_too(
    web: Path, new_site: Path, execute: Execute
) -> None:
    shutil.copytree(new_site, "site")
    (web / "manifest.yaml").write_text("resources: [{exec: [a: {comand: x}]}]\n")
    build_bundle(web, Path("web-1.0.0.tar.gz"), name="web", version="1.0.0")
    status, output = execute("site", "publish", "site", "web-1.0.0.tar.gz")
    assert (status, "manifest.yaml:1:25: resources[0] exec#a: comand is not" in output) == (13, True), output


def test_facts_of_the_machine_that_publishes_count_for_nothing(
    web: Path, new_site: Path, execute: Execute
) -> None:
    """Executable facts of the bundle are not run there either."""
    shutil.copytree(new_site, "site")
    (web / "facts.d").mkdir()
    script = web / "facts.d/role.sh"
    script.write_text(f"#!/bin/sh\ntouch {web.parent}/was-run\necho db\n")
    script.chmod(0o755)
    (web / "manifest.yaml").write_text(
        "data: {a: '{{ facts.role }}', b: '{{ facts.os.family }}'}\nresources: []\n"
    )
    status, output = execute("site", "publish", "site", "web", "--version", "1.0.0")
    assert (status, Path("was-run").exists()) == (0, False), output
