"""A host with a long manifest: what is declared is kept, and each version, value and way back is applied as it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from puller.manifest import loader
from puller.manifest.kept_store import SHORTEST, STORE

if TYPE_CHECKING:
    from tests.conftest import Host, Publisher

FILES = 300
MANIFEST = """
data: {{greeting: {greeting}}}
resources:
  - file:
      - defaults: {{owner: "{{{{ facts.uid }}}}", group: "{{{{ facts.gid }}}}", mode: "0644"}}
      - "{{{{ facts.machine }}}}": {{ensure: directory, mode: "0755"}}
"""
ONE = """      - "{{ facts.machine }}/NUMBER":
          content: |
            # This is the file of number NUMBER, in a text that is long enough to be kept.
            WORD {{ data.greeting }} {{ lookup('data.more', 'nothing more') }}
"""


def manifest(greeting: str, word: str = "say") -> str:
    ones = (ONE.replace("NUMBER", str(number)).replace("WORD", word) for number in range(FILES))
    return MANIFEST.format(greeting=greeting) + "".join(ones)


def contents(host: Host) -> set[str]:
    """The last lines of all files."""
    return {(host.machine / str(number)).read_text().splitlines()[1] for number in range(FILES)}


@pytest.fixture
def long(host: Host, publisher: Publisher) -> Host:
    """A host that has a long manifest in force, and has kept what it declares."""
    assert len(manifest("hello")) > SHORTEST
    publisher.publish("1.0.0", manifest("hello"), files={})
    for _ in range(2):
        assert host.run().status == 0
    assert (host.state / "kept/declarations").exists()
    assert contents(host) == {"say hello nothing more"}
    return host


def test_what_is_kept_is_applied_where_the_machine_differs(
    long: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("declared anew")

    monkeypatch.setattr(loader, "declare", refuse)
    (long.machine / "7").write_text("other\nother\n")
    assert long.run("--detailed-exitcodes").status == 2
    assert contents(long) == {"say hello nothing more"}
    assert long.run("--detailed-exitcodes").status == 0


def test_releases_and_the_way_back_are_applied_as_they_say(long: Host, publisher: Publisher) -> None:
    for version, greeting, word in [
        ("1.1.0", "hello", "shout"),
        ("1.2.0", "bye", "shout"),
        ("1.3.0", "hello", "say"),
    ]:
        publisher.publish(version, manifest(greeting, word), files={})
        for status in (2, 0):
            assert long.run("--detailed-exitcodes").status == status
            assert contents(long) == {f"{word} {greeting} nothing more"}
    assert long.puller("rollback", "web").status == 0
    assert contents(long) == {"shout bye nothing more"}


def test_data_of_the_host_change_what_is_declared_and_back(long: Host) -> None:
    data = long.state.parent / "host-data.yaml"
    long.configure(host_data=str(data))
    for text, wanted in [
        ("data: {greeting: ahoy}", "say ahoy nothing more"),
        ("data: {more: to you}", "say hello to you"),
        ("data: {greeting: ahoy}", "say ahoy nothing more"),
        ("data: {}", "say hello nothing more"),
    ]:
        data.write_text(text)
        data.chmod(0o600)
        for status in (2, 0):
            assert long.run("--detailed-exitcodes").status == status
            assert contents(long) == {wanted}


def test_a_password_of_the_host_is_in_no_file_of_the_state(long: Host) -> None:
    data = long.state.parent / "host-data.yaml"
    data.write_text("data: {more: topsecret}\n")
    data.chmod(0o600)
    long.configure(host_data=str(data))
    for _ in range(2):
        assert long.run().status == 0
    assert contents(long) == {"say hello topsecret"}
    assert not [
        path for path in long.state.rglob("*") if path.is_file() and b"topsecret" in path.read_bytes()
    ]


@pytest.mark.parametrize("harm", ["in the way", "open to others", "damage"])
def test_harm_to_what_is_kept_changes_nothing(long: Host, harm: str) -> None:
    kept = long.state / "kept/declarations"
    if harm == "damage":
        kept.write_bytes(kept.read_bytes()[:-1] + b"\0")
    elif harm == "open to others":
        kept.chmod(0o666)
    else:
        kept.unlink()
        kept.mkdir()
    (long.machine / "7").unlink()
    assert long.run().status == 0
    assert contents(long) == {"say hello nothing more"}


def test_a_dry_run_uses_and_writes_nothing_new(long: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = long.state / "kept/declarations"
    before = kept.read_bytes()
    data = long.state.parent / "host-data.yaml"
    data.write_text("data: {greeting: ahoy}\n")
    data.chmod(0o600)
    long.configure(host_data=str(data))
    assert long.run("--noop").status == 0
    assert kept.read_bytes() == before
    assert contents(long) == {"say hello nothing more"}


def test_the_module_is_not_imported_for_a_short_text(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", manifest("hello")[:-40_000].rpartition("      - ")[0], files={})
    for _ in range(2):
        assert host.run().status == 0
    assert not (host.state / "kept/declarations").exists()
    assert STORE.opened() is None
