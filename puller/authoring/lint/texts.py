"""Texts of files of a bundle: of regular files alone, as a pipe or a device in the way would hold up all checks."""

from pathlib import Path
from typing import Final

from bundles.filesystem.trees import open_regular
from puller.values.byte_order import IS_WIDE, MARK, is_wide

_SIZE_LIMIT: Final = 16 * 1024 * 1024


def read_text(path: str, limit: int = _SIZE_LIMIT) -> str | None:
    """Return the text of a file of at most ``limit`` bytes, without a byte order mark; ``None`` if it is unreadable."""
    try:
        data = _read(path, limit)
        is_text = len(data) <= limit and not is_wide(data)
        return data.decode("utf-8").removeprefix(MARK) if is_text else None
    except (OSError, ValueError):
        return None


def problem_of_text(path: str) -> str:
    """The reason why `read_text` gives nothing although there is a file: it is no text; empty for all others."""
    try:
        data = _read(path, _SIZE_LIMIT)
        if len(data) <= _SIZE_LIMIT:
            data.decode("utf-8")
            return IS_WIDE if is_wide(data) else ""
    except UnicodeDecodeError as error:
        return f"is not UTF-8 text, at byte {error.start}"
    except (OSError, ValueError):
        return ""
    return ""


def _read(path: str, limit: int) -> bytes:
    with open_regular(Path(path), follow=True) as file:
        return file.read(limit + 1)
