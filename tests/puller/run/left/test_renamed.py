"""Objects that a new version declares under another name stay managed, keep their origin, and are not leftovers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

MANIFEST = """\
removed: absent
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/v1": {ensure: directory, mode: "0755"}
"""
LINK = '  - link: [{"{{ facts.machine }}/current": {target: v1}}]\n'
FILE = """\
  - file:
      - "{{ facts.machine }}/PLACE/conf":
          {content: "one\\n", owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
"""
LINKED, REAL = FILE.replace("PLACE", "current"), FILE.replace("PLACE", "v1")
LINE = '  - line: [{"{{ facts.machine }}/v1/conf": {create: true, line: "one"}}]\n'


def versions(publisher: Publisher, host: Host, *texts: str) -> None:
    for number, text in enumerate(texts, start=1):
        publisher.publish(f"{number}.0.0", MANIFEST + text)
        dry = host.run("--noop").status
        assert host.run().status == dry == 0, text
        again = host.run()
        assert (again.status, again.output.count("changed ensure")) == (0, 0), text


@pytest.mark.everything
@pytest.mark.parametrize("successor", [LINK + REAL, LINK + LINE])
def test_respelled_path_is_no_leftover(host: Host, publisher: Publisher, successor: str) -> None:
    versions(publisher, host, LINK + LINKED)
    before = (host.machine / "v1/conf").stat()
    publisher.publish("2.0.0", MANIFEST + successor)
    assert "would change" not in host.run("--noop").output.replace("0 would change", "")
    assert host.run().status == 0
    assert (host.machine / "v1/conf").stat() == before


def test_removal_of_a_respelled_file_still_removes_it(host: Host, publisher: Publisher) -> None:
    versions(publisher, host, LINK + LINKED, LINK + REAL, LINK)
    assert not os.path.lexists(host.machine / "v1/conf")
