"""What the tests of hostile archives share: bad names, rows that stand below the case that they prove, and a look at
everything around the place that an archive is put into.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml


def bad_names(of: str) -> dict[str, dict[str, str]]:
    """The names that a ``bundle`` or an ``archive`` must not hold, by what is bad about them."""
    names = yaml.load(Path(__file__).with_name("names.yaml").read_text(), yaml.CSafeLoader)
    return {what: row for what, row in names.items() if row.get("of", of) == of}


def params(rows: Iterable[str | tuple[Any, ...]], prefix: str = "", *before: object) -> list[Any]:
    """Parameters for pytest. A line of text is the case of ``attacks.yaml`` that the rows after it prove; a row is its
    name, which ``prefix`` makes an id, and values, before which those of ``before`` come.
    """
    case = ""
    found = []
    for row in rows:
        if isinstance(row, str):
            case = row
        else:
            mark = pytest.mark.attack(case)
            found.append(pytest.param(*before, *row[1:], id=prefix + row[0], marks=mark))
    return found


def make_surroundings(directory: Path) -> Path:
    """A directory with what an attack might aim at, and `store`, which is empty."""
    outer = directory / "outer"
    (outer / "store").mkdir(parents=True)
    (outer / "canary").write_text("sings")
    (outer / "store/canary").write_text("sings")
    (outer / "private").mkdir(mode=0o700)
    (outer / "private/key").write_text("secret")
    (outer / "link").symlink_to("private")
    return outer


def look(root: Path, busy: str, *, inside: bool = True) -> dict[str, tuple[object, ...]]:
    """All that can be seen of a tree; of the directory called ``busy`` not the times, as something is put into it, and
    with ``inside`` false nothing of what it holds.
    """
    found: dict[str, tuple[object, ...]] = {}
    for path in (root, *sorted(root.rglob("*"))):
        if not inside and busy in path.relative_to(root).parent.parts:
            continue
        status = path.lstat()
        times = (status.st_mtime_ns, status.st_ctime_ns) if path.name != busy else ()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_uid, status.st_ino, *times, content)
    return found
