"""Go values in Python: printed, quoted, encoded and parsed as in Go."""

import json
import math
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puller.templates.govalue.printf import format_value, sprint, sprintf, sprintln
from puller.templates.govalue.strconv import (
    format_float,
    format_int,
    parse_float,
    parse_int,
    parse_uint,
    quote,
    quote_rune,
    unquote,
    unquote_rune,
)
from puller.templates.govalue.text import (
    escape_html,
    escape_js,
    escape_query,
    escape_template_html,
    is_blank,
    to_json,
    to_lower,
    to_title,
    to_upper,
    trim_space,
)
from puller.templates.govalue.types import (
    MISSING,
    GoError,
    Int32,
    Int64,
    Ints,
    LazyMap,
    Lists,
    NilMap,
    NilSlice,
    NilStrings,
    StringMap,
    Strings,
    Uint8,
    byte_length,
    byte_slice,
    ensure_small,
    float_to_int,
    from_bytes,
    is_integer,
    is_number,
    kind_name,
    map_keys,
    to_bytes,
    type_name,
    wrap_int64,
)
from tests.support.rows import each_row

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)  # integers that JSON parsers with floats represent exactly
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(scalars, lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=20)


@each_row(
    ("value", "name", "kind"),
    [
        (None, "<nil>", "invalid"),
        (MISSING, "<nil>", "invalid"),
        (True, "bool", "bool"),
        (1, "int", "int"),
        (Int64(1), "int64", "int64"),
        (Int32(1), "int32", "int32"),
        (Uint8(1), "uint8", "uint8"),
        (1.0, "float64", "float64"),
        ("", "string", "string"),
        (b"", "[]uint8", "slice"),
        ([], "[]interface {}", "slice"),
        ((), "[]interface {}", "slice"),
        (Strings(), "[]string", "slice"),
        (Ints(), "[]int", "slice"),
        (Lists(), "[][]interface {}", "slice"),
        ({}, "map[string]interface {}", "map"),
        (StringMap(), "map[string]string", "map"),
        (NilSlice(), "[]interface {}", "slice"),
        (NilMap(), "map[string]interface {}", "map"),
        (GoError("x"), "*errors.errorString", "ptr"),
        (len, "func", "func"),
    ],
)
def test_each_value_has_the_name_of_its_type_in_go(value: object, name: str, kind: str) -> None:
    assert (type_name(value), kind_name(value)) == (name, kind)


def test_a_subclass_of_a_plain_type_is_that_type_to_go() -> None:
    class Text(str):
        """A subclass, as a YAML library may return."""

    assert type_name(Text("x")) == "string"


def test_a_boolean_is_no_number() -> None:
    assert not is_number(True)
    assert not is_integer(True)
    assert is_integer(Int64(3))


@each_row(
    ("value", "text"),
    [
        (None, "<nil>"),
        (MISSING, "<nil>"),
        (True, "true"),
        (-12, "-12"),
        (Int64(7), "7"),
        ("a b", "a b"),
        (1.0, "1"),
        (2.5, "2.5"),
        (-0.0, "-0"),
        (0.1, "0.1"),
        (100000.0, "100000"),
        (1000000.0, "1e+06"),
        (123456789.0, "1.23456789e+08"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1e21, "1e+21"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        ([], "[]"),
        ([1, "a b", None, 2.5, True], "[1 a b <nil> 2.5 true]"),
        (Strings(["a", ""]), "[a ]"),
        (b"hi", "[104 105]"),
        ({}, "map[]"),
        ({"b": 1, "a": {"z": [None]}}, "map[a:map[z:[<nil>]] b:1]"),
        (GoError("no such thing"), "no such thing"),
        ([GoError("no")], "[no]"),
        (date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_printing_a_value(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_keys_of_several_types_still_have_an_order() -> None:
    assert map_keys({"b": 1, 2: 1, "a": 1, 1: 1}) == [1, 2, "a", "b"]


@pytest.mark.parametrize(
    ("given_values", "text"),
    [
        ((), ""),
        (("a", "b"), "ab"),
        ((1, 2), "1 2"),
        (("a", 1, 2, "b", 3), "a1 2b3"),
        ((None, 1.5), "<nil> 1.5"),
    ],
)
def test_sprint_puts_spaces_where_neither_side_is_text(given_values: tuple[Any, ...], text: str) -> None:
    assert sprint(*given_values) == text


def test_sprintln_puts_spaces_everywhere() -> None:
    assert sprintln("a", 1, "b") == "a 1 b\n"


PRINTF: list[tuple[str, tuple[Any, ...], str]] = [
    # integers
    ("%d|%5d|%-5d|%05d|%+d|% d", (42, 42, 42, 42, 42, 42), "42|   42|42   |00042|+42| 42"),
    ("%d %05d %-5d|", (-7, -7, -7), "-7 -0007 -7   |"),
    ("%.4d|%6.3d|%06.3d|%.0d|", (7, 7, 7, 0), "0007|   007|   007||"),
    ("%b %o %O %x %X %#x %#o %#b", (5, 8, 8, 255, 255, 255, 8, 5), "101 10 0o10 ff FF 0xff 010 0b101"),
    ("%x %#X %08x", (-255, 255, 255), "-ff 0XFF 000000ff"),
    ("%c|%3c|%q|%U|%#U", (65, 0x65E5, 10, 0x1F600, 0xE9), "A|  日|'\\n'|U+1F600|U+00E9 'é'"),
    ("%c %q", (-1, 0x110000), "\ufffd '\ufffd'"),
    # floats
    (
        "%f|%.2f|%8.3f|%-8.1f|%+.1f",
        (3.14159, 3.14159, 3.14159, 2.0, 2.0),
        "3.141590|3.14|   3.142|2.0     |+2.0",
    ),
    (
        "%e|%E|%.1e|%g|%G",
        (31415.9, 31415.9, 31415.9, 1e-7, 1e-7),
        "3.141590e+04|3.141590E+04|3.1e+04|1e-07|1E-07",
    ),
    ("%.3g|%.10g|%g|%6.2f%%", (1234.5678, 1234.5678, 100000.0, 99.5), "1.23e+03|1234.5678|100000| 99.50%"),
    ("%08.3f|%+08.2f|%-8.2f|", (3.14159, -3.14159, 3.14159), "0003.142|-0003.14|3.14    |"),
    (
        "%5.1f|%f|%f|% f|%08f",
        (math.inf, -math.inf, math.nan, math.inf, math.inf),
        " +Inf|-Inf|NaN| Inf|    +Inf",
    ),
    ("%#g %#.3g %#v", (1.0, 2.0, 1e6), "1.00000 2.00 1e+06"),
    # text
    (
        "%s|%10s|%-10s|%.2s|%5.1s|",
        ("abc", "abc", "abc", "abcdef", "xyz"),
        "abc|       abc|abc       |ab|    x|",
    ),
    (
        "%q %+q %#q %#q",
        ('a"b\n', "é\u200b", "raw", "back`tick"),
        '"a\\"b\\n" "\\u00e9\\u200b" `raw` "back`tick"',
    ),
    (
        "%x|% x|%X|%#x|%# x|%.2x",
        ("héy", "abc", "xyz", "hi", "hi", "abc"),
        "68c3a979|61 62 63|78797A|0x6869|0x68 0x69|6162",
    ),
    ("%5s|%05s|%-5s|", ("日本", "ab", "ab"), "   日本|000ab|ab   |"),
    ("%s %v %q %x", (b"hi", b"hi", b"hi", b"hi"), 'hi [104 105] "hi" 6869'),
    # any value
    ("%v|%v|%v|%v", ([1, "a"], {"k": "v"}, True, 2.5), "[1 a]|map[k:v]|true|2.5"),
    ("%5v|%-5v|%5v", (1, 2, "a"), "    1|2    |    a"),
    ("%+v %+v", ({"a": 1}, [1]), "map[a:1] [1]"),
    ("%3d|%-3d|%03d", ([1, 2], [1, 2], [1, 2]), "[  1   2]|[1   2  ]|[001 002]"),
    ("%q %s %d", (["a b", "c"], ["a", "b"], [1, 2]), '["a b" "c"] [a b] [1 2]'),
    ("%t %5t %v", (True, False, True), "true false true"),
    ("%#v %#v %#v %#v", ("s", 5, True, None), '"s" 5 true <nil>'),
    (
        "%#v",
        ([1, "a", None, 2.5, b"x", Uint8(7)],),
        '[]interface {}{1, "a", interface {}(nil), 2.5, []byte{0x78}, 0x7}',
    ),
    (
        "%#v %#v",
        ({"b": [1], "a": "x"}, Strings(["a"])),
        'map[string]interface {}{"a":"x", "b":[]interface {}{1}} []string{"a"}',
    ),
    ("%#v %#v", (NilSlice(), NilMap()), "[]interface {}(nil) map[string]interface {}(nil)"),
    ("%T %T %T %T %10T|", (1, "a", None, [1], 2.5), "int string <nil> []interface {}    float64|"),
    ("%v %s %q", (GoError("bad"), GoError("bad"), GoError("bad")), 'bad bad "bad"'),
    # errors are part of the text
    ("%d|%s|%t|%f", ("a", 5, 1, "x"), "%!d(string=a)|%!s(int=5)|%!t(int=1)|%!f(string=x)"),
    ("%d %s", (2.5, True), "%!d(float64=2.5) %!s(bool=true)"),
    ("%s %d %v", (None, MISSING, None), "%!s(<nil>) %!d(<nil>) <nil>"),
    ("%s", ([1, "a"],), "[%!s(int=1) a]"),
    ("%z %!", (1,), "%!z(int=1) %!!(MISSING)"),
    ("%d %d", (1,), "1 %!d(MISSING)"),
    ("%d", (1, "x", None), "1%!(EXTRA string=x, <nil>)"),
    ("100%", (), "100%!(NOVERB)"),
    ("%5d", ("a",), "%!d(string=    a)"),
    # operands by number, and width and precision from operands
    ("%[2]d %[1]d", (1, 2), "2 1"),
    ("%[1]d %d %[1]q", (65, 66), "65 66 'A'"),
    ("%[3]d %[x]d %[0]d", (1, 2), "%!d(BADINDEX) %!d(BADINDEX) %!d(BADINDEX)"),
    ("%*d|%-*d|%*d", (5, 42, 5, 42, -5, 42), "   42|42   |42   "),
    ("%.*f|%*.*f", (2, 3.14159, 8, 1, 2.55), "3.14|     2.5"),
    ("%[3]*.[2]*[1]f", (12.0, 2, 6), " 12.00"),
    ("%*d %.*d", ("x", 1, -1, 2), "%!(BADWIDTH)1 %!(BADPREC)2"),
    ("%[1]2d", (7,), "%!d(BADINDEX)"),
    ("plain", (), "plain"),
    ("%%", (), "%"),
]


@each_row(("template", "operands", "text"), PRINTF, ids=[case[0] for case in PRINTF])
def test_printf(template: str, operands: tuple[Any, ...], text: str) -> None:
    assert sprintf(template, *operands) == text


@settings(deadline=None)
@given(st.text(), st.lists(values))
def test_printf_accepts_any_format(template: str, operands: list[Any]) -> None:
    assert isinstance(sprintf(template, *operands), str)


@each_row(
    ("number", "verb", "precision", "text"),
    [
        (1e21, "f", -1, "1000000000000000000000"),
        (1.5e-10, "f", -1, "0.00000000015"),
        (98765432109876.5, "f", -1, "98765432109876.5"),
        (9223372036854775807.0, "f", -1, "9223372036854776000"),
        (0.0, "f", -1, "0"),
        (-0.5, "f", -1, "-0.5"),
        (1234.5, "e", -1, "1.2345e+03"),
        (1234.5, "E", -1, "1.2345E+03"),
        (1e-7, "G", -1, "1E-07"),
        (2.675, "f", 2, "2.67"),
    ],
)
def test_formatting_a_float(number: float, verb: str, precision: int, text: str) -> None:
    assert format_float(number, verb, precision) == text


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_formatted_float_reads_back_as_itself(number: float) -> None:
    for verb in "feg":
        assert parse_float(format_float(number, verb)) == number


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(2, 36))
def test_a_formatted_integer_reads_back_as_itself(number: int, base: int) -> None:
    assert parse_int(format_int(number, base), base) == number


@each_row(
    ("text", "base", "number"),
    [
        ("42", 10, 42),
        ("-42", 10, -42),
        ("+7", 10, 7),
        ("0x1F", 0, 31),
        ("0b101", 0, 5),
        ("0o17", 0, 15),
        ("017", 0, 15),
        ("0", 0, 0),
        ("1_000", 0, 1000),
        ("0x_ff", 0, 255),
        ("ff", 16, 255),
        ("-9223372036854775808", 10, -(2**63)),
    ],
)
def test_reading_an_integer(text: str, base: int, number: int) -> None:
    assert parse_int(text, base) == number


@each_row(
    ("text", "base", "reason"),
    [
        ("", 10, "invalid syntax"),
        ("3.5", 10, "invalid syntax"),
        ("1_000", 10, "invalid syntax"),
        (" 1", 10, "invalid syntax"),
        ("08", 0, "invalid syntax"),
        ("1__0", 0, "invalid syntax"),
        ("_1", 0, "invalid syntax"),
        ("0x", 0, "invalid syntax"),
        ("٣", 10, "invalid syntax"),
        ("9223372036854775808", 10, "value out of range"),
    ],
)
def test_invalid_integer_is_refused_in_the_words_of_go(text: str, base: int, reason: str) -> None:
    with pytest.raises(ValueError, match="ParseInt") as refused:
        parse_int(text, base)
    assert str(refused.value) == f"strconv.ParseInt: parsing {quote(text)}: {reason}"


def test_unsigned_integer_has_a_bit_more_and_no_sign() -> None:
    assert parse_uint("18446744073709551615") == 2**64 - 1
    for text in ("-1", "+1", "18446744073709551616"):
        with pytest.raises(ValueError, match="ParseUint"):
            parse_uint(text)


@each_row(
    ("text", "number"),
    [
        ("1", 1.0),
        ("-1.5", -1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1E-2", 0.01),
        ("0x1p4", 16.0),
        ("Inf", math.inf),
        ("-infinity", -math.inf),
        ("1e-400", 0.0),
        ("1_000.5e1_0", 1000.5e10),
        ("0x_1_0p1", 32.0),
    ],
)
def test_reading_a_float(text: str, number: float) -> None:
    assert parse_float(text) == number


@each_row(
    "text",
    [
        "",
        "a",
        "1e",
        "1__0",
        "_1",
        "1_",
        "1_.5",
        "0x1.8",
        " 1",
        "1 ",
        "e5",
        "--1",
        "1e400",
        "0x1p9999",
        "-nan",
    ],
)
def test_invalid_float_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ParseFloat: parsing "):
        parse_float(text)


@each_row(
    ("text", "quoted"),
    [
        ("abc", '"abc"'),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\x00\x1f\x7f", r'"\x00\x1f\x7f"'),
        ("é日\U0001f389", '"é日🎉"'),
        ("\u00a0\u200b\u2028\ufeff", r'"\u00a0\u200b\u2028\ufeff"'),
        ("\U000e0001", r'"\U000e0001"'),
        (from_bytes(b"\xff\xc3"), r'"\xff\xc3"'),
        ("'", '"\'"'),
    ],
)
def test_quoting_text(text: str, quoted: str) -> None:
    assert quote(text) == quoted
    assert unquote(quoted) == text


def test_quoting_to_ascii() -> None:
    assert quote("é\U0001f389", ascii_only=True) == r'"\u00e9\U0001f389"'
    assert quote_rune(ord("'")) == r"'\''"
    assert quote_rune(0xD800) == "'\ufffd'"


@settings(deadline=None)
@given(st.binary())
def test_quoting_and_unquoting_are_inverses_on_any_bytes(data: bytes) -> None:
    assert to_bytes(unquote(quote(from_bytes(data)))) == data


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ('"\\x41\\101\\u00e9\\U0001F389"', "AAé🎉"),
        ('"\\xc3\\xa9"', "é"),
        ("`a\\n\r\n`", "a\\n\n"),
        ('"\'"', "'"),
    ],
)
def test_unquoting_a_literal(literal: str, text: str) -> None:
    assert unquote(literal) == text


@each_row(
    "literal",
    [
        '"',
        '"a',
        "a",
        '"a"b"',
        '"\\q"',
        '"\\\'"',
        '"\n"',
        '"\\x4"',
        '"\\400"',
        '"\\ud800"',
        '"\\U00110000"',
        "`a`b`",
        "''",
    ],
)
def test_invalid_literal_is_refused(literal: str) -> None:
    with pytest.raises(ValueError, match="invalid syntax"):
        unquote(literal)


@pytest.mark.parametrize(
    ("literal", "code"),
    [("'a'", 97), ("'é'", 233), (r"'\n'", 10), (r"'\''", 39), (r"'\xff'", 255), (r"'\377'", 255)],
)
def test_a_character_constant_is_a_number(literal: str, code: int) -> None:
    assert unquote_rune(literal) == code


@each_row("literal", ["''", "'ab'", "'''", "'", "'\n'", r"'\"'", "a"])
def test_invalid_character_constant_is_refused(literal: str) -> None:
    with pytest.raises(ValueError, match="invalid syntax"):
        unquote_rune(literal)


@each_row(
    ("value", "text"),
    [
        (None, "null"),
        (MISSING, "null"),
        (True, "true"),
        (-3, "-3"),
        (Int64(3), "3"),
        (1.0, "1"),
        (0.1, "0.1"),
        (-0.0, "-0"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-10, "1.5e-10"),
        ("<a>&\u2028é\t", r'"\u003ca\u003e\u0026\u2028é\t"'),
        ('"\\\b\f\n\r\x00\x7f', '"\\"\\\\\\b\\f\\n\\r\\u0000\x7f"'),
        (from_bytes(b"a\xff"), r'"a\ufffd"'),
        ([], "[]"),
        ({}, "{}"),
        (NilSlice(), "null"),
        (NilStrings(), "null"),
        (NilMap(), "null"),
        ({"b": [1, None], "a": {"x": "y"}}, '{"a":{"x":"y"},"b":[1,null]}'),
        ({1: "int key"}, '{"1":"int key"}'),
        (b"hi", '"aGk="'),
        (Strings(["a"]), '["a"]'),
        (GoError("x"), "{}"),
    ],
)
def test_json_as_go_writes_it(value: Any, text: str) -> None:
    assert to_json(value) == text


def test_json_over_several_lines() -> None:
    value = {"b": [], "a": [1, {"x": None}], "c": {}}
    assert to_json(value, indent="  ") == (
        '{\n  "a": [\n    1,\n    {\n      "x": null\n    }\n  ],\n  "b": [],\n  "c": {}\n}'
    )


def test_json_without_html_escapes() -> None:
    assert to_json("<&>", escape_html=False) == '"<&>"'


@pytest.mark.parametrize("value", [math.nan, math.inf, [math.nan], len, {"f": len}])
def test_value_outside_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="json: unsupported"):
        to_json(value)


@settings(deadline=None)
@given(values)
def test_json_reads_back_as_the_same_value(value: Any) -> None:
    for text in to_json(value), to_json(value, indent=" "), to_json(value, escape_html=False):
        assert json.loads(text, parse_int=float) == value


def test_a_value_that_holds_itself_is_refused_and_not_walked() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for walk in (format_value, to_json, ensure_small):
        with pytest.raises(ValueError, match="more than 200 levels deep, or holds itself"):
            walk(loop)
    with pytest.raises(ValueError, match="holds itself"):
        sprintf("%v", loop)


def test_a_value_that_doubles_at_every_level_is_refused() -> None:
    doubling: list[Any] = ["x"]
    for _ in range(60):
        doubling = [doubling, doubling]
    with pytest.raises(ValueError, match="more than 1000000 items"):
        format_value(doubling)


def test_a_value_with_too_much_text_is_refused() -> None:
    long = "x" * 1_000_000
    with pytest.raises(ValueError, match="characters"):
        to_json([long] * 100)


@settings(deadline=None)
@given(values)
def test_ordinary_values_are_small(value: Any) -> None:
    ensure_small(value)


def test_positions_in_text_count_bytes() -> None:
    assert byte_length("aé日") == 6
    assert byte_slice("aé日", 1, 3) == "é"
    assert byte_slice("abc", 1, 2) == "b"


def test_text_cut_within_a_character_survives() -> None:
    first, second = byte_slice("é", 0, 1), byte_slice("é", 1, 2)
    assert to_bytes(first) == b"\xc3"
    assert from_bytes(to_bytes(first) + to_bytes(second)) == "é"


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    assert to_bytes("a\ud800b") == "a\ufffdb".encode()


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_are_text_and_back(data: bytes) -> None:
    assert to_bytes(from_bytes(data)) == data


def test_integers_wrap_around_at_64_bits() -> None:
    assert wrap_int64(2**63) == -(2**63)
    assert wrap_int64(-(2**63) - 1) == 2**63 - 1
    assert wrap_int64(2**64 + 5) == 5
    assert wrap_int64(-5) == -5


def test_a_float_becomes_an_integer_by_cutting() -> None:
    assert [float_to_int(f) for f in (2.9, -2.9, 1e30, -1e30, math.nan, math.inf)] == [2, -2, *[-(2**63)] * 4]


@pytest.mark.parametrize(
    ("text", "upper", "lower"),
    [
        ("mixed Case é", "MIXED CASE É", "mixed case é"),
        ("ßıǆﬁ", "ßIǄﬁ", "ßıǆﬁ"),
        ("İΣΑΣ", "İΣΑΣ", "iσασ"),
        ("ᾳŉΐ", "ᾼŉΐ", "ᾳŉΐ"),
    ],
)
def test_changing_case_keeps_the_number_of_characters(text: str, upper: str, lower: str) -> None:
    assert to_upper(text) == upper
    assert to_lower(text) == lower


@settings(deadline=None)
@given(st.text())
def test_no_text_changes_its_length_with_its_case(text: str) -> None:
    assert len(to_upper(text)) == len(to_lower(text)) == len(to_title(text)) == len(text)


def test_title_case_differs_from_upper_case_for_digraphs() -> None:
    assert (to_title("ǆabc"), to_upper("ǆ")) == ("ǅABC", "Ǆ")


def test_white_space_is_defined_as_in_go() -> None:
    assert trim_space("\u00a0\u2003\t x\u3000\x85") == "x"
    assert trim_space("\x1c\u200bx") == "\x1c\u200bx"
    assert is_blank(" \n\t\u2028")
    assert not is_blank("\x1f")


@each_row(
    ("escape", "text", "escaped"),
    [
        (escape_html, "<a href='x'>&\"</a>", "&lt;a href=&#39;x&#39;&gt;&amp;&#34;&lt;/a&gt;"),
        (escape_html, "a\0b", "a\0b"),
        (escape_template_html, "a\0<", "a\ufffd&lt;"),
        (escape_js, 'it\'s <b> & "q"\n\\=', 'it\\\'s \\u003Cb\\u003E \\u0026 \\"q\\"\\u000A\\\\\\u003D'),
        (escape_js, "é日\u2028\x7f", "é日\\u2028\x7f"),
        (escape_js, from_bytes(b"\xff"), "\\uFFFD"),
        (escape_query, "a b&c=d/é?~+%", "a+b%26c%3Dd%2F%C3%A9%3F~%2B%25"),
        (escape_query, from_bytes(b"\xff"), "%FF"),
    ],
)
def test_escaping(escape: Any, text: str, escaped: str) -> None:
    assert escape(text) == escaped


@each_row(
    "look",
    [
        dict,
        lambda lazy: {**lazy},
        lambda lazy: lazy | {},
        lambda lazy: {} | lazy,
        lambda lazy: lazy.copy(),
        lambda lazy: dict(lazy.items()),
        lambda lazy: dict(zip(lazy, lazy.values(), strict=True)),
        lambda lazy: {key: lazy.get(key) for key in lazy},
        lambda lazy: {key: lazy[key] for key in map_keys(lazy)},
        lambda lazy: json.loads(json.dumps(lazy)),
    ],
)
def test_a_lazy_map_shows_its_values_however_they_are_looked_at(look: Callable[[Any], Any]) -> None:
    made: list[str] = []

    def make(key: str) -> str:
        made.append(key)
        return f"value of {key}"

    lazy = LazyMap({"a": 1}, ["b"], make)
    assert (len(lazy), list(lazy), "b" in lazy, lazy.get("c", 3)) == (2, ["a", "b"], True, 3)
    assert made == []
    assert look(lazy) == {"a": 1, "b": "value of b"}
    assert type_name(lazy) == type_name({})
