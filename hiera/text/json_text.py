"""Parser of JSON to plain values, with line and column in errors (``foundation/strict_json.py`` has the rules)."""

from __future__ import annotations

from typing import Any, Final

from foundation import strict_json
from foundation.problems import Location
from hiera.errors import DocumentError, LimitError

DEPTH_LIMIT: Final = 100
"""Maximum depth of nested objects and arrays."""


def load(text: str | bytes, source: str) -> Any:
    """Return the value of a text. ``source`` is its name in messages. The caller must limit its length.

    Raises DocumentError and LimitError.
    """
    try:
        return strict_json.load(text, depth=DEPTH_LIMIT)
    except strict_json.NestingError as error:
        raise LimitError(source, str(error)) from None
    except strict_json.StrictJsonError as error:
        location = Location(source, error.line, error.column, is_exact=bool(error.column))
        raise DocumentError(location, str(error)) from None
