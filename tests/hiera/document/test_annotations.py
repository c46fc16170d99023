"""Annotations: comments at keys of data that declare conditions, required values and secrets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.document.annotations import Annotations, find_annotations
from hiera.errors import HieraError
from hiera.parsing import load_yaml
from hiera.values import EACH, Secret, hidden_at
from tests.support.rows import each_row

DOCUMENT = """\
# @require is not at a key of data
other: {data: {x: 1}}  # @require
data:
  # The port.
  # @require because nothing can be guessed
  # @validate value is int and value > 1024
  port: 80
  host: a # @validate isIPv4(value)
  motd: |
    # @require
    text
  list: [1, 2] # @validate value | length > 3
  web: # @required

    # @sensitive
    # @validate value is match('^x')

    # a plain comment, a@b
    pw: s3cret
    name:
      - x: 1 # @require
  "dotted.key": "# @require"
  # @require
  empty: ""
# @author somebody
overrides: {}
"""


def annotate(*lines: str) -> Annotations:
    return find_annotations("data:\n" + "".join(f"  {line}\n" for line in lines), "f")


def failures(data: dict[str, Any], *lines: str) -> list[str]:
    return list(map(str, annotate(*lines).failures(data)))


def test_a_comment_belongs_to_the_key_beside_or_below_it() -> None:
    annotations = find_annotations(DOCUMENT, "web.yaml")
    assert [(str(rule.location), rule.kind, rule.path, rule.expression) for rule in annotations.rules] == [
        ("web.yaml:5", "require", ("port",), ""),
        ("web.yaml:6", "validate", ("port",), "value is int and value > 1024"),
        ("web.yaml:8", "validate", ("host",), "isIPv4(value)"),
        ("web.yaml:12", "validate", ("list",), "value | length > 3"),
        ("web.yaml:13", "require", ("web",), ""),
        ("web.yaml:15", "sensitive", ("web", "pw"), ""),
        ("web.yaml:16", "validate", ("web", "pw"), "value is match('^x')"),
        ("web.yaml:21", "require", ("web", "name", EACH, "x"), ""),
        ("web.yaml:23", "require", ("empty",), ""),
    ]
    assert annotations.warnings == ()
    assert annotations.sensitive == {("web", "pw")}


def test_all_failures_are_told_in_the_order_of_the_file() -> None:
    problems = find_annotations(DOCUMENT, "web.yaml").failures(load_yaml(DOCUMENT, "f")["data"])
    assert list(map(str, problems)) == [
        "web.yaml:6: data.port is 80, which does not satisfy: value is int and value > 1024",
        "web.yaml:8: data.host is 'a', which does not satisfy: isIPv4(value)",
        "web.yaml:12: data.list is [1, 2], which does not satisfy: value | length > 3",
        "web.yaml:16: data.web.pw has a secret value that does not satisfy: value is match('^x')",
        "web.yaml:23: data.empty is required, but empty",
    ]


@each_row(
    ("lines", "warning"),
    [
        (["# @requre", "a: 1"], "f:2: unknown annotation @requre (did you mean '@require'?)"),
        (["# @validate", "a: 1"], "f:2: @validate requires an expression"),
        (["a:", "  # @require", "  - 1", "b: 1"], "f:3: @require stands above no key of data"),
        (["a: 1 # @validat value", "b: 1"], "f:2: unknown annotation @validat"),
        (["a:", "  # @sensitive", "  - b: 1"], "f:3: @sensitive stands above no key of data"),
        (["a: [{b: 1, # @sensitive", "  c: 2}]"], "f:2: @sensitive stands above no key of data"),
        (["a:", "  - # @sensitive", "    b: 1"], "f:3: @sensitive stands above no key of data"),
        (["a:", "  # @sensitive", "  - {b: 1, c: 2}"], "f:3: @sensitive stands above no key of data"),
    ],
)
def test_comments_like_annotations_are_warnings(lines: list[str], warning: str) -> None:
    result = annotate(*lines)
    assert result.rules == ()
    assert len(result.warnings) == 1
    assert str(result.warnings[0]).startswith(warning)


LISTS = """\
users:
  - name: a
    # @sensitive
    # @validate value | length > 2
    password: one
  - password: two # @require
    name: b
groups: [
  {name: c,
   # @sensitive
   secrets: [x, y]}]
"""


def test_a_rule_in_a_list_holds_for_each_item() -> None:
    annotations = annotate(*LISTS.splitlines())
    assert annotations.warnings == ()
    assert annotations.sensitive == {("users", EACH, "password"), ("groups", EACH, "secrets")}
    data = {"users": [{"password": "x"}, {"password": "long"}, {"name": "c"}], "groups": []}
    assert list(map(str, annotations.failures(data))) == [
        "f:5: data.users[0].password has a secret value that does not satisfy: value | length > 2",
        "f:7: data.users[2].password is required, but empty",
    ]
    for path in annotations.sensitive:
        data = hidden_at(data, path)
    assert data["users"] == [{"password": Secret("x")}, {"password": Secret("long")}, {"name": "c"}]


def test_rules_in_overrides_hold_for_the_data() -> None:
    text = "data: {a: 1}\noverrides:\n  host:\n    # @sensitive\n    password: x\n    a: 2 # @require\n"
    annotations = find_annotations(text, "f")
    assert [(rule.kind, rule.path) for rule in annotations.rules] == [
        ("sensitive", ("password",)),
        ("require", ("a",)),
    ]


@pytest.mark.parametrize("text", ["a: 'x # @require'", "a: |", 'a: ["#", " # @sensitive"]', "a: x#@require"])
def test_text_is_no_annotation(text: str) -> None:
    result = annotate(text, "  # @sensitive is in the text" if text.endswith("|") else "b: 1")
    assert (result.rules, result.warnings) == ((), ())


@pytest.mark.parametrize("value", [None, "", "absent"])
def test_a_required_key_needs_a_value(value: object) -> None:
    data = {} if value == "absent" else {"a": value}
    assert failures(data, "# @require", "a: 1") == ["f:2: data.a is required, but empty"]


@pytest.mark.parametrize("value", [0, False, "x", [], {}, Secret("x")])
def test_zero_and_false_are_values(value: object) -> None:
    assert failures({"a": value}, "# @require", "a: 1") == []


@each_row(
    ("expression", "good", "bad"),
    [
        ("value is ip", ["192.0.2.1", "::1"], ["300.1.1.1", "", 5, "192.0.2.1/24"]),
        ("value is ipv4", ["192.0.2.1"], ["::1"]),
        ("value is ipv6", ["::1"], ["192.0.2.1"]),
        ("value is int", [5, "5", "-5"], ["5x", 5.5, True, "٥"]),
        ("value is float", [5, "5.5", 5.5, "1e3"], ["x", True]),
        ("value is duration", ["5s", "1h30m", "2d", "1.5h"], ["5", "s", 5]),
        ("value is hostname", ["web-01", "a.example.org"], ["-a", "a_b", "a" * 64, ""]),
        ("value is fqdn", ["a.example.org"], ["web", "192.0.2.1", "a."]),
        ("value is shell_safe", ["a b", 5], ["a; b", "$(x)", "`x`", "a\nb"]),
        ("value is match('^[a-z]+$')", ["abc"], ["ABC", "a1"]),
        ("isIP(value)", ["::1"], ["x"]),
        ("isIPv4(value) or isIPv6(value)", ["192.0.2.1"], ["x"]),
        ("is_ipv4(value)", ["192.0.2.1"], ["::1"]),
        ("isInt(value)", [5, "5"], ["x"]),
        ("isFloat(value)", ["5.5"], ["x"]),
        ("isDuration(value)", ["5s"], ["x"]),
        ("isHostname(value) and isFQDN(value)", ["a.example.org"], ["web"]),
        ("isRegex(value, '^a')", ["abc"], ["xbc"]),
        ("isShellSafe(value) and is_shellsafe(value)", ["a"], ["a|b"]),
        ("Value in ['a', 'b']", ["a"], ["c"]),
        ("value | length > 1", ["ab", [1, 2]], ["a", [1]]),
    ],
)
def test_a_value_is_checked(expression: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert failures({"a": value}, f"# @validate {expression}", "a: 1") == [], value
    for value in bad:
        assert len(failures({"a": value}, f"# @validate {expression}", "a: 1")) == 1, value


@pytest.mark.parametrize(
    ("expression", "good", "bad"),
    [
        ('isInt(value) || value == "auto"', [5, "auto"], ["x"]),
        ("isInt(value) && !isIPv4(value)", [5], ["192.0.2.1", "x"]),
        ("value != 'a||b' && value != 'c!' ", ["x"], ["a||b", "c!"]),
        ('!(value in [\'a\', "b\\"!"])', ["c"], ["a", 'b"!']),
        ("value | length > 1 && !('x' in value)", [["a", "b"], {"a": 1, "b": 2}], [["a"], ["x", "b"]]),
    ],
)
def test_operators_may_be_written_as_other_tools_do(expression: str, good: list[Any], bad: list[Any]) -> None:
    annotations = find_annotations(f"data:\n  # @validate {expression}\n  k: null\n", "web.yaml")
    assert [annotations.failures({"k": value}) for value in good] == [[]] * len(good)
    for value in bad:
        (failure,) = annotations.failures({"k": value})
        assert str(failure).endswith(f"does not satisfy: {expression.strip()}")


@pytest.mark.parametrize("data", [{}, {"a": None}])
def test_absent_values_are_not_validated(data: dict[str, Any]) -> None:
    assert failures(data, "# @validate false", "a: 1") == []


@pytest.mark.parametrize(
    ("expression", "failure"),
    [
        ("value +", "f:2: data.a cannot be validated: value +: is not valid: unexpected 'end of template'"),
        ("valu", "f:2: data.a cannot be validated: valu: unknown name 'valu' (did you mean 'value'?)"),
        ("value + 1", "f:2: data.a cannot be validated: value + 1 is neither true nor false"),
        ("1 / 0", "f:2: data.a cannot be validated: 1 / 0: cannot be evaluated: ZeroDivisionError"),
    ],
)
def test_an_expression_that_cannot_tell_is_a_failure(expression: str, failure: str) -> None:
    (reported,) = failures({"a": 1}, f"# @validate {expression}", "a: 1")
    assert reported.startswith(failure)


@pytest.mark.parametrize("expression", ["value is int", "value + 1 > 0", "value == 1"])
def test_a_secret_is_not_shown(expression: str) -> None:
    for value, lines in (
        (Secret("s3cret"), [f"# @validate {expression}"]),
        ("s3cret", ["# @sensitive", f"# @validate {expression}"]),
    ):
        (reported,) = failures({"a": value}, *lines, "a: 1")
        assert "s3cret" not in reported


@given(st.text(alphabet="data:\n #@require{}[]'-|", max_size=80))
def test_annotations_are_found_in_all_loadable_documents(text: str) -> None:
    text = f"data:\n  a: 1 # @require\n{text}"
    try:
        load_yaml(text, "f")
    except HieraError:
        return
    assert find_annotations(text, "f").rules
