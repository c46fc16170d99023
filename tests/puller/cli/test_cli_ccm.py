"""What users of CCM have beside a manifest: ``.env``, ``.hiera``, and archives that ``tar`` made."""

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

Execute = Callable[..., tuple[int, str]]

IDS = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"
STATE = ("--state-directory", "state", "--no-system-facts")


@pytest.fixture(autouse=True)
def in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def web(tmp_path: Path) -> Path:
    directory = tmp_path / "web"
    directory.mkdir()
    (directory / "manifest.yaml").write_text(
        "data: {port: 1, name: manifest}\n"
        f"resources: [{{file: [{{'{tmp_path}/out': {{"
        "content: '{{ data.port }} {{ data.name }} {{ environ.REGION }}', "
        f"{IDS}}}}}]}}]\n"
    )
    (directory / ".env").write_text('# comment\nREGION="north"\nexport ZONE=a\n')
    (directory / ".hiera").write_text("data: {port: 2, name: hiera}\n")
    for name in (".env", ".hiera"):
        (directory / name).chmod(0o644)
    return directory


def test_apply_reads_the_files_beside_a_manifest(execute: Execute, web: Path, tmp_path: Path) -> None:
    assert execute("apply", "web", "--set", "port=3", *STATE)[0] == 0
    assert (tmp_path / "out").read_text() == "3 hiera north"
    (tmp_path / "out").unlink()
    assert execute("apply", "web/manifest.yaml", *STATE)[0] == 0
    assert (tmp_path / "out").read_text() == "2 hiera north"


@pytest.mark.attack("beside.writable")
def test_file_that_others_can_write_is_ignored(execute: Execute, web: Path, tmp_path: Path) -> None:
    (web / ".hiera").chmod(0o666)
    (tmp_path / "link").write_text("REGION=south\n")
    (web / ".env").unlink()
    (web / ".env").symlink_to(tmp_path / "link")
    status, output = execute("apply", "web", *STATE)
    assert "web/.hiera: is writable by others, so it is ignored" in output
    assert "web/.env: cannot be read" in output
    assert status == 4  # environ.REGION is missing
    assert not (tmp_path / "out").exists()


def test_invalid_hiera_file_is_an_error_with_its_line(execute: Execute, web: Path) -> None:
    (web / ".hiera").write_text("data: [\n")
    status, output = execute("apply", "web", *STATE)
    assert status != 0
    assert "web/.hiera:" in output


def test_ensure_reads_the_files_of_the_current_directory(
    execute: Execute, web: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(web)
    attributes = ("--owner", str(os.geteuid()), "--group", str(os.getegid()), "--mode", "0644")
    content = "{{ data.name }} {{ environ.REGION }} {{ lookup('environ.ZONE') }}"
    status, output = execute("ensure", "file", str(tmp_path / "out"), "--content", content, *attributes)
    assert (status, (tmp_path / "out").read_text()) == (0, "hiera north a"), output


def packed(path: Path, members: dict[str, str], link: str = "") -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
        if link:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "manifest.yaml"
            archive.addfile(info)


def test_plain_archive_is_applied_only_on_request(execute: Execute, tmp_path: Path) -> None:
    manifest = f"ccm: {{resources: [{{file: [{{{tmp_path}/out: {{source: files/motd, {IDS}}}}}]}}]}}\n"
    packed(tmp_path / "web.tgz", {"./manifest.yaml": manifest, "./files/motd": "hello\n"})
    status, output = execute("apply", "web.tgz", *STATE)
    assert status == 13
    assert "use puller apply --plain-archive" in output
    assert execute("apply", "web.tgz", "--plain-archive", *STATE)[0] == 0
    assert (tmp_path / "out").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("members", "link", "message"),
    [
        ({"../manifest.yaml": ""}, "", "web.tgz: "),
        ({"a/manifest.yaml": ""}, "", "web.tgz:manifest.yaml"),
        ({"manifest.yaml": "resources: []\n"}, "b.yaml", "contains the link b.yaml"),
        ({"manifest.yaml": "", "./manifest.yaml": ""}, "", "web.tgz: cannot be unpacked"),
    ],
)
def test_unsafe_plain_archives_are_refused(
    execute: Execute, tmp_path: Path, members: dict[str, str], link: str, message: str
) -> None:
    packed(tmp_path / "web.tgz", members, link)
    status, output = execute("apply", "web.tgz", "--plain-archive", *STATE)
    assert status != 0
    assert message in output
