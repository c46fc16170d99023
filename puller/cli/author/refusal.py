"""Bundles that cannot work on any host, refused before anything of them is packed, signed or written."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bundles.errors import BundleError
from foundation.problems import Problem
from puller.authoring.lint.check import lint_bundle
from puller.cli.output import warn
from puller.errors import ManifestError, SourceError
from puller.manifest.manifest import Inputs
from puller.manifest.source import MANIFEST, open_source

if TYPE_CHECKING:
    from puller.authoring.lint.check import Linted


def refuse_broken(sources: Iterable[Path]) -> None:
    """Raise ``ManifestError`` with all that lint calls an error in any of these directories and archives.

    Nothing of this machine counts: what facts, data and other bundles of the hosts could mend is no error. References
    that only another bundle can make good are warned of where they look misspelt.
    """
    problems: list[Problem] = []
    undeclared: list[Problem] = []
    for source in sources:
        try:
            for linted in _linted(source):
                problems += linted.errors()
                undeclared += linted.misspelt_references()
        except (ManifestError, SourceError) as error:
            problems += error.problems
    if problems:
        raise ManifestError(problems)
    for problem in undeclared:
        warn(f"{problem}; a host refuses it unless another bundle of the host declares that")


def _linted(source: Path) -> Iterator["Linted"]:
    """Lint's answer for one source; none for what packing or publishing refuses anyway."""
    if not (source / MANIFEST).is_file() and not source.name.endswith(".tar.gz"):
        return  # packing says what it is, and what is missing

    try:
        with open_source(str(source)) as opened:
            yield lint_bundle(opened, Inputs({}, {}), of_any_host=True)
    except BundleError:
        return  # of an archive that is none publishing says what it is
