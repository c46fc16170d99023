"""References to several resources: patterns and labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from puller.errors import ManifestError
from puller.manifest.graph.host_catalog import HostCatalog
from puller.manifest.manifest import Manifest

if TYPE_CHECKING:
    from tests.support.stories import Execute

Load = Callable[..., Manifest]
NGINX = """
data: {maps: {a: 1, b: 2}}
resources:
  - file:
      - defaults: {owner: root, group: root, mode: "0644", label: sites}
      - /etc/nginx/one.conf: {content: one}
      - /etc/nginx/two.conf: {content: two}
      - /etc/other.conf: {content: x, label: other}
  - line:
      - for: name, value in data.maps
        label: maps
        "maps-{{ name }}": {path: /etc/maps, line: "{{ name }} {{ value }}"}
  - exec:
      - reload: {command: "true", refreshonly: true, PROPERTY: [REFERENCE]}
"""
SITES = ["file#/etc/nginx/one.conf", "file#/etc/nginx/two.conf"]
MAPS = ["line#maps-a", "line#maps-b"]


def linked(manifest: Manifest) -> dict[str, list[str]]:
    """Return the targets of the last resource's links."""
    index, links = len(manifest.declarations) - 1, manifest.links
    names = [str(declaration.reference) for declaration in manifest.declarations]
    return {
        "require": [names[other] for _, other in links.requirements.get(index, [])],
        "subscribe": [names[other] for other in links.subscriptions.get(index, [])],
        "after": [names[other] for other in links.first.get(index, [])],
    }


@pytest.mark.parametrize("name", ["require", "subscribe", "after"])
@pytest.mark.parametrize(
    ("reference", "means"),
    [
        ("file#/etc/nginx/*", SITES),
        ("file#/etc/nginx/*.conf", SITES),
        ("line#maps-*", MAPS),
        ("label#maps", MAPS),
        ("label#sites", SITES),
        ("label#other", ["file#/etc/other.conf"]),
    ],
)
def test_a_reference_may_mean_several_resources(
    load: Load, name: str, reference: str, means: list[str]
) -> None:
    manifest = load(NGINX.replace("PROPERTY", name).replace("REFERENCE", f'"{reference}"'))
    assert linked(manifest)[name] == means


@pytest.mark.parametrize("reference", ["file#/etc/nginy/*", "label#map", "fil#*", "line#map-*"])
def test_a_reference_to_no_resource_is_an_error(load: Load, reference: str) -> None:
    with pytest.raises(ManifestError, match="require names"):
        load(NGINX.replace("PROPERTY", "require").replace("REFERENCE", f'"{reference}"'))


@pytest.mark.parametrize("reference", ["label#maps", "line#maps-*", "line#*"])
def test_an_empty_loop_means_nothing(load: Load, reference: str) -> None:
    text = NGINX.replace("PROPERTY", "subscribe").replace("REFERENCE", f'"{reference}"')
    assert linked(load(text.replace("{a: 1, b: 2}", "{}")))["subscribe"] == []


def test_a_loop_that_fails_is_meant_too(load: Load) -> None:
    text = NGINX.replace("PROPERTY", "require").replace("REFERENCE", "'line#maps-*', label#maps")
    manifest = load(text.replace("data.maps", "facts.maps"))
    assert linked(manifest)["require"] == ["line#maps-{{ name }}"]


def test_a_pattern_does_not_mean_the_resource_itself(load: Load) -> None:
    manifest = load("resources: [{exec: [one, {two: {require: ['exec#*']}}]}]")
    assert linked(manifest)["require"] == ["exec#one"]


def test_a_name_with_a_star_comes_first(load: Load) -> None:
    manifest = load("resources: [{exec: ['ls *', 'ls a', {two: {require: ['exec#ls *']}}]}]")
    assert linked(manifest)["require"] == ["exec#ls *"]


def test_a_pattern_means_resources_of_bundles_before(load: Load) -> None:
    first = load("resources: [{exec: [one, other]}]")
    catalog = HostCatalog.of([first])
    second = load("resources: [{exec: [{last: {subscribe: ['exec#o*']}}]}]", known=catalog.references())
    joined = catalog.joined(second)
    assert joined.links.subscriptions[2] == [0, 1]


def test_only_takes_labels(load: Load, tmp_path: Path, execute: Execute) -> None:
    mine = "  - exec:\n      - defaults: {label: mine}\n      - 'true'\n      - 'test 1'\n"
    text = f"resources:\n{mine}  - exec: ['false']\n"
    (tmp_path / "manifest.yaml").write_text(text)
    status, output = execute("apply", str(tmp_path), "--only", "label#mine")
    assert (status, "false" in output) == (0, False), output


@pytest.mark.parametrize("label", ["a#b", "'*'", "'{{ facts.x }}'", "[a]", "''"])
def test_a_label_is_plain_text(load: Load, label: str) -> None:
    with pytest.raises(ManifestError, match="label is"):
        load(f"resources: [{{exec: [{{one: {{label: {label}}}}}]}}]")
