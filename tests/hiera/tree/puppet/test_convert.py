"""``convert_to`` and types: Puppet 7.23's function ``new`` returned the expected values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.masking import VALUE_MASK
from hiera.errors import DocumentError, HieraError, LookupFailure
from hiera.tree import puppet_convert, puppet_types
from hiera.values import Decrypted, Secret
from tests.support.rows import each_row


def converted(kind: str, *arguments: Any) -> Any:
    value, *remainder = arguments
    return puppet_convert.converted("k", value, [kind, *remainder])


@each_row(
    ("arguments", "value"),
    [
        (("Integer", "0x1f"), 31),
        (("Integer", "- 7"), -7),
        (("Integer", "017"), 15),
        (("Integer", "0b11"), 3),
        (("Integer", -1.9), -1),
        (("Integer", True), 1),
        (("Integer", {"from": "-12", "abs": True}), 12),
        (("Integer", "10", 16), 16),
        (("Float", "1e3"), 1000.0),
        (("Float", "0x1f"), 31.0),
        (("Numeric", "010"), 8),
        (("Numeric", "1.5"), 1.5),
        (("Boolean", "Yes"), True),
        (("Boolean", "N"), False),
        (("Boolean", 0.0), False),
        (("String", 1.0), "1.000000"),
        (("String", None), ""),
        (("String", [1, "a'b", None, {"k": "a\nb"}]), "[1, 'a\\'b', undef, {'k' => \"a\\nb\"}]"),
        (("String", 255, "%#x"), "0xff"),
        (("String", -255, "%x"), "..f01"),
        (("String", 1.5, "%.3f"), "1.500"),
        (("String", 1.5, "%a"), "0x1.8p+0"),
        (("String", "a::bc", "%C"), "A::Bc"),
        (("String", "abc", "%#c"), "'Abc'"),
        (("String", True, "%#Y"), "Y"),
        (("String", [1, [2, 3]], "%#a"), "[1,\n  [2, 3]]"),
        (("String", {"a": 1, "b": {"c": 2}}, "%#h"), "{\n  'a' => 1,\n  'b' => {\n    'c' => 2\n  }\n}"),
        (("String", {"a": 1}, "% h"), "'a' => 1"),
        (("String", [1, 2], "%(a"), "(1, 2)"),
        (("Array", "abc"), ["a", "b", "c"]),
        (("Array", 3), [0, 1, 2]),
        (("Array", {"a": 1}), [["a", 1]]),
        (("Array", {"a": 1}, True), [{"a": 1}]),
        (("Hash", [["a", 1], ["b", 2]]), {"a": 1, "b": 2}),
        (("Hash", ["a", 1]), {"a": 1}),
        (("Hash", [[["a", "b"], 1], [["a", "c"], 2]], "tree"), {"a": {"b": 1, "c": 2}}),
        (("Struct[{a => Integer}]", [["a", 1]]), {"a": 1}),
        (("Optional[Integer]", None), None),
        (("Variant[Integer, String]", "3"), "3"),
        (("Timestamp", "2024-01-02T03:04:05.5+01:00"), "2024-01-02T02:04:05.500000000 UTC"),
        (("Timestamp", "2024", "%Y"), "2024-01-01T00:00:00.000000000 UTC"),
        (("Timespan", 90), "0-00:01:30.0"),
        (("Timespan", "1-02:03:04"), "1-02:03:04.0"),
        (("Timespan", -90.5), "-0-00:01:30.5"),
        (("SemVer", 1, 2, 3), "1.2.3"),
        (("Binary", "hi", "%s"), "aGk="),
        (("Regexp", "a.b"), "(?-mix:a.b)"),
    ],
)
def test_a_value_is_converted_as_puppet_converts_it(arguments: tuple[Any, ...], value: Any) -> None:
    result = converted(*arguments)
    assert result == value
    assert type(result) is type(value)


@each_row(
    ("arguments", "message"),
    [
        (("Integer", "abc"), "'new' The string 'abc' cannot be converted to Integer"),
        (("Integer", None), "'new' Value of type Undef cannot be converted to Integer"),
        (("Integer", "42", 7), "Illegal radix: 7, expected 2, 8, 10, 16, or default"),
        (
            ("Integer[1, 3]", "5"),
            "Converted value from Integer[1, 3].new() has wrong type, expects an Integer[1, 3]",
        ),
        (("Boolean", "maybe"), "'new_boolean' The string 'maybe' cannot be converted to Boolean"),
        (("Hash", ["a"]), "odd number of arguments for Hash"),
        (("Hash", [[["a"], 1], [["a", "b"], 2]], "tree"), "below a value without keys"),
        (("Integr", 1), "Creation of new instance of type 'TypeReference['Integr']' is not supported"),
        (("Enum[a, b]", "c"), "Creation of new instance of type 'Enum['a', 'b']' is not supported"),
        (("String", 3, "%z"), "Illegal format 'z' specified for value of Integer type"),
        (
            ("String", 3, "xx"),
            "The format 'xx' is not a valid format on the form '%<flags><width>.<prec><format>'",
        ),
        (("String", 3, "%99999d"), "requests more than 10000 characters"),
        (("Float", 10**400), "the number is too large for Float"),
        (("Array", 10**9), "cannot be converted to Array"),
        (("SemVer", "1.2"), "'new_Version' The string '1.2' cannot be converted to a SemVer"),
        (("Timespan", "1:30"), "Unable to parse '1:30' using any of the formats"),
    ],
)
def test_conversion_errors_use_the_words_of_puppet(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(LookupFailure) as caught:
        converted(*arguments)
    assert str(caught.value).startswith("k: The convert_to lookup_option for key 'k' raised error: ")
    assert message in str(caught.value)


def test_a_sensitive_value_is_masked_and_can_be_revealed() -> None:
    secret = converted("Sensitive", {"password": "hunter2"})
    assert isinstance(secret, Secret)
    assert (str(secret), repr(secret), f"{secret}") == (VALUE_MASK, VALUE_MASK, VALUE_MASK)
    assert secret.reveal() == {"password": "hunter2"}


def test_decrypted_value_stays_secret_in_messages() -> None:
    number = converted("Integer", Decrypted("42"))
    assert isinstance(number, Decrypted)
    assert number.reveal() == 42
    with pytest.raises(LookupFailure) as caught:
        converted("Integer", Decrypted("hunter2"))
    assert "hunter2" not in str(caught.value)
    assert converted("Sensitive", [Decrypted("hunter2")]).reveal() == ["hunter2"]


@each_row(
    ("expression", "value", "matches"),
    [
        ("Array[String[1], 1, 2]", ["a"], True),
        ("Array[String[1], 1, 2]", [""], False),
        ("Array[String[1], 1, 2]", [], False),
        ("Hash[String, Variant[Integer, Boolean]]", {"a": 1, "b": True}, True),
        ("Hash[String, Integer]", {"a": "x"}, False),
        ("Struct[{a => Integer, Optional[b] => String}]", {"a": 1}, True),
        ("Struct[{a => Integer}]", {"a": 1, "c": 2}, False),
        ("Struct[{a => Optional[Integer]}]", {}, True),
        ("Tuple[Integer, String]", [1, "a"], True),
        ("Tuple[Integer, 1, 3]", [1, 2, 3], True),
        ("Tuple[Integer, String]", [1], False),
        ("Enum[a, 'b', true]", "B", True),
        (r"Pattern[/\Aa.\z/, 'x+']", "ab", True),
        (r"Pattern[/\Aa.\z/]", "ab\n", False),
        ("Integer[default, 3]", 3, True),
        ("Integer", True, False),
        ("Boolean[true]", False, False),
        ("Optional[Float]", None, True),
        ("NotUndef", None, False),
        ("Data", {"a": [1, None]}, True),
        ("Data", {1: "a"}, False),
        ("Collection[1]", {}, False),
        ("Stdlib::Port", 80, False),
    ],
)
def test_types(expression: str, value: Any, matches: bool) -> None:
    assert puppet_types.matches(puppet_types.parse(expression), value) is matches


NO_TYPES = (
    *("", "integer", "Array[", "Array[]", "Integer]", "Integer[a]", "String[Integer]", "Enum[1]"),
    *("Struct[Integer]", "Pattern[/(/]", "A" * 20_000, "Array[" * 60 + "]" * 60),
)


@each_row("text", NO_TYPES)
def test_unknown_types_are_refused(text: str) -> None:
    with pytest.raises(HieraError):
        puppet_types.parse(text)


def test_a_type_writes_itself_as_puppet_does() -> None:
    text = "Optional[Hash[String[1], Variant[Enum['a'], Pattern[/x/], Foo::Bar], 1, default]]"
    written = (
        "Optional[Hash[String[1], Variant[Enum['a'], Pattern[/x/], TypeReference['Foo::Bar']], 1, default]]"
    )
    assert str(puppet_types.parse(text)) == written
    with pytest.raises(DocumentError, match="the type Integer does not take \\['a'\\]"):
        puppet_types.parse("Integer['a']")


leaves = st.none() | st.booleans() | st.integers() | st.just(10**350) | st.floats() | st.text(max_size=8)
words = st.sampled_from(
    ["from", "abs", "string", "format", "days", "major", "tree", "default", "%x", "1:2", "0x1", "- 3"]
)
anything = st.recursive(
    leaves | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(puppet_convert._MAKERS)), anything, st.lists(anything, max_size=2))
def test_anything_is_converted_or_refused_by_an_error_of_ours(
    kind: str, value: Any, arguments: list[Any]
) -> None:
    try:
        converted(kind, value, *arguments)
    except HieraError as error:
        assert "The convert_to lookup_option for key 'k' raised error: " in str(error)
