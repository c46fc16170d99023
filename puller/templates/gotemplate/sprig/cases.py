"""Upper and lower case, and the spelling of names: snake_case, kebab-case, PascalCase."""

from __future__ import annotations

import itertools
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from puller.templates.govalue.text import WHITE_SPACE, to_lower, to_title, to_upper


def _title(text: str) -> str:
    """``title``: the first letter of each word in title case. Words contain only letters, digits and ``_``."""
    return "".join(
        to_title(character) if _ends_word(before) else character
        for before, character in zip(" " + text, text, strict=False)
    )


def _ends_word(character: str) -> bool:
    if character.isascii():
        return not (character.isalnum() or character == "_")
    return character in WHITE_SPACE


def _untitle(text: str) -> str:
    """``untitle``: the first letter of each word in lower case. A word ends at white space."""
    return "".join(
        to_lower(character) if before in WHITE_SPACE else character
        for before, character in zip(" " + text, text, strict=False)
    )


def _swap_case(text: str) -> str:
    """``swapcase``: swaps upper and lower case, with title case at the start of a word."""
    swapped = []
    begins_word = True
    for character in text:
        category = unicodedata.category(character)
        if category in ("Lu", "Lt"):
            swapped.append(to_lower(character))
        elif category == "Ll":
            swapped.append(to_title(character) if begins_word else to_upper(character))
        else:
            swapped.append(character)
            begins_word = character in WHITE_SPACE
            continue
        begins_word = False
    return "".join(swapped)


# Names ---------------------------------------------------------------------------------------------------------------


def _is_connector(character: str) -> bool:
    return character in "-_" or character in WHITE_SPACE


def _is_upper(character: str) -> bool:
    return unicodedata.category(character) == "Lu"


def _pascal_case(text: str) -> str:
    """``camelcase``: ``some_words`` as ``SomeWords``. Leading connectors stay. Of several in a row, one is dropped."""
    start = next((i for i, character in enumerate(text) if not _is_connector(character)), len(text))
    if start == len(text):
        return text + text[-1:]  # only connectors: as in the original, the last connector is doubled
    pieces = [text[:start]]
    last = to_upper(text[start])
    in_capitals = _is_upper(text[start])  # FOO becomes Foo
    for character in text[start + 1 :]:
        if not _is_connector(last) or _is_connector(character):
            pieces.append(last)
        if not _is_connector(last):
            in_capitals = in_capitals and _is_upper(character)
            last = to_lower(character) if in_capitals else character
        elif _is_connector(character):
            last = character
        else:
            in_capitals = _is_upper(character)
            last = to_upper(character)
    return "".join([*pieces, last])


class _Word(NamedTuple):
    kind: str
    text: str


_END: Final = _Word("end", "")


def _kind(character: str) -> str:
    if _is_connector(character):
        return "connector"
    category = unicodedata.category(character)
    if category == "Lu":
        return "upper"
    if category[0] == "L":
        return "other" if _is_ideograph(character) else "lower"
    return {"P": "punctuation", "N": "number"}.get(category[0], "other")


def _is_ideograph(character: str) -> bool:
    return (
        "\u3400" <= character <= "\u4d85"
        or "\u4e00" <= character <= "\u9fcc"
        or "\U00020000" <= character <= "\U0002b81d"
    )


def _words(text: str) -> Iterator[_Word]:
    """Yield runs of a kind. A capital starts a word of small letters: ``HTTPServer`` is ``HTTP`` and ``Server``."""
    runs = [_Word(kind, "".join(characters)) for kind, characters in itertools.groupby(text, _kind)]
    capital = ""
    for run, following in itertools.zip_longest(runs, runs[1:], fillvalue=_END):
        if run.kind == "upper" and following.kind == "lower":
            capital = run.text[-1]
            if len(run.text) > 1:
                yield _Word("upper", run.text[:-1])
            continue
        yield _Word("upper", capital + run.text) if capital else run
        capital = ""


class _Speller:
    """Puts a connector between words.

    Numbers stay with the word before them, unless small letters follow: ``Bld4Floor`` is ``bld4_floor``, ``http2xx`` is
    ``http_2xx``.
    """

    def __init__(self, text: str, connector: str) -> None:
        self._connector = connector
        self._words = deque(_words(text))
        self._pieces: list[str] = []
        self._word = self._take()

    def spell(self) -> str:
        while self._words:
            before = self._word
            if before.kind != "connector":
                self._write(before)
            self._word = self._take()
            self._join(before)
        self._write(self._word)
        return "".join(self._pieces)

    def _take(self) -> _Word:
        return self._words.popleft() if self._words else _END

    def _write(self, word: _Word) -> None:
        if word.kind == "connector":
            self._pieces.append(self._connector * len(word.text))
        else:
            self._pieces.append(to_lower(word.text) if word.kind == "upper" else word.text)

    def _join(self, before: _Word) -> None:
        if before.kind == "connector":
            self._write(before)
        elif before.kind == "number":
            self._write_small_letters()
        elif before.kind != "punctuation":
            self._join_to_word()

    def _join_to_word(self) -> None:
        if self._word.kind != "number":
            self._separate()
        elif self._words:
            number, self._word = self._word, self._take()
            if self._word.kind == "lower":
                self._pieces.append(self._connector)
                self._write(number)
                self._write_small_letters()
            else:
                self._write(number)
                self._separate()

    def _write_small_letters(self) -> None:
        while self._word.kind in ("lower", "number"):
            self._write(self._word)
            self._word = self._take()
        self._separate()

    def _separate(self) -> None:
        if self._word.kind not in ("connector", "punctuation", "end"):
            self._pieces.append(self._connector)


def _snake_case(text: str) -> str:
    """``snakecase``: the words in small letters with ``_`` between them."""
    return _Speller(text, "_").spell()


def _kebab_case(text: str) -> str:
    """``kebabcase``: the words in small letters with ``-`` between them."""
    return _Speller(text, "-").spell()


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "camelcase": _pascal_case,
    "kebabcase": _kebab_case,
    "snakecase": _snake_case,
    "swapcase": _swap_case,
    "title": _title,
    "untitle": _untitle,
}
