"""``puller run`` from end to end: what comes of good news, of no news, and of every kind of bad news.

Whatever goes wrong is said with where, what and the documented exit status; the last good bundle is enforced; and the
run after the trouble makes good what was missed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.site import Site

if TYPE_CHECKING:
    from tests.conftest import Host, Outcome, Publisher, WebServer

    Break = Callable[[WebServer, Publisher], object]


@pytest.fixture
def settled(host: Host, publisher: Publisher) -> Host:
    """A host on which web 1.0.0 is in force."""
    publisher.publish("1.0.0")
    assert host.run().status == 0
    return host


def assert_enforced(host: Host, version: str) -> None:
    """All of that version is on the machine, and ``puller status`` says so."""
    assert (host.machine / "motd").read_text() == f"Hello from {version}\n"
    assert (host.machine / "app.conf").read_text() == "workers = 2\n"
    assert host.enforced == version


def assert_said(message: str, outcome: Outcome, host: Host) -> None:
    """The run said it, the report has it, and ``puller status`` tells it."""
    for text in (outcome.output, "\n".join(host.status()["last_run"]["problems"])):
        assert re.search(message, text), f"{message!r} is not in:\n{text}"
    assert host.status()["last_run"]["exit_status"] == outcome.status == host.report()["exit_status"]


# --- good news ----------------------------------------------------------------------------------------------


def test_the_first_run_changes_the_second_does_not_and_an_update_changes_the_difference(
    host: Host, publisher: Publisher
) -> None:
    publisher.publish("1.0.0")
    first = host.run()
    assert first.status == 0
    assert "web 1.0.0 is now enforced\n" in first.output
    assert host.states() == {
        "file#.": "changed",
        "file#motd": "changed",
        "file#app.conf": "changed",
        "exec#reload": "refreshed",
    }

    second = host.run()
    assert second.status == 0
    assert re.fullmatch(r"NOTICE web 1\.0\.0: 4 resources, 4 stable, 0 changed in \S+ s\n", second.output)

    publisher.publish("1.1.0")
    third = host.run("--detailed-exitcodes")
    assert third.status == 2
    assert "web 1.1.0 is now enforced, was 1.0.0\n" in third.output
    different = [reference for reference, state in host.states().items() if state != "stable"]
    assert different == ["file#motd", "exec#reload"]
    assert_enforced(host, "1.1.0")
    assert (host.machine / "reloads").read_text() == "1.0.0\n1.1.0\n"


def test_a_publisher_goes_back_by_publishing_the_older_version_again(
    settled: Host, publisher: Publisher
) -> None:
    publisher.publish("1.1.0")
    settled.run()
    publisher.publish("1.0.0")
    assert settled.run().status == 0
    assert_enforced(settled, "1.0.0")


def test_a_pinned_version_stays_whatever_the_channel_says(settled: Host, publisher: Publisher) -> None:
    settled.configure(bundles=[{"name": "web", "version": "1.0.0"}])
    publisher.publish("1.1.0")
    assert settled.run().status == 0
    assert_enforced(settled, "1.0.0")


def test_data_of_this_host_overrides_that_of_the_bundle(host: Host, publisher: Publisher) -> None:
    manifest = "data: {greeting: Hello}\n" + publisher.story.replace("Hello", "{{ data.greeting }}")
    publisher.publish("1.0.0", manifest)
    host.run()
    assert_enforced(host, "1.0.0")
    Path(host.settings["host_data"]).write_text("data: {greeting: Ahoy}\n")
    assert host.run().status == 0
    assert (host.machine / "motd").read_text() == "Ahoy from 1.0.0\n"


def test_bundles_are_applied_in_the_order_of_the_configuration(settled: Host, publisher: Publisher) -> None:
    publisher.publish("2.0.0", name="base", manifest="resources: []\n")
    settled.configure(bundles=[{"name": "base"}, {"name": "web"}])
    assert settled.run().status == 0
    assert [bundle["name"] for bundle in settled.report()["bundles"]] == ["base", "web"]


def test_a_broken_bundle_keeps_no_other_from_being_updated(settled: Host, publisher: Publisher) -> None:
    publisher.publish("2.0.0", name="base", manifest="resources: nonsense\n")
    publisher.publish("1.1.0")
    settled.configure(bundles=[{"name": "base"}, {"name": "web"}])
    outcome = settled.run()
    assert outcome.status == 13
    assert_said("base: there is no usable bundle on this host", outcome, settled)
    assert [bundle.get("version") for bundle in settled.report()["bundles"]] == [None, "1.1.0"]


# --- the site is in trouble ---------------------------------------------------------------------------------


def answering(status: int, body: bytes = b"Hello?") -> Break:
    def break_it(web: WebServer, publisher: Publisher) -> None:
        web.answer = (status, body)

    return break_it


def flipped(pattern: str) -> Break:
    """One bit in the middle of the newest file of this kind."""

    def break_it(web: WebServer, publisher: Publisher) -> None:
        path = publisher.newest(pattern)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    return break_it


def second_root_flipped(web: WebServer, publisher: Publisher) -> None:
    with publisher.at_another_time(days=300):  # late enough for the publisher to sign a new root
        publisher.refresh()
    flipped("metadata/2.root.json")(web, publisher)


def cut_short(web: WebServer, publisher: Publisher) -> None:
    bundle = publisher.newest("targets/web/*")
    bundle.write_bytes(bundle.read_bytes()[:-1])


def too_long(web: WebServer, publisher: Publisher) -> None:
    bundle = publisher.newest("targets/web/*")
    bundle.write_bytes(bundle.read_bytes() + b"!")


def expired(web: WebServer, publisher: Publisher) -> None:
    with publisher.at_another_time(days=-30):
        publisher.refresh()


def signed_by_somebody_else(web: WebServer, publisher: Publisher) -> None:
    stranger = Site.init(publisher.served.parent / "stranger", None)
    shutil.copytree(stranger.public, publisher.served, dirs_exist_ok=True)


TROUBLE_WITH_THE_SITE = {
    "the server is away": (
        lambda web, publisher: web.stop(),
        14,
        r"URL/metadata/2\.root\.json: the connection failed: Connection refused \(attempts: 1\)",
    ),
    "404": (answering(404), 14, r"URL/metadata/timestamp\.json: status 404 Not Found"),
    "500": (answering(500), 14, r"URL/metadata/2\.root\.json: status 500 Internal Server Error"),
    "401": (answering(401), 14, r"2\.root\.json: status 401 Unauthorized: wrong or missing credentials"),
    "HTML instead of metadata": (
        answering(200, b"<!DOCTYPE html><title>Hotel Splendid</title>"),
        14,
        r"URL/metadata/2\.root\.json: is a web page, wanted 2\.root\.json: a captive portal, ",
    ),
    "something instead of metadata": (answering(200), 10, r"URL/metadata/2\.root\.json: is not metadata: "),
    "the bundle is missing": (
        lambda web, publisher: publisher.newest("targets/web/*").unlink(),
        14,
        r"URL/targets/web/[0-9a-f]{64}\.web-1\.1\.0\.tar\.gz: status 404 Not Found",
    ),
    "the bundle is cut short": (cut_short, 10, r"gz: length is \d+, the signed metadata says \d+"),
    "the bundle is too long": (
        too_long,
        10,
        r"gz: has \d+ bytes, at most \d+ are allowed, the signed metadata says \d+",
    ),
    "tampered bundle": (
        flipped("targets/web/*"),
        10,
        r"1\.0\.tar\.gz: sha256 is \w+, the signed .* says \w+",
    ),
    "tampered index": (flipped("targets/*.json"), 10, r"index\.json: sha256 is \w+, the signed .* says \w+"),
    "tampered targets": (flipped("metadata/*.targets.json"), 10, r"URL/metadata/3\.targets\.json: "),
    "tampered snapshot": (flipped("metadata/*.snapshot.json"), 10, r"URL/metadata/3\.snapshot\.json: "),
    "tampered timestamp": (flipped("metadata/timestamp.json"), 10, r"URL/metadata/timestamp\.json: "),
    "tampered root": (second_root_flipped, 10, r"URL/metadata/2\.root\.json: "),
    "expired": (
        expired,
        11,
        r"URL: version 4 of timestamp expired at 20\S+Z, this host's clock says 20\S+Z; the publisher signs ",
    ),
    "another site": (
        signed_by_somebody_else,
        10,
        r"URL/metadata/timestamp\.json: is signed by 0 of the 1 keys that root 1 demands",
    ),
}


@pytest.mark.parametrize(
    ("break_it", "status", "message"), TROUBLE_WITH_THE_SITE.values(), ids=TROUBLE_WITH_THE_SITE
)
def test_trouble_with_the_site_stops_an_update_and_nothing_else(
    settled: Host, publisher: Publisher, web: WebServer, break_it: Break, status: int, message: str
) -> None:
    publisher.publish("1.1.0")
    break_it(web, publisher)
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == status
    assert_said(message.replace("URL", web.url), outcome, settled)
    assert_enforced(settled, "1.0.0")

    web.answer = None
    web.start()
    publisher.refresh()
    assert settled.run().status == 0
    assert_enforced(settled, "1.1.0")


@pytest.mark.parametrize(
    ("break_it", "status"),
    [(lambda web, publisher: web.stop(), 15), (flipped("targets/web/*"), 10), (answering(404), 15)],
    ids=["away", "tampered", "404"],
)
def test_without_a_bundle_yet_trouble_is_told_and_nothing_is_done(
    host: Host, publisher: Publisher, web: WebServer, break_it: Break, status: int
) -> None:
    publisher.publish("1.0.0")
    break_it(web, publisher)
    outcome = host.run()
    assert outcome.status == status
    assert_said("web: there is no usable bundle on this host", outcome, host)
    assert host.enforced is None
    assert not host.machine.exists()


def test_an_old_copy_of_the_site_is_refused(settled: Host, publisher: Publisher, tmp_path: Path) -> None:
    old = shutil.copytree(publisher.served, tmp_path / "old")
    publisher.publish("1.1.0")
    settled.run()
    shutil.copytree(old, publisher.served, dirs_exist_ok=True)
    outcome = settled.run()
    assert outcome.status == 12
    assert_said(
        r"timestamp\.json: version 2, older than 3, which this host has trusted before", outcome, settled
    )
    assert_enforced(settled, "1.1.0")


def test_a_second_mirror_helps_when_the_first_is_away(
    settled: Host, publisher: Publisher, web: WebServer
) -> None:
    publisher.publish("1.1.0")
    web.stop()
    settled.configure(site=[web.url, str(publisher.served)])
    outcome = settled.run()
    assert outcome.status == 0
    assert_said("2.root.json: the connection failed", outcome, settled)
    assert_enforced(settled, "1.1.0")


# --- the bundle is not valid --------------------------------------------------------------------------------

INVALID_MANIFESTS = {
    "broken YAML": ("resources: [\n", r"web-1\.1\.0/manifest\.yaml:2:1: "),
    "unknown key": (
        "resource: []\n",
        r"web-1\.1\.0/manifest\.yaml:1: unknown key 'resource' \(did you mean 'resources'\?\)",
    ),
    "unknown property": (
        "resources: [{file: [{/x: {ensure: absent, colour: red}}]}]\n",
        r"manifest\.yaml:1: resources\[0\] file#/x: colour is not a property of file",
    ),
    "unknown resource type": (
        "resources: [{fille: [{/x: {ensure: absent}}]}]\n",
        r"manifest\.yaml:1: resources\[0\]: unknown resource type 'fille' \(did you mean 'file'\?\)",
    ),
    "number instead of text": (
        "resources:\n  - file:\n      - /x: {owner: root, group: root, mode: 0644}\n",
        r"manifest\.yaml:3: resources\[0\] file#/x: mode is the number 420, wanted text: quote it",
    ),
    "missing requirement": (
        "resources: [{exec: [{/bin/true: {require: ['file#/nowhere']}}]}]\n",
        r"manifest\.yaml:1: resources\[0\] exec#/bin/true: require .*file#/nowhere",
    ),
    "missing data": (
        "data: {a: '{{ data.nowhere }}'}\nresources: []\n",
        r"manifest\.yaml:1.*: .*nowhere",
    ),
    "missing fact": (
        "data: {a: '{{ facts.nowhere }}'}\nresources: []\n",
        r"manifest\.yaml:1.*: .*nowhere",
    ),
}


@pytest.mark.parametrize(("manifest", "message"), INVALID_MANIFESTS.values(), ids=INVALID_MANIFESTS)
def test_a_bundle_that_is_not_valid_never_becomes_current(
    settled: Host, publisher: Publisher, manifest: str, message: str
) -> None:
    publisher.publish("1.1.0", manifest)
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 13
    assert_said(f"(?s)web 1.1.0 is rejected:.*{message}", outcome, settled)
    assert settled.status()["bundles"][0]["held"].startswith("web 1.1.0 is rejected: ")
    assert_enforced(settled, "1.0.0")

    publisher.publish("1.1.1")
    assert settled.run().status == 0
    assert settled.status()["bundles"][0]["held"] is None
    assert_enforced(settled, "1.1.1")


def test_a_rejected_bundle_is_not_downloaded_again(
    settled: Host, publisher: Publisher, web: WebServer
) -> None:
    publisher.publish("1.1.0", "resources: [\n")
    settled.run()
    web.requests.clear()
    outcome = settled.run()
    assert outcome.status == 13
    assert_said("web 1.1.0 is rejected:", outcome, settled)
    assert [path for path in web.requests if path.startswith("/targets/")] == []

    publisher.publish("1.1.1")
    settled.run()
    kept = {path.name for path in (settled.state / "bundles/web").iterdir()}
    assert len(kept - {"current", "good", "previous"}) == 2, "the rejected one is gone with the next good one"


def test_a_fact_that_is_missing_here_fails_its_resource_and_what_requires_it(
    settled: Host, publisher: Publisher
) -> None:
    """The rest of the new version is applied; the last good one stays remembered."""
    manifest = publisher.story + (
        "      - tune:\n          command: tune {{ facts.nowhere.speed }}\n"
        "      - check:\n          command: /bin/true\n          require: [exec#tune]\n"
    )
    publisher.publish("1.1.0", manifest)
    outcome = settled.run()
    assert outcome.status == 6
    assert re.search(
        r"exec#tune failed .*web-1\.1\.0/manifest\.yaml:14: command: .*: facts has no key 'nowhere'",
        outcome.output,
    )
    assert settled.states()["exec#check"] == "skipped"
    assert_enforced(settled, "1.1.0")
    assert settled.status()["bundles"][0]["good"] == "1.0.0"
    assert [each["resource"] for each in settled.status()["last_run"]["failed"]] == [
        "exec#tune",
        "exec#check",
    ]


# --- this host is in trouble --------------------------------------------------------------------------------


def test_a_host_that_was_never_configured_is_told_how_to_begin(host: Host) -> None:
    host.configuration.unlink()
    outcome = host.run()
    sentence = "there is no configuration; `puller config sample` prints one to start from"
    assert outcome == (78, f"puller: {host.configuration}: {sentence}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("site: [\n", "config.yaml:2:1: "),
        ("- site\n", "config.yaml: is not a mapping"),
        (
            "site: /srv/site\nbundle: web\n",
            "config.yaml:2: bundle is not a key of the configuration (did you mean",
        ),
    ],
)
def test_a_configuration_that_is_not_valid_stops_everything(settled: Host, text: str, message: str) -> None:
    settled.configuration.write_text(text)
    outcome = settled.run()
    assert outcome.status == 78
    assert message in outcome.output
    settled.configure()
    assert settled.run().status == 0


OTHER_SITE = "another site"


@pytest.mark.parametrize(
    ("anchor", "status", "message"),
    [
        (
            None,
            78,
            r"host/root\.json: there is no trust anchor; wanted the root\.json that `puller site init`",
        ),
        ("{", 78, r"root\.json: "),
        ("{}", 78, r"root\.json: "),
        (
            OTHER_SITE,
            10,
            r"is signed by 0 of the 1 keys that root 1 demands; is the trust anchor that of this",
        ),
    ],
)
def test_with_a_wrong_trust_anchor_the_last_good_bundle_is_enforced(
    settled: Host, tmp_path: Path, anchor: str | None, status: int, message: str
) -> None:
    place = Path(settled.settings["trust_anchor"])
    right = place.read_bytes()
    place.unlink()
    if anchor is OTHER_SITE:
        shutil.copyfile(Site.init(tmp_path / "other", None).anchor, place)
    elif anchor is not None:
        place.write_text(anchor)
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == status
    assert_said(message, outcome, settled)
    assert_enforced(settled, "1.0.0")

    place.write_bytes(right)
    assert settled.run().status == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: [\n", "data.yaml:2:1: "),
        ("data: {a: '{{ facts.nowhere }}'}\n", "facts.nowhere"),
        ("dato: {a: 1}\n", "data.yaml:1:1: dato: unknown key 'dato', wanted data, hierarchy, overrides"),
    ],
)
def test_host_data_that_is_not_valid_is_told_and_nothing_is_changed(
    settled: Host, text: str, message: str
) -> None:
    """To go on without an override could undo what it is there for."""
    Path(settled.settings["host_data"]).write_text(text)
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 78
    assert_said(re.escape(message), outcome, settled)
    assert not (settled.machine / "motd").exists()

    Path(settled.settings["host_data"]).unlink()
    assert settled.run().status == 0
    assert_enforced(settled, "1.0.0")


def test_a_channel_without_the_bundle_is_told_and_the_last_good_one_enforced(settled: Host) -> None:
    settled.configure(bundles=[{"name": "web", "channel": "canary"}])
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 78
    assert_said("web: channel 'canary' of the site has no such bundle", outcome, settled)
    assert_enforced(settled, "1.0.0")


# --- this host's state is damaged ---------------------------------------------------------------------------


def bundle_emptied(host: Host) -> None:
    bundle = (host.state / "bundles/web/current").resolve()
    bundle.chmod(0o755)
    (bundle / "bundle.json").unlink()


def link_dangling(host: Host) -> None:
    (host.state / "bundles/web/current").unlink()
    (host.state / "bundles/web/current").symlink_to("0" * 64)


def garbage(name: str) -> Callable[[Host], object]:
    return lambda host: (host.state / name).write_bytes(b"\0 not what belongs here")


DAMAGE: dict[str, tuple[Callable[[Host], object], str]] = {
    "current points to nothing": (link_dangling, r"web/current: points to a damaged bundle: "),
    "the bundle is incomplete": (bundle_emptied, r"web/current: points to a damaged bundle: .*bundle\.json"),
    "owed refreshes": (garbage("owed.json"), r"owed\.json: not understood .* set aside as .*\.unreadable"),
    "trusted timestamp": (garbage("trust/timestamp.json"), r"trust/timestamp\.json: is damaged; .*kept as "),
    "trusted snapshot": (garbage("trust/snapshot.json"), r"trust/snapshot\.json: is damaged; .*kept as "),
    "last report": (garbage("last-run.json"), ""),
    "index": (garbage("trust/index.json"), ""),
    "what is going on": (garbage("../run/status.json"), ""),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_state_is_told_set_aside_and_made_good(
    settled: Host, publisher: Publisher, damage: Callable[[Host], object], message: str
) -> None:
    damage(settled)
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 0
    assert_said(message, outcome, settled)
    assert_enforced(settled, "1.0.0")

    publisher.publish("1.1.0")
    assert settled.run().status == 0
    assert settled.status()["last_run"]["problems"] == []
    assert_enforced(settled, "1.1.0")


# --- a dry run ----------------------------------------------------------------------------------------------


def fingerprint(*roots: Path) -> dict[str, tuple[int, ...]]:
    """Identity, mode, size and times of everything below: whatever is done to a file or directory shows."""
    found: dict[str, tuple[int, ...]] = {}
    for root in roots:
        for path in (root, *root.rglob("*")):
            status = path.lstat()
            found[str(path)] = (status.st_ino, status.st_mode, status.st_size, status.st_ctime_ns)
    return found


def test_a_dry_run_predicts_what_the_next_run_does_and_leaves_every_file_as_it_is(
    settled: Host, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    publisher.publish("1.1.0")
    before = fingerprint(tmp_path / "host")
    predicted = settled.run("--noop", "--verbose")
    assert predicted.status == 0
    assert fingerprint(tmp_path / "host") == before
    assert list((tmp_path / "scratch").iterdir()) == []

    done = settled.run("--verbose")
    assert re.findall(r"\S+#\S+ (?:would change|stable)", predicted.output) == [
        re.sub("changed|refreshed", "would change", line)
        for line in re.findall(r"\S+#\S+ (?:changed|refreshed|stable)", done.output)
    ]
    assert "would change" in predicted.output


def test_a_dry_run_on_a_new_host_makes_nothing(host: Host, publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish("1.0.0")
    before = fingerprint(tmp_path / "host")
    assert host.run("--noop").status == 0
    assert fingerprint(tmp_path / "host") == before


# --- processes of their own: locks, limits, signals, death --------------------------------------------------

# Between the file that changes and what subscribes to it: a command that lasts until it is told to end.
SLOW = """\
      - wait:
          command: sh -c 'touch begun; while [ ! -e go ]; do sleep 0.02; done; touch ended'
          cwd: "{{ facts.machine }}"
          creates: ended
          require: ["file#{{ facts.machine }}/motd"]
      - after:
          command: touch after
          cwd: "{{ facts.machine }}"
          creates: after
"""


def slow(publisher: Publisher) -> str:
    """The usual manifest, in which the refresh comes after a slow command."""
    files, refresh = publisher.story.split("  - exec:\n")
    return f"{files}  - exec:\n{SLOW}{refresh}"


@contextmanager
def running(host: Host, *prefix: str) -> Iterator[subprocess.Popen[str]]:
    """``puller run`` in a process of its own, which is dead after the block."""
    command = [*prefix, sys.executable, "-m", "puller", "run", "--config", str(host.configuration)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


def test_a_second_run_at_the_same_time_is_busy_and_does_nothing(settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", slow(publisher))
    with running(settled) as first:
        wait_for(settled.machine / "begun", first)
        assert settled.status()["running_since"] is not None
        before = settled.report()
        status, output = settled.run()
        assert status == 75
        assert output == (
            f"puller: {settled.settings['run_directory']}/lock: another run is at work (process {first.pid}); "
            "nothing was done\n"
        )
        assert settled.report() == before
        (settled.machine / "go").touch()
        assert finish(first)[0] == 0
    assert settled.status()["running_since"] is None
    assert_enforced(settled, "1.1.0")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_lets_the_resource_at_work_finish_and_skips_the_rest(
    settled: Host, publisher: Publisher, number: signal.Signals, status: int
) -> None:
    publisher.publish("1.1.0", slow(publisher))
    with running(settled) as run:
        wait_for(settled.machine / "begun", run)
        run.send_signal(number)
        (settled.machine / "go").touch()
        assert finish(run)[0] == status
    assert (settled.machine / "ended").exists()
    assert settled.states() == {
        "file#.": "stable",
        "file#motd": "changed",
        "file#app.conf": "stable",
        "exec#wait": "changed",
        "exec#after": "skipped",
        "exec#reload": "skipped",
    }
    reasons = {event.get("skip_reason") for event in settled.report()["bundles"][0]["events"][-2:]}
    assert reasons == {f"stopped by {number.name}"}
    assert settled.status()["last_run"]["exit_status"] == status
    assert settled.status()["bundles"][0]["good"] == "1.0.0", "nobody knows yet whether 1.1.0 is good"

    assert settled.run().status == 0
    assert settled.states()["exec#reload"] == "refreshed", "the refresh that the first run owed"
    assert settled.status()["bundles"][0]["good"] == "1.1.0"


def test_a_signal_while_the_site_is_silent_ends_the_run_at_once(settled: Host, web: WebServer) -> None:
    web.stall_at = "timestamp.json"
    with running(settled) as run:
        assert web.stalled.wait(60)
        run.send_signal(signal.SIGTERM)
        status, output = finish(run)
    assert (status, output) == (143, "ERROR  stopped by SIGTERM\n")
    assert settled.status()["last_run"]["exit_status"] == 143

    web.stall_at = ""
    assert settled.run().status == 0


def test_a_run_killed_between_a_change_and_its_refresh_is_made_good_by_the_next(
    settled: Host, publisher: Publisher
) -> None:
    publisher.publish("1.1.0", slow(publisher))
    with running(settled) as run:
        wait_for(settled.machine / "begun", run)
        run.kill()
    (settled.machine / "go").touch()
    assert settled.status()["running_since"] is None
    assert (settled.machine / "motd").read_text() == "Hello from 1.1.0\n"
    assert (settled.machine / "reloads").read_text() == "1.0.0\n"

    outcome = settled.run()
    assert outcome.status == 0
    assert settled.states()["file#motd"] == "stable"
    assert settled.states()["exec#reload"] == "refreshed"
    assert (settled.machine / "reloads").read_text() == "1.0.0\n1.1.0\n"
    assert "0 changed" in settled.run().output


def test_without_permission_on_the_state_the_run_says_so_and_leaves_it_alone(settled: Host) -> None:
    """For root this takes two things: a directory of somebody else, and not being allowed everything."""
    unprivileged: tuple[str, ...] = ()
    if os.geteuid() == 0:
        os.chown(settled.state, 65534, 65534)
        unprivileged = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", "--")
    else:
        settled.state.chmod(0)
    with running(settled, *unprivileged) as run:
        status, output = finish(run)
    assert status == 78
    assert re.search(rf"puller: {settled.state}\S*: .*[Pp]ermission denied", output), output

    os.chown(settled.state, os.geteuid(), os.getegid())
    settled.state.chmod(0o700)
    assert settled.run().status == 0
    assert_enforced(settled, "1.0.0")


def test_a_file_too_large_for_this_host_is_refused_while_it_is_downloaded(
    settled: Host, publisher: Publisher
) -> None:
    publisher.publish("1.1.0", files={**publisher.story_files, "files/large": os.urandom(1_000_000)})
    (settled.machine / "motd").unlink()
    with running(settled, "prlimit", "--fsize=500000", "--") as run:
        status, output = finish(run)
    assert status == 14
    assert re.search(r"downloads/\w+\.tar\.gz\S*: [Ff]ile too large", output), output
    assert_enforced(settled, "1.0.0")
    assert list((settled.state / "downloads").iterdir()) == []

    assert settled.run().status == 0
    assert_enforced(settled, "1.1.0")


@pytest.mark.root
def test_a_disk_that_is_full_is_told_and_the_last_good_bundle_is_enforced(
    settled: Host, publisher: Publisher, small_disk: Path
) -> None:
    shutil.copytree(settled.state, small_disk / "state", symlinks=True)
    settled.state = small_disk / "state"
    settled.configure(state_directory=str(settled.state))
    assert settled.run().status == 0
    publisher.publish("1.1.0", files={**publisher.story_files, "files/large": os.urandom(3_000_000)})
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 14
    assert_said("[Nn]o space left on device", outcome, settled)
    assert_enforced(settled, "1.0.0")

    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert settled.run().status == 0
    assert_enforced(settled, "1.1.0")


@pytest.mark.root
def test_even_on_a_disk_without_a_free_byte_the_last_good_bundle_is_enforced(
    settled: Host, small_disk: Path
) -> None:
    """What has subscribers fails, as it could not be told later that these are owed a refresh."""
    shutil.copytree(settled.state, small_disk / "state", symlinks=True)
    settled.state = small_disk / "state"
    settled.configure(state_directory=str(settled.state))
    (settled.machine / "app.conf").unlink()
    subprocess.run(["dd", "if=/dev/zero", f"of={small_disk}/filler"], capture_output=True, check=False)
    assert os.statvfs(small_disk).f_bavail == 0
    outcome = settled.run()
    assert outcome.status == 78
    assert "ERROR  the report cannot be kept: no space left on the file system\n" in outcome.output
    assert_enforced(settled, "1.0.0")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    point = tmp_path / "disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "puller-test", str(point)], check=True)
    yield point
    subprocess.run(["umount", str(point)], check=True)
