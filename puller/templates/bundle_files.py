"""Files of a bundle, as expressions and templates name them.

A path is looked up below the directory of the manifest and never leads out of it, whatever links it goes through.
"""

import os
from pathlib import Path

from bundles.filesystem.atomic import read_limited
from hiera.errors import ExpressionError

_LIMIT = 16 * 1024 * 1024  # bytes of a file that becomes text of an expression


def read_text(directory: Path, path: object) -> str:
    """The text of a file below ``directory``; raises ``ExpressionError``."""
    if not isinstance(path, str):
        raise ExpressionError("", f"a path is text, not {path!r}")
    try:
        return read_limited(find_inside(directory, path), _LIMIT).decode("utf-8")
    except OSError as error:
        raise ExpressionError("", f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ExpressionError("", f"{path} is not usable: {error}") from error


def find_inside(directory: Path, path: str) -> str:
    """The real path of a file below ``directory``; raises ``ExpressionError`` when it is elsewhere."""
    # Both are resolved: a link below may lead out, and the directory itself may be behind one.
    root = os.path.realpath(directory)
    found = os.path.realpath(os.path.join(root, path))
    if os.path.commonpath((root, found)) != root:
        raise ExpressionError("", f"{path} is outside of the manifest's directory")
    return found
