"""Files with a byte order mark, in UTF-16 or in Latin-1 are never damaged, and never cause a false success."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.errors import ResourceError
from puller.resources.accounts.authorized_keys import DesiredKeys, KeysState, merged, parse_key
from puller.resources.files.file import File
from puller.resources.kernel import fstab, module_files, sysctl_files
from puller.resources.packages.apt import parse_entries
from puller.resources.read_once import EditedFile
from puller.resources.scaffolds.scaffold_tree import RenderRequest, read_source, render_source
from puller.resources.services.unit_links import _settings
from puller.system.local import LocalSystem
from puller.templates.rendering import ENGINES

Make = Callable[..., Any]
MARK = b"\xef\xbb\xbf"
WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
ENTRY = fstab.Edit("/mnt/b", fstab.Fields("/dev/sda2", "/mnt/b", "ext4"))
PARAMETER = sysctl_files.Edit("vm.swappiness", "1")
FORMATS: dict[str, tuple[Any, Any, Any, str]] = {
    "fstab": (fstab.parse, fstab.edited, ENTRY, "/dev/sda2 /mnt/b ext4 defaults 0 0\n"),
    "sysctl": (sysctl_files.parse, sysctl_files.edited, PARAMETER, "vm.swappiness = 1\n"),
}
FIRST = {"fstab": "/dev/sda1 /mnt/a ext4 defaults 0 0\n", "sysctl": "kernel.a = 1\n"}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA a"


# System files


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("encoding", WIDE)
def test_a_system_file_in_utf_16_is_refused(tmp_path: Path, name: str, encoding: str) -> None:
    parse, edited, edit, _ = FORMATS[name]
    path, content = tmp_path / "file", FIRST[name].encode(encoding)
    path.write_bytes(content)
    with pytest.raises(ResourceError, match="is text in UTF-16 or UTF-32"):
        EditedFile(str(path), parse).write(LocalSystem(), lambda text: edited(text, [edit]))
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("before", [MARK + b"# comment\n", MARK, b"# caf\xe9\n", b"# caf\xe9", b"\n"])
def test_a_new_entry_leaves_other_bytes_alone(tmp_path: Path, name: str, before: bytes) -> None:
    parse, edited, edit, line = FORMATS[name]
    path = tmp_path / "file"
    path.write_bytes(before)
    file = EditedFile(str(path), parse)
    assert file.write(LocalSystem(), lambda text: edited(text, [edit]))
    end = b"" if before.endswith(b"\n") else b"\n"
    assert path.read_bytes() == before + end + line.encode()
    assert not file.write(LocalSystem(), lambda text: edited(text, [edit]))


def test_a_parameter_behind_a_mark_is_another_one() -> None:
    text = "\ufeffvm.swappiness = 1\n"
    assert "vm.swappiness" not in sysctl_files.parse(text)
    assert sysctl_files.edited(text, [PARAMETER]) == f"{text}vm.swappiness = 1\n"


def test_a_device_behind_a_mark_is_written_without_it() -> None:
    text = "\ufeff/dev/sda2 /mnt/b ext4 defaults 0 0\n"
    (entry,) = fstab.parse(text)["/mnt/b"]
    assert ENTRY.fields is not None
    assert not entry.fields.same_as(ENTRY.fields)
    assert fstab.edited(text, [ENTRY]) == text.removeprefix("\ufeff")


@pytest.mark.skipif(shutil.which("findmnt") is None, reason="compares with findmnt")
@pytest.mark.parametrize(
    "content",
    [
        MARK + b"/dev/sda1 /mnt/a ext4 defaults 0 0\n/dev/sda2 /mnt/b ext4 defaults 0 0\n",
        MARK + b"# comment\n/dev/sda2 /mnt/b ext4 defaults 0 0\n",
        b"# caf\xe9\n/dev/sda2 /mnt/b ext4 defaults 0 0\n",
    ],
)
def test_fstab_with_a_mark_is_read_as_mount_reads_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fstab"
    path.write_bytes(content)
    command = [
        "findmnt",
        "--tab-file",
        str(path),
        "--all",
        "--noheadings",
        "--list",
        "--output",
        "SOURCE,TARGET",
    ]
    shown = subprocess.run(command, capture_output=True, check=True, timeout=10).stdout.decode()
    entries = fstab.parse(content.decode("utf-8", "surrogateescape"))
    parsed = {entry.fields.point: entry.fields.device for found in entries.values() for entry in found}
    for line in shown.splitlines():
        device, point = line.split()
        assert parsed[point] == device


def test_a_module_behind_a_mark_or_other_blanks_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "modules-load.d/a.conf"
    path.parent.mkdir()
    path.write_bytes(MARK + b"loop\n\xc2\xa0dummy\n b_c \r\n; d\n")
    assert [line.module for line in module_files.lines_of(str(path))] == ["\ufeffloop", "\xa0dummy", "b_c"]


def keys_of_user(*, exclusive: bool) -> DesiredKeys:
    return DesiredKeys((parse_key(KEY),), exclusive, "a", 1, 1, "/home/a")


@pytest.mark.parametrize("encoding", WIDE)
def test_authorized_keys_in_utf_16_are_refused_or_replaced(encoding: str) -> None:
    content = f"{KEY}\n".encode(encoding)
    desired = keys_of_user(exclusive=False)
    with pytest.raises(ResourceError, match="authorized_keys is text in UTF-16 or UTF-32"):
        merged(content, desired)
    new, _ = merged(content, keys_of_user(exclusive=True))
    assert merged(new, desired) == (new, KeysState())
    assert new == f"{KEY}\n".encode()


def test_a_key_behind_a_mark_is_added_again() -> None:
    content = MARK + f"{KEY}\n# caf".encode() + b"\xe9\n"
    new, state = merged(content, keys_of_user(exclusive=False))
    assert new == content + f"{KEY}\n".encode()
    assert state == KeysState(missing=1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.list", "deb http://a.example/ bookworm main\n"),
        ("a.sources", "Types: deb\nURIs: http://a.example/\nSuites: bookworm\n"),
    ],
)
def test_an_entry_that_apt_does_not_read_is_no_entry(name: str, text: str) -> None:
    assert [*parse_entries(name, text)]
    for encoding in WIDE:
        assert not [*parse_entries(name, text.encode(encoding).decode(errors="replace"))]
    marked = [*parse_entries(name, f"\ufeff{text}")]
    assert marked == [*parse_entries(name, text)][: len(marked)]


def test_a_unit_file_with_a_mark_has_its_first_section(tmp_path: Path) -> None:
    from puller.values.foreign_text import MARK as TEXT_MARK

    text = (MARK + b"[Install]\nWantedBy=multi-user.target\n").decode()
    assert [*_settings(text.removeprefix(TEXT_MARK))] == [("WantedBy", "multi-user.target")]


# Templates

ACTIONS = {"jet": "[[ 1 + 1 ]]", "go": "{{ add 1 1 }}", "jinja": "{{ 1 + 1 }}"}


def content_of(make: Make, path: Path, engine: str) -> bytes:
    resource = make(
        File,
        {
            "name": str(path.parent / "made"),
            "template": path.name,
            "engine": engine,
            "owner": 0,
            "group": 0,
            "mode": "0644",
        },
    )
    (content,) = resource.contents().values()
    return b"".join(content.chunks())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_template_keeps_its_mark_at_the_start(make: Make, tmp_path: Path, engine: str) -> None:
    path = tmp_path / "template"
    path.write_bytes(MARK + ACTIONS[engine].encode() + b"\n")
    assert content_of(make, path, engine) == MARK + b"2\n"


def test_a_header_and_an_include_behind_a_mark_are_read(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "template"
    path.write_bytes(MARK + b"#jinja2: trim_blocks: False\na{% include 'inner' %}\n")
    (tmp_path / "inner").write_bytes(MARK + b"{{ 1 + 1 }}")
    assert content_of(make, path, "jinja") == MARK + b"a2\n"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("encoding", [*WIDE, "latin-1"])
def test_a_template_in_another_encoding_fails(make: Make, tmp_path: Path, engine: str, encoding: str) -> None:
    path = tmp_path / "template"
    path.write_bytes(f"café {ACTIONS[engine]}\n".encode(encoding))
    with pytest.raises(ResourceError, match="template"):
        content_of(make, path, engine)


def rendered(tmp_path: Path, engine: str) -> dict[str, bytes]:
    from hiera.expressions.expressions import Scope
    from puller.bundle_paths import BundleFiles

    request = RenderRequest(str(tmp_path / "source"), "source", engine)
    tree = render_source(request, Scope({}, {}, {}), BundleFiles.of(tmp_path), LocalSystem())
    return {path: file.data for path, file in tree.files.items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_scaffold_keeps_marks_and_other_bytes(tmp_path: Path, engine: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    files = {
        "marked": MARK + ACTIONS[engine].encode() + b"\n",
        "plain": MARK + b"a,b\n",
        "latin": b"caf\xe9\n",
        "wide": "a,b\r\n".encode("utf-16"),
        "wide-without-mark": "a,b\r\n".encode("utf-16-le"),
    }
    for name, data in files.items():
        (source / name).write_bytes(data)
    assert rendered(tmp_path, engine) == {**files, "marked": MARK + b"2\n"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("encoding", [*WIDE, "latin-1"])
def test_a_scaffold_copies_no_template_in_another_encoding(
    tmp_path: Path, engine: str, encoding: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(f"café {ACTIONS[engine]}\n".encode(encoding))
    with pytest.raises(ResourceError, match=r"source/a: is not UTF-8 text"):
        rendered(tmp_path, engine)


def test_a_source_notes_its_marks(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(MARK + b"x")
    source = read_source(str(tmp_path), "source", LocalSystem(), ("{{",))
    assert source.marked == {"a"}
    assert source.texts == {"a": "x"}
