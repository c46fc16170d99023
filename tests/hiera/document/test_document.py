"""A single document gives data with an explanation, or an error with its location."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hiera import parsing
from hiera.document.document import Document
from hiera.errors import DocumentError, HieraError, LimitError, UndefinedError
from hiera.values import Secret
from tests.support.rows import each_row

CASES = yaml.load((Path(__file__).parents[2] / "cases/hiera/documents.yaml").read_text(), yaml.CSafeLoader)


def resolve(text: str, **given: Any) -> dict[str, Any]:
    return Document.parse(text, "web.yaml").resolve(given.pop("facts", {}), **given).data


@each_row("case", CASES["cases"], ids=lambda case: case["name"])
def test_a_document_comes_to_data_or_an_error(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(HieraError) as caught:
            resolve(case["document"], facts=CASES["facts"])
        assert case["error"] in str(caught.value)
        assert str(caught.value).startswith("web.yaml:")
    else:
        data = resolve(case["document"], facts=CASES["facts"])
        assert data == case["data"]
        assert json.dumps(data, sort_keys=True) == json.dumps(case["data"], sort_keys=True)


def test_a_document_may_be_bytes_and_has_a_limit() -> None:
    assert Document.parse(b"data: {a: 1}", "f").resolve({}).data == {"a": 1}
    with pytest.raises(LimitError, match="f: is longer than the 5 characters"):
        Document.parse(b"data: {a: 1}", "f", limit=5)


def test_document_in_a_manifest_ignores_other_keys() -> None:
    text = "resources: []\ndata:\n  a: x{{ facts.nope }}\n"
    value = parsing.load_yaml(text, "manifest.yaml")
    document = Document.from_value(value, "manifest.yaml", lambda path: parsing.locate(text, path))
    with pytest.raises(
        UndefinedError, match=r"^manifest.yaml:3:3: data.a: {{ facts.nope }}: unknown key 'nope' in facts"
    ):
        document.resolve({})


def test_expressions_see_environment_and_given_functions() -> None:
    text = "data: {home: '{{ environ.HOME }}', f: '{{ double(2) }}'}"
    functions = {"double": lambda number: number * 2}
    assert resolve(text, environ={"HOME": "/root"}, functions=functions) == {"home": "/root", "f": 4}


def test_expressions_see_data_of_lower_sources() -> None:
    text = """
data:
  url: http://{{ data.web.host }}:{{ data.web.port }}/{{ data.path }}
  web: {port: 80}
  list: [1]
  seen: "{{ data.list }}"
  replaced: text
  whole: "{{ data.web }}"
"""
    lower = {"web": {"host": "h", "port": 1}, "path": "p", "list": [9], "replaced": {"x": 1}, "other": 1}
    assert resolve(text, data=lower) == {
        "url": "http://h:80/p",
        "web": {"port": 80},
        "list": [1],
        "seen": [1],
        "replaced": "text",
        "whole": {"host": "h", "port": 80},
    }


def test_replacing_section_hides_lower_sources() -> None:
    text = """
data: {c: "{{ data.m.y }}"}
hierarchy: {order: [a, b], merge: deep}
overrides: {a: {m: 1}, b: {m: {x: 1}}}
"""
    with pytest.raises(UndefinedError, match=r"unknown key 'y' in data\.m"):
        resolve(text, data={"m": {"y": 2}})


def test_a_long_chain_of_values_is_an_error_of_ours() -> None:
    links = "".join(f"  k{n}: '{{{{ data.k{n + 1} }}}}'\n" for n in range(500))
    with pytest.raises(LimitError, match=r"^web.yaml: values refer to one another over too many steps$"):
        resolve(f"data:\n{links}  k500: 1\n")


def test_value_derived_from_a_lower_secret_is_secret() -> None:
    data = resolve("data: {url: 'db://{{ data.pw }}', n: 1}", data={"pw": Secret("s3cret")})
    assert isinstance(data["url"], Secret)
    assert data["url"].reveal() == "db://s3cret"


def test_result_is_independent_of_later_hosts() -> None:
    document = Document.parse("data: {a: {b: '{{ facts.x }}'}, l: [1]}", "f")
    first = document.resolve({"x": 1}).data
    first["a"]["b"] = "changed"
    assert document.resolve({"x": 2}).data == {"a": {"b": 2}, "l": [1]}


def test_annotated_value_and_its_derivatives_are_secret() -> None:
    text = """
data:
  # @sensitive
  pw: s3cret
  url: db://{{ data.pw }}
  n: 1
  db:
    # @sensitive
    80: {pin: 1}
    pin: "{{ data.db[80].pin }}"
  # @sensitive
  none:
overrides:
  default: {pw: "ot{{ 'h' }}er"}
"""
    data = resolve(text)
    secrets = data["pw"], data["url"], data["db"][80]["pin"], data["db"]["pin"]
    assert [secret.reveal() for secret in secrets] == ["other", "db://other", 1, 1]
    assert (data["n"], data["none"]) == (1, None)


def test_annotations_are_checked_on_the_final_data() -> None:
    document = Document.parse("data:\n  # @validate value is int\n  a: x\n", "f")
    assert document.annotations is not None
    assert document.annotations.failures({"a": 1}) == []
    assert list(map(str, document.annotations.failures({"a": "x"}))) == [
        "f:2: data.a is 'x', which does not satisfy: value is int"
    ]


# -- explanations ---------------------------------------------------------------------------------

EXPLAINED = """
hierarchy:
  order: ["host:{{ facts.name }}", "role:{{ facts.nope }}", data, other, default]
  merge: MERGE
data: {a: 1, m: {x: 1}, l: [1], s: x}
overrides:
  host:web01: {m: {y: 2}, l: [2], s: [1]}
  default: {d: 1, s: "{{ [2] }}"}
"""


def explain(merge: str) -> Any:
    return Document.parse(EXPLAINED.replace("MERGE", merge), "f").resolve({"name": "web01"}).explanation


def test_explanation_lists_entries_and_sources_of_each_key() -> None:
    assert list(explain("deep").lines()) == [
        "f: merge is deep: later wins",
        "  host:{{ facts.name }} → host:web01: merged over the entries above",
        "  role:{{ facts.nope }}: does not match: its reference is missing or empty",
        "  data: is skipped: the base data is always there",
        "  other: lacks a section in overrides",
        "  default: merged over the entries above",
        "  a: data",
        "  m: data + overrides['host:web01']",
        "  l: data + overrides['host:web01']",
        "  s: overrides['host:web01'] + overrides.default",
        "  d: overrides.default",
    ]


def test_the_first_section_decides_and_the_explanation_says_so() -> None:
    explanation = explain("first")
    assert [entry.merged for entry in explanation.entries] == [True, False, False, False, False]
    assert explanation.entries[4].reason == "is not needed: an earlier entry has decided"
    assert explanation.keys["m"] == ("overrides['host:web01']",)
    assert "d" not in explanation.keys


def test_an_explanation_is_data_too() -> None:
    data = json.loads(json.dumps(explain("first").as_data()))
    assert data["source"] == "f"
    assert data["entries"][1] == {
        "text": "role:{{ facts.nope }}",
        "name": None,
        "merged": False,
        "reason": "does not match: its reference is missing or empty",
    }
    assert data["keys"]["a"] == ["data"]


# -- laws -----------------------------------------------------------------------------------------

TEXTS = st.sampled_from(
    [
        "x",
        "{{ facts.a }}",
        "{{ facts.m }}",
        "{{ data.a }}",
        "x{{ data.b.c }}",
        "{{ data.c.0 }}",
        "{{ facts.nope }}",
    ]
)
KEYS = st.sampled_from(["a", "b", "c"])
PLAIN = st.recursive(
    st.none() | st.integers(0, 3) | st.just("x"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
VALUES = st.recursive(
    st.none() | st.integers(0, 3) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
MERGE = st.sampled_from(["first", "deep"])


def document(merge: str, sections: list[dict[str, Any]]) -> str:
    base, *others = sections
    overrides = {f"s{number}": section for number, section in enumerate(others)}
    return json.dumps(
        {"data": base, "hierarchy": {"order": list(overrides), "merge": merge}, "overrides": overrides}
    )


@given(MERGE, st.lists(st.dictionaries(KEYS, PLAIN, max_size=3), min_size=1, max_size=4))
def test_lazy_resolution_equals_plain_merging(merge: str, sections: list[dict[str, Any]]) -> None:
    plain = resolve(document(merge, sections))
    sections[0]["lazy"] = "{{ 1 }}"
    assert resolve(document(merge, sections)) == {**plain, "lazy": 1}


@given(MERGE, st.lists(st.dictionaries(KEYS, VALUES, max_size=3), min_size=1, max_size=3))
def test_any_document_gives_data_or_an_error_with_location(
    merge: str, sections: list[dict[str, Any]]
) -> None:
    try:
        data = resolve(document(merge, sections), facts={"a": 1, "m": {"c": [5]}})
    except HieraError as error:
        assert str(error).startswith("web.yaml:")
    else:
        assert "{{" not in json.dumps(data)


@given(st.text(alphabet="dataorhiechyvs{}[]:,- \n'\"0", max_size=60))
def test_any_text_is_a_document_or_a_document_error(text: str) -> None:
    try:
        Document.parse(text, "f").resolve({})
    except (DocumentError, LimitError) as error:
        assert str(error).startswith("f:")
