"""All problems of a manifest at once, each with file, line, resource and property.

Places are paths of keys; lines are found only when there is something to say, by reading the text again.
"""

from collections.abc import Callable, Sequence

import msgspec

from bundles.masking import mask_urls
from hiera.text import yaml_text
from puller.errors import ManifestError
from puller.values.suggestions import Path


class Problems(msgspec.Struct):
    """Collects the problems of one text. ``source`` is what messages call it."""

    source: str
    locate: Callable[[Sequence[str | int]], tuple[int, int]]
    """Line and column of the value at a path."""
    original: Callable[[Sequence[str | int]], str | None]
    """The scalar at a path as it was written."""
    text: str = ""
    mask: Callable[[str], str] = mask_urls
    """Takes out of a sentence what must not be shown."""
    is_rendered: bool = False
    """Whether a template has made the text."""
    columns: dict[str, int] = {}
    """The column of the value that a sentence is about, by the sentence, which has the line alone."""
    _found: list[tuple[int, str]] = []

    @classmethod
    def of_text(cls, source: str, text: str) -> "Problems":
        """For a YAML text."""
        return cls(
            source,
            lambda path: yaml_text.locate(text, path),
            lambda path: yaml_text.original(text, path),
            text,
        )

    def add(self, path: Path, sentence: str, subject: str = "") -> None:
        """Note a problem with the value at ``path``; ``subject`` names the resource that it belongs to."""
        self._found.append((self.locate(path)[0], self.worded(path, sentence, subject)))

    def worded(self, path: Path, sentence: str, subject: str = "") -> str:
        """A problem with the value at ``path`` in full, without what must not be shown."""
        said = self.mask(f"{subject}: {sentence}" if subject else sentence)
        line, column = self.locate(path)
        worded = f"{self.source}:{line}: {said}"
        self.columns[worded] = column
        return worded

    def where(self, path: Path) -> str:
        """``file:line`` of a path."""
        return f"{self.source}:{self.locate(path)[0]}"

    def line(self, number: int) -> str:
        """One line of the text, from 1; empty where there is none."""
        lines = self.text.splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def sentences(self) -> list[str]:
        """Everything found, in the order of lines; what holds for all items of a loop once."""
        return list(
            dict.fromkeys(sentence for _, sentence in sorted(self._found, key=lambda found: found[0]))
        )

    def raise_any(self) -> None:
        """Raise ``ManifestError`` when anything was found."""
        if self._found:
            raise ManifestError(self.sentences())
