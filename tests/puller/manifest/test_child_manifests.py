"""Child manifests: one run, one order and one list of problems. Properties of ``apply`` hold for all descendants."""

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from foundation.formatting import lines
from puller.errors import ManifestError
from puller.manifest.manifest import Manifest
from puller.reporting.report import Event
from puller.version import __version__

Load = Callable[..., Manifest]
Apply = Callable[..., dict[str, Event]]


def states(events: Mapping[str, Event]) -> dict[str, str]:
    return {name: event.state.value for name, event in events.items()}


def refused(load_all: Load, files: Mapping[str, str]) -> str:
    with pytest.raises(ManifestError) as error:
        load_all(files)
    return str(error.value)


def run(*names: str) -> str:
    """Return a manifest of commands that succeed."""
    return "resources:\n" + "".join(f"  - exec: {{name: {name}, command: 'true'}}\n" for name in names)


PARENT = """
    resources:
      - exec: {name: first, command: "true"}
      - apply: {name: roles/web.yaml, alias: web}
      - exec: {name: last, command: "true"}
"""


def test_the_resources_of_a_child_stand_in_the_place_of_apply(apply_all: Apply) -> None:
    events = apply_all({"manifest.yaml": PARENT, "roles/web.yaml": run("one", "two")})
    assert list(events) == ["first", "one", "two", "web", "last"]
    assert events["web"].children == {"changed": 2}


def test_references_lead_across_manifests_in_both_directions(apply_all: Apply) -> None:
    parent = """
        resources:
          - exec: {name: early, command: "true", require: [exec#two]}
          - apply: {name: web.yaml}
          - exec: {name: late, command: "true"}
    """
    child = """
        resources:
          - exec: {name: one, command: "true", after: [exec#late]}
          - exec: {name: two, command: "true"}
    """
    assert list(apply_all({"manifest.yaml": parent, "web.yaml": child})) == [
        *("two", "early", "late", "one", "web.yaml")
    ]


def test_a_child_fails_as_its_resources_do_and_the_run_goes_on(apply_all: Apply) -> None:
    parent = PARENT + "      - exec: {name: wants, command: 'true', require: [apply#web]}\n"
    child = "resources: [{exec: {name: 'false'}}, {exec: {name: fine, command: 'true'}}]"
    events = apply_all({"manifest.yaml": parent, "roles/web.yaml": child})
    assert states(events) == {
        "first": "changed",
        "false": "failed",
        "fine": "changed",
        "web": "failed",
        "last": "changed",
        "wants": "skipped",
    }
    assert events["web"].errors == ["child manifest had 1 failed resources"]
    assert events["web"].children == {"failed": 1, "changed": 1}
    assert lines(events["web"].differences) == ["resources: 1 of 2"]
    assert events["wants"].unmet_requirements == ["apply#web"]


def test_resources_below_inherit_requirements_of_apply(apply_all: Apply) -> None:
    parent = """
        resources:
          - apply: {name: a.yaml, require: [exec#false]}
          - exec: {name: "false"}
    """
    files = {"manifest.yaml": parent, "a.yaml": "resources: [{apply: {name: b.yaml}}]", "b.yaml": run("deep")}
    events = apply_all(files)
    assert states(events) == {"false": "failed", "deep": "skipped", "b.yaml": "skipped", "a.yaml": "skipped"}
    assert events["deep"].unmet_requirements == ["exec#false"]


def test_change_below_refreshes_a_subscriber_of_the_child(apply_all: Apply, tmp_path: Path) -> None:
    parent = """
        resources:
          - apply: {name: a.yaml}
          - exec: {name: reload, command: "sh -c 'echo x >> DIR/log'", refreshonly: true, subscribe: [apply#a.yaml]}
    """
    leaf = "resources: [{file: {name: DIR/conf, content: '{{ facts.text }}', IDS}}]"
    files = {"manifest.yaml": parent, "a.yaml": "resources: [{apply: {name: b.yaml}}]", "b.yaml": leaf}
    assert states(apply_all(files, noop=True, text="1"))["reload"] == "would change"
    assert states(apply_all(files, text="1"))["reload"] == "refreshed"
    assert set(states(apply_all(files, text="1")).values()) == {"stable"}
    assert (tmp_path / "log").read_text() == "x\n"


def test_a_refresh_that_a_child_owes_survives_a_failure(apply_all: Apply, tmp_path: Path) -> None:
    parent = """
        resources:
          - apply: {name: a.yaml}
          - exec: {name: reload, command: "test -e DIR/ready", refreshonly: true, subscribe: [apply#a.yaml]}
    """
    files = {"manifest.yaml": parent, "a.yaml": "resources: [{file: {name: DIR/conf, content: x, IDS}}]"}
    assert states(apply_all(files))["reload"] == "failed"
    (tmp_path / "ready").touch()
    assert states(apply_all(files)) == {
        f"{tmp_path}/conf": "stable",
        "a.yaml": "stable",
        "reload": "refreshed",
    }


def test_control_of_apply_covers_all_resources_below(apply_all: Apply) -> None:
    parent = """
        data: {wanted: false}
        resources:
          - apply: {name: a.yaml, control: {if: data.wanted}}
          - exec: {name: next, command: "true", require: [exec#one]}
    """
    events = apply_all({"manifest.yaml": parent, "a.yaml": "data: {wanted: true}\n" + run("one")})
    assert states(events) == {"one": "skipped", "a.yaml": "skipped", "next": "changed"}
    assert events["one"].skip_reason == "apply#a.yaml: control: if data.wanted is false"


def test_a_child_in_noop_changes_nothing_and_refreshes_nobody(apply_all: Apply) -> None:
    """The reference reports the child as changed, runs its subscribers, and omits ``noop`` from its event."""
    parent = """
        resources:
          - apply: {name: a.yaml, noop: true}
          - exec: {name: reload, command: "true", refreshonly: true, subscribe: [apply#a.yaml, exec#one]}
    """
    child = "resources: [{exec: {name: one, command: 'true', noop: false}}]"
    events = apply_all({"manifest.yaml": parent, "a.yaml": child})
    assert states(events) == {"one": "would change", "a.yaml": "would change", "reload": "stable"}
    assert events["a.yaml"].noop
    assert events["a.yaml"].noop_message == "Would have changed 1 of 1 resource"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", '{"port": 80, "user": "web", "list": ["child", "parent"]}'),
        ("data: {}", '{"port": 1, "user": "web", "list": ["child"]}'),
        ("data: {port: 8080}", '{"port": 8080, "user": "web", "list": ["child"]}'),
        ("data: {port: '{{ data.port + 1 }}'}", '{"port": 81, "user": "web", "list": ["child"]}'),
    ],
)
def test_a_child_gets_the_data_it_is_given_or_all_of_its_parents(
    apply_all: Apply, tmp_path: Path, given: str, expected: str
) -> None:
    parent = f"data: {{port: 80, list: [parent]}}\nresources: [{{apply: {{name: a.yaml, {given}}}}}]"
    child = """
        data: {port: 1, user: web, list: [child]}
        resources: [{file: {name: DIR/out, content: "{{ data | to_json }}", IDS}}]
    """
    apply_all({"manifest.yaml": parent, "a.yaml": child})
    assert (tmp_path / "out").read_text() == expected


def test_paths_and_names_are_relative_to_the_child(apply_all: Apply, tmp_path: Path) -> None:
    """Children with the same name in different directories are different resources."""
    parent = "resources: [{apply: [{a/main.yaml: }, {b/main.yaml: }]}]"
    main = """
        resources:
          - apply: {name: files.yaml}
          - exec: {name: NAME, command: "true", require: [apply#files.yaml]}
    """
    leaf = "resources: [{file: {name: DIR/NAME, source: text, IDS}}]"
    files = {"manifest.yaml": parent}
    for name in ("a", "b"):
        files |= {f"{name}/main.yaml": main.replace("NAME", name)}
        files |= {f"{name}/files.yaml": leaf.replace("NAME", name), f"{name}/text": name}
    events = apply_all(files)
    assert {"a/files.yaml", "b/files.yaml", "a/main.yaml", "b/main.yaml"} <= set(events)
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("a", "b")


@pytest.mark.parametrize(("where", "last"), [("manifest.yaml", "skipped"), ("roles/web.yaml", "changed")])
def test_fail_on_error_stops_the_manifest_that_says_so(apply_all: Apply, where: str, last: str) -> None:
    child = "resources: [{exec: {name: 'false'}}, {exec: {name: rest, command: 'true'}}]\n"
    files = {"manifest.yaml": textwrap.dedent(PARENT), "roles/web.yaml": child}
    files[where] += "fail_on_error: true\n"
    events = apply_all(files)
    assert (events["rest"].reached, events["last"].state.value) == (False, last)
    assert events["rest"].skip_reason == "exec#false failed, and fail_on_error is set"
    assert events["web"].state == "failed"
    assert events["web"].errors == ["child manifest had 1 failed resources, and 1 skipped"]


def test_unstarted_child_is_skipped_when_its_parent_stops(apply_all: Apply) -> None:
    parent = "fail_on_error: true\nresources: [{exec: {name: 'false'}}, {apply: {name: a.yaml}}]"
    events = apply_all({"manifest.yaml": parent, "a.yaml": run("one")})
    assert (events["a.yaml"].state, events["a.yaml"].reached) == ("skipped", False)


def test_health_checks_of_apply_run_after_its_resources(apply_all: Apply) -> None:
    parent = "resources: [{apply: {name: a.yaml, health_checks: [{command: 'test -e DIR/up'}]}}]"
    good = {"manifest.yaml": parent, "a.yaml": "resources: [{file: {name: DIR/up, content: x, IDS}}]"}
    assert states(apply_all(good))["a.yaml"] == "changed"
    bad = {**good, "a.yaml": "resources: [{exec: {name: 'false'}}]"}
    assert apply_all(bad)["a.yaml"].health_checks == []


CHAIN = {f"{n}.yaml": f"resources: [{{apply: {{name: {n + 1}.yaml}}}}]" for n in range(1, 11)}

REFUSED = [
    (
        "itself",
        {"manifest.yaml": "manifest.yaml"},
        "manifests apply each other in a cycle: manifest.yaml → manifest.yaml",
    ),
    (
        "each other",
        {"manifest.yaml": "a.yaml", "a.yaml": "b.yaml", "b.yaml": "a.yaml"},
        "web/b.yaml:1: resources[0] apply#a.yaml: manifests apply each other in a cycle: "
        "manifest.yaml → a.yaml → b.yaml → a.yaml",
    ),
    ("outside", {"manifest.yaml": "../other.yaml"}, "../other.yaml is outside of the bundle"),
    (
        "absolute",
        {"manifest.yaml": "/etc/x.yaml"},
        "name is '/etc/x.yaml', expected a path relative to the manifest",
    ),
    ("a URL", {"manifest.yaml": "https://a/b.yaml"}, "name must be a file path, not a URL"),
    ("missing", {"manifest.yaml": "none.yaml"}, "apply#none.yaml: web/none.yaml: does not exist ("),
]


@pytest.mark.parametrize(("name", "applied", "message"), REFUSED, ids=[name for name, _, _ in REFUSED])
def test_a_child_that_must_not_be_applied_is_refused(
    load_all: Load, name: str, applied: Mapping[str, str], message: str
) -> None:
    del name
    files = {item: f"resources: [{{apply: {{name: '{other}'}}}}]" for item, other in applied.items()}
    assert message in refused(load_all, files)


def test_ten_manifests_within_each_other_are_the_most(load_all: Load) -> None:
    """The reference always passes a depth of 0, and recurses until it crashes."""
    files = {"manifest.yaml": "resources: [{apply: {name: 1.yaml}}]", **CHAIN}
    assert len(load_all({**files, "10.yaml": run("deepest")}).declarations) == 11
    assert "web/10.yaml:1: resources[0] apply#11.yaml: maximum apply depth of 10 exceeded" in refused(
        load_all, {**files, "11.yaml": run("too deep")}
    )


def test_children_are_denied_to_a_child(load_all: Load) -> None:
    files = {
        "manifest.yaml": "resources: [{apply: {name: a.yaml, allow_apply: false}}]",
        "a.yaml": "resources: [{apply: {name: b.yaml}}]",
        "b.yaml": run("never"),
    }
    assert refused(load_all, files) == (
        "web/a.yaml:1: resources[0] apply#b.yaml: "
        "apply resources are denied, because of allow_apply at web/manifest.yaml:1"
    )


def test_everything_wrong_in_all_manifests_is_said_at_once(load_all: Load) -> None:
    files = {
        "manifest.yaml": """
            resources:
              - apply: [{a.yaml: }, {b.yaml: }, {c.yaml: {dta: {}}}]
              - exec: {name: one, require: [exec#none]}
        """,
        "a.yaml": "resources:\n  - exec: {name: two, requires: []}\n  - exec: {name: one, cwd: /tmp}\n",
        "b.yaml": "resources: [",
    }
    message = refused(load_all, files)
    assert (
        "web/manifest.yaml:3: resources[0] apply#c.yaml: dta is not a property of apply (did you mean"
        in message
    )
    assert "web/a.yaml:2: resources[0] exec#two: requires is not a property of exec (did you mean" in message
    assert "web/manifest.yaml:4: resources[1] exec#one: is declared twice, first at web/a.yaml:3" in message
    assert "web/b.yaml:" in message


def test_a_cycle_through_a_child_is_named(load_all: Load) -> None:
    child = "resources: [{exec: {name: one, command: 'true', require: [apply#a.yaml]}}]"
    files = {"manifest.yaml": "resources: [{apply: {name: a.yaml}}]", "a.yaml": child}
    assert "resources wait for each other: " in refused(load_all, files)


def test_a_secret_that_is_handed_down_stays_one(apply_all: Apply, tmp_path: Path) -> None:
    parent = """
        data:
          # @sensitive
          password: canary
        resources: [{apply: {name: a.yaml, data: {key: "{{ data.password }}"}}}]
    """
    child = "resources: [{file: {name: DIR/key, content: 'key={{ data.key }}', IDS}}]"
    events = apply_all({"manifest.yaml": parent, "a.yaml": child})
    assert (tmp_path / "key").read_text() == "key=canary"
    assert "canary" not in repr(events)


def test_unavailable_data_fail_the_child_alone(apply_all: Apply) -> None:
    parent = """
        resources:
          - apply: {name: a.yaml, data: {x: "{{ facts.missing }}"}}
          - exec: {name: next, command: "true"}
    """
    events = apply_all({"manifest.yaml": parent, "a.yaml": run("one")})
    assert states(events) == {"a.yaml": "failed", "next": "changed"}
    assert "data: x: {{ facts.missing }}: unknown key 'missing' in facts" in events["a.yaml"].errors[0]


def test_messages_of_a_child_are_not_shown_and_that_is_said(load_all: Load) -> None:
    files = {"manifest.yaml": "pre_message: top\nresources: [{apply: {name: a.yaml}}]"}
    manifest = load_all({**files, "a.yaml": run("one") + "post_message: done\ngive_up_after: 3\n"})
    assert list(map(str, manifest.warnings)) == [
        "web/a.yaml:4: give_up_after has no effect in a child manifest",
        "web/a.yaml:3: post_message has no effect in a child manifest",
    ]


BUNDLE = """\
resources:
  - apply: [{roles/motd.yaml: {data: {text: VERSION}}}]
"""
CHILD = b"""\
resources:
  - file:
      - "{{ facts.machine }}":
          {ensure: directory, owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0755"}
      - "{{ facts.machine }}/motd":
          {template: motd.j2, owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
"""


def test_a_published_bundle_brings_its_children(publisher: Any, host: Any) -> None:
    files = {"roles/motd.yaml": CHILD, "roles/motd.j2": b"version {{ data.text }}\n"}
    publisher.publish("1.0.0", BUNDLE, files=files)
    assert host.run().status == 0
    assert (host.machine / "motd").read_text() == "version 1.0.0\n"
    publisher.publish(
        "1.1.0", BUNDLE, files={**files, "roles/motd.yaml": b"resources: [{apply: {name: motd.yaml}}]"}
    )
    assert host.run().status == 13, "a child that is not valid keeps the bundle from becoming current"
    assert host.enforced == "1.0.0"


def test_child_for_another_puller_is_refused_with_its_parent(load_all: Load) -> None:
    child = "requires: {puller: '<0.0.1'}\nresources: [of_the_past: [a]]\n"
    with pytest.raises(ManifestError) as error:
        load_all({"manifest.yaml": "resources: [apply: [child.yaml]]", "child.yaml": child})
    assert tuple(map(str, error.value.problems)) == (
        f"web/child.yaml:1: requires Puller <0.0.1, but this is Puller {__version__}",
    )
