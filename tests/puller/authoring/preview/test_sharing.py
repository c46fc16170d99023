"""Machines that share a resolution have the same result as machines that are resolved separately."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puller.authoring.preview.groups import Machine
from puller.authoring.preview.resolvers import Given, Read, Reads, SeparateResolver, Shared, Watched
from puller.delivery.report_document import chosen_facts
from puller.facts.fact_tree import described
from puller.facts.fact_values import FactReads
from puller.manifest.manifest import ManifestSource

KEY = b"0123456789abcdef"
FILE = "owner: nobody-here, group: staff, mode: '0644'"
READERS = {
    "a plain name": "{{ facts.os.family }}",
    "a default": "{{ lookup('facts.os.release', 'none') }}",
    "an attribute": "{{ facts.os.family if facts.os is mapping else 'no' }}",
    "what is in a mapping": "{{ 'release' in facts.os }}",
    "what is in all facts": "{{ 'extra' in facts }}",
    "the number of names": "{{ facts.os | length }}",
    "names in order": "{{ facts.os | list | join(',') }}",
    "values": "{{ facts.os.values() | list | string }}",
    "a mapping as JSON": "{{ facts.os | to_json }}",
    "equality": "{{ facts.os == {'family': 'Debian'} }}",
    "two mappings": "{{ facts.os == facts.extra }}",
    "a mapping as text": "{{ facts.os | string }}",
    "a list": "{{ facts.list | first }}",
    "truth": "{{ 'yes' if facts.os else 'no' }}",
    "a name out of a fact": "{{ facts[facts.os.family | string] | default('none') }}",
    "the kind of a value": "{{ facts.os.family is string }}",
    "all facts": "{{ facts | to_json }}",
}
TEMPLATES = {
    "a.j2": "{{ facts.os.family }} {{ facts.extra | default('none') }}",
    "b.j2": "{% for k, v in facts.os.items() %}{{ k }}={{ v }};{% endfor %}{{ facts.os }}",
    "c.tmpl": "{{ .facts.os.family }}",
    "d.tmpl": "{{ if .facts.extra }}there{{ end }}{{ range $k, $v := .facts.os }}{{ $k }}{{ $v }}{{ end }}",
    "e.jet": "[[ facts.os.family ]]",
    "f.tmpl": "{{ range $k, $v := .facts }}{{ $k }}{{ $v }}{{ end }}",
    "g.tmpl": "{{ toJson .facts.os }}",
    "i.tmpl": '{{ .facts.os.family }}{{ if hasKey .facts.os "release" }}r{{ end }}{{ get .Facts.os "x" }}',
    "j.jet": "[[ facts.os.family ]][[ if isset(facts.os.x) ]]x[[ end ]][[ lookup('facts.extra.family', 'no') ]]",
    "k.tmpl": "{{ len .facts.os }}{{ keys .facts | sortAlpha }}{{ deepEqual .facts.os .facts.extra }}",
    "l.tmpl": '{{ $m := deepCopy .facts }}{{ $_ := set $m "os" 1 }}{{ unset .facts "os" }}{{ .facts }}{{ $m }}',
    "m.jet": "[[ facts.os == facts.extra ]][[ facts.os ]][[ len(facts) ]]",
    "n.jet": "[[ facts.os = 1 ]][[ facts.os ]][[ facts ]]",
    "o.tmpl": '{{ with merge (dict "family" 1) .facts.os }}{{ . }}{{ end }}{{ .facts.os | toPrettyJson }}',
    "p.tmpl": '{{ $_ := set .facts.os "family" "mine" }}{{ .facts.os.family }}{{ .facts.os }}',
    "h.jet": "[[ if isset(facts.extra) ]]there[[ end ]][[ lookup('facts.os.release', 'no') ]]",
}
leaves = st.sampled_from(["Debian", "os", "extra", 1, 1.0, True, None, "1", ""])
FACTS = st.fixed_dictionaries(
    {"name": st.integers(0, 3)},
    optional={
        "os": st.one_of(
            st.dictionaries(st.sampled_from(["family", "release", "x"]), leaves, max_size=3), leaves
        ),
        "extra": st.one_of(leaves, st.dictionaries(st.sampled_from(["family"]), leaves)),
        "list": st.lists(leaves, max_size=2),
    },
)


def resolver(directory: Path, manifest: str, files: dict[str, str] | None = None) -> SeparateResolver:
    directory.mkdir(exist_ok=True)
    for name, text in {"manifest.yaml": manifest, **(files or {})}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return SeparateResolver(ManifestSource(directory / "manifest.yaml", "b/manifest.yaml"), Given(KEY))


def of_content(content: str) -> str:
    return f"resources:\n  - file: [{{/x: {{{FILE}, content: {json.dumps(content)}}}}}]\n"


def of_template(name: str) -> str:
    return f"resources:\n  - file: [{{/x: {{{FILE}, template: {name}}}}}]\n"


READ_ALL = {"all facts", "f.tmpl", "l.tmpl", "n.jet"}
BUNDLES: dict[str, tuple[str, dict[str, str]]] = {
    **{name: (of_content(text), {}) for name, text in READERS.items()},
    **{name: (of_template(name), {name: text}) for name, text in TEMPLATES.items()},
    "control": (
        f"resources:\n  - file: [{{/x: {{{FILE}, content: x, control: {{if: \"facts.os.family == 'Debian'\"}}}}}}]\n",
        {},
    ),
    "a hierarchy": (
        "data: {a: 1}\nhierarchy: {order: ['family:{{ facts.os.family }}']}\noverrides: {'family:Debian': {a: 2}}\n"
        + of_content("{{ data.a }}"),
        {},
    ),
    "a tree": (
        of_content("{{ data.a }}"),
        {
            "hiera.yaml": "version: 5\nhierarchy: [{name: a, paths: ['%{facts.os.family}.yaml', c.yaml]}]\n",
            "data/Debian.yaml": "a: 2\n",
            "data/c.yaml": "a: 1\n",
        },
    ),
    "a tree with whole facts": (
        of_content("{{ data.a }}{{ data.b }}"),
        {
            "hiera.yaml": "version: 5\nhierarchy: [{name: a, paths: ['%{facts.os.release}.yaml', c.yaml]}]\n",
            "data/1.yaml": "a: 2\n",
            "data/c.yaml": "a: '%{facts.os} %{os.family}'\nb: '%{facts.os.release.x}%{extra}'\n",
        },
    ),
    "a loop": (
        f"resources:\n  - file: [{{'/{{{{ item }}}}': {{{FILE}, content: x}}, foreach: 'facts.list'}}]\n",
        {},
    ),
    "facts of a bundle": (
        of_template("a.tmpl"),
        {"a.tmpl": "{{ .facts.rack }}{{ .facts.os }}", "facts.d/rack.yaml": "here\n"},
    ),
}


EXAMPLES = max(8, settings().max_examples // 3)
"""Generated fleets for each bundle. All bundles share the same code."""


@pytest.mark.parametrize("name", list(BUNDLES))
@pytest.mark.hypothesis
@pytest.mark.representatives(2)
@pytest.mark.sample(12)
def test_shared_results_equal_separate_results(tmp_path: Path, name: str) -> None:
    by_itself = resolver(tmp_path / "b", *BUNDLES[name])

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(FACTS, min_size=2, max_size=8))
    def check(fleet: list[dict[str, Any]]) -> None:
        shared = Shared(by_itself)
        for facts in fleet:
            assert shared(Machine("m", facts)) == by_itself.of(facts)

    check()


@pytest.mark.parametrize("name", list(BUNDLES))
@pytest.mark.hypothesis
@pytest.mark.representatives(2)
@pytest.mark.sample(12)
def test_facts_of_a_report_give_the_same_outcome(tmp_path: Path, name: str) -> None:
    by_itself = resolver(tmp_path / "b", *BUNDLES[name])

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(FACTS)
    def check(facts: dict[str, Any]) -> None:
        recorded, reads = described(facts), FactReads()
        recorded.reads = reads
        outcome = by_itself.of(recorded)
        assert outcome == by_itself.of(described(facts))
        sent = chosen_facts(described(facts), [], reads)
        shared = Shared(by_itself)
        result = shared(Machine("m", described(sent.facts), sent))
        if name in READ_ALL:
            assert shared.missing
        elif name in ("k.tmpl", "m.jet"):  # they list all facts, unless they fail before
            assert shared.missing or result == outcome
        else:
            assert not shared.missing
            assert result == outcome

    check()


@pytest.mark.parametrize("name", [name for name in BUNDLES if name not in READ_ALL])
def test_machines_differing_in_unread_values_are_resolved_once(tmp_path: Path, name: str) -> None:
    shared = Shared(resolver(tmp_path / "b", *BUNDLES[name]))
    for number in range(5):
        facts = {"name": number, "os": {"family": "Debian"}, "extra": "x", "list": ["a"]}
        shared(Machine(str(number), facts))
    assert shared.resolved == 1


@pytest.mark.parametrize("name", ["a plain name", "control", "a tree", "c.tmpl", "e.jet", "i.tmpl", "j.jet"])
def test_machines_differing_in_unread_names_are_resolved_once(tmp_path: Path, name: str) -> None:
    """Interfaces differ in names and thus in legacy names. Each group has values that no other group has."""
    shared = Shared(resolver(tmp_path / "b", *BUNDLES[name]))
    for number in range(5):
        interfaces = {f"veth{number}": {"mtu": 1500}}
        os = {"family": "Debian", "release": {"major": "12", f"x{number}": number}, f"uuid{number}": number}
        facts = {"os": os, "networking": {"interfaces": interfaces}, "list": ["a"]}
        shared(Machine(str(number), described(facts)))
    assert shared.resolved == 1


def test_a_bundle_that_asks_for_names_shares_nothing(tmp_path: Path) -> None:
    shared = Shared(resolver(tmp_path / "b", of_content("{{ facts.name }}")))
    for number in range(300):
        shared(Machine(str(number), {"name": number}))
    assert shared.resolved == 300


def test_similar_machines_after_many_others_are_resolved_once(tmp_path: Path) -> None:
    """The order is that of a fleet sorted by name."""
    shared = Shared(
        resolver(tmp_path / "b", of_content("{{ facts.name if facts.role == 'db' else facts.role }}"))
    )
    for number in range(600):
        facts = {"name": number, "role": "db" if number < 300 else "web"}
        outcome = shared(Machine(str(number), facts))
    assert shared.resolved <= 316
    assert outcome == resolver(tmp_path / "b", of_content("web")).of({"name": 1}), "of its like"


def test_a_copy_of_watched_facts_asks_for_all_of_them() -> None:
    for copied in (copy.copy, copy.deepcopy):
        reads = Reads()
        assert copied(Watched({"os": {"family": "Debian"}}, reads)) == {"os": {"family": "Debian"}}
        assert Read(("os", "family")) in reads.questions()


def test_bundles_with_distinct_reads_keep_few_cache_keys(tmp_path: Path) -> None:
    shared = Shared(resolver(tmp_path / "b", of_content("{{ lookup('facts.' ~ facts.name) }}")))
    for number in range(150):
        facts = {"name": f"n{number}", f"n{number}": number}
        assert shared(Machine("m", facts)) is not None
    assert shared.resolved == 150


def test_list_changed_by_a_reader_stays_intact() -> None:
    facts = {"list": ["a"]}
    Watched(facts, Reads())["list"].append("b")
    assert facts == {"list": ["a"]}
