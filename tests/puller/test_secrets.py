"""Propagation of secrets through manifests, templates, configuration and commands."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from foundation.masking import VALUE_MASK
from hiera.expressions.expressions import Scope
from hiera.values import Secret
from puller.bundle_paths import BundleFiles
from puller.cli.ensure import properties_from
from puller.config.configuration import load_configuration
from puller.data.sources import assigned
from puller.errors import ManifestError, ResourceError, UsageError
from puller.resources.registry import find_type
from puller.templates.rendering import render_text

if TYPE_CHECKING:
    from tests.puller.conftest import Load
    from tests.support.stories import Execute, Host, Publisher, WebServer

SECRET = "hunter2"


# --- configuration ------------------------------------------------------------------------------------------


def test_a_configuration_shows_no_credentials(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        f"""
        site: "https://me:{SECRET}@www.example.org"
        data: "https://me:{SECRET}@www.example.org/site.yaml?sig={SECRET}"
        bundles: [{{name: web}}]
        http: {{password: {SECRET}, proxy: "http://me:{SECRET}@proxy", headers: {{X-Key: {SECRET}}}}}
        """
    )
    configuration = load_configuration(path)
    assert SECRET not in f"{configuration!r} {configuration}"
    assert "https://***@www.example.org" in repr(configuration)
    assert configuration.http.password == Secret(SECRET)


def test_site_data_copy_holds_no_credentials(
    settled: "Host", publisher: "Publisher", web: "WebServer"
) -> None:
    (web.root / "extra").mkdir()
    (web.root / "extra/site.yaml").write_text("data: {port: 1}")
    address = web.url.removeprefix("http://")
    settled.configure(data=[f"http://me:{SECRET}@{address}/extra/site.yaml?sig={SECRET}"])
    assert settled.run().status == 0
    (copy,) = (settled.state / "data").iterdir()
    assert SECRET not in copy.read_text()
    (web.root / "extra/site.yaml").unlink()
    outcome = settled.run()
    assert "using its last good copy" in outcome.output
    assert SECRET not in outcome.output


# --- manifests ----------------------------------------------------------------------------------------------

DATA = f"data:\n  # @sensitive\n  token: {SECRET}\n"


def test_a_resource_of_a_template_that_sees_secrets_is_sensitive(load: "Load", tmp_path: Path) -> None:
    (tmp_path / "list.jet").write_text(
        "- exec: {name: a, command: 'echo [[ data.token ]]', creates: '/x/[[ data.token ]]', cwd: /tmp}"
    )
    (declaration,) = load(DATA + "resources_template: list.jet").declarations
    assert declaration.properties.sensitive
    assert declaration.shown() == {
        "ensure": "present",
        "command": "(sensitive)",
        "creates": "(sensitive)",
        "cwd": "/tmp",
        "sensitive": True,
    }


def test_jinja_template_without_secrets_stays_public(load: "Load", tmp_path: Path) -> None:
    (tmp_path / "list.j2").write_text("- exec: {name: a, command: 'echo {{ facts.x }}'}")
    (declaration,) = load(DATA + "resources_template: list.j2", facts={"x": "y"}).declarations
    assert not declaration.properties.sensitive


def test_conflicting_definitions_do_not_show_a_secret(load: "Load") -> None:
    file = "file: {name: /x, owner: root, group: root, mode: '0600', content: '%s'}"
    with pytest.raises(ManifestError) as caught:
        load(f"{DATA}resources: [{{{file % '{{ data.token }}'}}}, {{{file % 'x'}}}]")
    assert "the two differ: content is (sensitive) here and (sensitive) there" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_urls_of_properties_are_shown_without_credentials(load: "Load") -> None:
    (declaration,) = load(
        f"""
        resources:
          - file: {{name: /x, owner: root, group: root, mode: "0600", source: "http://u:{SECRET}@h/x?{SECRET}"}}
        """
    ).declarations
    assert declaration.shown()["source"] == "http://***@h/x?***"


def test_lint_warns_of_secrets_on_command_lines(tmp_path: Path, execute: "Execute") -> None:
    (tmp_path / "manifest.yaml").write_text(
        DATA
        + """resources:
  - exec:
      - a: {command: "echo {{ data.token }}"}
      - b: {command: echo, environment: ["P={{ data.token }}"]}
  - file:
      - /x:
          {ensure: absent, health_checks: [{command: "check {{ data.token }}"}]}
"""
    )
    status, output = execute("lint", str(tmp_path))
    assert status == 0
    detail = "contains a secret, which the process list shows while the command runs"
    assert f"manifest.yaml:6:13: warning: exec#a: command {detail}" in output
    assert f"file#/x: health_checks {detail}" in output
    assert "exec#b" not in output
    assert "2 resources" not in output
    assert "3 resources, 0 errors, 2 warnings" in output


# --- templates ----------------------------------------------------------------------------------------------


def rendered(engine: str, text: str, tmp_path: Path, **options: Any) -> str:
    """Return the error of a template whose data contain a secret."""
    scope = Scope({}, {"token": Secret(SECRET), "name": "web"}, {})
    with pytest.raises(ResourceError) as caught:
        render_text("a.tmpl", text, engine, scope, BundleFiles.of(tmp_path), **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("engine", "text", "column"),
    [
        ("jet", "x [[ file(data.token) ]]", 6),
        ("go", "x {{ fail .data.token }}", 6),
        ("jinja", "x {{ data.token + 1 }}", 6),
    ],
)
def test_failed_template_with_secrets_names_the_location(
    engine: str, text: str, column: int, tmp_path: Path
) -> None:
    output = rendered(engine, text, tmp_path)
    assert output.startswith(f"a.tmpl:1:{column}: fails")
    assert text in output
    assert SECRET not in output


@pytest.mark.parametrize(("engine", "text"), [("jet", "[[ if ]]"), ("go", "{{ if }}"), ("jinja", "{% if %}")])
def test_unparsable_template_states_the_reason(engine: str, text: str, tmp_path: Path) -> None:
    assert "not shown" not in rendered(engine, text, tmp_path)


def test_a_template_of_a_sensitive_file_quotes_no_value_at_all(tmp_path: Path) -> None:
    text = "{{ data.name | bool }}"
    assert "'web' is neither true nor false" in rendered("jinja", text, tmp_path)
    assert "web" not in rendered("jinja", text, tmp_path, sensitive=True)


def test_secret_name_is_compared_by_value(tmp_path: Path) -> None:
    scope = Scope({}, {}, {}).with_names({"token": Secret(SECRET)})
    result = render_text(
        "a", "{{ 'same' if token == '" + SECRET + "' }}", "jinja", scope, BundleFiles.of(tmp_path)
    )
    assert result == ("same", True)


# --- commands -----------------------------------------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle whose manifest marks a key of its tree as sensitive."""
    files = {
        "manifest.yaml": f"{DATA}  # @sensitive\n  own: {SECRET}\n  made: 'x{{{{ data.own }}}}'\nresources: []",
        "hiera.yaml": "{version: 5, hierarchy: [{name: all, path: all.yaml}]}",
        "data/all.yaml": f"token: {SECRET}\nplain: web\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.mark.parametrize("more", [(), ("--format", "json"), ("--explain",)])
def test_sensitive_manifest_value_is_secret_in_lookup(
    bundle: Path, execute: "Execute", more: tuple[str, ...]
) -> None:
    status, output = execute("hiera", "lookup", "token", "own", "made", "plain", str(bundle), *more)
    assert status == 0
    assert SECRET not in output
    assert "web" in output
    status, output = execute("hiera", "resolve", str(bundle), "--format", "json")
    assert json.loads(output) == {"made": VALUE_MASK, "own": VALUE_MASK, "plain": "web", "token": VALUE_MASK}


def test_a_mistyped_option_is_refused_without_its_value() -> None:
    archive = find_type("archive")
    assert archive is not None
    values = {"check": (), "control_if": None, "control_unless": None, "property_headers": (SECRET,)}
    with pytest.raises(UsageError, match=r"^--headers is given otherwise, expected KEY=VALUE$"):
        properties_from(archive, values)


@pytest.mark.parametrize("pair", [f"token {SECRET}", f"={SECRET}", f"token=[{SECRET}", f"token=*{SECRET}"])
def test_a_mistyped_set_is_refused_without_its_value(pair: str) -> None:
    with pytest.raises(UsageError) as caught:
        list(assigned([pair]))
    assert SECRET not in str(caught.value)


def test_typed_url_credentials_are_masked_in_errors(execute: "Execute") -> None:
    status, output = execute("apply", f"https://me:{SECRET}@www.example.org/web.tar.gz?{SECRET}")
    assert status == 13
    message = "is a URL, expected a file or directory of this machine"
    hint = "download it first, or follow its site with `puller run`"
    assert output == f"puller: https://***@www.example.org/web.tar.gz?***: {message}; {hint}\n"
