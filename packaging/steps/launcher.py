"""The launcher of the packages, and what puts versions in their places for it: ``packaging/launcher``, filled in."""

from pathlib import Path

from steps.placeholders import fill

_PLACES = {
    "LIBRARIES": "/usr/lib/puller",
    "RECORDS": "/var/lib/puller-launcher",
    "COMMAND": "/usr/bin/puller",
    "SECONDS": "60",
    "RUNS": "3",
}


def script(repository: Path, name: str, **instead: str) -> str:
    """The text of ``puller`` or ``arrange``; ``instead`` are other places, or seconds. Raises ``BuildFailed``."""
    return fill(repository / "packaging/launcher" / name, _PLACES | instead)
