"""YAML as Psych reads it. Psych 4.0.3 returned the expected values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.errors import DocumentError, HieraError, LimitError
from hiera.tree import psych
from hiera.tree.ruby_values import OddKey, Symbol, WholeFloat
from tests.support.rows import each_row


@each_row(
    ("text", "value"),
    [
        ("yEs", True),
        ("oFF", False),
        ("y", "y"),
        ("nUll", None),
        ("~", None),
        ("nil", "nil"),
        ("0755", 493),
        ("0o755", "0o755"),
        ("0899", "0899"),
        ("-0x1f", -31),
        ("0b101", 5),
        ("1,0,0", 100),
        ("1_000", 1000),
        ("1_", "1_"),
        ("1__0", "1__0"),
        ("+42", 42),
        ("1.", 1.0),
        (".5", 0.5),
        ("1,000.5", 1000.5),
        ("2.5E-3", 0.0025),
        ("1.0e+20", 1e20),
        ("1.e+5", 100000.0),
        ("1e3", "1e3"),
        ("1.5e3", "1.5e3"),
        (".", "."),
        ("-.", "-."),
        ("12:30", 45000),
        ("22:22", 80520),
        ("1:30.5", 5430.0),
        ("-1:30", -1800),
        ("99:99", "99:99"),
        ("01:02:03:04", "01:02:03:04"),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("2024-13-45", "2024-13-45"),
        ("10.0.0.1", "10.0.0.1"),
        (":foo", Symbol("foo")),
        ("::foo", Symbol(":foo")),
        (':"a b"', Symbol("a b")),
        (":", ":"),
        ("+foo", "+foo"),
        ("żółć", "żółć"),
    ],
)
def test_a_plain_scalar_has_the_type_that_psych_gives_it(text: str, value: Any) -> None:
    typed = psych.plain(text)
    assert typed == value
    assert type(typed) is type(value)


@pytest.mark.parametrize("text", ["2024-01-02", "2024-1-2", "2024-01-02 03:04:05", "2024-01-02T03:04:05Z"])
def test_date_makes_the_text_unreadable_with_location(text: str) -> None:
    with pytest.raises(DocumentError) as caught:
        psych.load(f"a: 1\nb: {text}\n".encode(), "x.yaml")
    assert "Unable to parse (x.yaml): Tried to load unspecified class: " in str(caught.value)
    assert str(caught.value).endswith("at line 2 column 4")


@each_row(
    ("text", "value"),
    [
        ("a: 1\na: 2", {"a": 2}),
        ("a: first\n---\na: second", {"a": "first"}),
        (":k:\n  :l: 1", {"k": {"l": 1}}),
        ("a: '1'\nb: \"~\"\nc: |\n  no", {"a": "1", "b": "~", "c": "no"}),
        ("a: ! 42", {"a": 42}),
        ("a: !!str 42", {"a": "42"}),
        ("a: !!int '42'", {"a": 42}),
        ("a: !!float 1", {"a": 1.0}),
        ("a: !!binary aGk=", {"a": "hi"}),
        ("a: !!omap [x: 1, y: 2]", {"a": {"x": 1, "y": 2}}),
        ("a: !anything {b: 1}", {"a": {"b": 1}}),
        ("a: !ruby/sym b", {"a": Symbol("b")}),
        ("b: &b {x: 1}\na: {x: 2, <<: *b}", {"b": {"x": 1}, "a": {"x": 1}}),
        ("a: {<<: [{x: 1}, {x: 2, y: 2}]}", {"a": {"x": 1, "y": 2}}),
        ('a: {"<<": {x: 1}}', {"a": {"x": 1}}),
        ("a: {<<: text}", {"a": {"<<": "text"}}),
        ("l: &l [{x: 1}]\na: {<<: *l}", {"l": [{"x": 1}], "a": {"<<": [{"x": 1}]}}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
        ("# nothing", None),
        ("", None),
    ],
)
def test_a_document_is_read_as_psych_reads_it(text: str, value: Any) -> None:
    assert psych.load(text.encode(), "x.yaml") == value


def test_keys_that_python_would_confuse_are_kept_apart() -> None:
    mapping = psych.load(b"{1: integer, 1.0: float, true: boolean, '1': text}", "x.yaml")
    assert mapping == {1: "integer", WholeFloat(1.0): "float", OddKey(True): "boolean", "1": "text"}
    assert len(mapping) == 4


@each_row(
    ("text", "message"),
    [
        (b"a: {b", "did not find expected ',' or '}' while parsing a flow mapping at line 1 column 4"),
        (b"a: *x", "Unknown alias: x at line 1 column 4"),
        (b"a: &x [*x]", "the alias *x stands inside its own anchor at line 1 column 8"),
        (b"a: !ruby/object:Foo {}", "Tried to load unspecified class: Foo at line 1 column 4"),
        (b"a: !!set {b}", "Tried to load unspecified class: Psych::Set at line 1 column 4"),
        (b"a: 0x_", 'invalid value for Integer(): "0x" at line 1 column 4'),
        (b"k: 1\na: caf\xe9", "at line 2 column 7: the text is not UTF-8"),
        (b"k: 1\na: \x01", "control characters are not allowed at line 2 column 4"),
        (b"a: " + b"9" * 5000, "a number has 5000 digits"),
    ],
)
def test_unreadable_yaml_is_an_error_with_location(text: bytes, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        psych.load(text, "data/x.yaml")
    assert str(caught.value).startswith("Unable to parse (data/x.yaml): ")
    assert message in str(caught.value)


def test_deep_nesting_is_refused_before_it_hurts() -> None:
    with pytest.raises(LimitError, match="nested deeper than 400 levels at line 2 column 800"):
        psych.load(b"[\n" + b" [" * 400, "x.yaml")
    # libyaml reads ahead on one line, and versions from 0.2.6 stop at a depth of 1000.
    with pytest.raises(LimitError, match=r"nested deeper than 400 levels at line 1 column (401|1001)"):
        psych.load(b"[" * 100_000, "x.yaml")


def test_aliases_that_unfold_to_billions_of_values_are_refused() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(LimitError, match="aliases unfold to more than 5000000 values"):
        psych.load("\n".join(lines).encode(), "x.yaml")


@given(st.text(alphabet="ab:{}[],&*!<>|-?#'\"%@`\n 0129.~yn", max_size=60) | st.binary(max_size=40))
def test_any_text_is_read_or_refused_by_an_error_of_ours(text: str | bytes) -> None:
    try:
        psych.load(text.encode() if isinstance(text, str) else text, "x.yaml")
    except HieraError as error:
        assert "x.yaml" in str(error)
