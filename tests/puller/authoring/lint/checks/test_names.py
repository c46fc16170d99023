"""Names that no host can have, in every property of a bundle that may contain expressions."""

from collections.abc import Callable

import pytest

Lint = Callable[..., list[str]]


def content(expression: str, data: str = "data: {port: 80, tls: {cert: a.pem}}") -> str:
    return f"""\
{data}
resources:
  - file:
      - /etc/app: {{content: "{expression}", mode: "0644"}}
"""


WRONG = {
    "{{ data.prt }}": "6:34: error: data has no 'prt' on any host (did you mean 'port'?)",
    "{{ data.tls.crt ~ data.port }}": "data.tls has no 'crt' on any host (did you mean 'cert'?)",
    "{{ data['prt'] }}": "data has no 'prt' on any host (did you mean 'port'?)",
    "{{ Data.prt }}": "Data has no 'prt' on any host (did you mean 'port'?)",
    "{{ lookup('data.prt') }}": "data has no 'prt' on any host (did you mean 'port'?)",
    "{{ hiera('prt') }}": "data has no 'prt' on any host (did you mean 'port'?)",
    "{{ hiera('tls.crt') }}": "data.tls has no 'crt' on any host (did you mean 'cert'?)",
    "{{ data.port.number }}": "data.port is a single value without 'number'",
    "{{ dta.port }}": "unknown name 'dta' (did you mean 'data'?)",
    "{{ facts.os.famly }}": "facts.os has no 'famly' on any host (did you mean 'family'?)",
    "{{ facts.networking.interfaces.eth0.ipp }}": "(did you mean 'ip'?)",
    "{{ data.port | uper }}": "unknown filter 'uper' (did you mean 'upper'?)",
    "{{ data.port is nunber }}": "unknown test 'nunber' (did you mean 'number'?)",
    "{{ raneg(3) }}": "unknown name 'raneg' (did you mean 'range'?)",
    "{{ [1] | map('uper') | list }}": "unknown filter 'uper'",
    "{{ [1] | select('nunber') | list }}": "unknown test 'nunber'",
    "{{ data.port | default(vale=1) }}": "unknown argument 'vale' of default",
    "{{ data.port | to_nice_yaml(inddent=2) }}": "unknown argument 'inddent' of to_nice_yaml (did you mean 'indent'?)",
    "{{ data.port | comment(decoraton='; ') }}": "unknown argument 'decoraton' of comment (did you mean 'decoration'?)",
    "{{ hiera('port', mrge='deep') }}": "unknown argument 'mrge' of hiera (did you mean 'merge'?)",
    "{{ data.port }": "[expression-syntax]",
    "{{ data.port | }}": "[expression-syntax]",
    "{{ }}": "is empty",
    "{{ inventory_hostname }}": "it is facts.networking.fqdn, or data",
    "{{ data.port | realpath }}": "use normpath",
    "{{ data.tls.update({}) }}": "data.tls has no 'update'",
    "{{ data.port if data.prt else 1 }}": "data has no 'prt' on any host",
}


@pytest.mark.parametrize("expression", WRONG)
def test_unknown_name_is_an_error_with_a_suggestion(find_names: Lint, expression: str) -> None:
    (result,) = find_names(manifest=content(expression))
    desired = WRONG[expression].removeprefix("6:34: ")
    assert desired in result
    assert result.startswith("web/manifest.yaml:4:")


def test_a_finding_has_line_and_column_of_the_wrong_step(find_names: Lint) -> None:
    (result,) = find_names(manifest=content("p = {{ data.port }} {{ data.tls.crt }}"))
    column = content("p = {{ data.port }} {{ data.tls.crt }}").splitlines()[3].index("crt") + 1
    assert result.startswith(f"web/manifest.yaml:4:{column}: error: ")


RIGHT = [
    "{{ data.port }}",
    "{{ data.prt | default(80) }}",
    "{{ data.prt | d('x') }}",
    "{{ data.a.b.c | default(80) }}",
    "{{ data.prt if data.prt is defined else 80 }}",
    "{{ lookup('data.prt', 80) }}",
    "{{ lookup('data.prt', default=80) }}",
    "{{ hiera('prt', 80) }}",
    "{{ data.prt.x if 'prt' in data else 1 }}",
    "{{ data.get('prt', 80) }}",
    "{{ data.tls.items() | list }}",
    "{{ data.tls | dict2items }}",
    "{{ data.tls[facts.os.family] | default('x') }}",
    "{{ data.port.x if data.port is mapping else data.port }}",
    "{{ environ.ANYTHING }}",
    "{{ facts.mountpoints['/srv'].size }}",
    "{{ facts.disks.sdz.model }}",
    "{{ facts.ipaddress_eth7 }}",
    "{{ facts.os.release.major | int > 9 }}",
    "{{ data.port | ansible.builtin.string }}",
    "{{ read_file('x') ~ template('y') }}",
    "{{ (data.port | string).split('.') | first }}",
    "{{ undef('say it') }}",
    "literal {{ '{{' }}",
    "{{ [1, 2] | map(attribute='x', default=1) | list }}",
]


@pytest.mark.parametrize("expression", RIGHT)
def test_possible_names_of_hosts_are_no_finding(find_names: Lint, expression: str) -> None:
    assert find_names(manifest=content(expression)) == []


# -- places of expressions ------------------------------------------------------------------------

PLACES = {
    "data": "data: {a: '{{ data.bb }}', b: 1}\nresources: []\n",
    "overrides": "data: {b: 1}\nhierarchy: {order: [x]}\noverrides: {x: {b: '{{ facts.os.nam }}'}}\nresources: []\n",
    "order": "data: {b: 1}\nhierarchy: {order: ['{{ facts.os.famly }}']}\nresources: []\n",
    "validate": "data:\n  # @validate value is nunber\n  b: 1\nresources: []\n",
    "control": content("x").replace("mode:", "control: {if: data.prt == 1}, mode:"),
    "unless": content("x").replace("mode:", "control: {unless: data.prt == 1}, mode:"),
    "message": content("x") + "pre_message: 'is {{ data.prt }}'\n",
    "name": content("x").replace("/etc/app:", '"/etc/{{ data.prt }}":'),
    "deep": content("x").replace("mode:", "validate: [{a: '{{ data.prt }}'}], mode:"),
    "defaults": "data: {port: 1}\nresources:\n  - file:\n"
    "      - defaults: {owner: '{{ data.prt }}'}\n      - /a: {mode: '0644'}\n",
    "for": "data: {ports: [1]}\nresources:\n  - package:\n      - for: port in data.prts\n        'p{{ port }}':\n",
    "item": "data: {ports: [1]}\nresources:\n  - package:\n      - for: port in data.ports\n        'p{{ prt }}':\n",
    "item's key": "data: {v: {a: {root: /a}}}\nresources:\n  - file:\n"
    "      - for: n, v in data.v\n        '{{ v.rot }}': {mode: '0644'}\n",
    "second loop": "data: {v: {a: {l: [{nme: 1}]}}}\nresources:\n  - package:\n"
    "      - for: [k, v in data.v, i in v.lst]\n        '{{ i.nme }}':\n".replace(
        "[k, v in data.v, i in v.lst]", "['k, v in data.v', 'i in v.lst']"
    ),
    "ccm": "data: {port: 1}\nccm:\n  resources:\n    - package: ['{{ data.prt }}']\n",
}


@pytest.mark.parametrize("place", PLACES)
def test_expressions_are_followed_wherever_they_stand(find_names: Lint, place: str) -> None:
    (result,) = find_names(manifest=PLACES[place])
    text = PLACES[place].splitlines()
    line = int(result.split(":")[1])
    assert any(
        word in text[line - 1] for word in ("prt", "bb", "nam", "famly", "nunber", "prts", "rot", "lst")
    )


def test_data_is_the_union_of_all_that_a_host_may_get(find_names: Lint) -> None:
    manifest = content(
        "{{ data.a }} {{ data.b }} {{ data.c }} {{ data.d }} {{ data.e.x }} {{ data.f }}", "data: {a: 1, e: }"
    )
    files = {
        "manifest.yaml": f"{manifest}hierarchy: {{order: [one]}}\noverrides: {{one: {{b: 1}}}}\n"
        "libraries: {lib: libraries/lib}\n",
        "libraries/lib/library.yaml": "",
        "libraries/lib/data.yaml": "data: {c: 1}\n",
        "hiera.yaml": "version: 5\nhierarchy: [{name: x, glob: 'nodes/*.yaml'}]\n",
        "data/nodes/web01.yaml": "d: 1\n",
    }
    (result,) = find_names(files)
    assert "data has no 'f'" in result
    assert find_names(files, provided={"f": 1}) == []


def test_a_bundle_that_declares_no_data_is_given_all_of_it(find_names: Lint) -> None:
    assert find_names(manifest=content("{{ data.anything.at.all }}", "")) == []
    assert find_names(manifest=content("{{ data.anything }}", ""), provided={"other": 1}) == []


def test_a_key_that_is_null_is_given_by_hosts(find_names: Lint) -> None:
    assert find_names(manifest=content("{{ data.tls.cert.path }}", "data:\n  # @require\n  tls:\n")) == []


def test_a_custom_fact_is_unchecked_and_said_once_for_a_file(find_names: Lint) -> None:
    manifest = content("{{ facts.rack }} {{ facts.rack.row }}")
    assert find_names(manifest=manifest) == []
    (result,) = find_names(manifest=manifest, unchecked=True)
    assert "unchecked: facts.rack is not a built-in fact, and may be a custom fact of a host" in result
    assert find_names(manifest=manifest, facts={"rack": {"row": 1}}, unchecked=True) == []


def test_facts_of_the_bundle_are_known(find_names: Lint) -> None:
    files = {"facts.d/site.yaml": "rack: b4\n", "facts.d/run.sh": "echo x=1\n"}
    (result,) = find_names({**files, "manifest.yaml": content("{{ facts.site.rack }} {{ facts.site.rck }}")})
    assert "facts.site has no 'rck' on any host (did you mean 'rack'?)" in result
    assert find_names({**files, "manifest.yaml": content("{{ facts.run.x }}")}) == []
    (result,) = find_names({**files, "manifest.yaml": content("{{ facts.run.x }}")}, unchecked=True)
    assert "facts.run is output of a program of the bundle" in result
    printed = {"run": {"x": 1}}
    assert (
        find_names({**files, "manifest.yaml": content("{{ facts.run.x }}")}, facts=printed, unchecked=True)
        == []
    )
    (result,) = find_names(
        {**files, "manifest.yaml": content("{{ facts.run.y }}")}, facts=printed, unchecked=True
    )
    assert "facts.run.y is missing in the output of a program here, and may exist on other machines" in result


def test_guarded_misspelt_name_is_unchecked(find_names: Lint) -> None:
    manifest = content("{{ data.workerss | default(1) }}", "data: {workers: 4}")
    assert find_names(manifest=manifest) == []
    (result,) = find_names(manifest=manifest, unchecked=True)
    assert "data.workerss is not declared, and may be missing (did you mean 'workers'?)" in result


# -- children -------------------------------------------------------------------------------------


def test_child_sees_only_its_given_data(find_names: Lint) -> None:
    parent = "data: {port: 1, x: {a: 1}}\nresources:\n  - apply:\n"
    parent += "      - child.yaml: {data: {handed: '{{ data.x }}'}}\n"
    child = "resources:\n  - package: ['{{ data.handed.a }}', '{{ data.handed.b }}', '{{ data.port }}']\n"
    names = find_names(manifest=parent, child=child)
    assert [item.partition("error: ")[2].partition(" on any")[0] for item in names] == [
        "data.handed has no 'b'",
        "data has no 'port'",
    ]


def test_a_child_without_data_sees_its_parents(find_names: Lint) -> None:
    parent = "data: {port: 1}\nresources:\n  - apply: [child.yaml]\n"
    child = (
        "data: {own: 1}\nresources:\n  - package: ['{{ data.own }}', '{{ data.port }}', '{{ data.prt }}']\n"
    )
    (result,) = find_names(manifest=parent, child=child)
    assert result.startswith("web/child.yaml:3:")


def test_a_child_by_an_expression_is_found(find_names: Lint) -> None:
    parent = "data: {roles: [web]}\nresources:\n  - apply:\n"
    parent += "      - for: role in data.roles\n        'roles/{{ role }}.yaml':\n"
    child = "resources:\n  - package: ['{{ data.rols }}']\n"
    (result,) = find_names({"manifest.yaml": parent, "roles/web.yaml": child})
    assert result.startswith("web/roles/web.yaml:2:")


def test_mutual_applies_with_growing_data_terminate(find_names: Lint) -> None:
    first = "data: {a: 1}\nresources:\n  - apply:\n      - two.yaml: {data: {x: '{{ data }}'}}\n"
    two = "resources:\n  - apply:\n      - manifest.yaml: {data: {x: '{{ data }}'}}\n"
    assert find_names(manifest=first, two=two) == []


# -- Hiera trees ----------------------------------------------------------------------------------

HIERA = "version: 5\nhierarchy:\n  - {name: x, path: '%{facts.os.famly}.yaml'}\n  - {name: y, path: 'common.yaml'}\n"


def test_interpolations_of_a_tree_are_followed(find_names: Lint) -> None:
    names = find_names(
        {
            "manifest.yaml": "resources: []\n",
            "hiera.yaml": HIERA,
            "data/common.yaml": "a: 1\nb: \"%{lookup('a')} %{lookup('aa.b')}\"\nc: \"%{alias('bb')}\"\n"
            "d: '%{os.nme} %{::os.name} %{trusted.extensions.x} %{literal(''%'')}'\n",
        }
    )
    assert [item.removeprefix("web/").split(" [")[0] for item in names] == [
        "data/common.yaml:2:30: error: data has no 'aa' on any host (did you mean 'a'?)",
        "data/common.yaml:3:14: error: data has no 'bb' on any host (did you mean 'b'?)",
        "data/common.yaml:4:10: error: facts.os has no 'nme' on any host (did you mean 'name'?)",
        "hiera.yaml:3:33: error: facts.os has no 'famly' on any host (did you mean 'family'?)",
    ]


def test_level_with_external_data_may_have_any_name(find_names: Lint) -> None:
    tree = "version: 5\nhierarchy: [{name: x, lookup_key: mine}]\n"
    assert find_names({"manifest.yaml": content("{{ data.prt }}", ""), "hiera.yaml": tree}) == []


# -- unreadable files are reported by other checks ------------------------------------------------


@pytest.mark.parametrize(
    "manifest",
    ["[", "- a list", "", "data: 1\nresources: 2\n", "resources: [{file: [{for: 1, x: }]}]", "data: {a: [}"],
)
def test_files_that_are_no_manifest_raise_nothing(find_names: Lint, manifest: str) -> None:
    assert find_names(manifest=manifest) == []


def test_no_secret_is_quoted(find_names: Lint) -> None:
    data = "data:\n  # @sensitive\n  password: canary-of-a-secret\n"
    (result,) = find_names(
        manifest=content("{{ data.passwrd }}", data), provided={"password": "canary-of-a-secret"}
    )
    assert "canary" not in result
