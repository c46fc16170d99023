"""Settings in shell texts."""

from collections.abc import Iterator

from puller.resources.base import PropertyError
from puller.resources.edits.formats.format import Found, Setting

NEW_TEXT = ""


def problems(setting: Setting) -> Iterator[PropertyError]:
    raise NotImplementedError


def find(text: str, setting: Setting) -> Found:
    raise NotImplementedError


def with_value(text: str, setting: Setting) -> str:
    raise NotImplementedError


def without(text: str, setting: Setting) -> str:
    raise NotImplementedError
