"""Resources that leave a bundle: listed, or removed if Puller created them and the bundle has ``removed: absent``."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.stories import Host, Publisher

FILES = """\
removed: REMOVED
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd": {content: "Hello from VERSION\\n"}
"""
EXTRA = """\
      - "{{ facts.machine }}/conf.d": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/conf.d/extra": {content: "extra\\n"}
"""


def files(removed: str, *parts: str) -> str:
    """Return a manifest with one file and ``parts``."""
    return FILES.replace("REMOVED", removed) + "".join(parts)


def left(host: Host) -> dict[str, bool]:
    """Return the leftovers in ``puller status`` by short reference, and whether Puller created them."""
    result = host.status()["bundles"][0].get("left_behind", [])
    return {item["reference"].replace(f"{host.machine}/", ""): item["made"] for item in result}


def stays(host: Host) -> dict[str, str]:
    """Return why leftovers stay, by short reference."""
    result = host.status()["bundles"][0].get("left_behind", [])
    return {item["reference"].replace(f"{host.machine}/", ""): item["stays"] for item in result}


def has(host: Host, name: str) -> bool:
    return os.path.lexists(host.machine / name)


def inodes(host: Host) -> dict[Path, int]:
    return {path: path.lstat().st_ino for path in host.machine.rglob("*")}


@pytest.fixture
def extended(host: Host, publisher: Publisher) -> Any:
    """Return ``extended(removed)``: a host on 1.0.0, with a directory and a file that 2.0.0 does not declare."""

    def build(removed: str) -> Host:
        publisher.publish("1.0.0", files(removed, EXTRA))
        assert host.run().status == 0
        publisher.publish("2.0.0", files(removed))
        return host

    return build


def test_leftover_stays_and_is_listed(extended: Any) -> None:
    host = extended("keep")
    assert host.run().status == 0
    assert has(host, "conf.d/extra")
    assert left(host) == {"file#conf.d/extra": True, "file#conf.d": True}
    output = host.puller("status").output
    assert f"file#{host.machine}/conf.d/extra is left behind since " in output
    assert "made by Puller" in output


def test_removed_absent_removes_leftovers_once(extended: Any) -> None:
    host = extended("absent")
    outcome = host.run()
    assert outcome.status == 0
    assert not has(host, "conf.d")
    assert host.states()["file#conf.d/extra"] == "changed"
    assert left(host) == {}
    before = inodes(host)
    assert host.run("--detailed-exitcodes").status == 0
    assert inodes(host) == before
    assert set(host.states()) == {"file#.", "file#motd"}


def test_a_dry_run_tells_and_takes_nothing_away(extended: Any) -> None:
    host = extended("absent")
    state = (host.state / "managed.json").read_bytes()
    output = host.run("--noop").output
    assert "Would have removed the file" in output
    assert "Would have removed the directory" in output
    assert has(host, "conf.d/extra")
    assert (host.state / "managed.json").read_bytes() == state


def test_existing_object_is_never_removed(host: Host, publisher: Publisher) -> None:
    (host.machine / "conf.d").mkdir(parents=True)
    (host.machine / "conf.d/extra").write_text("by hand\n")
    publisher.publish("1.0.0", files("absent", EXTRA))
    assert host.run().status == 0
    publisher.publish("2.0.0", files("absent"))
    assert host.run().status == 0
    assert (host.machine / "conf.d/extra").read_text() == "extra\n"
    assert left(host) == {"file#conf.d/extra": False, "file#conf.d": False}
    assert "there before Puller" in host.puller("status").output


def test_directory_with_foreign_files_stays_until_empty(extended: Any) -> None:
    host = extended("absent")
    (host.machine / "conf.d/theirs").touch()
    assert host.run().status == 0
    assert has(host, "conf.d/theirs")
    assert left(host) == {"file#conf.d": True}
    assert stays(host) == {"file#conf.d": "it is not empty, so it stays"}
    (host.machine / "conf.d/theirs").unlink()
    assert host.run().status == 0
    assert not has(host, "conf.d")
    assert left(host) == {}


@pytest.mark.everything
def test_the_reason_of_a_leftover_is_logged_once(extended: Any, publisher: Publisher) -> None:
    host = extended("absent")
    (host.machine / "conf.d/theirs").touch()
    sentence = f"file#{host.machine}/conf.d is a leftover: it is not empty, so it stays"
    assert [host.run().output.count(sentence) for _ in range(3)] == [1, 0, 0]
    assert "    it is not empty, so it stays\n" in host.puller("status").output
    publisher.publish("3.0.0", files("absent", "  - exec: [{broken: {command: 'false'}}]\n"))
    other = f"file#{host.machine}/conf.d is a leftover: exec#broken did not succeed, so it stays"
    assert [host.run().output.count(other) for _ in range(2)] == [1, 0]
    assert stays(host) == {"file#conf.d": "exec#broken did not succeed, so it stays"}
    publisher.publish("4.0.0", files("absent"))
    assert host.run().output.count(sentence) == 1
    (host.machine / "conf.d/theirs").unlink()
    assert host.run().status == 0
    assert stays(host) == {}


@pytest.mark.everything
def test_a_leftover_above_a_declared_path_has_a_reason(extended: Any, publisher: Publisher) -> None:
    host = extended("absent")
    publisher.publish("3.0.0", files("absent", '      - "{{ facts.machine }}/conf.d/new": {content: "x"}\n'))
    reason = "a declared resource is at its path, above it or below it, so it stays"
    outputs = [host.run("--noop").output, host.run().output, host.run().output]
    assert [output.count(f"conf.d is a leftover: {reason}") for output in outputs] == [1, 1, 0]
    assert stays(host) == {"file#conf.d": reason}


def test_a_kept_leftover_has_no_reason(extended: Any) -> None:
    host = extended("keep")
    assert "is a leftover: " not in host.run().output
    assert set(stays(host).values()) == {""}


def test_a_resource_says_otherwise_than_its_manifest(host: Host, publisher: Publisher) -> None:
    remaining = EXTRA.replace("{content:", "{removed: keep, content:")
    publisher.publish("1.0.0", files("absent", remaining))
    assert host.run().status == 0
    publisher.publish("2.0.0", files("absent"))
    assert host.run().status == 0
    assert left(host) == {"file#conf.d/extra": True, "file#conf.d": True}


@pytest.mark.everything
def test_returning_resource_still_counts_as_made(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", files("keep", EXTRA))
    assert host.run().status == 0
    publisher.publish("2.0.0", files("keep"))
    assert host.run().status == 0
    publisher.publish("3.0.0", files("absent", EXTRA))
    assert host.run().status == 0
    assert left(host) == {}
    publisher.publish("4.0.0", files("absent"))
    assert host.run().status == 0
    assert not has(host, "conf.d")


def test_a_run_that_is_killed_after_a_file_is_made_has_made_it(
    host: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(*arguments: object) -> None:
        raise Died

    publisher.publish("1.0.0", files("absent", EXTRA))
    with monkeypatch.context() as patched:
        patched.setattr("puller.run.leftovers.leftovers.Leftovers.after", die)
        with pytest.raises(Died):
            host.run()
    assert has(host, "conf.d/extra")
    assert host.run().status == 0
    publisher.publish("2.0.0", files("absent"))
    assert host.run().status == 0
    assert not has(host, "conf.d")


def test_unexpandable_child_removes_nothing(host: Host, publisher: Publisher) -> None:
    child = "  - apply: [{child.yaml: {data: {text: '{{ facts.text }}'}}}]\n"
    provided = {"child.yaml": files("absent", EXTRA).replace("removed: absent\n", "").encode()}
    facts = host.state.parent / "facts.d" / "more.json"
    facts.write_text('{"text": "a"}')
    top = f"removed: absent\nresources:\n{child}"
    publisher.publish("1.0.0", top, files=provided)
    assert host.run().status == 0
    assert has(host, "conf.d/extra")
    facts.write_text("{}")
    assert host.run().status == 4
    assert has(host, "conf.d/extra")
    facts.write_text('{"text": "a"}')
    assert host.run().status == 0
    publisher.publish("2.0.0", files("absent"))
    assert host.run().status == 0
    assert not has(host, "conf.d")


def test_subscriber_of_a_leftover_is_refreshed(host: Host, publisher: Publisher) -> None:
    reload = """\
  - exec:
      - reload:
          command: sh -c 'echo VERSION >> {{ facts.machine }}/reloads'
          refreshonly: true
          subscribe: [SUBSCRIBE"file#{{ facts.machine }}/motd"]
"""
    extra = '"file#{{ facts.machine }}/conf.d/extra", '
    motd = files("absent").replace("from VERSION", "always")
    publisher.publish("1.0.0", motd + EXTRA + reload.replace("SUBSCRIBE", extra))
    assert host.run().status == 0
    publisher.publish("2.0.0", motd + reload.replace("SUBSCRIBE", ""))
    assert "Would have executed via subscribe" in host.run("--noop").output
    assert host.run().status == 0
    assert (host.machine / "reloads").read_text() == "1.0.0\n2.0.0\n"
    assert host.run().status == 0
    assert (host.machine / "reloads").read_text() == "1.0.0\n2.0.0\n"


def test_resource_declared_by_another_bundle_moves_to_it(host: Host, publisher: Publisher) -> None:
    host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    publisher.publish("1.0.0", files("absent", EXTRA))
    base = files("absent").replace("/motd", "/base")
    publisher.publish("1.0.0", base, name="base")
    assert host.run().status == 0
    publisher.publish("1.1.0", base + EXTRA, name="base")
    assert host.run().status == 0
    publisher.publish("2.0.0", files("absent"))
    assert host.run().status == 0
    assert has(host, "conf.d/extra")
    assert left(host) == {}
    publisher.publish("1.2.0", base, name="base")
    assert host.run().status == 0
    assert not has(host, "conf.d")


def test_leftover_scaffold_removes_its_files(host: Host, publisher: Publisher) -> None:
    scaffold = '  - scaffold: [{"{{ facts.machine }}/pages": {source: pages}}]\n'
    pages = {"pages/a": b"a\n", "pages/sub/b": b"b\n", "pages/c": b"c\n"}
    (host.machine / "pages").mkdir(parents=True)
    (host.machine / "pages/c").write_text("by hand\n")
    publisher.publish("1.0.0", files("absent") + scaffold, files=pages)
    assert host.run().status == 0
    publisher.publish("1.1.0", files("absent") + scaffold, files={"pages/a": b"a\n", "pages/c": b"c\n"})
    assert host.run().status == 0
    assert not has(host, "pages/sub")
    (host.machine / "pages/theirs").touch()
    publisher.publish("2.0.0", files("absent"))
    assert host.run().status == 0
    assert sorted(path.name for path in (host.machine / "pages").iterdir()) == ["c", "theirs"]


def test_unconfigured_bundle_removes_nothing(host: Host, publisher: Publisher) -> None:
    host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    publisher.publish("1.0.0", files("absent", EXTRA), name="base")
    publisher.publish("1.0.0", files("absent"))
    assert host.run().status == 0
    host.configure(bundles=[{"name": "web"}])
    for _ in range(2):
        assert host.run().status == 0
        assert has(host, "conf.d/extra")
    (remains,) = host.status()["left"]
    names = {name["reference"].replace(f"{host.machine}/", "") for name in remains["left_behind"]}
    assert {"file#conf.d", "file#conf.d/extra"} <= names
    host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    publisher.publish("1.1.0", files("absent").replace("VERSION", "1.0.0"), name="base")
    assert host.run().status == 0
    assert not has(host, "conf.d")


def test_a_damaged_record_takes_nothing_away(extended: Any) -> None:
    host = extended("absent")
    (host.state / "managed.json").write_text("{")
    (host.state / "managed.json").chmod(0o600)
    outcome = host.run()
    assert outcome.status == 0
    assert "managed.json" in outcome.output
    assert has(host, "conf.d/extra")


@pytest.mark.everything
def test_idle_run_does_not_write_the_record(extended: Any) -> None:
    host = extended("keep")
    assert host.run().status == 0
    before = (host.state / "managed.json").stat()
    assert host.run().status == 0
    assert (host.state / "managed.json").stat().st_ino == before.st_ino


def test_leftover_is_forgotten_on_command(extended: Any) -> None:
    host = extended("keep")
    assert host.run().status == 0
    output = host.puller("forget", "web", "--left", f"file#{host.machine}/conf.d/extra")
    assert output.status == 0
    assert left(host) == {"file#conf.d": True}
    assert host.puller("forget", "web", "--left").status == 0
    assert left(host) == {}
    assert has(host, "conf.d/extra")
    assert json.loads((host.state / "managed.json").read_bytes())["bundles"]["web"].get("left") is None
