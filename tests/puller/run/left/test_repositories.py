"""Repositories across versions of a bundle: renamed, rolled back and restored, without leftovers."""

from pathlib import Path

import pytest

from puller.resources.packages.apt import AptLayout
from tests.support.stories import Host, Publisher

pytestmark = pytest.mark.root  # only root may write the files of repositories

# The repositories are disabled, so that no package manager of this machine fetches anything.
TOP = """\
removed: absent
resources:
  - file:
      - "{{ facts.machine }}": {ensure: directory, owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0755"}
  - repository:
      - defaults: {provider: apt, suites: [./], enabled: false}
"""
FAILS = "  - exec: [{'true': {health_checks: [{command: 'sh -c \"exit 2\"'}]}}]\n"


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "etc-apt"
    for name in ("sources.list.d", "preferences.d"):
        (root / name).mkdir(parents=True)
    monkeypatch.setattr(AptLayout, "root", str(root))
    return root


def files(etc: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in etc.rglob("*") if path.is_file()}


def test_renamed_and_reverted_repository_leaves_nothing(host: Host, publisher: Publisher, etc: Path) -> None:
    by_hand = etc / "sources.list.d/ours.sources"
    by_hand.write_text("# by hand\n")
    publisher.publish("1.0.0", TOP + "      - old: {url: 'file:///a', priority: 7}\n")
    assert host.run().status == 0
    first = files(etc)
    assert set(first) == {"ours.sources", "old.sources", "old.pref"}
    # The rollback undoes all changes of the version.
    given_up = (
        TOP + "      - new: {url: 'file:///b'}\n      - ours: {url: 'file:///c', priority: 1}\n" + FAILS
    )
    publisher.publish("2.0.0", given_up)
    outcome = host.run()
    assert outcome.status == 7, outcome.output
    assert files(etc) == first
    publisher.publish("3.0.0", TOP + "      - new: {url: 'file:///a'}\n")
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert set(files(etc)) == {"ours.sources", "new.sources"}
    publisher.publish("4.0.0", TOP + "      - old: {url: 'file:///a', priority: 7}\n")
    assert host.run().status == 0
    assert files(etc) == first
    assert host.run("--detailed-exitcodes").status == 0
