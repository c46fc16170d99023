"""An archive that leaves a bundle: it goes with what was extracted from it, as far as that is as it was put there."""

import hashlib
import re
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

from tests.conftest import Host, Publisher, WebServer
from tests.puller.run.left.test_way_back import copies, story, tree

writer: Any = SimpleNamespace(**run_path(str(Path(__file__).parents[3] / "simulators/archivewriter.py")))
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
    """Publish a version, and serve the archive beside it."""
    publisher.publish(version, re.sub("URL", web.url, manifest))
    (web.root / "archives").mkdir()
    (web.root / "archives/app.tar.gz").write_bytes(DATA)


def test_it_goes_with_what_nobody_has_changed(host: Host, publisher: Publisher, web: WebServer) -> None:
    publish(publisher, web, "1.0.0", "removed: absent\n" + story(0, ARCHIVE))
    assert host.run().status == 0
    apps = host.machine / "opt/apps"
    assert (apps / "app/bin/run").read_text() == "run\n"
    (apps / "app/share/doc").write_text("changed by hand\n")
    publisher.publish("2.0.0", "removed: absent\n" + story(0))
    said = host.run("--noop").output
    assert "Would have removed" in said
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
