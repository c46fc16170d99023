"""Contradictory edits are rejected when the manifest is loaded. The error names both places."""

from collections.abc import Callable
from typing import Any

import pytest

from puller.errors import ManifestError

Load = Callable[..., Any]

FILE = "owner: root, group: root, mode: '0644'"
INI = "path: /f, format: ini, section: s, key: k"
YAML = "path: /f, format: yaml"

ONE_MARK = "defaults: {path: /f, marker: '# {mark} m'}"

REFUSED: list[tuple[str, list[str]]] = [
    (
        "line#b: requires another mode of /f than another resource: line#a",
        [
            "line: [{defaults: {path: /f, create: true}}, {a: {line: x, mode: '0600'}}, {b: {line: y, mode: '0644'}}]"
        ],
    ),
    (
        "setting#b: requires another owner of /f than another resource: file#/f",
        [
            f"file: [{{/f: {{ensure: exists, {FILE}}}}}]",
            f"setting: [{{b: {{{INI}, value: '1', create: true, owner: daemon}}}}]",
        ],
    ),
    (
        "line#b: takes away a line that is to be present: line#a",
        ["line: [{a: {path: /f, line: x}}, {b: {path: /f, line: x, ensure: absent}}]"],
    ),
    (
        "line#a: takes away a line that is to be present: line#b",
        ["line: [{a: {path: /f, match: '^x', ensure: absent}}, {b: {path: /f, line: xy}}]"],
    ),
    (
        "line#b: sets another line for the same match: line#a",
        ["line: [{a: {path: /f, line: x, match: m}}, {b: {path: /f, line: y, match: m}}]"],
    ),
    (
        "block#b: has the marker '# BEGIN m', too: block#a",
        [f"block: [{{{ONE_MARK}}}, {{a: {{content: x}}}}, {{b: {{content: x}}}}]"],
    ),
    (
        "block#b: has the marker '# BEGIN m', too: block#a",
        [f"block: [{{{ONE_MARK}}}, {{a: {{content: x}}}}, {{b: {{ensure: absent}}}}]"],
    ),
    (
        "setting#b: sets another value of the same setting: setting#a",
        [f"setting: [{{a: {{{INI}, value: '1'}}}}, {{b: {{{INI}, value: '2'}}}}]"],
    ),
    (
        "setting#b: sets the same setting absent: setting#a",
        [f"setting: [{{a: {{{INI}, value: '1'}}}}, {{b: {{{INI}, ensure: absent}}}}]"],
    ),
    (
        "setting#b: sets another value of the same setting: setting#a",
        [f"setting: [{{a: {{{YAML}, key: x.y, value: 1}}}}, {{b: {{{YAML}, key: [x, y], value: '1'}}}}]"],
    ),
    (
        "line#a: edits the file at /f, but another resource writes the whole file: file#/f",
        [f"file: [{{/f: {{content: x, {FILE}}}}}]", "line: [{a: {path: /f, line: x}}]"],
    ),
    (
        "block#/f: edits the file at /f, but another resource writes the whole file: file#/f",
        [f"file: [{{/f: {{source: /g, {FILE}}}}}]", "block: [{/f: {content: x}}]"],
    ),
    (
        "setting#a: edits the file at /f, but another resource writes the whole file: file#/f",
        [f"file: [{{/f: {{template: /g, {FILE}}}}}]", f"setting: [{{a: {{{INI}, value: '1'}}}}]"],
    ),
    (
        "line#a: edits the file at /f, but another resource writes the whole file: file#/f",
        [
            "file: [{/f: {content: x, owner: root, group: root, mode: x00}}]",
            "line: [{a: {path: /f, line: x}}]",
        ],
    ),
    (
        "line#a: edits the file at /f, but another resource requires that nothing exists: file#/f",
        ["file: [{/f: {ensure: absent}}]", "line: [{a: {path: /f, line: x}}]"],
    ),
    (
        "file#/f: writes the whole file at /f, but another resource requires a link: link#/f",
        ["link: [{/f: {target: /g, force: true}}]", f"file: [{{/f: {{content: x, {FILE}}}}}]"],
    ),
    (
        "file#/f: requires that nothing exists at /f, but another resource requires a link: link#/f",
        ["link: [{/f: {target: /g}}]", "file: [{/f: {ensure: absent}}]"],
    ),
    (
        "file#/f: writes the whole file at /f, but another resource requires that nothing exists: link#/f",
        ["link: [{/f: {ensure: absent}}]", f"file: [{{/f: {{content: x, {FILE}}}}}]"],
    ),
    (
        "scaffold#/f: keeps files of its own at /f, but another resource requires a link: link#/f",
        ["link: [{/f: {target: /g}}]", "scaffold: [{/f: {source: /t}}]"],
    ),
    (
        "checkout#/f: keeps files of its own at /f, but another resource requires a link: link#/f",
        ["link: [{/f: {target: /g}}]", "checkout: [{/f: {url: /srv/repository}}]"],
    ),
    (
        "line#a: edits the file at /f, but another resource requires a directory: file#/f",
        [f"file: [{{/f: {{ensure: directory, {FILE}}}}}]", "line: [{a: {path: /f, line: x}}]"],
    ),
]


def text(*entries: str) -> str:
    return "resources:\n" + "".join(f"  - {entry}\n" for entry in entries)


@pytest.mark.parametrize(("said", "entries"), REFUSED)
def test_contradictions_are_refused_with_both_lines(load: Load, said: str, entries: list[str]) -> None:
    with pytest.raises(ManifestError) as raised:
        load(text(*entries))
    (problem,) = map(str, raised.value.problems)
    assert f"{said} at web/manifest.yaml:" in problem


@pytest.mark.parametrize(
    ("properties", "problem"),
    {
        "owner: root": "line#a: owner is only for a file that is created",
        "create: true, mode: '4755'": "line#a: mode is '4755', expected a mode without set-id bits",
    }.items(),
)
def test_attributes_require_a_created_file(load: Load, properties: str, problem: str) -> None:
    with pytest.raises(ManifestError, match=problem):
        load(text(f"line: [{{a: {{path: /f, line: x, {properties}}}}}]"))


UNDER = "control: {if: 'true'}", "control: {unless: 'true'}"

FINE = [
    ["line: [{a: {path: /f, line: x}}, {b: {path: /g, line: x, ensure: absent}}]"],
    ["line: [{a: {path: /f, line: x}}, {b: {path: /f, line: x}}]"],
    ["line: [{a: {path: /f, line: x, match: m}}, {b: {path: /f, line: x, match: m}}]"],
    ["line: [{a: {path: /f, line: y, ensure: absent}}, {b: {path: /f, match: z, ensure: absent}}]"],
    [
        f"line: [{{a: {{path: /f, line: x, {UNDER[0]}}}}}]",
        f"line: [{{b: {{path: /f, line: x, ensure: absent, {UNDER[1]}}}}}]",
    ],
    ["block: [{a: {path: /f, content: x}}, {b: {path: /f, content: x}}]"],
    ["block: [{defaults: {path: /f, marker: '# {mark} m', ensure: absent}}, {a: {}}, {b: {}}]"],
    [f"setting: [{{a: {{{INI}, value: '1'}}}}, {{b: {{{INI}, value: '1'}}}}]"],
    [f"setting: [{{a: {{{INI}, value: '1'}}}}, {{b: {{path: /f, format: ini, key: k, value: '2'}}}}]"],
    [f"file: [{{/f: {{ensure: exists, content: x, {FILE}}}}}]", "line: [{a: {path: /f, line: x}}]"],
    [f"file: [{{/f: {{{FILE}}}}}]", "line: [{a: {path: /f, line: x}}]"],
    ["file: [{/f: {ensure: absent}}]", "line: [{a: {path: /f, line: x, ensure: absent}}]"],
    ["scaffold: [{/d: {source: /t, purge: true}}]", "line: [{a: {path: /d/sub/f, line: x}}]"],
    ["scaffold: [{/d: {source: /t, purge: true}}]", f"file: [{{/d/f: {{content: x, {FILE}}}}}]"],
    ["link: [{/d/sub/l: {target: /f}}]", "scaffold: [{/d: {source: /t, purge: true}}]"],
    ["scaffold: [{/d: {source: /t}}]", "line: [{a: {path: /d/f, line: x}}]"],
    ["scaffold: [{/d: {source: /t, purge: true}}]", "line: [{a: {path: /dd/f, line: x}}]"],
    ["scaffold: [{/d: {source: /t, purge: true}}]", "link: [{/dd: {target: x}}]"],
    ["scaffold: [{/d: {source: /t, purge: true}}]", "file: [{/d/f: {ensure: absent}}]"],
    ["scaffold: [{/d: {source: /t}}]", "link: [{/d/l: {target: x}}]"],
    ["link: [{/f: {ensure: absent}}]", "file: [{/f: {ensure: absent}}]"],
]


@pytest.mark.parametrize("entries", FINE)
def test_compatible_edits_are_accepted(load: Load, entries: list[str]) -> None:
    load(text(*entries))


def test_equal_edits_are_merged(load: Load) -> None:
    manifest = load(text("line: [{/f: {line: x}}]", "line: [{/f: {line: x, path: /f, create: true}}]"))
    (declaration,) = manifest.declarations
    assert (declaration.properties.file, declaration.properties.create) == ("/f", True)
    for other in ("path: /f, line: y", "path: /g, line: x", "path: /f, line: x, ensure: absent"):
        with pytest.raises(ManifestError, match="line#a"):
            load(text("line: [{a: {path: /f, line: x}}]", f"line: [{{a: {{{other}}}}}]"))


def test_invalid_pattern_beside_attributes_is_one_problem(load: Load) -> None:
    entries = ["line: [{a: {path: /f, line: x, match: '('}}]", "file: [{/f: {create: false, mode: '0644'}}]"]
    with pytest.raises(ManifestError) as raised:
        load(text(*entries))
    (problem,) = map(str, raised.value.problems)
    assert "line#a: match is '(', which is not a pattern" in problem
