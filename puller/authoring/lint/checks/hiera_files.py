"""Files of the Hiera tree that no level can reach.

``unused-file``: a data file that no level names, with any interpolated values. Levels without files are valid, because
sites or hosts may add files. This check requires that all data is in files of the bundle.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

from foundation.problems import Location, ProblemCode
from hiera.tree.config.schema import LevelConfig
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.names.bundle import Bundle, bundle_of
from puller.authoring.lint.names.hiera_trees import levels_of
from puller.authoring.lint.subject import Subject

_INTERPOLATION: Final = re.compile(r"%\{[^}]*\}")
_SPECIAL: Final = re.compile(r"[*?\[{\\]|%\{")


def check(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in the tree of the environment and its modules."""
    bundle = bundle_of(subject)
    trees = list(levels_of(bundle.root))
    patterns = [pattern for levels, _ in trees for level in levels for pattern in _patterns(level)]
    for _, files in trees:
        unused = [one for one in files if not any(pattern.fullmatch(one) for pattern in patterns)]
        for one in unused:
            if not _is_named(one, bundle):
                what = "no level of the Hiera tree can lead to this file"
                yield Finding.of(
                    ProblemCode.UNUSED_FILE, Severity.WARNING, Location(bundle.name_of(one)), what
                )


def _is_named(path: str, bundle: Bundle) -> bool:
    """Return whether a manifest contains the name of a file, and may use it otherwise."""
    name = os.path.basename(path)
    return any(name in manifest.yaml.text for manifest in bundle.manifests.values())


def _patterns(level: LevelConfig) -> Iterator[re.Pattern[str]]:
    """Yield patterns of all paths that a level may have."""
    places = level.places[-1:] if level.location == "mapped_paths" else level.places
    if level.location is None:
        yield re.compile(re.escape(os.path.join(level.datadir, "")) + ".*", re.DOTALL)
    for place in places:
        written = os.path.normpath(os.path.join(level.datadir, place))
        if not written.endswith(level.extension):
            written += level.extension
        if level.location in ("glob", "globs"):
            texts = [_SPECIAL.split(written, maxsplit=1)[0], ""]
        else:
            texts = _INTERPOLATION.split(written)
        yield re.compile(".*".join(map(re.escape, texts)), re.DOTALL)
