"""Filters and tests of Ansible's core: they return Ansible's values, and missing names have their own error."""

import json
from pathlib import Path
from typing import Any

import pytest

from hiera.errors import ExpressionError, HieraError, LimitError
from hiera.expressions.expressions import Scope, evaluate
from hiera.expressions.filters import OWN_FILTERS, OWN_TESTS
from hiera.expressions.refused import REFUSED_FILTERS, REFUSED_TESTS
from hiera.values import Secret
from tests.support.rows import each_row

CASES = json.loads((Path(__file__).parents[2] / "cases/templates/ansible_filters.json").read_text())


@each_row("case", CASES, ids=lambda case: case["expression"])
def test_a_filter_answers_as_that_of_ansible_did(case: dict[str, Any]) -> None:
    """ansible-core 2.19 returned these values. Types must be equal at all levels."""
    value = evaluate(case["expression"], Scope({}))
    assert json.dumps(value) == json.dumps(case["value"])


OF_ANSIBLE = {
    "filters": "b64decode b64encode basename bool checksum combinations combine comment commonpath dict2items "
    "difference dirname expanduser expandvars extract fileglob flatten from_json from_yaml from_yaml_all "
    "hash human_readable human_to_bytes intersect items2dict log mandatory md5 normpath password_hash "
    "path_join permutations pow product quote random realpath regex_escape regex_findall regex_replace "
    "regex_search rekey_on_member relpath root sha1 shuffle split splitext strftime subelements "
    "symmetric_difference ternary to_datetime to_json to_nice_json to_nice_yaml to_uuid to_yaml "
    "type_debug union unique unvault urldecode urlsplit vault win_basename win_dirname win_splitdrive zip "
    "zip_longest",
    "tests": "abs all any change changed contains directory exists failed failure falsy file finished is_abs "
    "is_dir is_file is_link is_mount is_same_file isnan issubset issuperset link link_exists match mount "
    "nan reachable regex same_file search skip skipped started subset succeeded success successful "
    "superset timedout truthy unreachable uri url urn vault_encrypted vaulted_file version "
    "version_compare",
}
"""All names in the documentation of ansible-core 2.19."""


def test_every_core_filter_and_test_exists_or_is_refused() -> None:
    assert set(OF_ANSIBLE["filters"].split()) <= {*OWN_FILTERS, *REFUSED_FILTERS}
    assert set(OF_ANSIBLE["tests"].split()) <= {*OWN_TESTS, *REFUSED_TESTS}
    assert not OWN_FILTERS.keys() & REFUSED_FILTERS.keys()
    assert not OWN_TESTS.keys() & REFUSED_TESTS.keys()


@each_row(
    ("expression", "sentence"),
    [
        ("'~/x' | expanduser", "the filter expanduser reads the disk of the machine"),
        ("'/x' | ansible.builtin.realpath", "the filter ansible.builtin.realpath reads the disk"),
        ("'x' if true else ('a' | vault('b'))", "the filter vault requires a password of the controller"),
        ("['/x'] | map('realpath') | list", "the filter realpath reads the disk"),
        ("['/x'] | select('exists') | list", "the test exists reads the disk"),
        (
            "[{'p': '/x'}] | rejectattr('p', 'ansible.builtin.file') | list",
            "the test ansible.builtin.file reads",
        ),
        ("'/x' is directory", "use a fact of your own (facts.d), or control of the resource"),
        ("{} | json_query('a')", "json_query is not part of Ansible's core"),
        ("lookup('env', 'HOME')", "not the plugin 'env': write environ.NAME, or data.name"),
        ("lookup('ansible.builtin.file', '/etc/x')", "use read_file('path'), for a file of the bundle"),
        ("query('items', [1])", "unknown name 'query': lookup(path, default) finds facts and data"),
        ("now()", "unknown name 'now': the current time differs in every run"),
        ("hostvars['a']", "unknown name 'hostvars': Puller has no data of other hosts"),
        ("data.port | default(undef('set data.port'))", "set data.port"),
        ("[1] | shuffle", "shuffle requires a seed, such as shuffle(seed=facts.fqdn)"),
        ("[] | random(seed='x')", "random requires an item to choose from"),
        ("'x' | password_hash", "password_hash requires a salt of up to 22 letters"),
        ("'x' | password_hash(salt='a$b')", "password_hash requires a salt of up to 22 letters"),
        ("'x' | password_hash('rot13', 'salt')", "password_hash does not accept 'rot13', only md5, sha256"),
        (
            "'x' | password_hash('sha512', 'salt', rounds=10**9)",
            "rounds of sha512 is 1000000000, expected 1 to 1000000",
        ),
        (
            "'x' | password_hash('md5', 'salt', rounds=5)",
            "rounds of md5 is 5, expected no rounds for this hash",
        ),
        ("'%Y' | strftime", "the current time differs in every run"),
        ("'%Y' | strftime('x')", "strftime requires seconds since 1970, not 'x'"),
        ("'x' | to_datetime", "to_datetime: time data 'x' does not match format"),
        ("'x' | hash('rot13')", "hash does not accept 'rot13', only md5, sha1"),
        ("'x' | to_uuid('y')", "to_uuid requires a UUID as namespace, not 'y'"),
        ("'x' | relpath", "relpath requires two absolute paths"),
        ("'x' | comment('sql')", "comment does not accept style 'sql', only plain, c, cblock"),
        ("'x' | comment(indent=2)", "comment does not accept indent, only beginning, decoration"),
        ("'x' | regex_escape('pcre')", "regex_escape does not accept 'pcre', only python and posix_basic"),
        (
            "'aa' | regex_replace('a', 'b', mandatory_count=3)",
            "'a' should match 3 times, and matches 2 times",
        ),
        ("'x' is regex('x', match_type='find')", "regex does not accept 'find'"),
        ("'10 X' | human_to_bytes", "human_to_bytes does not accept unit 'X'"),
        ("'1 Mb' | human_to_bytes", "human_to_bytes does not accept unit 'Mb', only B, KB, MB"),
        ("'ten' | human_to_bytes", "human_to_bytes requires text such as '10 MB', not 'ten'"),
        (
            "[{}] | subelements('g')",
            "subelements requires the key 'g' in each item, unless skip_missing=true",
        ),
        ("[{'g': 1}] | subelements('g')", "subelements requires a list at 'g', not a number"),
        ("[1] | subelements('g')", "subelements requires a mapping with 'g', not a number"),
        (
            "[{'a': 1}, {'a': 1}] | rekey_on_member('a')",
            "rekey_on_member requires unique keys, but 1 is duplicate",
        ),
        ("[{'a': 1}] | rekey_on_member('b')", "rekey_on_member requires mappings with a key 'b'"),
        ("'http://[' | urlsplit", "urlsplit cannot read the URL"),
        ("'x' | urlsplit('color')", "urlsplit does not accept 'color'"),
        ("[1] is changed", "changed requires the result of a task, a mapping, not a list"),
        ("'1' is version('2', version_type='pep440')", "version does not accept version_type 'pep440'"),
        ("'1.x' is version('2.0.0', 'lt', version_type='semver')", "'1.x' is not a version of this type"),
        (
            "{'a': 1} | to_nice_yaml(colour=1)",
            "to_yaml does not accept colour, only allow_unicode, canonical",
        ),
        ("'a: b: c' | from_yaml_all", "the text given to from_yaml_all"),
        ("0 | log", "cannot be evaluated"),
    ],
)
def test_refused_filters_name_their_replacement(expression: str, sentence: str) -> None:
    with pytest.raises(HieraError) as caught:
        evaluate(expression, Scope({}))
    assert sentence in str(caught.value)


@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    "expression",
    [
        "range(200000) | permutations(3)",
        "range(64) | combinations(32)",
        "[0, 1] | product(repeat=10**9)",
        "[0, 1] | product(repeat=40)",
        "range(10000) | product(range(10000))",
        "'x' | comment(prefix_count=10**10)",
        "'x' | comment(decoration='y' * 20000)",
        "'%099999999d' | strftime(0)",
        "('%Y' * 10000) | strftime(0)",
        "[1] | to_json(separators=['x' * 100000, ':'])",
        "(range(300000) | list) | to_yaml(width=10)",
        "2 | pow(10**400)",
    ],
)
def test_too_large_results_are_stopped(expression: str) -> None:
    with pytest.raises((LimitError, ExpressionError)):
        evaluate(expression, Scope({}))


@each_row("value", ["none", "{}", "1.5", "{'a': 1}"])
@each_row("name", ["ipaddr", "ipv4", "ipv6('address')", "ipwrap"])
def test_filters_of_addresses_refuse_other_values(name: str, value: str) -> None:
    with pytest.raises(ExpressionError, match=r"ip(addr|wrap) requires text"):
        evaluate(f"{value} | {name}", Scope({}))


def test_indent_refuses_null() -> None:
    with pytest.raises(ExpressionError, match="indent requires text, not null"):
        evaluate("none | indent", Scope({}))


def test_derived_value_of_a_secret_is_secret() -> None:
    scope = Scope({}, {"pw": Secret("s3cret")})
    for expression in ("data.pw | password_hash(salt='x')", "data.pw | comment", "data.pw | hash"):
        assert isinstance(evaluate(expression, scope), Secret)


def test_a_number_is_another_seed_than_its_digits() -> None:
    scope = Scope({})
    assert evaluate("100 | random(seed=7)", scope) != evaluate("100 | random(seed='7')", scope)
    assert evaluate("['a', 'b', 'c'] | shuffle(seed=0)", scope) == evaluate(
        "['a', 'b', 'c'] | shuffle(seed=0)", scope
    )


def test_time_values_expose_only_their_parts() -> None:
    scope = Scope({})
    with pytest.raises(ExpressionError, match="is no plain value, not a value"):
        evaluate("'2020-01-01' | to_datetime('%Y-%m-%d')", scope)
    for expression in ("t.strftime('%Y')", "t.__class__", "t.replace(year=1)"):
        with pytest.raises(HieraError):
            evaluate(expression.replace("t.", "('2020-01-01' | to_datetime('%Y-%m-%d'))."), scope)
