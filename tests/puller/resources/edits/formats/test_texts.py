"""Edits keep all other characters. These cases complement the golden cases."""

from typing import Any

import pytest

from puller.resources.edits.formats import FormatError, Found, Setting, format_named
from puller.resources.edits.formats.trees import MISSING
from tests.support.rows import each_row

YAML = "a:\n  b: old  # why\n  c:\n    - x\n    - y\n  # end of a\n\nz: 1\n"
TOML = "[a]\nx = 1 # c\n# more\n\n# about b\n[b]\n"
JSON = '{\n  "a": {"x": 1},\n  "b": []\n}\n'

CASES: dict[str, list[tuple[str, str | tuple[str, ...], Any, str]]] = {
    "yaml": [
        # The value becomes a mapping. Its comment stays with the key, and its lists are indented like existing ones.
        (
            YAML,
            "a.b",
            {"p": 1, "q": [1]},
            YAML.replace(" old  # why", "  # why\n    p: 1\n    q:\n      - 1"),
        ),
        (YAML, "a.c", ["n"], YAML.replace("- x\n    - y", "- n")),
        (YAML, "a.c", 5, YAML.replace("c:\n    - x\n    - y", "c: 5")),
        (YAML, "a.d", "l1\nl2\n", YAML.replace("- y\n", "- y\n  d: |\n    l1\n    l2\n")),
        (YAML, "a.n.m", [{"k": 1}], YAML.replace("- y\n", "- y\n  n:\n    m:\n      - k: 1\n")),
        (YAML, "z", MISSING, YAML.replace("z: 1\n", "")),
        ("a:\n  b: 1  # x\n# y\n", "a.b", MISSING, "a: {}\n# y\n"),
        ("# top\na: 1 # x\n# y\n", "a", MISSING, "# top\n{}\n# y\n"),
        ("a: [1, 2] # c\n", "a", [3], "a: [3] # c\n"),
        ("b: {x: 1}\n", "b.y", "q, r", "b: {x: 1, y: 'q, r'}\n"),
        ("b: {x: 1, y: 2}\n", "b.x", MISSING, "b: {y: 2}\n"),
        ("a:\nb: 1\n", "a.x", 1, "a:\n  x: 1\nb: 1\n"),
        ("a: |\n  x\n  y\n# c\nb: 1\n", "a", "new\ntext", "a: |-\n  new\n  text\n# c\nb: 1\n"),
        ("a: |\n  x\n  y\n# c\nb: 1\n", "a", "new", "a: new\n# c\nb: 1\n"),
        ("a: |+\n  x\n\nb: 1\n", "c", 1, "a: |+\n  x\n\nb: 1\nc: 1\n"),
        ("a: yes\n", "a", True, "a: true\n"),
        ("a: yes\n", "a", "yes", "a: 'yes'\n"),
        ("a: 010\n", "a", 8, "a: 8\n"),
        ("a: 0x10\n", "a", 16, "a: 0x10\n"),
        ("a: 'it''s'\n", "a", "don't", "a: 'don''t'\n"),
        ('a: "x"\n', "a", 'q"\n', 'a: "q\\"\\n"\n'),
        ("a: 1", "b", 2, "a: 1\nb: 2\n"),
        ("a: 1", "a", 2, "a: 2"),
        ("# only\n", "b", 2, "# only\nb: 2\n"),
        ("---\n", "b", 2, "---\nb: 2\n"),
        ("a: 1\n...\n", "b", 2, "a: 1\nb: 2\n...\n"),
        ("a:\r\n  b: 1\r\n", "a.c", {"x": [1]}, "a:\r\n  b: 1\r\n  c:\r\n    x:\r\n    - 1\r\n"),
        ("on:\n  80: x\n", "on.80", "y", "on:\n  80: y\n"),
        ("a: 1\n", "80", "y", "a: 1\n'80': y\n"),
        ("? a\n: 1\n", "a", 2, "? a\n: 2\n"),
        ("a: x\n\n\nb: 1\n", "b", MISSING, "a: x\n\n\n"),
    ],
    "toml": [
        (TOML, "a.y", [1, 2], TOML.replace("# c\n", "# c\ny = [1, 2]\n")),
        (TOML, "b.c.d", 1, TOML + "\n[b.c]\nd = 1\n"),
        (TOML, "n", {"x": 1, "y": {"z": "q"}}, TOML + '\n[n]\nx = 1\n\n[n.y]\nz = "q"\n'),
        (TOML, "a", MISSING, "# more\n\n# about b\n[b]\n"),
        (TOML, "a", {"x": 2}, TOML.replace("x = 1", "x = 2")),
        ("[a.b]\nx = 1\n", "a.y", 2, "[a.b]\nx = 1\n\n[a]\ny = 2\n"),
        ("a = {b = 1}\n", "a.c.d", 2, "a = {b = 1, c.d = 2}\n"),
        ("a = {}\n", "a.c", 2, "a = {c = 2}\n"),
        ("a = {b = 1, c = 2}\n", "a.b", MISSING, "a = {c = 2}\n"),
        ("[x]\na.b = 1\n", "x.a.b", MISSING, "[x]\na = {}\n"),
        ("[x]\na.b = 1\na.c.d = 2\n", "x.a", MISSING, "[x]\n"),
        ("[x.y]\na = 1\n\n[z]\n", "x.y", MISSING, "[x]\n\n[z]\n"),
        ("a = 1\n[[x]]\nb = 1\n[[x]]\n[x.c]\n[y]\n", "x", MISSING, "a = 1\n[y]\n"),
        ("# app\n\n[s]\n", "d", True, "# app\nd = true\n\n[s]\n"),
        ("# about s\n[s]\n", "d", True, "d = true\n\n# about s\n[s]\n"),
        ("a = 0x10\n", "a", 16, "a = 0x10\n"),
        ("a = 1.0\n", "a", 1, "a = 1\n"),
        ("a = 'x'\n", "a", "it's", 'a = "it\'s"\n'),
        ('a = """x\ny"""\nb = 1\n', "b", 2, 'a = """x\ny"""\nb = 2\n'),
        ('"a b".c = 1 # k\r\n', ("a b", "d"), 2, '"a b".c = 1 # k\r\n"a b".d = 2\r\n'),
        ("a = 1", "b", 2, "a = 1\nb = 2\n"),
    ],
    "json": [
        ('{"a":1}\n', "b", [1, {"x": 2}], '{"a":1,"b":[1,{"x":2}]}\n'),
        (JSON, "a.y", [1], JSON.replace("1}", '1, "y": [1]}')),
        (JSON, "b", {"p": {}}, JSON.replace("[]", '{\n    "p": {}\n  }')),
        (JSON, "a", MISSING, '{\n  "b": []\n}\n'),
        ("{}", "a.b", 1, '{"a": {"b": 1}}'),
        ('{"a": null}', "a.b", 1, '{"a": {"b": 1}}'),
        ('{\r\n  "a": 1\r\n}\r\n', "b", {"x": 1}, '{\r\n  "a": 1,\r\n  "b": {\r\n    "x": 1\r\n  }\r\n}\r\n'),
        ('{"a": 1.0, "b": "\\u00e9"}', "a", 1, '{"a": 1, "b": "\\u00e9"}'),
        ('{"a": "\\u00e9"}', "a", "é", '{"a": "\\u00e9"}'),
    ],
}


@each_row(
    ("format_", "text", "key", "value", "after"),
    [(format_, *case) for format_, cases in CASES.items() for case in cases],
)
def test_trees(format_: str, text: str, key: str | tuple[str, ...], value: Any, after: str) -> None:
    setting, edits = Setting(key=key, value=value), format_named(format_)
    edit = edits.without if value is MISSING else edits.with_value
    assert edit(text, setting) == after
    assert edit(after, setting) is after


@each_row(
    ("format_", "text", "setting", "after"),
    [
        ("ini", "[a]\r\nx=1\r\n", {"key": "y", "section": "a"}, "[a]\r\nx=1\r\ny = 9\r\n"),
        ("ini", "[a]\r\nx=1\r\n", {"key": "x", "section": "a"}, "[a]\r\nx=9\r\n"),
        (
            "ini",
            "[a]\n  #x = 1\n  y = 1\n",
            {"key": "x", "section": "a"},
            "[a]\n  #x = 1\n  x = 9\n  y = 1\n",
        ),
        ("ini", "[a]\n  y = 1\n", {"key": "x", "section": "a"}, "[a]\n  y = 1\n  x = 9\n"),
        ("ini", "[a]\nx\n", {"key": "x", "section": "a"}, "[a]\nx = 9\n"),
        ("ini", "[a]\nx=1\n[b]\n[a]\nz=1\n", {"key": "x", "section": "a"}, "[a]\nx=9\n[b]\n[a]\nz=1\n"),
        ("ini", "[a]\nx=1\n[b]\n[a]\nx=2\n", {"key": "x", "section": "a"}, "[a]\n[b]\n[a]\nx=9\n"),
        (
            "ini",
            "[a]\nx=1\n[b]\n[a]\nz=1\n",
            {"key": "n", "section": "a"},
            "[a]\nx=1\n[b]\n[a]\nz=1\nn = 9\n",
        ),
        ("ini", "x: 1\n", {"key": "x", "separator": ": "}, "x: 9\n"),
        ("ini", "[a] ; see [b]\nx = 1\n", {"key": "x", "section": "a"}, "[a] ; see [b]\nx = 9\n"),
        ("ini", "[a]\nx = 1\n\n", {"key": "x", "section": "b"}, "[a]\nx = 1\n\n[b]\nx = 9\n"),
        ("ini", "\x0c\u2028=1\nx=1\udcff\n", {"key": "x"}, "\x0c\u2028=1\nx=9\n"),
        ("keyvalue", "#Port 22\n\n", {"key": "Port"}, "#Port 22\nPort 9\n\n"),
        ("keyvalue", "Port\n", {"key": "Port"}, "Port 9\n"),
        ("keyvalue", "a\t= 1 = 2\n", {"key": "a", "separator": "="}, "a\t= 9\n"),
        ("shell", "A=9\nB=1\nA=9 # last\n", {"key": "A"}, "B=1\nA=9 # last\n"),
        ("shell", "A=9", {"key": "A"}, "A=9"),
        ("shell", "  export A='1'; export A\n", {"key": "A"}, "  export A='9'; export A\n"),
        ("shell", "A=1 B=2 # c\n", {"key": "A"}, "A=9 B=2 # c\n"),
        ("shell", "if true; then\n#A=1\nfi\n", {"key": "A"}, "if true; then\n#A=1\nfi\nA=9\n"),
        ("shell", "; it's a comment\nA=1\n", {"key": "A"}, "; it's a comment\nA=9\n"),
        ("shell", 'A="x"\r\n', {"key": "A"}, 'A="9"\r\n'),
    ],
)
def test_lines(format_: str, text: str, setting: dict[str, Any], after: str) -> None:
    desired, edits = Setting(value="9", **setting), format_named(format_)
    assert edits.with_value(text, desired) == after
    assert edits.with_value(after, desired) is after


@each_row(
    ("before", "value", "after"),
    [
        ('A="x"', "a$b", "A='a$b'"),
        ("A='x'", "a'b", 'A="a\'b"'),
        ("A=x", "a'b$c", 'A="a\'b\\$c"'),
        ("A=x", "~/y", 'A="~/y"'),
        ("A=$HOME # c", "$HOME", "A='$HOME' # c"),
        ("A='$HOME'", "$HOME", "A='$HOME'"),
        ("A=a\\ b", "a b", "A=a\\ b"),
        ("A=x", "#y", 'A="#y"'),
        ("A='x'", "", "A=''"),
        ("export A=x", "{a,b}", 'export A="{a,b}"'),
    ],
)
def test_a_shell_value_keeps_its_quotes_where_these_can_hold_it(before: str, value: str, after: str) -> None:
    assert format_named("shell").with_value(f"{before}\n", Setting(key="A", value=value)) == f"{after}\n"


@each_row(
    ("format_", "text", "key", "found"),
    [
        ("ini", "a = 1 ; why  \n", "a", Found(is_there=True, value="1 ; why", line=1)),
        ("ini", "a\n", "a", Found(is_there=True, value=None, line=1)),
        ("keyvalue", "x 1\na 2\na 3\n", "a", Found(is_there=True, value="3", line=3)),
        ("shell", "A='x y'\n", "A", Found(is_there=True, value="x y", line=1)),
        ("shell", "A=$B\n", "A", Found(is_there=True, value="$B", line=1)),
        ("yaml", "a:\n  b: yes\n", "a.b", Found(is_there=True, value="yes", line=2)),
        ("yaml", "a:\n  b: yes\n", "a.b.c", None),
        ("toml", "[a]\n[a.b]\nc = 1\n", "a.b", Found(is_there=True, value={"c": 1}, line=2)),
        ("json", '{\n"a": null}', "a", Found(is_there=True, value=None, line=2)),
        ("json", '{\n"a": null}', "a.b", Found(is_there=False)),
        ("json", "{}", "a", Found(is_there=False)),
    ],
)
def test_setting_has_value_and_line(format_: str, text: str, key: str, found: Found | None) -> None:
    if found is None:
        with pytest.raises(FormatError, match=r"a\.b is a text"):
            format_named(format_).find(text, Setting(key=key))
    else:
        assert format_named(format_).find(text, Setting(key=key)) == found
