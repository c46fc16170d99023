"""Settings as real implementations write them: every case of tests/cases/edits.json, with the formats alone."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puller.resources.edits.formats import FORMATS, FormatError, Setting, format_named
from tests.support.rows import each_row

ROOT = Path(__file__).parents[5]
CASES = [
    case for case in json.loads((ROOT / "tests/cases/edits.json").read_text()) if case["type"] == "setting"
]


def edit(properties: dict[str, Any], before: str | None) -> str | None:
    """Return the text after the setting is applied, or ``None`` for no file.

    Raises ``FormatError`` if the edit is rejected.
    """
    key, absent = properties["key"], properties.get("ensure") == "absent"
    setting = Setting(
        key=tuple(key) if isinstance(key, list) else key,
        section=properties.get("section"),
        value=properties.get("value", msgspec.UNSET),
        separator=properties.get("separator"),
    )
    format_ = format_named(properties["format"])
    if before is None:
        if absent:
            return None
        if not properties.get("create"):
            raise FormatError("there is no file")
        before = format_.NEW_TEXT
    problems = [*map(str, format_.problems(setting))]
    if problems or (not absent and setting.value is msgspec.UNSET):
        raise FormatError("; ".join(problems) or "no value")
    return format_.without(before, setting) if absent else format_.with_value(before, setting)


@each_row("case", CASES, ids=[case["name"] for case in CASES])
def test_settings_change_as_with_reference_tools(case: dict[str, Any]) -> None:
    properties, before, after = case["properties"], case["before"], case["after"]
    if case["error"]:
        with pytest.raises(FormatError):
            edit(properties, before)
        return
    assert edit(properties, before) == after
    assert (after != before) == case["changed"]
    if after is not None:
        assert edit(properties, after) is after


def test_every_format_has_cases() -> None:
    assert {case["properties"]["format"] for case in CASES} == set(FORMATS)
