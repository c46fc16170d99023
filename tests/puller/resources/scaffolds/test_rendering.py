"""Rendered sources with each engine, and errors with place and reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from hiera.expressions.expressions import Scope
from hiera.values import Secret
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError
from puller.facts.fact_tree import gather
from puller.resources.scaffolds import scaffold_tree as sources
from puller.resources.scaffolds.scaffold_tree import RenderRequest, render_source
from puller.system.local import LocalSystem
from puller.templates.rendering import ENGINES

ROOT = Path(__file__).parents[4]
CASES = ROOT / "tests" / "cases" / "templates"


# The design's example


@pytest.mark.parametrize("engine", ENGINES)
def test_design_example_gives_the_documented_result(bench: Any, engine: str) -> None:
    """One line more than the document's listing, which lacks its blank line."""
    from hiera.parsing import load_yaml

    example = ROOT / "examples" / "scaffold"
    bench.data = load_yaml((example / "data.yaml").read_text(), "data.yaml")["data"]
    bench.apply(source=str(example / "templates" / engine), engine=engine)
    documented = [
        "log_level = info",
        "log_file = /var/log/myapp/web01.log",
        "",
        "[server]",
        "bind = 0.0.0.0",
        "port = 8080",
        "workers = 4",
    ]
    assert (bench.target / "app.conf").read_text().splitlines() == documented
    expected = {
        str(path.relative_to(example / "expected")): path.read_text()
        for path in (example / "expected").rglob("*")
        if path.is_file()
    }
    assert bench.files() == expected


# The engines' own cases, from files to files


def golden() -> list[Any]:
    """Return all cases.

    An ordinary run takes every fifth case, since the tests of the engines render all in memory.
    """
    cases = [case for name in ("jet", "go") for case in json.loads((CASES / f"{name}.json").read_text())]
    return [
        pytest.param(
            case, id=f"{case['engine']}/{case['name']}", marks=[pytest.mark.crash] if number % 5 else []
        )
        for number, case in enumerate(cases)
    ]


@pytest.mark.parametrize("case", golden())
def test_scaffold_equals_the_go_implementation(bench: Any, case: dict[str, Any]) -> None:
    for path, text in case["files"].items():
        bench.template(path, text)
    bench.facts, bench.data = case["env"]["facts"], case["env"]["data"]
    delimiters = (case.get("left_delimiter", ""), case.get("right_delimiter", ""))
    request = RenderRequest(
        str(bench.source), "templates", case["engine"], delimiters, skip_empty=case.get("skip_empty", False)
    )

    def grown() -> dict[str, bytes]:
        scope = Scope(bench.facts, bench.data, case["env"]["environ"])
        tree = render_source(request, scope, BundleFiles.of(bench.directory), LocalSystem())
        return {path: file.data for path, file in tree.files.items()}

    if "out" in case:
        assert grown() == {
            path: text.encode("utf-8", "surrogateescape") for path, text in case["out"].items()
        }
        return
    with pytest.raises(ResourceError, match=r"^templates/[^:]*:\d+:\d+: "):
        grown()


# Properties


def test_jet_is_the_default_engine(bench: Any) -> None:
    """The reference rejected scaffolds without the engine, although its documents call it optional."""
    bench.template("app.conf", "[[ facts.hostname ]] {{ kept }}\n")
    bench.apply()
    assert bench.files() == {"app.conf": "web01 {{ kept }}\n"}


@pytest.mark.parametrize(
    ("engine", "delimiters", "text"),
    [
        ("jet", {"left_delimiter": "<<"}, "<< facts.hostname ]]"),
        ("jet", {"right_delimiter": ">>"}, "[[ facts.hostname >>"),
        ("jet", {"left_delimiter": "{{", "right_delimiter": "}}"}, "{{ facts.hostname }}"),
        ("go", {"left_delimiter": "<<"}, "<< .facts.hostname }}"),
        ("go", {"right_delimiter": ">>"}, "{{ .facts.hostname >>"),
        ("go", {"left_delimiter": "[[", "right_delimiter": "]]"}, "[[ .facts.hostname ]]"),
        ("jinja", {"left_delimiter": "<<"}, "<< facts.hostname }}"),
        ("jinja", {"right_delimiter": ">>"}, "{{ facts.hostname >>"),
        (
            "jinja",
            {"left_delimiter": "[[", "right_delimiter": "]]"},
            "{% if 1 %}[[ facts.hostname ]]{% endif %}",
        ),
    ],
)
def test_a_delimiter_that_is_not_given_is_the_engines_own(
    bench: Any, engine: str, delimiters: dict[str, str], text: str
) -> None:
    bench.template("app.conf", text)
    bench.apply(engine=engine, **delimiters)
    assert bench.files() == {"app.conf": "web01"}


def test_delimiters_that_cannot_be_are_refused(bench: Any) -> None:
    bench.template("app.conf")
    assert bench.fail(engine="jinja", left_delimiter="{%").startswith("delimiters '{%' and ''")


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("jet", '[[ data.port ]] [[ isset(data.other) ]] [[ lookup("data.other", "none") ]]'),
        ("go", '{{ .data.port }} {{ hasKey .data "other" }} {{ lookup "data.other" "none" }}'),
        ("jinja", "{{ data.port }} {{ 'other' in data }} {{ lookup('data.other', 'none') }}"),
    ],
)
def test_data_of_its_own_replaces_that_of_the_manifest(bench: Any, engine: str, text: str) -> None:
    """In the reference, ``.data.x`` failed with the Go engine, and a default broke Jet's ``lookup``."""
    bench.template("app.conf", text)
    bench.data = {"port": 80, "other": "manifest's"}
    bench.apply(engine=engine, data={"port": 8080})
    assert bench.files()["app.conf"].lower() == "8080 false none"
    bench.apply(engine=engine)
    assert bench.files()["app.conf"].lower() == "80 true manifest's"


@pytest.mark.parametrize("engine", ENGINES)
def test_facts_of_this_machine_are_seen_by_every_engine(bench: Any, engine: str) -> None:
    bench.facts = gather(custom_directories=[])
    text = {"jet": "[[ facts.os.family ]]", "go": "{{ .facts.os.family }}", "jinja": "{{ facts.os.family }}"}
    bench.template("app.conf", text[engine])
    bench.apply(engine=engine)
    assert bench.files() == {"app.conf": bench.facts["os"]["family"]}


def test_blank_files_are_omitted_and_purged(bench: Any) -> None:
    bench.template("tls.conf", "[[ if data.tls ]]tls\n[[ end ]]\n")
    bench.template("app.conf", "app\n")
    bench.data = {"tls": True}
    bench.apply(skip_empty=True, purge=True)
    assert bench.files() == {"app.conf": "app\n", "tls.conf": "tls\n\n"}
    bench.data = {"tls": False}
    assert bench.apply(skip_empty=True, purge=True).differences == ["tls.conf removed"]
    bench.apply()
    assert bench.files() == {"app.conf": "app\n", "tls.conf": "\n"}


def test_partials_are_shared_by_templates(bench: Any) -> None:
    """In the reference, Jet's include, extends and import found no template."""
    bench.template("_partials/layout", "<[[ block body() ]]nothing[[ end ]]>")
    bench.template("_partials/part", "part [[ data.n ]]")
    bench.template("page", '[[ extends "/_partials/layout" ]][[ block body() ]]page[[ end ]]')
    bench.template("d/part", '[[ include "/_partials/part" ]] [[ render("_partials/part", .) ]]')
    bench.data = {"n": 1}
    bench.apply()
    assert bench.files() == {"page": "<page>", "d/part": "part 1 part 1"}


def test_a_map_is_walked_in_the_same_order_every_time(bench: Any) -> None:
    """In the reference, a loop over a map produced a different file in every run."""
    bench.template("app.conf", "[[ range k, v := data.map ]][[ k ]]=[[ v ]] [[ end ]]")
    bench.data = {"map": {str(n): n for n in reversed(range(9))}}
    bench.apply()
    assert bench.files()["app.conf"].split() == [f"{n}={n}" for n in range(9)]


def test_assignment_in_a_template_stays_in_its_scaffold(bench: Any) -> None:
    """In the reference, it changed the data of all later resources."""
    bench.template("app.conf", '[[ data.list = 1 ]][[ data.map.k = "v" ]][[ data.map.k ]]')
    bench.data = {"list": [1], "map": {}}
    bench.apply()
    assert bench.data == {"list": [1], "map": {}}


# Output that varies


@pytest.mark.parametrize(
    ("engine", "text", "sentence"),
    [
        ("go", "a\nb {{ randAlphaNum 20 }}\n", "renders differently each time, {}: line 2 is 'b "),
        ("go", '{{ write (randAlpha 20) "x" }}', "is rendered one time and not another, {}"),
    ],
)
def test_a_tree_that_renders_differently_each_time_is_refused(
    bench: Any, engine: str, text: str, sentence: str
) -> None:
    """The reference accepted such a tree, and changed its files in every run."""
    bench.template("app.conf", text)
    scaffold = bench.scaffold(engine=engine, noop=True)
    actual = scaffold.look()
    with pytest.raises(ResourceError) as failed:
        scaffold.noop_message(scaffold.differences(actual), actual)
    assert sentence.format("so it would change in every run") in str(failed.value)
    scaffold = bench.scaffold(engine=engine)
    with pytest.raises(ResourceError):
        scaffold.change((), scaffold.look())
    assert not bench.target.exists()


# Secrets and diffs


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("jet", "[[ data.password ]]\n"),
        ("go", "{{ .data.password }}\n"),
        ("go", '{{ lookup "data.password" }}\n'),
        ("jinja", "{{ data.password }}\n"),
        ("jinja", "{% include '_partials/p' %}"),
    ],
)
def test_a_secret_gets_into_its_file_and_nowhere_else(bench: Any, engine: str, text: str) -> None:
    bench.template("a.conf", text)
    bench.template("b.conf", "plain\n")
    bench.template("_partials/p", "{{ data.password }}\n")
    bench.data = {"password": Secret("hunter2")}
    bench.present("a.conf", "hunter1\n")
    scaffold = bench.scaffold(engine=engine, noop=True)
    actual = scaffold.look()
    output = [scaffold.diff(actual), *map(str, scaffold.differences(actual))]
    assert "hunter" not in str(output)
    bench.apply(engine=engine)
    assert bench.files()["a.conf"] == "hunter2\n"


def test_diff_with_possible_secrets_is_hidden(bench: Any) -> None:
    bench.template("app.conf", "{{ .data.password }}{{ randAlpha 9 }}")
    bench.data = {"password": Secret("hunter2")}
    scaffold = bench.scaffold(engine="go")
    with pytest.raises(ResourceError) as failed:
        scaffold.change((), scaffold.look())
    assert str(failed.value) == "app.conf: renders differently each time, so it would change in every run"


def test_diffs_show_changes_and_removals(bench: Any) -> None:
    bench.template("a.conf", "one\n")
    bench.template("b.conf", "same\n")
    bench.template("c.conf", "mode\n")
    bench.present("a.conf", "two\n")
    bench.present("b.conf", "same\n")
    bench.present("c.conf", "mode\n", mode=0o600)
    bench.present("old.conf")
    scaffold = bench.scaffold(purge=True, mode="0644")
    assert (scaffold.diff(scaffold.look()) or "").replace(str(bench.target), "") == (
        "--- /a.conf (now)\n+++ /a.conf (wanted)\n@@ -1 +1 @@\n-two\n+one\n/old.conf: removed\n"
    )
    scaffold = bench.scaffold(ensure="absent")
    assert (scaffold.diff(scaffold.look()) or "").count("removed\n") == 3
    assert bench.scaffold(sensitive=True).diff(scaffold.look()) is None
    bench.template("a.conf", "{{ randAlpha 9 }}")
    scaffold = bench.scaffold(engine="go", sensitive=True)
    with pytest.raises(ResourceError, match=r"so it would change in every run$"):
        scaffold.change((), scaffold.look())


def test_diffs_end_somewhere(bench: Any) -> None:
    for number in range(20):
        bench.template(f"f{number:02}", "line\n" * 10_000)
    scaffold = bench.scaffold()
    shown = scaffold.diff(scaffold.look()) or ""
    assert shown.endswith("target: and more, which is too much to show\n")
    assert len(shown) < 400_000


# The source


def test_binary_file_is_copied_unchanged(bench: Any) -> None:
    image = b"\x89PNG\r\n\x1a\n\x00\x00[[ not a template \xff\xfe"
    bench.template("logo.png", image, mode=0o755)
    bench.template("latin", "caf\xe9".encode("latin-1"))
    bench.template("_partials/blob", b"\xff\x00")
    bench.template("out", '[[ write("blob", render("_partials/blob", .)) ]]text')
    bench.apply()
    assert (bench.target / "logo.png").read_bytes() == image
    assert (bench.target / "logo.png").stat().st_mode & 0o777 == 0o755
    assert (bench.target / "latin").read_bytes() == b"caf\xe9"
    assert (bench.target / "blob").read_bytes() == b"\xff\x00"


@pytest.mark.parametrize(("engine", "mark"), [("jet", "[["), ("go", "{{"), ("jinja", "{{"), ("jinja", "{%")])
def test_a_template_in_another_encoding_is_refused(bench: Any, engine: str, mark: str) -> None:
    bench.template("app.conf", f"caf\xe9 {mark} 1".encode("latin-1"))
    assert bench.fail(engine=engine) == (
        f"templates/app.conf: is not UTF-8 text, but holds {mark!r} as a template would"
    )


@pytest.mark.parametrize(
    ("engine", "text", "sentence"),
    [
        ("jet", "a\n  [[ data.por.x ]]", "templates/d/app.conf:2:"),
        ("jet", "a\n[[ if ]]", "templates/d/app.conf:2:"),
        ("go", "a\n  {{ .data.port.x }}", "templates/d/app.conf:2:"),
        ("go", "a\n{{ nope }}", "templates/d/app.conf:2:"),
        (
            "jinja",
            "a\n  {{ data.por }}",
            "templates/d/app.conf:2:6: unknown key 'por' (did you mean 'port'?)",
        ),
        ("jinja", "a\n{% if %}", "templates/d/app.conf:2:"),
        ("jet", 'a\n[[ render("_partials/p", .) ]]', "templates/d/app.conf:2:4: render: _partials/p:1:4: "),
    ],
)
def test_a_failure_names_file_and_line_and_shows_it(
    bench: Any, engine: str, text: str, sentence: str
) -> None:
    bench.template("d/app.conf", text)
    bench.template("_partials/p", "[[ nope ]]")
    bench.data = {"port": 80}
    first, line, caret = bench.fail(engine=engine).split("\n")
    assert first.startswith(sentence)
    assert line == text.split("\n")[1]
    assert caret.strip() == "^"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none", "source none cannot be read: no such file or directory"),
        ("manifest.yaml", "source manifest.yaml cannot be read: not a directory"),
        ("empty", "source empty holds no files"),
    ],
)
def test_invalid_source_is_refused(bench: Any, source: str, message: str) -> None:
    (bench.directory / "manifest.yaml").write_text("")
    (bench.directory / "empty" / "directory").mkdir(parents=True)
    assert bench.fail(source=source) == message


def test_a_source_that_is_far_too_deep_is_refused(bench: Any) -> None:
    bench.template("/".join(["d"] * 99 + ["file"]))
    bench.apply()
    bench.template("/".join(["d"] * 101 + ["file"]))
    assert bench.fail().endswith("/d: is deeper than 100 directories")


def test_large_different_file_is_not_read(bench: Any) -> None:
    bench.template("app.conf", "small\n")
    with bench.present("app.conf", "").open("r+b") as stream:
        stream.truncate(1 << 40)
    scaffold = bench.scaffold(noop=True)
    assert scaffold.look().target.same == frozenset()


@pytest.mark.parametrize("limit", ["MOST_ENTRIES", "MOST_BYTES"])
def test_a_source_that_is_far_too_large_is_refused(
    bench: Any, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, limit, 3)
    for name in "abcd":
        bench.template(name, "xx")
    assert bench.fail().startswith("source templates holds more than ")


def test_a_source_has_names_that_can_be_shown(bench: Any) -> None:
    bench.template("a\nb")
    assert bench.fail() == r"templates/'a\nb': has a name that cannot be printed"


@pytest.mark.parametrize("target", ["templates", "templates/below", "."])
def test_source_and_target_must_not_overlap(bench: Any, target: str) -> None:
    bench.template("app.conf")
    bench.target = (bench.directory / target).resolve()
    assert bench.fail(purge=True).endswith("hold one another")


def test_a_template_without_end_stops(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.template("app.conf", '[[ range ints(0, 1000000000) ]][[ repeat("x", 100000) ]][[ end ]]')
    assert "makes more than" in bench.fail()
