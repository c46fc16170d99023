"""Checkouts across versions of a bundle: other revisions, removal and rollback, without leaks of credentials."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.puller.run.left.test_way_back import copies, story
from tests.support.git_remotes import Remote, git
from tests.support.stories import Host, Publisher


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    remote = Remote(tmp_path / "remote")
    remote.commit("one", tag="v1")
    remote.commit("two", tag="v2")
    return remote


def checkout(remote: Remote, name: str = "app", **properties: Any) -> str:
    """Return a checkout resource of a manifest."""
    values = ", ".join(f"{key}: '{value}'" for key, value in {"url": remote.url, **properties}.items())
    return f'  - checkout: [{{"{{{{ facts.machine }}}}/{name}": {{{values}}}}}]\n'


def text(host: Host, name: str = "app") -> str:
    return (host.machine / name / "file").read_text()


def test_versions_forth_and_back(host: Host, publisher: Publisher, remote: Remote) -> None:
    for version, revision, wanted in (("1.0.0", "v1", "one"), ("2.0.0", "v2", "two"), ("3.0.0", "v1", "one")):
        publisher.publish(version, story(0, checkout(remote, revision=revision)))
        assert host.run().status == 0
        assert text(host) == wanted
        assert host.run().status == 0
        assert set(host.states().values()) == {"stable"}


@pytest.mark.everything
def test_a_bundle_that_is_given_up_leaves_the_revision_before_it(
    host: Host, publisher: Publisher, remote: Remote
) -> None:
    publisher.publish("1.0.0", story(0, checkout(remote, revision="v1")))
    assert host.run().status == 0
    new = checkout(remote, "new", revision="v2")
    publisher.publish("2.0.0", story(2, checkout(remote, revision="v2"), new))
    remote.commit("three", tag="v3")
    outcome = host.run()
    assert outcome.status == 7, outcome.output
    assert "not_undone" not in host.report()["bundles"][0] or not host.report()["bundles"][0]["not_undone"]
    assert text(host) == "one"
    assert not (host.machine / "new").exists()
    assert copies(host) == []
    assert host.run().status == 20
    assert set(host.states().values()) == {"stable"}


def test_it_is_taken_away_where_nothing_in_it_is_anybodys(
    host: Host, publisher: Publisher, remote: Remote
) -> None:
    names = ("clean", "changed", "untracked", "ignored", "committed", "below")
    publisher.publish(
        "1.0.0", "removed: absent\n" + story(0, *(checkout(remote, name, revision="v1") for name in names))
    )
    assert host.run().status == 0
    (host.machine / "changed/file").write_text("by hand")
    (host.machine / "untracked/upload").write_text("precious")
    (host.machine / "ignored/.git/info").mkdir(exist_ok=True)
    (host.machine / "ignored/.git/info/exclude").write_text("secret\n")
    (host.machine / "ignored/secret").write_text("precious")
    git(host.machine / "committed", "commit", "--quiet", "--allow-empty", "--message", "by hand")
    below = '  - file: [{"{{ facts.machine }}/below/conf": {content: x, owner: 0, group: 0, mode: "0644"}}]\n'
    publisher.publish("2.0.0", "removed: absent\n" + story(0, below.replace(" 0,", ' "{{ facts.uid }}",')))
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert {name for name in names if (host.machine / name).exists()} == {*names} - {"clean"}
    for output in (outcome.output, host.puller("status").output):
        assert "it has local changes in file, so it stays" in output
        assert "it has files that are not of its commit: upload, so it stays" in output
    assert "so it stays" not in host.run().output, "the log has the reasons once"


def test_credentials_are_shown_nowhere(host: Host, publisher: Publisher) -> None:
    publisher.publish(
        "1.0.0",
        story(
            0, '  - checkout: [{"{{ facts.machine }}/app": {url: "http://joe:s3cret-t0ken@127.0.0.1:9/x"}}]\n'
        ),
    )
    outcome = host.run("-v")
    assert outcome.status == 6
    assert "git clone" in outcome.output
    assert "s3cret" not in outcome.output
    for command in (("explain", f"checkout#{host.machine}/app"), ("status",), ("run", "--noop", "-v")):
        assert "s3cret" not in host.puller(*command).output
    remaining = (path for path in host.state.rglob("*") if path.is_file() and "bundles" not in path.parts)
    assert not [path for path in remaining if b"s3cret" in path.read_bytes()]
    assert not os.path.lexists(host.machine / "app")


@pytest.mark.everything
def test_a_checkout_stays_until_its_successor_is_cloned(
    host: Host, publisher: Publisher, remote: Remote
) -> None:
    publisher.publish("1.0.0", "removed: absent\n" + story(0, checkout(remote, "old", revision="v1")))
    assert host.run().status == 0
    publisher.publish("2.0.0", "removed: absent\n" + story(0, checkout(remote, "new", revision="missing")))
    assert host.run().status in (4, 6)
    assert text(host, "old") == "one"
    publisher.publish("3.0.0", "removed: absent\n" + story(0, checkout(remote, "new", revision="v2")))
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert text(host, "new") == "two"
    assert not (host.machine / "old").exists()
    assert host.run("--detailed-exitcodes").status == 0


def purge(name: str, kind: str) -> str:
    """Return a resource that purges a directory of the machine."""
    if kind == "file":
        owners = 'ensure: directory, owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0755"'
        return f'  - file: [{{"{{{{ facts.machine }}}}/{name}": {{{owners}, purge: true}}}}]\n'
    return f'  - scaffold: [{{"{{{{ facts.machine }}}}/{name}": {{source: templates, purge: true}}}}]\n'


@pytest.mark.everything
@pytest.mark.parametrize("kind", ["file", "scaffold"])
@pytest.mark.parametrize("removed", ["", "removed: absent\n"])
@pytest.mark.representatives(1)
def test_a_purge_leaves_a_leftover_checkout_with_work(
    host: Host, publisher: Publisher, remote: Remote, kind: str, removed: str
) -> None:
    (host.machine / "srv").mkdir(parents=True)
    trees = [checkout(remote, f"srv/{name}", revision="v1") for name in ("clean", "changed")]
    publisher.publish("1.0.0", removed + story(0, *trees), files={"templates/x": b"x"})
    assert host.run().status == 0
    (host.machine / "srv/changed/file").write_text("by hand")
    (host.machine / "srv/other").write_text("of nobody")
    publisher.publish("2.0.0", removed + story(0, purge("srv", kind)), files={"templates/x": b"x"})
    remaining = f"{host.machine}/srv/changed is left behind, and it has local changes in file, so it stays"
    outcome = host.run("--noop", "-v")
    assert remaining in outcome.output
    for number in range(3):
        outcome = host.run("-v")
        assert outcome.status == 0, outcome.output
        assert remaining in outcome.output
        assert {path.name for path in (host.machine / "srv").iterdir()} - {"x"} == {"changed"}
        assert text(host, "srv/changed") == "by hand"
        if number:
            assert set(host.states().values()) == {"stable"}
    git(host.machine / "srv/changed", "checkout", "--quiet", "file")
    assert host.run().status == 0
    assert {path.name for path in (host.machine / "srv").iterdir()} - {"x"} == set()


@pytest.mark.parametrize("kind", ["file", "scaffold"])
@pytest.mark.parametrize("place", ["app", "app/below"])
@pytest.mark.representatives(1)
def test_a_purge_in_a_checkout_with_work_is_refused(
    host: Host, publisher: Publisher, remote: Remote, kind: str, place: str
) -> None:
    publisher.publish("1.0.0", story(0, checkout(remote, revision="v1")), files={"templates/x": b"x"})
    assert host.run().status == 0
    (host.machine / "app/below").mkdir()
    (host.machine / "app/below/work").write_text("by hand")
    publisher.publish("2.0.0", story(0, purge(place, kind)), files={"templates/x": b"x"})
    for _ in range(3):
        outcome = host.run("-v")
        assert outcome.status in (4, 6)
        assert "is not purged: " in outcome.output
        assert "has files that are not of its commit: below/" in outcome.output
        assert (host.machine / "app/below/work").read_text() == "by hand"
    publisher.publish(
        "3.0.0", story(0, checkout(remote, ensure="absent", force="true").replace("'true'", "true"))
    )
    assert host.run().status == 0
    assert not (host.machine / "app").exists()


@pytest.mark.everything
@pytest.mark.root
def test_leftover_checkout_of_unknown_state_stays(host: Host, publisher: Publisher, remote: Remote) -> None:
    (host.machine / "srv").mkdir(parents=True)
    publisher.publish("1.0.0", story(0, checkout(remote, "srv/app", revision="v1")))
    assert host.run().status == 0
    (host.machine / "srv/app/.git/config").chmod(0o666)
    publisher.publish("2.0.0", story(0, purge("srv", "file")))
    outcome = host.run("-v")
    assert outcome.status == 0, outcome.output
    assert "srv/app is left behind, and it may contain work: " in outcome.output
    assert text(host, "srv/app") == "one"
