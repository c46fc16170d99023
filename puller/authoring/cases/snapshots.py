"""Snapshots: everything that a bundle comes to in one case, written down to be compared with.

* They are made to be read in a review: sorted, with contents as text, and nothing that changes by itself: no times, no
  lines of manifests, no paths of the author's machine.
* Of what is hidden there is a mark, and no digest, from which it could be guessed.
"""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from bundles.filesystem.atomic import read_limited
from foundation.masking import HIDDEN, mask_urls
from puller.authoring.cases.case_files import SNAPSHOTS, TESTS
from puller.authoring.cases.expectations import bounded_diff
from puller.authoring.resolution import Resolution, ResolvedContent, ResolvedResource

FORMAT: Final = 1
_SIZE_LIMIT: Final = 64 * 1024 * 1024  # bytes
_HEAD: Final = """\
# Written by `puller test --update`, and compared with what the bundle comes to by `puller test`: not edited by hand.
format: {format}
"""


class _Dumper(yaml.SafeDumper):
    """Text of several lines as it would be written, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def snapshot_path(directory: Path, case: str) -> Path:
    """The snapshot of a case of the bundle in ``directory``."""
    return directory / TESTS / SNAPSHOTS / f"{case}.yaml"


def read_snapshot(path: Path) -> str:
    """The text of a snapshot, however its lines end; raises ``OSError`` and ``ValueError``."""
    data = read_limited(path, _SIZE_LIMIT)
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from error


def stale_snapshots(directory: Path, cases: Iterable[str]) -> list[Path]:
    """The snapshots of a bundle that belong to none of these cases, which have some."""
    wanted = {snapshot_path(directory, case) for case in cases}
    return sorted(set((directory / TESTS / SNAPSHOTS).rglob("*.yaml")) - wanted)


def snapshot_of(resolution: Resolution, directory: Path) -> str:
    """All resources of the bundle in ``directory`` as text, without the path that this has here."""
    resources: dict[str, Any] = {}
    for one in sorted(resolution.resources, key=lambda one: (one.reference, one.where)):
        resources[_free_name(mask_urls(one.reference), resources)] = _resource(one)
    cleaned = _without({"resources": resources}, f"{directory}/")
    text = yaml.dump(cleaned, Dumper=_Dumper, allow_unicode=True, width=110, default_flow_style=False)
    return _HEAD.format(format=FORMAT) + text


def compare(before: str, now: str, name: str) -> str:
    """A unified diff of two snapshots; empty when they are the same."""
    if before == now:
        return ""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), name, "now", lineterm="", n=3)
    return bounded_diff(list(lines)) or "they differ in how lines end"


def is_of_this_format(text: str) -> bool:
    """Whether a snapshot was written in the format of this version."""
    return f"\nformat: {FORMAT}\n" in text[: len(_HEAD) + 20]


def _free_name(reference: str, taken: dict[str, Any]) -> str:
    # A child manifest may be applied several times, each with data of its own.
    names = (reference, *(f"{reference} ({number})" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _resource(one: ResolvedResource) -> dict[str, Any]:
    if one.unmanaged:
        return {"unmanaged": one.unmanaged}
    if one.failure:
        return {"fails": one.failure}
    shown: dict[str, Any] = dict(sorted(one.properties.items()))
    if one.contents:
        shown["contents"] = {path: _content(content) for path, content in sorted(one.contents.items())}
    return shown


def _content(content: ResolvedContent) -> Any:
    if content.is_secret:
        return HIDDEN
    if content.text is not None:
        return content.text
    return {"bytes": content.size, "digest": content.fingerprint.hex()}


def _without(value: Any, path: str) -> Any:
    """A plain value whose texts do not name the directory of the bundle."""
    if isinstance(value, dict):
        return {_without(key, path): _without(item, path) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without(item, path) for item in value]
    return value.replace(path, "") if isinstance(value, str) else value
