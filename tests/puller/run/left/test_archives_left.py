"""An archive that leaves its bundle is removed with its extracted files, except for files that were modified."""

import hashlib
import re

import pytest

from tests.puller.run.left.test_way_back import copies, story, tree
from tests.simulators import archivewriter as writer
from tests.support.stories import Host, Publisher, WebServer

DATA = writer.gzip(
    writer.tar(writer.Member("app/bin/run", b"run\n"), writer.Member("app/share/doc", b"a page\n"))
)
ARCHIVE = f"""\
  - archive:
      - "{{{{ facts.machine }}}}/app.tar.gz":
          url: URL/archives/app.tar.gz
          checksum: {hashlib.sha256(DATA).hexdigest()}
          extract_parent: "{{{{ facts.machine }}}}/opt/apps"
          owner: "{{{{ facts.uid }}}}"
          group: "{{{{ facts.gid }}}}"
"""


def publish(publisher: Publisher, web: WebServer, version: str, manifest: str) -> None:
    """Publish a version, and serve the archive."""
    publisher.publish(version, re.sub("URL", web.url, manifest))
    (web.root / "archives").mkdir()
    (web.root / "archives/app.tar.gz").write_bytes(DATA)


def test_leftover_archive_goes_with_unchanged_files(host: Host, publisher: Publisher, web: WebServer) -> None:
    publish(publisher, web, "1.0.0", "removed: absent\n" + story(0, ARCHIVE))
    assert host.run().status == 0
    apps = host.machine / "opt/apps"
    assert (apps / "app/bin/run").read_text() == "run\n"
    (apps / "app/share/doc").write_text("changed by hand\n")
    publisher.publish("2.0.0", "removed: absent\n" + story(0))
    output = host.run("--noop").output
    assert "Would have removed" in output
    assert (apps / "app/bin/run").exists()
    assert host.run().status == 0
    assert not (host.machine / "app.tar.gz").exists()
    assert sorted(path.name for path in apps.rglob("*")) == ["app", "doc", "share"]
    assert host.run().status == 0
    assert set(host.states().values()) == {"stable"}


def test_that_of_a_bundle_on_trial_is_undone(host: Host, publisher: Publisher, web: WebServer) -> None:
    publisher.publish("1.0.0", story(0))
    assert host.run().status == 0
    before = tree(host.machine)
    publish(publisher, web, "2.0.0", story(2, ARCHIVE))
    assert host.run().status == 7
    assert tree(host.machine) == before
    assert copies(host) == []


PURGE = """\
  - file:
      - "{{ facts.machine }}/opt/apps":
          {ensure: directory, owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0755", purge: true}
"""
CREATES = '  - exec: [{{"/bin/true": {{creates: "{{{{ facts.machine }}}}/opt/apps/app/{}"}}}}]\n'


@pytest.mark.parametrize("removed", ["", "removed: absent\n"])
def test_a_purge_leaves_changed_members_of_a_leftover(
    host: Host, publisher: Publisher, web: WebServer, removed: str
) -> None:
    publish(publisher, web, "1.0.0", removed + story(0, ARCHIVE))
    assert host.run().status == 0
    apps = host.machine / "opt/apps"
    (apps / "app/share/doc").write_text("changed by hand\n")
    (apps / "app/new").write_text("of nobody\n")
    publisher.publish("2.0.0", removed + story(0, PURGE))
    sentence = f"{apps}/app/share/doc was changed since {host.machine}/app.tar.gz brought it, so it stays"
    assert sentence in host.run("--noop", "-v").output
    for _ in range(3):
        outcome = host.run("-v")
        assert outcome.status == 0, outcome.output
        assert sentence in outcome.output
        assert sorted(path.name for path in apps.rglob("*")) == ["app", "doc", "share"]
    assert set(host.states().values()) == {"stable"}
    (apps / "app/share/doc").unlink()
    assert host.run().status == 0
    assert [*apps.rglob("*")] == []


def test_a_leftover_leaves_the_paths_of_all_types(host: Host, publisher: Publisher, web: WebServer) -> None:
    publish(publisher, web, "1.0.0", "removed: absent\n" + story(0, ARCHIVE))
    assert host.run().status == 0
    publisher.publish("2.0.0", "removed: absent\n" + story(0, CREATES.format("bin/run")))
    for _ in range(2):
        assert host.run().status == 0
        result = sorted(path.name for path in (host.machine / "opt/apps").rglob("*"))
        assert result == ["app", "bin", "run"]


def test_a_newer_archive_leaves_the_paths_of_all_types(
    host: Host, publisher: Publisher, web: WebServer
) -> None:
    publish(publisher, web, "1.0.0", story(0, ARCHIVE))
    assert host.run().status == 0
    data = writer.gzip(writer.tar(writer.Member("app/bin/run", b"new\n")))
    newer = ARCHIVE.replace("archives/app", "archives/new")
    newer = newer.replace(hashlib.sha256(DATA).hexdigest(), hashlib.sha256(data).hexdigest())
    publish(publisher, web, "2.0.0", story(0, newer, CREATES.format("share/doc")))
    (web.root / "archives/new.tar.gz").write_bytes(data)
    assert host.run().status == 0
    assert (host.machine / "opt/apps/app/bin/run").read_text() == "new\n"
    assert (host.machine / "opt/apps/app/share/doc").exists()
    publish(publisher, web, "3.0.0", story(0, ARCHIVE))
    assert host.run().status == 0
    assert (host.machine / "opt/apps/app/bin/run").read_text() == "run\n"
