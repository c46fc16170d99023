"""``puller hiera``: output and exit status, without secrets."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from hiera.envelopes import create_key_pair
from hiera.errors import HieraError
from hiera.eyaml import encrypt
from puller.cli.hiera.lookup import hiera
from puller.errors import UsageError

CASES = Path(__file__).parents[2] / "cases/hiera5/puppet-7.23.json"
CANARY = "hunter2"
Write = Callable[[dict[str, str]], Path]


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


@pytest.fixture
def control_repo(write: Write) -> Path:
    """An environment with two levels, and the facts of two hosts."""
    levels = """\
version: 5
hierarchy:
  - {name: node, path: "nodes/%{trusted.certname}.yaml"}
  - {name: common, path: common.yaml}
"""
    facts = {
        name: {"hostname": name, "domain": "x", "fqdn": f"{name}.x", "clientcert": f"{name}.x"}
        for name in ("a", "b")
    }
    return write(
        {
            "env/hiera.yaml": levels,
            "env/data/nodes/a.x.yaml": "port: 8080\nusers: [alice]",
            "env/data/common.yaml": "port: 80\nusers: [root]\nname: 'I am %{fqdn}'\n'dotted.key': 1\nboth: same",
            "a.json": json.dumps(facts["a"]),
            "b.json": json.dumps(facts["b"]),
        }
    )


HOST = ("--facts", "a.json", "--no-system-facts")


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(hiera, arguments, input=stdin, catch_exceptions=False, standalone_mode=False)


def looked_up(*arguments: str) -> Any:
    return json.loads(run("lookup", "--format", "json", *arguments).stdout)


def test_output_is_an_object_with_a_member_per_key(control_repo: Path) -> None:
    data = control_repo / "env/data"
    places = "; ".join(
        f"file: {data / path}, level '{level}', key 'port'"
        for path, level in (("nodes/a.x.yaml", "node"), ("common.yaml", "common"))
    )
    result = run("lookup", "port", "nope", "port.x", "--environment", "env", *HOST, "--format", "json")
    assert json.loads(result.stdout) == {
        "port": {"found": True, "value": 8080},
        "nope": {"found": False},
        "port.x": {
            "error": "port.x: Data Provider type mismatch: Got Integer when a hash-like object was expected "
            f"to access value using 'x' from key 'port.x' ({places})"
        },
    }
    assert result.return_value == 1
    assert run("lookup", "port", "name", "--environment", "env", *HOST, "--format", "json").return_value == 0


def test_a_key_may_begin_with_a_dash(write: Write) -> None:
    write({"env/hiera.yaml": "version: 5", "env/data/common.yaml": "-dash: 1\n--two: 2\nempty: -h"})
    assert looked_up("-dash", "env", "--default", "-5") == {"-dash": {"found": True, "value": 1}}
    assert looked_up("nope", "--environment", "env", "--default", "-5")["nope"]["value"] == "-5"
    assert looked_up("--environment", "env", "--", "--two") == {"--two": {"found": True, "value": 2}}


@pytest.mark.usefixtures("control_repo")
def test_single_value_is_plain_and_several_are_named() -> None:
    assert run("lookup", "name", "--environment", "env", *HOST).stdout == "I am a.x\n"
    assert yaml.load(
        run("lookup", "port", "users", "--environment", "env", *HOST).stdout, yaml.CSafeLoader
    ) == {
        "port": 8080,
        "users": ["alice"],
    }
    assert run("lookup", "nope", "--environment", "env", *HOST).stderr == "puller: nope: not found\n"


@pytest.mark.usefixtures("control_repo")
def test_how_values_are_merged_can_be_said() -> None:
    arguments = ("users", "--environment", "env", *HOST)
    assert looked_up(*arguments, "--merge", "unique")["users"]["value"] == ["alice", "root"]
    assert looked_up(*arguments, "--merge", "deep", "--sort-merged-arrays")["users"]["value"] == [
        "alice",
        "root",
    ]
    assert looked_up("zz", *arguments[1:], "--default", "d") == {"zz": {"found": True, "value": "d"}}
    assert "error" in looked_up(*arguments, "--type", "Integer")["users"]
    with pytest.raises(UsageError, match="are for --merge deep only"):
        run("lookup", *arguments, "--merge", "hash", "--knock-out-prefix", "--")


@pytest.mark.usefixtures("control_repo")
def test_dependent_facts_are_an_error_of_every_key(write: Write) -> None:
    write({"none.json": "{}", "some.json": '{"fqdn": "a.b"}'})
    for file, message in (("none.json", "No facts available"), ("some.json", "they must all be overridden")):
        answer = looked_up("a", "b", "--environment", "env", "--facts", file, "--no-system-facts")
        assert [message in answer[key]["error"] for key in "ab"] == [True, True]


@pytest.mark.usefixtures("control_repo")
def test_the_explanation_for_people_and_for_programs() -> None:
    arguments = ("lookup", "port", "--environment", "env", *HOST, "--explain")
    assert '      Path "' in run(*arguments).stdout
    assert 'Found key: "port" value: 8080' in run(*arguments).stdout
    answer = json.loads(run(*arguments, "--format", "json").stdout)["port"]
    assert (answer["found"], answer["value"], answer["explanation"]["type"]) == (True, 8080, "root")


@pytest.mark.usefixtures("control_repo")
def test_the_last_argument_names_the_data_when_no_option_does(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looked_up("port", "env", *HOST)["port"]["value"] == 8080
    assert looked_up("port", "env/hiera.yaml", *HOST)["port"]["value"] == 8080
    assert looked_up("port", "--hiera", "env/hiera.yaml", *HOST)["port"]["value"] == 8080
    with pytest.raises(UsageError, match="nowhere: does not exist"):
        run("lookup", "port", "nowhere", *HOST)
    with pytest.raises(UsageError, match="use only one of these options"):
        run("lookup", "port", "--environment", "env", "--hiera", "env/hiera.yaml", *HOST)
    monkeypatch.chdir("env")
    assert looked_up("port", "--facts", "../a.json", "--no-system-facts")["port"]["value"] == 8080


def test_a_single_document_is_asked_by_path(write: Write) -> None:
    document = """
        data: {web: {port: 80}}
        hierarchy: {order: ["os:{{ facts.os }}"]}
        overrides: {"os:deb": {web: {port: 81}}}
    """
    write({"d.yaml": document, "f.json": '{"os": "deb"}'})
    for place in (("--document", "d.yaml"), ("d.yaml",)):
        answer = looked_up("web.port", "web.nope", *place, "--facts", "f.json", "--no-system-facts")
        assert answer == {"web.port": {"found": True, "value": 81}, "web.nope": {"found": False}}
    explained = run(
        "lookup", "web.port", "d.yaml", "--facts", "f.json", "--no-system-facts", "--explain"
    ).stdout
    assert "os:{{ facts.os }} → os:deb: merged over the entries above" in explained


def test_in_a_bundle_the_tree_is_above_the_manifest(write: Write) -> None:
    write(
        {
            "web/manifest.yaml": "data: {port: 80, nested: {a: 1, b: 2}, only: here}\nresources: []",
            "web/hiera.yaml": "version: 5",
            "web/data/common.yaml": "port: 81\nnested: {b: 3}",
        }
    )
    assert looked_up("port", "nested", "only", "zz", "web") == {
        "port": {"found": True, "value": 81},
        "nested": {"found": True, "value": {"a": 1, "b": 3}},
        "only": {"found": True, "value": "here"},
        "zz": {"found": False},
    }
    assert yaml.load(run("resolve", "web").stdout, yaml.CSafeLoader) == {
        "nested": {"a": 1, "b": 3},
        "only": "here",
        "port": 81,
    }
    assert yaml.load(run("keys", "web").stdout, yaml.CSafeLoader)["port"][1] == "web/manifest.yaml: data"


@pytest.mark.usefixtures("control_repo")
def test_all_data_of_a_host() -> None:
    assert yaml.load(run("resolve", "--environment", "env", *HOST).stdout, yaml.CSafeLoader) == {
        "both": "same",
        "dotted.key": 1,
        "name": "I am a.x",
        "port": 8080,
        "users": ["alice"],
    }


def test_every_key_and_the_levels_that_hold_it(control_repo: Path) -> None:
    held = json.loads(run("keys", "--environment", "env", *HOST, "--format", "json").stdout)
    assert held["port"] == [
        f'Environment level "node" ({control_repo}/env/data/nodes/a.x.yaml)',
        f'Environment level "common" ({control_repo}/env/data/common.yaml)',
    ]


def test_differences_of_two_hosts_name_their_levels(control_repo: Path) -> None:
    result = run("diff", "--environment", "env", "--facts", "a.json", "--facts", "b.json", "--format", "json")
    match = json.loads(result.stdout)
    node, common = (f"{control_repo}/env/data/{name}" for name in ("nodes/a.x.yaml", "common.yaml"))
    assert match["port"] == {
        "a.json": {"found": True, "value": 8080, "from": [f'level "node" ({node})']},
        "b.json": {"found": True, "value": 80, "from": [f'level "common" ({common})']},
    }
    assert sorted(match) == ["name", "port", "users"]
    assert result.return_value == 1
    assert run("diff", "--environment", "env", "--facts", "a.json", "--facts", "a.json").return_value == 0
    with pytest.raises(UsageError, match="requires --facts twice"):
        run("diff", "--environment", "env")


def test_keys_are_made_once_and_a_value_goes_there_and_back(tmp_path: Path) -> None:
    assert run("keys", "create").stdout.splitlines() == [
        "keys/private_key.pkcs7.pem",
        "keys/public_key.pkcs7.pem",
    ]
    assert (tmp_path / "keys/private_key.pkcs7.pem").stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="a key exists already and is not overwritten"):
        run("keys", "create")
    sealed = run("encrypt", stdin=f"{CANARY}\n").stdout
    assert sealed.startswith("ENC[PKCS7,")
    assert run("decrypt", stdin=f"a: {sealed}").stdout == f"a: {CANARY}\n"
    block = run("encrypt", "--block", stdin=CANARY).stdout
    assert max(map(len, block.splitlines())) <= 64
    (tmp_path / "f.eyaml").write_text(f"a: {block}")
    assert run("decrypt", "f.eyaml").stdout == f"a: >\n    {CANARY}\n"
    (tmp_path / "keys/public_key.pkcs7.pem").unlink()
    with pytest.raises(UsageError, match=r"keys/public_key\.pkcs7\.pem: No such file"):
        run("encrypt", stdin="x")


@pytest.fixture
def secretive(write: Write) -> Path:
    """An environment with a sensitive key and an encrypted password, which another value contains as well."""
    private, certificate = create_key_pair()
    levels = "{version: 5, hierarchy: [{name: s, lookup_key: eyaml_lookup_key, path: s.eyaml}]}"
    values = f"""
        lookup_options: {{marked: {{convert_to: Sensitive}}}}
        password: {encrypt(CANARY, [certificate])}
        uri: "db://u:%{{lookup('password')}}@h"
        marked: {CANARY} in the clear
        broken: "%{{lookup('password.x')}}"
    """
    return write({"env/hiera.yaml": levels, "env/data/s.eyaml": values, "key.pem": private.decode()})


SECRETIVE = ("--environment", "env", "--private-key", "key.pem")


@pytest.mark.usefixtures("secretive")
def test_bare_lookup_shows_encrypted_and_masks_sensitive() -> None:
    answer = looked_up("password", "uri", "marked", *SECRETIVE)
    assert [answer[key]["value"] for key in ("password", "uri", "marked")] == [
        CANARY,
        f"db://u:{CANARY}@h",
        "Sensitive [value redacted]",
    ]


@pytest.mark.usefixtures("secretive")
@pytest.mark.parametrize("output", ["yaml", "json"])
@pytest.mark.parametrize(
    "command", [("resolve",), ("lookup", "--explain", "password", "uri", "marked", "broken")]
)
def test_no_secret_is_shown_anywhere_else(command: tuple[str, ...], output: str) -> None:
    result = run(*command, *SECRETIVE, "--format", output)
    assert "Sensitive [value redacted]" in result.stdout
    assert CANARY not in result.stdout + result.stderr


@pytest.mark.usefixtures("secretive")
def test_revealing_is_for_root_on_a_terminal() -> None:
    with pytest.raises(UsageError, match="--reveal is for root on a terminal only"):
        run("resolve", *SECRETIVE, "--reveal")


def golden(*names: str) -> list[dict[str, Any]]:
    record = json.loads(CASES.read_text())
    return [
        {**case, "facts": record["facts"][case["facts"]]} for case in record["cases"] if case["name"] in names
    ]


SAMPLE = (
    *(
        "interp/inspect_str",
        "keytypes/h.2",
        "yamltype/time",
        "json/big-int",
        "merge-deep-hasharrays/hn",
        "key/under_score",
    ),
    *(
        "layers/default-hierarchy/mod::dd",
        "layers/global-lookup-options",
        "merge-knockout/h",
        "trusted/no-facts",
    ),
    *(
        "config/version-6",
        "location/mapped-array-unique",
        "merge-unique/nilall",
        "key/default-empty-string",
        "key/empty",
    ),
    *("convert/sensitive", "lookup-options/invalid-regex", "config/no-hiera-yaml-in-env"),
)


@pytest.mark.parametrize("case", golden(*SAMPLE), ids=lambda case: case["name"])
def test_recorded_cases_hold_on_the_command_line(case: dict[str, Any], write: Write) -> None:
    write({f"env/{path}": text for path, text in case["files"].items()})
    write({f"conf/{path}": text for path, text in case.get("global_files", {}).items()})
    write({"env/.keep": "", "facts.json": json.dumps(case["facts"])})
    merge = case.get("merge", {})
    merge = {"strategy": merge} if isinstance(merge, str) else merge
    flags = {"sort_merged_arrays": "--sort-merged-arrays", "merge_hash_arrays": "--merge-hash-arrays"}
    options = [flag for name, flag in flags.items() if merge.get(name)]
    options += ["--merge", merge["strategy"]] if merge else []
    options += ["--knock-out-prefix", merge["knockout_prefix"]] if "knockout_prefix" in merge else []
    options += ["--default", case["default"]] if "default" in case else []
    places = [
        "--environment",
        "env",
        "--global",
        "conf/hiera.yaml",
        "--facts",
        "facts.json",
        "--no-system-facts",
    ]
    answer = looked_up(*places, *options, "--", case["key"])[case["key"]]
    expected = case["expected"]
    if "error" in expected:
        assert list(answer) == ["error"]
    else:
        assert answer == {name: expected[name] for name in ("found", "value") if name in expected}


@pytest.mark.usefixtures("control_repo")
def test_the_installed_command_exits_with_the_documented_status() -> None:
    command = [sys.executable, "-m", "puller", "hiera", "lookup", "--environment", "env", *HOST]
    environment = {**os.environ, "LANG": "C.UTF-8"}
    for key, status in (("port", 0), ("nope", 1)):
        done = subprocess.run([*command, key], capture_output=True, text=True, env=environment, check=False)
        assert (done.returncode, done.stdout) == (status, "8080\n...\n" if status == 0 else "")


@pytest.mark.usefixtures("control_repo")
def test_system_facts_are_used_unless_they_are_left_out(write: Write) -> None:
    write({"env/data/common.yaml": "k: '%{facts.kernel}|%{facts.mine}'"})
    assert looked_up("k", "--environment", "env", "--fact", "mine=1")["k"]["value"] == "Linux|1"
    left_out = looked_up("k", "--environment", "env", "--fact", "mine=1", "--no-system-facts")
    assert left_out["k"]["value"] == "|1"


def test_warnings_go_to_stderr(write: Write) -> None:
    write({"env/hiera.yaml": "version: 5", "env/data/common.yaml": "k: '%{nope}'"})
    result = run("lookup", "k", "--environment", "env", "--format", "json")
    assert result.stderr.startswith("puller: warning: Undefined variable 'nope'; (file: ")
    assert result.stderr.endswith("/env/data/common.yaml, level 'Common', key 'k')\n")
    assert json.loads(result.stdout) == {"k": {"found": True, "value": ""}}


def test_errors_of_resolve_name_their_keys(write: Write) -> None:
    write({"env/hiera.yaml": "version: 5", "env/data/common.yaml": "good: 1\nbad: \"%{lookup('bad')}\""})
    result = run("resolve", "--environment", "env")
    assert yaml.load(result.stdout, yaml.CSafeLoader) == {"good": 1}
    assert result.stderr.startswith("puller: bad: ")
    assert result.return_value == 1
    write({"env/data/common.yaml": "["})
    with pytest.raises(HieraError):
        run("keys", "--environment", "env")


def test_a_document_needs_no_complete_facts_and_is_checked(write: Write) -> None:
    write(
        {
            "data.json": """{"hierarchy": {"order": ["fqdn:{{ lookup('facts.fqdn') }}"]}, "data": {"test": "value"},
                             "overrides": {"fqdn:my.fqdn.com": {"test": "override"}}}""",
            "required.yaml": "data:\n  # @require\n  user: ''\n  # @validate isIPv4(value)\n  address: 10.0.0.1\n",
        }
    )
    facts = ("--no-system-facts", "--fact", "fqdn=my.fqdn.com")
    assert CliRunner().invoke(hiera, ["resolve", "data.json", *facts]).output == "test: override\n"
    result = CliRunner().invoke(hiera, ["resolve", "required.yaml", *facts], standalone_mode=False)
    assert (result.return_value, result.stdout) == (1, "address: 10.0.0.1\n")
    assert "required.yaml:2: data.user is required, but empty" in result.stderr
