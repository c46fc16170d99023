"""Mount points of this machine that obstruct a change.

A rename cannot replace a mount point, and removing files below a mount point would empty another file system.
"""

import os
import re
from collections.abc import Collection

from foundation.problems import ProblemCode
from puller.errors import ResourceError

# mountinfo escapes blanks, tabs, newlines and backslashes in octal, so each line splits at blanks.
_ESCAPED = re.compile(r"\\([0-7]{3})")


def refuse_mounted(path: str, description: str) -> None:
    """Raise ``ResourceError`` if the path or a path below it is a mount point. ``description``: the refused action."""
    here = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    for point in mount_points():
        if point == here:
            raise ResourceError(
                f"{path} is a mount point, which cannot be {description}", code=ProblemCode.CHANGE_REFUSED
            )
        if point.startswith(f"{here}/"):
            raise ResourceError(
                f"{path} cannot be {description}: {point} is mounted below it",
                code=ProblemCode.CHANGE_REFUSED,
            )


def refuse_mounted_among(root: str, replaced: Collection[str], removed: Collection[str]) -> None:
    """Raise ``ResourceError`` if a mount point obstructs a change below a directory.

    The replaced and removed paths are relative to it.
    """
    above = f"{os.path.realpath(root)}/"
    for point in mount_points():
        if not point.startswith(above):
            continue
        inside = point.removeprefix(above)
        if inside in replaced or inside in removed:
            detail = "replaced" if inside in replaced else "removed"
            raise ResourceError(
                f"{point} is a mount point, which cannot be {detail}", code=ProblemCode.CHANGE_REFUSED
            )
        if below := next((path for path in removed if path.startswith(f"{inside}/")), None):
            raise ResourceError(
                f"{above}{below} is below the mount point {point}, so it is not removed",
                code=ProblemCode.CHANGE_REFUSED,
            )


def mount_points() -> list[str]:
    """Return the mount points of this process (proc(5), ``mountinfo``)."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        points = [line.split(" ", 5)[4] for line in lines]
    return [_ESCAPED.sub(lambda match: chr(int(match[1], 8)), point) for point in points]
