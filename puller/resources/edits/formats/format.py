"""The formats of settings, each of which finds, sets and takes out one key in the text of a whole file.

* A text is the whole file, decoded as UTF-8 with ``surrogateescape``, so that bytes of other encodings are carried
  through. Lines end at LF only; a file whose first line ends with CRLF gets CRLF on new and replaced lines.
* Nothing here touches a file. ``with_value`` and ``without`` return the very text that they were given when nothing
  is to be done, so ``new is text`` says *in order*; what they return is in order when it is asked again.
* A text that was read once is not parsed again: each format keeps what it made of the last few texts, found by the
  text itself. Settings in order cost one parse of their file; each change costs one of the text that it makes.
"""

from collections.abc import Iterator
from typing import Protocol

from puller.resources.base import PropertyError
from puller.resources.edits.formats import ini, json_tree, keyvalue, shell, toml_tree, yaml_tree
from puller.resources.edits.formats.model import FormatError, Found, Setting

__all__ = ["FORMATS", "Format", "FormatError", "Found", "Setting", "format_named"]

FORMATS = ("ini", "shell", "keyvalue", "yaml", "toml", "json")


class Format(Protocol):
    """A module of this package."""

    @property
    def NEW_TEXT(self) -> str:  # noqa: N802 - a constant of the modules
        """The text that a new file begins with, before the setting is put in."""

    def problems(self, setting: Setting) -> Iterator[PropertyError]:
        """The problems of a setting whatever the file says, for the load; the value only when it is given."""

    def find(self, text: str, setting: Setting) -> Found:
        """The value and place of the key. Raises :class:`FormatError`."""

    def with_value(self, text: str, setting: Setting) -> str:
        """The text with the wanted value; ``text`` itself when nothing is to be done. Raises :class:`FormatError`."""

    def without(self, text: str, setting: Setting) -> str:
        """The text without the key; ``text`` itself when nothing is to be done. Raises :class:`FormatError`."""


_MODULES = {
    "ini": "ini",
    "shell": "shell",
    "keyvalue": "keyvalue",
    "yaml": "yaml_tree",
    "toml": "toml_tree",
    "json": "json_tree",
}


def format_named(name: str) -> Format:
    """The format of that name, one of ``FORMATS``; only its module is imported. Raises ``ValueError``."""
    # One import each, so that the types of all modules are checked.
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
    raise ValueError(f"{name!r} is no format, wanted one of {', '.join(FORMATS)}")
