"""Unified diffs of text, for people."""

import difflib

LIMIT = 64 * 1024
"""The largest content, in bytes, that a diff is made of."""


def unified(old: bytes, new: bytes, name: str) -> str | None:
    """A unified diff from ``old`` to ``new``; a sentence where that is not text, or too much of it."""
    if max(len(old), len(new)) > LIMIT:
        return f"{name}: {len(old)} bytes become {len(new)} bytes, too large for a diff\n"
    try:
        before, after = old.decode("utf-8"), new.decode("utf-8")
    except UnicodeDecodeError:
        return f"{name}: binary content, {len(old)} bytes become {len(new)} bytes\n"
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{name} (now)", f"{name} (wanted)"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n" for line in lines)
