"""What a format of settings offers: one key found, set and taken out in the text of a whole file.

* A text is the whole file, decoded as UTF-8 with ``surrogateescape``, so that bytes of other encodings are carried
  through. Lines end at LF only; a file whose first line ends with CRLF gets CRLF on new and replaced lines.
* Nothing here touches a file. ``with_value`` and ``without`` return the very text that they were given when nothing
  is to be done, so ``new is text`` says *in order*; what they return is in order when it is asked again.
* A text that was read once is not parsed again: each format keeps what it made of the last few texts, found by the
  text itself. Settings in order cost one parse of their file; each change costs one of the text that it makes.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Protocol, cast

import msgspec

from puller.errors import ResourceError
from puller.resources.base import PropertyError

FORMATS = ("ini", "shell", "keyvalue", "yaml", "toml", "json")


class FormatError(ResourceError):
    """A text in which a setting cannot be found, or not be changed without harm; names the line where there is one."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, as the properties have it."""

    key: str | tuple[str, ...]
    """The key; in yaml, toml and json dots lead into the tree, and several texts are the way."""
    section: str | None = None
    """The section, in ini."""
    value: Any = msgspec.UNSET
    """The wanted value; secrets are revealed. Not given when the setting is to be absent."""
    separator: str | None = None
    """What stands between key and value of a new line, in ini and keyvalue; ``None`` for the format's own."""


class Found(msgspec.Struct, frozen=True):
    """What a text says of a setting."""

    is_there: bool
    value: Any = None
    """The value that a reader gets: a text in ini, shell and keyvalue, where a key without a sign has ``None``."""
    line: int | None = None
    """Where it is, counted from 1; of several the last one, which counts."""


class Format(Protocol):
    """A module of this package."""

    @property
    def NEW_TEXT(self) -> str:  # noqa: N802 - a constant of the modules
        """What a file that is made begins with, before the setting is put in."""

    def problems(self, setting: Setting) -> Iterator[PropertyError]:
        """What is wrong with a setting whatever the file says, for the load; the value only when it is given."""

    def find(self, text: str, setting: Setting) -> Found:
        """What the text says. Raises :class:`FormatError`."""

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
    """The format of that name, one of ``FORMATS``; only its module and libraries are imported. Raises ``KeyError``."""
    return cast(Format, import_module(f"{__package__}.{_MODULES[name]}"))
