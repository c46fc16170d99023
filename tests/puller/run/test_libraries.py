"""Libraries on a host: published bundles are complete, and a later version of a library changes no host by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bundles.publisher.publication import publish_bundle
from puller.manifest.libraries import used_libraries

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stories import Host, Publisher

MANIFEST = """
libraries: {common: ../libraries/common}
resources: [{apply: {name: 'common:motd.yaml'}}]
"""
CHILD = """
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd": {template: templates/motd.j2, mode: "0644"}
"""


def never(key: Path) -> bytes:
    raise AssertionError(key)


def publish(publisher: Publisher, repository: Path, version: str) -> None:
    source = repository / "web"
    publish_bundle(
        publisher.site, source, never, name="web", version=version, libraries=used_libraries(source)
    )
    publisher.deploy()


def test_host_applies_the_published_library(host: Host, publisher: Publisher, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    texts = {
        "web/manifest.yaml": MANIFEST,
        "libraries/common/motd.yaml": CHILD,
        "libraries/common/templates/motd.j2": "{% include 'templates/head.j2' %} {{ data.who }}",
        "libraries/common/templates/head.j2": "first",
        "libraries/common/library.yaml": "",
        "libraries/common/data.yaml": "data: {who: all}",
    }
    for name, text in texts.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    publish(publisher, repository, "1.0.0")
    assert host.run().status == 0
    assert (host.machine / "motd").read_text() == "first all"

    (repository / "libraries/common/templates/head.j2").write_text("second")
    assert host.run("--detailed-exitcodes").status == 0
    publish(publisher, repository, "1.1.0")
    assert host.run("--detailed-exitcodes").status == 2
    assert (host.machine / "motd").read_text() == "second all"
    assert host.puller("rollback", "web").status == 0
    assert host.run().status in (0, 20)
    assert (host.machine / "motd").read_text() == "first all"
