"""Data from outside of the manifest: this host's own files, and what the command line gives.

Lowest precedence first (``docs/data.md``): ``data.yaml``, then ``data.d/*.yaml`` in name order, then ``--data`` files
in the order given. Each is a document of its own, with a hierarchy and overrides if it likes.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bundles.files import read_limited
from hiera.document import Document
from hiera.errors import HieraError
from puller.errors import ConfigurationError
from puller.system import reason

_SIZE_LIMIT = 16 * 1024 * 1024  # bytes


def load_sources(
    paths: Iterable[Path], facts: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[Mapping[str, Any], ...]:
    """The resolved data of each document; raises ``ConfigurationError`` naming the file and line."""
    return tuple(_load(path, facts, environ) for path in paths)


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


def _load(path: Path, facts: Mapping[str, Any], environ: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        text = read_limited(path, _SIZE_LIMIT).decode("utf-8")
        return Document.parse(text, str(path)).resolve(facts=facts, environ=environ).data
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {reason(error)}") from error
    except (ValueError, HieraError) as error:
        raise ConfigurationError(str(error)) from error
