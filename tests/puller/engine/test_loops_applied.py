"""Loops in a run: the names that templates, conditions and children of an item have, and the reported events."""

import os
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.ensure import REQUEST, parse_request
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import UsageError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.reporting.report import Event, State, failure_texts
from puller.reporting.run_log import sentence
from puller.system.processes import StopRequests

IDS = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"
Run = Callable[..., dict[str, Event]]


def no_network(url: str) -> bytes:
    raise AssertionError(f"{url} was fetched")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that applies files and returns the events by name. ``DIR`` is a directory for effects."""

    def build(files: Mapping[str, str], *, noop: bool = False, **facts: Any) -> dict[str, Event]:
        for name, text in files.items():
            path = tmp_path / "web" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).replace("DIR", str(tmp_path)).replace("IDS", IDS))
        manifest = load_manifest(tmp_path / "web" / "manifest.yaml", "web/manifest.yaml", Inputs(facts, {}))
        pending = tmp_path / "owed.json"
        applied = apply_catalog(
            manifest,
            Settings(noop=noop),
            StopRequests(),
            PendingRefreshes(pending, "web", noop=noop),
            state_directory=pending.parent,
            fetch=no_network,
        )
        return {event.alias or event.name: event for event in applied.events}

    return build


MANIFEST = """
    data:
      vhosts:
        shop: {port: 81, enabled: true}
        blog: {port: 80}
        old: {port: 79, enabled: false}
    resources:
      - file:
          - defaults: {IDS}
          - for: name, vhost in data.vhosts
            "DIR/{{ name }}":
              template: site.j2
              control: {if: vhost.enabled | default(true)}
              health_checks: [{command: "grep -q {{ vhost.port }} DIR/{{ name }}"}]
"""


def test_templates_conditions_and_checks_see_item_names(run: Run, tmp_path: Path) -> None:
    files = {
        "manifest.yaml": MANIFEST,
        "site.j2": "{% include 'listen.j2' %} {{ name }} {{ data.vhosts | length }}\n",
        "listen.j2": "listen {{ vhost.port }}",
    }
    events = run(files)
    assert (tmp_path / "shop").read_text() == "listen 81 shop 3\n"
    assert (tmp_path / "blog").read_text() == "listen 80 blog 3\n"
    assert not (tmp_path / "old").exists()
    assert [event.state for event in events.values()] == ["changed", "changed", "skipped"]
    assert [event.health_checks[0].status for event in list(events.values())[:2]] == ["OK", "OK"]
    assert [event.item for event in events.values()] == [
        f"for name, vhost in data.vhosts: name is '{name}'" for name in ("shop", "blog", "old")
    ]
    assert {event.state for event in run(files).values()} == {State.STABLE, State.SKIPPED}


def test_a_dry_run_foretells_each_item(run: Run, tmp_path: Path) -> None:
    files = {"manifest.yaml": MANIFEST, "site.j2": "{{ vhost.port }}\n"}
    assert [event.state for event in run(files, noop=True).values()] == [
        "would change",
        "would change",
        "skipped",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["web"]


def test_a_failure_says_which_item_with_the_line_of_its_entry(run: Run, tmp_path: Path) -> None:
    files = {"manifest.yaml": MANIFEST, "site.j2": "{{ vhost.enabled }} {{ vhost.port }}\n"}
    events = run(files)
    event = events[f"{tmp_path}/blog"]
    assert event.state is State.FAILED
    assert event.item == "web/manifest.yaml:11: for name, vhost in data.vhosts: name is 'blog'"
    assert f'item="{event.item}"' in sentence(event)
    assert failure_texts([event])[0].startswith(f"file#{tmp_path}/blog ({event.item}): ")
    assert msgspec.to_builtins(event)["item"] == event.item


def test_failed_expression_fails_its_item_only(run: Run, tmp_path: Path) -> None:
    text = """
        data: {users: [{name: joe, uid: 7}, {name: ann}]}
        resources:
          - file:
              - for: user in data.users
                "DIR/{{ user.name }}": {content: "{{ user.uid }}", IDS}
    """
    events = run({"manifest.yaml": text})
    assert [event.state for event in events.values()] == ["changed", "failed"]
    assert events[f"{tmp_path}/ann"].errors == [
        "web/manifest.yaml:6: content: {{ user.uid }}: unknown key 'uid' in user"
    ]


def test_unevaluated_loop_fails_once_and_the_run_continues(run: Run, tmp_path: Path) -> None:
    text = """
        resources:
          - file:
              - for: disk in facts.disks
                "DIR/{{ disk }}": {ensure: directory, IDS}
          - exec:
              - touch DIR/after-sda: {require: [file#DIR/sda], creates: DIR/after-sda}
              - touch DIR/other: {after: [file#DIR/sdb], creates: DIR/other}
    """
    events = run({"manifest.yaml": text})
    loop = events[f"{tmp_path}/{{{{ disk }}}}"]
    assert loop.state is State.FAILED
    assert loop.errors == [
        "web/manifest.yaml:5: for disk in facts.disks: {{ facts.disks }}: unknown key 'disks' in facts"
    ]
    assert loop.item == "web/manifest.yaml:5: for disk in facts.disks"
    assert events[f"touch {tmp_path}/after-sda"].unmet_requirements == [f"file#{tmp_path}/sda"]
    assert events[f"touch {tmp_path}/other"].state is State.CHANGED
    again = run({"manifest.yaml": text}, disks=["sda", "sdb"])
    assert [event.state for event in again.values()] == ["changed", "changed", "changed", "stable"]


def test_pending_refresh_survives_an_unevaluated_loop(run: Run, tmp_path: Path) -> None:
    text = """
        resources:
          - file:
              - DIR/conf: {content: "{{ facts.version }}", IDS}
          - exec:
              - for: name in facts.names
                "sh -c 'test -e DIR/ready && echo {{ name }} >> DIR/refreshed'":
                  {alias: "{{ name }}", refreshonly: true, subscribe: [file#DIR/conf]}
    """
    files = {"manifest.yaml": text}
    assert run(files, version=1, names=["a"])["a"].state is State.FAILED
    (tmp_path / "ready").touch()
    run(files, version=1)
    assert run(files, version=1, names=["a"])["a"].state is State.REFRESHED
    assert (tmp_path / "refreshed").read_text() == "a\n"
    run(files, version=2, names=["a", "b"])
    assert (tmp_path / "refreshed").read_text() == "a\na\nb\n"


def test_child_is_applied_for_each_item_with_its_data(run: Run, tmp_path: Path) -> None:
    files = {
        "manifest.yaml": """
            data: {roles: {web: 80, mail: 25}}
            resources:
              - apply:
                  - for: role, port in data.roles
                    "roles/{{ role }}.yaml": {data: {port: "{{ port }}"}, control: {unless: role == 'mail'}}
        """,
        "roles/web.yaml": 'resources: [{file: [{DIR/web-port: {content: "{{ data.port }}", IDS}}]}]\n',
        "roles/mail.yaml": 'resources: [{file: [{DIR/mail: {content: "{{ data.port }}", IDS}}]}]\n',
    }
    events = run(files)
    assert (tmp_path / "web-port").read_text() == "80"
    assert events["roles/web.yaml"].item == "for role, port in data.roles: role is 'web'"
    assert events[f"{tmp_path}/mail"].state is State.SKIPPED


def test_failed_loop_of_children_stands_for_its_resources(run: Run) -> None:
    files = {
        "manifest.yaml": """
            resources:
              - exec: [{"true": {require: [apply#roles/web.yaml]}}]
              - apply:
                  - for: role in facts.roles
                    "roles/{{ role }}.yaml": {}
        """,
    }
    events = run(files)
    assert events["true"].unmet_requirements == ["apply#roles/web.yaml"]
    assert events["roles/{{ role }}.yaml"].state is State.FAILED


def test_nested_loops_see_their_own_names(run: Run, tmp_path: Path) -> None:
    files = {
        "manifest.yaml": "resources: [{apply: [{roles/web.yaml: {data: {names: [a, b]}}}]}]\n",
        "roles/web.yaml": """
            resources_template: list.jet
            resources:
              - file:
                  - for: name in data.names
                    "DIR/{{ name }}": {template: name.j2, IDS}
        """,
        "roles/list.jet": """
            - file:
                - for: name in data.names
                  "DIR/[[ data.names[0] ]]-{{ name }}": {content: "{{ name }}", IDS}
        """,
        "roles/name.j2": "{{ name }} of {{ data.names | join(' ') }}",
    }
    run(files)
    assert (tmp_path / "b").read_text() == "b of a b"
    assert (tmp_path / "a-b").read_text() == "b"


def test_a_scaffold_of_an_item_sees_its_names(run: Run, tmp_path: Path) -> None:
    files = {
        "manifest.yaml": """
            data: {sites: [one, two]}
            resources:
              - scaffold:
                  - for: site in data.sites
                    "DIR/{{ site }}": {source: tree, engine: jinja}
        """,
        "tree/site.conf": "{{ site }}\n",
    }
    run(files)
    assert (tmp_path / "two" / "site.conf").read_text() == "two\n"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            "site.jet",
            "[[ name ]] listens at [[ vhost.port ]] [[ lookup('data.vhosts.old.port') ]]".replace("'", '"'),
        ),
        ("site.tmpl", "{{ .name }} listens at {{ .vhost.port }} {{ .data.vhosts.old.port }}"),
        ("site.j2", "{{ template('part.j2') }} {{ template('{{ data.vhosts.old.port }}') }}"),
        ("site.j2", "{% from 'macro.j2' import said with context %}{{ said() }} {{ data.vhosts.old.port }}"),
    ],
)
def test_templates_of_every_language_see_the_names_of_an_item(
    run: Run, tmp_path: Path, template: str, text: str
) -> None:
    part = "{{ name }} listens at {{ vhost.port }}"
    files = {
        "manifest.yaml": MANIFEST.replace("site.j2", template),
        template: text,
        "part.j2": part,
        "macro.j2": f"{{% macro said() %}}{part}{{% endmacro %}}",
    }
    events = run(files)
    assert [event.errors for event in events.values() if event.errors] == []
    assert (tmp_path / "shop").read_text() == "shop listens at 81 79"


@pytest.mark.parametrize(
    "properties", ['{"name": "{{ x }}", "for": "x in [1]"}', '[{"{{ x }}": {}, "for": "x in [1]"}]']
)
def test_single_resource_request_has_no_loop(properties: str) -> None:
    request = f'{{"protocol": "{REQUEST}", "type": "exec", "properties": {properties}}}'
    with pytest.raises(UsageError, match="a request cannot have a loop"):
        parse_request(request.encode())
