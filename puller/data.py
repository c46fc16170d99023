"""Data from outside of the manifest: this host's own files, and what the command line gives.

Lowest precedence first (``docs/data.md``): ``data.yaml``, then ``data.d/*.yaml`` in name order, then ``--data`` files
in the order given. Each is a document of its own, with a hierarchy and overrides if it likes.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bundles.files import read_limited
from hiera.document import Document
from hiera.errors import HieraError
from puller.errors import ConfigurationError
from puller.system import reason

if TYPE_CHECKING:
    from hiera.annotations import Annotations

_SIZE_LIMIT = 16 * 1024 * 1024  # bytes


class Sources(msgspec.Struct, frozen=True):
    """The resolved data of each document, lowest precedence first, and what their comments say about it."""

    data: tuple[Mapping[str, Any], ...] = ()
    annotations: "tuple[Annotations, ...]" = ()


def load_sources(paths: Iterable[Path], facts: Mapping[str, Any], environ: Mapping[str, str]) -> Sources:
    """Read and resolve documents; raises ``ConfigurationError`` naming the file and line."""
    data: list[Mapping[str, Any]] = []
    annotations: list[Annotations] = []
    for path in paths:
        try:
            document = Document.parse(_read(path), str(path))
            data.append(document.resolve(facts=facts, environ=environ).data)
        except HieraError as error:
            raise ConfigurationError(str(error)) from error
        if document.annotations is not None:
            annotations.append(document.annotations)
    return Sources(tuple(data), tuple(annotations))


def host_files(file: Path, directory: Path) -> Iterator[Path]:
    """The data files of this host that exist, in order; raises ``ConfigurationError`` when that cannot be told."""
    try:
        if file.exists():
            yield file
        if directory.exists():
            yield from sorted(
                path for path in directory.iterdir() if path.suffix in (".yaml", ".yml", ".json")
            )
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: cannot be read: {reason(error)}") from error


def _read(path: Path) -> str:
    try:
        return read_limited(path, _SIZE_LIMIT).decode("utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: is not usable: {error}") from error
