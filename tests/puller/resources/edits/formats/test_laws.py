"""Laws of all formats, for arbitrary texts, settings and values."""

import json
import subprocess
import tomllib
from configparser import RawConfigParser
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from puller.resources.edits.formats import (
    Format,
    FormatError,
    Setting,
    ini,
    json_tree,
    keyvalue,
    shell,
    toml_tree,
    yaml_tree,
)
from puller.resources.edits.formats.trees import MISSING, changed, look_up
from puller.resources.edits.formats.yaml_nodes import document_of
from puller.values.plain_values import identical


def accepted(format_: Format, setting: Setting) -> bool:
    return not list(format_.problems(setting))


def set_and_prove(format_: Format, text: str, setting: Setting) -> str:
    """Set a value, and check the laws of all settings."""
    new = format_.with_value(text, setting)
    result = format_.find(new, setting)
    assert result.is_there
    assert identical(result.value, setting.value)
    assert format_.with_value(new, setting) is new
    return new


def remove_and_prove(format_: Format, text: str, setting: Setting) -> str:
    new = format_.without(text, setting)
    assert not format_.find(new, setting).is_there
    assert format_.without(new, setting) is new
    return new


# Lines

WORDS = st.text("abcK1_.-", min_size=1, max_size=4)
ANYTHING = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \t=:;#[]'\"$\\`~"), max_size=8
)
LINES = st.one_of(
    st.just(""),
    st.builds("{}[{}]{}".format, st.sampled_from(["", " "]), WORDS, st.sampled_from(["", " ; c"])),
    st.builds(
        "{}{}{}{}{}".format,
        st.sampled_from(["", "  ", "\t", "#", "# ", ";"]),
        WORDS,
        st.sampled_from(["=", " = ", ": ", " ", "\t"]),
        ANYTHING.map(lambda text: text.replace("\n", "").replace("\r", "")),
        st.sampled_from(["", " ", "  ; why"]),
    ),
    WORDS,
    st.just("bytes \udcff\udcfe"),
    st.just("a\x0cb\u2028c\rd"),
)


@st.composite
def texts(
    draw: st.DrawFn,
    lines: st.SearchStrategy[str] = LINES,
    newlines: tuple[str, ...] = ("\n", "\n", "\r\n"),
) -> str:
    newline = draw(st.sampled_from(newlines))
    text = newline.join(draw(st.lists(lines, max_size=8)))
    return text + draw(st.sampled_from(["", newline]))


def line_settings(*separators: str | None, section: bool = False) -> st.SearchStrategy[Setting]:
    return st.builds(
        Setting,
        key=WORDS,
        value=ANYTHING,
        section=st.none() | WORDS if section else st.none(),
        separator=st.sampled_from(separators),
    )


INI = line_settings(None, "=", ": ", section=True)
KEYVALUE = line_settings(None, "\t", "=", " = ", ": ")


def other_lines(text: str, setting: Setting) -> list[str]:
    """Return the lines that cannot belong to the setting."""
    return [line.rstrip("\r") for line in text.split("\n") if line.strip() and str(setting.key) not in line]


@settings(max_examples=2 * settings().max_examples)
@given(
    pair=st.tuples(st.just(ini), INI) | st.tuples(st.just(keyvalue), KEYVALUE),
    text=texts(),
)
def test_a_line_is_set_once_and_all_others_stay(pair: tuple[Format, Setting], text: str) -> None:
    format_, setting = pair
    assume(accepted(format_, setting))
    try:
        new = set_and_prove(format_, text, setting)
        gone = remove_and_prove(format_, new, setting)
    except FormatError as error:
        # A value that begins or ends with a form feed cannot be read back.
        assert "backslash" in str(error) or str(setting.value).strip() != setting.value
        return
    header = f"[{setting.section}]"
    for changed_text in (new, gone):
        assert [line for line in other_lines(changed_text, setting) if line != header] == [
            line for line in other_lines(text, setting) if line != header
        ]
    if not format_.find(text, setting).is_there and setting.section is None:
        assert gone.split() == text.split()


@given(rest=texts(newlines=("\r\n",)), setting=INI | KEYVALUE)
def test_new_lines_use_the_first_line_end(rest: str, setting: Setting) -> None:
    text = "# the first line\r\n" + rest
    assume(text.count("\n") == text.count("\r\n") and accepted(ini, setting))
    try:
        new = ini.with_value(text, setting)
    except FormatError:
        return
    assert new.count("\n") == new.count("\r\n")


@given(
    rest=texts(
        st.one_of(WORDS.map("[{}]".format), st.builds("{} = {}".format, WORDS, WORDS), st.just("# c"))
    ),
    first=WORDS,
    section=WORDS,
    key=WORDS,
    value=st.text("abc =;#%$", min_size=1, max_size=6).map(str.strip),
)
def test_configparser_reads_written_settings(
    first: str, rest: str, section: str, key: str, value: str
) -> None:
    text = f"[{first}]\n{rest}"
    setting = Setting(key=key, section=section, value=value)
    assume(accepted(ini, setting))
    parser = RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(ini.with_value(text, setting))
    assert parser[section][key] == value
    parser.clear()
    parser.read_string(ini.without(ini.with_value(text, setting), setting))
    assert key not in parser[section]


# Shell

SHELL_LINES = st.one_of(
    st.just(""),
    st.builds(
        "{}{}={}{}".format,
        st.sampled_from(["", "  ", "export ", "#", "# "]),
        st.sampled_from(["A", "B", "AB"]),
        st.sampled_from(["", "1", "'a b'", '"a b"', '"$HOME"', "a\\ b", "$(echo x)", "'a'\"b\"", "~", "*"]),
        st.sampled_from(["", " ", " # why", ";", "; C=1"]),
    ),
    st.just("if true; then B=1; fi"),
    st.just("f() { :; }"),
    st.just("cat <<E >/dev/null\nB=3\nE"),
)


def value_in_shell(text: str, key: str) -> str | None:
    """Return a variable's value in a real shell that has read the text, or ``None`` if it is unset."""
    script = f'{text}\nif [ -n "${{{key}+x}}" ]; then printf "=%s" "${key}"; fi'
    completed = subprocess.run(
        ["/bin/sh", "-c", script],
        capture_output=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": "/home/x", "LC_ALL": "C.UTF-8"},
        cwd="/proc/self/fd",
    )
    out = completed.stdout.decode(errors="surrogateescape")
    return out[1:] if out else None


@given(text=texts(SHELL_LINES).filter(lambda text: "\r" not in text), value=ANYTHING)
@example(text="A='x'\n", value='it\'s $5 "and" \\ `more`')
@example(text="export A=x\n", value="{a,b} *")
@example(text="", value=":~")
@example(text="", value="(")
@example(text='A=`"`\n', value="x")
@example(text="A=':~/x'\n", value="~:~/y")
def test_a_shell_reads_the_value_that_was_set(text: str, value: str) -> None:
    setting = Setting(key="A", value=value)
    assume(accepted(shell, setting))
    try:
        new = set_and_prove(shell, text, setting)
        assert value_in_shell(new, "A") == value
        gone = remove_and_prove(shell, new, setting)
    except FormatError as error:
        assert "does more than to set A" in str(error)
        return
    assert value_in_shell(gone, "A") is None
    assert value_in_shell(gone, "AB") == value_in_shell(new, "AB") == value_in_shell(text, "AB")


@given(text=texts(SHELL_LINES).filter(lambda text: "\r" not in text))
def test_the_value_that_is_found_is_the_shells(text: str) -> None:
    result = shell.find(text, Setting(key="A"))
    assume("$" not in str(result.value) and "~" not in str(result.value))
    assert value_in_shell(text, "A") == result.value


# Trees

NAMES = st.sampled_from(["a", "b", "c", "a b", "80", "on", "é", "x.y", '"q"', "#", "-", ""])
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    st.sampled_from(
        ["yes", "5", "0o7", "1e3", "a: b", "a #b", "- x", "null", "~", "2024-01-01", "<<", "=", "a\nb\n"]
    ),
    st.sampled_from(
        ["", " a ", "a\n\n  b", "---", "{x}", "&a", "*a", "!t", "%d", "`", "@", "?", "a\tb", "|", "\x85"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TREES = st.dictionaries(NAMES, VALUES, max_size=4)
WAYS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)


def as_toml(tree: dict[str, Any], draw: st.DrawFn) -> str:
    """Return a document that the format itself writes, key by key, from entries and tables."""
    text = ""
    for name, value in tree.items():
        text = toml_tree.with_value(text, Setting(key=(name,), value=value))
        text += draw(st.sampled_from(["", "", "# c\n", "\n", "\n# about\n"]))
    return text


def as_yaml(tree: dict[str, Any], draw: st.DrawFn) -> str:
    dumped = yaml.safe_dump(
        tree,
        allow_unicode=draw(st.booleans()),
        default_flow_style=draw(st.sampled_from([False, False, None, True])),
        indent=draw(st.sampled_from([2, 4])),
        width=draw(st.sampled_from([20, 80])),
        sort_keys=False,
    )
    newline = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    head = draw(st.sampled_from(["", "# head\n", "---\n"]))
    return (head + dumped).replace("\n", newline)


def as_json(tree: dict[str, Any], draw: st.DrawFn) -> str:
    indent = draw(st.sampled_from([None, 1, 2, 4, "\t"]))
    separators = draw(st.sampled_from([None, (",", ":")]))
    dumped = json.dumps(tree, indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    newline = draw(st.sampled_from(["", "\n"]))
    return (dumped + newline).replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


WRITERS: dict[str, tuple[Any, Any, Any]] = {
    "toml": (toml_tree, as_toml, tomllib.loads),
    "yaml": (yaml_tree, as_yaml, lambda text: document_of(text).tree or {}),
    "json": (json_tree, as_json, json.loads),
}


@pytest.mark.parametrize("name", sorted(WRITERS))
@pytest.mark.hypothesis
def test_tree_value_changes_alone(name: str) -> None:
    format_, write, read = WRITERS[name]

    @settings(deadline=None)
    @given(data=st.data(), tree=TREES, way=WAYS, value=VALUES)
    def holds(data: st.DataObject, tree: dict[str, Any], way: tuple[str, ...], value: Any) -> None:
        setting = Setting(key=way, value=value)
        assume(accepted(format_, setting) and accepted(format_, Setting(key=("x",), value=tree)))
        text = write(tree, data.draw)
        before = read(text)
        try:
            new = set_and_prove(format_, text, setting)
        except FormatError as error:
            assert "expected a mapping" in str(error)
            return
        assert identical(read(new), changed(before, way, value))
        gone = remove_and_prove(format_, new, setting)
        assert identical(read(gone), changed(read(new), way, MISSING))
        if look_up(before, way[:-1]) is not MISSING and look_up(before, way) is MISSING and len(way) == 1:
            assert identical(read(gone), before)

    holds()
