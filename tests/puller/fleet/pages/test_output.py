import json
from pathlib import Path

import pytest

from puller.errors import SourceError, UsageError
from puller.fleet.pages.pages import LIST, Output


def make(directory: Path, **pages: str) -> Output:
    output = Output(directory)
    for name, text in pages.items():
        output.write(f"hosts/{name}.html", text.encode())
    output.finish()
    return output


def test_second_write_changes_different_files_only(tmp_path: Path) -> None:
    assert make(tmp_path, a="1", b="1").written == 2
    assert make(tmp_path, a="1", b="1").written == 0
    assert make(tmp_path, a="1", b="2").written == 1
    assert (tmp_path / "hosts/b.html").read_text() == "2"


def test_only_our_files_are_removed(tmp_path: Path) -> None:
    make(tmp_path, a="1", b="1")
    (tmp_path / "hosts/mine.html").write_text("mine")
    assert make(tmp_path, a="1").removed == 1
    assert not (tmp_path / "hosts/b.html").exists()
    assert (tmp_path / "hosts/mine.html").read_text() == "mine"


def test_directory_of_a_killed_first_write_is_reused(tmp_path: Path) -> None:
    Output(tmp_path).write("hosts/a.html", b"1")
    make(tmp_path, a="1")
    assert set(json.loads((tmp_path / LIST).read_text())["files"]) == {"hosts/a.html"}


def test_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("")
    with pytest.raises(UsageError, match="no directory of pages"):
        Output(tmp_path)


def test_a_damaged_list_is_said(tmp_path: Path) -> None:
    (tmp_path / LIST).write_text("{")
    with pytest.raises(SourceError, match="is damaged"):
        Output(tmp_path)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", ".x", "hosts/../x"])
def test_a_hostile_list_removes_nothing_of_others(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "deep" / "pages"
    directory.mkdir(parents=True)
    others = [tmp_path / "deep/x", tmp_path / "x", directory / ".x", directory / "x"]
    for file in others:
        file.write_text("theirs")
    (directory / LIST).write_text(json.dumps({"format": 1, "files": {name: "1"}}))
    make(directory, a="1")
    assert all(file.read_text() == "theirs" for file in others)
