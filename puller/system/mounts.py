"""Mount points of this machine, as far as they are in the way of a change.

A rename cannot take the place of a mount point, and removing what is below one empties another file system.
"""

import os
import re
from collections.abc import Collection

from foundation.problems import ProblemCode
from puller.errors import ResourceError

# Blanks, tabs, line ends and backslashes are octal there, so that each line splits at blanks.
_ESCAPED = re.compile(r"\\([0-7]{3})")


def refuse_mounted(path: str, what: str) -> None:
    """Raise ``ResourceError`` when something is mounted at a path or below it, so that it cannot be ``what``."""
    here = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    for point in mount_points():
        if point == here:
            raise ResourceError(
                f"{path} is a mount point, which cannot be {what}", code=ProblemCode.CHANGE_REFUSED
            )
        if point.startswith(f"{here}/"):
            raise ResourceError(
                f"{path} cannot be {what}: {point} is mounted below it", code=ProblemCode.CHANGE_REFUSED
            )


def refuse_mounted_among(root: str, replaced: Collection[str], removed: Collection[str]) -> None:
    """Raise ``ResourceError`` when something is mounted in the way of a change below a directory.

    Paths are relative to it: those to be replaced, and those to be removed.
    """
    above = f"{os.path.realpath(root)}/"
    for point in mount_points():
        if not point.startswith(above):
            continue
        inside = point.removeprefix(above)
        if inside in replaced or inside in removed:
            what = "replaced" if inside in replaced else "removed"
            raise ResourceError(
                f"{point} is a mount point, which cannot be {what}", code=ProblemCode.CHANGE_REFUSED
            )
        if below := next((path for path in removed if path.startswith(f"{inside}/")), None):
            raise ResourceError(
                f"{above}{below} is below the mount point {point}, so it is not removed",
                code=ProblemCode.CHANGE_REFUSED,
            )


def mount_points() -> list[str]:
    """Where something is mounted for this process (proc(5), ``mountinfo``)."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        points = [line.split(" ", 5)[4] for line in lines]
    return [_ESCAPED.sub(lambda match: chr(int(match[1], 8)), point) for point in points]
