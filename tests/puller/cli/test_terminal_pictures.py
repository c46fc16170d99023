"""Pictures of a terminal: the whole screen after each command of a story, for several terminals.

The pictures are files in ``tests/cases/terminal``. To write them anew:

    PULLER_WRITE_PICTURES=1 .venv/bin/pytest -n 0 --everything tests/puller/cli/test_terminal_pictures.py

``packaging/pictures`` draws SVG from the coloured pictures for the documents.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.stories import Host, Publisher, WebServer, execute_here
from tests.support.terminals import Screen, run_in_terminal

PICTURES = Path(__file__).parents[2] / "cases/terminal"

APPLICATION = """\
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd":
          content: |
            Welcome to the shop.
            Version VERSION
      - "{{ facts.machine }}/settings.conf": {source: files/settings.conf, alias: settings}
  - exec:
      - reload:
          command: sh -c 'echo VERSION >> {{ facts.machine }}/reloads'
          refreshonly: true
          subscribe: [file#settings]
"""
BROKEN = """\
      - smoke-test:
          command: "true"
          creates: /
          health_checks: [{name: shop, command: "sh -c 'echo 404 Not Found; exit 22'"}]
      - announce:
          command: touch {{ facts.machine }}/announced
          creates: "{{ facts.machine }}/announced"
          require: [exec#smoke-test]
"""
MISTAKES = """\
resources:
  - file:
      - /etc/motd: {content: hello, ownr: root, group: root, mode: "0888"}
  - service:
      - nginx: {ensure: started, require: [package#nginx]}
"""
CACHE = """\
resources:
  - file:
      - /etc/shop.conf: {content: "cache = SIZE MB\\n", owner: root, group: root, mode: "0644"}
"""


class Variant(NamedTuple):
    """A terminal. The name is part of the names of its pictures."""

    name: str
    columns: int
    environment: Mapping[str, str]


VARIANTS = (
    Variant("80", 80, {}),
    Variant("80-ascii", 80, {"LC_ALL": "C", "NO_COLOR": "1"}),
    Variant("120", 120, {}),
    Variant("120-plain", 120, {"TERM": "dumb"}),
)
# Replacements have the length of the original, because lines break by it. The path of a temporary directory has 13
# characters.
MACHINE, DIRECTORY = "/etc/shop/application", "/srv/www/shop"
REPLACEMENTS = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "2026-11-27 01:04 UTC"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", "2026-11-27T01:04:00+00:00"),
    (r"\d+\.\d s\b", "0.4 s"),
    (r"\d+\.\d\d s\b", "0.04 s"),
    (r"\d+ bytes, signatures", "688 bytes, signatures"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:28921"),
    (r"sha256 [0-9a-f]{64}", "sha256 " + "5d7c" * 16),
)


def normalised(text: str, directory: Path) -> str:
    """Return a screen with constant paths, times and sizes, and with right edges in their columns."""
    text = re.sub(r"\d+(\.\d)? [kMGT]B free", "79.0 GB free", text)
    text = text.replace(f"{directory}/machine", MACHINE).replace(str(directory), DIRECTORY)
    return "\n".join(map(_normalised_line, text.splitlines())) + "\n"


def _normalised_line(line: str) -> str:
    text = line
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    missing = len(line) - len(text)
    gap = re.search(r"   +", text)
    if not missing or gap is None:
        return text
    return text[: gap.start()] + " " * (len(gap[0]) + missing) + text[gap.end() :]


class Story:
    """A publisher and a host, whose commands run in a terminal."""

    def __init__(self, directory: Path, web: WebServer, site: Path, variant: Variant) -> None:
        self.directory, self.web, self._variant = directory, web, variant
        self._publisher = Publisher(directory / "publisher", web.root, like=site)
        self.host = Host(directory, self._publisher.site.anchor, web.url, execute_here)
        self.host.configure(bundles=[{"name": "shop"}])

    def publish(self, version: str, workers: int, *, resources: str = "") -> None:
        files = {"files/settings.conf": f"workers = {workers}\n".encode()}
        self._publisher.publish(version, APPLICATION + resources, name="shop", files=files)

    def write(self, path: str, text: str) -> None:
        (self.directory / path).parent.mkdir(exist_ok=True)
        (self.directory / path).write_text(text)

    def puller(self, *arguments: str) -> Screen:
        return run_in_terminal(
            *arguments,
            columns=self._variant.columns,
            environment=self._variant.environment,
            cwd=self.directory,
            configuration=self.host.configuration,
        )

    def check(self, name: str, *arguments: str, status: int = 0) -> None:
        """Run a command, and compare its screen with a picture."""
        screen = self.puller(*arguments)
        shown = f"$ puller {' '.join(arguments)}\n{normalised(screen.text, self.directory)}"
        picture = PICTURES / f"{name}-{self._variant.name}.txt"
        if os.environ.get("PULLER_WRITE_PICTURES"):
            picture.parent.mkdir(exist_ok=True)
            picture.write_text(shown)
        assert shown == picture.read_text(encoding="utf-8")
        assert screen.status == status


@pytest.fixture(params=VARIANTS, ids=lambda variant: variant.name)
def variant(request: pytest.FixtureRequest) -> Variant:
    result: Variant = request.param
    return result


@pytest.fixture
def story(variant: Variant, new_site: Path) -> Iterator[Story]:
    """Return a story in a directory whose path has a fixed length."""
    directory = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))
    assert len(str(directory)) == len(DIRECTORY)
    (directory / "www").mkdir()
    web = WebServer(directory / "www")
    yield Story(directory, web, new_site, variant)
    web.stop()
    for path, _, _ in os.walk(directory):
        os.chmod(path, 0o700)  # unpacked bundles are read-only, also for the ordinary user who removes them
    shutil.rmtree(directory)


@pytest.mark.everything
@pytest.mark.representatives(1)
def test_runs_look_like_their_pictures(story: Story, variant: Variant) -> None:
    story.publish("1.4.0", workers=2)
    story.check("first-run", "run")
    story.check("in-sync", "run")
    story.publish("1.5.0", workers=4)
    (story.host.machine / "motd").chmod(0o600)
    story.check("dry-run", "run", "--noop")
    story.check("change", "run")
    story.publish("1.6.0", workers=8, resources=BROKEN)
    story.check("rollback", "run", status=7)
    story.check("status", "status")
    story.check("history", "history")
    story.check("held", "run", status=20)
    story.check("doctor", "doctor")
    story.web.stop()
    (story.host.machine / "motd").write_text("by hand\n")
    for words, status in (("diff", 2), ("check", 0)):
        screen = story.puller(words)
        assert screen.status == status, screen.output
        assert screen.text.isascii() or variant.name != "80-ascii", screen.text
    story.check("unreachable", "run", status=14)


@pytest.mark.representatives(1)
def test_author_commands_look_like_their_pictures(story: Story) -> None:
    story.write("shop/manifest.yaml", MISTAKES)
    story.check("lint", "lint", "shop", status=1)
    for name, size in (("old", 64), ("new", 128)):
        story.write(f"{name}/manifest.yaml", CACHE.replace("SIZE", str(size)))
    for host in ("web01", "web02"):
        story.write(f"fleet/{host}.json", json.dumps({"hostname": host}))
    story.check("preview", "preview", "new", "--from", "old", "--facts", "fleet", status=2)


def test_secrets_and_control_characters_are_masked(tmp_path: Path) -> None:
    owners = f"owner: {os.geteuid()}, group: {os.getegid()}, mode: '0600'"
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(
        "data:\n  password: hunter2  # @sensitive\n"
        "resources:\n"
        f"  - file: [{{'{tmp_path}/a': {{content: '{{{{ data.password }}}}', {owners}}}}}]\n"
        '  - exec: [{"echo \\e[2J": {}}]\n'
    )
    screen = run_in_terminal("apply", manifest.name, "--state-directory", "state", cwd=tmp_path)
    assert screen.status == 0
    assert "hunter2" not in screen.output
    assert "\x1b[2J" not in screen.output
    assert r"echo \x1b[2J" in screen.text
    assert "1 added, 1 run" in screen.text


def test_ensure_shows_rows_on_a_terminal(tmp_path: Path) -> None:
    owner = ("--owner", str(os.geteuid()), "--group", str(os.getegid()), "--mode", "0644")
    path = f"{tmp_path}/motd"
    words = ("ensure", "file", path, "--content", "Hello\n", *owner)

    def screen(*options: str) -> list[list[str]]:
        shown = run_in_terminal(*words, *options, columns=200, cwd=tmp_path, environment={"NO_COLOR": "1"})
        assert shown.status == 0
        return [line.split() for line in shown.text.splitlines()]

    lines = screen("--noop")
    assert lines[0][:3] == ["+", "file", path]
    assert ["dry", "run:", "would", "change", "1", "of", "1"] in [line[:7] for line in lines]
    assert ["To", "apply:", "puller", "ensure"] in [line[:4] for line in lines]
    row, *diff, summary = screen()
    assert (row[:3], diff[-1], summary[:2]) == (["+", "file", path], ["+Hello"], ["1", "added"])
    assert [line[:4] for line in screen()] == [["in", "sync,", "1", "resource"]]


def test_pictures_of_the_locale_c_are_plain_ascii() -> None:
    pictures = list(PICTURES.glob("*-80-ascii.txt"))
    assert {"change", "doctor", "dry-run", "history", "lint", "preview", "rollback", "status"} <= {
        path.name.removesuffix("-80-ascii.txt") for path in pictures
    }
    for path in pictures:
        text = path.read_text(encoding="utf-8")
        assert text.isascii(), path.name
        assert "\x1b" not in text, path.name


@pytest.mark.representatives(1)
@pytest.mark.parametrize("words", ["test shop", "apply shop --noop", "apply shop --state-directory state"])
def test_authors_output_in_the_locale_c_is_plain_ascii(words: str, tmp_path: Path) -> None:
    owner = f"owner: {os.geteuid()}, group: {os.getegid()}, mode: '0644'"
    (tmp_path / "shop/tests").mkdir(parents=True)
    (tmp_path / "shop/manifest.yaml").write_text(
        f"resources: [{{file: [{{'{tmp_path}/a': {{content: hello, {owner}}}}}]}}]\n"
    )
    (tmp_path / "shop/tests/a.yaml").write_text(f"expect: {{'file#{tmp_path}/a': {{content: bye}}}}\n")
    environment = {"LC_ALL": "C", "NO_COLOR": "1"}
    screen = run_in_terminal(*words.split(), cwd=tmp_path, environment=environment)
    assert screen.status == (1 if words.startswith("test") else 0), screen.output
    assert "shop" in screen.text
    assert screen.text.isascii(), screen.text
    assert "\x1b[" not in screen.text
