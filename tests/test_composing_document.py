"""``docs/composing.md`` and ``examples/site``: the page shows the files, and the commands print the shown output."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bundles.archive.pack import build_bundle
from puller.manifest.libraries import used_libraries
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from tests.support.stories import Outcome, execute_here

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/composing.md").read_text()
SITE = ROOT / "examples/site"
BASE, SHOP = "bundles/base", "bundles/shop"
HOSTS = ("web01", "db01", "login01")

EVERYBODY = [
    "package#curl",
    "package#less",
    "file#/etc/motd",
    "package#openssh-server",
    "file#/etc/ssh/sshd_config.d/50-site.conf",
    "service#ssh",
    "package#sudo",
    "user#ann",
    "file#/etc/ssh/authorized_keys.d",
    "file#/etc/ssh/authorized_keys.d/ann",
]
RESOURCES = {
    "web01": [
        "package#nginx",
        "file#/etc/nginx/sites-enabled/default",
        "file#/etc/nginx/conf.d/site.conf",
        "service#nginx",
        "file#/etc/nginx/sites-enabled/status.conf",
        "exec#systemctl reload nginx",
        *EVERYBODY,
    ],
    "db01": [
        "package#postgresql",
        "file#/etc/postgresql/15/main/conf.d/50-site.conf",
        "file#/etc/postgresql/15/main/pg_hba.conf",
        "service#postgresql",
        "exec#role shop",
        "exec#database shop",
        "exec#database stock",
        *EVERYBODY,
        "package#pg-activity",
    ],
    "login01": [
        "file#/srv/scratch",
        *EVERYBODY,
        "package#tmux",
        "package#vim",
        "user#joe",
        "file#/etc/ssh/authorized_keys.d/joe",
    ],
}
OF_THE_SHOP = [
    "package#curl",
    "file#/srv/www",
    *(f"file#/srv/www/{name}" for name in ("shop.example.com", "sale.example.com")),
    *(f"file#/srv/www/{name}/index.html" for name in ("shop.example.com", "sale.example.com")),
    *(f"file#/etc/nginx/sites-enabled/{name}.conf" for name in ("shop.example.com", "sale.example.com")),
    "exec#systemctl reload nginx",
]

Puller = Callable[..., str]


@pytest.fixture
def puller(monkeypatch: pytest.MonkeyPatch) -> Puller:
    """Return the output of a command in the example's repository, optionally for one of its machines."""
    monkeypatch.chdir(SITE)

    def run(*words: str, host: str | None = None) -> str:
        about = () if host is None else ("--no-system-facts", "--facts", f"facts/{host}.yaml")
        outcome = Outcome(*execute_here(*words, *about))
        assert outcome.status == 0, outcome.output
        return outcome.output

    return run


def resources(rendered: str) -> list[str]:
    """Return the resources in the output of ``render``, without children."""
    results: list[dict[str, list[dict[str, Any]]]] = json.loads(rendered)["resources"]
    return [
        f"{kind}#{next(iter(item))}"
        for entry in results
        for kind, body in entry.items()
        for item in body
        if kind != "apply"
    ]


def test_the_page_shows_the_files_of_the_example() -> None:
    shown = dict(re.findall(r"<!-- examples/site/(\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
    assert len(shown) > 10
    for name, text in shown.items():
        assert (SITE / name).read_text() == text, name


@pytest.mark.parametrize("host", HOSTS)
def test_each_kind_of_machine_gets_its_role(puller: Puller, host: str) -> None:
    assert " 0 errors, 0 warnings" in puller("lint", BASE, host=host)
    rendered = puller("render", BASE, "--format", "json", host=host)
    assert sorted(resources(rendered)) == sorted(RESOURCES[host])


def test_shop_builds_on_base_on_a_web_server(puller: Puller) -> None:
    assert puller("lint", SHOP, "--with", BASE, host="web01").endswith(" 0 errors, 0 warnings\n")
    rendered = puller("render", SHOP, "--with", BASE, "--format", "json", host="web01")
    assert sorted(resources(rendered)) == sorted(OF_THE_SHOP)
    status, output = execute_here(
        "lint", SHOP, "--with", BASE, "--no-system-facts", "--facts", "facts/db01.yaml"
    )
    assert (status, "require names package#nginx, which is not declared" in output) == (1, True)


def test_the_value_of_a_machine_is_explained_by_its_files(puller: Puller) -> None:
    output = puller("explain", "postgresql.clients", BASE, host="db01")
    assert "hosts/db01.example.com.yaml" in output
    output = puller("explain", "classes", BASE, host="db01").splitlines()[0]
    assert output.endswith(
        '["roles/db", "profiles/packages", "profiles/motd", "profiles/ssh", "profiles/users"]'
    )


@pytest.mark.parametrize("host", HOSTS)
def test_a_packed_bundle_gives_the_same_as_its_directory(puller: Puller, tmp_path: Path, host: str) -> None:
    archive = tmp_path / "base-1.0.0.tar.gz"
    build_bundle(SITE / BASE, archive, name="base", version="1.0.0", libraries=used_libraries(SITE / BASE))
    packed, tree = (
        resources(puller("render", source, "--format", "json", host=host)) for source in (str(archive), BASE)
    )
    assert packed == tree


def test_single_command_publishes_everything_once(puller: Puller, new_site: Path) -> None:
    output = puller("site", "publish", str(new_site), BASE, SHOP, "--version", "auto", "--noop")
    assert output.startswith("base 1.0.0 (new)\nshop 1.0.0 (new)\n")


def test_a_change_of_the_library_publishes_both(publisher: Any, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(SITE, tmp_path / "repository")
    bundles = [str(tmp_path / "repository" / name) for name in (BASE, SHOP)]
    publish = ("site", "publish", str(publisher.site.directory), *bundles, "--version", "auto")
    assert execute_here(*publish)[0] == 0
    with (tmp_path / "repository/libraries/nginx/templates/vhost.conf.j2").open("a") as template:
        template.write("# by Puller\n")
    status, output = execute_here(*publish, "--noop")
    assert (status, output.count("because of library nginx")) == (0, 2)


EXAMPLES = PAGE.split("## Side by side")[1]


def test_the_small_pieces_beside_puppet_and_ansible_are_valid(tmp_path: Path) -> None:
    pieces = [text for text in re.findall(r"```yaml\n(.*?)```", EXAMPLES, re.DOTALL) if "resources:" in text]
    vhosts, wiki, classes, package, gone = pieces
    (tmp_path / "profiles").mkdir()
    (tmp_path / "roles").mkdir()
    for name in ("base", "nginx", "wiki"):
        (tmp_path / f"profiles/{name}.yaml").write_text(package)
    (tmp_path / "roles/wiki.yaml").write_text(wiki)
    (tmp_path / "hiera.yaml").write_text("version: 5\nhierarchy: [{name: all, path: all.yaml}]\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/all.yaml").write_text("classes: [roles/wiki]\nvhosts: {a: {}, b: {}}\nsites: [a]\n")
    expected = {
        vhosts: [
            "package#nginx",
            *(f"file#/etc/nginx/sites-enabled/{name}.conf" for name in "ab"),
            "exec#systemctl reload nginx",
        ],
        classes: ["package#curl"],
        gone: ["file#/etc/nginx/sites-enabled/a.conf"],
    }
    for text, found in expected.items():
        (tmp_path / "manifest.yaml").write_text(text)
        manifest = load_manifest(tmp_path / "manifest.yaml", "manifest.yaml", Inputs({}, {}))
        names = [str(manifest.declarations[index]) for index in manifest.order]
        assert [name for name in names if not name.startswith("apply#")] == found
