"""Differences as values and as text: for people, the journal and JSON."""

import json
import subprocess
import sys

import msgspec
import pytest

from foundation.differences import (
    ABSENT,
    Action,
    Difference,
    DifferenceKind,
    acting,
    added,
    changed,
    presence,
    removed,
    secret,
    unknown,
    with_causes,
    with_diff,
)
from foundation.formatting import journal, json_values, people
from tests.support.rows import each_row

CONF = ("file#/etc/app.conf",)
RUN = with_causes([acting("command", Action.RUN, refresh=True)], CONF)
WITH_DIFF = with_diff([changed("mode", "0600", "0644"), changed("content", "a", "b")], "-a\n+b\n")


@each_row(
    ("differences", "text"),
    [
        ([changed("owner", "me", "root"), changed("mode", "0600", "0644")], "owner me → root, mode 0600 → 0644"),
        ([changed("content", "24cdfb0f", "c914dd32")], "content: 24cdfb0f → c914dd32"),
        (WITH_DIFF, "mode 0600 → 0644, content"),
        ([presence(ABSENT, "present")], "ensure absent → present"),
        ([presence(ABSENT, "present", "a"), presence("present", ABSENT, "b")], "a added, b removed"),
        ([presence("a link", "a file", "a")], "a a link → a file"),
        ([changed("mode", "0600", "0644", "conf.d/a")], "conf.d/a mode 0600 → 0644"),
        ([added("value", "1"), added("value", "")], "value: 1, value: ''"),
        ([removed("entry", "x")], "entry x → (none)"),
        ([changed("comment", "x", "")], "comment x → ''"),
        ([secret("password")], "password (sensitive)"),
        ([unknown("content", "from /srv/a")], "content unknown until run (from /srv/a)"),
        ([acting("command", Action.RUN)], "ran"),
        (RUN, "ran, because file#/etc/app.conf changed"),
        (
            with_causes([acting("ensure", Action.RESTART, refresh=True)], ["file#a", "file#b"]),
            "restarted, because file#a and file#b changed",
        ),
        (
            [acting("configuration", Action.RELOAD, refresh=True)],
            "reloaded, because of a change in an earlier run",
        ),
    ],
)  # fmt: skip
def test_text_for_people(differences: list[Difference], text: str) -> None:
    assert people(differences, arrow="→") == text


def test_a_dry_run_reads_as_a_prediction() -> None:
    assert people(RUN, is_predicted=True) == "would run, because file#/etc/app.conf would change"


@pytest.mark.parametrize("value", ["a, mode 0644 → 0600", "a -> b", " a", "a\nb", "a\x1b[2J"])
def test_a_value_cannot_forge_another_difference(value: str) -> None:
    assert people([changed("comment", value, "x")], arrow="→") == f"comment {value!r} → x"


@pytest.mark.parametrize(("locale", "arrow"), [("C", "->"), ("C.UTF-8", "→")])
def test_arrow_is_displayable_in_the_locale(locale: str, arrow: str) -> None:
    program = (
        "from foundation import differences, formatting;"
        "print(formatting.people([differences.changed('mode', '1', '2')]))"
    )
    command = [sys.executable, "-c", program]
    environment = {"LC_ALL": locale, "PYTHONUTF8": "1", "PYTHONPATH": ":".join(sys.path)}
    printed = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
    assert printed.stdout == f"mode 1 {arrow} 2\n"


def test_json_has_the_four_fields_and_no_defaults() -> None:
    (value,) = json_values([changed("mode", "0600", "0644")])
    assert value == {"property": "mode", "current": "0600", "desired": "0644", "kind": "changed"}
    assert msgspec.convert(value, Difference) == changed("mode", "0600", "0644")


def test_the_journal_has_no_diffs_in_its_field() -> None:
    values = json.loads(journal(WITH_DIFF))
    assert [value["property"] for value in values] == ["mode", "content"]
    assert not any("diff" in value for value in values)


def test_a_secret_has_no_values() -> None:
    assert json_values([secret("content")]) == [
        {"property": "content", "current": "", "desired": "", "kind": DifferenceKind.CHANGED, "secret": True}
    ]
