"""Data files, parsed. Each is read once, whichever level asks for it, and however many keys."""

from typing import Any

from hiera.errors import LookupFailure
from hiera.tree.config.documents import Documents, Kind
from hiera.tree.context.interpolation import Warn, warning
from hiera.tree.ruby import json_data, psych, values


class DataFiles:
    """The mappings in files of ``documents``; ``warn`` is told of files that hold none."""

    def __init__(self, documents: Documents, warn: Warn) -> None:
        self.documents = documents
        self._warn = warn
        self._yaml: dict[str, dict[Any, Any]] = {}
        self._json: dict[str, dict[Any, Any]] = {}

    def yaml(self, path: str) -> dict[Any, Any]:
        """The mapping in a YAML file; a file without one is empty. Raises ``DocumentError`` and ``LimitError``."""
        if path not in self._yaml:
            content = psych.load(self._read(path), path)
            if not isinstance(content, dict):
                self._warn(warning("file does not contain a valid yaml hash", path))
                content = {}
            self._yaml[path] = content
        return self._yaml[path]

    def json(self, path: str) -> dict[Any, Any]:
        """The mapping in a JSON file; raises ``LookupFailure`` for a file without one."""
        if path not in self._json:
            content = json_data.load(self._read(path), path)
            if not isinstance(content, dict):
                what = f"Value returned from data_hash function 'json_data', when using location '{path}',"
                wanted = f"has wrong type, expects a Hash value, got {values.type_name(content)}"
                raise LookupFailure("", f"{what} {wanted}").placed()
            self._json[path] = content
        return self._json[path]

    def _read(self, path: str) -> bytes:
        if self.documents.kind(path) is Kind.DIRECTORY:
            raise LookupFailure("", f"{path} is a directory, wanted a file").placed()
        return self.documents.read(path)
