"""Loops in manifests: their resources, their names, and their errors."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.limits import LOOP_LIMIT
from hiera.values import Secret
from puller.data.sources import DataSource, Origin
from puller.errors import ManifestError
from puller.manifest.declaration import Declaration
from puller.manifest.graph.host_catalog import HostCatalog
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest

Load = Callable[..., Manifest]


def declared(manifest: Manifest) -> list[tuple[str, dict[str, Any]]]:
    return [(str(declaration), declaration.shown()) for declaration in manifest.declarations]


def names(manifest: Manifest) -> list[str]:
    return [str(manifest.declarations[index]) for index in manifest.order]


def problems(load: Load, text: str, **options: Any) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as error:
        load(text, **options)
    return tuple(map(str, error.value.problems))


def only(load: Load, text: str, **options: Any) -> Declaration:
    (declaration,) = load(text, **options).declarations
    return declaration


VHOSTS = """
    data:
      vhosts:
        shop: {port: 81, enabled: true}
        blog: {port: 80}
"""


def test_list_loop_has_an_item_name(load: Load) -> None:
    manifest = load("""
        data: {packages: [nginx, curl]}
        resources:
          - package:
              - for: name in data.packages
                "{{ name }}": {ensure: latest}
    """)
    assert names(manifest) == ["package#nginx", "package#curl"]
    assert [declaration.item for declaration in manifest.declarations] == [
        "for name in data.packages: name is 'nginx'",
        "for name in data.packages: name is 'curl'",
    ]


def test_a_loop_over_a_mapping_has_two_names_in_its_order(load: Load) -> None:
    manifest = load(
        VHOSTS
        + """
    resources:
      - exec:
          - "nc -z localhost {{ vhost.port }}":
              alias: "{{ name }}"
              environment: ["NAME={{ name }}"]
            for: name, vhost in data.vhosts
    """
    )
    assert names(manifest) == ["exec#nc -z localhost 81", "exec#nc -z localhost 80"]
    assert [declaration.shown()["environment"] for declaration in manifest.declarations] == [
        ("NAME=shop",),
        ("NAME=blog",),
    ]
    assert manifest.declarations[0].item == "for name, vhost in data.vhosts: name is 'shop'"


def test_loops_in_loops_see_the_names_before_them(load: Load) -> None:
    manifest = load("""
        data:
          sites:
            - {name: shop, aliases: [a, b]}
            - {name: none, aliases: []}
            - {name: blog, aliases: [c]}
        resources:
          - file:
              - for: [site in data.sites, alias in site.aliases]
                "/etc/{{ alias }}": {content: "{{ site.name }}", owner: root, group: root, mode: "0644"}
    """)
    results = [
        (declaration.properties.name, declaration.shown()["content"]) for declaration in manifest.declarations
    ]
    assert results == [("/etc/a", "shop"), ("/etc/b", "shop"), ("/etc/c", "blog")]
    assert manifest.declarations[2].item == (
        "for site in data.sites, alias in site.aliases: site is {'name': 'blog', 'aliases': ['c']}, alias is 'c'"
    )


def test_the_mapping_with_a_name_may_be_a_loop(load: Load) -> None:
    manifest = load("""
        resources:
          - exec: {name: "echo {{ number }}", for: "number in [1, 2]"}
    """)
    assert names(manifest) == ["exec#echo 1", "exec#echo 2"]


def test_defaults_are_for_the_loops_of_their_list_too(load: Load) -> None:
    manifest = load("""
        resources:
          - exec:
              - "echo {{ x }}": {timeout: null}
                for: x in ['a']
              - defaults: {cwd: "/{{ x | default('no loop') }}", timeout: 9s}
              - echo: {}
    """)
    results = [
        (declaration.shown()["cwd"], declaration.shown()["timeout"]) for declaration in manifest.declarations
    ]
    assert results == [("/a", "9.0"), ("/no loop", "9.0")]


def test_resources_before_and_after_a_loop_keep_their_places(load: Load) -> None:
    manifest = load("""
        resources:
          - exec:
              - first: {}
              - "{{ x }}": {}
                for: x in ['second', 'third']
              - fourth: {}
    """)
    assert names(manifest) == ["exec#first", "exec#second", "exec#third", "exec#fourth"]


def test_a_loop_over_nothing_declares_nothing(load: Load) -> None:
    manifest = load("""
        data: {none: [], nothing: {}}
        resources:
          - exec:
              - {for: x in data.none, "echo {{ x }}": {}}
              - {for: "x, y in data.nothing", "echo {{ y }}": {}}
    """)
    assert names(manifest) == []


def test_the_value_of_an_item_keeps_its_type(load: Load) -> None:
    declaration = only(
        load,
        """
        data: {checks: {true: {codes: [0, 3], seconds: 7}}}
        resources:
          - exec:
              - for: command, check in data.checks
                "{{ command }}": {returns: "{{ check.codes }}", timeout: "{{ check.seconds }}"}
        """.replace("true:", "'true':"),
    )
    assert declaration.shown()["returns"] == (0, 3)
    assert declaration.shown()["timeout"] == "7.0"


def test_numbers_become_names(load: Load) -> None:
    assert names(load("resources: [{exec: [{'{{ n }}': {}, for: 'n in [1, 2.5]'}]}]\n")) == [
        "exec#1",
        "exec#2.5",
    ]


def test_braces_in_data_are_text(load: Load) -> None:
    text = """
        data: {raw: "{{ '{{ x }}' }}", names: [a]}
        resources:
          - file:
              - for: x in data.names
                "/{{ x }}": {content: "{{ x }} {{ data.raw }}", owner: root, group: root, mode: "0644"}
    """
    assert only(load, text).shown()["content"] == "a {{ x }}"


def test_lookup_finds_the_names_of_a_loop_and_no_function(load: Load) -> None:
    manifest = load("""
        data: {users: [{name: joe}, {name: ann, uid: 7}]}
        resources:
          - exec:
              - for: user in data.users
                "echo {{ lookup('user.name') }} {{ lookup('user.uid', 0) }} {{ lookup('hiera', 'none') }}": {}
    """)
    assert names(manifest) == ["exec#echo joe 0 none", "exec#echo ann 7 none"]


def test_functions_of_expressions_see_the_names(load: Load, tmp_path: Path) -> None:
    (tmp_path / "joe.txt").write_text("hello")
    (tmp_path / "user.j2").write_text("{% include 'inner.j2' %}")
    (tmp_path / "inner.j2").write_text("{{ user }} is {{ data.what }}")
    declaration = only(
        load,
        """
        data: {what: here}
        resources:
          - exec:
              - for: user in ['joe']
                "{{ read_file(user ~ '.txt') }}":
                  environment: ["A={{ template('user.j2') }}", "B={{ template('-{{ user }}-') }}"]
        """,
    )
    assert declaration.properties.name == "hello"
    assert declaration.shown()["environment"] == ("A=joe is here", "B=-joe-")


def test_a_loop_goes_over_hiera_and_facts(load: Load) -> None:
    text = """
        data: {roles: [a, b]}
        resources:
          - exec:
              - {for: "role in hiera('roles', merge='unique')", "role {{ role }}": {}}
              - {for: "name, disk in facts.disks", "disk {{ name }} {{ disk.size }}": {}}
              - {for: "n in range(2)", "n {{ n }}": {}}
    """
    assert names(load(text, facts={"disks": {"sda": {"size": 5}}})) == [
        "exec#role a",
        "exec#role b",
        "exec#disk sda 5",
        "exec#n 0",
        "exec#n 1",
    ]


def test_references_mean_resources_of_loops(load: Load) -> None:
    manifest = load("""
        data: {packages: [nginx, curl]}
        resources:
          - exec:
              - {for: p in data.packages, "check {{ p }}": {require: ["package#{{ p }}"]}}
              - last: {subscribe: [package#curl], after: [package#nginx]}
          - package:
              - {for: p in data.packages, "{{ p }}": {}}
    """)
    assert names(manifest) == [
        "package#nginx",
        "exec#check nginx",
        "package#curl",
        "exec#check curl",
        "exec#last",
    ]


# -- on this machine ------------------------------------------------------------------------------


FAILED = """
    resources:
      - file:
          - for: disk in facts.disks
            "/mnt/{{ disk }}": {ensure: directory, owner: root, group: root, mode: "0755"}
      - exec:
          - mount: {require: [file#/mnt/sda], subscribe: [file#/mnt/sdb]}
"""


def test_unevaluated_loop_is_a_failed_resource(load: Load) -> None:
    loop, other = load(FAILED).declarations
    assert str(loop) == "file#/mnt/{{ disk }}"
    assert loop.failure == "for disk in facts.disks: {{ facts.disks }}: unknown key 'disks' in facts"
    assert loop.item == "for disk in facts.disks"
    assert other.failure == ""


def test_resources_of_a_failed_loop_are_valid_references(load: Load) -> None:
    manifest = load(FAILED)
    assert manifest.requirements(1) == [("file#/mnt/sda", 0)]
    assert manifest.names_of("file") == []
    (output,) = problems(load, FAILED.replace("file#/mnt/sda", "file#/opt/sda"))
    assert output.startswith(
        "web/manifest.yaml:7: resources[1] exec#mount: require names file#/opt/sda, which is not declared"
    )


def test_two_failed_loops_that_are_written_alike_are_two(load: Load) -> None:
    manifest = load("""
        resources:
          - package:
              - {for: name in facts.a, "{{ name }}": {}}
              - {for: name in facts.b, "{{ name }}": {}}
              - "{{ 'x' }}": {}
    """)
    assert names(manifest) == ["package#{{ name }}", "package#{{ name }}", "package#x"]


def test_later_manifest_may_refer_to_a_failed_loop(load: Load) -> None:
    earlier = HostCatalog.of([load(FAILED)])
    later = load(
        """
        resources:
          - exec: [{"umount /mnt/sda": {require: [file#/mnt/sda]}}]
          - file: [{/mnt/sdb: {ensure: absent}}]
        """,
        known=earlier.references(),
    )
    catalog = earlier.joined(later)
    assert catalog.requirements(2) == [("file#/mnt/sda", 0)]
    assert str(catalog.declarations[3]) == "file#/mnt/sdb"
    with pytest.raises(ManifestError, match="file#/opt/sda, which is not declared"):
        load("resources: [{exec: [{a: {require: [file#/opt/sda]}}]}]\n", known=earlier.references())


@pytest.mark.parametrize(
    ("loop", "failure"),
    [
        ("x in data.text", "for x in data.text: is 'abc', expected a list or a mapping"),
        ("x in data.none", "for x in data.none: is None, expected a list or a mapping"),
        ("x in data.number", "for x in data.number: is 7, expected a list or a mapping"),
        ("x in data.map", "for x in data.map: is a mapping, expected two names: key, x in data.map"),
        ("i, x in data.list", "for i, x in data.list: is a list, expected one name: x in data.list"),
        ("x in data.lst", "{{ data.lst }}: unknown key 'lst' in data (did you mean 'list'?)"),
        ("x in dta.list", "{{ dta.list }}: unknown name 'dta' (did you mean 'data'?)"),
        ("x in data.list |", "{{ data.list | }}: is not valid: "),
        ("x in data.secret", "is Sensitive [value redacted], expected a list or a mapping"),
        ("x in data.text * 1000", "is '" + "abc" * 20 + "'…, expected a list or a mapping"),
        ("x in 7 ** 100", "is a large number, expected a list or a mapping"),
        (
            f"x in [1] + (range({LOOP_LIMIT}) | list)",
            f"with it, loops go over more than {LOOP_LIMIT} items together",
        ),
        (["a in [[], 1]", "x in a"], "for x in a (a is 1): is 1, expected a list or a mapping"),
        (["a in range(400)", "x in range(400)"], f"more than {LOOP_LIMIT} items together"),
    ],
)
def test_non_iterable_value_is_reported_by_type(load: Load, loop: object, failure: str) -> None:
    text = f"""
        data: {{text: abc, number: 7, none: null, list: [1], map: {{a: 1}}}}
        resources:
          - exec: [{{for: {json.dumps(loop)}, "echo {{{{ x }}}}": {{}}}}]
    """
    assert failure in only(load, text, sources=({"secret": Secret("abcdef")},)).failure


def test_failed_list_loop_hides_no_other_resource(load: Load) -> None:
    manifest = load("""
        data: {bad: 1}
        resources:
          - exec: [{a: {}}, {for: x in data.bad, "{{ x }}": {}}, {b: {}}]
    """)
    assert [str(declaration) for declaration in manifest.declarations if not declaration.failure] == [
        "exec#a",
        "exec#b",
    ]


def test_without_data_a_loop_is_blamed_for_nothing(load: Load) -> None:
    text = """
        data: {a: "{{ facts.nope }}"}
        resources:
          - exec:
              - {for: x in data.a, "{{ x }}": {}}
              - "true": {require: ["exec#anything"]}
    """
    (output,) = problems(load, text)
    assert "data.a: {{ facts.nope }}" in output


# -- source text ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loop", "sentence"),
    [
        (None, "for is None, expected NAME in EXPRESSION, or KEY, VALUE in EXPRESSION"),
        ([], "for is [], expected NAME in EXPRESSION, or KEY, VALUE in EXPRESSION"),
        (7, "for is 7, expected NAME in EXPRESSION, or KEY, VALUE in EXPRESSION"),
        ({"x": "data.x"}, "for is {'x': 'data.x'}, expected NAME in EXPRESSION, or KEY, VALUE in EXPRESSION"),
        ("data.x", "for is 'data.x', expected NAME in EXPRESSION, or KEY, VALUE in EXPRESSION"),
        ("x in", "for is 'x in', expected NAME in EXPRESSION, or KEY, VALUE in EXPRESSION"),
        (
            ["name", "vhost in data.vhosts"],
            "for is 'name', expected NAME in EXPRESSION, or KEY, VALUE in EXPRESSION "
            "(quote a clause in brackets that has a comma)",
        ),
        (
            ["a in data.get('x'", "[])"],
            "for is '[])', expected NAME in EXPRESSION, or KEY, VALUE in EXPRESSION "
            "(quote a clause in brackets that has a comma)",
        ),
        (
            ["a in range(1", "b in c)"],
            "for is 'a in range(1', expected NAME in EXPRESSION, or KEY, VALUE in EXPRESSION "
            "(quote a clause in brackets that has a comma)",
        ),
        ("a, b, c in data.x", "for has 3 names, expected NAME in EXPRESSION, or KEY, VALUE in EXPRESSION"),
        ("a, a in data.x", "for has the name a twice"),
        (["a in data.x", "a in data.y"], "for has the name a twice"),
        (
            "a-b in data.x",
            "for has the name 'a-b', expected letters, digits and _, not starting with a digit",
        ),
        ("1 in data.x", "for has the name '1', expected letters, digits and _, not starting with a digit"),
        (
            "für in data.x",
            "for has the name 'für', expected letters, digits and _, not starting with a digit",
        ),
        ("not in data.x", "for has the name 'not', a reserved word of expressions, so choose another name"),
        ("loop in data.x", "for has the name 'loop', a reserved word of expressions, so choose another name"),
        (
            "facts in data.x",
            "for has the name facts, which already has another meaning, so choose another name",
        ),
        (
            "Data in data.x",
            "for has the name Data, which already has another meaning, so choose another name",
        ),
        (
            "k, environ in data.x",
            "for has the name environ, which already has another meaning, so choose another name",
        ),
        (
            "hiera in data.x",
            "for has the name hiera, which already has another meaning, so choose another name",
        ),
        (
            "template in data.x",
            "for has the name template, which already has another meaning, so choose another name",
        ),
        (
            "range in data.x",
            "for has the name range, which already has another meaning, so choose another name",
        ),
    ],
)
def test_a_loop_that_is_written_wrong_refuses_the_manifest(load: Load, loop: object, sentence: str) -> None:
    text = f"""
data: {{x: []}}
resources:
  - exec:
      - for: {json.dumps(loop)}
        "echo {{{{ x }}}}": {{}}
      - after: {{require: ["exec#echo 1"]}}
"""
    line = 5 if "already" not in sentence else 6
    assert problems(load, text) == (
        f"web/manifest.yaml:{line}: resources[0] exec#echo {{{{ x }}}}: {sentence}",
    )


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (
            "{for: x in data.x}",
            "exec: has for without a name beside it, expected one name with its properties",
        ),
        (
            "{for: x in data.x, a: {}, b: {}}",
            "exec: has for beside a, b, expected one name with its properties",
        ),
        (
            '{for: x in data.x, y in data.y, "{{ x }}": {}}',
            "; write several clauses in brackets, such as for: [a in data.a, b in data.b]",
        ),
        (
            "{for: x in data.x, defaults: {}}",
            "exec: has for beside defaults, expected one name with its properties",
        ),
        ("{a: {}, b: {}}", "exec: has several names: a, b, expected one name with its properties"),
        ("{for: x in data.x, a: 1}", "exec#a: is 1, expected properties"),
        ("{a: {for: x in data.x}}", "; write the loop beside the name of its resource"),
    ],
)
def test_loop_requires_a_single_name(load: Load, entry: str, sentence: str) -> None:
    (output,) = problems(load, f"data: {{x: [1]}}\nresources: [{{exec: [{entry}]}}]\n")
    assert output.startswith("web/manifest.yaml:2: resources[0] exec")
    assert output.endswith(sentence)


@pytest.mark.parametrize("loop", ["x in [1, 2]", "x in []", "x in facts.nope"])
def test_problem_of_all_items_is_reported_once(load: Load, loop: str) -> None:
    text = f"""
resources:
  - file:
      - for: {loop}
        "/etc/{{{{ x }}}}": {{content: "{{{{ x }}}}", mode: "0888", ownr: root, group: root, require: [exec#no]}}
"""
    output = problems(load, text)
    start = "web/manifest.yaml:5: resources[0] file#/etc/{{ x }}: "
    assert all(item.startswith(start) for item in output)
    results = [item.removeprefix(start).partition(" ")[0] for item in output]
    assert sorted(results) == sorted(["mode", "ownr"] + ["require"] * (loop != "x in []"))


def test_problem_of_an_item_names_it(load: Load) -> None:
    text = (
        """
resources:
  - exec:
      - for: user in [{'name': 'joe'}, {'nmae': 'ann'}, {'name': none}]
        "echo {{ user.name }}": {}
      - for: ref in ['exec#echo joe', 'exec#echo bob']
        "for {{ ref }}": {require: ["{{ ref }}"]}
""".replace("for: user in", 'for: "user in')
        .replace("none}]", 'none}]"')
        .replace(
            "for: ref in ['exec#echo joe', 'exec#echo bob']",
            "for: \"ref in ['exec#echo joe', 'exec#echo bob']\"",
        )
    )
    loop = "for user in [{'name': 'joe'}, {'nmae': 'ann'}, {'name': none}]"
    assert problems(load, text) == (
        f"web/manifest.yaml:5: resources[0] exec#echo {{{{ user.name }}}} ({loop}: user is {{'nmae': 'ann'}}): "
        "name: {{ user.name }}: unknown key 'name' in user (did you mean 'nmae'?)",
        f"web/manifest.yaml:5: resources[0] exec#echo {{{{ user.name }}}} ({loop}: user is {{'name': None}}): "
        "name: {{ user.name }}: is null, which cannot stand inside text: choose a text with | default('', true)",
        "web/manifest.yaml:7: resources[0] exec#for exec#echo bob (for ref in ['exec#echo joe', 'exec#echo bob']: "
        "ref is 'exec#echo bob'): require names exec#echo bob, which is not declared (did you mean 'exec#echo joe'?)",
    )


def test_equal_items_of_a_name_are_a_single_resource(load: Load) -> None:
    manifest = load("""
        data: {names: [shop, blog]}
        resources:
          - file:
              - for: name in data.names
                "/{{ name }}": {content: x, owner: root, group: root, mode: "0644"}
          - exec:
              - for: name in data.names
                reload: {refreshonly: true, subscribe: ["file#/{{ name }}"]}
    """)
    assert names(manifest) == ["file#/shop", "file#/blog", "exec#reload"]
    assert manifest.links.subscriptions[2] == [0, 1]


def test_a_resource_that_subscribes_to_no_items_is_not_there(load: Load) -> None:
    text = """
        data: {names: []}
        resources:
          - exec:
              - for: name in data.names
                reload: {refreshonly: true, subscribe: ["file#/{{ name }}"]}
    """
    assert names(load(text)) == []


def test_conflicting_items_of_a_name_are_both_named(load: Load) -> None:
    output = problems(
        load,
        """
resources:
  - exec: [{same: {cwd: "{{ x }}"}, for: "x in ['/a', '/b']"}]
""",
    )
    loop = "for x in ['/a', '/b']: x is"
    assert output == (
        f"web/manifest.yaml:3: resources[0] exec#same ({loop} '/b'): is declared twice, first at web/manifest.yaml:3 "
        f"({loop} '/a'), and the two differ: cwd is '/b' here and '/a' there "
        "(use the same values in both, or declare it once)",
    )


@pytest.mark.parametrize("name", ["class", "import", "from", "pass", "lambda"])
def test_words_of_other_languages_are_names(load: Load, name: str) -> None:
    manifest = load(
        f"""
resources:
  - file:
      - for: {name} in ['a', 'b']
        "/{{{{ {name} }}}}": {{content: "{{{{ {name} | upper }}}}", owner: root, group: root, mode: "0644"}}
"""
    )
    assert [declaration.shown()["content"] for declaration in manifest.declarations] == ["A", "B"]


def test_item_declared_elsewhere_follows_duplicate_rules(load: Load) -> None:
    text = """
resources:
  - exec: [{a: {}}, {"{{ x }}": {}, for: "x in ['a']"}]
"""
    assert [str(declaration) for declaration in load(text).declarations] == ["exec#a"]
    (output,) = problems(load, text.replace('}}": {}', '}}": {cwd: /srv}'))
    assert output == (
        "web/manifest.yaml:3: resources[0] exec#a (for x in ['a']: x is 'a'): "
        "is declared twice, first at web/manifest.yaml:3, and the two differ: "
        "cwd is '/srv' here and '/' there (use the same values in both, or declare it once)"
    )


def test_items_with_different_template_values_are_not_merged(load: Load) -> None:
    text = """
resources:
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - for: x in [1]
        "/same": {template: same.j2}
      - for: x in [2]
        "/same": {template: same.j2}
"""
    (output,) = problems(load, text)
    assert "first at web/manifest.yaml:6 (for x in [1]: x is 1)" in output
    assert names(load(text.replace("[2]", "[1]"))) == ["file#/same"]


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        ('"{{ x }}": {}, for: "x in [1, 2, 1]"', ["exec#1", "exec#2"]),
        ('"{{ k | lower }}": {}, for: "k, v in data.m"', ["exec#a"]),
        ('"{{ v.n }}": {timeout: "{{ v.n }}s"}, for: "v in data.l"', ["exec#1"]),
    ],
)
def test_name_with_equal_properties_is_a_single_resource(load: Load, entry: str, names: list[str]) -> None:
    data = "data: {m: {A: 1, a: 2}, l: [{n: 1, b: 2}, {n: 1, b: 3}]}\n"
    manifest = load(f"{data}resources: [{{exec: [{{{entry}}}]}}]\n")
    assert [str(declaration.reference) for declaration in manifest.declarations] == names


def test_name_with_other_properties_is_refused(load: Load) -> None:
    entry = '"{{ v.n }}": {timeout: "{{ v.b }}s"}, for: "v in data.l"'
    (output,) = problems(
        load, f"data: {{l: [{{n: 1, b: 2}}, {{n: 1, b: 3}}]}}\nresources: [{{exec: [{{{entry}}}]}}]\n"
    )
    assert "is declared twice" in output
    assert "timeout is 3.0 here and 2.0 there" in output
    assert "v is {'n': 1, 'b': 2}" in output


CONDITIONS = """
data:
  users: {USERS}
resources:
  - exec:
      - for: user in data.users if CONDITION
        "{{ user.name }}": {}
"""


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("user.shell", ["exec#a", "exec#c"]),
        ("user.shell == '/bin/sh'", ["exec#a"]),
        ("not user.shell", ["exec#b"]),
        ("(1 if user.shell else 0)", ["exec#a", "exec#c"]),
        ("user.name in ['a if b', 'b']", ["exec#b"]),
        ("false", []),
    ],
)
def test_a_loop_with_a_condition_leaves_items_out(load: Load, condition: str, names: list[str]) -> None:
    users = "[{name: a, shell: /bin/sh}, {name: b, shell: ''}, {name: c, shell: /bin/bash}]"
    manifest = load(CONDITIONS.replace("{USERS}", users).replace("CONDITION", condition))
    assert [str(declaration.reference) for declaration in manifest.declarations] == names


def test_a_condition_sees_the_names_of_all_clauses_before(load: Load) -> None:
    manifest = load("""
        data: {hosts: {web: {ports: [80, 8080]}, db: {ports: [5432]}}}
        resources:
          - exec:
              - for: ["name, host in data.hosts if name != 'db'", port in host.ports if port > 100 and name]
                "{{ name }} {{ port }}": {}
    """)
    assert [str(declaration.reference) for declaration in manifest.declarations] == ["exec#web 8080"]


def test_a_choice_in_a_loop_is_no_condition(load: Load) -> None:
    text = "resources: [{exec: [{for: \"x in [1] if facts.one else [2]\", '{{ x }}': {}}]}]"
    assert [str(load(text, facts={"one": item}).declarations[0].reference) for item in (True, False)] == [
        "exec#1",
        "exec#2",
    ]


def test_a_condition_that_fails_names_the_item(load: Load) -> None:
    text = CONDITIONS.replace("{USERS}", "[{name: a}]").replace("CONDITION", "user.shell")
    (failed,) = load(text).declarations
    assert "user is {'name': 'a'}" in failed.failure
    assert "unknown key 'shell'" in failed.failure


ONE_FAILS = """
data: {items: {a: {v: 1, k: x}, b: {}, c: {}}}
resources:
  - TYPE:
      - for: name, i in data.items
        "s-{{ name }}": {PROPERTIES}
"""


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        ("setting", "path: /x.ini, format: ini, section: a, key: '{{ i.k }}', value: '{{ name }}'"),
        ("setting", "path: '/{{ i.k }}', format: ini, section: a, key: b, value: '{{ name }}'"),
        ("setting", "path: '/x/{{ name }}.yaml', format: yaml, key: [a, '{{ i.k }}'], value: '{{ i.v }}'"),
        ("line", "path: /x, line: '{{ i.v }}', match: '^x'"),
        ("line", "path: '/{{ i.k }}', line: '{{ name }}', match: '^x'"),
        ("block", "path: /x, content: '{{ i.v }}', marker: '# {mark} {{ i.k }}'"),
        ("block", "path: '/{{ i.k }}', content: a, marker: '# {mark} x'"),
        ("group", "gid: '{{ i.v }}'"),
        ("sysctl", "value: '{{ i.v }}'"),
    ],
)
def test_an_unresolved_property_fails_its_item_only(load: Load, kind: str, properties: str) -> None:
    manifest = load(ONE_FAILS.replace("TYPE", kind).replace("PROPERTIES", properties))
    assert [bool(declaration.failures) for declaration in manifest.declarations] == [False, True, True]


def test_reference_to_an_empty_loop_is_valid(load: Load) -> None:
    text = """
data: {vhosts: {}}
resources:
  - exec:
      - for: name, vhost in data.vhosts
        reload: {}
      - after: {require: [exec#reload], after: [exec#reload], subscribe: [exec#reload]}
"""
    manifest = load(text)
    assert [str(declaration) for declaration in manifest.declarations] == ["exec#after"]
    assert manifest.requirements(0) == []
    (output,) = problems(load, text.replace("require: [exec#reload]", "require: [exec#relaod]"))
    assert "names exec#relaod, which is not declared" in output
    known = HostCatalog.of([manifest]).references()
    later = load("resources: [{exec: [{later: {require: [exec#reload]}}]}]", known=known)
    assert len(HostCatalog.of([manifest]).joined(later).declarations) == 2


# -- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", [Secret(["hunter22"]), [Secret("hunter22")]])
def test_a_name_made_of_a_secret_item_is_refused_and_not_shown(load: Load, secret: object) -> None:
    (output,) = problems(
        load,
        "resources: [{exec: [{for: s in data.s, '{{ s }}': {}}]}]\n",
        sources=({"s": secret},),
    )
    assert output.endswith("name contains a secret, and messages always show this property")
    assert "hunter22" not in output
    assert "s is Sensitive [value redacted]" in output


def test_secret_item_makes_its_values_secret(load: Load) -> None:
    manifest = load(
        """
        resources:
          - file:
              - for: user in data.users
                "/{{ user.name }}": {content: "{{ user.key }}", owner: root, group: root, mode: "0600"}
        """,
        sources=({"users": [{"name": "joe", "key": Secret("hunter22")}]},),
    )
    (declaration,) = manifest.declarations
    assert declaration.shown()["content"] == "(sensitive)"
    assert (
        declaration.item
        == "for user in data.users: user is {'name': 'joe', 'key': Sensitive [value redacted]}"
    )


def test_of_a_secret_mapping_the_keys_are_secret_too(load: Load) -> None:
    (output,) = problems(
        load,
        "resources: [{exec: [{for: 'k, v in data.s', 'echo {{ k }}': {}}]}]\n",
        sources=({"s": Secret({"hunter22": 1})},),
    )
    assert "hunter22" not in output


# -- laws -----------------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=5)
VALUES = st.one_of(WORDS, st.integers(0, 99), st.just("{{ braces }}"), st.just("a: 'b'"), st.none())
ITEMS = st.dictionaries(
    WORDS, st.fixed_dictionaries({"text": VALUES, "mode": st.sampled_from(["0644", 7, None])})
)
PROPERTIES = {
    "content": "{{ value.text | default('none', true) }} {{ data.all }} {{ name }}",
    "owner": "{{ data.owner }}",
    "group": "root",
    "mode": "{{ value.mode }}",
    "require": ["exec#{{ data.all }}"],
    "health_checks": [{"command": "test -e {{ name }}", "name": "{{ value.text }}"}],
}


def by_hand(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the loop's entry for one item, with literals instead of names."""

    def written(text: Any) -> Any:
        if isinstance(text, list):
            return [written(item) for item in text]
        if isinstance(text, dict):
            return {key: written(item) for key, item in text.items()}
        for of, literal in (("value.text", value["text"]), ("value.mode", value["mode"]), (" name ", name)):
            text = text.replace(of, f" data.literals[{json.dumps(json.dumps(literal))}] ")
        return text

    return {written("/etc/{{ name }}"): written(PROPERTIES)}


@given(items=ITEMS)
def test_a_loop_written_out_by_hand_declares_the_same(
    tmp_path_factory: pytest.TempPathFactory, items: Any
) -> None:
    literals = [*items, *(value[key] for value in items.values() for key in value)]
    data = {
        "items": items,
        "all": "a",
        "owner": "root",
        "literals": {json.dumps(item): item for item in literals},
    }
    first: dict[str, Any] = {"exec": [{"a": {}}]}
    loop = {"for": "name, value in data['items']", "/etc/{{ name }}": PROPERTIES}
    entries = [by_hand(name, value) for name, value in items.items()]
    path = tmp_path_factory.mktemp("law") / "manifest.yaml"

    def outcome(files: list[Any]) -> object:
        path.write_text(json.dumps({"resources": [first, *([{"file": files}] if files else [])]}))
        source = DataSource(Origin.HOST, "data.yaml", data)
        manifest = load_manifest(path, "web/manifest.yaml", Inputs({}, {}, (source,)))
        return [
            (str(item), item.properties, item.dynamic, item.unknown, item.failure.count(";"))
            for item in manifest.declarations
        ], manifest.order

    assert outcome([loop]) == outcome(entries)
