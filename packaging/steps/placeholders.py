"""Files of ``packaging/`` with placeholders, such as ``@VERSION@``."""

import re
from collections.abc import Mapping
from pathlib import Path

from steps.failure import BuildFailed

_PLACEHOLDER = re.compile(r"@([A-Z_]+)@")


def fill(path: Path, values: Mapping[str, str]) -> str:
    """Return the text of a file with its placeholders filled in. Raises ``BuildFailed`` for one without a value."""
    try:
        return _PLACEHOLDER.sub(lambda result: values[result[1]], path.read_text(encoding="utf-8"))
    except KeyError as error:
        raise BuildFailed(f"{path.name}: nothing is known for @{error.args[0]}@") from None
