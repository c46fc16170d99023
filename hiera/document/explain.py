"""How the data of a single document came to be: what was looked at, what matched, what each key was made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Entry:
    """One entry of ``hierarchy.order``, and what became of it."""

    __slots__ = ("merged", "name", "reason", "text")  # as in ``layers``

    def __init__(self, text: str, name: str | None, reason: str, *, merged: bool) -> None:
        """``text`` is as the author wrote it, ``name`` with its expressions resolved.

        The name is None when all of them came out missing or empty; ``reason`` is a sentence.
        """
        self.text = text
        self.name = name
        self.reason = reason
        self.merged = merged

    def sentence(self) -> str:
        """``host:{{ facts.hostname }} → host:web01: merged over the base``."""
        shown = self.text if self.name in (None, self.text) else f"{self.text} → {self.name}"
        return f"{shown}: {self.reason}"


class Explanation:
    """The steps of resolving one document."""

    __slots__ = ("entries", "keys", "merge", "source")

    def __init__(
        self, source: str, merge: str, entries: tuple[Entry, ...], keys: Mapping[str, tuple[str, ...]]
    ) -> None:
        """``merge`` is ``first`` (the first entry with a section replaces keys of the base) or ``deep`` (later win).

        ``keys``: top-level key → the sections its value was made of, lowest first; the last one won.
        """
        self.source = source
        self.merge = merge
        self.entries = entries
        self.keys = keys

    def lines(self) -> Iterator[str]:
        """For people."""
        order = "the first that has a section wins" if self.merge == "first" else "later wins"
        yield f"{self.source}: merge is {self.merge}: {order}"
        yield from (f"  {entry.sentence()}" for entry in self.entries)
        yield from (f"  {key}: {' + '.join(sections)}" for key, sections in self.keys.items())

    def as_data(self) -> dict[str, Any]:
        """For programs."""
        entries = [
            {"text": entry.text, "name": entry.name, "merged": entry.merged, "reason": entry.reason}
            for entry in self.entries
        ]
        keys = {key: list(sections) for key, sections in self.keys.items()}
        return {"source": self.source, "merge": self.merge, "entries": entries, "keys": keys}
