"""``puller site``: what a publisher types, and what is answered."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bundles import webserver
from bundles.errors import KeyFileError, PublishError, SettingsError, SignatureError
from puller.cli.site import site


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PULLER_PASSPHRASE", raising=False)
    (tmp_path / "web").mkdir()
    (tmp_path / "web/manifest.yaml").write_text("resources: []\n")


def run(*arguments: str, ok: bool = True, **options: Any) -> Result:
    """Run ``puller site …``; errors of ours come out as they would for the command line to show."""
    result = CliRunner().invoke(site, arguments, catch_exceptions=False, **options)
    assert (result.exit_code == 0) is ok, result.output
    return result


@pytest.fixture
def made() -> Path:
    """A site with plain keys and ``web 1.0.0``."""
    run("init", "site", "--no-passphrase")
    run("publish", "site", "web", "--version", "1.0.0")
    return Path("site")


def test_from_nothing_to_a_published_bundle_the_output_leads_on() -> None:
    said = run("init", "site", "--no-passphrase").output
    assert "site: a new site; its keys are in site/keys, NOT encrypted: who can read them can publish" in said
    assert "copy site/root.json to /etc/puller/root.json on each host" in said
    assert "puller site publish site BUNDLE --version 1.0.0" in said
    said = run("publish", "site", "web", "--version", "1.0.0").output
    assert "web 1.0.0 is in channel stable (" in said
    assert "rsync -a --delay-updates site/public/ www:/srv/www/puller/" in said


def test_publishing_again_says_what_it_means(made: Path) -> None:
    said = run("publish", "site", "web", "--version", "1.0.0").output
    assert said == "web 1.0.0 is in channel stable already, with the same contents: nothing to do\n"
    said = run("publish", "site", "web", "--version", "1.1.0").output
    assert "web 1.1.0 is in channel stable, was 1.0.0 (" in said
    (made.parent / "web/more").write_text("other contents")
    with pytest.raises(PublishError, match="give it a new version"):
        run("publish", "site", "web", "--version", "1.1.0")


def test_a_name_and_a_channel_can_be_given(made: Path) -> None:
    run("publish", str(made), "web", "--version", "2.0.0", "--name", "shop", "--channel", "canary")
    said = run("list", "site").output
    assert [line.split()[:3] for line in said.splitlines()[:3]] == [
        ["CHANNEL", "BUNDLE", "VERSION"],
        ["canary", "shop", "2.0.0"],
        ["stable", "web", "1.0.0"],
    ]


def test_the_list_shows_when_signatures_expire(made: Path) -> None:
    said = run("list", str(made)).output
    assert "root       1        20" in said
    assert "UTC  in 6 days" in said


def test_an_empty_site_is_listed_as_such() -> None:
    run("init", "site", "--no-passphrase")
    assert "site: nothing is published yet" in run("list", "site").output


def test_refresh_says_what_it_signed(made: Path) -> None:
    assert "site: signed anew: timestamp\n" in run("refresh", str(made)).output


def test_verify_says_what_it_looked_at(made: Path) -> None:
    assert "site/public: 2 published files, " in run("verify", str(made)).output
    (bundle,) = made.glob("public/targets/web/*")
    bundle.write_bytes(b"")
    with pytest.raises(SignatureError, match="1 of 2 targets"):
        run("verify", str(made))


def test_lifetimes_can_be_chosen() -> None:
    run("init", "site", "--no-passphrase", "--expiry", "timestamp=2d", "--expiry", "root=52w")
    assert "  timestamp: 2d\n" in Path("site/site.yaml").read_text()
    assert "  root: 52w\n" in Path("site/site.yaml").read_text()
    assert "in 47 hours" in run("list", "site").output or "in 48 hours" in run("list", "site").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["init", "site", "--no-passphrase", "--expiry", "2d"],
            "'2d', wanted ROLE=TIME such as timestamp=2d",
        ),
        (["init", "site", "--no-passphrase", "--passphrase-file", "web/manifest.yaml"], "exclude each other"),
        (["publish", "site", "missing"], "'missing' does not exist"),
        (["serve", "site", "--port", "70000"], "70000 is not in the range"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(arguments: list[str], message: str) -> None:
    assert message in run(*arguments, ok=False).output


@pytest.mark.parametrize("command", ["publish", "list", "refresh", "verify", "serve"])
def test_what_is_no_site_is_said_to_be_none(command: str) -> None:
    arguments = ["web", "--version", "1"] if command == "publish" else []
    with pytest.raises(PublishError, match="web: is not a site; `puller site init` makes one"):
        run(command, "web", *arguments)


# --- passphrases --------------------------------------------------------------------------------------------


def publish(**options: Any) -> Result:
    return run("publish", "site", "web", "--version", "1.0.0", **options)


def test_a_passphrase_from_a_file_needs_no_line_end_of_its_own() -> None:
    Path("with").write_text("open sesame\n")
    Path("without").write_text("open sesame")
    assert "its keys are in site/keys, encrypted" in run("init", "site", "--passphrase-file", "with").output
    run("publish", "site", "web", "--version", "1.0.0", "--passphrase-file", "without")


def test_a_passphrase_from_the_environment_is_taken() -> None:
    environment = {"PULLER_PASSPHRASE": "open sesame"}
    run("init", "site", env=environment)
    publish(env=environment)
    with pytest.raises(KeyFileError, match="the passphrase is wrong"):
        run("refresh", "site", env={"PULLER_PASSPHRASE": "open barley"})


def test_without_a_terminal_nobody_is_asked() -> None:
    with pytest.raises(
        KeyFileError, match=r"no terminal to ask at: use --passphrase-file or \$PULLER_PASSPHRASE"
    ):
        run("init", "site")
    assert not Path("site").exists()


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puller.cli.site._is_terminal", lambda: True)


@pytest.mark.usefixtures("_terminal")
def test_at_a_terminal_a_passphrase_is_asked_for_twice_at_first_and_then_once() -> None:
    said = run("init", "site", input="open sesame\nopen sesame\n").output
    assert "Passphrase for the new keys: " in said
    said = publish(input="open sesame\n").output
    assert said.count("Passphrase of site/keys/") == 1
    assert "open sesame" not in said


@pytest.mark.usefixtures("_terminal")
def test_no_answer_at_the_terminal_changes_nothing() -> None:
    assert "Aborted" in run("init", "site", ok=False, input="").output
    assert not Path("site").exists()


# --- serving ------------------------------------------------------------------------------------------------


Ask = Callable[[str], tuple[int, dict[str, str], bytes]]


@pytest.fixture
def served(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """``served(path)`` asks the server of ``puller site serve`` while it runs."""
    servers: list[ThreadingHTTPServer] = []
    listening = threading.Event()
    open_server = webserver.open_server

    def opened(*arguments: Any) -> ThreadingHTTPServer:
        servers.append(open_server(*arguments))
        listening.set()
        return servers[0]

    monkeypatch.setattr(webserver, "open_server", opened)
    thread = threading.Thread(target=run, args=("serve", str(made), "--port", "0"))
    thread.start()
    assert listening.wait(10)

    def ask(path: str) -> tuple[int, dict[str, str], bytes]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{servers[0].server_port}{path}") as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), b""

    yield ask
    servers[0].shutdown()
    thread.join()


def test_what_is_public_is_served_as_a_real_server_should(served: Ask, made: Path) -> None:
    (bundle,) = made.glob("public/targets/web/*")
    expected = {
        "/metadata/timestamp.json": (200, "no-cache"),
        "/metadata/1.root.json": (200, "max-age=31536000, immutable"),
        f"/targets/web/{bundle.name}": (200, "max-age=31536000, immutable"),
        "/metadata/2.root.json": (404, "no-cache"),
        "/metadata/": (404, "no-cache"),
        "/": (404, "no-cache"),
        "/../keys/": (404, "no-cache"),
        "/../site.yaml": (404, "no-cache"),
    }
    found = {path: served(path) for path in expected}
    assert {
        path: (status, headers["Cache-Control"]) for path, (status, headers, _) in found.items()
    } == expected
    assert found[f"/targets/web/{bundle.name}"][2] == bundle.read_bytes()


def test_a_port_that_is_taken_is_named(made: Path) -> None:
    with (
        webserver.open_server(made) as server,
        pytest.raises(SettingsError, match="cannot listen: Address already"),
    ):
        run("serve", str(made), "--port", str(server.server_port))


def test_every_command_explains_itself() -> None:
    for command in ("init", "publish", "list", "refresh", "verify", "serve"):
        assert len(run(command, "--help").output.splitlines()) > 5
