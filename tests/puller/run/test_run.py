"""``puller run`` from end to end: updates, unchanged sites, and every kind of problem.

After each problem, the output has the place, the cause and the documented exit status, and the last good bundle is
enforced. The next run catches up.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.lifecycle import make_site
from foundation.problems import ProblemCode
from tests.support.sites import bin_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.stories import Host, Publisher, WebServer

    Break = Callable[[WebServer, Publisher], object]


# --- updates --------------------------------------------------------------------------------------------------


def test_run_changes_once_and_an_update_changes_the_rest(host: Host, publisher: Publisher) -> None:
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
    host.assert_enforces("1.1.0")
    assert (host.machine / "reloads").read_text() == "1.0.0\n1.1.0\n"


def test_republished_older_version_is_a_rollback(settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0")
    settled.run()
    publisher.publish("1.0.0")
    assert settled.run().status == 0
    settled.assert_enforces("1.0.0")


def test_pinned_version_ignores_the_channel(settled: Host, publisher: Publisher) -> None:
    settled.configure(bundles=[{"name": "web", "version": "1.0.0"}])
    publisher.publish("1.1.0")
    assert settled.run().status == 0
    settled.assert_enforces("1.0.0")


def test_data_of_this_host_overrides_that_of_the_bundle(host: Host, publisher: Publisher) -> None:
    manifest = "data: {greeting: Hello}\n" + publisher.story.replace("Hello", "{{ data.greeting }}")
    publisher.publish("1.0.0", manifest)
    host.run()
    host.assert_enforces("1.0.0")
    Path(host.settings["host_data"]).write_text("data: {greeting: Ahoy}\n")
    assert host.run().status == 0
    assert (host.machine / "motd").read_text() == "Ahoy from 1.0.0\n"


def test_bundles_are_applied_in_the_order_of_the_configuration(settled: Host, publisher: Publisher) -> None:
    publisher.publish("2.0.0", name="base", manifest="resources: []\n")
    settled.configure(bundles=[{"name": "base"}, {"name": "web"}])
    assert settled.run().status == 0
    assert [bundle["name"] for bundle in settled.report()["bundles"]] == ["base", "web"]


def test_later_configured_bundle_is_fetched(host: Host, publisher: Publisher, web: WebServer) -> None:
    publisher.publish("1.0.0")
    publisher.publish("2.0.0", name="base", manifest="resources: []\n")
    for _ in range(2):
        assert host.run().status == 0
    assert not [path for path in web.requests if "/base/" in path]
    host.configure(bundles=[{"name": "base"}, {"name": "web"}])
    assert host.run().status == 0
    assert [bundle["version"] for bundle in host.report()["bundles"]] == ["2.0.0", "1.0.0"]


def test_release_of_another_bundle_costs_two_small_files(
    settled: Host, publisher: Publisher, web: WebServer
) -> None:
    settled.run()
    publisher.publish("2.0.0", name="db", manifest="resources: []\n")
    web.requests.clear()
    assert settled.run().status == 0
    assert [path for path in web.requests if "root" not in path and "timestamp" not in path] == [
        "/metadata/3.snapshot.json"
    ]


def test_a_broken_bundle_keeps_no_other_from_being_updated(settled: Host, publisher: Publisher) -> None:
    publisher.publish("2.0.0", name="base", manifest="resources: nonsense\n")
    publisher.publish("1.1.0")
    settled.configure(bundles=[{"name": "base"}, {"name": "web"}])
    outcome = settled.run()
    assert outcome.status == 13
    settled.assert_told("base: this host has no usable version of this bundle", outcome)
    assert [bundle.get("version") for bundle in settled.report()["bundles"]] == [None, "1.1.0"]


# --- problems with the site ---------------------------------------------------------------------------------


def answering(status: int, body: bytes = b"Hello?") -> Break:
    def break_it(web: WebServer, publisher: Publisher) -> None:
        web.answer = (status, body)

    return break_it


def flipped(pattern: str) -> Break:
    """Return a break that flips a bit in the middle of the newest matching file."""

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
    bundle = publisher.newest("targets/web/*.tar.gz")
    bundle.write_bytes(bundle.read_bytes()[:-1])


def too_long(web: WebServer, publisher: Publisher) -> None:
    bundle = publisher.newest("targets/web/*.tar.gz")
    bundle.write_bytes(bundle.read_bytes() + b"!")


def expired(web: WebServer, publisher: Publisher) -> None:
    with publisher.at_another_time(days=-30):
        publisher.refresh()


def signed_by_somebody_else(web: WebServer, publisher: Publisher) -> None:
    stranger = make_site(publisher.served.parent / "stranger", None)
    shutil.copytree(stranger.public, publisher.served, dirs_exist_ok=True)


BIN = bin_of("web/index.json")
PROBLEMS_WITH_THE_SITE = {
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
        r"URL/metadata/2\.root\.json: is a web page, expected 2\.root\.json: a captive portal or",
    ),
    "something instead of metadata": (answering(200), 14, r"URL/metadata/2\.root\.json: is not metadata: "),
    "the bundle is missing": (
        lambda web, publisher: publisher.newest("targets/web/*.tar.gz").unlink(),
        14,
        r"URL/targets/web/[0-9a-f]{64}\.web-1\.1\.0\.tar\.gz: status 404 Not Found",
    ),
    "the bundle is cut short": (cut_short, 14, r"gz: ended early: \d+ of \d+ bytes arrived"),
    "the bundle is too long": (
        too_long,
        10,
        r"gz: has \d+ bytes, at most \d+ are allowed, the signed metadata has the length \d+",
    ),
    "tampered bundle": (
        flipped("targets/web/*.tar.gz"),
        10,
        r"1\.0\.tar\.gz: sha256 is \w+, expected \w+ from the signed",
    ),
    "tampered index": (
        flipped("targets/web/*.index.json"),
        10,
        r"index\.json: sha256 is \w+, expected \w+ from the signed",
    ),
    "tampered bin": (flipped(f"metadata/*.{BIN}.json"), 10, rf"URL/metadata/3\.{BIN}\.json: "),
    "tampered snapshot": (flipped("metadata/*.snapshot.json"), 10, r"URL/metadata/3\.snapshot\.json: "),
    "tampered timestamp": (flipped("metadata/timestamp.json"), 10, r"URL/metadata/timestamp\.json: "),
    "tampered root": (second_root_flipped, 10, r"URL/metadata/2\.root\.json: "),
    "expired": (
        expired,
        11,
        r"URL: version 4 of timestamp expired at 20\S+Z, and the clock of this host shows 20\S+Z; the publisher ",
    ),
    "another site": (
        signed_by_somebody_else,
        10,
        r"URL/metadata/timestamp\.json: is signed by 0 of the 1 keys that root 1 requires",
    ),
}


CASES = {
    "the bundle is cut short": "partial.truncated",
    "the bundle is too long": "installation.changed-bundle",
    "tampered bundle": "installation.changed-bundle",
    "tampered index": "installation.unsigned-bundle",
    "expired": "freeze.enforced",
    "another site": "installation.unknown-key",
}


@pytest.mark.parametrize(
    ("break_it", "status", "message"),
    [
        pytest.param(*row, id=name, marks=[pytest.mark.attack(CASES[name])] if name in CASES else [])
        for name, row in PROBLEMS_WITH_THE_SITE.items()
    ],
)
@pytest.mark.representatives(5)
def test_site_problem_stops_only_the_update(
    settled: Host, publisher: Publisher, web: WebServer, break_it: Break, status: int, message: str
) -> None:
    publisher.publish("1.1.0")
    break_it(web, publisher)
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == status
    settled.assert_told(message.replace("URL", web.url), outcome)
    settled.assert_enforces("1.0.0")

    web.answer = None
    web.start()
    publisher.refresh()
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")


@pytest.mark.parametrize(
    ("break_it", "status"),
    [(lambda web, publisher: web.stop(), 15), (flipped("targets/web/*.tar.gz"), 10), (answering(404), 15)],
    ids=["away", "tampered", "404"],
)
def test_problem_without_a_bundle_is_reported(
    host: Host, publisher: Publisher, web: WebServer, break_it: Break, status: int
) -> None:
    publisher.publish("1.0.0")
    break_it(web, publisher)
    outcome = host.run()
    assert outcome.status == status
    host.assert_told("web: this host has no usable version of this bundle", outcome)
    assert ProblemCode.NOTHING_TO_ENFORCE in host.problem_codes()
    assert host.enforced is None
    assert not host.machine.exists()


@pytest.mark.attack("rollback.site")
def test_an_old_copy_of_the_site_is_refused(settled: Host, publisher: Publisher, tmp_path: Path) -> None:
    old = shutil.copytree(publisher.served, tmp_path / "old")
    publisher.publish("1.1.0")
    settled.run()
    shutil.copytree(old, publisher.served, dirs_exist_ok=True)
    outcome = settled.run()
    assert outcome.status == 12
    settled.assert_told(r"timestamp\.json: version 2, older than the trusted version 3", outcome)
    settled.assert_enforces("1.1.0")


def test_a_second_mirror_helps_when_the_first_is_away(
    settled: Host, publisher: Publisher, web: WebServer
) -> None:
    publisher.publish("1.1.0")
    web.stop()
    settled.configure(site=[web.url, str(publisher.served)])
    outcome = settled.run()
    assert outcome.status == 0
    assert "2.root.json: the connection failed" in outcome.output
    assert settled.report().get("problems", []) == []
    settled.assert_enforces("1.1.0")


def test_mirror_that_is_tampered_with_stays_a_warning(
    settled: Host, publisher: Publisher, tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    shutil.copytree(publisher.served, mirror)
    publisher.publish("1.1.0")
    timestamp = mirror / "metadata" / "timestamp.json"
    timestamp.write_bytes(timestamp.read_bytes().replace(b'"expires":"2', b'"expires":"3'))
    settled.configure(site=[str(mirror), str(publisher.served)])
    outcome = settled.run()
    assert outcome.status == 0
    settled.assert_told("timestamp.json: is signed by 0 of", outcome)
    settled.assert_enforces("1.1.0")


# --- invalid bundles ------------------------------------------------------------------------------------------

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
        r"manifest\.yaml:3: resources\[0\] file#/x: mode is a number, expected text; quote it",
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
    settled.assert_told(message, outcome)
    assert "web 1.1.0 is rejected:" in outcome.output
    assert settled.status()["bundles"][0]["held"].startswith("web 1.1.0 is rejected: ")
    settled.assert_enforces("1.0.0")

    publisher.publish("1.1.1")
    assert settled.run().status == 0
    assert settled.status()["bundles"][0]["held"] is None
    settled.assert_enforces("1.1.1")


def test_a_rejected_bundle_is_not_downloaded_again(
    settled: Host, publisher: Publisher, web: WebServer
) -> None:
    publisher.publish("1.1.0", "resources: [\n")
    settled.run()
    web.requests.clear()
    outcome = settled.run()
    assert outcome.status == 13
    settled.assert_told("web-1.1.0/manifest.yaml:2:1: ", outcome)
    assert "web 1.1.0 is rejected:" in outcome.output
    assert [path for path in web.requests if path.startswith("/targets/")] == []

    publisher.publish("1.1.1", "resources: [\n")
    settled.run()
    assert len(settled.unpacked("web")) == 2, "one that is rejected goes with the next, whatever that is"


def test_missing_fact_fails_its_resource_and_dependents(settled: Host, publisher: Publisher) -> None:
    """The rest of the new version is applied, and the last good version stays on record."""
    manifest = publisher.story + (
        "      - tune:\n          command: tune {{ facts.nowhere.speed }}\n"
        "      - check:\n          command: /bin/true\n          require: [exec#tune]\n"
    )
    publisher.publish("1.1.0", manifest)
    outcome = settled.run()
    assert outcome.status == 6
    assert re.search(
        r"exec#tune failed .*web-1\.1\.0/manifest\.yaml:14: command: .*: unknown key 'nowhere' in facts",
        outcome.output,
    )
    assert settled.states()["exec#check"] == "skipped"
    settled.assert_enforces("1.1.0")
    assert settled.status()["bundles"][0]["good"] == "1.0.0"
    assert [each["resource"] for each in settled.status()["last_run"]["failed"]] == [
        "exec#tune",
        "exec#check",
    ]


# --- dry runs -------------------------------------------------------------------------------------------------


def fingerprint(*roots: Path) -> dict[str, tuple[int, ...]]:
    """Return identity, mode, size and times of all files and directories, which show any change."""
    result: dict[str, tuple[int, ...]] = {}
    for root in roots:
        for path in (root, *root.rglob("*")):
            status = path.lstat()
            result[str(path)] = (status.st_ino, status.st_mode, status.st_size, status.st_ctime_ns)
    return result


def test_noop_predicts_the_next_run_and_writes_nothing(
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


def test_removed_working_directory_does_not_matter(
    settled: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    (settled.machine / "motd").unlink()
    assert settled.run().status == 0
    settled.assert_enforces("1.0.0")
