"""``puller test --apply`` on a real Debian, where accounts, cron and commands are the system's own."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.machines import mounts

pytestmark = pytest.mark.booted

MANIFEST = """\
data: {workers: 8}
resources:
  - group:
      - web: {ensure: present}
  - user:
      - app: {ensure: present, system: true, group: web, require: [group#web]}
  - file:
      - /etc/app: {ensure: directory, owner: app, group: web, mode: "0750", require: [user#app]}
      - /etc/app/app.conf: {content: "workers = {{ data.workers }}\\n", owner: root, group: web, mode: "0640"}
      - /etc/cron.d: {ensure: directory, owner: root, group: root, mode: "0755"}
      - /etc/cron.d/app: {content: "0 3 * * * app /bin/true\\n", owner: root, group: root, mode: "0644"}
  - link:
      - /etc/app/link: {target: app.conf}
  - line:
      - app: {path: /etc/profile, line: "export APP=/etc/app"}
  - exec:
      - "id -gn app > /etc/app/made":
          creates: /etc/app/made
          provider: shell
          require: [file#/etc/app]
"""


def of_tree(tree: Path) -> str:
    """Return names, sizes, modes and times of all files in a tree."""
    command = ["find", ".", "-printf", r"%p %s %m %U %T@ %C@\n"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout


def accounts() -> list[str]:
    return [Path(path).read_text() for path in ("/etc/passwd", "/etc/group")]


def test_a_bundle_is_tried_on_a_debian_of_which_nothing_changes(
    debian_tree: Path, tmp_path: Path, execute: Callable[..., tuple[int, str]]
) -> None:
    (tmp_path / "web" / "tests").mkdir(parents=True)
    (tmp_path / "web" / "manifest.yaml").write_text(MANIFEST)
    (tmp_path / "web" / "tests" / "one.yaml").write_text(
        f"os: debian-12\ntree: {json.dumps(str(debian_tree))}\nexpect: {{user#app: {{ensure: present}}}}\n"
    )
    before = of_tree(debian_tree), accounts(), mounts(debian_tree, tmp_path)
    status, output = execute("test", str(tmp_path / "web"), "--apply")

    assert status == 0, output
    assert (of_tree(debian_tree), accounts(), mounts(debian_tree, tmp_path)) == before
