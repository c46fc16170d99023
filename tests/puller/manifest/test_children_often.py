"""A child manifest that several manifests apply: one instance for equal data, and one for each different data."""

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puller.engine.explanation import Recorder, explain_resource
from puller.errors import ManifestError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.reporting.report import Event

Load = Callable[..., Manifest]
Apply = Callable[..., dict[str, Event]]


def states(events: Mapping[str, Event]) -> dict[str, str]:
    return {name: event.state.value for name, event in events.items()}


def refused(load_all: Load, files: Mapping[str, str]) -> str:
    with pytest.raises(ManifestError) as error:
        load_all(files)
    return str(error.value)


def references(manifest: Manifest) -> list[str]:
    return [str(manifest.declarations[index].reference) for index in manifest.order]


def applying(*bodies: str) -> str:
    """Return a manifest that applies these children."""
    return "resources:\n" + "".join(f"  - apply: {{name: {body}}}\n" for body in bodies)


ONE = "resources: [{exec: {name: one, command: 'true'}}]"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"manifest.yaml": applying("c.yaml", "c.yaml")}, ["exec#one", "apply#c.yaml"]),
        ({"manifest.yaml": applying("c.yaml", "./sub/../c.yaml")}, ["exec#one", "apply#c.yaml"]),
        (
            {"manifest.yaml": applying("a.yaml", "c.yaml"), "a.yaml": applying("c.yaml")},
            ["exec#one", "apply#c.yaml", "apply#a.yaml"],
        ),
        (
            {
                "manifest.yaml": applying("a.yaml", "b.yaml"),
                "a.yaml": applying("c.yaml"),
                "b.yaml": applying("c.yaml"),
            },
            ["exec#one", "apply#c.yaml", "apply#a.yaml", "apply#b.yaml"],
        ),
        (
            {"manifest.yaml": applying("c.yaml, data: {x: 1, y: [2]}", "c.yaml, data: {y: [2], x: 1}")},
            ["exec#one", "apply#c.yaml"],
        ),
        (
            {
                "manifest.yaml": "data: {x: 1}\n"
                + applying("c.yaml, data: {x: 1}", "c.yaml, data: {x: '{{ data.x }}'}")
            },
            ["exec#one", "apply#c.yaml"],
        ),
        (
            {"manifest.yaml": applying("c.yaml", "c.yaml, data: {}")},
            ["exec#one", "apply#c.yaml"],
        ),
    ],
)
def test_equal_data_make_a_single_child(
    load_all: Load, files: Mapping[str, str], expected: list[str]
) -> None:
    assert references(load_all({**files, "c.yaml": ONE})) == expected


@pytest.mark.parametrize(
    "bodies",
    [
        ("c.yaml, data: {x: 1}", "c.yaml, data: {x: 2}"),
        ("c.yaml, data: {x: 1}", "c.yaml, data: {x: '1'}"),
        ("c.yaml, data: {x: 1}", "c.yaml, data: {x: true}"),
        ("c.yaml, data: {x: 1}", "c.yaml, data: {x: 1.0}"),
        ("c.yaml, data: {x: 1}", "c.yaml"),
        ("c.yaml, data: {}", "c.yaml"),
    ],
)
def test_with_other_data_it_is_another_child(load_all: Load, bodies: tuple[str, str]) -> None:
    child = "data: {x: z}\nresources: [{exec: {name: '{{ data.x | to_json }}', command: 'true'}}]"
    top = "data: {x: w}\n" + applying(*bodies)
    manifest = load_all({"manifest.yaml": top, "c.yaml": child})
    assert references(manifest).count("apply#c.yaml") == 2
    assert manifest.declarations[1].child is not manifest.declarations[3].child


def test_sensitive_data_make_another_child(load_all: Load) -> None:
    """Otherwise the output would show a value that only one of its parents declares as a secret."""
    own = "data:\n  # @sensitive\n  p: canary\n"
    files = {
        "manifest.yaml": applying("a.yaml", "b.yaml"),
        "a.yaml": applying("c.yaml, data: {}"),
        "b.yaml": own + applying("c.yaml, data: {}"),
        "c.yaml": ONE,
    }
    manifest = load_all(files)
    assert references(manifest).count("apply#c.yaml") == 2
    assert references(manifest).count("exec#one") == 1, "and what they declare alike is one resource still"


def test_a_link_to_a_child_is_the_child_and_both_names_mean_it(load_all: Load, tmp_path: Path) -> None:
    files = {"manifest.yaml": ONE, "c.yaml": ONE}
    load_all(files)
    (tmp_path / "web" / "link.yaml").symlink_to("c.yaml")
    top = (
        applying("c.yaml", "link.yaml") + "  - exec: {name: two, require: [apply#link.yaml, apply#c.yaml]}\n"
    )
    manifest = load_all({"manifest.yaml": top, "c.yaml": ONE})
    assert references(manifest) == ["exec#one", "apply#c.yaml", "exec#two"]


def test_all_declarations_of_a_child_count(apply_all: Apply) -> None:
    top = """
        resources:
          - exec: {name: early, command: "true"}
          - exec: {name: late, command: "true"}
          - apply: {name: c.yaml, alias: first, require: [exec#early], health_checks: [{command: "true"}]}
          - apply: {name: a.yaml}
          - exec: {name: last, command: "true", require: [apply#first, apply#second]}
    """
    again = """
        resources:
          - apply: {name: c.yaml, alias: second, after: [exec#late], health_checks: [{command: "true", name: b}]}
    """
    events = apply_all({"manifest.yaml": top, "a.yaml": again, "c.yaml": ONE})
    assert list(events) == ["early", "late", "one", "first", "a.yaml", "last"]
    assert [check.name for check in events["first"].health_checks] == ["true", "b"]
    assert events["first"].applied == [
        "by web/manifest.yaml as first, with its data",
        "by web/a.yaml as second, with its data",
    ]


# Control, noop, allow_apply

MANAGED = [
    ("", "", "changed"),
    ("", ", control: {if: 'false'}", "changed"),
    (", control: {if: 'false'}", "", "changed"),
    (", control: {if: 'false'}", ", control: {unless: 'true'}", "skipped"),
]


@pytest.mark.parametrize(("first", "second", "state"), MANAGED)
def test_a_child_is_managed_when_any_that_applies_it_is(
    apply_all: Apply, first: str, second: str, state: str
) -> None:
    direct = {"manifest.yaml": applying(f"c.yaml{first}", f"c.yaml{second}"), "c.yaml": ONE}
    assert states(apply_all(direct))["one"] == state
    through = {
        "manifest.yaml": applying(f"a.yaml{first}", f"b.yaml{second}"),
        "a.yaml": applying("c.yaml"),
        "b.yaml": applying("c.yaml"),
        "c.yaml": ONE,
    }
    assert states(apply_all(through))["one"] == state


def test_each_place_has_its_conditions_with_its_own_data(apply_all: Apply) -> None:
    files = {
        "manifest.yaml": applying("a.yaml, data: {wanted: false}", "b.yaml, data: {wanted: true}"),
        "a.yaml": applying("c.yaml, data: {}, control: {if: data.wanted}"),
        "b.yaml": applying("c.yaml, data: {}, control: {if: data.wanted}"),
        "c.yaml": ONE,
    }
    assert states(apply_all(files))["one"] == "changed"


def test_child_with_partial_noop_is_refused(load_all: Load) -> None:
    top = applying("c.yaml", "c.yaml, noop: true")
    assert refused(load_all, {"manifest.yaml": top, "c.yaml": ONE}) == (
        "web/manifest.yaml:3: resources[1] apply#c.yaml: is declared twice, first at web/manifest.yaml:2, and the two"
        " differ: noop is true here and false there (use the same values in both, or declare it once)"
    )


def test_the_manifest_that_makes_it_noop_is_named(load_all: Load) -> None:
    files = {
        "manifest.yaml": applying("a.yaml, noop: true", "c.yaml"),
        "a.yaml": applying("c.yaml"),
        "c.yaml": ONE,
    }
    assert "noop is false here and true by apply#a.yaml there" in refused(load_all, files)


def test_a_child_is_sensitive_when_any_that_applies_it_says_so(load_all: Load) -> None:
    files = {
        "manifest.yaml": applying("c.yaml", "a.yaml, sensitive: true"),
        "a.yaml": applying("c.yaml"),
        "c.yaml": applying("d.yaml"),
        "d.yaml": ONE,
    }
    assert all(declaration.properties.sensitive for declaration in load_all(files).declarations)


@pytest.mark.parametrize("order", [0, 1])
def test_allow_apply_is_not_got_round_by_who_applies_it_too(load_all: Load, order: int) -> None:
    bodies = ["a.yaml", "a.yaml, allow_apply: false"]
    files = {
        "manifest.yaml": applying(*(bodies if order else bodies[::-1])),
        "a.yaml": applying("c.yaml"),
        "c.yaml": ONE,
    }
    assert refused(load_all, files) == (
        "web/a.yaml:2: resources[0] apply#c.yaml: apply resources are denied, because of allow_apply at"
        f" web/manifest.yaml:{2 + order}"
    )


def test_depth_counts_from_wherever_a_child_is_applied(load_all: Load) -> None:
    chain = {f"{n}.yaml": applying(f"{n + 1}.yaml") for n in range(1, 7)} | {"7.yaml": ONE}
    other = {f"o{n}.yaml": applying(f"o{n + 1}.yaml") for n in range(1, 4)} | {"o4.yaml": applying("1.yaml")}
    for bodies in (["1.yaml", "o1.yaml"], ["o1.yaml", "1.yaml"]):
        message = refused(load_all, {**chain, **other, "manifest.yaml": applying(*bodies)})
        assert "maximum apply depth of 10 exceeded" in message
    load_all(
        {**chain, **other, "o3.yaml": applying("1.yaml"), "manifest.yaml": applying("1.yaml", "o1.yaml")}
    )


def test_a_circle_is_named_also_when_it_is_met_with_other_data(load_all: Load) -> None:
    files = {
        "manifest.yaml": applying("a.yaml"),
        "a.yaml": applying("b.yaml"),
        "b.yaml": applying("a.yaml, data: {x: 1}"),
    }
    assert "manifests apply each other in a cycle: manifest.yaml → a.yaml → b.yaml → a.yaml" in refused(
        load_all, files
    )


def test_inapplicable_declaration_leaves_the_child_to_others(apply_all: Apply) -> None:
    files = {
        "manifest.yaml": applying("a.yaml, data: {x: '{{ facts.nope }}'}", "b.yaml"),
        "a.yaml": applying("c.yaml, data: {}"),
        "b.yaml": applying("c.yaml, data: {}"),
        "c.yaml": ONE,
    }
    assert states(apply_all(files)) == {
        "a.yaml": "failed",
        "one": "changed",
        "c.yaml": "changed",
        "b.yaml": "changed",
    }


def test_problem_of_a_child_is_reported_once(load_all: Load) -> None:
    files = {
        "manifest.yaml": applying("c.yaml, data: {x: 1}", "c.yaml, data: {x: 2}"),
        "c.yaml": "resources: [{exec: {name: one, comand: 'true'}}]",
    }
    assert refused(load_all, files).count("comand") == 1


# Instances

VHOST = """
    resources:
      - file: {name: "DIR/{{ data.name }}.conf", content: "{{ data.port }}", IDS}
"""


def test_instances_with_distinct_names_coexist(apply_all: Apply, tmp_path: Path) -> None:
    top = """
        resources:
          - apply:
              - vhost.yaml: {alias: shop, data: {name: shop, port: 81}}
          - apply:
              - vhost.yaml: {alias: wiki, data: {name: wiki, port: 82}}
          - exec: {name: reload, command: "true", refreshonly: true, subscribe: [apply#vhost.yaml]}
          - exec: {name: of shop, command: "true", refreshonly: true, subscribe: [apply#shop]}
    """
    events = apply_all({"manifest.yaml": top, "vhost.yaml": VHOST})
    assert (tmp_path / "shop.conf").read_text() == "81"
    assert (tmp_path / "wiki.conf").read_text() == "82"
    assert events["shop"].applied == ['by web/manifest.yaml as shop, with name: "shop", port: 81']
    assert states(events)["reload"] == "refreshed"
    top = top.replace("port: 82", "port: 83")
    events = apply_all({"manifest.yaml": top, "vhost.yaml": VHOST})
    assert (states(events)["reload"], states(events)["of shop"]) == ("refreshed", "stable")


def test_conflicting_instances_show_their_data_difference(load_all: Load) -> None:
    child = """
        resources:
          - file: {name: /etc/vhost.conf, content: "{{ data.port }}", owner: root, group: root, mode: "0644"}
    """
    files = {
        "manifest.yaml": applying("v.yaml, data: {port: 1, same: 1}", "v.yaml, data: {port: 2, same: 1}"),
        "v.yaml": child,
    }
    assert refused(load_all, files) == (
        "web/v.yaml:3: resources[0] file#/etc/vhost.conf: is declared twice, first at web/v.yaml:3, and the two"
        " differ: content is '2' here and '1' there (v.yaml is applied with data that differ in port: give each a"
        " resource name of its own, or use the same values in both, or declare it once)"
    )


def test_a_secret_in_the_data_of_an_instance_is_shown_nowhere(apply_all: Apply) -> None:
    top = """
        data:
          # @sensitive
          password: canary
        resources:
          - apply: {name: c.yaml, data: {key: "{{ data.password }}", plain: 1}}
          - apply: {name: d.yaml, sensitive: true, data: {key: hidden}}
    """
    events = apply_all(
        {"manifest.yaml": top, "c.yaml": ONE, "d.yaml": "resources: [{exec: {name: two, command: 'true'}}]"}
    )
    assert events["c.yaml"].applied == [
        'by web/manifest.yaml, with key: "Sensitive [value redacted]", plain: 1'
    ]
    assert events["d.yaml"].applied == ["by web/manifest.yaml, with key: (sensitive)"]


def test_who_names_a_child_means_all_of_its_instances(apply_all: Apply) -> None:
    top = """
        resources:
          - apply: [{c.yaml: {alias: good, data: {command: "true"}}}, {c.yaml: {alias: bad, data: {command: "false"}}}]
          - exec: {name: all, command: "true", require: [apply#c.yaml]}
          - exec: {name: good one, command: "true", require: [apply#good]}
    """
    child = "resources: [{exec: {name: '{{ data.command }}'}}]"
    events = apply_all({"manifest.yaml": top, "c.yaml": child})
    assert (states(events)["all"], states(events)["good one"]) == ("skipped", "changed")
    assert events["all"].unmet_requirements == ["apply#c.yaml"]


def test_loop_applies_a_child_for_each_item(load_all: Load) -> None:
    user = "resources: [{exec: [{'echo {{ data.name }}': {}}]}]"
    top = """
        data: {names: [joe, ann, joe]}
        resources:
          - apply:
              - for: name in data.names
                user.yaml: {alias: "{{ name }}", data: {name: "{{ name }}"}}
          - exec: [{echo after: {require: [apply#ann]}}]
    """
    manifest = load_all({"manifest.yaml": top, "user.yaml": user})
    assert [str(manifest.declarations[index]) for index in manifest.order] == [
        "exec#echo joe",
        "apply#user.yaml",
        "exec#echo ann",
        "apply#user.yaml",
        "exec#echo after",
    ]


def test_alias_belongs_to_an_instance(load_all: Load) -> None:
    files = {
        "manifest.yaml": applying("c.yaml, alias: v, data: {x: 1}", "c.yaml, alias: v, data: {x: 2}"),
        "c.yaml": ONE,
    }
    assert "apply#v is also the name of the resource at web/manifest.yaml:2" in refused(load_all, files)


# References and inherited properties

CURL = "{exec: {name: curl, command: 'true'}}"

WAITS: dict[str, tuple[dict[str, str], list[str]]] = {
    # resources that "curl" requires in these files
    "a child": ({"manifest.yaml": applying("a.yaml, require: [exec#x]") + "X"}, ["exec#x"]),
    "a child and its parent": (
        {"manifest.yaml": applying("a.yaml, require: [exec#x]") + f"  - {CURL}\nX"},
        [],
    ),
    "two children, of which one waits": (
        {"manifest.yaml": applying("a.yaml, require: [exec#x]", "b.yaml") + "X"},
        [],
    ),
    "two children that both wait": (
        {"manifest.yaml": applying("a.yaml, require: [exec#x, exec#y]", "b.yaml, require: [exec#x]") + "X"},
        ["exec#x"],
    ),
    "one child, applied twice": (
        {"manifest.yaml": applying("a.yaml, require: [exec#x]", "a.yaml, require: [exec#y]") + "X"},
        ["exec#x", "exec#y"],
    ),
    "a grandchild through two, of which one waits": (
        {
            "manifest.yaml": applying("p.yaml, require: [exec#x]", "q.yaml") + "X",
            **dict.fromkeys(["p.yaml", "q.yaml"], applying("a.yaml")),
        },
        [],
    ),
    "of two children one is managed in any case, and waits": (
        {"manifest.yaml": applying("a.yaml, require: [exec#x]", "b.yaml, control: {if: 'false'}") + "X"},
        ["exec#x"],
    ),
    "none of two children is managed in any case": (
        {
            "manifest.yaml": applying(
                "a.yaml, require: [exec#x], control: {if: 'true'}", "b.yaml, control: {if: 'false'}"
            )
            + "X"
        },
        ["exec#x"],
    ),
    "none of two that wait for different resources is managed in any case": (
        {
            "manifest.yaml": applying(
                "a.yaml, require: [exec#x], control: {if: 'true'}",
                "b.yaml, require: [exec#y], control: {if: 'true'}",
            )
            + "X"
        },
        ["exec#x", "exec#y"],
    ),
    "two children that wait for each other's resources would": (
        {
            "manifest.yaml": applying("b.yaml", "a.yaml, require: [exec#x]")
            + "  - exec: {name: x, command: 'true', require: [apply#b.yaml]}\n"
        },
        [],
    ),
}


@pytest.mark.parametrize("name", WAITS)
def test_resource_waits_for_requirements_of_all_manifests(load_all: Load, name: str) -> None:
    files, expected = WAITS[name]
    additional = "".join(f"  - exec: {{name: {x}, command: 'true'}}\n" for x in ("x", "y"))
    files = {name: text.replace("X", additional) for name, text in files.items()}
    manifest = load_all({"a.yaml": f"resources: [{CURL}]", "b.yaml": f"resources: [{CURL}]", **files})
    index = [str(declaration.reference) for declaration in manifest.declarations].index("exec#curl")
    assert [str(reference) for reference, _ in manifest.requirements(index)] == expected
    order = references(manifest)
    assert all(order.index(reference) < order.index("exec#curl") for reference in expected)


def test_unmanaged_resource_does_not_bypass_requirements(
    apply_all: Apply,
) -> None:
    top = (
        applying("a.yaml, require: [exec#false]", "b.yaml, control: {if: 'false'}")
        + "  - exec: {name: 'false'}\n"
    )
    files = {"manifest.yaml": top, "a.yaml": f"resources: [{CURL}]", "b.yaml": f"resources: [{CURL}]"}
    assert states(apply_all(files))["curl"] == "skipped"


@pytest.mark.parametrize(
    ("where", "reference"),
    [
        ("manifest.yaml", "apply#roles/base.yaml"),
        ("roles/web.yaml", "apply#base.yaml"),
        ("roles/web.yaml", "apply#roles/base.yaml"),
        ("other/db.yaml", "apply#../roles/base.yaml"),
        ("other/db.yaml", "apply#roles/base.yaml"),
    ],
)
def test_a_child_is_required_from_anywhere(apply_all: Apply, where: str, reference: str) -> None:
    top = applying("roles/web.yaml", "other/db.yaml", "roles/base.yaml")
    files = {
        "manifest.yaml": top,
        "roles/web.yaml": "resources:\n",
        "other/db.yaml": "resources:\n",
        "roles/base.yaml": "resources: [{exec: {name: 'false'}}]",
    }
    files[where] += f"  - exec: {{name: wants, command: 'true', require: ['{reference}']}}\n"
    files = {name: text if text != "resources:\n" else "resources: []" for name, text in files.items()}
    events = apply_all(files)
    assert events["wants"].unmet_requirements == [reference]


def test_child_requiring_its_parent_is_a_named_cycle(load_all: Load) -> None:
    files = {
        "manifest.yaml": applying("a.yaml"),
        "a.yaml": applying("c.yaml"),
        "c.yaml": "resources: [{exec: {name: one, command: 'true', require: [apply#a.yaml]}}]",
    }
    assert "resources wait for each other: exec#one → apply#a.yaml → apply#c.yaml → exec#one" in refused(
        load_all, files
    )


def test_failure_and_stop_affect_all_manifests_of_a_resource(apply_all: Apply) -> None:
    """``fail_on_error`` stops a manifest, but not a resource that another manifest also declares."""
    bad = "{exec: {name: 'false'}}"
    stopping = f"fail_on_error: true\nresources: [{bad}, {CURL}, {{exec: {{name: own, command: 'true'}}}}]"
    files = {
        "manifest.yaml": applying("a.yaml", "b.yaml"),
        "a.yaml": stopping,
        "b.yaml": f"resources: [{CURL}]",
    }
    assert states(apply_all(files)) == {
        "false": "failed",
        "curl": "changed",
        "own": "skipped",
        "a.yaml": "failed",
        "b.yaml": "changed",
    }
    files["b.yaml"] = f"resources: [{CURL}, {bad}]"
    assert states(apply_all(files))["b.yaml"] == "failed"


def test_stopped_manifest_does_not_bypass_requirements(apply_all: Apply) -> None:
    stopping = f"fail_on_error: true\nresources: [{{exec: {{name: 'false'}}}}, {CURL}]"
    files = {
        "manifest.yaml": applying("a.yaml", "b.yaml, require: [exec#false]"),
        "a.yaml": stopping,
        "b.yaml": f"resources: [{CURL}]",
    }
    events = apply_all(files)
    assert states(events) == {"false": "failed", "curl": "skipped", "a.yaml": "failed", "b.yaml": "skipped"}
    assert events["curl"].skip_reason == "exec#false failed, and fail_on_error is set"


def test_health_checks_of_managed_declarations_run(apply_all: Apply) -> None:
    top = """
        resources:
          - exec: {name: a, command: "true", health_checks: [{command: "true", name: here}]}
          - exec: {name: a, command: "true", control: {if: "false"}, health_checks: [{command: "false", name: away}]}
    """
    events = apply_all({"manifest.yaml": top})
    assert [check.name for check in events["a"].health_checks] == ["here"]


def test_resource_of_two_manifests_has_both_subscriptions(apply_all: Apply) -> None:
    reload = "{exec: {name: reload, command: 'true', refreshonly: true, subscribe: ['file#DIR/NAME']}}"
    conf = "{file: {name: DIR/NAME, content: '{{ facts.NAME }}', IDS}}"
    files = {"manifest.yaml": applying("a.yaml", "b.yaml")}
    for name in ("a", "b"):
        files[f"{name}.yaml"] = f"resources: [{conf}, {reload}]".replace("NAME", name)
    assert states(apply_all(files, a=1, b=1))["reload"] == "refreshed"
    for facts in ({"a": 2, "b": 1}, {"a": 2, "b": 2}):
        assert states(apply_all(files, **facts))["reload"] == "refreshed"
    assert states(apply_all(files, a=2, b=2))["reload"] == "stable"


# Laws


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    places=st.lists(
        st.sampled_from(["manifest.yaml", "a.yaml", "b.yaml", "sub/d.yaml"]), min_size=1, max_size=6
    )
)
def test_repeated_child_equals_a_single_child(tmp_path: Path, places: list[str]) -> None:
    def catalog(chosen: list[str]) -> tuple[Any, ...]:
        children = ["a.yaml", "b.yaml", "sub/d.yaml"]
        files: dict[str, list[str]] = {"manifest.yaml": children} | {child: [] for child in children}
        for place in chosen:
            files[place] = [*files[place], "../c.yaml" if "/" in place else "c.yaml"]
        for name, bodies in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(applying(*bodies) if bodies else "resources: []")
        (tmp_path / "c.yaml").write_text(textwrap.dedent(ONE))
        manifest = load_manifest(tmp_path / "manifest.yaml", "manifest.yaml", Inputs({}, {}))
        return tuple(sorted(repr(declaration.properties) for declaration in manifest.declarations))

    assert catalog(places) == catalog(places[:1])


def test_secrets_of_all_declaring_manifests_are_masked(apply_all: Apply) -> None:
    secret = "data:\n  # @sensitive\n  word: canary-NAME\n"
    command = "{exec: {name: say, command: \"sh -c 'echo canary-a canary-b; false'\"}}"
    files = {"manifest.yaml": applying("a.yaml", "b.yaml")}
    for name in ("a", "b"):
        files[f"{name}.yaml"] = f"{secret.replace('NAME', name)}resources: [{command}]"
    events = apply_all(files)
    assert events["say"].errors
    assert "canary" not in repr(events)


def test_explain_lists_instances_and_declarations(
    tmp_path: Path,
) -> None:
    (tmp_path / "manifest.yaml").write_text(
        applying("c.yaml, alias: first, data: {x: 1}", "c.yaml, data: {x: 2}") + "  - exec: [{one: {}}]\n"
    )
    (tmp_path / "c.yaml").write_text("resources:\n  - exec: {name: one}\n  - exec: {name: '{{ data.x }}'}\n")
    recorder = Recorder()
    manifest = load_manifest(tmp_path / "manifest.yaml", "m.yaml", Inputs({}, {}, watch=recorder.watch))
    of_child = list(explain_resource(manifest, "apply#c.yaml", recorder))
    assert [found["applied"] for found in of_child] == [
        ["by m.yaml as first, with x: 1"],
        ["by m.yaml, with x: 2"],
    ]
    assert [found["declared"] for found in of_child] == ["m.yaml:2", "m.yaml:3"]
    (shared,) = explain_resource(manifest, "exec#one", recorder)
    assert (shared["declared"], shared["also_declared"]) == ("c.yaml:2", ["m.yaml:4"])
    assert shared["below"] == ["apply#c.yaml (first)", "apply#c.yaml"]
    (own,) = explain_resource(manifest, "exec#2", recorder)
    assert [(use["name"], use["value"]) for use in own["uses"]] == [("data.x", 2)]


BASE = b"""\
resources:
  - file:
      - "{{ facts.machine }}": {ensure: directory, owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0755"}
      - "{{ facts.machine }}/base":
          {content: "{{ data.get('text', 'base') }}", owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
"""


def test_releases_may_change_the_number_of_instances(publisher: Any, host: Any) -> None:
    """Versions apply the child once, twice, with contradicting data, and once again."""
    roles = {"base.yaml": BASE, "web.yaml": applying("base.yaml, data: {}").encode()}
    once = applying("web.yaml")
    publisher.publish("1.0.0", once, files=roles)
    assert host.run().status == 0
    assert (host.machine / "base").read_text() == "base"
    publisher.publish("1.1.0", applying("web.yaml", "base.yaml, data: {}"), files=roles)
    assert host.run().status == 0
    publisher.publish("1.2.0", applying("web.yaml", "base.yaml, data: {text: other}"), files=roles)
    refused = host.run()
    assert refused.status == 13
    assert host.enforced == "1.1.0"
    assert (host.machine / "base").read_text() == "base"
    publisher.publish("1.3.0", once, files=roles)
    assert host.run().status == 0
    assert host.enforced == "1.3.0"
