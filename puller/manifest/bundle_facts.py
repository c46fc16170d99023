"""The facts of a bundle, which override those of the host before its manifest is read.

They are visible to all its manifests, including children. Data of the site and of the host are resolved without them.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foundation.problems import Problem
from puller.errors import ManifestError
from puller.manifest.manifest import MANIFEST

FACTS = "facts.d"
"""The directory of a bundle or of a library, with a file for each fact."""


def bundle_facts(
    host: Mapping[str, Any], root: Path, refused: list[Problem], libraries: Sequence[Path] = ()
) -> Mapping[str, Any]:
    """Return the facts of a host with those of the bundle at ``root`` and of its ``libraries``.

    Problems with fact files are added to ``refused``. Fact files are not read or run here.
    """
    directories = [place / FACTS for place in (root, *libraries)]
    # Checked before the import, because most bundles have no facts.
    if not any(map(os.path.lexists, directories)):
        return host
    from puller.facts import bundled  # few bundles have facts

    facts, problems = bundled.over(host, root, directories)
    refused += problems
    return facts


def need_bundle_facts(host: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    """Return the facts of a host with those of a bundle and its libraries.

    Raise ``ManifestError`` for files that cannot be facts, and the errors of ``used_libraries``.
    """
    problems: list[Problem] = []
    facts = bundle_facts(host, root, problems, _libraries_of(root))
    if problems:
        raise ManifestError(problems)
    return facts


def _libraries_of(root: Path) -> list[Path]:
    if not (root / MANIFEST).exists():
        return []
    from puller.manifest.libraries import files_in  # only commands outside of runs need it

    return [Path(library.root) for library in files_in(root).libraries.values()]
