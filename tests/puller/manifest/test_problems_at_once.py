"""All problems of a manifest are reported at once, each with a suggestion."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from puller.errors import ManifestError
from puller.manifest.manifest import Manifest

Load = Callable[..., Manifest]
SHA256 = "a" * 64
ATTRIBUTES = 'owner: root, group: root, mode: "0644"'


def problems(load: Load, text: str, **given: Any) -> list[str]:
    """Return all problems, without their places."""
    with pytest.raises(ManifestError) as error:
        load(text, **given)
    return [
        problem.split(": ", 2)[2] if "#" in problem else problem for problem in map(str, error.value.problems)
    ]


def one(load: Load, text: str, **given: Any) -> list[str]:
    """Return all problems of a manifest with this resource."""
    return problems(load, f"resources:\n  - {text}\n", **given)


AT_ONCE: Mapping[str, tuple[str, list[str]]] = {
    "file": (
        "file: [{etc/x: {mdoe: '0644', force: x, engine: mako, content: a, source: b, encoding: z}}]",
        [
            "mdoe is not a property of file (did you mean 'mode'?)",
            "force is 'x', expected true or false",
            "name is 'etc/x', expected an absolute path without '.', '..' or doubled slashes",
            "source cannot be given together with content",
            "engine is 'mako', expected jinja, jet or go",
            "encoding is 'z', which is not a known encoding",
            "owner is missing; it is required unless ensure is absent",
            "group is missing; it is required unless ensure is absent",
        ],
    ),
    "exec": (
        "exec: [{\"'\": {ensure: x, cwd: tmp, environment: [A, B], path: 'bin:/bin:x', timeout: 0, unless: \"'\"}}]",
        [
            "ensure is 'x', expected present",
            'name is "\'", which has a single quote that is not closed',
            'unless is "\'", which has a single quote that is not closed',
            "cwd is 'tmp', expected an absolute path",
            "environment has 'A', expected KEY=VALUE",
            "environment has 'B', expected KEY=VALUE",
            "path has 'bin', expected absolute directories separated by colons",
            "path has 'x', expected absolute directories separated by colons",
            "timeout is 0, expected a positive duration",
        ],
    ),
    "archive": (
        "archive: [{/a.rar: {url: 'ftp://x/a.zip', checksum: x, cleanup: true, username: x, creates: y, owner: root}}]",
        [
            "creates is 'y', expected an absolute path without '.', '..' or doubled slashes",
            "name is '/a.rar', expected a name that ends in "
            ".tar.gz, .tgz, .tar.xz, .txz, .tar.bz2, .tbz2, .tar.zst, .tzst, .tar, .zip",
            "url is 'ftp://x/a.zip', expected an http:// or https:// URL",
            "group is missing; it is required unless ensure is absent",
            "checksum is 'x', expected 64 lower-case hexadecimal digits (SHA-256)",
            "cleanup wants extract_parent",
            "username and password require each other",
        ],
    ),
    "scaffold": (
        "scaffold: [{srv: {ensure: x, engine: mako, owner: '', group: '', post: [{a: b, c: d}], purge: 1}}]",
        [
            "purge is 1, expected true or false",
            "source is missing",
            "ensure is 'x', expected present or absent",
            "name is 'srv', expected an absolute path without '.', '..' or doubled slashes",
            "owner is empty",
            "group is empty",
            "engine is 'mako', expected jet, go or jinja",
            "post has 2 patterns in one entry, expected one",
        ],
    ),
    "package": (
        "package: [{-x: {ensure: '!', timeout: 0}}]",
        [
            "name is '-x', expected letters, digits and . + _ : ~ -, a letter or digit first",
            "ensure is '!', expected present, absent, latest, purged or a version such as '1.24.0-1'",
            "timeout is 0, expected a positive duration",
        ],
    ),
    "repository": (
        "repository: [{-x: {ensure: x, url: 'http://me@x', suites: [a/], components: ['b c'], priority: 0}}]",
        [
            "name is '-x', expected letters, digits, _ and -, and no - first",
            "ensure is 'x', expected present or absent",
            "url has credentials, expected them in /etc/apt/auth.conf.d or the like",
            "components has 'b c', expected a word without blanks",
            "components is given, and 'a/' is a directory without components",
            "priority is 0, expected a number, and not 0",
        ],
    ),
    "service": (
        "service: [{-x: {ensure: x, enable: 1}}]",
        [
            "enable is 1, expected true or false or masked",
            "ensure is 'x', expected running or stopped",
            "name is '-x', expected letters, digits and . _ + : ~ - @, the first a letter or digit",
        ],
    ),
    "apply": (
        "apply: [{/x.yaml: {ensure: x, allow_apply: 1}}]",
        [
            "allow_apply is 1, expected true or false",
            "ensure is 'x', expected present",
            "name is '/x.yaml', expected a path relative to the manifest",
        ],
    ),
    "what all types have": (
        f"file: [{{/x: {{{ATTRIBUTES}, health_checks: [{{tires: 1}}, {{command: 1}}], control: {{iff: x}},"
        " require: [x]}}]",
        [
            "health_checks tires is not a key of health_checks (did you mean 'tries'?)",
            "health_checks command is 1, expected text; quote it, as '1'",
            "control iff is not a key of control (did you mean 'if'?)",
            "require has an entry at [0] that is 'x', expected a reference such as 'file#/etc/motd'",
        ],
    ),
}


@pytest.mark.parametrize(("text", "wanted"), AT_ONCE.values(), ids=AT_ONCE)
def test_all_that_is_wrong_with_a_resource_is_said_at_once(load: Load, text: str, wanted: list[str]) -> None:
    assert sorted(one(load, text)) == sorted(wanted)


def test_contradicting_spelling_hides_no_other_problem(load: Load) -> None:
    output = one(load, "exec: [{a: {refreshonly: true, refresh_only: true, cwd: x}}]")
    assert output == [
        "refresh_only cannot be given together with refreshonly",
        "cwd is 'x', expected an absolute path",
    ]


@pytest.mark.parametrize(
    "open_one", ["content", "mode", "owner", "require", "noop", "health_checks", "alias", "encoding", "force"]
)
def test_an_expression_without_a_value_hides_no_other_problem(load: Load, open_one: str) -> None:
    provided = {"owner": "root", "group": "root", "mode": "'0644'"} | {open_one: "'{{ data.missing }}'"}
    del provided["group"]
    properties = ", ".join(f"{key}: {value}" for key, value in provided.items())
    output = one(load, f"file: [{{/x: {{{properties}, checksum: x, forze: true}}}}]")
    assert output == [
        "forze is not a property of file (did you mean 'force'?)",
        "checksum is 'x', expected 64 lower-case hexadecimal digits (SHA-256)",
        "checksum is only for a source that is a URL",
        "group is missing; it is required unless ensure is absent",
    ]


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("file: [{/x: {ensure: '{{ data.x }}'}}]", "ensure: {{ data.x }}: unknown key 'x' in data"),
        (f"file: [{{/x: {{{ATTRIBUTES}, source: '{{{{ data.x }}}}', checksum: {SHA256}}}}}]", "source: "),
        (f"file: [{{/x: {{{ATTRIBUTES}, ensure: '{{{{ data.x }}}}', content: a}}}}]", "ensure: "),
        ("file: [{/x: {owner: root, group: '{{ data.x }}', mode: '{{ data.x }}'}}]", "group: .*; mode: "),
        ("exec: [{\"'\": {provider: '{{ data.x }}'}}]", "provider: "),
        ("scaffold: [{/x: {source: '{{ data.x }}'}}]", "source: "),
        ("archive: [{/x.zip: {ensure: '{{ data.x }}'}}]", "ensure: "),
        ("archive: [{/x.zip: {url: '{{ data.x }}', owner: root, group: root}}]", "url: "),
    ],
)
def test_unevaluated_expression_is_no_manifest_problem(load: Load, text: str, failure: str) -> None:
    """On another host the expression may have a valid value."""
    (declaration,) = load(f"resources:\n  - {text}\n").declarations
    assert declaration.failure.startswith(failure.split(".*")[0])
    assert failure.rpartition(".*")[2] in declaration.failure


def test_problem_of_an_evaluated_value_fails_its_resource(load: Load) -> None:
    text = f"""
        resources:
          - file: [{{/x: {{{ATTRIBUTES}, source: "{{{{ facts.place }}}}", checksum: {SHA256}}}}}]
    """
    (declaration,) = load(text, facts={"place": "/local"}).declarations
    assert declaration.failure == "checksum is only for a source that is a URL"
    (declaration,) = load(text, facts={"place": "https://www.example.org/x"}).declarations
    assert declaration.failure == ""


def test_a_resource_that_is_wrong_can_still_be_referred_to(load: Load) -> None:
    output = problems(
        load,
        """
        resources:
          - file: [{/x: {}}]
          - scaffold: [{/y: {}}]
          - exec: [{a: {require: [file#/x, scaffold#/y, file#/z]}}]
        """,
    )
    assert [sentence for sentence in output if "require" in sentence and "names" in sentence] == [
        "require names file#/z, which is not declared (known: file#/x, scaffold#/y)"
    ]


def test_problems_of_parents_and_children_are_listed_together(load: Load, tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text(
        "resources:\n  - file: [{/y: {}}]\n  - apply: [{grandchild.yaml: {}}]\n"
    )
    (tmp_path / "grandchild.yaml").write_text("resources:\n  - exec: [{a: {cwd: x}}]\n")
    with pytest.raises(ManifestError) as error:
        load("""
            resources:
              - file: [{/x: {}}]
              - apply: [{child.yaml: {ensure: absent, nope: 1, noop: "{{ data.missing }}"}}]
        """)
    places = {problem.partition(":")[0].rpartition("/")[2] for problem in map(str, error.value.problems)}
    assert places == {"manifest.yaml", "child.yaml", "grandchild.yaml"}
    assert sum("is missing; it is required" in problem for problem in map(str, error.value.problems)) == 6


# --- numbers and booleans from expressions ------------------------------------------------------------------

DATA = {"port": 80, "ratio": 1.5, "flag": True, "list": ["a", 80], "mapping": {"X-Port": 80}, "mode": 420}


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        (f"file: [{{/x: {{{ATTRIBUTES}, content: '{{{{ data.port }}}}'}}}}]", "content", "80"),
        (f"file: [{{/x: {{{ATTRIBUTES}, content: '{{{{ data.ratio }}}}'}}}}]", "content", "1.5"),
        (
            f"file: [{{/x: {{{ATTRIBUTES}, content: '{{{{ data.port + 1 }}}}', alias: '{{{{ 7 }}}}'}}}}]",
            "alias",
            "7",
        ),
        ("exec: [{'{{ data.port }}': {}}]", "name", "80"),
        (
            "exec: [{a: {environment: ['A=1', '{{ data.port }}'], provider: shell}}]",
            "environment",
            ("A=1", "80"),
        ),
        ("package: [{a: {ensure: '{{ data.ratio }}'}}]", "ensure", "1.5"),
        ("scaffold: [{/x: {source: s, post: [{'*.a': '{{ data.port }}'}]}}]", "post", ({"*.a": "80"},)),
        ("exec: [{a: {returns: ['{{ data.port }}'], command: '{{ data.port }}'}}]", "returns", (80,)),
    ],
)
def test_evaluated_number_becomes_decimal_text(load: Load, text: str, name: str, value: object) -> None:
    manifest = load(f"data: {DATA}\nresources:\n  - {text}\n")
    (declaration,) = manifest.declarations
    assert getattr(declaration.properties, name) == value
    if name != "environment":
        assert declaration.failure == ""


def test_number_in_a_secret_or_check_becomes_decimal_text(load: Load) -> None:
    manifest = load(f"""
        data: {DATA}
        resources:
          - archive:
              - /x.zip:
                  url: https://www.example.org/x.zip
                  owner: root
                  group: root
                  username: "{{{{ data.port }}}}"
                  password: "{{{{ data.port }}}}"
                  headers: {{X-Port: "{{{{ data.port }}}}"}}
                  health_checks: [{{command: "{{{{ data.port }}}}", tries: "{{{{ data.port }}}}"}}]
    """)
    properties: Any = manifest.declarations[0].properties
    assert (properties.username, properties.password.reveal()) == ("80", "80")
    assert properties.headers["X-Port"].reveal() == "80"
    assert (properties.health_checks[0].command, properties.health_checks[0].tries) == ("80", 80)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (
            "file: [{/x: {mode: '{{ data.mode }}', owner: a, group: a}}]",
            "mode is a number, expected text; quote it",
        ),
        (
            f"file: [{{/x: {{{ATTRIBUTES}, content: '{{{{ data.flag }}}}'}}}}]",
            "content is true, expected text; add | string to its expression",
        ),
        (
            "exec: [{a: {environment: ['A=1', '{{ data.flag }}']}}]",
            "environment has true or false at [1], expected text; add | string to its expression",
        ),
        (
            "exec: [{a: {environment: '{{ data.list }}'}}]",
            "environment has a whole number at [1], expected text; quote it",
        ),
        (
            "archive: [{/x.zip: {url: 'http://x/x.zip', owner: a, group: a, headers: '{{ data.mapping }}'}}]",
            "headers has an entry at X-Port that is not text; quote it",
        ),
        (
            "scaffold: [{/x: {source: s, post: ['{{ data.mapping }}']}}]",
            "post has a whole number at [0].X-Port, expected text",
        ),
    ],
)
def test_non_text_value_is_reported_with_the_fix(load: Load, text: str, failure: str) -> None:
    (declaration,) = load(f"data: {DATA}\nresources:\n  - {text}\n").declarations
    assert declaration.failure.startswith(failure)


def test_a_text_that_is_quoted_is_not_asked_to_be_quoted(load: Load) -> None:
    (output,) = one(load, f"file: [{{/x: {{{ATTRIBUTES}, content: yes}}}}]")
    assert output == "content is true, expected text; quote it, as 'yes'"


# --- independent problems -------------------------------------------------------------------------------------

WITHOUT_ATTRIBUTES = [
    f"{name} is missing; it is required unless ensure is absent" for name in ("owner", "group", "mode")
]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            "{a: \"{{ lookup('facts.nothing') }}\"}",
            "data.a: {{ lookup('facts.nothing') }}: unknown key 'nothing' in facts",
        ),
        ("[1]", "data: is a list, expected a mapping"),
    ],
    ids=["a value that cannot be resolved", "no data at all"],
)
def test_unavailable_data_are_reported_once_and_hide_nothing(
    load: Load, tmp_path: Path, data: str, problem: str
) -> None:
    """Consequences (in a name, a message, the data of a child, a rendered list) are not reported."""
    (tmp_path / "child.yaml").write_text(
        "data: {b: \"{{ lookup('data.a') }}\"}\nresources: [{file: [{/y: {mdoe: x}}]}]\n"
    )
    (tmp_path / "other.yaml").write_text("resources_template: list.jinja\n")
    (tmp_path / "list.jinja").write_text("{{ data.a }}")
    text = f"""
data: {data}
pre_message: "{{{{ lookup('data.a') }}}}"
resources:
  - file: [{{/x: {{}}}}, {{"/{{{{ lookup('data.a') }}}}": {{ensure: absent}}}}]
  - apply: [{{child.yaml: {{}}}}, {{other.yaml: {{}}}}]
"""
    output = problems(load, text)
    assert output[:3] == WITHOUT_ATTRIBUTES
    assert output[3:-1] == ["mdoe is not a property of file (did you mean 'mode'?)", *WITHOUT_ATTRIBUTES[:2]]
    assert problem in output[-1]


def test_child_with_unavailable_data_is_checked(load: Load, tmp_path: Path) -> None:
    child, text = (
        tmp_path / "child.yaml",
        "resources: [{apply: [{child.yaml: {data: {q: '{{ facts.no }}'}}}]}]",
    )
    child.write_text(
        "data: {b: '{{ data.q }}'}\nresources: [{file: [{'/{{ data.q }}': {ensure: absent}}]}]\n"
    )
    (declaration,) = load(text).declarations
    assert "unknown key 'no' in facts" in declaration.failure
    child.write_text("resources: [{file: [{/y: {}}]}]\n")
    assert problems(load, text) == WITHOUT_ATTRIBUTES


# --- one budget ---------------------------------------------------------------------------------------------


def test_manifest_and_children_share_an_expression_budget(load: Load, tmp_path: Path) -> None:
    large = f"{{{ATTRIBUTES}, content: \"{{{{ 'x' * 16000000 }}}}\"}}"
    (tmp_path / "child.yaml").write_text(
        "resources:\n" + "".join(f"  - file: [{{/c{n}: {large}}}]\n" for n in range(5))
    )
    own = "".join(f"  - file: [{{/o{n}: {large}}}]\n" for n in range(5))
    manifest = load(f"resources:\n  - apply: [{{child.yaml: {{}}}}]\n{own}")
    failures = {d.properties.name: d.failure for d in manifest.declarations if d.failure}
    assert list(failures) == ["/o3", "/o4"]
    assert "expressions make more than 134217728 characters together" in failures["/o3"]
