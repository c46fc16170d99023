"""``puller site``: the publisher's commands and their output."""

import json
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from bundles.errors import KeyFileError, PublishError, SettingsError, SignatureError
from bundles.publisher import web_server
from puller.cli.publisher.site import site


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PULLER_PASSPHRASE", raising=False)
    (tmp_path / "web").mkdir()
    (tmp_path / "web/manifest.yaml").write_text("resources: []\n")


def run(*arguments: str, ok: bool = True, **options: Any) -> Result:
    """Run ``puller site …``. Puller's errors appear as on the command line."""
    result = CliRunner().invoke(site, arguments, catch_exceptions=False, **options)
    assert (result.exit_code == 0) is ok, result.output
    return result


@pytest.fixture
def made(new_site: Path) -> Path:
    """A site with unencrypted keys and ``web 1.0.0``."""
    shutil.copytree(new_site, "site")
    run("publish", "site", "web", "--version", "1.0.0")
    return Path("site")


def test_from_nothing_to_a_published_bundle_the_output_leads_on() -> None:
    output = run("init", "site", "--no-passphrase").output
    assert (
        "site: a new site. Its keys are in site/keys, NOT encrypted: every reader of these files can publish"
        in output
    )
    assert "copy site/root.json to /etc/puller/root.json on each host" in output
    assert "puller site publish site BUNDLE --version 1.0.0" in output
    output = run("publish", "site", "web", "--version", "1.0.0").output
    assert "web 1.0.0 is in channel stable, for all hosts (" in output
    assert "puller site push site www:/srv/www/puller" in output


def test_a_library_is_published_with_the_bundle(made: Path) -> None:
    common = made.parent / "libraries/common"
    common.mkdir(parents=True)
    (common / "library.yaml").write_text("")
    (common / "data.yaml").write_text("data: {}")
    (made.parent / "web/manifest.yaml").write_text(
        "libraries: {common: ../libraries/common}\nresources: []\n"
    )
    assert (
        "web 1.1.0 is in channel stable, was 1.0.0"
        in run("publish", "site", "web", "--version", "1.1.0").output
    )
    assert run("publish", "site", "web", "--version", "1.1.0").output.endswith("unchanged\n")
    (common / "data.yaml").write_text("data: {a: 1}")
    with pytest.raises(PublishError, match="specify a new version"):
        run("publish", "site", "web", "--version", "1.1.0")


def test_republishing_states_the_result(made: Path) -> None:
    output = run("publish", "site", "web", "--version", "1.0.0").output
    assert output == "web 1.0.0 is already in channel stable, for all hosts: unchanged\n"
    output = run("publish", "site", "web", "--version", "1.1.0").output
    assert "web 1.1.0 is in channel stable, was 1.0.0, for all hosts (" in output
    (made.parent / "web/more").write_text("other contents")
    with pytest.raises(PublishError, match="specify a new version"):
        run("publish", "site", "web", "--version", "1.1.0")


def test_a_name_and_a_channel_can_be_given(made: Path) -> None:
    run("publish", str(made), "web", "--version", "2.0.0", "--name", "shop", "--channel", "canary")
    output = run("list", "site").output
    assert [line.split()[:3] for line in output.splitlines()[:3]] == [
        ["CHANNEL", "BUNDLE", "VERSION"],
        ["canary", "shop", "2.0.0"],
        ["stable", "web", "1.0.0"],
    ]


def test_the_list_shows_when_signatures_expire(made: Path) -> None:
    output = run("list", str(made)).output
    assert "root       1        20" in output
    assert re.search(r"timestamp .* UTC  in \d+ days", output)


def test_an_empty_site_is_listed_as_such() -> None:
    run("init", "site", "--no-passphrase")
    assert "site: nothing is published yet" in run("list", "site").output


def test_refresh_lists_signed_roles(made: Path) -> None:
    assert "site: signed again: timestamp\n" in run("refresh", str(made)).output


def test_verify_lists_checked_items(made: Path) -> None:
    assert "site/public: 3 published files, " in run("verify", str(made)).output
    (bundle,) = made.glob("public/targets/web/*.tar.gz")
    bundle.write_bytes(b"")
    with pytest.raises(SignatureError, match="1 damaged: "):
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
            "'2d', expected ROLE=DURATION such as timestamp=2d",
        ),
        (["init", "site", "--no-passphrase", "--passphrase-file", "web/manifest.yaml"], "exclude each other"),
        (["publish", "site", "missing"], "'missing' does not exist"),
        (["serve", "site", "--port", "70000"], "70000 is not in the range"),
    ],
)
def test_contradictory_options_are_a_usage_error(arguments: list[str], message: str) -> None:
    assert message in run(*arguments, ok=False).output


@pytest.mark.parametrize("command", ["publish", "list", "refresh", "verify", "serve"])
def test_directory_without_a_site_is_reported(command: str) -> None:
    arguments = ["web", "--version", "1"] if command == "publish" else []
    with pytest.raises(PublishError, match="web: is not a site; `puller site init` creates one"):
        run(command, "web", *arguments)


# --- rollouts ------------------------------------------------------------------------------------------------


@pytest.fixture
def rollout(made: Path) -> Path:
    """Roll out ``web 1.1.0`` over ``web 1.0.0`` to a tenth of the hosts."""
    run("publish", str(made), "web", "--version", "1.1.0", "--percent", "10")
    return made


def first_line(*arguments: str) -> str:
    return run(*arguments).output.splitlines()[0]


def hosts_in_list(bundle: str = "web", channel: str = "stable") -> str:
    lines = run("list", "site").output.splitlines()
    (line,) = (line for line in lines if line.split()[:2] == [channel, bundle])
    return line.partition(" bytes")[2].strip()


def test_a_rollout_is_published_for_a_part_of_the_hosts(made: Path) -> None:
    output = first_line("publish", "site", "web", "--version", "1.1.0", "--percent", "12.5")
    assert (
        "web 1.1.0 is in channel stable, was 1.0.0, for 12.5 % of the hosts; other hosts run 1.0.0 ("
        in output
    )
    assert hosts_in_list() == "12.5 % of the hosts; other hosts run 1.0.0"


def test_a_rollout_is_published_that_grows_from_a_time_on(made: Path) -> None:
    start = ["--over", "24h", "--start", "2126-11-20T22:00+01:00"]
    output = first_line("publish", "site", "web", "--version", "1.1.0", *start)
    growing = (
        "0 % of the hosts, growing from 2126-11-20 21:00 UTC to 2126-11-21 21:00 UTC; other hosts run 1.0.0"
    )
    assert f"web 1.1.0 is in channel stable, was 1.0.0, for {growing} (" in output
    assert hosts_in_list() == growing


def test_publishing_the_rollout_again_says_how_far_it_is(rollout: Path) -> None:
    output = run("publish", "site", "web", "--version", "1.1.0", "--percent", "10").output
    assert output == (
        "web 1.1.0 is already in channel stable, for 10 % of the hosts; other hosts run 1.0.0: unchanged\n"
    )
    with pytest.raises(PublishError, match=r"is in a rollout at 10 % of the hosts; `puller site rollout`"):
        run("publish", "site", "web", "--version", "1.1.0")


def test_a_rollout_grows_is_halted_goes_on_and_is_completed(rollout: Path) -> None:
    assert first_line("rollout", "site", "web", "--percent", "50") == (
        "web 1.1.0 is in channel stable, for 50 % of the hosts; other hosts run 1.0.0"
    )
    assert run("halt", "site", "web").output.splitlines() == [
        "web 1.1.0 is in channel stable, halted at 50 % of the hosts; other hosts run 1.0.0",
        "Next:",
        "  puller site push site www:/srv/www/puller",
        "Resume:     puller site rollout site web --channel stable --resume",
        "Roll back:  puller site back site web --channel stable",
    ]
    assert hosts_in_list() == "halted at 50 % of the hosts; other hosts run 1.0.0"
    with pytest.raises(PublishError, match="is halted at 50 %; --resume resumes it"):
        run("rollout", "site", "web", "--percent", "60")
    assert "for 60 % of the hosts" in first_line("rollout", "site", "web", "--percent", "60", "--resume")
    assert "for 60 % of the hosts, growing from" in first_line("rollout", "site", "web", "--over", "2h")
    assert (
        first_line("rollout", "site", "web", "--complete") == "web 1.1.0 is in channel stable, for all hosts"
    )
    assert hosts_in_list() == "all hosts"


def test_the_commands_that_a_halt_names_are_the_right_ones(rollout: Path) -> None:
    for name in ("Resume", "Roll back"):
        output = run("halt", "site", "web").output
        (line,) = (line for line in output.splitlines() if line.startswith(f"{name}: "))
        run(*line.split("puller site ")[1].split())
    assert hosts_in_list() == "all hosts"
    assert run("list", "site").output.splitlines()[1].split()[2] == "1.0.0"


def test_rollback_states_the_end_of_the_rollout(rollout: Path) -> None:
    assert run("back", "site", "web").output.splitlines()[:2] == [
        "web 1.0.0 is in channel stable, was 1.1.0, for all hosts",
        "The rollout of web 1.1.0 ends at 10 %: its hosts get 1.0.0 as all others",
    ]
    assert "web 1.1.0 is in channel stable, was 1.0.0" in first_line(
        "back", "site", "web", "--version", "1.1.0"
    )


def test_second_rollout_states_the_end_of_the_first(rollout: Path) -> None:
    output = run("publish", "site", "web", "--version", "1.2.0", "--percent", "5").output.splitlines()
    assert "for 5 % of the hosts; other hosts run 1.0.0" in output[0]
    assert output[1] == (
        "The rollout of web 1.1.0 ends at 10 %: its hosts roll back to 1.0.0 until 1.2.0 reaches them"
    )


def test_rollout_over_a_first_rollout_moves_hosts_forward_only(made: Path) -> None:
    for version in ("1.0.0", "1.1.0"):
        output = run(
            "publish", "site", "web", "--name", "shop", "--version", version, "--percent", "10"
        ).output
        assert "for 10 % of the hosts; other hosts keep their versions" in output
    assert "The rollout of shop 1.0.0 ends at 10 %: its hosts stay on it until 1.1.0 reaches them" in output


def test_release_is_promoted_by_a_rollout_and_withdrawn(made: Path) -> None:
    run("publish", "site", "web", "--version", "1.1.0", "--channel", "canary")
    output = first_line("promote", "site", "web", "--from", "canary", "--to", "stable", "--percent", "1")
    assert output == "web 1.1.0 is in channel stable, was 1.0.0, for 1 % of the hosts; other hosts run 1.0.0"
    output = first_line("withdraw", "site", "web", "--channel", "canary")
    assert output == "web 1.1.0 has left channel canary. Its hosts keep their version."
    assert "canary" not in run("list", "site").output


def test_programs_get_the_list_as_json(rollout: Path) -> None:
    document = json.loads(run("list", "site", "--format", "json").output)
    (release,) = document["releases"]
    assert len(release.pop("sha256")) == 64
    assert release.pop("size") > 0
    assert release == {
        "channel": "stable",
        "bundle": "web",
        "version": "1.1.0",
        "reached": 10.0,
        "rollout": {
            "percent": 10,
            "before": "1.0.0",
        },
        "trial": None,
    }
    assert [role["role"] for role in document["roles"]] == ["root", "targets", "snapshot", "timestamp"]
    assert all(datetime.fromisoformat(role["expires"]).tzinfo for role in document["roles"])
    run("rollout", "site", "web", "--complete")
    (release,) = json.loads(run("list", "site", "--format", "json").output)["releases"]
    assert (release["reached"], release["rollout"]) == (100.0, None)


def test_a_release_has_a_rule_for_its_trial(made: Path) -> None:
    rule = ("--trial", "90m", "--trial-runs", "3")
    output = first_line("publish", "site", "web", "--version", "1.1.0", "--channel", "canary", *rule)
    assert "web 1.1.0 is in channel canary, for all hosts; on trial for 1h30m and in 3 runs (" in output
    output = first_line("promote", "site", "web", "--from", "canary", "--to", "stable")
    assert output.endswith(", for all hosts; on trial for 1h30m and in 3 runs")
    assert hosts_in_list() == "all hosts; on trial for 1h30m and in 3 runs"
    output = first_line("promote", "site", "web", "--from", "canary", "--to", "stable", "--trial-runs", "1")
    assert output.endswith("; on trial in 1 run")
    canary, stable = json.loads(run("list", "site", "--format", "json").output)["releases"]
    assert (canary["trial"], stable["trial"]) == ({"duration": 5400, "runs": 3}, {"runs": 1})
    assert "on trial in 1 run" in run("history", "site", "web").output
    # The same files again change nothing, and neither do unchanged bundles.
    again = ("publish", "site", "web", "--version")
    assert "unchanged" in first_line(*again, "1.1.0")
    assert "unchanged" in first_line(*again, "auto", "--trial", "0s")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["publish", "--trial", "10"], "--trial is '10', expected a duration"),
        (["publish", "--trial", "1500ms"], "--trial must be whole seconds, at most 366d"),
        (["publish", "--trial", "2y"], "--trial must be whole seconds, at most 366d"),
        (["publish", "--trial-runs", "0"], "0 is not in the range"),
        (["publish", "--percent", "101"], "101"),
        (["publish", "--percent", "1", "--over", "1h"], "--percent and --over exclude each other"),
        (["publish", "--start", "2026-11-20T22:00Z"], "--start needs --over"),
        (["publish", "--over", "soon"], "--over is 'soon', expected a duration such as"),
        (["rollout"], "expected one of --percent, --over, --complete and --resume"),
        (["rollout", "--complete", "--percent", "50"], "--complete excludes --percent and --over"),
        (["promote", "--from", "canary"], "Missing option '--to'"),
    ],
)
def test_a_rollout_that_cannot_be_meant_is_a_usage_error(arguments: list[str], message: str) -> None:
    command, *options = arguments
    assert message in run(command, "site", "web", *options, ok=False).output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--percent", "0.001"],
            "percent: is 0.001, expected a number from 0 to 100 with at most two decimals",
        ),
        (["--percent", "nan"], "percent: is nan, expected a number from 0 to 100"),
        (["--over", "1d", "--start", "soon"], "--start: is 'soon', expected a time such as"),
        (["--over", "200y"], "duration: is .*, expected from 1 to"),
    ],
)
@pytest.mark.representatives(3)
def test_a_rollout_with_impossible_values_is_refused(made: Path, options: list[str], message: str) -> None:
    with pytest.raises(PublishError, match=message):
        run("publish", "site", "web", "--version", "1.1.0", *options)
    assert run("list", "site").output.splitlines()[1].split()[2] == "1.0.0"


# --- passphrases --------------------------------------------------------------------------------------------


def publish(**options: Any) -> Result:
    return run("publish", "site", "web", "--version", "1.0.0", **options)


def test_a_passphrase_from_a_file_needs_no_line_end_of_its_own() -> None:
    Path("with").write_text("open sesame\n")
    Path("without").write_text("open sesame")
    assert "Its keys are in site/keys, encrypted" in run("init", "site", "--passphrase-file", "with").output
    run("publish", "site", "web", "--version", "1.0.0", "--passphrase-file", "without")


def test_a_passphrase_from_the_environment_is_taken() -> None:
    environment = {"PULLER_PASSPHRASE": "open sesame"}
    run("init", "site", env=environment)
    publish(env=environment)
    with pytest.raises(KeyFileError, match="the passphrase is wrong"):
        run("refresh", "site", env={"PULLER_PASSPHRASE": "open barley"})


def test_without_a_terminal_there_is_no_prompt() -> None:
    with pytest.raises(
        KeyFileError, match=r"no terminal for a prompt: use --passphrase-file or \$PULLER_PASSPHRASE"
    ):
        run("init", "site")
    assert not Path("site").exists()


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puller.cli.publisher.site_options.is_terminal", lambda: True)


@pytest.mark.usefixtures("_terminal")
def test_new_passphrase_is_requested_twice_on_a_terminal() -> None:
    output = run("init", "site", input="open sesame\nopen sesame\n").output
    assert "Passphrase for the new keys: " in output
    output = publish(input="open sesame\n").output
    assert output.count("Passphrase of site/keys/") == 1
    assert "open sesame" not in output


@pytest.mark.usefixtures("_terminal")
def test_no_answer_at_the_terminal_changes_nothing() -> None:
    assert "Aborted" in run("init", "site", ok=False, input="").output
    assert not Path("site").exists()


# --- serving ------------------------------------------------------------------------------------------------


Ask = Callable[[str], tuple[int, dict[str, str], bytes]]


@pytest.fixture
def served(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Return ``served(path)``, which requests a path while ``puller site serve`` runs."""
    servers: list[ThreadingHTTPServer] = []
    listening = threading.Event()
    open_server = web_server.open_server

    def opened(*arguments: Any) -> ThreadingHTTPServer:
        servers.append(open_server(*arguments))
        listening.set()
        return servers[0]

    monkeypatch.setattr("puller.cli.publisher.whole_site.open_server", opened)
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


def test_public_files_are_served_like_on_a_real_server(served: Ask, made: Path) -> None:
    (bundle,) = made.glob("public/targets/web/*.tar.gz")
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
    result = {path: served(path) for path in expected}
    assert {
        path: (status, headers["Cache-Control"]) for path, (status, headers, _) in result.items()
    } == expected
    assert result[f"/targets/web/{bundle.name}"][2] == bundle.read_bytes()


def test_a_port_that_is_taken_is_named(made: Path) -> None:
    with (
        web_server.open_server(made) as server,
        pytest.raises(SettingsError, match="cannot listen: Address already"),
    ):
        run("serve", str(made), "--port", str(server.server_port))


def test_every_command_explains_itself() -> None:
    for command in site.list_commands(click.Context(site)):
        assert len(run(command, "--help").output.splitlines()) > 5


def test_summaries_of_commands_begin_their_help() -> None:
    context = click.Context(site)
    for item in site.shell_complete(context, ""):
        command = site.get_command(context, item.value)
        assert command is not None
        assert command.help is not None
        assert " ".join(command.help.split()).startswith(item.help or "?")


def test_client_that_left_before_accept_does_not_block(tmp_path: Path) -> None:
    """No connection waits here, as after a client that disconnected between the poll and ``accept``."""
    with web_server.open_server(tmp_path) as server, pytest.raises(BlockingIOError):
        server.get_request()
