"""Bundles that work on no host: lint rejects them with place and message, and they cannot be published."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.archive.pack import build_bundle

if TYPE_CHECKING:
    from tests.support.stories import Execute

IDS = 'owner: root, group: root, mode: "0644"'
FILE = f"resources:\n  - file: [{{/etc/app.conf: {{PROPERTIES, {IDS}}}}}]\n"
SCAFFOLD = "resources:\n  - scaffold: [{/etc/app: {source: templates/app, engine: ENGINE}}]\n"
EXEC = "resources:\n  - exec:\n      - COMMAND\n"
HEALTH = "resources:\n  - exec: [{'true': {health_checks: [{command: COMMAND}]}}]\n"
OVERRIDES = "data: {a: 1}\nhierarchy: {order: ORDER}\noverrides: {SECTION: {a: 2}}\n"
OVERRIDES += FILE.replace("PROPERTIES", 'content: "{{ data.a }}"')

Broken = tuple[dict[str, str], str]
BROKEN: dict[str, Broken] = {
    "a template of Jinja2 with an error of syntax": (
        {"manifest.yaml": FILE.replace("PROPERTIES", "template: app.j2"), "app.j2": "one\n{% if data.x %}\n"},
        "web/app.j2:2",
    ),
    "a template of Go with an error of syntax": (
        {"manifest.yaml": FILE.replace("PROPERTIES", "template: app.tmpl"), "app.tmpl": "one\n{{ if }}{{ end }}\n"},
        "web/app.tmpl:2",
    ),
    "a template of Jet with an error of syntax": (
        {"manifest.yaml": FILE.replace("PROPERTIES", "template: app.jet"), "app.jet": "one\n[[ if ]][[ end ]]\n"},
        "web/app.jet:2",
    ),
    "a template that nothing of the facts at hand leads to": (
        {
            "manifest.yaml": FILE.replace("PROPERTIES", 'template: "t/{{ facts.os.family }}.j2"'),
            "t/Debian.j2": "fine\n",
            "t/RedHat.j2": "{{ 1 +\n",
        },
        "web/t/RedHat.j2:1",
    ),
    "a file of a scaffold with an error of syntax": (
        {"manifest.yaml": SCAFFOLD.replace("ENGINE", "jinja"), "templates/app/a/conf": "{{ oh( }}\n"},
        "web/templates/app/a/conf:1",
    ),
    "a partial with an error of syntax": (
        {
            "manifest.yaml": SCAFFOLD.replace("ENGINE", "go"),
            "templates/app/conf": "fine\n",
            "templates/app/_partials/one": "{{ if }}\n",
        },
        "web/templates/app/_partials/one:1",
    ),
    "a template with an unknown name": (
        {
            "manifest.yaml": "data: {port: 80}\n" + FILE.replace("PROPERTIES", "template: app.j2"),
            "app.j2": "{{ data.port }}\n{{ data.prt }}\n",
        },
        "web/app.j2:2:9: error: data has no 'prt' on any host (did you mean 'port'?)",
    ),
    "a template with an unknown filter": (
        {"manifest.yaml": FILE.replace("PROPERTIES", "template: app.j2"), "app.j2": "{{ 'a' | uper }}\n"},
        "web/app.j2:1",
    ),
    "an include that is missing": (
        {"manifest.yaml": FILE.replace("PROPERTIES", "template: app.j2"), "app.j2": "\n{% include 'no.j2' %}\n"},
        "web/app.j2:2: error: no.j2 is included, but missing in the bundle",
    ),
    "a reference to a type that there is not": (
        {"manifest.yaml": FILE.replace("PROPERTIES", "content: a, require: [packages#nginx]")},
        "require names packages#nginx, and the type 'packages' is unknown",
    ),
    "a secret in the name of a resource": (
        {"manifest.yaml": "data:\n  # @sensitive\n  key: abc\n" + EXEC.replace("COMMAND", "'run {{ data.key }}'")},
        "name contains a secret, and messages always show this property",
    ),
    "a missing source": (
        {"manifest.yaml": FILE.replace("PROPERTIES", "source: files/app.conf"), "files/app.cnf": "x\n"},
        "web/manifest.yaml:2:",
    ),
    "a missing source of which only a part is an expression": (
        {"manifest.yaml": FILE.replace("PROPERTIES", 'source: "files/{{ facts.os.family }}.conf"')},
        "matches no file of the bundle",
    ),
    "a missing template": (
        {"manifest.yaml": FILE.replace("PROPERTIES", "template: templates/app.j2")},
        "template templates/app.j2 is missing in the bundle",
    ),
    "a missing directory of a scaffold": (
        {"manifest.yaml": SCAFFOLD.replace("ENGINE", "jet")},
        "source templates/app is missing in the bundle",
    ),
    "a directory of a scaffold that is a file": (
        {"manifest.yaml": SCAFFOLD.replace("ENGINE", "jet"), "templates/app": "x\n"},
        "source templates/app is a file, expected a directory",
    ),
    "a source that leads out of the bundle": (
        {"manifest.yaml": FILE.replace("PROPERTIES", "source: ../secret")},
        "../secret is outside of the bundle",
    ),
    "a control that is no expression": (
        {"manifest.yaml": FILE.replace("PROPERTIES", 'content: a, control: {if: "facts.os.family == "}')},
        "web/manifest.yaml:2:",
    ),
    "a health check with an open quote": (
        {"manifest.yaml": HEALTH.replace("COMMAND", '''"sh -c 'exit 0"''')},
        "has a single quote that is not closed",
    ),
    "an override that no order can reach": (
        {
            "manifest.yaml": OVERRIDES.replace("ORDER", "[common]").replace("SECTION", "'comon'"),
        },
        "no entry of hierarchy.order produces 'comon', so no host uses it (did you mean 'common'?)",
    ),
    "an override that no expression of the order can reach": (
        {
            "manifest.yaml": OVERRIDES.replace("ORDER", "['host:{{ facts.networking.fqdn }}']").replace(
                "SECTION", "'hots:web01'"
            ),
        },
        "produces 'hots:web01'",
    ),
    "a redirection without a shell": (
        {"manifest.yaml": EXEC.replace("COMMAND", "echo hi > /tmp/x")},
        "web/manifest.yaml:3:9: error: > is an argument of echo, because no shell runs the command. A shell",
    ),
    "a pipe without a shell": (
        {"manifest.yaml": EXEC.replace("COMMAND", "'a: {command: cat /etc/motd | wc}'").replace("'", "")},
        "| is an argument of cat",
    ),
    "a built-in of the shell": ({"manifest.yaml": EXEC.replace("COMMAND", "cd /srv")}, "cd is a word of the shell"),
    "a key of a repository that is missing": (
        {
            "manifest.yaml": "resources:\n  - repository:\n      - web: {url: 'https://example.com', suites: [a], "
            "components: [main], key: keys/web.asc}\n"
        },
        "key keys/web.asc is missing in the bundle",
    ),
}  # fmt: skip


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Return a function that writes the bundle ``web`` in the working directory."""
    monkeypatch.chdir(tmp_path)

    def make(files: dict[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / "web" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return make


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_it_is_refused_by_lint_with_its_place(
    execute: Execute, write: Callable[[dict[str, str]], None], broken: Broken
) -> None:
    files, words = broken
    write(files)
    status, output = execute("lint", "web")
    assert (status, words in output) == (1, True), output
    assert "internal" not in output


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.representatives(10)
def test_it_is_not_published(
    execute: Execute, write: Callable[[dict[str, str]], None], new_site: Path, broken: Broken
) -> None:
    files, words = broken
    write(files)
    shutil.copytree(new_site, "site")
    status, output = execute("site", "publish", "site", "web", "--version", "1.0.0")
    assert (status != 0, words.replace(": error", "") in output) == (True, True), output
    assert "1.0.0" not in execute("site", "list", "site")[1]


FINE = {
    "quoted characters": EXEC.replace("COMMAND", """'grep "a|b" /etc/motd'"""),
    "an address with an ampersand": EXEC.replace("COMMAND", "curl http://localhost/?a=1&b=2"),
    "a version with a comparison": EXEC.replace("COMMAND", "pip install requests>=2.32"),
    "a shell of its own": EXEC.replace("COMMAND", "sh -c 'echo hi > /tmp/x'"),
    "the shell as provider": EXEC.replace("COMMAND", "'a': {command: 'echo hi > /tmp/x', provider: shell}"),
    "find with its own semicolon": EXEC.replace("COMMAND", "find /srv -name *.tmp -exec rm {} ;"),
    "a command that is an expression": EXEC.replace("COMMAND", "'a': {command: \"{{ 'echo > x' }}\"}"),
    "a source that is not needed": FILE.replace("PROPERTIES", "ensure: absent").replace(f", {IDS}", ""),
}


@pytest.mark.parametrize("manifest", FINE.values(), ids=FINE)
def test_valid_bundles_have_no_finding(
    execute: Execute, write: Callable[[dict[str, str]], None], manifest: str
) -> None:
    write({"manifest.yaml": manifest})
    status, output = execute("lint", "web", "--strict")
    assert (status, output.count("\n")) == (0, 1), output


SUSPICIOUS = {
    "a variable without a shell": (EXEC.replace("COMMAND", "echo $HOME"), "[shell-syntax]"),
    "a redirection within a word": (
        EXEC.replace("COMMAND", "echo hi>/tmp/x"),
        "> in hi>/tmp/x is not expanded",
    ),
    "a word that ends a command": (EXEC.replace("COMMAND", "ls; ls"), "[shell-syntax]"),
    "a key of data that nothing uses": (
        "data: {prot: 1}\nresources: [exec: ['true']]\n",
        "data.prot [unused-data]",
    ),
    "a key of an override that nothing uses": (
        OVERRIDES.replace("ORDER", "[default]").replace("{SECTION: {a: 2}}", "{default: {a: 2, aa: 3}}"),
        ": warning: the bundle does not use data.aa",
    ),
}


@pytest.mark.parametrize(("manifest", "words"), SUSPICIOUS.values(), ids=SUSPICIOUS)
def test_suspicious_constructs_are_warnings(
    execute: Execute, write: Callable[[dict[str, str]], None], manifest: str, words: str
) -> None:
    write({"manifest.yaml": manifest})
    status, output = execute("lint", "web")
    assert (status, words in output) == (0, True), output
    assert execute("lint", "web", "--strict")[0] == 1


def test_a_file_that_nothing_uses_is_a_warning(
    execute: Execute, write: Callable[[dict[str, str]], None]
) -> None:
    manifest = FILE.replace("PROPERTIES", "source: files/app.conf")
    write({"manifest.yaml": manifest, "files/app.conf": "a\n", "files/old.conf": "b\n", "README.md": "c\n"})
    _, output = execute("lint", "web")
    assert output.splitlines()[:-2] == [
        "web/files/old.conf: warning: the bundle does not use this file [unused-file]"
    ]


def test_a_template_that_is_no_text_is_refused(
    execute: Execute, write: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    write({"manifest.yaml": FILE.replace("PROPERTIES", "template: app.j2")})
    (tmp_path / "web/app.j2").write_bytes(b"caf\xe9\n")
    status, output = execute("lint", "web")
    assert (status, "web/app.j2: error: is not UTF-8 text, at byte 3 [template-syntax]" in output) == (
        1,
        True,
    )
    assert execute("bundle", "build", "web")[0] == 13


@pytest.mark.parametrize(
    "text", ["a: 1\n\tb: 2\n", "*a : 1\ndata: {}\n", "data: {a: [\n", "# @sensitive\n\tx: 1\n"]
)
def test_a_manifest_that_is_no_yaml_is_refused_in_words(
    execute: Execute, write: Callable[[dict[str, str]], None], text: str
) -> None:
    write({"manifest.yaml": f"# @sensitive\n{text}"})
    status, output = execute("lint", "web")
    assert (status, "[invalid-document]" in output, "bug in Puller" in output) == (1, True, False), output


def test_reference_to_another_bundle_is_a_warning_when_packed(
    execute: Execute, write: Callable[[dict[str, str]], None]
) -> None:
    manifest = FILE.replace("PROPERTIES", "content: a, require: [package#ngnix, package#tcpdump]")
    write({"manifest.yaml": f"{manifest}  - package: [nginx]\n"})
    status, output = execute("bundle", "build", "web")
    assert (status, "require names package#ngnix, which is not declared" in output) == (0, True), output
    assert "another bundle of the host" in output
    assert "tcpdump" not in output


def test_the_notation_of_another_tool_is_warned_of_in_templates(
    execute: Execute, write: Callable[[dict[str, str]], None]
) -> None:
    files = {"manifest.yaml": "data: {port: 1}\n" + FILE.replace("PROPERTIES", "template: app.j2")}
    write({**files, "app.j2": "${HOME} ${a[0]} ${data.port}\n{{ data.port }}\n"})
    status, output = execute("lint", "web")
    assert (status, output.count("warning:")) == (0, 1), output
    assert "web/app.j2:1:17: warning: ${data.port} is ordinary text" in output


def test_misspelt_puller_fact_is_a_warning(execute: Execute, write: Callable[[dict[str, str]], None]) -> None:
    write({"manifest.yaml": EXEC.replace("COMMAND", '"echo {{ facts.networkin.fqdn }}"')})
    output = execute("lint", "web", "--no-system-facts", "-v")[1]
    assert "did you mean 'networking'?) [misspelt-fact]" in output


def test_an_archive_is_linted_as_its_directory_is(
    execute: Execute, write: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    files, _ = BROKEN["a template with an unknown name"]
    write(files)
    build_bundle(tmp_path / "web", tmp_path / "web-1.0.0.tar.gz", name="web", version="1.0.0")
    status, output = execute("lint", "web-1.0.0.tar.gz")
    assert (status, "app.j2:2:9: error: data has no 'prt' on any host" in output) == (1, True), output


def test_single_file_manifest_owns_no_neighbours(
    execute: Execute, write: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    write({"motd.yaml": FILE.replace("PROPERTIES", 'content: "{{ data.text }}"'), "other": "x\n"})
    (tmp_path / "web/link").symlink_to("other")
    status, output = execute("lint", "web/motd.yaml", "--set", "text=a")
    assert (status, output) == (0, "web/motd.yaml: 1 resource, 0 errors, 0 warnings\n")
