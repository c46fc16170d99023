"""The pages for users of other tools: the example with a rollback, the maps of types, and the bootstrap files."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from puller.config.configuration import load_configuration
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.resources.registry import find_type, type_names
from tests.support.stories import Host, Publisher

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "from-ansible.md").read_text()
RELEASES = re.findall(r"```yaml\n(# greeter/manifest.yaml\nremoved.*?)```", PAGE, re.DOTALL)
MAPS = {"from-ansible": "module", "from-puppet": "Puppet type", "from-cfengine": "CFEngine"}


def for_test(manifest: str, host: Host) -> str:
    """Return the page's manifest with a test's directory and user, and with a command that counts its runs."""
    for old, new in {
        "/etc/greeter": f"{host.machine}/greeter",
        "owner: root, group: root": 'owner: "{{ facts.uid }}", group: "{{ facts.gid }}"',
        "systemctl reload greeter": f"sh -c 'echo reloaded >> {host.machine}/reloads'",
    }.items():
        assert old in manifest
        manifest = manifest.replace(old, new)
    return manifest


def test_the_example_is_released_twice_and_rolled_back(publisher: Publisher, host: Host) -> None:
    host.machine.mkdir()
    first, second = (for_test(manifest, host) for manifest in RELEASES)
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

    outcome = host.puller("rollback", "web")
    assert outcome.status == 0, outcome.output
    host.run()
    assert host.enforced == "1.0.0"
    assert configuration.read_text().startswith("port = 8080\n")
    assert not words.exists()
    assert reloads() == 3


def test_variables_become_overrides(tmp_path: Path) -> None:
    (manifest,) = re.findall(r"```yaml\n(# greeter/manifest.yaml\ndata.*?)```", PAGE, re.DOTALL)
    (tmp_path / "manifest.yaml").write_text(manifest)

    def port(**facts: object) -> object:
        inputs = Inputs({"networking": {"fqdn": "db01.example.com"}, **facts}, {})
        return load_manifest(tmp_path / "manifest.yaml", "manifest.yaml", inputs).data.all["port"]

    assert port() == 8080
    assert port(role="web") == 80
    assert port(role="web", networking={"fqdn": "web01.example.com"}) == 8081


def test_a_handler_becomes_a_reload(tmp_path: Path) -> None:
    (manifest,) = re.findall(r"```yaml\n(# web/manifest.yaml\n.*?)```", PAGE, re.DOTALL)
    (tmp_path / "manifest.yaml").write_text(manifest)
    _, service = load_manifest(tmp_path / "manifest.yaml", "manifest.yaml", Inputs({}, {})).declarations
    assert service.failure == ""
    assert service.shown()["reload"] == ("file#/etc/nginx/nginx.conf",)


def rows(name: str) -> list[list[str]]:
    """Return the cells of each row of the map of types on a page."""
    heads = {
        "from-ansible": "| module |",
        "from-puppet": "| Puppet type |",
        "from-cfengine": "| CFEngine | Puller type |",
    }
    table = (DOCS / f"{name}.md").read_text().split(heads[name])[1].split("\n\n")[0]
    return [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in table.splitlines()[2:]]


@pytest.mark.parametrize("name", MAPS)
def test_a_map_names_types_with_their_properties(name: str) -> None:
    for _, types, notes in rows(name):
        if types == "any type":
            types = "`file`"
        if types == "none":
            continue
        known: set[str] = {"ensure", "health_checks"}
        for type_name in re.findall(r"`(\w+)`", types):
            result = find_type(type_name)
            assert result is not None, type_name
            known |= {field.encode_name for field in msgspec.structs.fields(result.properties_type)}
        for code in re.findall(r"`([^`]+)`", notes):
            if re.fullmatch(r"\w+(: .*)?", code) and code not in ("http", "tcp", "process"):
                assert code.partition(":")[0] in known, f"{types}: {code}"


def test_the_map_for_ansible_has_40_rows() -> None:
    assert len(rows("from-ansible")) >= 40


def test_pages_count_the_types() -> None:
    text = "".join((DOCS / name).read_text() for name in ("from-ansible.md", "comparison.md", "concepts.md"))
    counted = re.findall(r"(\d+) (?:resource )?types", text)
    assert {int(number) for number in counted} == {len(type_names())}
    others = re.search(r"files, packages, services\s+and \[(\d+) other types\]", text)
    assert others
    assert int(others[1]) + 3 == len(type_names())


def test_the_overview_lists_each_type_once() -> None:
    listed = re.findall(
        r"^\| \[(\w+)\]\(resources/(\w+)\.md\) \|", (DOCS / "resource-types.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == [(name, name) for name in sorted(type_names())]


BOOTSTRAP = re.findall(r"```yaml\n(.*?)```", (DOCS / "bootstrap.md").read_text(), re.DOTALL)


def test_the_bootstrap_files_are_valid(tmp_path: Path) -> None:
    configuration, playbook, user_data = BOOTSTRAP
    in_user_data = yaml.safe_load(user_data)["write_files"][1]["content"]
    for text in (configuration, in_user_data):
        (tmp_path / "config.yaml").write_text(text)
        assert load_configuration(tmp_path / "config.yaml").bundles[0].name == "base"
    ((play),) = yaml.safe_load(playbook)
    assert {key for task in play["tasks"] for key in task if "." in key} == {
        f"ansible.builtin.{name}" for name in ("copy", "apt", "file", "command", "systemd_service")
    }
