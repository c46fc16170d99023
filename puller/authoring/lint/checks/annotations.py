"""Comments at the keys of data that look like annotations, and are not heeded.

* One that is nearly ``@sensitive``, ``@require`` or ``@validate`` is an error: what it was to protect is shown, what it
  was to check goes unchecked.
* Any other ``@word`` may be meant for another program.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

import msgspec
import yaml

from hiera.document.annotations import find_annotations
from hiera.errors import HieraError
from puller.authoring.lint.findings import Finding
from puller.authoring.lint.sentences import finding
from puller.authoring.lint.subject import Subject

_WORDS: Final = ("require", "required", "sensitive", "validate")
_WORD: Final = re.compile(r"@\w+")
_UNKNOWN: Final = re.compile(r"unknown annotation @(\w+), wanted ")


def check(subject: Subject) -> Iterator[Finding]:
    """The findings of all texts that authors have written."""
    for sentence in sentences(subject):
        misspelt = _UNKNOWN.search(sentence)
        near = get_close_matches(misspelt[1].lower(), _WORDS, 1) if misspelt else ()
        if misspelt and near:
            told = f"{sentence[: misspelt.start()]}unknown annotation @{misspelt[1]} (did you mean '@{near[0]}'?)"
            yield _in_column(finding("misspelt-annotation", told, subject), subject)
        else:
            yield _in_column(finding("annotation", sentence, subject), subject)


def _in_column(found: Finding, subject: Subject) -> Finding:
    """A finding at the word that its sentence names, where that stands in the line."""
    word = _WORD.search(found.message)
    lines = (text.line(found.place.line) for text in subject.texts if text.source == found.place.file)
    column = next((line.find(word[0]) + 1 for line in lines if word), 0)
    return msgspec.structs.replace(found, place=msgspec.structs.replace(found.place, column=column))


def sentences(subject: Subject) -> Iterator[str]:
    """The sentences about annotations that are not heeded, each with its place."""
    for text in subject.texts:
        if not text.is_rendered:
            try:
                yield from find_annotations(text.text, text.source).warnings
            except (HieraError, yaml.YAMLError):
                continue  # it is no YAML, which is found already
