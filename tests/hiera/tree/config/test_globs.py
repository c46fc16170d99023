"""Patterns of paths, on a real directory and on an equivalent mapping."""

import os
from pathlib import Path

import pytest

from hiera.errors import DocumentError, LimitError
from hiera.tree.locations import Documents, Files, Kind, Texts, expand, join
from tests.support.rows import each_row

PATHS = (
    *(
        "a/1.yaml",
        "a/10.yaml",
        "a/2.yaml",
        "a/B.yaml",
        "a/b.yaml",
        "a/sub/3.yaml",
        "a/sub/deep/4.yaml",
        "a/x.json",
    ),
    *("a/.hidden.yaml", "a/.secret/5.yaml", "c.yaml", "ż.yaml"),
)


@pytest.fixture(params=["directory", "mapping"])
def documents(request: pytest.FixtureRequest, tmp_path: Path) -> Documents:
    if request.param == "mapping":
        return Texts(dict.fromkeys(PATHS, ""), str(tmp_path))
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    return Files()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a/*.yaml", ["a/1.yaml", "a/10.yaml", "a/2.yaml", "a/B.yaml", "a/b.yaml"]),
        ("a/?.yaml", ["a/1.yaml", "a/2.yaml", "a/B.yaml", "a/b.yaml"]),
        ("a/[a-z].*", ["a/b.yaml", "a/x.json"]),
        ("a/[!0-9]*.yaml", ["a/B.yaml", "a/b.yaml"]),
        ("a/{2,1}.yaml", ["a/2.yaml", "a/1.yaml"]),
        ("{a/{1,b},c}.yaml", ["a/1.yaml", "a/b.yaml", "c.yaml"]),
        ("a/{1,*}.yaml", ["a/1.yaml", "a/1.yaml", "a/10.yaml", "a/2.yaml", "a/B.yaml", "a/b.yaml"]),
        ("a/sub/**/*.yaml", ["a/sub/3.yaml", "a/sub/deep/4.yaml"]),
        ("**/[34].yaml", ["a/sub/3.yaml", "a/sub/deep/4.yaml"]),
        ("**/**/[34].yaml", ["a/sub/3.yaml", "a/sub/deep/4.yaml"]),
        ("a/.*", ["a/.hidden.yaml"]),
        ("*", ["c.yaml", "ż.yaml"]),
        ("a/\\1.yaml", ["a/1.yaml"]),
        ("a/1.yaml", ["a/1.yaml"]),
        ("a/*/", []),
        ("a/[z-a]*", []),
        ("zzz/*.yaml", []),
        ("a/1.yaml/*", []),
    ],
)
def test_a_pattern_matches_as_rubys_glob_does(
    documents: Documents, tmp_path: Path, pattern: str, found: list[str]
) -> None:
    assert expand(f"{tmp_path}/{pattern}", documents) == [f"{tmp_path}/{path}" for path in found]


def test_glob_results_are_sorted(tmp_path: Path) -> None:
    documents = Texts(dict.fromkeys(("a.yaml", "b/x.yaml", "c.yaml"), ""), "/r")
    assert expand("/r/**/*.yaml", documents) == ["/r/a.yaml", "/r/b/x.yaml", "/r/c.yaml"]


def test_linked_directories_are_not_entered_by_two_stars(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/x.yaml").touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/loop").symlink_to("..")
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    assert expand(f"{tmp_path}/**/*.yaml", Files()) == [f"{tmp_path}/real/x.yaml"]
    assert expand(f"{tmp_path}/link/*.yaml", Files()) == [f"{tmp_path}/link/x.yaml"]


def test_braces_that_multiply_without_end_are_refused() -> None:
    with pytest.raises(LimitError, match="more than 10000 alternatives"):
        expand("/" + "{a,b}" * 20, Texts({}))


def test_named_pipe_is_no_data_file_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(DocumentError, match="not a regular file"):
        Files().read(str(tmp_path / "pipe.yaml"))


def test_only_not_found_means_absent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert Files().kind(str(tmp_path / "gone")) is Kind.NOTHING
    assert Files().kind(str(tmp_path / "file/below")) is Kind.NOTHING
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DocumentError, match="symbolic links"):
        Files().kind(str(tmp_path / "loop"))
    with pytest.raises(DocumentError, match="null"):
        Files().kind("/nul\0")


@each_row(
    ("path", "joined"),
    [
        ("a.yaml", "/env/data/a.yaml"),
        ("/abs/a.yaml", "/abs/a.yaml"),
        ("../other/a.yaml", "/env/other/a.yaml"),
        ("./a.yaml", "/env/data/a.yaml"),
        ("../../../a.yaml", "/a.yaml"),
        ("gone/../a.yaml", "/env/data/gone/../a.yaml"),
        ("", "/env/data"),
        ("..", "/env"),
    ],
)
def test_joining_paths(path: str, joined: str) -> None:
    assert join("/env/data", path) == joined
