"""The explanations of all problem codes: for ``puller help CODE`` and ``docs/problems.md``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from foundation.problems import ProblemCode

_FILE = Path(__file__).with_name("problem_pages.yaml")
_PAGE = "problems.html"
EXPLANATIONS = "Explanations: puller help CODE"
"""The line for people below problems that show their codes."""
HEAD = """\
# Problem codes

Lint and JSON documents give the code of each problem. `puller help CODE` prints its entry.

This page is generated from `foundation/problem_pages.yaml` by `python -m foundation.problem_pages`.
"""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The explanation of one code."""

    meaning: str
    causes: str
    fix: str
    manifest: str = ""
    """A manifest in which lint finds the problem."""
    files: dict[str, str] = {}
    """Further files of the example, by path."""
    commands: str = ""
    """Commands, one a line. The last one fails with the problem."""
    error: str = ""
    """The class of errors that has the code by default."""

    def text(self) -> str:
        """Return the entry for a terminal."""
        example = "".join(f"\n\n{title}\n\n{_indented(text)}" for title, text, _ in self._parts())
        return f"{self.meaning}\n\nCauses: {self.causes}\nFix: {self.fix}{example}"

    def markdown(self, code: str) -> str:
        """Return the entry for ``docs/problems.md``."""
        example = "".join(
            f"\n{title}\n\n```{language}\n{text.rstrip()}\n```\n" for title, text, language in self._parts()
        )
        return f"## {code}\n\n{self.meaning}\n\n* Causes: {self.causes}\n* Fix: {self.fix}\n{example}"

    def _parts(self) -> Iterator[tuple[str, str, str]]:
        """Yield the title, the text and the language of each part of the example."""
        if self.manifest:
            yield "Example of a `manifest.yaml`:", self.manifest, "yaml"
        for path, text in self.files.items():
            yield f"with `{path}`:" if self.manifest else f"Example with `{path}`:", text, ""
        if self.commands:
            yield "Command:" if self.files else "Example:", self.commands, "console"


def address_of(code: ProblemCode, base: str = "") -> str:
    """Return the address of the explanation of a code: an anchor of the page ``problems.html``.

    The same page is part of the documents and of the pages of a fleet, so an address without ``base`` is relative to
    these. ``base`` is the address of a site with the documents, such as ``https://docs.example.com/puller/``.
    """
    return f"{base.rstrip('/')}/{_PAGE}#{code}" if base else f"{_PAGE}#{code}"


def load_entries() -> dict[ProblemCode, Entry]:
    """Return the entries of all codes, in the order of the file."""
    return msgspec.yaml.decode(_FILE.read_bytes(), type=dict[ProblemCode, Entry])


def page() -> str:
    """Return the text of ``docs/problems.md``."""
    return "\n".join([HEAD, *(entry.markdown(code) for code, entry in load_entries().items())])


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


if __name__ == "__main__":
    print(page(), end="")
