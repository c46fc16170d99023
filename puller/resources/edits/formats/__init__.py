"""Formats of settings. Each one finds, sets and removes one key in the text of a whole file.

* A text is the whole file, decoded as UTF-8 with ``surrogateescape``, so that other bytes are preserved. Lines end only
  at LF. If the first line of a file ends with CRLF, new and replaced lines do as well.
* Formats do not access files. ``with_value`` and ``without`` return the same object if the text is in sync, so ``new is
  text`` is a valid comparison. Their results are in sync when they are passed in again.
* Each format caches its results for the last few texts. Settings that are in sync cost one parse of their file, and
  each change costs one parse of the new text.
"""

from collections.abc import Iterator
from typing import Protocol

from puller.resources.base import PropertyError
from puller.resources.edits.formats import ini, json_tree, keyvalue, shell, toml_tree, yaml_tree
from puller.resources.edits.formats.text_lines import FormatError, Found, Setting

__all__ = ["FORMATS", "Format", "FormatError", "Found", "Setting", "format_named"]

FORMATS = ("ini", "shell", "keyvalue", "yaml", "toml", "json")


class Format(Protocol):
    """A module of this package."""

    @property
    def NEW_TEXT(self) -> str:  # noqa: N802 - a constant of the modules
        """The initial text of a new file, before the setting is added."""

    def problems(self, setting: Setting) -> Iterator[PropertyError]:
        """Yield errors of a setting that are independent of the file. Checks the value only if it is set."""

    def find(self, text: str, setting: Setting) -> Found:
        """Return the value and position of the key. Raises :class:`FormatError`."""

    def with_value(self, text: str, setting: Setting) -> str:
        """Return the text with the desired value, or ``text`` itself if it is in sync. Raises :class:`FormatError`."""

    def without(self, text: str, setting: Setting) -> str:
        """Return the text without the key, or ``text`` itself if it is in sync. Raises :class:`FormatError`."""


def format_named(name: str) -> Format:
    """Return the format with that name, one of ``FORMATS``. Raises ``ValueError``."""
    # One return each, so that the type checker compares every module with ``Format``.
    if name == "ini":
        return ini
    if name == "shell":
        return shell
    if name == "keyvalue":
        return keyvalue
    if name == "yaml":
        return yaml_tree
    if name == "toml":
        return toml_tree
    if name == "json":
        return json_tree
    raise ValueError(f"{name!r} is no format, expected one of {', '.join(FORMATS)}")
