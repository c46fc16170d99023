"""``puller test --apply``: cases that are really applied, and errors."""

import json
import os
from pathlib import Path

import pytest

from puller.cli import main

MANIFEST = """\
data: {workers: 8}
resources:
  - file:
      - /etc/app.conf: {content: "workers = {{ data.workers }}\\n", owner: root, group: root, mode: "0644"}
"""
CASE = "os: debian-12\nexpect: {file#/etc/app.conf: {mode: '0644'}}\n"
NEEDS_A_DIRECTORY = MANIFEST.replace("/etc/app.conf", "/srv/app/app.conf")


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle with one case, and a tree beside it, both below the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web" / "tests").mkdir(parents=True)
    (tmp_path / "web" / "manifest.yaml").write_text(MANIFEST)
    (tmp_path / "web" / "tests" / "one.yaml").write_text(CASE)
    (tmp_path / "tree" / "etc").mkdir(parents=True)
    (tmp_path / "tree" / "etc" / "os-release").write_text("ID=debian\n")
    (tmp_path / "tree" / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tmp_path / "tree" / "etc" / "group").write_text("root:x:0:\n")
    return tmp_path / "web"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main(["test", *arguments])
    output = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, output.out + output.err


@pytest.mark.root
def test_case_is_applied_to_the_given_or_its_own_tree(web: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "web", "--apply", "--tree", "tree")[0] == 0
    (web / "tests" / "one.yaml").write_text(f"tree: ../tree\n{CASE}")
    assert run(capsys, "web", "--apply")[0] == 0
    assert sorted(os.listdir("tree/etc")) == ["group", "os-release", "passwd"]


@pytest.mark.everything
@pytest.mark.root
def test_inapplicable_declaration_is_found(web: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (web / "manifest.yaml").write_text(NEEDS_A_DIRECTORY)
    (web / "tests" / "one.yaml").write_text(CASE.replace("/etc", "/srv/app"))

    assert run(capsys, "web")[0] == 0
    status, output = run(capsys, "web", "--apply", "--tree", "tree", "--format", "json")
    assert status == 1
    assert "file#/srv/app/app.conf: cannot be applied: directory /srv/app does not exist" in output
    assert json.loads(output)


@pytest.mark.root
def test_a_case_without_a_tree_fails_and_says_so(web: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output = run(capsys, "web", "--apply")
    assert (status, "requires a tree: set tree in the case, or pass --tree" in output) == (1, True)
    (web / "tests" / "one.yaml").write_text(f"tree: ../nowhere\n{CASE}")
    status, output = run(capsys, "web", "--apply")
    assert (status, "nowhere: is not a directory, expected the tree" in output) == (1, True)


@pytest.mark.root
def test_a_case_that_must_fail_is_not_applied(web: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (web / "manifest.yaml").write_text(MANIFEST.replace("data.workers", "data.wrkers"))
    (web / "tests" / "one.yaml").write_text("os: debian-12\nfails: wrkers\n")

    assert run(capsys, "web", "--apply", "--tree", "tree")[0] == 0


def test_only_root_may_apply(
    web: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    status, output = run(capsys, "web", "--apply", "--tree", "tree")

    assert (status, output) == (64, "puller: --apply requires root, because it mounts a private root\n")


def test_a_tree_without_applying_is_refused(web: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "web", "--tree", "tree") == (64, "puller: test: --tree is for --apply\n")
