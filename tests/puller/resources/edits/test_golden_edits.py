"""Every case of tests/cases/edits.json, as a resource in a manifest: applied twice, and once as a dry run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.errors import ManifestError

ROOT = Path(__file__).parents[4]
CASES = json.loads((ROOT / "tests/cases/edits.json").read_text())


def outcome(
    apply: Callable[..., Any], case: dict[str, Any], path: Path, *, noop: bool = False
) -> tuple[bool, bool]:
    """Return whether the edit fails, and whether it changes something or would do so."""
    properties = {"path": str(path), **case["properties"]}
    try:
        (event,) = apply({f"{case['type']}#edit": properties}, noop=noop).values()
    except ManifestError:
        return True, False
    return event.state == "failed", event.state in ("changed", "would change")


def content(path: Path) -> str | None:
    return path.read_bytes().decode() if path.exists() else None


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
@pytest.mark.representatives(40)
def test_edit_equals_reference_tools_and_is_idempotent(
    case: dict[str, Any], apply: Callable[..., Any], place: Path
) -> None:
    path = place / "file"
    if case["before"] is not None:
        path.write_bytes(case["before"].encode())
    assert outcome(apply, case, path, noop=True) == (case["error"], case["changed"])
    assert content(path) == case["before"]
    assert outcome(apply, case, path) == (case["error"], case["changed"])
    assert content(path) == case["after"]
    assert outcome(apply, case, path) == (case["error"], False)
    assert content(path) == case["after"]
