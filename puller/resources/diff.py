"""Unified diffs of text, for people."""

import re

LIMIT = 64 * 1024
"""The largest content, in bytes, for which a diff is computed."""

_LINE = r"[^\n]*\n|[^\n]+"  # unlike splitlines(), does not split at a form feed or a lone CR


def unified(old: bytes, new: bytes, name: str) -> str | None:
    """Return a unified diff from ``old`` to ``new``, or a sentence if the content is binary or too large."""
    if max(len(old), len(new)) > LIMIT:
        return f"{name}: {len(old)} bytes become {len(new)} bytes, too large for a diff\n"
    try:
        before, after = old.decode("utf-8"), new.decode("utf-8")
    except UnicodeDecodeError:
        return f"{name}: binary content, {len(old)} bytes become {len(new)} bytes\n"
    import difflib  # 1 % of an idle run, which prints no diff

    lines = difflib.unified_diff(
        re.findall(_LINE, before), re.findall(_LINE, after), f"{name} (now)", f"{name} (wanted)"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n" for line in lines)
