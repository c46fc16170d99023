"""A bundle that leaves the configuration: listed, kept, enforced when it returns, forgotten on command."""

import json
import re

import pytest

from tests.support.stories import Host, Publisher, WebServer

BOTH = [{"name": "web"}, {"name": "base"}]
ONE = [{"name": "web"}]
BASE = """\
resources:
  - file:
      - "{{ facts.machine }}/base": {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644", content: VERSION}
"""


@pytest.fixture
def left(host: Host, publisher: Publisher) -> Host:
    """Return a host that followed two bundles, and now follows one."""
    publisher.publish("1.0.0")
    publisher.publish("2.0.0", BASE, name="base")
    host.configure(bundles=BOTH)
    assert host.run().status == 0
    host.configure(bundles=ONE)
    return host


def test_status_lists_forgettable_bundles_with_the_command(left: Host) -> None:
    for _ in range(2):  # runs do not remove it
        assert left.run().status == 0
    directory = left.state / "bundles" / "base"
    (result,) = left.status()["left"]
    assert (result["name"], result["version"], result["directory"]) == ("base", "2.0.0", str(directory))
    assert result["bytes"] > 100
    output = left.puller("status").output
    assert "base 2.0.0 is no longer in the configuration, and is not applied. " in output
    assert f"are kept in {directory} until `puller forget base`" in output


def test_returning_bundle_is_enforced_without_the_site(left: Host, web: WebServer) -> None:
    (left.machine / "base").unlink()
    left.configure(bundles=BOTH)
    web.stop()
    assert left.run().status == 14
    assert (left.machine / "base").read_text() == "2.0.0"


def test_forgetting_frees_the_disk_and_keeps_resources(left: Host) -> None:
    pins = {"format": 1, "bundles": {"base": "2.0.0"}}
    (left.state / "pins.json").write_text(json.dumps(pins))
    (left.state / "pins.json").chmod(0o600)
    output = left.puller("forget", "base")
    assert output.status == 0
    assert output.output.startswith("base 2.0.0 is forgotten, ")
    assert not (left.state / "bundles" / "base").exists()
    assert (left.machine / "base").read_text() == "2.0.0"
    assert left.status()["left"] == []
    assert left.status()["holds"]["pins"] == {}
    assert left.run().status == 0
    left.configure(bundles=BOTH)
    assert left.run().status == 0
    assert left.status()["bundles"][1]["enforced"] == "2.0.0"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("web", "web: is in .*; take it out there first, or the next run brings it again"),
        ("wbe", "wbe: the bundle is unknown on this host"),
        ("../trust", "the bundle is unknown on this host"),
        (".seals", "the bundle is unknown on this host"),
    ],
)
def test_followed_or_unknown_bundle_is_not_forgotten(left: Host, name: str, said: str) -> None:
    refused = left.puller("forget", name)
    assert refused.status == 64
    assert re.search(said, refused.output)
    assert left.run().status == 0


def test_quarantine_survives_forgetting(left: Host, publisher: Publisher) -> None:
    left.configure(bundles=BOTH)
    publisher.publish("2.1.0", BASE, name="base")
    assert left.run().status == 0
    assert left.puller("rollback", "base").status == 0
    left.configure(bundles=ONE)
    assert left.puller("forget", "base").status == 0
    left.configure(bundles=BOTH)
    outcome = left.run()
    assert outcome.status in (15, 20)
    assert "base 2.1.0 has been quarantined since " in outcome.output
