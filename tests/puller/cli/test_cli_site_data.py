"""``puller site data``, as a publisher types it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stories import Execute, Publisher


@pytest.fixture
def site(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(publisher.site.directory)


def test_a_document_is_published_listed_and_withdrawn(site: str, tmp_path: Path, execute: Execute) -> None:
    file = tmp_path / "exports.yaml"
    for text in ("data: {a: 1}\n", "data: {a: 2}\n", "data: {a: 1}\n"):
        file.write_text(text)
        status, output = execute("site", "data", site, str(file), "--noop")
        assert (status, "site data exports would be published" in output) == (0, True)
        status, output = execute("site", "data", site, str(file))
        assert (status, f"site data exports is published ({len(text)} bytes, sha256 " in output) == (0, True)
        status, output = execute("site", "data", site, str(file))
        assert (status, "is as it was published before" in output) == (0, True)
    status, output = execute("site", "list", site)
    assert "SITE DATA" in output
    assert "exports" in output
    (listed,) = json.loads(execute("site", "list", site, "--format", "json")[1])["data"]
    assert (listed["name"], listed["size"]) == ("exports", 13)
    assert "1 published files" in execute("site", "verify", site)[1]
    status, output = execute("site", "data", site, "--withdraw", "exports")
    assert (status, output) == (0, f"{site}: site data exports is no longer published\n")
    assert "nothing is published yet" in execute("site", "list", site)[1]


def test_the_name_is_that_of_the_file_or_another_one(site: str, tmp_path: Path, execute: Execute) -> None:
    (tmp_path / "one.two.json").write_text('{"data": {"a": 1}}')
    output = execute("site", "data", site, "one.two.json", "--format", "json")[1]
    assert json.loads(output)["name"] == "one"
    output = execute("site", "data", site, "one.two.json", "--name", "other", "--format", "json")[1]
    assert json.loads(output)["changed"] is True


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (b"data: [1]\n", 13, "file.yaml:1"),
        (b"data: {a: 1, a: 2}\n", 13, "file.yaml:1"),
        (b"dta: {a: 1}\n", 13, "dta"),
        (b"data: {a: 'x\n", 13, "file.yaml"),
        (b"data: \xff\n", 13, "is not UTF-8 text, at byte 6"),
        (b"data:\n  # @sensitive\n  key: CANARY\n", 13, "marks key as @sensitive"),
        (b" " * 4_000_001, 13, "4000000"),
        (None, 64, "no such file"),
    ],
)
def test_unreadable_site_data_are_refused(
    site: str, tmp_path: Path, execute: Execute, text: bytes | None, status: int, said: str
) -> None:
    if text is not None:
        (tmp_path / "file.yaml").write_bytes(text)
    ended, output = execute("site", "data", site, "file.yaml")
    assert ended == status, output
    assert said in output.lower() or said in output
    assert "CANARY" not in output
    assert "Traceback" not in output
    assert "nothing is published yet" in execute("site", "list", site)[1]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 64, "expected either FILE or --withdraw NAME"),
        (("x.yaml", "--withdraw", "x"), 64, "expected either FILE or --withdraw NAME"),
        (("--withdraw", "x", "--noop"), 64, "--withdraw takes neither"),
        (("--withdraw", "x"), 64, "site data 'x'"),
        (("Bad.yaml",), 13, "site data"),
    ],
)
def test_words_that_make_no_sense(
    site: str, tmp_path: Path, execute: Execute, words: tuple[str, ...], status: int, said: str
) -> None:
    (tmp_path / "Bad.yaml").write_text("data: {port: 80}\n")
    ended, output = execute("site", "data", site, *words)
    assert said in output
    assert ended == status, output
