"""``docs/adding-a-type.md``: the page's type, installed as a separate distribution, works as described."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.distributions import install, run_installed

PAGE = (Path(__file__).parents[1] / "docs" / "adding-a-type.md").read_text()
BLOCKS = {
    name: text for _, name, text in re.findall(r"```(toml|python|yaml)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)
}
Puller = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Directory as an installer leaves it: the module and the metadata of the distribution."""
    module = BLOCKS["puller_hosts_entry.py"].replace('"/etc"', repr(str(tmp_path / "etc")))
    files = {"puller_hosts_entry.py": module}
    return install(tmp_path / "site-packages", tomllib.loads(BLOCKS["pyproject.toml"]), files)


@pytest.fixture
def puller(installed: Path, tmp_path: Path) -> Puller:
    """Run ``puller`` with the distribution on its path."""

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return run_installed(installed, *arguments, directory=tmp_path)

    return run


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """Substitute for ``/etc``, with the page's manifest beside it."""
    directory = tmp_path / "etc"
    (directory / "dnsmasq.d").mkdir(parents=True)
    (directory / "hosts").write_text("127.0.0.1 localhost db.example.com # ours\n")
    text = BLOCKS["manifest.yaml"].replace("systemctl reload app", f"touch {directory}/reloaded")
    (tmp_path / "manifest.yaml").write_text(text)
    return directory


APPLY = ("apply", "manifest.yaml", "--state-directory", "state", "-v")


def test_the_manifest_of_the_page_converges_and_is_stable(puller: Puller, etc: Path) -> None:
    dry = puller(*APPLY, "--noop")
    assert dry.stdout.count("Would have written the entry") == 2, dry.stdout + dry.stderr
    assert not os.listdir(etc / "dnsmasq.d")
    first = puller(*APPLY)
    assert first.returncode == 0, first.stdout + first.stderr
    assert (etc / "hosts").read_text() == "127.0.0.1 localhost\n192.0.2.10 db.example.com\n"
    record = etc / "dnsmasq.d/cache.example.com.conf"
    assert record.read_text() == "host-record=cache.example.com,2001:db8::7\n"
    assert (etc / "reloaded").exists()
    assert "provider=hosts" in first.stdout
    assert "provider=dnsmasq" in first.stdout
    assert "3 resources, 3 stable" in puller(*APPLY).stdout


def test_absent_removes_only_written_entries(puller: Puller, etc: Path, tmp_path: Path) -> None:
    assert puller(*APPLY).returncode == 0
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(re.sub(r"address: [^,}]+", "ensure: absent", manifest.read_text()))
    ended = puller(*APPLY)
    assert ended.returncode == 0, ended.stdout
    assert (etc / "hosts").read_text() == "127.0.0.1 localhost\n"
    assert not os.listdir(etc / "dnsmasq.d")
    assert "3 resources, 3 stable" in puller(*APPLY).stdout


def test_the_engine_treats_it_as_its_own(puller: Puller, etc: Path) -> None:
    (etc / "hosts").unlink()
    (etc / "hosts").mkdir()
    failed = puller(*APPLY)
    assert failed.returncode == 6
    assert f"{etc}/hosts is not a file" in failed.stdout


@pytest.mark.everything
def test_it_is_looped_over_as_our_own_types_are(puller: Puller, etc: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text("""\
data: {hosts: {first: 192.0.2.1, second: 192.0.2.2}}
resources:
  - hosts_entry:
      - for: name, address in data.hosts
        "{{ name }}": {address: "{{ address }}"}
""")
    ended = puller(*APPLY)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (etc / "hosts").read_text().endswith("192.0.2.1 first\n192.0.2.2 second\n")
    schema = json.loads(puller("schema", "manifest").stdout)
    result = schema["$defs"]["hosts_entry"]["anyOf"][0]["items"]["anyOf"][1]["properties"]
    assert {*result} == {"for", "label"}
    assert result["for"] == {"$ref": "#/$defs/for"}


MISTAKES = [
    (
        "address: 192.0.2.10",
        "adress: x",
        13,
        "adress is not a property of hosts_entry (did you mean 'address'?)",
    ),
    ("address: 192.0.2.10", "ensure: gone", 13, "ensure is 'gone', expected present or absent"),
    ("address: 192.0.2.10", "address: 192.0.2", 13, "address is '192.0.2', expected an IP address"),
    ("provider: dnsmasq", "provider: bind", 6, "provider is 'bind', expected one of hosts, dnsmasq"),
    (
        "- hosts_entry:",
        "- hosts_entri:",
        13,
        "unknown resource type 'hosts_entri' (did you mean 'hosts_entry'?)",
    ),
]


@pytest.mark.usefixtures("etc")
@pytest.mark.parametrize(("right", "wrong", "status", "message"), MISTAKES)
@pytest.mark.representatives(2)
def test_mistakes_are_said_as_for_our_own_types(
    puller: Puller, tmp_path: Path, right: str, wrong: str, status: int, message: str
) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(manifest.read_text().replace(right, wrong))
    ended = puller(*APPLY)
    assert message in ended.stdout + ended.stderr
    assert ended.returncode == status


@pytest.mark.everything
@pytest.mark.usefixtures("etc")
def test_two_declarations_agree_as_those_of_our_own_types_do(puller: Puller, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.yaml"
    text = manifest.read_text()
    again = "  - hosts_entry:\n      - db.example.com: {{{}}}\n"
    manifest.write_text(text + again.format("alias: again, address: 192.0.2.10"))
    assert "3 resources, 0 stable, 2 changed, 1 refreshed" in puller(*APPLY).stdout
    manifest.write_text(text + again.format("address: 192.0.2.11"))
    ended = puller(*APPLY)
    assert ended.returncode == 13
    detail = "the two differ: address is '192.0.2.11' here and '192.0.2.10' there"
    assert detail in ended.stdout + ended.stderr


@pytest.mark.usefixtures("etc")
def test_a_type_finds_files_of_the_bundle_as_ours_do(puller: Puller, installed: Path, tmp_path: Path) -> None:
    """``context.files.find`` works in a child manifest and with a library: the address is read from such a file."""
    module = installed / "puller_hosts_entry.py"
    read = "open(self.context.files.find(self.properties.address)).read()"
    text = module.read_text().replace("(self.properties.address,)", f"({read},)")
    text = text.replace("{self.properties.address} {", "{" + read + "} {")
    module.write_text(text.replace("not is_address(properties.address)", "False"))
    names = {"a": "x", "b": "../files/y", "c": "bundle:files/y", "d": "common:z"}
    entries = "".join(f"      - {name}: {{address: '{file}'}}\n" for name, file in names.items())
    for name, text in {
        "manifest.yaml": "libraries: {common: libraries/common}\nresources: [{apply: {name: roles/a.yaml}}]\n",
        "roles/a.yaml": f"resources:\n  - hosts_entry:\n{entries}      - e: {{address: ../../out}}\n",
        "libraries/common/library.yaml": "",
        "roles/x": "192.0.2.1",
        "files/y": "192.0.2.2",
        "libraries/common/z": "192.0.2.3",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    ended = puller(*APPLY)
    assert "hosts_entry#e failed" in ended.stdout
    assert "../../out is outside of the bundle" in ended.stdout
    lines = (tmp_path / "etc/hosts").read_text().splitlines()[1:]
    assert lines == ["192.0.2.1 a", "192.0.2.2 b", "192.0.2.2 c", "192.0.2.3 d"]


def test_unavailable_provider_fails_its_resource(puller: Puller, installed: Path, etc: Path) -> None:
    module = installed / "puller_hosts_entry.py"
    module.write_text(module.read_text().replace('== "Linux"', '== "Plan9"'))
    ended = puller(*APPLY)
    assert "provider dnsmasq cannot be used on this machine" in ended.stdout
    assert "192.0.2.10" in (etc / "hosts").read_text()


def test_without_a_name_the_best_available_provider_takes_over(
    puller: Puller, installed: Path, etc: Path
) -> None:
    module = installed / "puller_hosts_entry.py"
    named = '    providers = ("hosts",)\n'
    never = "\n    @classmethod\n    def available(cls, facts: Any) -> bool:\n        return False\n"
    module.write_text(module.read_text().replace(named, named + never))
    ended = puller("ensure", "hosts_entry", "other", "--address", "192.0.2.1")
    assert "provider=dnsmasq" in ended.stdout, ended.stdout + ended.stderr
    assert (etc / "dnsmasq.d/other.conf").exists()


@pytest.mark.everything
@pytest.mark.usefixtures("etc")
@pytest.mark.parametrize(
    ("module", "status", "message"),
    [
        ("import nothing_of_this_name", 78, "cannot be loaded: No module named 'nothing_of_this_name'"),
        (
            "HostsEntry = DnsmasqEntry = 5",
            78,
            "puller.resources hosts_entry (puller_hosts_entry:HostsEntry) is not a subclass of Resource",
        ),
    ],
)
def test_a_distribution_that_is_broken_is_named(
    puller: Puller, installed: Path, module: str, status: int, message: str
) -> None:
    (installed / "puller_hosts_entry.py").write_text(module)
    ended = puller(*APPLY)
    assert (ended.returncode, "Traceback" in ended.stderr) == (status, False)
    assert message in ended.stderr


def test_a_provider_must_be_of_its_type(puller: Puller, installed: Path, etc: Path) -> None:
    with (installed / "puller_hosts_entry.py").open("a") as stream:
        stream.write("\n\nclass DnsmasqEntry:\n    pass\n")
    ended = puller(*APPLY)
    detail = "puller.providers hosts_entry.dnsmasq (puller_hosts_entry:DnsmasqEntry) is not a subclass of HostsEntry"
    assert detail in ended.stdout
    assert "192.0.2.10" in (etc / "hosts").read_text()


@pytest.mark.usefixtures("etc")
def test_the_commands_know_the_type(puller: Puller) -> None:
    helped = puller("ensure", "hosts_entry", "--help").stdout
    assert re.search(r"--address TEXT +The address of the host, of IP version", helped)
    assert puller("ensure", "hosts_entry", "new", "--address", "192.0.2.7").returncode == 0
    state = yaml.load(puller("state", "hosts_entry", "new").stdout, yaml.CSafeLoader)
    assert (state["ensure"], state["addresses"]) == ("present", ["192.0.2.7"])
    schema = json.loads(puller("schema", "manifest").stdout)
    assert "address" in schema["$defs"]["HostsEntryProperties"]["properties"]
