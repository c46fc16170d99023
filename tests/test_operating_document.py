"""The examples of status output in the guides for operators are real."""

import re
from pathlib import Path

from tests.support.stories import Host, Publisher

DOCS = Path(__file__).parents[1] / "docs"
VARIABLE = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?(?:\+00:00)?)?", "TIME"),
    (r"(rolled back|disabled) by \w+", r"\1 by USER"),
    (r"; (no )?next run [^;]*", ""),
    (r" and `systemctl enable --now puller.timer`", ""),
)


def normalized(text: str) -> list[str]:
    """Return the lines without times, users and the next run."""
    for pattern, replacement in VARIABLE:
        text = re.sub(pattern, replacement, text)
    return text.splitlines()


def example(page: str, beginning: str) -> list[str]:
    """Return the lines of the first indented block of a page with this beginning."""
    text = (DOCS / page).read_text()
    block = re.search(rf"^    {beginning}.*\n(?:    .*\n)*", text, re.MULTILINE)
    assert block, f"{page} has no example that begins with {beginning!r}"
    return normalized("\n".join(line[4:] for line in block[0].splitlines()))


def manifest(host: Host, *names: str, mode: str = "0644") -> str:
    lines = [f'      - {host.machine}/{name}: {{content: "a\\n", mode: "{mode}"}}' for name in names]
    owner = 'owner: "{{ facts.uid }}", group: "{{ facts.gid }}"'
    return "\n".join(["resources:", "  - file:", f"      - defaults: {{{owner}}}", *lines])


def test_status_shows_holds_as_the_page_does(publisher: Publisher, host: Host) -> None:
    host.machine.mkdir()
    publisher.publish("1.1.0", manifest(host, "a"), files={})
    host.run()
    publisher.publish("1.2.0", manifest(host, "a", mode="0600"), files={})
    host.run()
    for words in (
        ("rollback", "web", "--reason", "logins fail"),
        ("pin", "web"),
        ("disable", "--reason", "TICKET-7: restoring", "--until", "4h"),
    ):
        assert host.puller(*words).status == 0
    host.run()
    assert normalized(host.puller("status").output) == example("operating.md", "held: disabled")


def test_status_lists_leftovers_as_the_page_does(publisher: Publisher, host: Host) -> None:
    host.machine.mkdir()
    publisher.publish("1.0.0", manifest(host, "app.conf", "old.conf"), files={})
    host.run()
    publisher.publish("2.0.0", manifest(host, "app.conf"), files={})
    host.run()
    output = host.puller("status").output.replace(f"{host.machine}/", "/etc/app.d/")
    first, second, *_ = example("leftovers.md", "web 2.0.0")
    assert normalized(output)[1:3] == [first, second]
