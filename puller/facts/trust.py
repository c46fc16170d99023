"""Whom facts may come from: root, or the user that gathers them, and nobody else.

* A path is trusted when no other user could have written it, or could put something else in its place: it and
  every directory above it belong to one of the two, and neither their group nor others may write.
* Links are resolved first, so what is judged is what is read.
"""

from __future__ import annotations

import os
import stat


def distrust(path: str) -> str | None:
    """Why ``path`` must not be read or run, ``None`` when it may; raises ``OSError`` when nobody can tell."""
    resolved = os.path.realpath(path, strict=True)
    reason = _distrust_of_one(resolved, os.lstat(resolved))
    while not reason and resolved != "/":
        resolved = os.path.dirname(resolved)
        reason = _distrust_of_parent(resolved, os.lstat(resolved))
    return reason


def _distrust_of_parent(path: str, status: os.stat_result) -> str | None:
    # In a sticky directory, such as /tmp, nobody can rename or remove what belongs to somebody else.
    if status.st_mode & stat.S_ISVTX and status.st_uid in _trusted_users():
        return None
    return _distrust_of_one(path, status)


def _distrust_of_one(path: str, status: os.stat_result) -> str | None:
    if status.st_uid not in _trusted_users():
        return f"{path} belongs to user {status.st_uid}, wanted root or the running user {os.geteuid()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} has mode {stat.S_IMODE(status.st_mode):04o}, wanted it writable by its owner only"
    return None


def _trusted_users() -> tuple[int, int]:
    return 0, os.geteuid()
