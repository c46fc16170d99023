"""Commands end with the same exit status, and resources in the same state, if each message is only its code."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from puller.engine.engine import Engine
from puller.resources.packages.package import Package
from tests.puller.authoring.lint.test_mutations import BUNDLES, MACHINES, ROOT, SEED, mutations
from tests.puller.authoring.test_messages_as_codes import FILES, Coded
from tests.support.stories import Host

if TYPE_CHECKING:
    from puller.reporting.report import Event
    from tests.support.stories import Execute, Publisher, Web

MUTATIONS = 3
"""Mutations of each example with ``--thorough``. Otherwise one is enough, because there are many examples."""
CASE = "facts: {os: {family: Debian}}\nexpect: {resources: {'file#/etc/nothing': absent}}\n"
FILES_OF_LOCAL = {"files/app.conf": b"workers = 2\n"}
_IDS = {"owner": "{{ facts.uid }}", "group": "{{ facts.gid }}", "mode": "0644"}
_DIRECTORY = {"file": [{"{{ facts.machine }}": {**_IDS, "ensure": "directory", "mode": "0755"}}]}


def _file(name: str, **properties: object) -> dict[str, object]:
    return {"file": [{f"{{{{ facts.machine }}}}/{name}": {**_IDS, **properties}}]}


def _exec(command: str, **properties: object) -> dict[str, object]:
    return {"exec": [{command: properties}]}


LOCAL = {
    "a new file": _file("made", content="a\n"),
    "a file of the bundle": _file("app.conf", source="files/app.conf"),
    "a failing command": _exec("/bin/false"),
    "a missing program": _exec("/nowhere/program"),
    "a command that takes too long": _exec("/bin/sleep 60", timeout="0.2s"),
    "a missing source": _file("x", source="files/missing"),
    "a missing fact": _exec("/bin/echo", environment={"A": "{{ facts.nowhere }}"}),
    "a directory in the way": _file("", content="a\n"),
    "a failed validation": _file("checked", content="a\n", validate="/bin/false %"),
    "a misspelt property": _exec("/bin/true", timeoutt="5s"),
    "an undeclared reference": _exec("/bin/true", require=["exec#other"]),
    "a skipped resource": {"exec": [{"/bin/false": {}}, {"/bin/true": {"require": ["exec#/bin/false"]}}]},
    "a file of another host": _file("far", source="file:///dev/null", checksum="0" * 64),
    "a failing health check": _exec("/bin/true", health_checks=[{"command": "/bin/false"}]),
}
"""Resources for real runs, each with a different result."""
ENSURE = (
    ("exec", "/bin/true"),
    ("exec", "/bin/false"),
    ("exec", "/nowhere/program"),
    ("exec", "/bin/true", "--timeout", "soon"),
    ("exec", "/bin/true", "--require", "exec#other"),
    ("file", "/nowhere/at/all", "--content", "a", "--owner", "0", "--group", "0", "--mode", "0644"),
    ("file", "/nowhere", "--content", "a", "--owner", "0", "--group", "0", "--mode", "9"),
    ("file", "/nowhere", "--content", "a"),
    ("fiel", "/nowhere"),
)


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str, bool]]]:
    """Record the events of all engines, as reference, state and whether there are errors."""
    recorded: list[tuple[str, str, bool]] = []
    apply = Engine.apply

    def recording(engine: Engine) -> list[Event]:
        events = apply(engine)
        recorded.extend((event.reference, event.state, bool(event.errors)) for event in events)
        return events

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "apply", recording)
        patched.setattr(Package, "_foretell_removals", lambda *_: [])  # takes a second for each package
        yield recorded


Decide = Callable[[Path], list[object]]


@pytest.fixture
def decide(tmp_path: Path, new_site: Path, execute: Execute, states: list[tuple[str, str, bool]]) -> Decide:
    """Run all commands of authors, and a dry run, with a bundle."""
    facts = tmp_path / "facts.yaml"
    facts.write_text(yaml.safe_dump(MACHINES[0]))
    site, state = tmp_path / "site", tmp_path / "state"

    def decisions(directory: Path) -> list[object]:
        states.clear()
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(new_site, site)
        bundle = str(directory)
        name = ("--name", "web")
        commands = {
            "test": ("test", bundle, "-j", "1"),
            "build": ("bundle", "build", bundle, *name, "-o", str(tmp_path / "built.tar.gz")),
            "publish": ("site", "publish", str(site), bundle, *name, "--version", "1.0.0"),
            "apply": (
                *("apply", bundle, "--noop", "--no-system-facts", "--facts", str(facts)),
                *("--state-directory", str(state)),
            ),
        }
        if any("\nfails:" in case.read_text() for case in directory.glob("tests/*.yaml")):
            del commands["test"]  # such a case contains text of the message, which its author has to see
        statuses = {command: execute(*words)[0] for command, words in commands.items()}
        return [statuses, *states]

    return decisions


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
@pytest.mark.representatives(6)
def test_commands_need_no_text_of_a_bundle(
    tmp_path: Path, files: dict[str, str], decide: Decide, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "web"
    for name, text in {"tests/one.yaml": CASE, **files}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    before = decide(directory)
    with Coded(monkeypatch):
        assert decide(directory) == before


@pytest.mark.parametrize("bundle", BUNDLES, ids=str)
@pytest.mark.everything
@pytest.mark.sample(6)
def test_commands_need_no_text_of_an_example(
    tmp_path: Path, bundle: Path, decide: Decide, monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    directory = Path(shutil.copytree(ROOT, tmp_path / "examples")) / bundle
    before = decide(directory)
    with Coded(monkeypatch):
        assert decide(directory) == before
    for mutation in itertools.islice(mutations(directory, SEED + 1), MUTATIONS if thorough else 1):
        original = mutation.file.read_text()
        mutation.file.write_text(mutation.text)
        before = decide(directory)
        with Coded(monkeypatch):
            assert decide(directory) == before, str(mutation)
        mutation.file.write_text(original)


@pytest.mark.parametrize("resource", LOCAL.values(), ids=LOCAL)
def test_applying_and_runs_need_no_text(
    tmp_path: Path,
    resource: dict[str, object],
    publisher: Publisher,
    web: Web,
    execute: Execute,
    states: list[tuple[str, str, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = yaml.safe_dump({"resources": [_DIRECTORY, resource, _exec("/bin/echo end")]})
    publisher.publish("1.0.0", manifest, files=FILES_OF_LOCAL)
    source = tmp_path / "publisher/sources/web-1.0.0"

    def decisions(name: str) -> list[object]:
        host = Host(tmp_path / name, publisher.site.anchor, web.url, execute)
        states.clear()
        of_run = [host.run().status for _ in range(2)]
        shutil.rmtree(host.machine, ignore_errors=True)
        facts = ("--facts", str(tmp_path / name / "facts.d/story.json"))
        of_apply = [
            host.puller("apply", str(source), *facts, *option).status for option in (["--noop"], [], [])
        ]
        ended = [
            (reference.replace(str(host.machine), ""), state, failed) for reference, state, failed in states
        ]
        return [of_run, of_apply, ended]

    before = decisions("before")
    with Coded(monkeypatch):
        assert decisions("after") == before


@pytest.mark.parametrize("words", ENSURE, ids=" ".join)
def test_ensure_needs_no_text(
    words: tuple[str, ...], execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = execute("ensure", *words)[0]
    with Coded(monkeypatch):
        assert execute("ensure", *words)[0] == before


def test_a_run_needs_no_text_of_trust(
    tmp_path: Path, publisher: Publisher, web: Web, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path / "one", publisher.site.anchor, web.url, execute)
    publisher.publish("1.0.0")
    assert host.run().status == 0
    publisher.publish("1.1.0")
    for pattern in ("targets/**/*.tar.gz", "metadata/*.targets.json", "metadata/timestamp.json"):
        file = publisher.newest(pattern)
        content = file.read_bytes()
        for data in (b"", content[:-1] + b"x", None):
            if data is None:
                file.unlink()
            else:
                file.write_bytes(data)
            before = host.run().status
            with Coded(monkeypatch):
                assert host.run().status == before
        file.write_bytes(content)
