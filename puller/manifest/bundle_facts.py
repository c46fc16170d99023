"""The facts that come with a bundle, put over those of the host before anything of its manifest is read.

They are for all its manifests, children included, and for nothing else: data of the site and of the host has been
resolved without them.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foundation.problems import Problem
from puller.errors import ManifestError
from puller.manifest.manifest import MANIFEST

FACTS = "facts.d"
"""The directory of a bundle, or of a library, with a file for each fact."""


def bundle_facts(
    host: Mapping[str, Any], root: Path, refused: list[Problem], libraries: Sequence[Path] = ()
) -> Mapping[str, Any]:
    """The facts of a host as the bundle at ``root`` sees them, which has the directories ``libraries``, too.

    What is wrong with the files of its facts is added to ``refused``; none of them is read or run here.
    """
    directories = [place / FACTS for place in (root, *libraries)]
    # Asked before what reads them is imported: most bundles have none.
    if not any(map(os.path.lexists, directories)):
        return host
    from puller.facts import bundled

    facts, problems = bundled.over(host, root, directories)
    refused += problems
    return facts


def need_bundle_facts(host: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    """The facts of a host as a bundle and its libraries see them.

    Raises ``ManifestError`` for files that cannot be facts, and as ``used_libraries`` does.
    """
    problems: list[Problem] = []
    facts = bundle_facts(host, root, problems, _libraries_of(root))
    if problems:
        raise ManifestError(problems)
    return facts


def _libraries_of(root: Path) -> list[Path]:
    if not (root / MANIFEST).exists():
        return []
    from puller.manifest.libraries import files_in  # for commands about what no run applies

    return [Path(library.root) for library in files_in(root).libraries.values()]
