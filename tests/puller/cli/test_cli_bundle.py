"""``puller bundle``: from nothing to an archive that a host would take."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from bundles.errors import FormatError, PublishError, StoreError, UnpackError
from puller.cli import main
from puller.cli.author.bundle import bundle


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> str:
    """What the command prints; its errors propagate."""
    result: Result = CliRunner().invoke(bundle, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_from_new_to_inspect(tmp_path: Path) -> None:
    assert run("new", "web") == "web: a bundle to start from; try: puller apply web --noop\n"
    built = run("build", "web", "--version", "1.4.0")
    assert built.startswith("web-1.4.0.tar.gz: 3 files, ")
    digest = built.split("sha256 ")[1].strip()

    text = run("inspect", "web-1.4.0.tar.gz").splitlines()
    assert text[:3] == ["name     web", "version  1.4.0", f"sha256   {digest}"]
    assert [line.split()[0::3] for line in text[5:]] == [
        ["0644", "files/README"],
        ["0644", "manifest.yaml"],
        ["0644", "templates/settings.conf.j2"],
    ]

    document = json.loads(run("inspect", "web-1.4.0.tar.gz", "--format", "json"))
    archive = tmp_path / "web-1.4.0.tar.gz"
    assert [document[key] for key in ("name", "version", "sha256")] == ["web", "1.4.0", digest]
    assert document["size"] == archive.stat().st_size
    assert document["files"]["manifest.yaml"]["size"] == (tmp_path / "web/manifest.yaml").stat().st_size


def test_the_checksum_is_the_one_that_everybody_computes() -> None:
    run("new", "web")
    digest = run("build", "web").split("sha256 ")[1].strip()
    tool = subprocess.run(["sha256sum", "web-0.0.0.tar.gz"], capture_output=True, text=True, check=True)
    assert tool.stdout.split()[0] == digest


def test_building_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    run("new", "web")
    run("build", "web", "-o", "one.tar.gz")
    run("build", "web", "-o", "two.tar.gz")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()


def test_the_name_is_that_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("new", "web", "--directory", "somewhere/mail")
    assert run("build", "somewhere/mail").startswith("mail-0.0.0.tar.gz: ")
    assert run("build", "somewhere/mail", "--name", "web").startswith("web-0.0.0.tar.gz: ")
    monkeypatch.chdir(tmp_path / "somewhere/mail")
    assert run("build", ".", "-o", "../x.tar.gz").startswith("../x.tar.gz: ")
    assert json.loads(run("inspect", "../x.tar.gz", "--format", "json"))["name"] == "mail"


def test_the_example_is_one_of_each_that_a_beginner_needs(tmp_path: Path) -> None:
    run("new", "web")
    text = (tmp_path / "web/manifest.yaml").read_text()
    assert "@" not in "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    manifest = yaml.load(text, yaml.CSafeLoader)
    assert manifest["data"]["directory"] == "/opt/web-example"
    assert set(manifest) == {"data", "hierarchy", "overrides", "resources"}
    assert [list(entry) for entry in manifest["resources"]] == [["file"], ["exec"]]


def test_the_example_has_no_faults() -> None:
    run("new", "web")
    with pytest.raises(SystemExit) as ended:
        main(["lint", "web"])
    assert ended.value.code == 0


def test_new_never_overwrites(tmp_path: Path) -> None:
    run("new", "web")
    (tmp_path / "web/manifest.yaml").write_text("resources: []\n")
    with pytest.raises(PublishError, match="web: exists already and is not empty"):
        run("new", "web")
    assert (tmp_path / "web/manifest.yaml").read_text() == "resources: []\n"


def test_new_fills_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    run("new", "web")
    assert (tmp_path / "web/manifest.yaml").exists()


def test_new_where_a_file_is_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "web").write_text("")
    with pytest.raises(PublishError, match="web: cannot be written: File exists"):
        run("new", "web")


@pytest.mark.parametrize(
    "arguments", [("new", "Web Site"), ("new", "../web"), ("build", ".", "--name", "Web")]
)
def test_a_name_that_cannot_be_is_an_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"name: is '.*', wanted "):
        run(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_errors_are_those_of_packing_and_unpacking(tmp_path: Path) -> None:
    run("new", "web")
    (tmp_path / "web/link").symlink_to("/etc/passwd")
    with pytest.raises(PublishError, match="web: 'link': is a symbolic link, wanted a regular file"):
        run("build", "web")
    (tmp_path / "web/link").unlink()
    run("build", "web")
    archive = tmp_path / "web-0.0.0.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(UnpackError, match=r"web-0\.0\.0\.tar\.gz: the end: the file is cut off here"):
        run("inspect", str(archive))
    with pytest.raises(StoreError, match="nowhere: cannot be read: nowhere: No such file"):
        run("inspect", "nowhere")


@pytest.mark.parametrize("command", ["new", "build", "inspect"])
def test_help_shows_an_example(command: str) -> None:
    assert f"puller bundle {command} " in run(command, "--help").partition("Example:")[2]
