"""Libraries: the author's tree and the packed bundle behave alike, complete and without unrelated files."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bundles.archive.pack import build_bundle
from bundles.archive.unpack import unpack
from puller.data.sources import DataSource, Origin
from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.explanation import explain_key
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError, SourceError
from puller.manifest.libraries import bundle_files, files_in, unused_libraries, used_libraries
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.manifest.manifest_reader import ManifestText
from puller.system.processes import StopRequests
from puller.templates.rendering import render_file

IDS = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"
FILE = "resources: [{file: {name: '%s', IDS, %s}}]"
EMPTY = "resources: []"

REPOSITORY = {
    "bundles/web/manifest.yaml": """
libraries: {common: ../../libraries/common}
data: {name: shop}
resources:
  - apply: [{'common:roles/vhost.yaml': }, {roles/web.yaml: }]
""",
    "bundles/web/roles/web.yaml": FILE
    % ("DIR/web", "template: web.j2, require: ['apply#common:roles/vhost.yaml']"),
    "bundles/web/roles/web.j2": (
        "{% from 'common:templates/macros.j2' import port with context %}"
        "{% include 'common:templates/head.j2' %} {{ port() }} {{ read_file('../files/own') }}"
    ),
    "bundles/web/files/own": "own",
    "libraries/common/library.yaml": "libraries: {base: ../base}",
    "libraries/common/data.yaml": "data: {port: 80, name: default}",
    "libraries/common/roles/vhost.yaml": """
resources:
  - file:
      - defaults: {IDS}
      - "DIR/{{ data.name }}.conf": {template: ../templates/vhost.j2}
      - DIR/motd: {source: ../files/own}
  - apply: {name: 'base:base.yaml'}
""",
    "libraries/common/templates/vhost.j2": "{% import 'templates/macros.j2' as m with context %}{{ m.port() }}",
    "libraries/common/templates/macros.j2": "{% macro port() %}{{ data.port }} {{ file('files/own') }}{% endmacro %}",
    "libraries/common/templates/head.j2": "{{ template('base:head.tmpl') }}",
    "libraries/common/files/own": "of common",
    "libraries/base/library.yaml": "",
    "libraries/base/head.tmpl": "head {{ readFile `own` }}",
    "libraries/base/own": "of base",
    "libraries/base/base.yaml": FILE % ("DIR/base", "content: \"{{ read_file('own') }} {{ data.name }}\""),
}
WRITTEN = {
    "shop.conf": "80 of common",
    "motd": "of common",
    "web": "head of base 80 of common own",
    "base": "of base shop",
}

Lay = Callable[..., Path]


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """Return a function that writes a repository with changes (``None`` deletes a file) and returns the bundle."""

    def build(changes: Mapping[str, str | None] | None = None) -> Path:
        for name, text in {**REPOSITORY, **(changes or {})}.items():
            if text is not None:
                put(tmp_path / name, text.replace("DIR", str(tmp_path)).replace("IDS", IDS))
        return tmp_path / "bundles/web"

    return build


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def load(directory: Path, **sources: Any) -> Manifest:
    outside = (DataSource(Origin.HOST, "data.yaml", sources),) if sources else ()
    return load_manifest(directory / "manifest.yaml", "web/manifest.yaml", Inputs({}, {}, outside))


def packed(directory: Path, to: Path) -> Path:
    """Return the bundle as unpacked on a host."""
    archive = to / "web.tar.gz"
    build_bundle(directory, archive, name="web", version="1", libraries=used_libraries(directory))
    unpack(archive, to / "unpacked")
    return to / "unpacked"


def refusal(directory: Path) -> str:
    with pytest.raises(ManifestError) as caught:
        load(directory)
    return str(caught.value).replace(str(directory.parents[1]), "REPO")


def apply(manifest: Manifest, tmp_path: Path) -> list[str]:
    """Return the failures of a run."""

    def fetch(url: str) -> bytes:
        raise AssertionError(url)

    run = Settings(state_directory=tmp_path / "state")
    owed = tmp_path / "owed.json"
    applied = apply_catalog(
        manifest,
        run,
        StopRequests(),
        PendingRefreshes(owed, "web", noop=run.noop),
        state_directory=owed.parent,
        fetch=fetch,
    )
    return [error for event in applied.events for error in event.errors]


# -- resources of a library -------------------------------------------------------------------------


@pytest.mark.parametrize("is_packed", [False, True], ids=["the author's tree", "packed"])
def test_children_templates_files_and_data_of_a_library_are_used(
    lay: Lay, tmp_path: Path, is_packed: bool
) -> None:
    directory = lay()
    assert apply(load(packed(directory, tmp_path) if is_packed else directory), tmp_path) == []
    assert {name: (tmp_path / name).read_text() for name in WRITTEN} == WRITTEN


def test_a_packed_bundle_needs_nothing_from_outside(lay: Lay, tmp_path: Path) -> None:
    unpacked = packed(lay(), tmp_path)
    (tmp_path / "libraries").rename(tmp_path / "gone")
    assert apply(load(unpacked), tmp_path) == []
    assert (tmp_path / "motd").read_text() == "of common"


def test_packed_bundle_ignores_a_former_library_path(lay: Lay, tmp_path: Path) -> None:
    directory = lay({"x/libraries/common/data.yaml": "data: {port: 666}"})
    (tmp_path / "x/bundles").mkdir()
    unpacked = packed(directory, tmp_path / "x/bundles")
    assert load(unpacked).data.all["port"] == 80


def test_inherited_template_resolves_paths_in_the_extender(lay: Lay, tmp_path: Path) -> None:
    """See docs/libraries.md. Paths in an included template start at that template."""
    base = "{% include 'templates/head.j2' %} {{ read_file('files/own') }} {% block body %}{% endblock %}"
    changes = {
        "libraries/common/templates/base.j2": base,
        "bundles/web/roles/web.j2": "{% extends 'common:templates/base.j2' %}{% block body %}body{% endblock %}",
        "bundles/web/roles/files/own": "beside the child",
    }
    assert apply(load(lay(changes)), tmp_path) == []
    assert (tmp_path / "web").read_text() == "head of base beside the child body"


def test_a_scaffold_of_a_library_reads_its_files(lay: Lay, tmp_path: Path) -> None:
    scaffolds = """
resources:
  - scaffold:
      - DIR/jet: {source: 'common:tree'}
      - DIR/jinja: {source: 'common:jinja', engine: jinja}
      - DIR/own: {source: tree, engine: jinja}
"""
    changes = {
        "bundles/web/roles/web.yaml": scaffolds,
        "bundles/web/roles/tree/x": "{% include 'common:templates/head.j2' %}",
        "libraries/common/tree/x": "[[ readFile(`files/own`) ]]",
        "libraries/common/jinja/x": "{% import 'base:m.j2' as m %}{{ read_file('files/own') }} {{ m.say() }}",
        "libraries/base/m.j2": "{% macro say() %}said{% endmacro %}",
    }
    assert apply(load(lay(changes)), tmp_path) == []
    result = {name: (tmp_path / name / "x").read_text() for name in ("jet", "jinja", "own")}
    assert result == {"jet": "of common", "jinja": "of common said", "own": "head of base"}


def test_library_template_renders_a_resource_list(lay: Lay) -> None:
    changes = {
        "bundles/web/roles/web.yaml": "resources_template: 'common:templates/list.j2'",
        "libraries/common/templates/list.j2": "- exec: {name: \"{{ read_file('files/own') }}\"}",
    }
    assert load(lay(changes)).names_of("exec") == ["of common"]


def test_data_of_a_library_is_below_all_other_data(lay: Lay) -> None:
    changes = {
        "libraries/common/data.yaml": "data: {a: common, b: common, c: common, m: {x: 1}, d: '{{ data.b }}'}",
        "libraries/base/data.yaml": "data: {a: base, base: true}",
        "bundles/web/manifest.yaml": """
libraries: {common: ../../libraries/common}
data: {b: bundle, m: {y: 2}, e: "{{ data.c }}"}
resources: [{apply: {name: roles/web.yaml}}]
""",
        "bundles/web/roles/web.yaml": "data: {a: child, n: child}\nresources: [{exec: {name: x}}]",
    }
    manifest = load(lay(changes), c="host")
    data = {"a": "common", "b": "bundle", "c": "host", "m": {"x": 1, "y": 2}, "d": "bundle", "e": "host"}
    assert dict(manifest.data.all) == {**data, "base": True}
    child = manifest.declarations[0].home.data
    assert dict(child.all) == {**data, "a": "child", "n": "child", "base": True}


def test_library_default_does_not_override_the_bundle(lay: Lay) -> None:
    """An expression without a value on this host does not select the library's default."""
    manifest = "libraries: {common: ../../libraries/common}\n%s\nresources: [{apply: {name: roles/web.yaml}}]"
    broken = "data: {port: '{{ facts.nope }}'}"
    changes: dict[str, str | None] = {
        "bundles/web/manifest.yaml": manifest % broken,
        "bundles/web/roles/web.yaml": EMPTY,
    }
    assert "unknown key 'nope' in facts" in refusal(lay(changes))
    assert load(lay(changes), port=1).data.all["port"] == 1
    changes = {"bundles/web/manifest.yaml": manifest % "", "bundles/web/roles/web.yaml": f"{broken}\n{EMPTY}"}
    assert "unknown key 'nope' in facts" in refusal(lay(changes))


def test_explaining_a_key_names_the_library_that_has_it(lay: Lay) -> None:
    explained = explain_key(load(lay(), port=81).data, "port")
    assert explained["value"] == 81
    assert [source["name"] for source in explained["sources"] if "value" in source] == [
        "data.yaml",
        "common:data.yaml",
    ]


def test_library_secret_is_secret_everywhere(lay: Lay) -> None:
    changes = {
        "libraries/common/data.yaml": "data:\n  # @sensitive\n  password: hunter2\n  port: 1",
        "bundles/web/roles/web.yaml": FILE % ("DIR/web", "content: '{{ data.password }}'"),
    }
    declarations = load(lay(changes)).declarations
    (result,) = (d for d in declarations if str(d).endswith("/web"))
    assert result.shown()["content"] == "(sensitive)"


def test_hiera_finds_the_data_of_a_library(lay: Lay) -> None:
    changes = {
        "bundles/web/manifest.yaml": "libraries: {common: ../../libraries/common}\nresources: [{exec: {name: "
        "\"{{ hiera('port') }} {{ hiera('name', merge='first') }}\"}}]"
    }
    (declaration,) = load(lay(changes)).declarations
    assert declaration.properties.name == "80 default"


def test_wrong_data_of_a_library_refuses_the_manifest(lay: Lay) -> None:
    changes = {"libraries/common/data.yaml": "port: 80"}
    assert "common:data.yaml:1:1: port: unknown key 'port'" in refusal(lay(changes))


def test_errors_in_a_library_name_its_file(lay: Lay) -> None:
    changes = {"libraries/common/roles/vhost.yaml": "resources: [{file: {nam: x}}]"}
    assert "../libraries/common/roles/vhost.yaml:1: " in refusal(lay(changes))


def test_library_may_lie_at_its_packed_path(lay: Lay, tmp_path: Path) -> None:
    lay()
    target = tmp_path / "bundles/web/libraries"
    target.mkdir()
    (tmp_path / "libraries/common").rename(target / "common")
    (tmp_path / "libraries/base").rename(target / "base")
    manifest = REPOSITORY["bundles/web/manifest.yaml"].replace("../../libraries", "libraries")
    put(tmp_path / "bundles/web/manifest.yaml", manifest)
    assert used_libraries(tmp_path / "bundles/web") == {}
    assert apply(load(tmp_path / "bundles/web"), tmp_path) == []
    assert (tmp_path / "web").read_text() == WRITTEN["web"]


# -- refused libraries ----------------------------------------------------------------------------


def declaring(libraries: str) -> dict[str, str | None]:
    return {"bundles/web/manifest.yaml": f"libraries: {libraries}\n{EMPTY}"}


ON_LINE_1 = "web/manifest.yaml:1: "
REFUSED: dict[str, tuple[dict[str, str | None], str]] = {
    "no mapping": (declaring("[a]"), "libraries is ['a'], expected a mapping of names to directories"),
    "a name": (declaring("{Common: ../x}"), "the name 'Common' is not valid, expected lower-case letters"),
    "a name of ours": (declaring("{bundle: ../x}"), "the name 'bundle' is reserved for the bundle itself"),
    "a number": (declaring("{a: 1}"), "is 1, expected the path of a directory, relative to this file"),
    "nothing": (declaring("{a: }"), "is None, expected the path of a directory"),
    "an absolute path": (declaring("{a: /srv/a}"), "is '/srv/a', expected the path of a directory"),
    "not there": (declaring("{a: ../none}"), "REPO/bundles/none is not a directory"),
    "not made to be shared": (
        {**declaring("{keys: ../../keys}"), "keys/id_ed25519": "secret"},
        "REPO/keys is not a library, because it has no library.yaml (an empty file is enough)",
    ),
    "a file": (declaring("{a: ../../libraries/base/own}"), "REPO/libraries/base/own is not a directory"),
    "the root": (declaring("{a: " + "../" * 40 + "}"), "leads to /, which holds the bundle itself"),
    "itself": (declaring("{a: .}"), "leads to REPO/bundles/web, which holds the bundle itself"),
    "a parent": (declaring("{a: ../..}"), "leads to REPO, which holds the bundle itself"),
    "inside": (
        declaring("{a: roles}"),
        "leads to REPO/bundles/web/roles, expected libraries/a or a directory outside of the bundle",
    ),
    "inside and outside": (
        {**declaring("{common: ../../libraries/common}"), "bundles/web/libraries/common/x": "x"},
        "is REPO/libraries/common, and the bundle has libraries/common too, so remove either",
    ),
    "inside and outside, of a library": (
        {**declaring("{common: ../../libraries/common}"), "bundles/web/libraries/base/x": "x"},
        "libraries/common/library.yaml:1: is REPO/libraries/base, and the bundle has libraries/base too",
    ),
    "two of one name": (
        {
            **declaring("{common: ../../libraries/common, base: ../../other/base}"),
            "other/base/library.yaml": "",
        },
        "base is REPO/other/base here and REPO/libraries/base at ../libraries/common/library.yaml:1, "
        "and a name must be unique",
    ),
    "one of two names": (
        declaring("{base: ../../libraries/base, again: ../../libraries/base}"),
        "is REPO/libraries/base, and the library base at web/manifest.yaml:1 is REPO/libraries/base: "
        "they overlap",
    ),
    "one in another": (
        {**declaring("{base: ../../libraries/base, all: ../../libraries}"), "libraries/library.yaml": ""},
        "is REPO/libraries, and the library base at web/manifest.yaml:1 is REPO/libraries/base: they overlap",
    ),
    "a circle": (
        {
            **declaring("{common: ../../libraries/common}"),
            "libraries/base/library.yaml": "libraries: {common: ../common}",
        },
        "libraries/base/library.yaml:1: libraries use each other in a cycle: common → base → common",
    ),
    "itself by name": (
        {**declaring("{base: ../../libraries/base}"), "libraries/base/library.yaml": "libraries: {base: .}"},
        "libraries use each other in a cycle: base → base",
    ),
    "a key of library.yaml": (
        {**declaring("{base: ../../libraries/base}"), "libraries/base/library.yaml": "librarys: {}"},
        "libraries/base/library.yaml:1: unknown key 'librarys' (did you mean 'libraries'?)",
    ),
    "no mapping in library.yaml": (
        {**declaring("{base: ../../libraries/base}"), "libraries/base/library.yaml": "[x]"},
        "libraries/base/library.yaml:1: is not a mapping, expected a mapping with the key libraries",
    ),
    "no YAML": (
        {**declaring("{base: ../../libraries/base}"), "libraries/base/library.yaml": "[x"},
        "libraries/base/library.yaml:2:1: a ',' or ']' is missing",
    ),
    "a tree of data": (
        {**declaring("{base: ../../libraries/base}"), "libraries/base/hiera.yaml": "version: 5"},
        "has a hiera.yaml, which libraries cannot have, so move its defaults to data.yaml",
    ),
    "a child that declares": (
        {"bundles/web/roles/web.yaml": f"libraries: {{a: ../../x}}\n{EMPTY}"},
        "web/roles/web.yaml:1: a child manifest cannot declare libraries; "
        "declare them in the top manifest, or in the library.yaml of a library",
    ),
    "a library that is the library's": (
        {"bundles/web/roles/web.yaml": "resources: [{apply: {name: 'base:base.yaml'}}]"},
        "base:base.yaml: the bundle names no library 'base' (known: bundle, common)",
    ),
    "the bundle, from a library": (
        {"libraries/common/roles/vhost.yaml": "resources: [{apply: {name: 'bundle:roles/web.yaml'}}]"},
        "the library common cannot name files of the bundle that uses it; hand over what it needs as data",
    ),
}


ATTACKS = {
    **dict.fromkeys(("the root", "itself", "a parent"), "paths.around"),
    "not made to be shared": "paths.unshared",
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.attack(ATTACKS[case])] if case in ATTACKS else [])
        for case in REFUSED
    ],
)
def test_invalid_library_is_refused_with_its_location(lay: Lay, case: str) -> None:
    changes, message = REFUSED[case]
    output = refusal(lay(changes))
    assert message in output
    assert ".yaml:" in output.partition(message)[0] or message.startswith(("libraries/", "web/"))


def test_all_that_is_wrong_with_libraries_is_said_at_once(lay: Lay) -> None:
    changes = {
        **declaring("{a: ../none, B: x, common: ../../libraries/common}"),
        "libraries/common/library.yaml": "x: 1",
    }
    assert len(refusal(lay(changes)).splitlines()) == 3


@pytest.mark.attack("paths.whole")
def test_a_packed_bundle_without_its_library_is_not_whole(lay: Lay, tmp_path: Path) -> None:
    """The path in the manifest leads to a directory, but this is not part of the bundle."""
    lay()
    build_bundle(tmp_path / "bundles/web", tmp_path / "web.tar.gz", name="web", version="1")
    unpack(tmp_path / "web.tar.gz", tmp_path / "bundles/unpacked")
    assert "/libraries/common is not a directory, so the bundle is incomplete" in refusal(
        tmp_path / "bundles/unpacked"
    )


@pytest.mark.attack("paths.whole", "paths.link")
def test_a_link_in_a_packed_bundle_leads_to_no_library(lay: Lay, tmp_path: Path) -> None:
    directory = lay({"bundles/web/bundle.json": "{}"})
    (directory / "libraries").mkdir()
    (directory / "libraries/common").symlink_to(tmp_path / "libraries/common")
    output = refusal(directory)
    assert "leads to REPO/libraries/common, expected libraries/common or a directory outside" in output


def test_libraries_that_use_each_other_without_end_are_refused(lay: Lay) -> None:
    chain = {f"libraries/l{n}/library.yaml": f"libraries: {{l{n + 1}: ../l{n + 1}}}" for n in range(1000)}
    output = refusal(lay({**declaring("{l0: ../../libraries/l0}"), **chain}))
    assert output == "../libraries/l99/library.yaml:1: the bundle has more than 100 libraries"


# -- publishing -----------------------------------------------------------------------------------


def test_the_libraries_that_are_packed_are_known_by_their_places(lay: Lay, tmp_path: Path) -> None:
    assert used_libraries(lay()) == {
        "libraries/base": tmp_path / "libraries/base",
        "libraries/common": tmp_path / "libraries/common",
    }


def test_a_bundle_without_libraries_uses_none(tmp_path: Path) -> None:
    put(tmp_path / "manifest.yaml", EMPTY)
    assert used_libraries(tmp_path) == {}
    put(tmp_path / "manifest.yaml", "resources: [")
    with pytest.raises(ManifestError, match=r"manifest\.yaml:2"):
        used_libraries(tmp_path)
    with pytest.raises(SourceError, match=r"does not exist \(/"):
        used_libraries(tmp_path / "none")


def test_a_library_that_nothing_names_is_told(lay: Lay) -> None:
    directory = lay({"libraries/common/data.yaml": None})
    assert list(unused_libraries(files_in(directory), "web/manifest.yaml")) == []
    changes: dict[str, str | None] = {
        **declaring("{common: ../../libraries/common, more: ../../libraries/more}"),
        "libraries/more/library.yaml": "",
        "libraries/common/library.yaml": "libraries: {base: ../base, given: ../given}",
        "libraries/given/library.yaml": "",
        "libraries/given/data.yaml": "data: {}",
        "libraries/common/roles/vhost.yaml": EMPTY,
        "libraries/common/templates/head.j2": "",
    }
    assert [str(problem) for problem in unused_libraries(files_in(lay(changes)), "web/manifest.yaml")] == [
        "web/manifest.yaml: the library more is not used: no file has a path more:…",
        "common:library.yaml: the library base is not used: no file has a path base:…",
    ]


# -- the author's tree equals the packed bundle --------------------------------------------------

NAMES = ("alpha", "beta", "gamma")
WHERE = ("", "deep/")


@st.composite
def repositories(draw: st.DrawFn) -> dict[str, str]:
    """Return a bundle and three libraries. Each may use later libraries and name files in every valid way."""
    files: dict[str, str] = {}
    trees = ["", *NAMES]
    for position, tree in enumerate(trees):
        place = f"libraries/{tree}/" if tree else "bundle/"
        uses = list(NAMES) if not tree else [n for n in NAMES[position:] if draw(st.booleans())]
        for where in WHERE:
            files[f"{place}{where}f"] = f"{tree} {where}f {{{{ read_file('f') }}}}"
            entries = [_entry(draw, tree, where, uses, number) for number in range(draw(st.integers(1, 3)))]
            files[f"{place}{where}m.yaml"] = "resources:\n" + "".join(entries)
        libraries = "".join(f"  {name}: ../libraries/{name}\n" for name in uses)
        if tree:
            files[f"{place}library.yaml"] = "libraries:\n" + libraries.replace("../libraries", "..")
            files[f"{place}data.yaml"] = f"data: {{{tree}: {position}, all: {tree}}}"
        else:
            children = "".join(f"      - '{name}:{where}m.yaml': \n" for name in NAMES for where in WHERE)
            top = f"libraries:\n{libraries}resources:\n  - apply:\n{children}      - m.yaml:\n      - deep/m.yaml:\n"
            files["bundle/manifest.yaml"] = top
    return files


def _entry(draw: st.DrawFn, tree: str, where: str, uses: list[str], number: int) -> str:
    roots = [
        "" if where else "./",
        "../" if where else "deep/",
        *([] if tree else ["bundle:", "bundle:deep/"]),
    ]
    path = draw(st.sampled_from([*roots, *(f"{name}:{inner}" for name in uses for inner in WHERE)])) + "f"
    provided = draw(
        st.sampled_from(
            ["source: '{}'", "template: '{}'", "content: \"{{{{ read_file('{}') }}}} {{{{ data.all }}}}\""]
        )
    ).format(path)
    return f"  - file: {{name: '/x/of-{tree}/{where}{number}', {IDS}, {provided}}}\n"


def catalog(directory: Path) -> list[Any]:
    """Return the data and resources that a host gets, in order, with the contents of files."""
    manifest = load(directory)
    results: list[Any] = [dict(manifest.data.all)]
    for index in manifest.order:
        declaration = manifest.declarations[index]
        properties: Any = declaration.properties
        source, template = getattr(properties, "source", None), getattr(properties, "template", None)
        read, home = "", declaration.home
        if source:
            read = Path(home.files.find(source)).read_text()
        if template:
            read = render_file(home.files.find(template), "jinja", home.scope, home.files).text
        results.append((str(declaration), declaration.shown(), declaration.failure, read))
    return results


@settings(deadline=None)
@given(repositories())
def test_the_tree_and_the_packed_bundle_give_the_same_catalog(files: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in files.items():
            put(Path(scratch, name), text)
        tree = catalog(Path(scratch, "bundle"))
        unpacked = packed(Path(scratch, "bundle"), Path(scratch))
        for name in ("bundle", "libraries"):
            Path(scratch, name).rename(Path(scratch, f"{name}.gone"))
        assert catalog(unpacked) == tree
        assert unpacked.joinpath("libraries/gamma/f").is_file()


def test_manifest_without_libraries_searches_none(tmp_path: Path) -> None:
    put(tmp_path / "manifest.yaml", EMPTY)
    text = ManifestText.of_file(tmp_path / "manifest.yaml", "manifest.yaml")
    assert bundle_files(text).libraries == {}
