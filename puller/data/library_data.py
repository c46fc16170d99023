"""Data of libraries: the defaults in the ``data.yaml`` of each, which are below all other data of the bundle."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from bundles.filesystem.atomic import read_limited
from hiera.document.document import Document
from hiera.errors import DocumentError
from puller.bundle_paths import FileTree
from puller.data.sources import SIZE_LIMIT, DataSource, Origin, Surroundings

DATA = "data.yaml"


def library_data(
    libraries: Iterable[FileTree], facts: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[DataSource, ...]:
    """Return the documents of the libraries, in their order. Raise ``HieraError``."""
    here = Surroundings(facts, environ)
    data_sources: list[DataSource] = []
    for library in libraries:
        name, path = f"{library.name}:{DATA}", os.path.join(library.root, DATA)
        if os.path.lexists(path):
            data_sources.append(here.choose(Document.parse(_read(path, name), name), name, Origin.LIBRARY))
    return tuple(data_sources)


def _read(path: str, name: str) -> str:
    try:
        return read_limited(path, SIZE_LIMIT).decode("utf-8")
    except OSError as error:
        raise DocumentError(name, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DocumentError(name, str(error)) from error
