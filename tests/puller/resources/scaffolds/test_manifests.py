"""Scaffolds in manifests: errors at load, allowed expressions, and complete runs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.cli import main
from puller.errors import ManifestError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest

Load = Callable[..., Manifest]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that loads a manifest with one scaffold: ``load(properties, data=…)``."""

    def from_properties(properties: dict[str, Any], name: str = "/target", **data: Any) -> Manifest:
        text = yaml.safe_dump({"data": data, "resources": [{"scaffold": [{name: properties}]}]})
        (tmp_path / "manifest.yaml").write_text(text)
        return load_manifest(tmp_path / "manifest.yaml", "manifest.yaml", Inputs({"hostname": "web01"}, {}))

    return from_properties


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "source is missing"),
        ({"source": ""}, "source is '', expected a directory of templates"),
        (
            {"source": "https://example.com/x"},
            "source is 'https://example.com/x', expected a directory of templates",
        ),
        ({"source": "s", "ensure": "directory"}, "ensure is 'directory', expected present or absent"),
        ({"source": "s", "engine": "mako"}, "engine is 'mako', expected jet, go or jinja"),
        ({"source": "s", "mode": 644}, "mode is a number, expected text; quote it"),
        ({"source": "s", "mode": "0999"}, "mode is '0999', expected octal digits"),
        ({"source": "s", "owner": ""}, "owner is empty"),
        ({"source": "s", "purge": "yes please"}, "purge is 'yes please', expected true or false"),
        ({"source": "s", "engines": "jet"}, "engines is not a property of scaffold (did you mean 'engine'?)"),
        ({"source": "s", "post": {"*": "true"}}, "post is a mapping, expected a list"),
        (
            {"source": "s", "post": [{"*": "true", "x": "true"}]},
            "post has 2 patterns in one entry, expected one",
        ),
        ({"source": "s", "post": [{}]}, "post has 0 patterns in one entry, expected one"),
        ({"source": "s", "post": [{"": "true"}]}, "post has an empty pattern"),
        ({"source": "s", "post": [{"*": ""}]}, "post has no command for '*'"),
        ({"source": "s", "post": [{"*": "a 'b"}]}, 'post has the command "a \'b", which has a single quote'),
        ({"source": "s", "post": [{"*": "''"}]}, "post has the command \"''\", which names no program"),
        ({"source": "s", "post": [{"[": "true"}]}, "post has the pattern '[', which ends in"),
    ],
)
def test_invalid_properties_are_refused_at_load(load: Load, properties: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as refused:
        load(properties)
    assert message in str(refused.value)
    assert "scaffold#/target" in str(refused.value)


@pytest.mark.parametrize("name", ["target", "/a/../b", "/a/", "//a", "/a/./b", "/"])
def test_a_target_is_an_absolute_and_canonical_path(load: Load, name: str) -> None:
    with pytest.raises(ManifestError, match="name is "):
        load({"source": "s"}, name=name)


def test_delimiters_may_be_the_braces_of_expressions(load: Load) -> None:
    manifest = load({"source": "s", "left_delimiter": "{{", "right_delimiter": "}}", "engine": "jet"})
    properties: Any = manifest.declarations[0].properties
    assert (properties.left_delimiter, properties.right_delimiter) == ("{{", "}}")


def test_expressions_in_data_of_its_own_keep_their_type(load: Load) -> None:
    data = {"port": "{{ data.port }}", "list": ["{{ data.list }}", "on {{ facts.hostname }}"], 80: "http"}
    manifest = load({"source": "s", "data": data}, port=8080, list=[1, {"a": None}])
    properties: Any = manifest.declarations[0].properties
    assert properties.data == {"port": 8080, "list": [[1, {"a": None}], "on web01"], 80: "http"}
    manifest = load({"source": "s", "data": "{{ data.app }}"}, app={"a": 1})
    properties = manifest.declarations[0].properties
    assert properties.data == {"a": 1}


# Complete runs


MANIFEST = """\
data: {name: web, sites: [a, b]}
resources:
  - scaffold:
      - DIR/etc/app:
          provider: choria
          source: templates
          purge: true
          post: [{"*.conf": "chmod go-r {}"}]
"""


@pytest.fixture
def apply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*options: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["apply", str(tmp_path), "--state-directory", f"{tmp_path}/state", *options])
        return int(ended.value.code or 0), capsys.readouterr().out

    return run


def test_a_run_from_end_to_end(tmp_path: Path, apply: Callable[..., tuple[int, str]]) -> None:
    (tmp_path / "manifest.yaml").write_text(MANIFEST.replace("DIR", str(tmp_path)))
    (tmp_path / "templates").mkdir()
    template = '[[ range i, site := data.sites ]][[ write(site + ".conf", site) ]][[ end ]][[ data.name ]]\n'
    (tmp_path / "templates" / "index").write_text(template)
    status, output = apply("--noop", "--diff")
    assert status == 0
    assert 'noop="Would have changed 3 scaffold files"' in output
    assert "+web" in output
    assert not (tmp_path / "etc").exists()
    status, output = apply("--detailed-exitcodes")
    assert (status, "provider=choria" in output) == (2, True)
    file_status = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "etc" / "app").iterdir()}
    assert file_status == {"a.conf": 0o600, "b.conf": 0o600, "index": 0o644}
    assert apply("--detailed-exitcodes")[0] == 0
    (tmp_path / "etc" / "app" / "foreign").touch()
    status, output = apply("--detailed-exitcodes")
    assert (status, 'differences="foreign removed"' in output) == (2, True)
    assert os.listdir(tmp_path / "etc") == ["app"]


def test_a_template_that_fails_is_that_resources_failure(
    tmp_path: Path, apply: Callable[..., tuple[int, str]]
) -> None:
    (tmp_path / "manifest.yaml").write_text(MANIFEST.replace("DIR", str(tmp_path)))
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "index").write_text("one\n[[ data.nam.x ]]\n")
    status, output = apply()
    assert status == 4
    assert "templates/index:2:" in output
    assert "[[ data.nam.x ]]" in output


@pytest.mark.parametrize("options", [["--noop"], []])
def test_rendered_file_of_another_writer_is_refused(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/a").write_text("rendered")
    target = tmp_path / "target"
    resources = [
        {"scaffold": [{str(target): {"source": "t"}}]},
        {"line": [{"one": {"path": f"{target}/a", "line": "one"}}]},
    ]
    (tmp_path / "manifest.yaml").write_text(yaml.safe_dump({"resources": resources}))
    with pytest.raises(SystemExit) as ended:
        main(["apply", str(tmp_path), f"--state-directory={tmp_path}/state", *options])
    assert ended.value.code == 4
    sentence = f"writes the whole file at {target}/a, but another resource edits the file: line#one"
    assert sentence in capsys.readouterr().out
    assert not target.exists()
