"""``docs/coming-from.md`` and ``docs/not-for.md``: Puller's side of the task, with two releases and a rollback."""

import re
from pathlib import Path

from puller.resources.registry import type_names
from tests.support.stories import Host, Publisher

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "coming-from.md").read_text()
RELEASES = re.findall(r"```yaml\n(# greeter/manifest.yaml\n.*?)```", PAGE, re.DOTALL)


def of_test(manifest: str, host: Host) -> str:
    """Return the page's manifest with a test's directory and user, and with a command that counts its runs."""
    for old, new in {
        "/etc/greeter": f"{host.machine}/greeter",
        "owner: root, group: root": 'owner: "{{ facts.uid }}", group: "{{ facts.gid }}"',
        "systemctl reload greeter": f"sh -c 'echo reloaded >> {host.machine}/reloads'",
    }.items():
        assert old in manifest
        manifest = manifest.replace(old, new)
    return manifest


def test_the_task_of_the_page_goes_to_the_second_release_and_back(publisher: Publisher, host: Host) -> None:
    host.machine.mkdir()
    first, second = (of_test(manifest, host) for manifest in RELEASES)
    configuration, words = host.machine / "greeter/greeter.conf", host.machine / "greeter/words.conf"

    def reloads() -> int:
        return (host.machine / "reloads").read_text().count("reloaded")

    publisher.publish("1.0.0", first, files={})
    assert host.run().status == 0
    assert configuration.read_text().startswith("port = 8080\nname = ")
    assert reloads() == 1
    assert host.run("--detailed-exitcodes").status == 0
    assert reloads() == 1

    publisher.publish("2.0.0", second, files={})
    assert host.run().status == 0
    assert configuration.read_text().startswith("port = 8081\n")
    assert words.read_text() == "word = hello\n"
    assert reloads() == 2
    assert host.run("--detailed-exitcodes").status == 0

    done = host.puller("rollback", "web")
    assert done.status == 0, done.output
    host.run()
    assert host.enforced == "1.0.0"
    assert configuration.read_text().startswith("port = 8080\n")
    assert not words.exists()
    assert reloads() == 3


def test_the_pages_count_the_types() -> None:
    counted = re.findall(r"(\d+) (?:resource )?types", PAGE + (DOCS / "not-for.md").read_text())
    assert {int(number) for number in counted} == {len(type_names())}
    assert len(counted) == 2
