"""``puller explain`` agrees with runs about keys and resources, and masks secrets."""

from __future__ import annotations

import contextlib
import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hiera.envelopes import create_key_pair
from hiera.eyaml import encrypt
from puller.engine.explanation import why
from puller.reporting.report import Event, State

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Publisher, WebServer

CANARY = "hunter2-canary"

TREE = {
    "hiera.yaml": """\
version: 5
hierarchy:
  - {name: role, path: "roles/%{facts.role}.yaml"}
  - {name: common, path: common.yaml, lookup_key: eyaml_lookup_key}
""",
    "data/roles/web.yaml": "app::workers: 8\napp::limits: {open: 100}\n",
    "data/common.yaml": """\
lookup_options: {app::limits: {merge: deep}}
app::workers: 2
app::limits: {stack: 1}
""",
}
MANIFEST = """\
data:
  greeting: Hello
  app::limits: {cpu: 9}
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/app.conf":
          alias: conf
          content: |
            {{ data.greeting }} {{ data['app::workers'] }} {{ hiera('app::limits.stack') }} {{ facts.role }}
      - "{{ facts.machine }}/page": {template: page.j2}
      - "{{ facts.machine }}/handed":
          template: handed.j2
          data: {port: "{{ data['app::workers'] }}", own: 1}
      - "{{ facts.machine }}/off":
          content: x
          control: {if: "facts.role == 'off'"}
"""
FILES = {
    **{path: text.encode() for path, text in TREE.items()},
    "page.j2": b"{% for name in data['app::limits'] %}{{ name }} {% endfor %}{{ lookup('data.nope', 1) }}\n",
    "handed.j2": b"{{ data.port }} {{ data.own }} {{ facts.role }}\n",
}


@pytest.fixture
def explain(execute: Execute) -> Any:
    """Return ``explain(host, subject)``, which returns the output as data, or with ``text`` as text."""

    def ask(host: Host, subject: str, *, text: bool = False) -> Any:
        options = () if text else ("--format", "json")
        status, output = execute("explain", subject, "--config", str(host.configuration), *options)
        return output if text else (status, *json.loads(output))

    return ask


def with_role(host: Host, role: str) -> Host:
    (host.configuration.parent / "facts.d" / "role.json").write_text(json.dumps({"role": role}))
    return host


def another(host: Host, name: str, publisher: Publisher, web: WebServer, execute: Execute) -> Host:
    """Return a second host that follows the same site."""
    made = type(host)(host.configuration.parent.parent / name, publisher.site.anchor, web.url, execute)
    made.configure(host_name=f"{name}.example.com")
    return made


@pytest.fixture
def settled(host: Host, publisher: Publisher) -> Host:
    """Return a host with the role web, on which the bundle is applied."""
    publisher.publish("1.0.0", MANIFEST, files=FILES)
    with_role(host, "web")
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    return host


def test_hosts_get_their_own_file_and_all_commands_agree(
    settled: Host, publisher: Publisher, web: WebServer, execute: Execute, explain: Any, tmp_path: Path
) -> None:
    other = with_role(another(settled, "db01", publisher, web, execute), "db")
    assert other.run().status == 0
    assert (settled.machine / "app.conf").read_text() == "Hello 8 1 web\n"
    assert (other.machine / "app.conf").read_text() == "Hello 2 1 db\n"

    for role in ("web", "db"):
        (tmp_path / f"{role}.json").write_text(json.dumps({"role": role}))
    facts = [argument for role in ("web", "db") for argument in ("--facts", str(tmp_path / f"{role}.json"))]
    source = str(tmp_path / "publisher" / "sources" / "web-1.0.0")
    status, output = execute("hiera", "diff", source, *facts, "--format", "json")
    assert status == 1
    sides = json.loads(output)["app::workers"]
    for host, role, level, value in ((settled, "web", "role", 8), (other, "db", "common", 2)):
        side = sides[str(tmp_path / f"{role}.json")]
        assert side["value"] == value
        assert side["from"][0].startswith(f'level "{level}"')
        status, result = explain(host, "app::workers")
        assert (status, result["value"]) == (0, value)
        (tree,) = [source for source in result["sources"] if source["source"] == "bundle tree"]
        assert tree["from"][0].startswith(f'level "{level}"')


def test_explained_key_lists_every_source_and_value(settled: Host, explain: Any) -> None:
    data = settled.configuration.parent / "data.yaml"
    data.write_text("data:\n  app::limits: {open: 7}\n")
    _, result = explain(settled, "app::limits")
    assert result["bundle"] == "web 1.0.0"
    assert result["value"] == {"cpu": 9, "stack": 1, "open": 7}
    assert [(source["source"], source.get("value")) for source in result["sources"]] == [
        ("this host", {"open": 7}),
        ("bundle tree", {"stack": 1, "open": 100}),
        ("manifest", {"cpu": 9}),
    ]
    places = [place for source in result["sources"] for place in source["from"]]
    assert places[0] == f"{data}:2 (data)"
    assert [place.split()[1] for place in places[1:3]] == ['"role"', '"common"']
    assert places[3] == "web-1.0.0/manifest.yaml:3 (data)"
    assert explain(settled, "app::limits.open")[1]["value"] == 7
    assert explain(settled, "data.greeting")[1]["value"] == "Hello"


def test_a_key_that_nothing_has(settled: Host, explain: Any) -> None:
    status, result = explain(settled, "app::nope")
    assert (status, result["found"], {source["found"] for source in result["sources"]}) == (1, False, {False})
    assert "app::nope in web 1.0.0: nothing has it" in explain(settled, "app::nope", text=True)


def test_the_tree_for_people_names_sources_levels_and_lines(settled: Host, explain: Any) -> None:
    text = explain(settled, "app::workers", text=True)
    assert text.startswith("app::workers in web 1.0.0: 8\n")
    for line in (
        "  bundle tree hiera.yaml: 8\n",
        '        Hierarchy entry "role"\n',
        '            Found key: "app::workers" value: 8\n',
        "  manifest web-1.0.0/manifest.yaml: does not have it\n",
    ):
        assert line in text


def uses(result: dict[str, Any]) -> dict[str, Any]:
    return {use["name"]: use.get("value", use.get("found")) for use in result["uses"]}


def test_explained_resource_lists_line_inputs_and_last_run(settled: Host, explain: Any) -> None:
    path = f"{settled.machine}/app.conf"
    status, result = explain(settled, f"file#{path}")
    assert (status, result["resource"]) == (0, f"file#{path}")
    assert result["declared"] == "web-1.0.0/manifest.yaml:8"
    assert result["properties"]["content"] == "Hello 8 1 web\n"
    used = uses(result)
    assert used.pop("facts.machine") == str(settled.machine)
    assert set(used.items()) >= {
        ("data.greeting", "Hello"),
        ("data['app::workers']", 8),
        ("hiera('app::limits.stack')", 1),
        ("facts.role", "web"),
    }
    from_ = {use["name"]: use.get("from") for use in result["uses"]}
    assert from_["data.greeting"] == ["web-1.0.0/manifest.yaml:2 (data)"]
    assert 'hiera.yaml level "role"' in from_["data['app::workers']"][0]
    assert result["last_run"]["state"] == "changed"
    assert result["last_run"]["why"] == ["ensure absent → present"]
    assert settled.run().status == 0
    last = explain(settled, "file#conf")[1]["last_run"]
    assert (last["state"], last["why"], last["version"]) == ("stable", ["in sync"], "1.0.0")


def test_notes_of_the_last_run_are_reasons() -> None:
    """A purge left something, or debconf's answer has no effect: ``in sync`` alone would hide it."""
    event = Event(type="file", name="/srv", state=State.STABLE, notes=["/srv/work has work, so it stays"])
    assert why(event) == ["/srv/work has work, so it stays"]


def test_run_without_the_resource_has_a_reason(settled: Host, explain: Any) -> None:
    path = f"file#{settled.machine}/app.conf"

    def last() -> tuple[str, list[str]]:
        result = explain(settled, path)[1]["last_run"]
        return result["state"], result["why"]

    assert settled.run("--only", f"file#{settled.machine}/page").status == 0
    assert last() == ("not in that run", [f"the run was limited by --only file#{settled.machine}/page"])
    assert settled.puller("disable", "--until", "2h", "--reason", "maintenance of the rack").status == 0
    settled.run()
    state, (why,) = last()
    assert state == "not in that run"
    assert why.startswith("nothing was applied: ")
    assert "maintenance of the rack" in why
    text = explain(settled, path, text=True)
    assert f"\n    {why}\n" in text


def test_template_and_condition_inputs_are_listed(settled: Host, explain: Any) -> None:
    _, result = explain(settled, f"file#{settled.machine}/page")
    used = uses(result)
    assert set(used["data['app::limits']"]) == {"cpu", "stack", "open"}
    assert used["data.nope"] is False
    _, result = explain(settled, f"file#{settled.machine}/off")
    assert uses(result)["facts.role"] == "web"
    assert result["last_run"]["state"] == "skipped"
    assert result["last_run"]["why"] == ["control: if facts.role == 'off' is false"]
    text = explain(settled, f"file#{settled.machine}/off", text=True)
    assert "\n    control: if facts.role == 'off' is false\n" in text


def test_data_that_a_file_hands_its_template_is_of_no_source(settled: Host, explain: Any) -> None:
    used = uses(explain(settled, f"file#{settled.machine}/handed")[1])
    assert used["data['app::workers']"] == 8
    assert used["facts.role"] == "web"
    assert not {"data.port", "data.own"} & set(used)


def test_failure_and_hold_of_a_version_are_explained(
    settled: Host, publisher: Publisher, explain: Any
) -> None:
    (settled.machine / "app.conf").unlink()
    (settled.machine / "app.conf").mkdir()
    (settled.machine / "app.conf" / "full").touch()
    publisher.publish("2.0.0", "resources: 5\n", files=FILES)
    settled.run()
    last = explain(settled, "file#conf")[1]["last_run"]
    assert last["state"] == "failed"
    assert any("directory" in sentence for sentence in last["why"])
    assert last["held"].startswith("web 2.0.0 is rejected: ")


def test_a_resource_that_is_not_declared(settled: Host, explain: Any, execute: Execute) -> None:
    text = explain(settled, f"file#{settled.machine}/app.cnf", text=True)
    assert f"is not declared (did you mean 'file#{settled.machine}/app.conf'?)" in text
    assert execute("explain", "file#/x", "--config", str(settled.configuration))[0] == 1


def test_a_source_is_explained_without_a_configuration(tmp_path: Path, execute: Execute) -> None:
    (tmp_path / "manifest.yaml").write_text(
        textwrap.dedent(
            """\
            data: {web: {port: 80}}
            hierarchy: {order: ["role:{{ facts.role }}"]}
            overrides:
              role:db: {web: {port: 5432}}
            resources: []
            """
        )
    )
    provided = ("--fact", "role=db", "--set", "web.tls=true", "--format", "json")
    status, output = execute("explain", "web", str(tmp_path), *provided)
    (result,) = json.loads(output)
    assert (status, result["value"]) == (0, {"port": 5432, "tls": True})
    assert result["sources"][0] == {
        "source": "command line",
        "name": "--set web.tls",
        "found": True,
        "value": {"tls": True},
        "from": ["--set web.tls"],
    }
    document = result["sources"][1]
    assert document["from"] == [f"{tmp_path}/manifest.yaml:4 (overrides['role:db'])"]
    assert document["hierarchy"] == ["role:{{ facts.role }} → role:db: merged over the entries above"]


def test_options_for_facts_are_for_a_source(settled: Host, execute: Execute) -> None:
    status, output = execute("explain", "x", "--config", str(settled.configuration), "--fact", "a=b")
    assert status == 64
    assert "options for facts and data require a SOURCE" in output


def test_site_data_are_explained_without_the_server(settled: Host, web: WebServer, explain: Any) -> None:
    (web.root / "site.yaml").write_text("data: {greeting: Welcome}")
    settled.configure(data=f"{web.url}/site.yaml")
    assert settled.run().status == 0
    web.stop()
    _, result = explain(settled, "greeting")
    assert result["value"] == "Welcome"
    assert [source["source"] for source in result["sources"] if source["found"]] == ["site data", "manifest"]


# --- secrets ------------------------------------------------------------------------------------------------

SECRETIVE = """\
data:
  # @sensitive
  token: ""
  url: "https://x/?{{ data.token }}"
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0600"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0700"}
      - "{{ facts.machine }}/app.conf": {content: "password={{ hiera('app::password') }}\\n"}
      - "{{ facts.machine }}/page": {template: page.j2}
      - "{{ facts.machine }}/tinycm": {content: "{users[0][password]}", interpolate: true}
      - "{{ facts.machine }}/token": {content: "{{ data.token }} {{ data.url }} {{ data.users | to_json }}"}
      - "{{ facts.machine }}/error-a": {content: "{{ hiera('app::password.x') }}"}
      - "{{ facts.machine }}/error-b": {content: "{{ data['app::password'].nope }}"}
      - "{{ facts.machine }}/error-c": {content: "{{ data['app::password'] | fail_on_this }}"}
      - "{{ facts.machine }}/error-d": {content: "{{ 1 + data['app::password'] }}"}
      - "{{ facts.machine }}/error-e": {content: x, mode: "{{ data['app::password'] }}"}
      - "{{ facts.machine }}/owner": {content: x, owner: "{{ data['app::password'] }}"}
      - "{{ facts.machine }}/source": {source: "http://127.0.0.1:1/{{ data['app::password'] }}"}
      - "{{ facts.machine }}/local": {source: "/{{ data['app::password'] }}"}
      - "{{ facts.machine }}/checked":
          content: x
          health_checks: [{command: "sh -c 'echo {{ data['app::password'] }}; exit 2'", name: loud}]
  - exec:
      - service:
          command: sh -c 'printf %s "$PASSWORD" > {{ facts.machine }}/environment'
          environment: ["PASSWORD={{ data['app::password'] }}"]
          creates: "{{ facts.machine }}/environment"
      - not-words: {command: "echo {{ data['app::password'] }} 'no end"}
      - not-there: {command: "/{{ data['app::password'] }}/command"}
      - guarded: {command: "true", onlyif: "/{{ data['app::password'] }}/guard"}
      - failing:
          command: sh -c 'echo "{{ data['app::password'] }}" >&2; exit 1'
"""


@pytest.fixture
def secretive(host: Host, publisher: Publisher) -> Host:
    """Return a host with an encrypted password in its bundle, and a token in its own data."""
    private, certificate = create_key_pair()
    key = host.configuration.parent / "private.pem"
    key.write_bytes(private)
    host.configure(eyaml_private_key=str(key))
    (host.configuration.parent / "data.yaml").write_text(f"data: {{token: {CANARY}}}")
    password = encrypt(CANARY, [certificate])
    common = f"app::password: {password}\nusers: [{{name: a, password: '{password}'}}]\n"
    common += "app::text: \"it is %{lookup('app::password')}\"\n"
    page = b"{{ hiera('app::text') }} {{ data.users[0].password }}\n"
    publisher.publish(
        "1.0.0", SECRETIVE, files={**FILES, "data/common.yaml": common.encode(), "page.j2": page}
    )
    return with_role(host, "db")


@pytest.mark.everything
def test_encrypted_password_is_used_and_never_shown(
    secretive: Host, execute: Execute, capfd: pytest.CaptureFixture[str]
) -> None:
    host, machine = secretive, secretive.machine
    output = [host.run("--noop", "--diff", "-v").output]
    output += [host.run("--diff", "-v").output, host.run("--diff", "-v").output]
    assert (machine / "app.conf").read_text() == f"password={CANARY}\n"
    assert (machine / "page").read_text() == f"it is {CANARY} {CANARY}\n"
    assert (machine / "environment").read_text() == CANARY
    assert (machine / "tinycm").read_text() == CANARY
    assert (machine / "token").read_text().startswith(f"{CANARY} https://x/?{CANARY} [")
    (machine / "app.conf").write_text("password=another\n")
    output.append(host.run("--diff", "-v").output)
    assert (machine / "app.conf").read_text() == f"password={CANARY}\n"

    config = ("--config", str(host.configuration))
    resources = [f"{event['type']}#{event['name']}" for event in host.report()["bundles"][0]["events"]]
    assert len(resources) == 19
    keys = ("app::password", "app::text", "users", "token", "url", "users.0.password", "app::password.x")
    output += [execute("explain", subject, *config)[1] for subject in (*resources, *keys)]
    output += [execute("explain", subject, *config, "--format", "json")[1] for subject in keys]
    output.append(execute("status", *config)[1])
    bundle = str(next(host.state.glob("bundles/web/*/manifest.yaml")).parent)
    facts = [str(path) for path in (host.configuration.parent / "facts.d").iterdir()]
    provided = [argument for path in facts for argument in ("--facts", path)]
    data = ("--data", str(host.configuration.parent / "data.yaml"))
    key = ("--private-key", str(host.configuration.parent / "private.pem"))
    for form in ("yaml", "json"):
        output.append(execute("render", bundle, *provided, *data, *key, "--format", form)[1])
        output.append(execute("hiera", "resolve", bundle, *provided, *key, "--format", form)[1])
        output.append(execute("hiera", "lookup", "app::text", bundle, *provided, *key, "--explain")[1])
        output.append(execute("hiera", "diff", bundle, *provided, *key, "--format", form)[1])
    output.append(execute("lint", bundle, *provided, *data, *key)[1])
    output += [*capfd.readouterr()]

    assert all(output[:-2])
    for text in output:
        assert CANARY not in text
    for path in (*host.state.rglob("*"), *(host.configuration.parent / "run").rglob("*")):
        with contextlib.suppress(IsADirectoryError):
            assert CANARY.encode() not in path.read_bytes(), path


def test_always_shown_properties_are_never_secret(tmp_path: Path, execute: Execute) -> None:
    (tmp_path / "manifest.yaml").write_text(
        textwrap.dedent(
            f"""\
            data:
              # @sensitive
              token: {CANARY}
            resources:
              - exec:
                  - "{{{{ data.token }}}}": {{command: "true"}}
                  - a: {{command: "true", alias: "{{{{ data.token }}}}"}}
            """
        )
    )
    status, output = execute("lint", str(tmp_path))
    assert status == 1
    assert (
        "manifest.yaml:6:9: error: resources[0] exec#{{ data.token }}: name contains a secret, and messages always show"
        in output
    )
    assert (
        "manifest.yaml:7:9: error: resources[0] exec#a: alias contains a secret, and messages always show this property"
        in output
    )
    assert CANARY not in output
