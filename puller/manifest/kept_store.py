"""The store that the declarations of this thread's manifests are kept in, and which manifests have any use for it."""

import os
from collections.abc import Iterator
from typing import Final

import hiera
import puller
from hiera.keeping import StoreOfThread, maker_digest
from hiera.text import kept_values

SHORTEST: Final = 50_000
"""Characters of a text that it is worth its while for: some two hundred resources."""

UNREAD: Final = object()
"""In the value of a text in the place of its list of resources, which was not read."""

_MAKERS: Final = (
    (hiera, ("expressions", "values")),
    (puller, ("checks", "manifest", "resources", "system", "templates", "values")),
)
"""The folders of what reads, resolves and checks what is declared, and of what these ask."""


def _maker() -> bytes | None:
    """A digest of the Python and the modules that make declarations; ``None`` when that is not sure."""
    if (found := [*kept_values.makers()]) == []:
        return None
    try:
        for package, names in _MAKERS:
            for name in names:
                found += _folders(os.path.join(package.__path__[0], name))
    except OSError:
        return None
    return maker_digest(found)


def _folders(directory: str) -> Iterator[str]:
    """A folder and all below it. Raises ``OSError``."""
    yield directory
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in entries if "." not in entry.name and entry.is_dir())
    for name in names:
        if name != "__pycache__":
            yield from _folders(os.path.join(directory, name))


STORE: Final = StoreOfThread(_maker)
