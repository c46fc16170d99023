"""Commands of a host's operator, and their effects."""

import json
import os
import pwd
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bundles.filesystem.trees import remove_tree
from bundles.store.store import Store
from puller.errors import BusyError
from puller.reporting.history import save_status
from puller.run.policy.holds import Quarantine
from puller.state import Directories, only_run
from tests.support.stories import Execute, Host, Outcome, Publisher

Say = Callable[..., Outcome]


@pytest.fixture
def say(host: Host, execute: Execute) -> Say:
    """Return ``say("pin", "web")``, which runs the command with the configuration of ``host``."""
    return lambda *words: Outcome(*execute(*words, "--config", str(host.configuration)))


@pytest.fixture
def directories(host: Host) -> Directories:
    return Directories(host.state, host.configuration.parent / "run")


@pytest.fixture(autouse=True)
def ann(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user who called ``sudo``."""
    monkeypatch.setenv("SUDO_USER", "ann")


def quarantine_of(say: Say) -> list[dict[str, Any]]:
    status, output = say("quarantine", "list", "--format", "json")
    assert status == 0
    results: list[dict[str, Any]] = json.loads(output)
    return results


def document(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_bytes())
    return result


# --- disable, enable ----------------------------------------------------------------------------------------


def test_disabling_says_who_and_until_when_and_enabling_ends_it(say: Say, directories: Directories) -> None:
    output = say("disable", "--reason", "TICKET-7:  restoring", "--until", "2999-01-02T03:04+01:00")
    assert output.status == 0
    assert output.output.startswith("disabled by ann since 20")
    assert output.output.endswith(" UTC until 2999-01-02 02:04 UTC: TICKET-7: restoring\n")
    hold = document(directories.disabled)
    assert (hold["by"], hold["until"]) == ("ann", "2999-01-02T02:04:00+00:00")
    ended = say("enable")
    assert ended == (0, f"enabled. Before: {output.output}")
    assert not directories.disabled.exists()
    assert say("enable") == (0, "already enabled\n")


@pytest.mark.parametrize("sudo", [None, "", "a\x1b[2Jb"])
def test_without_sudo_it_is_the_user_of_the_process(
    say: Say, monkeypatch: pytest.MonkeyPatch, sudo: str | None
) -> None:
    monkeypatch.delenv("SUDO_USER")
    if sudo is not None:
        monkeypatch.setenv("SUDO_USER", sudo)
    name = pwd.getpwuid(os.getuid()).pw_name
    assert say("disable", "--reason", "x").output.startswith(f"disabled by {name} since ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--reason"),
        (("--reason", " "), "--reason is ' ', expected words that people can read"),
        (("--reason", "a\x1b[2Jb"), "expected words that people can read"),
        (
            ("--reason", "x", "--until", "2026-01-01"),
            "puller: --until is 2026-01-01 00:00 UTC, which is not after the current time 20",
        ),
        (("--reason", "x", "--until", "soon"), "puller: --until is 'soon', expected a time such as"),
    ],
)
def test_invalid_hold_is_refused(
    say: Say, directories: Directories, words: tuple[str, ...], message: str
) -> None:
    refused = say("disable", *words)
    assert refused.status == 64
    assert message in refused.output
    assert not directories.disabled.exists()


def test_a_run_at_work_is_neither_waited_for_nor_forgotten(say: Say, directories: Directories) -> None:
    with only_run(directories.run):
        directories.make()
        save_status(directories, "running")
        output = say("disable", "--reason", "x")
        assert output.status == 0
        assert f"(process {os.getpid()}) and finishes. The hold takes effect after it\n" in output.output
        assert "The next run applies bundles again" in say("enable").output


def test_unwritable_state_directory_is_a_configuration_error(say: Say, host: Host) -> None:
    host.state.write_bytes(b"")
    refused = say("disable", "--reason", "x")
    assert refused.status == 78
    assert f"puller: {host.state}: cannot be written: " in refused.output
    assert say("enable").status == 78


# --- quarantine ---------------------------------------------------------------------------------------------


def test_quarantine_is_listed_as_text_and_json(say: Say, directories: Directories) -> None:
    assert say("quarantine", "list") == (0, "nothing is quarantined\n")
    assert quarantine_of(say) == []
    entry = Quarantine.load(directories, pytest.fail).add("web", "1.5.0", "b" * 64, "health check http: 500")
    output = say("quarantine", "list")
    assert output == (0, f"{entry}\n")
    assert quarantine_of(say) == [
        {
            "bundle": "web",
            "version": "1.5.0",
            "sha256": "b" * 64,
            "reason": "health check http: 500",
            "since": entry.since,
            "failed": [],
            "not_undone": [],
        }
    ]


@pytest.mark.parametrize(
    ("words", "left"),
    [(("web", "1.5.0"), ["1.6.0", "2"]), (("web",), ["2"]), (("--all",), []), (("web", "9"), None)],
)
def test_clearing_lists_the_released_versions(
    say: Say, directories: Directories, words: tuple[str, ...], left: list[str] | None
) -> None:
    quarantine = Quarantine.load(directories, pytest.fail)
    for number, (bundle, version) in enumerate([("web", "1.5.0"), ("web", "1.6.0"), ("base", "2")]):
        quarantine.add(bundle, version, str(number) * 64, f"reason {number}")
    output = say("quarantine", "clear", *words)
    assert output.status == 0
    if left is None:
        assert output.output == "web 9 is not quarantined\n"
        return
    assert [entry["version"] for entry in quarantine_of(say)] == left
    cleared = {"1.5.0", "1.6.0", "2"} - set(left)
    assert len(output.output.splitlines()) == len(cleared)
    for line, version in zip(output.output.splitlines(), sorted(cleared), strict=True):
        assert f" {version} may be tried again. Reason of the quarantine: reason " in line


@pytest.mark.parametrize("words", [(), ("web", "--all")])
def test_clearing_wants_to_know_what(say: Say, words: tuple[str, ...]) -> None:
    refused = say("quarantine", "clear", *words)
    assert refused == (64, "puller: quarantine clear: expected the name of a bundle, or --all\n")


def test_damaged_quarantine_is_reported_and_kept(say: Say, directories: Directories) -> None:
    directories.make()
    directories.quarantine.write_bytes(b"{")
    output = say("quarantine", "list")
    assert output.status == 0
    assert "quarantined versions may be tried again" in output.output
    assert directories.quarantine.read_bytes() == b"{"


# --- pin, unpin ---------------------------------------------------------------------------------------------


def test_pin_keeps_the_enforced_version(say: Say, settled: Host, publisher: Publisher) -> None:
    assert say("pin", "web") == (0, "web is pinned to 1.0.0\n")
    publisher.publish("1.1.0")
    settled.run()
    settled.assert_enforces("1.0.0")
    assert say("unpin", "web") == (0, "web is unpinned. Before: pinned to 1.0.0\n")
    assert say("unpin", "web") == (0, "web is not pinned\n")
    settled.run()
    settled.assert_enforces("1.1.0")


def test_a_pin_to_another_version_is_brought_by_the_next_run(
    say: Say, settled: Host, publisher: Publisher
) -> None:
    publisher.publish("1.1.0")
    publisher.publish("1.2.0")
    output = say("pin", "web", "1.1.0")
    assert output == (0, "web is pinned to 1.1.0; enforced now: 1.0.0, the next run changes that\n")
    settled.run()
    settled.assert_enforces("1.1.0")


def test_a_pin_before_the_first_run_names_its_version(say: Say, directories: Directories) -> None:
    refused = say("pin", "web")
    assert refused == (64, "puller: web: no version is enforced yet. Name the version to pin\n")
    assert not directories.pins.exists()
    assert say("pin", "web", "1.4.0").output == (
        "web is pinned to 1.4.0; enforced now: nothing, the next run changes that\n"
    )
    assert document(directories.pins) == {"format": 1, "bundles": {"web": "1.4.0"}}


def test_a_version_that_no_bundle_can_have_is_refused(say: Say, directories: Directories) -> None:
    refused = say("pin", "web", "../1")
    assert refused.status == 13
    assert "version: is '../1', expected" in refused.output
    assert not directories.pins.exists()


def test_a_pin_and_the_configuration_must_not_differ(say: Say, host: Host, directories: Directories) -> None:
    host.configure(bundles=[{"name": "web", "version": "1.5.0"}])
    refused = say("pin", "web", "1.4.0")
    assert refused.status == 78
    assert (
        f"{host.configuration}: web has version 1.5.0 there, expected a pin to 1.4.0. Change it"
        in refused.output
    )
    assert not directories.pins.exists()
    assert say("pin", "web", "1.5.0").status == 0


def test_pin_to_a_quarantined_version_is_reported(say: Say, directories: Directories) -> None:
    entry = Quarantine.load(directories, pytest.fail).add("web", "1.5.0", "b" * 64, "x")
    assert (
        f"{entry}. `puller quarantine clear web 1.5.0` allows another attempt"
        in say("pin", "web", "1.5.0").output
    )


def test_a_pin_may_outlive_its_bundle_in_the_configuration(say: Say, host: Host) -> None:
    say("pin", "web", "1.4.0")
    host.configure(bundles=[{"name": "base"}])
    assert say("unpin", "web").status == 0
    assert say("unpin", "web").status == 64


# --- rollback -----------------------------------------------------------------------------------------------


def test_rollback_quarantines_the_rejected_version(
    say: Say, settled: Host, publisher: Publisher, directories: Directories
) -> None:
    publisher.publish("1.1.0")
    settled.run()
    settled.assert_enforces("1.1.0")
    output = say("rollback", "web", "--reason", "logins fail")
    assert output.status == 0
    assert "web 1.0.0 is current again, was 1.1.0\nweb 1.1.0 is quarantined (sha256 " in output.output
    settled.assert_enforces("1.0.0")
    (entry,) = quarantine_of(say)
    assert (entry["version"], entry["reason"]) == ("1.1.0", "rolled back by ann: logins fail")

    assert settled.run().status == 20, "what the channel names is not taken again"
    settled.assert_enforces("1.0.0")
    lines = settled.puller("status").output.splitlines()
    assert [line[:17] for line in lines if "quarantined" in line] == ["  held: web 1.1.0"]
    publisher.publish("1.2.0")
    assert settled.run().status == 0
    settled.assert_enforces("1.2.0")


def test_quarantined_versions_of_the_past_are_only_counted(
    say: Say, settled: Host, publisher: Publisher
) -> None:
    for version in ("1.1.0", "1.2.0"):
        publisher.publish(version)
        settled.run()
        say("rollback", "web", "--reason", "logins fail")
    shown = settled.puller("status").output
    assert "\n  held: web 1.2.0 has been quarantined" in shown
    assert "1.1.0 has been quarantined" not in shown
    publisher.publish("1.3.0")
    assert settled.run().status == 0
    shown = settled.puller("status").output
    assert "\nweb 1.3.0 is enforced" in shown
    assert "2 earlier bundles are quarantined, and not published for this host any more" in shown
    assert "quarantined" not in settled.puller("status", "--check").output
    assert len(quarantine_of(say)) == 2
    assert settled.status()["holds"]["past"] == 2


def test_rollback_skips_versions_that_never_passed(say: Say, settled: Host, publisher: Publisher) -> None:
    for version in ("1.1.0", "1.2.0"):
        publisher.publish(version, f"{publisher.story}      - 'false': {{}}\n")
        assert settled.run().status == 6
    assert settled.enforced == "1.2.0"
    assert say("rollback", "web").status == 0
    settled.assert_enforces("1.0.0")


def test_after_a_rollback_nothing_is_on_trial(
    say: Say, settled: Host, publisher: Publisher, directories: Directories
) -> None:
    publisher.publish("1.1.0", f"{publisher.story}      - 'false': {{}}\n")
    settled.run()
    assert list(document(directories.journal)["trials"]) == ["web"]
    say("rollback", "web", "--later")
    assert document(directories.journal)["trials"] == {}


def test_a_rollback_leaves_applying_to_a_run_that_was_faster(
    say: Say, settled: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish("1.1.0")
    settled.run()

    def busy(*_: object) -> int:
        raise BusyError("another run is active")

    with monkeypatch.context() as patched:
        patched.setattr("puller.cli.host.hold.run", busy)
        output = say("rollback", "web")
    assert output.status == 0
    assert output.output.endswith("another run has just begun, and applies it\n")
    settled.run()
    settled.assert_enforces("1.0.0")


def test_a_rollback_asks_no_site(say: Say, settled: Host, publisher: Publisher, web: Any) -> None:
    publisher.publish("1.1.0")
    settled.run()
    web.stop()
    assert say("rollback", "web").status == 0
    settled.assert_enforces("1.0.0")
    assert quarantine_of(say)[0]["reason"] == "rolled back by ann"


def test_a_rollback_may_leave_applying_to_the_next_run(say: Say, settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0")
    settled.run()
    output = say("rollback", "web", "--later")
    assert output.status == 0
    assert output.output.endswith("the next run applies it. To apply it now, use `puller run`\n")
    assert (settled.machine / "motd").read_text() == "Hello from 1.1.0\n"
    assert "\nweb 1.0.0 is to be applied by the next run, 1.1.0 was last\n" in say("status").output
    settled.run()
    settled.assert_enforces("1.0.0")
    assert "\nweb 1.0.0 is enforced since " in say("status").output


@pytest.mark.parametrize("again", [("run",), ("rollback", "web")], ids=lambda words: words[0])
def test_interrupted_rollback_is_completed_later(
    say: Say, settled: Host, publisher: Publisher, directories: Directories, again: tuple[str, ...]
) -> None:
    publisher.publish("1.1.0")
    settled.run()
    current = Store(directories.bundles).current("web")
    assert current is not None
    Quarantine.load(directories, pytest.fail).add("web", "1.1.0", current.sha256, "the first step")
    assert say(*again).status == (20 if again == ("run",) else 0)
    settled.assert_enforces("1.0.0")
    assert [entry["reason"] for entry in quarantine_of(say)] == ["the first step"]


def test_second_rollback_is_refused(say: Say, settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0")
    settled.run()
    say("rollback", "web")
    refused = say("rollback", "web")
    assert refused.status == 64
    assert (
        "puller: web 1.0.0: no version is available for a rollback: web 1.1.0 has been quarantined since 20"
        in refused.output
    )
    settled.assert_enforces("1.0.0")
    assert len(quarantine_of(say)) == 1, "refusing gives nothing up"


def test_a_rollback_with_nothing_to_roll_back_to_is_refused(
    say: Say, host: Host, publisher: Publisher
) -> None:
    assert say("rollback", "web") == (
        64,
        "puller: web: no version is enforced on this host, so a rollback is not possible\n",
    )
    publisher.publish("1.0.0")
    host.run()
    refused = say("rollback", "web")
    assert refused.status == 64
    assert (
        "web 1.0.0: no version is available for a rollback: no other version was enforced before"
        in refused.output
    )
    assert quarantine_of(say) == []


def test_pin_to_a_rolled_back_version_is_reported(say: Say, settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0")
    settled.run()
    say("pin", "web")
    output = say("rollback", "web", "--later")
    assert "web is still pinned to 1.1.0, which is not tried again: pin it to another\n" in output.output


def test_damage_after_a_rollback_does_not_restore_the_release(
    say: Say, settled: Host, publisher: Publisher, directories: Directories
) -> None:
    publisher.publish("1.1.0")
    settled.run()
    say("rollback", "web", "--later")
    (directories.bundles / "web" / "current").unlink()
    (directories.bundles / "web" / "current").symlink_to("nowhere")
    assert settled.run("--offline").status == 0
    settled.assert_enforces("1.0.0")


def test_a_rollback_that_is_damaged_is_not_taken(
    say: Say, settled: Host, publisher: Publisher, directories: Directories
) -> None:
    publisher.publish("1.1.0")
    settled.run()
    before = Store(directories.bundles).previous("web")
    assert before is not None
    remove_tree(before.path)
    refused = say("rollback", "web")
    assert refused.status == 64
    assert "no version is available for a rollback: " in refused.output
    assert "points to a damaged bundle" in refused.output
    assert quarantine_of(say) == []


# --- all of them --------------------------------------------------------------------------------------------

LOCKED = [("quarantine", "clear", "--all"), ("pin", "web", "1.0.0"), ("unpin", "web"), ("rollback", "web")]


@pytest.mark.parametrize("words", LOCKED, ids=lambda words: words[0])
def test_state_in_use_by_a_run_is_not_changed(
    say: Say, settled: Host, directories: Directories, words: tuple[str, ...]
) -> None:
    before = {path: path.read_bytes() for path in settled.state.glob("*.json")}
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with only_run(directories.run):
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    refused = say(*words)
    done.set()
    thread.join()
    assert refused.status == 75
    assert "another run is active" in refused.output
    assert {path: path.read_bytes() for path in settled.state.glob("*.json")} == before


@pytest.mark.parametrize("words", [("pin", "wep"), ("unpin", "wep"), ("rollback", "wep")])
def test_unconfigured_bundle_is_an_error(say: Say, words: tuple[str, ...]) -> None:
    refused = say(*words)
    assert refused.status == 64
    assert refused.output == "puller: wep: the configuration names no such bundle (did you mean 'web'?)\n"


FAILING = r"""
resources:
  - exec:
      - "/bin/sh -c 'printf \"\\033[2J\\302\\2332Jtext\"; exit 1'":
"""


def test_output_of_failed_commands_is_escaped(say: Say, host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", FAILING, files={})
    outputs = [host.run().output, say("status").output, say("status", "--check").output]
    outputs.append(say("status", "--format", "json").output)
    assert all("2Jtext" in output for output in (outputs[0], outputs[1], outputs[3]))
    assert not any({"\x1b", "\x9b"} & {*output} for output in outputs)
