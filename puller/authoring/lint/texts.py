"""Texts of files of a bundle: of regular files alone, as a pipe or a device in the way would hold up all checks."""

from pathlib import Path
from typing import Final

from bundles.filesystem.trees import open_regular

_SIZE_LIMIT: Final = 16 * 1024 * 1024


def read_text(path: str, limit: int = _SIZE_LIMIT) -> str | None:
    """The text of a file of at most ``limit`` bytes, with its own ends of lines; ``None`` where it cannot be read."""
    try:
        with open_regular(Path(path), follow=True) as file:
            data = file.read(limit + 1)
        return data.decode("utf-8") if len(data) <= limit else None
    except (OSError, ValueError):
        return None
