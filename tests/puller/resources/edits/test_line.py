"""The table of the line type: declared state, current state, action, and errors at load."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foundation.formatting import lines
from hiera.limits import meter
from puller.errors import ManifestError
from tests.support.stories import Execute

Apply = Callable[..., Any]

L, M = {"line": "b"}, {"line": "b=2", "match": "^b="}
ALL = {**M, "match_all": True}
REFS = {"line": r"\1=2", "match": "^(b)=", "back_references": True}
AB = {"ensure": "absent"}

ROWS: list[tuple[str, dict[str, Any], str, str]] = [
    ("an equal line", L, "a\nb\nc\n", "a\nb\nc\n"),
    ("an equal line twice", L, "b\nb\n", "b\nb\n"),
    ("no equal line: blanks count", L, "b \n b\nB\nbb\n", "b \n b\nB\nbb\nb\n"),
    ("an empty line", {"line": ""}, "a\n", "a\n\n"),
    ("an empty line that is there", {"line": ""}, "a\n\nb\n", "a\n\nb\n"),
    ("a backslash is a backslash", {"line": r"\1\n"}, "a\n", "a\n\\1\\n\n"),
    ("an equal line, whatever else matches", M, "b=1\nb=2\n", "b=1\nb=2\n"),
    ("one match", M, "a\nb=1\nc\n", "a\nb=2\nc\n"),
    ("one match, and insert plays no part", {**M, "insert_before": "BOF"}, "a\nb=1\n", "a\nb=2\n"),
    ("no match", M, "a\n", "a\nb=2\n"),
    ("no match, in its place", {**M, "insert_after": "^a"}, "a\nc\n", "a\nb=2\nc\n"),
    ("all matches", ALL, "b=1\na\nb=3\n", "b=2\na\nb=2\n"),
    ("an equal line does not excuse the others", ALL, "b=2\nb=1\n", "b=2\nb=2\n"),
    ("all matches are equal", ALL, "b=2\na\nb=2\n", "b=2\na\nb=2\n"),
    ("no match of all", ALL, "a\n", "a\nb=2\n"),
    ("no match of all, and an equal line", {**ALL, "match": "^x"}, "b=2\na\n", "b=2\na\n"),
    ("all matches, the last without newline", ALL, "b=1\nb=2", "b=2\nb=2\n"),
    ("a reference", REFS, "a\nb=1\n", "a\nb=2\n"),
    ("a reference without a match", REFS, "a\n", "a\n"),
    ("a reference to what is so already", {**REFS, "match": "^(b)=2$"}, "b=2\n", "b=2\n"),
    (
        "references in every match",
        {**REFS, "match": r"^(?P<k>\w)=\d$", "line": r"\g<k>:\g<1>", "match_all": True},
        "b=1\nc=3\n",
        "b:b\nc:c\n",
    ),
    ("absent: equal lines", {**AB, **L}, "b\na\nb\nbb\n", "a\nbb\n"),
    ("absent: no equal line", {**AB, **L}, "a\n", "a\n"),
    ("absent: all matches", {**AB, "match": "^b"}, "b\nbb\na\n", "a\n"),
    ("absent: equal lines and matches", {**AB, "line": "a", "match": "^b"}, "b\na\nc\n", "c\n"),
    ("absent: an empty file is left", {**AB, **L}, "b\n", ""),
    ("absent: the last one, without newline", {**AB, **L}, "a\nb", "a\n"),
    ("absent: not the last one, which has no newline", {**AB, **L}, "b\na", "a"),
    ("behind the last match", {**L, "insert_after": "^m"}, "m1\nm2\nz\n", "m1\nm2\nb\nz\n"),
    ("before the first match", {**L, "insert_before": "^m"}, "a\nm1\nm2\n", "a\nb\nm1\nm2\n"),
    ("at the beginning", {**L, "insert_before": "BOF"}, "a\n", "b\na\n"),
    ("at the end", {**L, "insert_after": "EOF"}, "a\n", "a\nb\n"),
    ("without the pattern's match, at the end", {**L, "insert_before": "^x"}, "a", "a\nb\n"),
    ("the wanted line is the last, without newline", L, "a\nb", "a\nb\n"),
    ("elsewhere no newline is added", {**L, "insert_before": "BOF"}, "a", "b\na"),
    ("CRLF: inserted", L, "a\r\n", "a\r\nb\r\n"),
    ("CRLF: replaced", M, "a\r\nb=1\r\n", "a\r\nb=2\r\n"),
    ("CRLF: equal", L, "a\r\nb\r\n", "a\r\nb\r\n"),
    ("CRLF: a pattern sees no CR", {**M, "match": "^b=.$"}, "a\r\nb=1\r\n", "a\r\nb=2\r\n"),
    ("CRLF: the last line is completed", L, "a\r\nc", "a\r\nc\r\nb\r\n"),
    ("CRLF: the wanted line is completed", L, "a\r\nb", "a\r\nb\r\n"),
    ("CRLF: other lines keep what they have", L, "a\r\nc\nb \n", "a\r\nc\nb \nb\r\n"),
    ("a CR that is no end is a part of the line", L, "a\nb\r\n", "a\nb\r\nb\n"),
    ("no character but LF ends a line", L, "a\fb\rc\u2028b\u0085b\vb\n", "a\fb\rc\u2028b\u0085b\vb\nb\n"),
]


@pytest.mark.parametrize(
    ("properties", "before", "after"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_line(apply: Apply, place: Path, properties: dict[str, Any], before: str, after: str) -> None:
    path = place / "file"
    path.write_bytes(before.encode())
    edit = {"line#edit": {"path": str(path), **properties}}
    (foretold,) = apply(edit, noop=True).values()
    assert path.read_bytes() == before.encode()
    (event,) = apply(edit).values()
    assert path.read_bytes() == after.encode()
    changes = before != after
    assert (event.state, foretold.state) == (("changed", "would change") if changes else ("stable", "stable"))
    assert (foretold.noop_message, bool(foretold.diff)) == (
        (f"Would have changed {path}", True) if changes else ("", False)
    )
    (again,) = apply(edit).values()
    assert again.state == "stable"
    assert path.read_bytes() == after.encode()


REFUSED = [
    (M, "b=1\na\nb=3\nb=4\n", "lines 1, 3 and 4 match; narrow match or set match_all"),
    (REFS, "b=1\nb=3\n", "lines 1 and 2 match; narrow match or set match_all"),
]


@pytest.mark.parametrize(("properties", "before", "said"), REFUSED)
@pytest.mark.parametrize("noop", [True, False])
def test_several_matches_are_not_guessed(
    apply: Apply, place: Path, properties: dict[str, Any], before: str, said: str, noop: bool
) -> None:
    path = place / "file"
    path.write_text(before)
    (event,) = apply({"line#edit": {"path": str(path), **properties}}, noop=noop).values()
    assert (event.errors, path.read_text()) == ([f"{path}: {said}"], before)


def test_bytes_that_are_not_utf_8_are_carried_through_and_shown(apply: Apply, place: Path) -> None:
    path = place / "file"
    path.write_bytes(b"gr\xfc\xdfe\n\xc3\nx=1\n\xff")
    edit = {"path": str(path), "line": "x=2", "match": "^x="}
    (event,) = apply({"line#x": edit}).values()
    assert path.read_bytes() == b"gr\xfc\xdfe\n\xc3\nx=2\n\xff"
    assert "-x=1\n+x=2\n" in event.diff
    assert "gr\\xfc\\xdfe" in event.diff


def test_a_line_may_hold_any_character(apply: Apply, place: Path) -> None:
    path = place / "file"
    path.write_text("")
    apply({"line#x": {"path": str(path), "line": "Grüße €\t\f\u2028x"}})
    assert path.read_bytes() == "Grüße €\t\f\u2028x\n".encode()


WRONG = [
    ({}, "line is missing; it is required unless ensure is absent"),
    ({"match": "^a"}, "line is missing; it is required unless ensure is absent"),
    (AB, "line is missing, and match too; one of them is required"),
    ({**L, "match_all": True}, "match is missing; it is required with match_all"),
    ({**L, "back_references": True}, "match is missing; it is required with back_references"),
    ({"line": "a\nb"}, r"line is 'a\\nb', expected one line, without its end and without NUL"),
    ({"line": "a\r"}, "expected one line"),
    ({"line": "a\0"}, "expected one line"),
    ({**L, "match": "("}, r"match is '\(', which is not a pattern: "),
    ({**L, "match": "(" * 5000}, "match has 5000 characters, expected at most 4096"),
    ({**L, "insert_after": "["}, "insert_after is .*, which is not a pattern: "),
    ({**L, "insert_before": "["}, "insert_before is .*, which is not a pattern: "),
    (
        {**L, "insert_after": "a", "insert_before": "b"},
        "insert_before cannot be given together with insert_after",
    ),
    ({**L, "insert_after": "BOF"}, "insert_after is BOF, expected a pattern or EOF"),
    ({**L, "insert_before": "EOF"}, "insert_before is EOF, expected a pattern or BOF"),
    ({"line": r"\2", "match": "(a)", "back_references": True}, "line is .*: invalid group reference 2"),
    ({"line": r"\g<no>", "match": "(a)", "back_references": True}, "line is .*unknown group name 'no'"),
    ({"line": r"\d", "match": "(a)", "back_references": True}, r"line is .*bad escape \\d"),
    ({"line": r"a\n", "match": "(a)", "back_references": True}, "expected one line"),
    ({**L, "ensure": "gone"}, "ensure is 'gone' \\(did you mean 'absent'\\?\\), expected present or absent"),
    ({**L, "path": "etc/x"}, "path is 'etc/x', expected an absolute path"),
    ({**L, "path": "/etc/../x"}, "path is '/etc/../x', expected an absolute path"),
    ({**L, "path": "/"}, "path is '/', which is not a file"),
    ({**L, "path": "/a\0b"}, "path is '/a.*b', expected an absolute path"),
    ({**L, "validate": "visudo -cf"}, "validate is 'visudo -cf', expected a command with one {}"),
    ({**L, "validate_in_place": True}, "validate_in_place is only for validate"),
    ({**L, "provider": "shell"}, "provider is 'shell', which is only for validate"),
    ({**L, "lines": "x"}, "lines is not a property of line"),
]


@pytest.mark.parametrize(("properties", "said"), WRONG)
def test_invalid_properties_are_refused_at_load(
    apply: Apply, place: Path, properties: dict[str, Any], said: str
) -> None:
    with pytest.raises(ManifestError, match=f"line#edit: .*{said}"):
        apply({"line#edit": {"path": str(place / "file"), **properties}})


def test_the_name_is_the_path_when_it_is_one(apply: Apply, place: Path) -> None:
    path = place / "file"
    path.write_text("")
    apply({f"line#{path}": {"line": "a"}})
    assert path.read_text() == "a\n"
    with pytest.raises(ManifestError, match="name is 'a', expected an absolute path where path is not given"):
        apply({"line#a": {"line": "a"}})
    with pytest.raises(ManifestError, match="name is '/a//b', expected an absolute path"):
        apply({"line#/a//b": {"line": "a"}})


def test_differences_are_described(apply: Apply, place: Path) -> None:
    path = place / "file"
    path.write_text("a\nb=1\nb=3\nc")
    edits: dict[str, Any] = {
        "line#new": {"line": "d"},
        "line#one": {"line": "A", "match": "^a"},
        "line#all": ALL,
        "line#end": {"line": "c"},
        "line#gone": {"ensure": "absent", "match": "^[ab]"},
    }
    output = [
        lines(apply({name: {"path": str(path), **edit}}, noop=True)[name].differences)
        for name, edit in edits.items()
    ]
    assert output == [
        ["ensure absent → present"],
        ["line 'a' → 'A'"],
        ["line lines 2 and 3 → 'b=2'"],
        ["line without a newline at its end → with one"],
        ["ensure 'present at lines 1, 2 and 3' → absent"],
    ]


@pytest.mark.parametrize(
    "properties",
    [
        {"line": "b", "match": "(a+)+$"},
        {"line": "b", "insert_after": "(a+)+$"},
        {"line": "b", "insert_before": "(a+)+$"},
        {"ensure": "absent", "match": "(a+)+$"},
        {"line": r"\1", "match": "(a+)+$", "back_references": True},
    ],
    ids=["match", "insert_after", "insert_before", "absent", "back_references"],
)
@pytest.mark.attack("edits.pattern")
@pytest.mark.representatives(3)
def test_pattern_has_a_time_limit(
    apply: Apply, place: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, Any]
) -> None:
    monkeypatch.setattr("hiera.regex.TIME_LIMIT", 0.1)
    with meter:
        meter.secret = True  # an evaluation before, which has ended
    path = place / "file"
    path.write_text("first\n" + "a" * 60 + "!\n")
    (event,) = apply({"line#it": {"path": str(path), **properties}}).values()
    assert event.errors == [f"{path}: pattern '(a+)+$' took more than 0.1 s on 61 characters"]
    assert path.read_text() == "first\n" + "a" * 60 + "!\n"


@pytest.mark.parametrize("length", [3, 100])
def test_sensitive_pattern_is_in_no_message(
    tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr("hiera.regex.TIME_LIMIT", 0.1)
    (tmp_path / "file").write_text("a" * 60 + "!\n")
    (tmp_path / "manifest.yaml").write_text(
        f"""\
data:
  # @sensitive
  pattern: (a+)+$|{"secret" * length}
resources:
  - line:
      - it: {{path: {tmp_path}/file, line: b, match: "{{{{ data.pattern }}}}"}}
"""
    )
    _, output = execute("apply", str(tmp_path), "--state-directory", str(tmp_path / "state"))
    assert "took more than 0.1 s on 61 characters" in output
    assert "secret" not in output
    states = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert not [path for path in states if b"secret" in path.read_bytes()]


def test_repetition_is_refused_on_a_very_long_line(
    apply: Apply, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hiera.regex.TIME_LIMIT", 0.1)
    path = place / "file"
    path.write_text("a" * 200_000 + "!\nx\n")
    resources = {"line#slow": {"path": str(path), "line": "b", "match": "(a|a)+$"}}
    resources["line#quick"] = {"path": str(path), "line": "y", "match": "^x"}
    slow, quick = apply(resources).values()
    (error,) = slow.errors
    assert error.startswith(
        f"{path}: pattern '(a|a)+$' is tried on 200001 characters, at most 50000 are possible"
    )
    assert quick.state == "changed"
    assert path.read_text() == "a" * 200_000 + "!\ny\n"


def test_pattern_over_its_own_line_does_not_block_loading(
    apply: Apply, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hiera.regex.TIME_LIMIT", 0.1)
    path = place / "file"
    path.write_text("x\n")
    present, absent = apply(
        {
            "line#present": {"path": str(path), "line": "a" * 60 + "!"},
            "line#absent": {"path": str(path), "ensure": "absent", "match": "(a+)+$"},
        }
    ).values()
    assert present.state == "changed"
    assert absent.state == "failed"
