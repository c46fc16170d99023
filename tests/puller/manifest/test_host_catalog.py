"""The manifests of several bundles as one catalog: their order only decides which bundle owns a shared resource."""

from __future__ import annotations

import json
from collections import Counter
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from puller.errors import ManifestError
from puller.manifest.graph.host_catalog import HostCatalog
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest

PATHS = ["/srv/a", "/srv/b", "/srv/c"]
ORDERED = ("require", "after", "subscribe", "health_checks")
"""Lists that are concatenated in the order of the bundles."""


def declarations(contents: list[str]) -> st.SearchStrategy[dict[str, dict[str, Any]]]:
    """Return a strategy for the files of a manifest by path. Content is optional."""
    first = st.fixed_dictionaries(
        {"owner": st.just("root"), "group": st.just("root"), "mode": st.sampled_from(["0644", "x44"])},
        optional={
            "content": st.sampled_from(contents),
            "health_checks": st.lists(st.sampled_from([{"command": "one"}, {"command": "two"}]), max_size=2),
            "sensitive": st.booleans(),
            "removed": st.sampled_from(["keep", "absent"]),
        },
    )
    return st.dictionaries(st.sampled_from(PATHS), first, min_size=1)


def read(directory: Path, files: dict[str, dict[str, Any]], chain: bool) -> Manifest:
    """Return a manifest. In a ``chain``, each file requires its predecessor in ``PATHS``."""
    entries, before = [], ""
    for path in sorted(files):
        require = {"require": [f"file#{before}"]} if chain and before else {}
        entries.append({path: {**files[path], **require}})
        before = path
    directory.mkdir()
    (directory / "manifest.yaml").write_text(json.dumps({"resources": [{"file": entries}]}))
    return load_manifest(directory / "manifest.yaml", f"{directory.name}/manifest.yaml", Inputs({}, {}))


def joined(manifests: tuple[Manifest, ...]) -> HostCatalog | None:
    try:
        return HostCatalog.of(manifests)
    except ManifestError:
        return None


def said(catalog: HostCatalog | None) -> dict[str, Any] | None:
    """Return the properties and requirements of all resources, independent of order."""
    if catalog is None:
        return None
    result = {}
    for index, declaration in enumerate(catalog.declarations):
        properties = msgspec.to_builtins(declaration.properties, enc_hook=str)
        for name in ORDERED:
            properties[name] = Counter(map(json.dumps, properties.get(name, ())))
        required = sorted({str(name) for name, _ in catalog.requirements(index)})
        result[str(declaration.reference)] = {**properties, "required": required}
    return result


def is_in_order(catalog: HostCatalog) -> bool:
    """Return whether each resource occurs once, after all its requirements."""
    place = {index: number for number, index in enumerate(catalog.order)}
    everything = range(len(catalog.declarations))
    return sorted(catalog.order) == [*everything] and all(
        place[other] < place[index] for index in everything for _, other in catalog.requirements(index)
    )


@given(
    st.one_of(
        st.lists(st.tuples(declarations(["one"]), st.booleans()), min_size=2, max_size=3),
        st.lists(st.tuples(declarations(["one", "two"]), st.booleans()), min_size=2, max_size=3),
    )
)
def test_bundle_order_does_not_change_the_catalog(
    bundles: list[tuple[dict[str, dict[str, Any]], bool]],
) -> None:
    with TemporaryDirectory() as scratch:
        manifests = [
            read(Path(scratch, f"bundle-{number}"), files, chain)
            for number, (files, chain) in enumerate(bundles)
        ]
        first, *others = (joined(order) for order in permutations(manifests))
        for catalog in others:
            assert said(catalog) == said(first)
            assert catalog is None or is_in_order(catalog)
