"""A preview as a JSON document."""

import json
from typing import Any

import msgspec

from puller.authoring.preview.groups import Preview
from puller.values.visible import visible_json


def as_json(preview: Preview) -> str:
    """The document, indented; ``docs/preview.md`` names its keys."""
    return visible_json(json.dumps(_plain(preview), indent=2, ensure_ascii=False)) + "\n"


def _plain(preview: Preview) -> dict[str, Any]:
    return {
        "total": preview.total,
        "changes": preview.changes,
        "fails": preview.fails,
        "groups": [
            {"machines": group.machines, "changes": msgspec.to_builtins(group.changes)}
            for group in preview.groups
        ],
        "unchanged": preview.unchanged,
        "still_failing": [
            {
                "machines": found.machines,
                "reference": found.change.reference,
                "why": found.change.why,
                "problems": msgspec.to_builtins(found.change.problems),
            }
            for found in preview.still_failing
        ],
        "missing_facts": preview.missing,
        "notes": preview.notes,
    }
