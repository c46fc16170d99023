"""Multi-line values in ini and keyvalue files: read by the program's own rule, or rejected."""

from configparser import Error, RawConfigParser

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from puller.resources.edits.formats import FormatError, Setting, format_named, ini, keyvalue
from tests.support.rows import each_row

MAIN_CF = """\
relay_domains = example.com
mynetworks = 127.0.0.0/8
    10.0.0.0/8
# the office

    192.0.2.0/24
# the host
myhostname = a
"""
SUPERVISOR = """\
[program:x]
command=/bin/x
environment =
    A="1",
    ; who runs it
    user=root
user=www

[program:y]
user=root
"""
UNIT = """\
[Service]
ExecStart=/bin/x \\
  --a=1 \\
# a comment
  User=root
User=www
"""
JAVA = "list = a,\\\n    b,\\\n    c\nb = 2\n"


def edit(format_: str, text: str, key: str, value: str | None, **more: str) -> str:
    """Return the text with the value set, or with the key removed."""
    setting = {"key": key, **more}
    if value is None:
        return format_named(format_).without(text, Setting(**setting))
    return format_named(format_).with_value(text, Setting(value=value, **setting))


def edit_again(format_: str, text: str, key: str, value: str | None, **additional: str) -> str:
    """Return the edited text, and check that a second edit changes nothing."""
    new = edit(format_, text, key, value, **additional)
    assert edit(format_, new, key, value, **additional) is new
    return new


POSTFIX = {"continuation": "indent", "separator": " = "}
SECTION_X = {"continuation": "indent", "section": "program:x"}
SERVICE = {"continuation": "backslash", "section": "Service"}


def lines(text: str, *numbers: int) -> str:
    """Return the lines with these numbers, counted from 1."""
    every = text.splitlines(keepends=True)
    return "".join(every[number - 1] for number in numbers)


def test_indented_lines_are_replaced_with_their_value() -> None:
    new = edit_again("keyvalue", MAIN_CF, "mynetworks", "127.0.0.0/8", **POSTFIX)
    assert new == lines(MAIN_CF, 1, 2, 7, 8)


def test_indented_lines_are_removed_with_their_value() -> None:
    assert edit_again("keyvalue", MAIN_CF, "mynetworks", None, **POSTFIX) == lines(MAIN_CF, 1, 7, 8)
    expected = lines(SUPERVISOR, 1, 2, 7, 8, 9, 10)
    assert edit_again("ini", SUPERVISOR, "environment", None, **SECTION_X) == expected


def test_assignment_in_a_continued_value_is_no_setting() -> None:
    new = edit_again("ini", SUPERVISOR, "user", "app", **SECTION_X)
    assert new == SUPERVISOR.replace("user=www", "user=app")
    assert edit_again("ini", SUPERVISOR, "A", None, **SECTION_X) is SUPERVISOR


def test_new_setting_never_splits_a_continued_value() -> None:
    commented = SUPERVISOR.replace("; who runs it", "# numprocs = 1")
    for text in (SUPERVISOR.replace("user=www\n", ""), commented):
        new = edit_again("ini", text, "numprocs", "2", **SECTION_X)
        assert edit("ini", new, "numprocs", None, **SECTION_X) == text
        assert "    user=root\n" in new.partition("numprocs=")[0]


def test_backslashes_of_a_unit_join_lines() -> None:
    assert edit_again("ini", UNIT, "User", "app", **SERVICE) == UNIT.replace("User=www", "User=app")
    assert edit_again("ini", UNIT, "ExecStart", None, **SERVICE) == lines(UNIT, 1, 6)
    new = edit_again("ini", UNIT, "ExecStart", "/bin/x --a=1 User=root", **SERVICE)
    assert new == "[Service]\nExecStart=/bin/x --a=1 User=root\nUser=www\n"


def test_backslashes_of_properties_join_lines() -> None:
    additional = {"continuation": "backslash", "separator": "="}
    assert edit_again("keyvalue", JAVA, "list", "a", **additional) == "list = a\nb = 2\n"
    assert edit_again("keyvalue", JAVA, "b", "3", **additional) == JAVA.replace("b = 2", "b = 3")


def test_two_backslashes_do_not_continue_a_value() -> None:
    text = "a = C:\\\\\nb = 1\n"
    assert edit_again("keyvalue", text, "b", "2", separator="=") == "a = C:\\\\\nb = 2\n"


def test_format_without_continuation_reads_single_lines() -> None:
    text = "Host *\n    Port 22\n    SendEnv LANG\n"
    new = edit_again("keyvalue", text, "Port", "2222", continuation="none")
    assert new == text.replace("22", "2222")


@each_row(
    ("format_", "text", "key", "value", "more"),
    [
        ("keyvalue", MAIN_CF, "mynetworks", "127.0.0.0/8", {"separator": " = "}),
        ("keyvalue", MAIN_CF, "mynetworks", None, {}),
        ("ini", SUPERVISOR, "environment", None, {"section": "program:x"}),
        ("ini", SUPERVISOR, "user", "app", {"section": "program:x"}),
        ("ini", SUPERVISOR, "A", None, {"section": "program:x"}),
        ("ini", UNIT, "ExecStart", "/bin/x --a=1", {"section": "Service"}),
        ("ini", UNIT, "User", "app", {"section": "Service"}),
        ("keyvalue", JAVA, "list", "a,\\", {"separator": "="}),
        ("keyvalue", "Host *\n    Port 22\n", "Port", "2222", {}),
        ("keyvalue", "Match all\n    X11Forwarding no\n", "X11Forwarding", "no", {}),
        ("keyvalue", "a = 1 \\\n", "b", "2", {"separator": "="}),
        ("keyvalue", "a = 1\nb = 2\n", "a", "1 \\", {"separator": "="}),
    ],
)
def test_ambiguous_text_is_refused(
    format_: str, text: str, key: str, value: str | None, more: dict[str, str]
) -> None:
    with pytest.raises(FormatError, match="set continuation to indent, backslash or none"):
        edit(format_, text, key, value, **more)


def test_edit_that_is_right_by_every_rule_is_made() -> None:
    for text, key in ((MAIN_CF, "myhostname"), (MAIN_CF, "relay_domains"), (MAIN_CF, "smtp_bind")):
        new = edit_again("keyvalue", text, key, "b", separator=" = ")
        assert edit("keyvalue", new, key, "b", **POSTFIX) is new
    assert edit_again("ini", SUPERVISOR, "command", "/bin/y", section="program:x").count("/bin/y") == 1
    assert edit_again("keyvalue", "Match all\n    X11Forwarding no\nPort 1\n", "Port", "2").endswith(
        "Port 2\n"
    )


def test_uniform_indentation_is_no_continuation() -> None:
    text = "[core]\n\tbare = false\n\tfilemode = true\n[user]\n\tname = a\n"
    new = edit_again("ini", text, "filemode", "false", section="core")
    assert new == text.replace("true", "false")
    assert edit_again("ini", text, "email", "b", section="user") == text + "\temail = b\n"


CONFIG_LINES = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "", " ", "  ", "\t", "    "]),
    st.sampled_from(["a", "b", "# a", "; b", "[s]", "[t]", ""]),
    st.sampled_from([" = 1", "=", " = x", " = 1 2", ""]),
)


def parsed(text: str) -> dict[str, dict[str, str]]:
    """Return all values that configparser reads."""
    parser = RawConfigParser(strict=False, delimiters=("=",), allow_no_value=True)
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


@settings(max_examples=3 * settings().max_examples)
@given(
    body=st.lists(CONFIG_LINES, max_size=9),
    section=st.sampled_from(["s", "t"]),
    key=st.sampled_from(["a", "b", "c"]),
    value=st.sampled_from(["1", "x", "1 2", None]),
    continuation=st.sampled_from(["indent", None]),
)
def test_configparser_reads_the_single_change(
    body: list[str], section: str, key: str, value: str | None, continuation: str | None
) -> None:
    text = "\n".join(["[s]", *body, ""])
    setting = Setting(key=key, section=section, continuation=continuation)
    try:
        before = parsed(text)
        new = (
            ini.without(text, setting)
            if value is None
            else ini.with_value(
                text, Setting(key=key, section=section, continuation=continuation, value=value)
            )
        )
    except (Error, AttributeError, FormatError):
        assume(False)
    expected = {name: dict(values) for name, values in before.items()}
    if value is None:
        expected.get(section, {}).pop(key, None)
    else:
        expected.setdefault(section, {})[key] = value
    strip = {name: {k: v and v.strip() for k, v in values.items()} for name, values in parsed(new).items()}
    assert strip == {
        name: {k: v and v.strip() for k, v in values.items()} for name, values in expected.items()
    }


@settings(max_examples=2 * settings().max_examples)
@given(
    body=st.lists(CONFIG_LINES.filter(lambda line: "[" not in line), max_size=9),
    key=st.sampled_from(["a", "b", "c"]),
    value=st.sampled_from(["1", "x", "1 2", None]),
)
def test_edit_without_a_rule_agrees_with_every_rule(body: list[str], key: str, value: str | None) -> None:
    text = "\n".join([*body, ""])
    try:
        new = edit("keyvalue", text, key, value, separator="=")
    except FormatError:
        assume(False)
    for continuation in ("none", "indent", "backslash"):
        setting = Setting(key=key, separator="=", continuation=continuation)
        assert keyvalue.find(new, setting).value == value
