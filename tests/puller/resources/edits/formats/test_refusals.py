"""Rejected edits: settings that no file can hold, and texts that an edit would damage."""

from typing import Any

import msgspec
import pytest

from puller.resources.edits.formats import FormatError, Setting, format_named
from tests.support.rows import each_row


def problems(format_: str, **setting: Any) -> list[str]:
    return [str(problem) for problem in format_named(format_).problems(Setting(**setting))]


def refusal(format_: str, text: str, key: str | tuple[str, ...], value: Any = "1", **more: Any) -> str:
    """Return the reason why setting and removing a key are both rejected."""
    setting = Setting(key=key, value=value, **more)
    with pytest.raises(FormatError) as caught:
        format_named(format_).with_value(text, setting)
    with pytest.raises(FormatError):
        format_named(format_).without(text, setting)
    return str(caught.value)


@pytest.mark.attack("data-names.edits")
@pytest.mark.parametrize(
    ("format_", "setting", "problem"),
    [
        ("ini", {"key": "a", "value": 5}, "value is 5, expected text: put it in quotes"),
        ("keyvalue", {"key": "a", "value": True}, "value is true, expected text: put it in quotes"),
        ("shell", {"key": "a", "value": None}, "value is null, expected text: put it in quotes"),
        ("ini", {"key": "a", "value": "x\ny"}, r"value is 'x\ny', expected text in one line"),
        (
            "ini",
            {"key": "a\nb = 1"},
            r"key is 'a\nb = 1', expected text in one line, without blanks around it",
        ),
        ("ini", {"key": "a=b"}, "key is 'a=b', expected one without '#' or ';' or '[' or '='"),
        ("ini", {"key": "[a]"}, "key is '[a]', expected one without '#' or ';' or '[' or '='"),
        ("ini", {"key": ("a", "b")}, "key is the list ['a', 'b'], expected one text"),
        (
            "ini",
            {"key": "a", "section": "x\n[y"},
            r"section is 'x\n[y', expected the name between the brackets",
        ),
        ("ini", {"key": "a", "separator": " "}, "separator is ' ', expected = or :, with or without blanks"),
        ("keyvalue", {"key": "a b"}, "key is 'a b', expected one without '#' or ';' or ' ' or"),
        (
            "keyvalue",
            {"key": "a", "separator": ""},
            "separator is '', expected the sign between key and value",
        ),
        (
            "keyvalue",
            {"key": "a", "value": " x"},
            "value is ' x', expected one that does not begin or end with a blank",
        ),
        ("shell", {"key": "a-b"}, "key is 'a-b', expected letters, digits and underscores"),
        ("shell", {"key": "a", "value": "\ud800"}, "value has half a character, which no file can hold"),
        ("toml", {"key": "a", "value": None}, "value is null, which this format does not have"),
        ("toml", {"key": "a", "value": [2**63]}, "value has an integer of more than 64 bits"),
        ("json", {"key": "a", "value": [float("nan")]}, "value is nan, which this format does not have"),
        ("yaml", {"key": "a..b"}, "key is 'a..b', expected names with dots between them, or a list of names"),
        ("yaml", {"key": ()}, "key is (), expected names with dots between them, or a list of names"),
        ("yaml", {"key": "a", "value": {1: 2}}, "value has a key that is not text: put it in quotes"),
    ],
)
def test_settings_that_no_file_could_hold_are_refused_at_load(
    format_: str, setting: dict[str, Any], problem: str
) -> None:
    findings = problems(format_, **setting)
    assert len(findings) == 1
    assert findings[0].startswith(problem)


def test_a_value_that_is_not_given_is_not_judged() -> None:
    assert Setting(key="a").value is msgspec.UNSET
    assert problems("ini", key="a") == problems("toml", key="a") == []


def test_a_value_that_is_nested_too_deep_is_refused_at_load() -> None:
    value: Any = 1
    for _ in range(200):
        value = [value]
    assert problems("json", key="a", value=value) == ["value is nested more than 100 deep"]


@each_row(
    ("text", "message"),
    [
        ("if true; then\nA=1\nfi\n", "line 2 is inside an if"),
        ("case $x in\n  b) A=1 ;;\nesac\n", "line 2 is inside a case"),
        ("for i in 1 2; do\n  A=1\ndone\n", "line 2 is inside a loop"),
        ("f() {\n  A=1\n}\n", "line 2 is inside a function or group"),
        ("cat <<E\nA=1\nE\nA=2\n", None),
        ("B='\nA=1\n'\nA=2\n", None),
        ("B=1; A=1\n", "line 1 sets the key behind something else"),
        ("env \\\nA=1 true\n", "line 2 is inside a line that goes on"),
        ("A+=1\n", "line 1 appends to the previous value of the key"),
        ("A='1\n2'\n", "line 1 has a value that goes on in the next line"),
        ("A=-v -x\n", "line 1 has a command behind the value, as the whole value is not quoted"),
        ("A='1\n", "the quotes of line 1 are not closed"),
        ("if true; then\nA=1\n", "an if of line 1 is not closed"),
        ("B=$(echo\nA=1\n", "a substitution of line 1 is not closed"),
        ("cat <<E\nA=1\n", "the here document that ends with E is not closed"),
        ("A=1\nfi\n", "line 2 has a fi that nothing has opened"),
    ],
)
def test_complex_assignment_is_refused(text: str, message: str | None) -> None:
    if message is None:
        new = format_named("shell").with_value(text, Setting(key="A", value="3"))
        assert new == text.replace("A=2", "A=3")
    else:
        assert refusal("shell", text, "A") == message


def test_an_assignment_outside_of_an_if_may_be_set() -> None:
    text = "A=1\nif true; then\n  B=2\nfi\n"
    assert format_named("shell").with_value(text, Setting(key="A", value="5")) == text.replace("1", "5")
    assert format_named("shell").with_value(text, Setting(key="C", value="5")) == text + "C=5\n"


def test_a_line_that_does_more_is_not_removed() -> None:
    with pytest.raises(FormatError, match="line 1 does more than to set A"):
        format_named("shell").without("A=1; B=2\n", Setting(key="A"))
    assert format_named("shell").without("A=1; export A # c\n", Setting(key="A")) == ""


@pytest.mark.parametrize("format_", ["ini", "keyvalue"])
def test_possibly_continued_line_stays(format_: str) -> None:
    sentence = refusal(format_, "a = 2 \\\n  3\n", "a", separator="=" if format_ == "ini" else None)
    assert sentence.startswith(
        "line 2 may continue the value of line 1; set continuation to indent, backslash"
    )


@pytest.mark.parametrize(
    ("format_", "text", "message"),
    [
        ("yaml", "a: &x {b: 2}\nc: *x\n", "line 1 has an anchor, where an edit would change more"),
        ("yaml", "x: &x {b: 2}\na: *x\n", "line 2 has an alias, where an edit would change more"),
        (
            "yaml",
            "x: &x {b: 2}\na:\n  <<: *x\n  b: 3\n",
            "line 3 has a merge key, so the effective value may be elsewhere",
        ),
        ("yaml", "a:\n  b: [&x 2]\n", "line 2 has a value with anchors, aliases or tags in it"),
        ("yaml", "a:\n  b: !!str 2\n", "line 2 has a tag, where an edit would change more"),
        ("yaml", "a: {b: 2}\n---\nc: 1\n", "line 2 begins a second document, expected one"),
        ("yaml", "a: {b: 2}\na: {b: 3}\n", "line 2 has the key 'a' again"),
        ("yaml", "a: {b: 2\n", "line 2 is not valid YAML: did not find expected ',' or '}'"),
        ("yaml", "a: {b: 2}\nc: \udcff\n", "line 2 is not UTF-8, as yaml is"),
        ("yaml", "\ufeffa: {b: 2}\n", "the document begins with a byte order mark"),
        ("yaml", "[1]\n", "the document is a list, expected a mapping that can have a"),
        ("yaml", "a: text\n", "a is a text, expected a mapping that can have b"),
        ("toml", "[[a]]\nb = 2\n", "a is a list, expected a mapping that can have b"),
        ("toml", "a = 1\nb =\n", "line 2 is not valid TOML: invalid value"),
        ("toml", "a.b = 1\na.b = 2\n", "line 2 is not valid TOML: cannot overwrite a value"),
        ("json", '{"a": true}', "a is a truth value, expected a mapping that can have b"),
        ("json", '{"a": {"b": 2}} // c\n', "line 1 is not valid JSON: extra data"),
        ("json", '{"a": {"b": 2}, "a": 1}', "the key 'a' is there twice"),
        ("json", '{"a": {"b": NaN}}', "the document has NaN, which json does not have"),
        ("json", '{"a": {"b": ' + "1" * 5000 + "}}", "the document has a number that is too long"),
        ("json", '{"a": ' + "[" * 300 + "]" * 300 + "}", "the document is nested more than 100 deep"),
        ("yaml", "a: " + "[" * 300 + "]" * 300, "the document is nested more than 100 deep"),
        ("toml", "a = " + "[" * 300 + "]" * 300, "the document is nested more than 100 deep"),
        ("toml", "[" + "a." * 5000 + "a]\n", "the document is nested more than 100 deep"),
        ("toml", "a." * 5000 + "a = 1\n", "the document is nested more than 100 deep"),
        ("json", "[" * 100_000, "the document is nested more than 100 deep"),
        ("toml", "a = " + "[" * 100_000, "the document is nested more than 100 deep"),
    ],
)
@pytest.mark.representatives(15)
def test_unreadable_documents_are_refused(format_: str, text: str, message: str) -> None:
    assert refusal(format_, text, "a.b") == message


def test_unrelated_anchors_and_aliases_stay() -> None:
    rows = [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 40)]
    text = "\n".join(["x0: &x0 [lol]", *rows, "a: {b: 2}", ""])
    assert format_named("yaml").with_value(text, Setting(key="a.b", value=3)) == text.replace("b: 2", "b: 3")
