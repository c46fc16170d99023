"""``puller bundle``: from an empty directory to an archive that a host accepts."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from bundles.errors import FormatError, PublishError, UnpackError
from puller.cli import main
from puller.cli.author.bundle import bundle


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> str:
    """Return the output of a command. Its errors propagate."""
    result: Result = CliRunner().invoke(bundle, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_from_new_to_inspect(tmp_path: Path) -> None:
    assert run("new", "web") == (
        "web: a bundle to start from. Next: puller apply web --noop\n"
        "web/tests: the expected result on two kinds of machine. Next: puller test web\n"
    )
    built = run("build", "web", "--version", "1.4.0")
    assert built.startswith("web-1.4.0.tar.gz: 5 files, ")
    digest = built.split("sha256 ")[1].strip()

    text = run("inspect", "web-1.4.0.tar.gz").splitlines()
    assert text[:3] == ["name     web", "version  1.4.0", f"sha256   {digest}"]
    assert [line.split()[0::3] for line in text[5:]] == [
        ["0644", "files/README"],
        ["0644", "manifest.yaml"],
        ["0644", "templates/settings.conf.j2"],
        ["0644", "tests/debian.yaml"],
        ["0644", "tests/redhat.yaml"],
    ]

    document = json.loads(run("inspect", "web-1.4.0.tar.gz", "--format", "json"))
    archive = tmp_path / "web-1.4.0.tar.gz"
    assert [document[key] for key in ("name", "version", "sha256")] == ["web", "1.4.0", digest]
    assert document["size"] == archive.stat().st_size
    assert document["files"]["manifest.yaml"]["size"] == (tmp_path / "web/manifest.yaml").stat().st_size


def test_checksum_is_the_sha256_of_the_file() -> None:
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


def test_example_contains_the_basic_resource_types(tmp_path: Path) -> None:
    run("new", "web")
    text = (tmp_path / "web/manifest.yaml").read_text()
    assert "@" not in "".join(
        path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".json"
    )
    manifest = yaml.load(text, yaml.CSafeLoader)
    assert manifest["data"]["directory"] == "/opt/web-example"
    assert set(manifest) == {"data", "hierarchy", "overrides", "resources"}
    assert [list(entry) for entry in manifest["resources"]] == [["file"], ["exec"]]


def test_editors_find_the_schema_of_the_example_beside_it(tmp_path: Path) -> None:
    run("new", "web")
    text = (tmp_path / "web/manifest.yaml").read_text()
    schema = json.loads((tmp_path / "web" / text.splitlines()[0].partition("$schema=")[2]).read_text())
    validator = Draft202012Validator(schema)
    validator.validate(yaml.load(text, yaml.CSafeLoader))
    wrong = yaml.load(text.replace("mode: ", "moed: "), yaml.CSafeLoader)
    assert [list(error.path)[:2] for error in validator.iter_errors(wrong)] == [["resources", 0]]


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
    with pytest.raises(PublishError, match="web: cannot be written: Not a directory"):
        run("new", "web")


@pytest.mark.parametrize(
    "arguments", [("new", "Web Site"), ("new", "../web"), ("build", ".", "--name", "Web")]
)
def test_a_name_that_cannot_be_is_an_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"name: is '.*', expected "):
        run(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_errors_are_those_of_packing_and_unpacking(tmp_path: Path) -> None:
    run("new", "web")
    (tmp_path / "web/link").symlink_to("/etc/passwd")
    with pytest.raises(PublishError, match="web: 'link': is a symbolic link, expected a regular file"):
        run("build", "web")
    (tmp_path / "web/link").unlink()
    run("build", "web")
    archive = tmp_path / "web-0.0.0.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(UnpackError, match=r"web-0\.0\.0\.tar\.gz: the end: the file is truncated here"):
        run("inspect", str(archive))
    result = CliRunner().invoke(bundle, ["inspect", "nowhere"])
    assert "'nowhere' does not exist" in result.output


@pytest.mark.parametrize("command", ["new", "build", "inspect"])
def test_help_shows_an_example(command: str) -> None:
    assert f"puller bundle {command} " in run(command, "--help").partition("Example:")[2]


# -- libraries ------------------------------------------------------------------------------------


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def status(*arguments: str) -> int:
    """Return the exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(str(ended.value.code or 0))


REPOSITORY = {
    "web/manifest.yaml": "libraries: {common: ../libraries/common}\nresources: [{apply: {name: 'common:a.yaml'}}]\n",
    "libraries/common/a.yaml": "resources: []\n",
    "libraries/common/library.yaml": "libraries: {base: ../base}\n",
    "libraries/base/library.yaml": "",
    "libraries/base/data.yaml": "data: {}\n",
}


def test_libraries_are_packed_and_shown_with_a_digest_of_each() -> None:
    write(REPOSITORY)
    assert run("build", "web").startswith("web-0.0.0.tar.gz: 5 files, ")
    document = json.loads(run("inspect", "web-0.0.0.tar.gz", "--format", "json"))
    assert list(document["libraries"]) == ["base", "common"]
    assert "libraries/common/library.yaml" in document["files"]
    text = run("inspect", "web-0.0.0.tar.gz")
    for name, digest in document["libraries"].items():
        assert f"library  {name}, sha256 {digest}\n" in text


def test_a_packed_bundle_is_linted_and_applied_like_the_tree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(REPOSITORY)
    run("build", "web")
    (tmp_path / "other").mkdir()
    (tmp_path / "web-0.0.0.tar.gz").rename(tmp_path / "other/web.tar.gz")
    for source in ("web", "other/web.tar.gz"):
        for command in (("lint",), ("render",), ("apply", "--noop", "--state-directory", "state")):
            assert status(*command, source) == 0, capsys.readouterr().err
    assert "1 resource, 0 errors, 0 warnings" in capsys.readouterr().out


def test_a_library_that_is_not_used_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    write({**REPOSITORY, "libraries/more/library.yaml": ""})
    manifest = REPOSITORY["web/manifest.yaml"].replace("{", "{more: ../libraries/more, ", 1)
    write({"web/manifest.yaml": manifest})
    warning = "the library more is not used: no file has a path more:…"
    assert status("bundle", "build", "web") == 0
    assert f"puller: web/manifest.yaml: {warning}\n" in capsys.readouterr().err
    assert status("lint", "web") == 0
    output = capsys.readouterr().out
    assert f"web/manifest.yaml: warning: {warning} [unused-library]\n" in output


def test_a_bundle_with_a_broken_library_is_not_built(capsys: pytest.CaptureFixture[str]) -> None:
    write({**REPOSITORY, "libraries/common/library.yaml": "libraries: {base: ../none}\n"})
    assert status("bundle", "build", "web") == 13
    output = capsys.readouterr().err
    assert re.search(r"libraries/common/library\.yaml:1: .*/libraries/none is not a directory", output)
    assert not Path("web-0.0.0.tar.gz").exists()


def test_a_template_of_a_library_is_rendered_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    write(
        {**REPOSITORY, "libraries/common/t/x.j2": "{{ read_file('t/y') }} {{ read_file('base:data.yaml') }}"}
    )
    write({"libraries/common/t/y": "y"})
    assert status("render", "libraries/common/t/x.j2") == 0
    assert capsys.readouterr().out == "y data: {}\n"
