"""``puller render`` with templates: a file, a directory, and errors."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from puller.cli import main

EXAMPLE = Path(__file__).parents[3] / "examples" / "scaffold"


class Done(NamedTuple):
    status: int
    out: str
    err: str


Render = Callable[..., Done]


@pytest.fixture
def render(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Render:
    """Return a function that runs ``puller render`` in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(["render", *arguments])
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run


def expected() -> dict[str, str]:
    root = EXAMPLE / "expected"
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def example(engine: str) -> tuple[str, ...]:
    directory, data = EXAMPLE / "templates" / engine, EXAMPLE / "data.yaml"
    return str(directory), "--engine", engine, "--fact", "hostname=web01", "--data", str(data)


@pytest.mark.parametrize("engine", ["jet", "go", "jinja"])
def test_a_directory_of_templates_is_rendered_as_a_scaffold(render: Render, engine: str) -> None:
    assert json.loads(render(*example(engine), "--format", "json").out) == expected()
    assert yaml.load(render(*example(engine)).out, yaml.CSafeLoader) == expected()


def test_a_directory_is_written_where_that_is_asked_for(render: Render, tmp_path: Path) -> None:
    done = render(*example("jet"), "-o", "out")
    assert (done.status, done.out.splitlines()[0]) == (0, "out/app.conf: written")
    assert (tmp_path / "out" / "app.conf").read_text() == expected()["app.conf"]
    (tmp_path / "out" / "app.conf").write_text("drifted")
    assert render(*example("jet"), "-o", "out").out.splitlines() == [
        "out/app.conf: written",
        "out/conf.d/blog.conf: unchanged",
        "out/conf.d/index: unchanged",
        "out/conf.d/shop.conf: unchanged",
    ]
    (tmp_path / "outside").mkdir()
    shutil.rmtree(tmp_path / "out" / "conf.d")
    (tmp_path / "out" / "conf.d").symlink_to(tmp_path / "outside")
    done = render(*example("jet"), "-o", "out")
    assert (done.status, os.listdir(tmp_path / "outside")) == (13, [])
    assert "conf.d is a symbolic link, expected a directory" in done.err


def test_a_manifest_beside_the_templates_is_a_template_too(render: Render, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "manifest.yaml").write_text("host: [[ facts.hostname ]]\n")
    done = render("tree", "--engine", "jet", "--fact", "hostname=web01", "--format", "json")
    assert json.loads(done.out) == {"manifest.yaml": "host: web01\n"}


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("a.conf.j2", (), "{{ facts.hostname }} {{ data.port }}"),
        ("a.jet", (), "[[ facts.hostname ]] [[ data.port ]]"),
        ("a.tmpl", (), "{{ .facts.hostname }} {{ .data.port }}"),
        ("a.conf", ("--engine", "jinja"), '{{ facts.hostname }} {{ lookup("data.port") }}'),
        ("a.conf", ("--engine", "jet", "--left-delimiter", "<<"), "<< facts.hostname ]] << data.port ]]"),
        (
            "a.conf",
            ("--engine", "go", "--left-delimiter", "<<", "--right-delimiter", ">>"),
            "<< .facts.hostname >> << .data.port >>",
        ),
        ("a.conf", ("--engine", "jinja", "--right-delimiter", ">>"), "{{ facts.hostname >> {{ data.port >>"),
    ],
)
def test_a_template_is_printed_as_it_comes_out(
    render: Render, tmp_path: Path, name: str, options: tuple[str, ...], text: str
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "data.yaml").write_text("data: {port: 80}\n")
    done = render(name, *options, "--fact", "hostname=web01", "--data", "data.yaml")
    assert done == (0, "web01 80", "")
    assert json.loads(render(name, *options, "--data", "data.yaml", "--format", "json").out).endswith(" 80")


def test_a_template_of_a_bundle_sees_the_bundles_files(render: Render, tmp_path: Path) -> None:
    (tmp_path / "web" / "templates").mkdir(parents=True)
    (tmp_path / "web" / "manifest.yaml").write_text("resources: []\n")
    (tmp_path / "web" / "motd").write_text("hello\n")
    (tmp_path / "web" / "templates" / "a.j2").write_text("{% include 'motd' %}{{ read_file('motd') }}")
    assert render("web/templates/a.j2").out == "hello\nhello\n"
    (tmp_path / "web" / "templates" / "tree").mkdir()
    (tmp_path / "web" / "templates" / "tree" / "a").write_text('[[ file("motd") ]]')
    done = render("web/templates/tree", "--engine", "jet", "--format", "json")
    assert json.loads(done.out) == {"a": "hello\n"}


def test_a_file_is_written_where_that_is_asked_for(render: Render, tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("x")
    (tmp_path / "there").mkdir()
    assert render("a.conf", "--engine", "jet", "-o", "b").out == "b: written\n"
    assert render("a.conf", "--engine", "jet", "-o", "there").out == "there/a.conf: written\n"
    assert [(tmp_path / path).read_text() for path in ("b", "there/a.conf")] == ["x", "x"]


def test_blank_files_are_left_out_when_that_is_asked_for(render: Render, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "blank").write_text("[[ if false ]]x[[ end ]]\n")
    (tmp_path / "tree" / "text").write_text("x")
    arguments = ("tree", "--engine", "jet", "--format", "json")
    assert json.loads(render(*arguments).out) == {"blank": "\n", "text": "x"}
    assert json.loads(render(*arguments, "--skip-empty").out) == {"text": "x"}


@pytest.mark.parametrize(
    ("engine", "text", "place"),
    [
        ("jet", "a\n[[ data.por.x ]]", "a.conf:2:"),
        ("go", "a\n{{ nope }}", "a.conf:2:"),
        ("jinja", "a\n{{ facts.kernl }}", "a.conf:2:4: unknown key 'kernl' (did you mean 'kernel'?)"),
    ],
)
@pytest.mark.parametrize("is_directory", [False, True])
def test_a_template_that_fails_shows_the_line(
    render: Render, tmp_path: Path, engine: str, text: str, place: str, is_directory: bool
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.conf").write_text(text)
    done = render("tree" if is_directory else "tree/a.conf", "--engine", engine)
    assert (done.status, done.out) == (13, "")
    first, line, *_ = done.err.splitlines()
    assert first.startswith(f"puller: {'tree/' if is_directory else ''}{place}")
    assert line == f"puller: {text.splitlines()[1]}"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("none", "--engine", "jet"), 64, "none: does not exist"),
        (("tree",), 64, "tree has no manifest.yaml. For templates, use --engine jinja, jet or go"),
        (("tree", "-o", "out"), 64, "delimiters, --skip-empty and --output are for templates: add --engine"),
        (("tree", "--left-delimiter", "<<"), 64, "delimiters, --skip-empty and --output are for templates"),
        (("tree", "--engine", "jet"), 13, "source tree holds no files"),
        (("tree", "--engine", "mako"), 64, "'mako' is not one of"),
        (("a", "--engine", "jinja", "--left-delimiter", "{%"), 13, "delimiters '{%' and ''"),
        (("latin", "--engine", "jet"), 13, "is not usable: 'utf-8' codec can't decode"),
    ],
)
def test_failed_render_states_the_reason(
    render: Render, tmp_path: Path, arguments: tuple[str, ...], status: int, message: str
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "a").write_text("a")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    done = render(*arguments)
    assert done.status == status
    assert message in done.err


def test_a_child_is_shown_with_each_data_that_it_is_applied_with(render: Render, tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(
        "resources: [{apply: [{c.yaml: {alias: a, data: {x: 1}}}, {c.yaml: {data: {x: 2}}}, {c.yaml: {data: {x: 2}}}]}]"
    )
    (tmp_path / "c.yaml").write_text("resources: [{exec: {name: '{{ data.x }}'}}]")
    resources = json.loads(render("manifest.yaml", "--no-system-facts", "--format", "json").out)["resources"]
    shown = [body["c.yaml"]["applied"] for entry in resources for body in entry.get("apply", ())]
    assert shown == [["by manifest.yaml as a, with x: 1"], ["by manifest.yaml, with x: 2"]]
