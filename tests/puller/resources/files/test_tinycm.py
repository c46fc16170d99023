"""TinyCM's file definitions work as documented, even where TinyCM's code differs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.errors import ResourceError
from puller.resources.base import PropertyError, Resource
from puller.resources.files.file import File

Make = Callable[..., Resource[Any, Any]]
Converge = Callable[[Resource[Any, Any]], list[str]]

CONSTANTS = {"foo": "bar", "nameservers": ["8.8.8.8", "8.8.4.4"], "dns": {"domain": "example.com"}}


@pytest.fixture
def definition(tmp_path: Path, ours: dict[str, str]) -> dict[str, Any]:
    return {
        "name": str(tmp_path / "x"),
        "owner": ours["owner"],
        "group": ours["group"],
        "permission-mask": "644",
    }


def test_contents_are_kept_as_defined(
    make: Make, converge: Converge, definition: dict[str, Any], tmp_path: Path
) -> None:
    converge(
        make(
            File, {**definition, "ensure": "contents", "type": "constant", "contents": "text {not a field}\n"}
        )
    )
    assert (tmp_path / "x").read_text() == "text {not a field}\n"


def test_exists_writes_the_contents_once(
    make: Make, converge: Converge, definition: dict[str, Any], tmp_path: Path
) -> None:
    properties = {**definition, "ensure": "exists", "contents": "first\n"}
    converge(make(File, properties))
    (tmp_path / "x").write_text("edited by hand\n")
    (tmp_path / "x").chmod(0o600)
    assert converge(make(File, properties)) == ["mode 0600 → 0644"]
    assert (tmp_path / "x").read_text() == "edited by hand\n"


def test_removed_removes(make: Make, converge: Converge, definition: dict[str, Any], tmp_path: Path) -> None:
    """TinyCM's code rejects ``removed`` and never deletes."""
    (tmp_path / "x").write_text("a")
    converge(make(File, {**definition, "ensure": "removed", "contents": "whatever"}))
    assert not (tmp_path / "x").exists()


def test_constants_are_interpolated_in_both_spellings(
    make: Make, converge: Converge, definition: dict[str, Any], tmp_path: Path
) -> None:
    contents = "foo is {foo}\nnameserver {nameservers[0]}\nsearch {dns['domain']} {dns[domain]} {{literal}}\n"
    converge(make(File, {**definition, "interpolate": True, "contents": contents}, data=CONSTANTS))
    assert (tmp_path / "x").read_text() == (
        "foo is bar\nnameserver 8.8.8.8\nsearch example.com example.com {literal}\n"
    )


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("{nope}", "content: {nope}: unknown name 'nope'"),
        ("{nameservers[7]}", "content: {nameservers[7]}: unknown name '7'"),
        ("{foo.__class__}", "content: {foo.__class__}: unknown name 'foo.__class__'"),
        ("{dns}", "content: {dns} is a dict, expected a plain value"),
        ("{", "content cannot be interpolated: "),
    ],
)
def test_invalid_interpolation_is_named_and_sandboxed(
    make: Make, converge: Converge, definition: dict[str, Any], contents: str, message: str
) -> None:
    with pytest.raises(ResourceError) as error:
        converge(make(File, {**definition, "interpolate": True, "contents": contents}, data=CONSTANTS))
    assert message in str(error.value)


def test_template_uses_jinja_unless_stated_otherwise(
    make: Make, converge: Converge, definition: dict[str, Any], tmp_path: Path
) -> None:
    """The documented example omits ``interpolate``."""
    (tmp_path / "template.conf").write_text("{% for n in nameservers %}ns {{ n }}\n{% endfor %}")
    template = {**definition, "type": "template", "contents": "template.conf"}
    converge(make(File, template, data=CONSTANTS))
    assert (tmp_path / "x").read_text() == "ns 8.8.8.8\nns 8.8.4.4\n"
    converge(make(File, {**template, "interpolate": False}, data=CONSTANTS))
    assert (tmp_path / "x").read_text().startswith("{% for")


MASKS = [("xxx", 0o644, 0o755), ("x00", 0o600, 0o700), ("7xx", 0o744, 0o755), ("xx0", 0o640, 0o750)]


@pytest.mark.parametrize(("mask", "file", "directory"), MASKS)
def test_open_mode_of_a_new_file_follows_umask_022(
    make: Make,
    converge: Converge,
    definition: dict[str, Any],
    tmp_path: Path,
    mask: str,
    file: int,
    directory: int,
) -> None:
    masked = {**definition, "permission-mask": mask}
    converge(make(File, {**masked, "contents": "x"}))
    assert (tmp_path / "x").stat().st_mode & 0o777 == file
    converge(make(File, {**masked, "name": str(tmp_path / "d"), "ensure": "directory"}))
    assert (tmp_path / "d").stat().st_mode & 0o777 == directory
    (tmp_path / "link").symlink_to("x")
    converge(make(File, {**masked, "name": str(tmp_path / "link"), "contents": "y"}))
    assert (tmp_path / "link").lstat().st_mode & 0o777 == file
    (tmp_path / "x").chmod(0o777)
    converge(make(File, {**masked, "contents": "changed"}))
    retained = int(mask.replace("x", "7"), 8)
    assert (tmp_path / "x").stat().st_mode & 0o777 == retained


@pytest.mark.parametrize(
    "after", ["file::/etc/motd", ["file::/etc/motd"], "file#/etc/motd", ["file#/etc/motd"]]
)
def test_after_is_text_or_a_list_in_both_notations(
    make: Make, definition: dict[str, Any], after: object
) -> None:
    assert make(File, {**definition, "after": after}).properties.after == ("file#/etc/motd",)
    plain = {key: value for key, value in definition.items() if key != "permission-mask"}
    assert make(File, {**plain, "mode": "0644", "after": after}).properties.after == ("file#/etc/motd",)


def test_http_contents_are_downloaded_decoded_and_rendered(
    make: Make, converge: Converge, definition: dict[str, Any], tmp_path: Path
) -> None:
    http = {**definition, "type": "http", "contents": "http://www.example.org/a", "encoding": "latin-1"}
    body = "café {{ foo }}\n".encode("latin-1")
    converge(make(File, {**http, "interpolate": True}, data=CONSTANTS, fetch=lambda url: body))
    assert (tmp_path / "x").read_bytes() == "café bar\n".encode("latin-1")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"type": "ftp"}, "type is 'ftp', expected one of constant, http, template"),
        ({"contents": "a", "content": "b"}, "contents cannot be given together with content"),
        ({"mode": "0644"}, "permission-mask cannot be given together with mode"),
    ],
)
def test_contradictions_are_refused(
    make: Make, definition: dict[str, Any], properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError) as error:
        make(File, {**definition, **properties})
    assert str(error.value) == message


def test_definitions_default_to_root_and_0644() -> None:
    """An example of its document: ``owner`` alone, without a group and a mask."""
    raw = {"name": "/tmp/example", "ensure": "contents", "type": "constant", "contents": "a", "owner": "app"}
    accepted = File.accept(raw)
    assert (accepted["owner"], accepted["group"], accepted["mode"]) == ("app", "root", "0644")
    assert "mode" not in File.accept({"name": "/tmp/example", "ensure": "exists"})
