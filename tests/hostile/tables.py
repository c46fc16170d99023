"""Shared parts of the tests of hostile archives: bad names, rows with their cases, and a view of the surroundings."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml


def bad_names(of: str) -> dict[str, dict[str, str]]:
    """Return the invalid names of a ``bundle`` or an ``archive``, by their problem."""
    names = yaml.load(Path(__file__).with_name("names.yaml").read_text(), yaml.CSafeLoader)
    return {what: row for what, row in names.items() if row.get("of", of) == of}


def params(rows: Iterable[str | tuple[Any, ...]], prefix: str = "", *before: object) -> list[Any]:
    """Return parameters for pytest.

    A row is a name and values. A line of text is the case of ``attacks.yaml`` for the rows after it. ``prefix`` and the
    name form the id. The values of ``before`` precede those of the row.
    """
    case = ""
    results = []
    for row in rows:
        if isinstance(row, str):
            case = row
        else:
            mark = pytest.mark.attack(case)
            results.append(pytest.param(*before, *row[1:], id=prefix + row[0], marks=mark))
    return results


def make_surroundings(directory: Path) -> Path:
    """Return a directory with targets for attacks, and an empty `store`."""
    outer = directory / "outer"
    (outer / "store").mkdir(parents=True)
    (outer / "canary").write_text("sings")
    (outer / "store/canary").write_text("sings")
    (outer / "private").mkdir(mode=0o700)
    (outer / "private/key").write_text("secret")
    (outer / "link").symlink_to("private")
    return outer


def look(root: Path, busy: str, *, inside: bool = True) -> dict[str, tuple[object, ...]]:
    """Return the visible state of a tree.

    Skip the times of the directory ``busy``, because a test writes to it. With ``inside`` false, skip its contents,
    too.
    """
    result: dict[str, tuple[object, ...]] = {}
    for path in (root, *sorted(root.rglob("*"))):
        if not inside and busy in path.relative_to(root).parent.parts:
            continue
        status = path.lstat()
        times = (status.st_mtime_ns, status.st_ctime_ns) if path.name != busy else ()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        result[str(path)] = (status.st_mode, status.st_uid, status.st_ino, *times, content)
    return result
