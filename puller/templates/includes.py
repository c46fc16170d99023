"""Includes of Jinja2, also what is imported and extended: which file is meant, and what paths mean in it.

* A template that is given by its text is found first; then paths mean what they mean in a manifest.
* What a file of a library names is found from the root of that library, whoever includes it.
"""

import os
from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2.runtime import Context

from bundles.filesystem.atomic import read_limited
from puller.bundle_paths import BundleFiles
from puller.templates.bundle_files import BundleFunction
from puller.values.byte_order import MARK

_SIZE_LIMIT = 16 * 1024 * 1024  # bytes of an included template


class Includes:
    """The templates that one template may reach, from ``texts`` (path → text) or among ``files``."""

    def __init__(self, files: BundleFiles | None, texts: Mapping[str, str]) -> None:
        self._files = files
        self._texts = texts
        self._found: dict[str, str] = {}
        """Real paths by names."""
        self._places: dict[str, BundleFiles] = {}
        """By the names of templates that are of another place than ``files``."""

    def name(self, path: str, parent: str) -> str:
        """One name for what ``path`` means in the template ``parent``; raises ``BundlePathError``."""
        files = self._places.get(parent, self._files)
        if files is None or (files is self._files and self._is_text(path, files)):
            return path
        file = files.find(path)
        name = files.full_name(file) if self._texts else files.shown(file)
        self._found[name] = file
        if self._files is not None and (place := self._files.within(file)) is not self._files:
            self._places[name] = place
        return name

    def text(self, name: str) -> str | None:
        """The template of this name; ``None`` when there is none."""
        path = self._found.get(name)
        if path is None:
            return self._texts.get(name)
        if not os.path.isfile(path):
            return None
        return read_limited(path, _SIZE_LIMIT).decode("utf-8").removeprefix(MARK)

    def called(self, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """The names of a scope with its functions such that a path means what it means in the file that calls them."""
        if self._files is None or not self._files.libraries:
            return names
        return {
            name: self._called(one) if isinstance(one, BundleFunction) else one for name, one in names.items()
        }

    def _is_text(self, path: str, files: BundleFiles) -> bool:
        return path in self._texts or (bool(self._texts) and not files.is_prefixed(path))

    def _called(self, function: BundleFunction) -> Any:
        @jinja2.pass_context
        def call(context: Context, *arguments: Any, **named: Any) -> Any:
            place = self._places.get(context.name or "")
            return (function if place is None else function.at(place))(*arguments, **named)

        return call
