"""Files that only mean something together, written so that a crash cannot part them.

All of them are first recorded in one file, which appears at once. Whoever comes after a crash writes from it what
is missing. Written twice is as good as once.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from bundles.errors import FormatError
from bundles.filesystem.atomic import read_limited, sync_directory, write_file

_LARGEST = 200_000_000


def record(path: Path, contents: Mapping[str, bytes]) -> None:
    """Keep what is about to be written, by name; raises ``OSError``."""
    document = {name: base64.b64encode(data).decode() for name, data in contents.items()}
    write_file(path, json.dumps(document).encode())


def finish(path: Path, directory: Path) -> None:
    """Write what was recorded, if anything was, to ``directory``; raises ``OSError`` and `FormatError`."""
    try:
        document = json.loads(read_limited(path, _LARGEST))
        contents = {name: base64.b64decode(text) for name, text in document.items()}
    except FileNotFoundError:
        return
    except (ValueError, AttributeError, TypeError) as error:
        raise FormatError(str(path), f"is damaged ({error}); restore public/metadata from a copy") from None
    for name, data in contents.items():
        write_file(directory / Path(name).name, data)
    forget(path)


def forget(path: Path) -> None:
    """All is written; raises ``OSError``."""
    path.unlink(missing_ok=True)
    sync_directory(path.parent)
