"""``puller site publish`` with many bundles: commands and output."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bundles.errors import FormatError, PublishError
from puller.cli import main
from puller.cli.publisher.site import site

NEXT = ["Next:", "  puller site push site www:/srv/www/puller"]


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(new_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PULLER_PASSPHRASE", raising=False)
    for name in ("db", "shop", "web"):
        write(f"{name}/manifest.yaml", "resources: []\n")
    shutil.copytree(new_site, "site")


def write(path: str, text: str = "new\n") -> None:
    """Write files into the repository's bundles."""
    file = Path("bundles", path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def run(*arguments: str, ok: bool = True) -> Result:
    """Run ``puller site …``. Puller's errors appear as on the command line."""
    result = CliRunner().invoke(site, arguments, catch_exceptions=False)
    assert (result.exit_code == 0) is ok, result.output
    return result


def publish(*options: str, ok: bool = True) -> list[str]:
    """Return the output lines of publishing all bundles with ``auto``."""
    sources = map(str, sorted(Path("bundles").iterdir()))
    return run("publish", "site", *sources, "--version", "auto", *options, ok=ok).output.splitlines()


def listed() -> list[list[str]]:
    """Return channel, bundle and version of all published releases."""
    rows = (line.split()[:3] for line in run("list", "site").output.partition("\n\n")[0].splitlines()[1:])
    return list(rows)


def test_bundles_have_a_line_each_and_a_common_step() -> None:
    news = [f"{name} 1.0.0 (new)" for name in ("db", "shop", "web")]
    assert publish() == [*news, "channel stable: 3 of 3 bundles published, in one signed step", *NEXT]
    write("web/text")
    assert publish() == [
        "db unchanged (1.0.0)",
        "shop unchanged (1.0.0)",
        "web 1.0.1 (was 1.0.0), changed: +1 file",
        "channel stable: 1 of 3 bundles published, in one signed step",
        *NEXT,
    ]
    assert publish()[2:] == ["web unchanged (1.0.1)", "channel stable: nothing to do"]


@pytest.mark.parametrize(
    ("written", "removed", "sentence"),
    [
        (["manifest.yaml"], [], "changed: manifest.yaml"),
        (["a", "b", "c", "d", "e"], [], "changed: a, b, c, 2 more"),
        (["manifest.yaml", "new", "newer"], ["a"], "changed: manifest.yaml, +2 files, -1 file"),
        (["libraries/common/x"], [], "because of library common"),
        (["libraries/common/new"], ["libraries/users/y"], "because of libraries common, users"),
        (
            ["libraries/common/x", "manifest.yaml"],
            ["a"],
            "changed: manifest.yaml, -1 file; because of library common",
        ),
    ],
)
def test_line_names_changes_and_the_changed_library(
    written: list[str], removed: list[str], sentence: str
) -> None:
    for path in ("a", "b", "c", "d", "e", "libraries/common/x", "libraries/users/y"):
        write(f"web/{path}", "old\n")
    publish()
    for path in written:
        write(f"web/{path}", "# new\nresources: []\n")
    for path in removed:
        Path("bundles/web", path).unlink()
    assert publish("--noop")[2] == publish()[2] == f"web 1.0.1 (was 1.0.0), {sentence}"


def test_the_options_of_a_channel_and_a_rollout_are_for_all() -> None:
    publish()
    write("db/text")
    write("web/text")
    tenth = "for 10 % of the hosts; other hosts run 1.0.0"
    assert publish("--percent", "10")[:3] == [
        f"db 1.0.1 (was 1.0.0), changed: +1 file; {tenth}",
        "shop unchanged (1.0.0)",
        f"web 1.0.1 (was 1.0.0), changed: +1 file; {tenth}",
    ]
    assert publish("--percent", "10")[0] == f"db unchanged (1.0.1, {tenth})"
    write("web/text", "newer\n")
    assert publish("--percent", "5")[2:4] == [
        "web 1.0.2 (was 1.0.1), changed: text; for 5 % of the hosts; other hosts run 1.0.0",
        "  The rollout of web 1.0.1 ends at 10 %: its hosts roll back to 1.0.0 until 1.0.2 reaches them",
    ]
    assert publish("--channel", "canary")[0] == "db 1.0.2 (new)"


def test_a_version_is_given_to_all() -> None:
    publish()
    write("web/text")
    output = run("publish", "site", "bundles/db", "bundles/web", "--version", "1.4.0").output.splitlines()
    assert output[:2] == ["db 1.4.0 (was 1.0.0)", "web 1.4.0 (was 1.0.0)"]
    output = run("publish", "site", "bundles/db", "bundles/web", "--version", "1.4.0").output.splitlines()
    assert output == ["db unchanged (1.4.0)", "web unchanged (1.4.0)", "channel stable: nothing to do"]


def test_single_bundle_with_auto_prints_the_same() -> None:
    output = run("publish", "site", "bundles/web", "--version", "auto").output.splitlines()
    assert output == ["web 1.0.0 (new)", "channel stable: 1 of 1 bundle published, in one signed step", *NEXT]


def test_a_dry_run_publishes_nothing_and_needs_no_key() -> None:
    publish()
    write("web/text")
    for key in Path("site/keys").iterdir():
        key.unlink()
    assert publish("--noop")[2:] == [
        "web 1.0.1 (was 1.0.0), changed: +1 file",
        "channel stable: 1 of 3 bundles would be published. Nothing was written",
    ]
    output = run("publish", "site", "bundles/web", "--version", "2.0.0", "--noop").output.splitlines()
    assert output == [
        "web 2.0.0 (was 1.0.0)",
        "channel stable: 1 of 1 bundle would be published. Nothing was written",
    ]
    assert listed() == [["stable", name, "1.0.0"] for name in ("db", "shop", "web")]


def test_programs_get_the_same_as_json() -> None:
    publish()
    write("web/text")
    write("web/libraries/common/x")
    planned = json.loads("\n".join(publish("--noop", "--format", "json", "--percent", "10")))
    done = json.loads("\n".join(publish("--format", "json", "--percent", "10")))
    assert (planned.pop("noop"), done.pop("noop")) == (True, False)
    assert planned == done
    assert done["channel"] == "stable"
    db, _, web = done["bundles"]
    assert (db["published"], db["version"], db["before"]) == (False, "1.0.0", "1.0.0")
    assert db["changes"] == {"added": [], "removed": [], "changed": [], "libraries": []}
    assert (len(web.pop("sha256")), web.pop("size") > 0) == (64, True)
    assert web == {
        "bundle": "web",
        "version": "1.0.1",
        "before": "1.0.0",
        "published": True,
        "rollout": {"percent": 10, "before": "1.0.0"},
        "trial": None,
        "changes": {
            "added": ["libraries/common/x", "text"],
            "removed": [],
            "changed": [],
            "libraries": ["common"],
        },
        "pruned": [],
        "restored": False,
    }
    provided = run("publish", "site", "bundles/db", "--version", "2.0.0", "--format", "json").output
    assert json.loads(provided)["bundles"][0]["changes"] is None


def test_all_invalid_directories_are_named_before_writing() -> None:
    Path("bundles/empty").mkdir()
    Path("bundles/notes").mkdir()
    output = "\n".join(publish(ok=False))
    assert (
        "bundles/empty, bundles/notes: no bundle, expected a directory with a manifest.yaml in it" in output
    )
    assert "nothing is published yet" in run("list", "site").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'SOURCE...'"),
        (["bundles/web", "bundles/missing"], "'bundles/missing' does not exist"),
        (["bundles/web", "bundles/db", "--name", "web"], "--name is for one bundle, and 2 are named"),
    ],
)
def test_contradictory_options_are_a_usage_error(arguments: list[str], message: str) -> None:
    assert message in run("publish", "site", *arguments, "--version", "1", ok=False).output


@pytest.mark.parametrize("options", [[], ["--noop"]])
def test_problems_of_several_bundles_are_printed_in_lines(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("db", "web"):
        Path(f"bundles/{name}/link").symlink_to("manifest.yaml")
    sources = [f"bundles/{name}" for name in ("db", "shop", "web")]
    with pytest.raises(SystemExit) as caught:
        main(["site", "publish", "site", *sources, "--version", "auto", *options])
    assert caught.value.code == 64
    assert capsys.readouterr() == (
        "",
        "puller: 2 of 3 bundles cannot be published, so nothing was published:\n"
        "puller: bundles/db: 'link': is a symbolic link, expected a regular file or a directory\n"
        "puller: bundles/web: 'link': is a symbolic link, expected a regular file or a directory\n",
    )
    assert "nothing is published yet" in run("list", "site").output


def test_a_file_beside_the_bundles_is_named() -> None:
    write("README.md")
    with pytest.raises(PublishError, match=r"bundles/README\.md: is not a bundle") as caught:
        publish()
    assert "1 of 4 bundles cannot be published, so nothing was published:" in str(caught.value)
    with pytest.raises(FormatError, match="is not a bundle"):
        run("publish", "site", "bundles/README.md")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_who_watches_sees_which_bundle_is_packed(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def publish_at(stream: Any, *sources: str) -> str:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", stream)
            arguments = ["publish", "site", *sources, "--version", "auto"]
            site.main(arguments, standalone_mode=False)
        return str(stream.getvalue())

    stream = _Terminal if terminal else io.StringIO
    clear = "\r\x1b[K"
    shown = f"{clear}packing 1 of 2: bundles/db{clear}packing 2 of 2: bundles/web\n{clear}"
    assert publish_at(stream(), "bundles/db", "bundles/web") == (shown if terminal else "")
    assert publish_at(stream(), "bundles/shop") == ""
