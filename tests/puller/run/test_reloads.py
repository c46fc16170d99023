"""Subscribers that only reload: across bundles, after removals and rollbacks, and after killed runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from foundation.differences import Difference, changed
from puller.engine.engine import Settings
from puller.engine.ensure import RequestedResource, Session, ensure
from puller.errors import UsageError
from puller.manifest.manifest import Inputs
from puller.reporting.report import Event, State
from puller.resources import registry
from puller.resources.base import Properties, Resource
from puller.resources.claims import agree
from puller.system.processes import StopRequests
from puller.values.common_properties import Reference, Refresh, reload_of, subscriber_of
from tests.puller.run.left.test_way_back import story
from tests.support.stories import Host, Publisher

LOG: list[str] = []


class DaemonProperties(Properties, frozen=True):
    """Properties of a daemon."""

    subscribe: tuple[Reference, ...] = ()
    """Resources whose changes restart the daemon."""
    reload: tuple[Reference, ...] = ()
    """Resources whose changes reload the daemon."""


class Daemon(Resource[DaemonProperties, None]):
    """A running daemon that logs restarts and reloads."""

    type_name = "daemon"
    properties_type = DaemonProperties
    has_state = False

    def look(self) -> None:
        return None

    def differences(self, actual: None, *, refresh: bool = False) -> Sequence[Difference]:
        return (
            [msgspec.structs.replace(changed("daemon", "old", "restarted"), refresh=True)] if refresh else []
        )

    def reload_differences(self, actual: None) -> Sequence[Difference]:
        return [msgspec.structs.replace(changed("daemon", "old", "reloaded"), refresh=True)]

    def change(self, differences: Sequence[Difference], actual: None) -> None:
        LOG.append(differences[0].desired)

    def noop_message(self, differences: Sequence[Difference], actual: None) -> str:
        return f"Would have {differences[0].desired}"

    @classmethod
    def reloads(cls, properties: Properties) -> tuple[Reference, ...]:
        return getattr(properties, "reload", ())

    @classmethod
    def agree(cls, first: DaemonProperties, second: DaemonProperties) -> DaemonProperties:
        return agree(first, second, rules={"reload": lambda left_side, other: (*left_side, *other)})


@pytest.fixture(autouse=True)
def daemons(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "daemons", SimpleNamespace(Daemon=Daemon))
    monkeypatch.setitem(registry._OWN, "daemon", "daemons:Daemon")
    LOG.clear()
    yield
    registry.find_type.cache_clear()


def told() -> list[str]:
    """Return the restarts and reloads since the last call."""
    result = LOG.copy()
    LOG.clear()
    return result


IDS = "owner: '{{ facts.uid }}', group: '{{ facts.gid }}', mode: '0644'"
TOP = "removed: absent\nresources:\n"
DIRECTORY = f"  - file: [{{'{{{{ facts.machine }}}}': {{ensure: directory, {IDS}}}}}]\n"


def file(name: str, text: str) -> str:
    return f"  - file: [{{'{{{{ facts.machine }}}}/{name}': {{content: '{text}', {IDS}}}}}]\n"


def daemon(how: str, *names: str) -> str:
    references = ", ".join(f"'file#{{{{ facts.machine }}}}/{name}'" for name in names)
    return f"  - daemon: [{{app: {{{how}: [{references}]}}}}]\n"


def publish(publisher: Publisher, version: str, *resources: str, name: str = "web") -> None:
    publisher.publish(version, TOP + "".join(resources), name=name)


def test_a_resource_of_another_bundle_is_reloaded_for(host: Host, publisher: Publisher) -> None:
    host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    publish(publisher, "1.0.0", DIRECTORY, file("conf", "1"))
    publish(publisher, "1.0.0", daemon("reload", "conf"), name="base")
    assert host.run().status == 0
    assert told() == ["reloaded"]
    publish(publisher, "1.1.0", DIRECTORY, file("conf", "2"))
    assert "Would have reloaded" in host.run("--noop").output
    assert host.run().status == 0
    assert told() == ["reloaded"]
    assert host.run().status == 0
    assert told() == []


def test_restart_of_a_bundle_beats_reload_of_another(host: Host, publisher: Publisher) -> None:
    host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    publish(publisher, "1.0.0", DIRECTORY, file("conf", "1"), daemon("reload", "conf"))
    publish(publisher, "1.0.0", daemon("subscribe", "conf"), name="base")
    assert host.run().status == 0
    assert told() == ["restarted"]


def test_removed_leftover_causes_a_reload(host: Host, publisher: Publisher) -> None:
    publish(publisher, "1.0.0", DIRECTORY, file("a", "1"), file("b", "1"), daemon("reload", "a", "b"))
    assert host.run().status == 0
    told()
    publish(publisher, "2.0.0", DIRECTORY, file("a", "1"), daemon("reload", "a"))
    assert "Would have reloaded" in host.run("--noop").output
    assert host.run().status == 0
    assert not (host.machine / "b").exists()
    assert told() == ["reloaded"]
    assert host.run().status == 0
    assert told() == []


def test_undone_change_causes_a_reload(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", story(0, daemon("reload", "health")))
    assert host.run().status == 0
    told()
    publisher.publish("2.0.0", story(2, file("new", "1") + daemon("reload", "new")))
    assert host.run().status == 7
    assert not (host.machine / "new").exists()
    assert told() == ["reloaded", "reloaded"], "with the new file, and without it again"


def test_a_reload_that_a_partial_run_owes_comes_with_the_next(host: Host, publisher: Publisher) -> None:
    publish(publisher, "1.0.0", DIRECTORY, file("conf", "1"), daemon("reload", "conf"))
    assert host.run().status == 0
    told()
    (host.machine / "conf").write_text("by hand")
    assert host.run("--only", "file#*/conf").status == 0
    assert told() == []
    assert host.run().status == 0
    assert told() == ["reloaded"]


def test_a_child_manifest_is_reloaded_for(host: Host, publisher: Publisher) -> None:
    child = {"child.yaml": f"resources:\n{file('conf', '{{ facts.text }}')}".encode()}
    top = f"{TOP}{DIRECTORY}  - apply: [child.yaml]\n  - daemon: [{{app: {{reload: [apply#child.yaml]}}}}]\n"
    (host.state.parent / "facts.d" / "more.json").write_text('{"text": "a"}')
    publisher.publish("1.0.0", top, files=child)
    assert host.run().status == 0
    assert told() == ["reloaded"]


def test_explain_tells_who_reloads_for_what(host: Host, publisher: Publisher) -> None:
    publish(publisher, "1.0.0", DIRECTORY, file("conf", "1"), daemon("reload", "conf"))
    assert host.run().status == 0
    assert (
        "  refreshes daemon#app (reload)\n"
        in host.puller("explain", "file#*conf".replace("*", f"{host.machine}/")).output
    )
    assert f"  reloads for file#{host.machine}/conf\n" in host.puller("explain", "daemon#app").output


def test_unknown_reference_is_found_at_load(host: Host, publisher: Publisher) -> None:
    publish(publisher, "1.0.0", DIRECTORY, daemon("reload", "conf"))
    assert f"reload names file#{host.machine}/conf, which is not declared" in host.run().output


def test_session_knows_reload_references(tmp_path: Path) -> None:
    session = Session.create(tmp_path / "session")

    def record(name: str) -> None:
        session.record(Event(type="file", name=name, state=State.CHANGED))

    def run(**references: Any) -> State:
        desired = RequestedResource("daemon", {"name": "app", **references})
        return ensure(desired, Inputs({}, {}), Settings(), StopRequests(), session)[-1].state

    record("/a")
    record("/b")
    assert run(reload=["file#/a"]) is State.REFRESHED
    assert told() == ["reloaded"]
    assert run(reload=["file#/a"]) is State.STABLE
    record("/b")
    assert run(reload=["file#/a"], subscribe=["file#/b"]) is State.REFRESHED
    assert told() == ["restarted"]
    with pytest.raises(UsageError, match="file#/c: has no event in the session"):
        run(reload=["file#/c"])


@pytest.mark.parametrize("reference", ["service#nginx", "exec#reload nginx", "exec#reload service#nginx"])
def test_listed_subscriber_states_its_action(reference: str) -> None:
    assert subscriber_of(reference) == (reference, Refresh.WHOLE)
    assert subscriber_of(reload_of(reference)) == (reference, Refresh.RELOAD)
