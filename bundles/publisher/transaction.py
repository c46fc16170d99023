"""Files that only mean something together, written so that a crash cannot part them.

1. `record` all of them in one file, which appears at once: from now on they will be written, whatever happens.
2. The publisher writes them, one by one.
3. `forget` the record.

After a crash between 1 and 3 the next publisher does `finish`: 2 from the record, then 3. Written twice is as good as
once, so nobody needs to know how far it came.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from bundles.errors import FormatError
from bundles.filesystem.atomic import read_limited, sync_directory, write_file

_LARGEST = 200_000_000


def record(path: Path, contents: Mapping[str, bytes]) -> None:
    """Step 1: keep ``contents`` by name, which are about to be written; raises ``OSError``."""
    document = {name: base64.b64encode(data).decode() for name, data in contents.items()}
    write_file(path, json.dumps(document).encode())


def finish(path: Path, directory: Path) -> None:
    """Steps 2 and 3 after a crash: write what was recorded, if anything was, to ``directory``.

    Raises ``OSError``, and `FormatError` for a damaged record.
    """
    try:
        document = json.loads(read_limited(path, _LARGEST))
        contents = {name: base64.b64decode(text) for name, text in document.items()}
    except FileNotFoundError:
        return
    except (ValueError, AttributeError, TypeError) as error:
        raise FormatError(
            str(path), f"is damaged ({error})", hint="restore public/metadata from a copy"
        ) from None
    # 2.
    for name, data in contents.items():
        write_file(directory / Path(name).name, data)
    # 3.
    forget(path)


def forget(path: Path) -> None:
    """Step 3, as all is written; raises ``OSError``."""
    path.unlink(missing_ok=True)
    sync_directory(path.parent)
