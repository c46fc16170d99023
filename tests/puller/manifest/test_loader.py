"""Loading manifests: valid content, and all errors at once with file and line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foundation.problems import ProblemCode
from puller.errors import ManifestError, SourceError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.version import __version__

Load = Callable[..., Manifest]

ATTRIBUTES = "owner: root, group: root, mode: '0644'"


def problems(load: Load, text: str, **options: Any) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as error:
        load(text, **options)
    return tuple(map(str, error.value.problems))


def names(manifest: Manifest) -> list[str]:
    return [manifest.declarations[index].reference for index in manifest.order]


def test_both_shapes_of_a_body_declare_resources(load: Load) -> None:
    manifest = load("""
        resources:
          - file:
              - /a: {ensure: absent}
              - /b: {ensure: absent}
          - file: {name: /c, ensure: absent}
    """)
    assert names(manifest) == ["file#/a", "file#/b", "file#/c"]


def test_defaults_fill_missing_properties(load: Load) -> None:
    manifest = load("""
        resources:
          - exec:
              - defaults: {cwd: /tmp, returns: [0, 1], timeout: 9s, environment: [A=1]}
              - one: {returns: [2]}
              - two: {cwd: null, environment: []}
              - three:
    """)
    properties = [declaration.properties for declaration in manifest.declarations]
    seen = [(p.cwd, p.returns, p.timeout, p.environment) for p in properties]  # type: ignore[attr-defined]  # of exec
    assert seen == [
        ("/tmp", (2,), 9.0, ("A=1",)),
        ("/tmp", (0, 1), 9.0, ()),
        ("/tmp", (0, 1), 9.0, ("A=1",)),
    ]


def test_bare_name_uses_the_defaults_of_its_list(load: Load) -> None:
    manifest = load(
        """
        resources:
          - package: [nginx, "{{ data.shell }}", curl: {ensure: latest}, {for: name in data.more, "{{ name }}": }]
          - file:
              - /srv/a
              - defaults: {ensure: directory, owner: root, group: root, mode: "0750"}
              - /srv/b: {mode: "0700"}
        """,
        sources=({"shell": "zsh", "more": ["vim", "git"]},),
    )
    packages = [f"package#{name}" for name in ("nginx", "zsh", "curl", "vim", "git")]
    assert names(manifest) == [*packages, "file#/srv/a", "file#/srv/b"]
    modes = [str(getattr(declaration.properties, "mode", "")) for declaration in manifest.declarations]
    assert modes == ["", "", "", "", "", "0750", "0700"]


def test_bare_name_without_required_properties_is_an_error(load: Load) -> None:
    manifest = 'resources:\n  - file:\n      - /srv/a\n  - package: [defaults, for, 7, {for: "x in []"}]\n'
    item = "expected one name with its properties"
    missing = "is missing; it is required unless ensure is absent"
    assert problems(load, manifest) == (
        *(
            f"web/manifest.yaml:3: resources[0] file#/srv/a: {name} {missing}"
            for name in ("owner", "group", "mode")
        ),
        f"web/manifest.yaml:4: resources[1] package: is 'defaults', {item}",
        f"web/manifest.yaml:4: resources[1] package: is 'for', {item}",
        f"web/manifest.yaml:4: resources[1] package: is 7, {item}",
        f"web/manifest.yaml:4: resources[1] package: has for without a name beside it, {item}",
    )


@pytest.mark.parametrize("modes", [("{{ 'rw' }}", "0644"), ("0644", "{{ 'rw' }}")])
def test_broken_duplicate_is_a_failure_of_both(load: Load, modes: tuple[str, str]) -> None:
    first, other = modes
    manifest = load(
        f"""
        resources:
          - file:
              - /etc/x: {{content: a, owner: root, group: root, mode: "{first}", alias: x}}
              - /etc/x: {{content: a, owner: root, group: root, mode: "{other}"}}
          - exec: {{name: "true", require: [file#x]}}
        """
    )
    assert [declaration.failure[:13] for declaration in manifest.declarations] == ["mode is 'rw',", ""]


def test_an_alias_of_yaml_that_is_used_twice_is_two_resources(load: Load) -> None:
    manifest = load("""
        data: {n: 1}
        resources:
          - file: &f {name: "/{{ data.n }}", ensure: absent}
          - exec: {name: "true"}
    """)
    assert names(manifest) == ["file#/1", "exec#true"]


def test_single_expression_keeps_its_type(load: Load) -> None:
    manifest = load("""
        data: {codes: [0, 3], only: true}
        resources:
          - exec: {name: "true", returns: "{{ data.codes }}", refreshonly: "{{ data.only }}"}
    """)
    properties: Any = manifest.declarations[0].properties
    assert (properties.returns, properties.refreshonly) == ((0, 3), True)


def test_values_from_data_are_not_evaluated_again(load: Load) -> None:
    """The reference evaluates such text as code."""
    manifest = load(
        """
        data: {text: "{{ facts.text }}"}
        resources:
          - file: {name: /a, content: "{{ data.text }}", owner: root, group: root, mode: "0644"}
        """,
        facts={"text": "{{ 1 + 1 }}"},
    )
    properties: Any = manifest.declarations[0].properties
    assert properties.content == "{{ 1 + 1 }}"


def test_data_from_outside_wins_over_the_manifests_own(load: Load) -> None:
    manifest = load(
        """
        data: {a: {b: 1, c: [1]}}
        overrides: {default: {d: 1}}
        resources: [{exec: {name: "true"}}]
        """,
        sources=({"a": {"b": 2}}, {"a": {"c": [2]}, "d": 3}),
    )
    assert manifest.scope.data == {"a": {"b": 2, "c": [2]}, "d": 3}


def test_the_references_own_section_is_accepted(load: Load) -> None:
    manifest = load("""
        data: {n: a}
        ccm:
          fail_on_error: true
          pre_message: "about to {{ data.n }}"
          resources:
            - exec: [{"true": {}}]
    """)
    assert (manifest.fail_on_error, manifest.pre_message, names(manifest)) == (
        True,
        "about to a",
        ["exec#true"],
    )


def test_a_template_may_render_the_list_of_resources(load: Load, tmp_path: Path) -> None:
    (tmp_path / "resources.j2").write_text(
        "{% for name in data.names %}\n- file: {name: /{{ name }}, ensure: absent}\n{% endfor %}\n"
    )
    manifest = load("""
        data: {names: [a, b]}
        resources_template: resources.j2
    """)
    assert names(manifest) == ["file#/a", "file#/b"]


def test_a_problem_in_a_rendered_list_names_the_template(load: Load, tmp_path: Path) -> None:
    (tmp_path / "resources.j2").write_text("- file: {name: /a, ensure: absent}\n- fiel: {name: /b}\n")
    assert problems(load, "resources_template: resources.j2\n") == (
        "web/resources.j2 (rendered):2: resources[1]: unknown resource type 'fiel' (did you mean 'file'?)",
    )


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("- a: {}\n- b: {}\n- c: {}", ["a", "b", "c"]),
        ("- a: {require: [exec#c]}\n- b: {}\n- c: {}", ["c", "a", "b"]),
        ("- a: {after: [exec#b]}\n- b: {subscribe: [exec#c]}\n- c: {}", ["c", "b", "a"]),
        ("- a: {require: [exec#last]}\n- b: {}\n- c: {alias: last}", ["c", "a", "b"]),
    ],
)
def test_named_resource_comes_first(load: Load, text: str, order: list[str]) -> None:
    body = "\n".join(f"      {line}" for line in text.splitlines())
    assert names(load(f"resources:\n  - exec:\n{body}\n")) == [f"exec#{name}" for name in order]


def test_compatible_definitions_of_a_file_merge(load: Load) -> None:
    """TinyCM merges masks digit by digit. Either definition may set other properties."""
    manifest = load("""
        resources:
          - file: [{/a: {owner: root, group: root, mode: 7xx}}]
          - file: [{/a: {mode: xx0, content: text}}]
    """)
    properties: Any = manifest.declarations[0].properties
    assert len(manifest.declarations) == 1
    assert (str(properties.mode), properties.content, properties.owner) == ("7x0", "text", "root")


BAD = f"""\
data: {{a: 1}}
resource: []
resources:
  - file:
      - defaults: {{owner: root}}
      - defaults: {{group: root}}
      - /etc/x: {{owner: root, group: root, mode: 0644, contnet: hi}}
      - /etc/y: {{ensure: fil, {ATTRIBUTES}, require: [file#/etc/z]}}
      - /etc/y: {{{ATTRIBUTES.replace("0644", "0600")}}}
      - etc/z: {{{ATTRIBUTES.replace("0644", "0999")}}}
  - execc: [{{a: {{}}}}]
  - exec: [{{"echo 'a": {{}}}}, {{"b": {{timeout: soon, returns: 0}}}}]
  - exec: {{}}
  - exec: a
  - {{file: [], exec: []}}
  - file: [{{"{{{{ data.q }}}}": {{}}}}]
"""


def test_all_problems_are_found_at_once_each_with_its_line(load: Load) -> None:
    here = "web/manifest.yaml"
    mode = "octal digits such as '0644' or '2775', a mask such as 'x00', or changes such as 'u=rwX,go-w'"
    assert problems(load, BAD) == (
        f"{here}:2: unknown key 'resource' (did you mean 'resources'?)",
        f"{here}:6: resources[0]: defaults occurs twice in this list",
        f"{here}:7: resources[0] file#/etc/x: mode is a number, expected text; quote it, as '0644'",
        f"{here}:7: resources[0] file#/etc/x: contnet is not a property of file (did you mean 'content'?)",
        f"{here}:8: resources[0] file#/etc/y: ensure is 'fil', expected one of present, absent, directory, exists",
        f"{here}:8: resources[0] file#/etc/y: require names file#/etc/z, which is not declared"
        " (did you mean 'file#etc/z'?)",
        f"{here}:9: resources[0] file#/etc/y: is declared twice, first at {here}:8, and the two differ:"
        " mode is 0600 here and 0644 there, ensure is 'present' here and 'fil' there (use the same values in both, or"
        " declare it once)",
        f"{here}:10: resources[0] file#etc/z: mode is '0999', expected {mode}",
        f"{here}:10: resources[0] file#etc/z: name is 'etc/z', expected an absolute path without '.', '..' or doubled"
        " slashes",
        f"{here}:11: resources[1]: unknown resource type 'execc' (did you mean 'exec'?)",
        f"{here}:12: resources[2] exec#b: timeout is 'soon', expected a duration such as '30s', '1h30m' or '7d'",
        f"{here}:12: resources[2] exec#b: returns is 0, expected a list",
        f"{here}:12: resources[2] exec#echo 'a: name is \"echo 'a\", which has a single quote that is not closed",
        f"{here}:13: resources[3] exec: has no name; add the key 'name'",
        f"{here}:14: resources[4] exec: is 'a', expected a list of names, or one mapping with a name",
        f"{here}:15: resources[5]: is several types: file, exec, expected one type with its resources",
        f"{here}:15: resources[5] file: is an empty list, expected a list of names, or one mapping with a name",
        f"{here}:15: resources[5] exec: is an empty list, expected a list of names, or one mapping with a name",
        f"{here}:16: resources[6] file#{{{{ data.q }}}}: name: {{{{ data.q }}}}: unknown key 'q' in data",
        f"{here}:16: resources[6] file#{{{{ data.q }}}}: owner is missing; it is required unless ensure is absent",
        f"{here}:16: resources[6] file#{{{{ data.q }}}}: group is missing; it is required unless ensure is absent",
        f"{here}:16: resources[6] file#{{{{ data.q }}}}: mode is missing; it is required unless ensure is absent",
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not a mapping, expected keys such as data and resources"),
        ("- a\n", "is not a mapping, expected keys such as data and resources"),
        ("data: {}\n", "declares no resources, expected resources or resources_template"),
        ("resources: {}\n", "resources is an empty mapping, expected a list"),
        ("resources: []\nfail_on_error: maybe\n", "fail_on_error must be true or false"),
        ("resources: []\ngive_up_after: soon\n", "give_up_after is 'soon', expected a number of runs"),
        ("resources: []\ngive_up_after: -1\n", "give_up_after is -1, expected a number of runs"),
        ("resources: []\ngive_up_after: true\n", "give_up_after is True, expected a number of runs"),
        ("resources: []\nccm: {resources: []}\n", "resources cannot be used together with ccm"),
        (
            "resources: []\npre_message: '{{ facts.x }}'\n",
            "pre_message: {{ facts.x }}: unknown key 'x' in facts",
        ),
        ("a: [\n", "web/manifest.yaml:2:1: "),
        ("a: 1\na: 2\n", "web/manifest.yaml:2:1: "),
        ("resources: []\n---\nresources: []\n", "web/manifest.yaml:2:1: "),
        ("a: !!python/object:os.system x\n", "web/manifest.yaml:1:4: "),
        ("data: [1]\nresources: []\n", "web/manifest.yaml:1:1: data: is a list, expected a mapping"),
        (
            "resources: [{exec: {name: a, require: [exec#a]}}]\n",
            "resources wait for each other: exec#a → exec#a",
        ),
        (
            "resources:\n- exec: {name: a, after: [exec#b]}\n- exec: {name: b, subscribe: [exec#a]}\n",
            "resources wait for each other: exec#a → exec#b → exec#a",
        ),
        (
            "resources:\n- exec: {name: a, alias: b}\n- exec: {name: b}\n",
            "exec#b is also the name of the resource at",
        ),
        (
            "resources:\n- exec: {name: a}\n- exec: {name: a, cwd: /tmp}\n",
            "first at web/manifest.yaml:2, and the two differ: cwd is '/tmp' here and '/' there",
        ),
        ("resources:\n- exec: {name: 5}\n", "name is 5, expected text; quote it, as '5'"),
        ("resources:\n- exec: {name: a, returns: [x]}\n", "returns has text at [0], expected a whole number"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(load: Load, text: str, sentence: str) -> None:
    assert any(sentence in problem for problem in problems(load, text)), problems(load, text)


def test_numbers_are_not_turned_into_text_in_secret(load: Load) -> None:
    """The reference runs ``ensure: 5.10`` through a float, and installs 5.1."""
    assert problems(load, "resources:\n  - exec:\n      - 'true': {ensure: 5.10}\n") == (
        "web/manifest.yaml:3: resources[0] exec#true: ensure is 5.1, expected text; quote it, as '5.10'",
    )


def test_failed_expression_fails_its_resource_alone(load: Load) -> None:
    manifest = load("""
        resources:
          - exec:
              - one: {command: "{{ facts.nope }}"}
              - two: {}
              - three: {timeout: "{{ 'soon' }}"}
    """)
    failures = [declaration.failure for declaration in manifest.declarations]
    assert failures == [
        "command: {{ facts.nope }}: unknown key 'nope' in facts",
        "",
        "timeout is 'soon', expected a duration such as '30s', '1h30m' or '7d'",
    ]


def test_evaluated_values_may_contradict_without_refusal(load: Load) -> None:
    manifest = load("""
        data: {ensure: nonsense}
        resources:
          - file: {name: /a, ensure: "{{ data.ensure }}", owner: root, group: root, mode: "0644"}
    """)
    assert manifest.declarations[0].failure.startswith("ensure is 'nonsense', expected one of")


def test_files_of_the_bundle_can_be_read_and_no_others(load: Load, tmp_path: Path) -> None:
    (tmp_path / "version").write_text("1.4")
    text = """
        resources:
          - exec: {name: a, command: "{{ read_file('version') }}"}
          - exec: {name: b, command: "{{ file('/etc/passwd') }}"}
          - exec: {name: c, command: "{{ readFile('../secret') }}"}
    """
    first, second, third = load(text).declarations
    properties: Any = first.properties
    assert properties.command == "1.4"
    assert "/etc/passwd is outside of the bundle" in second.failure
    assert "../secret is outside of the bundle" in third.failure


def test_a_manifest_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"web/manifest\.yaml: does not exist \(/"):
        load_manifest(tmp_path / "manifest.yaml", "web/manifest.yaml", Inputs({}, {}))


def test_a_manifest_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ManifestError, match="is not UTF-8 text, at byte 3"):
        load_manifest(tmp_path / "manifest.yaml", "web/manifest.yaml", Inputs({}, {}))


ANNOTATED = """
    data:
      # @require
      # @validate isInt(value)
      port: PORT
      # @sensitive
      password: "{{ facts.password }}"
      # @requires
      other: 1
    resources:
      - exec: {name: "true", command: "login {{ data.password }} {{ data.port }}"}
"""


def test_annotations_are_checked_on_final_data(load: Load) -> None:
    findings = problems(load, ANNOTATED.replace("PORT", "null"), facts={"password": "x"})
    assert findings == ("web/manifest.yaml:3: data.port is required, but empty",)
    findings = problems(
        load, ANNOTATED.replace("PORT", "1"), facts={"password": "x"}, sources=({"port": "http"},)
    )
    assert findings == ("web/manifest.yaml:4: data.port is 'http', which does not satisfy: isInt(value)",)


def test_annotated_secret_taints_its_users(load: Load) -> None:
    manifest = load(ANNOTATED.replace("PORT", "80"), facts={"password": "canary"})
    properties: Any = manifest.declarations[0].properties
    assert properties.command == "login canary 80"
    assert properties.sensitive
    assert "canary" not in repr(manifest.scope.data)


SECRET = """
    data:
      # @sensitive
      token: canary
      state: "{{ 'present' if data.token else 'absent' }}"
    resources:
      - file: [{/etc/token: {ensure: ENSURE, content: "{{ data.token }}", owner: r, group: r, mode: "0600"}}]
"""


@pytest.mark.parametrize(("token", "ensure"), [("canary", "present"), ("", "absent")])
def test_ensure_can_test_a_secret(load: Load, token: str, ensure: str) -> None:
    text = SECRET.replace("ENSURE", "\"{{ 'present' if data.token else 'absent' }}\"")
    properties: Any = load(text, sources=({"token": token},)).declarations[0].properties
    assert properties.ensure == ensure
    assert properties.sensitive is (ensure == "present")


@pytest.mark.parametrize("expression", ["data.token", "data.state", "'pres' ~ data.token", "data['token']"])
def test_ensure_cannot_contain_a_secret(load: Load, expression: str) -> None:
    with pytest.raises(ManifestError) as refused:
        load(SECRET.replace("ENSURE", f'"{{{{ {expression} }}}}"'))
    (problem,) = refused.value.problems
    assert problem.code is ProblemCode.EXPOSED_SECRET
    assert problem.hint.startswith("test the secret in the expression of ensure")
    assert "canary" not in str(problem)


def test_an_unknown_annotation_is_a_warning(load: Load) -> None:
    manifest = load(ANNOTATED.replace("PORT", "80"), facts={"password": "x"})
    assert [str(warning) for warning in manifest.warnings] == [
        "web/manifest.yaml:8: unknown annotation @requires (did you mean '@require'?)"
    ]


def test_a_manifest_may_ask_for_the_puller_that_there_is(load: Load) -> None:
    for wanted in (">=0.1", ">=0.1, <999", f"=={__version__}"):
        assert names(load(f"requires: {{puller: '{wanted}'}}\nresources: [exec: [one]]")) == ["exec#one"]


def test_manifest_for_another_puller_reports_only_that(load: Load) -> None:
    output = problems(load, """
        requires:
          puller: ">=999.1"
        libraries: 5
        not_known_yet: 1
        resources:
          - of_the_future: [a]
    """)  # fmt: skip
    assert output == (f"web/manifest.yaml:3: requires Puller >=999.1, but this is Puller {__version__}",)


@pytest.mark.parametrize(
    "written",
    [
        "1.2",
        "['>=1']",
        "{}",
        "{puller: 1.2}",
        "{puller: '~1'}",
        "{pulller: '>=1'}",
        "{puller: '>=0', os: a}",
        "null",
    ],
)
def test_agent_requirements_are_reported_or_refused(load: Load, written: str) -> None:
    (output,) = problems(load, f"requires: {written}\nresources: [exec: [one]]")
    assert output.startswith("web/manifest.yaml:1: requires")
    assert "expected" in output
