"""Files that templates and expressions use, Hiera files outside all levels, and files that cannot be packed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Execute

ROOT = Path(__file__).parents[4]
IDS = 'owner: root, group: root, mode: "0644"'
TEMPLATE = f"resources:\n  - file: [{{/etc/app.conf: {{template: NAME, {IDS}}}}}]\n"
CONTENT = f'resources:\n  - file:\n      - /etc/app.conf: {{content: "CONTENT", {IDS}}}\n'
SCAFFOLD = "resources:\n  - scaffold: [{/etc/app: {source: t, engine: ENGINE}}]\n"
JINJA, GO, JET = (TEMPLATE.replace("NAME", f"a.{ending}") for ending in ("j2", "tmpl", "jet"))

Case = tuple[dict[str, str], str]
MISSING: dict[str, Case] = {
    "a file that an expression reads": (
        {"manifest.yaml": CONTENT.replace("CONTENT", "{{ read_file('f/motd') }}"), "f/modt": "x\n"},
        "web/manifest.yaml:3:49: error: f/motd is read, but missing in the bundle (did you mean 'f/modt'?)",
    ),
    "a template that an expression renders": (
        {"manifest.yaml": CONTENT.replace("CONTENT", "{{ template('no.j2') }}")},
        "web/manifest.yaml:3:48: error: no.j2 is rendered, but missing in the bundle [missing-file]",
    ),
    "a file that a condition reads": (
        {"manifest.yaml": "resources:\n  - exec: [{'true': {control: {if: \"file('no') == 'a'\"}}}]\n"},
        "error: no is read, but missing in the bundle [missing-file]",
    ),
    "a file that a template of Jinja2 reads in a branch": (
        {"manifest.yaml": JINJA, "a.j2": "a\n{% if false %}{{ file('no.txt') }}{% endif %}\n"},
        "web/a.j2:2:24: error: no.txt is read, but missing in the bundle [missing-file]",
    ),
    "a file that a template of Go reads": (
        {"manifest.yaml": GO, "a.tmpl": 'a\n{{ readFile "no.txt" }}\n'},
        "web/a.tmpl:2:14: error: no.txt is read, but missing in the bundle [missing-file]",
    ),
    "a file that is piped to a function of Go": (
        {"manifest.yaml": GO, "a.tmpl": '{{ "no.txt" | readFile }}\n'},
        "web/a.tmpl:1:5: error: no.txt is read, but missing in the bundle [missing-file]",
    ),
    "a template of Go that is not defined": (
        {"manifest.yaml": GO, "a.tmpl": '{{ define "head" }}x{{ end }}{{ template "haed" . }}\n'},
        "error: the template 'haed' is not defined in this file (did you mean 'head'?) [unknown-name]",
    ),
    "a file that a template of Jet reads": (
        {"manifest.yaml": JET, "a.jet": 'a\n[[ readFile("no.txt") ]]\n'},
        "web/a.jet:2:14: error: no.txt is read, but missing in the bundle [missing-file]",
    ),
    "an include of Jet, which finds no other templates": (
        {"manifest.yaml": JET, "a.jet": '[[ include "b.jet" ]]\n', "b.jet": "x\n"},
        "web/a.jet:1:13: error: unknown template b.jet. Jet cannot load other templates",
    ),
    "a partial that the scaffold does not have": (
        {"manifest.yaml": SCAFFOLD.replace("ENGINE", "go"), "t/a": 'a\n{{ render "_partials/no" . }}\n'},
        "web/t/a:2:12: error: _partials/no is rendered, but missing in the scaffold [missing-file]",
    ),
    "a file outside of the bundle": (
        {"manifest.yaml": JINJA, "a.j2": "{{ file('../secret') }}\n"},
        "error: ../secret is outside of the bundle [missing-file]",
    ),
}  # fmt: skip

FINE: dict[str, dict[str, str]] = {
    "files that are there": {
        "manifest.yaml": JINJA,
        "a.j2": "{{ file('f/b') }}{{ template('c.j2') }}{{ template('text {{ 1 }}') }}\n",
        "f/b": "x\n",
        "c.j2": "y\n",
    },
    "a path that is known only on hosts": {
        "manifest.yaml": JINJA,
        "a.j2": "{% for name in ['b', 'c'] %}{{ file(name) }}{% endfor %}\n",
        "b": "x\n",
        "c": "x\n",
    },
    "a function of its own": {
        "manifest.yaml": JINJA,
        "a.j2": "{% macro file(name) %}{{ name }}{% endmacro %}{{ file('no.txt') }}\n",
    },
    "a template of Go that is defined": {
        "manifest.yaml": GO,
        "a.tmpl": '{{ define "head" }}x{{ end }}{{ template "head" . }}{{ readFile "b" }}\n',
        "b": "x\n",
    },
    "a file of Jet that may be missing": {
        "manifest.yaml": JET,
        "a.jet": '[[ try ]][[ readFile("no.txt") ]][[ end ]][[ includeIfExists("no.jet") ]]\n',
    },
    "a partial that is there": {
        "manifest.yaml": SCAFFOLD.replace("ENGINE", "jet"),
        "t/a": '[[ render("_partials/b", 1) ]]\n',
        "t/_partials/b": "x\n",
    },
}


def write(files: dict[str, str], root: Path) -> None:
    for name, text in files.items():
        path = root / "web" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", MISSING.values(), ids=MISSING)
def test_constant_paths_must_exist(execute: Execute, root: Path, case: Case) -> None:
    files, words = case
    write(files, root)
    status, output = execute("lint", "web")
    assert (status, words in output) == (1, True), output


@pytest.mark.parametrize("files", FINE.values(), ids=FINE)
def test_existing_and_possible_paths_are_no_finding(
    execute: Execute, root: Path, files: dict[str, str]
) -> None:
    write(files, root)
    status, output = execute("lint", "web", "--strict")
    assert (status, output.count("\n")) == (0, 1), output


# -- Hiera ----------------------------------------------------------------------------------------

LEVELS = """\
version: 5
defaults: {data_hash: yaml_data, datadir: data}
hierarchy:
  - {name: hosts, path: "nodes/%{facts.networking.fqdn}.yaml"}
  - {name: roles, mapped_paths: [roles, role, "roles/%{role}.yaml"]}
  - {name: parts, glob: "parts/*.yaml"}
  - {name: later, path: private.yaml}
  - {name: common, paths: [os.yaml, common.yaml]}
"""


def test_a_file_of_hiera_that_no_level_can_lead_to_is_a_warning(execute: Execute, root: Path) -> None:
    names = ("nodes/web01.yaml", "roles/db.yaml", "parts/a.yaml", "common.yaml", "comon.yaml", "node/x.yaml")
    data = {f"data/{name}": "a: 1\n" for name in names}
    write({"manifest.yaml": CONTENT.replace("CONTENT", "{{ data.a }}"), "hiera.yaml": LEVELS, **data}, root)
    status, output = execute("lint", "web")
    detail = "warning: no level of the Hiera tree refers to this file [unused-file]"
    results = [line for line in output.splitlines() if "unused-file" in line]
    assert (status, results) == (0, [f"web/data/comon.yaml: {detail}", f"web/data/node/x.yaml: {detail}"])


# -- files that cannot be packed ------------------------------------------------------------------


def test_unpackable_files_are_errors(execute: Execute, root: Path) -> None:
    manifest = TEMPLATE.replace("template: NAME", "source: a")
    write({"manifest.yaml": manifest, "b": "x\n", ".git/config": "x\n"}, root)
    (root / "web/a").symlink_to("b")
    (root / "web/facts.d").mkdir()
    os.mkfifo(root / "web/facts.d/role.yaml")
    (root / "web/.git/link").symlink_to("nowhere")
    os.mkfifo(root / "web/pipe")
    status, output = execute("lint", "web")
    expected = "expected a regular file or a directory [unpackable-file]"
    assert status == 1
    assert f"web/a: error: is a symbolic link, {expected}" in output
    assert f"web/pipe: error: is a FIFO, {expected}" in output
    assert ".git" not in output


# -- the examples ---------------------------------------------------------------------------------

MACHINES = {
    "examples/site/bundles/shop": [
        "--with",
        "examples/site/bundles/base",
        "--facts",
        "examples/site/facts/web01.yaml",
    ]
}
"""Options for examples that need more than a plain Debian machine."""
EXAMPLES = sorted(
    str(path.parent.relative_to(ROOT))
    for path in (*ROOT.glob("examples/**/manifest.yaml"), ROOT / "puller/cli/author/example/manifest.yaml")
)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_have_neither_errors_nor_warnings(
    execute: Execute, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    status, output = execute("lint", example, "--strict", "--os", "debian-12", *MACHINES.get(example, ()))
    assert status == 0, output
