"""The recipes of docs/recipes.md with real sshd, sudo, nginx and nft. Invalid versions are rejected."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.machines import Completed

pytestmark = [pytest.mark.packages, pytest.mark.root]

PAGE = Path(__file__).parents[2] / "docs/recipes.md"
RECIPES = dict(re.findall(r"^```yaml\n# (\w+)\.yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
INSIDE = """
set -e
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
exec chroot "$@"
"""


class Machine:
    """A Debian on disk. Its root is a mount point, as on a real machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *command: str) -> Completed:
        return subprocess.run(
            ["unshare", "--mount", "--net", "--", "sh", "-c", INSIDE, "sh", str(self.root), *command],
            env=ENVIRONMENT, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=120, check=False,
        )  # fmt: skip

    def apply(self, recipe: str, *options: str) -> Completed:
        (self.root / "srv/manifest.yaml").write_text(recipe)
        return self.run("puller", "apply", "/srv/manifest.yaml", "--only", "file#*", *options)

    def read(self, path: str) -> str | None:
        place = self.root / path.lstrip("/")
        return place.read_text() if place.exists() else None


@pytest.fixture(scope="module")
def machine(debian_with: Callable[..., contextlib.AbstractContextManager[Path]]) -> Iterator[Machine]:
    with debian_with("openssh-server", "sudo", "nginx-light", "nftables") as root:
        (
            root / "etc/nginx/sites-enabled/default"
        ).unlink()  # as the recipe does, so that the tests work in any order
        yield Machine(root)


BROKEN = {
    "sshd": [
        ("/etc/ssh/sshd_config", "PermitRootLogin no", "PermitRootLogin nope", 'unsupported option "nope"'),
        ("/etc/ssh/sshd_config.d/ports.conf", "Port 22", "Prot 22", "Bad configuration option: Prot"),
    ],
    "sudo": [("/etc/sudoers.d/admins", "ALL=(ALL:ALL) ALL", "ALL=(ALL:ALL ALL", "syntax error")],
    "firewall": [("/etc/nftables.conf", "dport 22 accept", "dport 22 acept", "syntax error")],
    "nginx": [
        ("/etc/nginx/nginx.conf", "events {}", "events {", '"http" directive is not allowed here'),
        ("/etc/nginx/sites-enabled/shop.conf", "listen 8080;", "lisen 8080;", 'unknown directive "lisen"'),
        (
            "/etc/nginx/sites-enabled/shop.conf",
            "listen 8080;",
            "proxy_pass http://no_such;",
            "not allowed here",
        ),
    ],
}


@pytest.mark.parametrize(
    ("name", "path", "right", "wrong", "said"),
    [(name, *case) for name, cases in BROKEN.items() for case in cases],
)
def test_rejected_content_never_reaches_its_path(
    name: str, path: str, right: str, wrong: str, said: str, machine: Machine
) -> None:
    recipe = RECIPES[name]
    broken = recipe.replace(right, wrong)
    assert broken != recipe
    (machine.root / path.lstrip("/")).unlink(missing_ok=True)
    for before in (None, "first"):
        if before:
            done = machine.apply(recipe, "--detailed-exitcodes")
            assert done.returncode == 2, done.stdout
            assert machine.apply(recipe, "--detailed-exitcodes").returncode == 0
        content, names = machine.read(path), sorted((machine.root / path.lstrip("/")).parent.iterdir())
        assert (content is not None) == bool(before)
        dry = machine.apply(broken, "--noop")
        assert "(not validated)" in dry.stdout
        done = machine.apply(broken)
        assert done.returncode in (4, 6), done.stdout
        assert said in done.stdout
        assert f"so {path} stays as it was" in done.stdout
        assert machine.read(path) == content
        assert sorted((machine.root / path.lstrip("/")).parent.iterdir()) == names


def test_undeclared_host_goes_and_breaking_host_is_refused(
    machine: Machine,
) -> None:
    recipe = RECIPES["nginx"]
    other = """\
      - /etc/nginx/sites-enabled/other.conf:
          content: |
            server { listen 8080; server_name other.example.com; ssl_certificate /etc/ssl/none.pem; }
"""
    assert machine.apply(recipe).returncode in (0, 2)
    broken = recipe.replace("  - service:", f"{other}  - service:")
    done = machine.apply(broken)
    assert done.returncode in (4, 6)
    assert "/etc/ssl/none.pem" in done.stdout
    right = recipe.replace(
        "  - service:", f"{other.replace(' ssl_certificate /etc/ssl/none.pem;', '')}  - service:"
    )
    assert machine.apply(right).returncode in (0, 2)
    assert machine.read("/etc/nginx/sites-enabled/other.conf") is not None
    assert machine.apply(recipe).returncode in (0, 2)
    assert machine.read("/etc/nginx/sites-enabled/other.conf") is None


def test_every_recipe_has_its_broken_version() -> None:
    assert RECIPES.keys() == BROKEN.keys()
