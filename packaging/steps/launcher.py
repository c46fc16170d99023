"""Scripts of the packages that start and install versions: ``packaging/launcher``, filled in."""

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
    """Return the text of ``puller`` or ``arrange``. ``instead`` replaces paths or seconds. Raises ``BuildFailed``."""
    return fill(repository / "packaging/launcher" / name, _PLACES | instead)
