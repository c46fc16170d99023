"""Facts of a bundle in all places with facts: expressions, templates of each engine, data, conditions."""

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puller.bundle_paths import BundleFiles
from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.explanation import Recorder, explain_resource
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError
from puller.facts.fact_tree import Facts, gather
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.reporting.report import Event
from puller.system.processes import StopRequests
from puller.templates.rendering import render_file

Lay = Callable[..., Path]
IDS = "owner: root, group: root, mode: '0644'"
OPENSSH = "#!/bin/sh\necho asked >> DIR/asked\necho version=9.2\n"
BROKEN = "#!/bin/sh\necho no sshd is here >&2\nexit 4\n"
FAILURE = "facts.d/openssh.sh: exit code 4: no sshd is here"


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """Return ``lay({name: text})``, which writes files of the bundle ``web``. Scripts in ``facts.d`` are executable."""

    def write(files: Mapping[str, str], bundle: str = "web") -> Path:
        for name, text in files.items():
            path = tmp_path / bundle / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).replace("DIR", str(tmp_path)).replace("IDS", IDS))
            path.chmod(0o755 if name.endswith(".sh") else 0o644)
        return tmp_path / bundle

    return write


def host() -> Facts:
    return gather(custom_directories=())


def load(bundle: Path, facts: Facts | None = None, **more: Any) -> Manifest:
    inputs = Inputs(host() if facts is None else facts, {}, **more)
    return load_manifest(bundle / "manifest.yaml", f"{bundle.name}/manifest.yaml", inputs)


def apply(manifest: Manifest, tmp_path: Path, *, noop: bool = False) -> dict[str, Event]:
    def fetch(url: str) -> bytes:
        raise AssertionError(f"{url} was fetched")

    pending = tmp_path / "owed.json"
    settings = Settings(noop=noop)
    applied = apply_catalog(
        manifest,
        settings,
        StopRequests(),
        PendingRefreshes(pending, "web", noop=settings.noop),
        state_directory=pending.parent,
        fetch=fetch,
    )
    return {event.name: event for event in applied.events}


def asked(tmp_path: Path) -> int:
    """Return how often the fact's script ran."""
    return len((tmp_path / "asked").read_text().splitlines()) if (tmp_path / "asked").exists() else 0


EVERYWHERE = {
    "manifest.yaml": """
        data: {version: "{{ facts.openssh.version }}"}
        hierarchy:
          order: ["v{{ facts.openssh.version }}"]
        overrides:
          v9.2: {level: nine}
        pre_message: "{{ facts.openssh.version }}"
        resources:
          - exec:
              - /bin/echo {{ facts.openssh.version }} {{ data.version }} {{ data.level }} {{ data.tree }}:
                  control: {if: facts.openssh.version == '9.2'}
          - file:
              - DIR/jinja: {template: x.j2, IDS}
              - DIR/jet: {template: x.jet, IDS}
              - DIR/go: {template: x.tmpl, IDS}
          - apply:
              - child.yaml: {}
    """,
    "child.yaml": "resources: [{exec: [{'/bin/echo child {{ facts.openssh.version }}': {}}]}]\n",
    "hiera.yaml": """
        version: 5
        defaults: {datadir: data, data_hash: yaml_data}
        hierarchy: [{name: ssh, path: "ssh-%{facts.openssh.version}.yaml"}]
    """,
    "data/ssh-9.2.yaml": "tree: of %{openssh.version}\n",
    "x.j2": "jinja {{ facts.openssh.version }}\n",
    "x.jet": "jet [[ facts.openssh.version ]]\n",
    "x.tmpl": "go {{ .facts.openssh.version }}\n",
    "facts.d/openssh.sh": OPENSSH,
}


@pytest.mark.root
@pytest.mark.parametrize("noop", [False, True])
def test_it_is_seen_wherever_facts_are_and_made_once(lay: Lay, tmp_path: Path, noop: bool) -> None:
    bundle, facts = lay(EVERYWHERE), host()
    manifest = load(bundle, facts)
    assert manifest.pre_message == "9.2"
    assert [d.properties.name for d in manifest.declarations if d.type.type_name == "exec"] == [
        "/bin/echo 9.2 9.2 nine of 9.2",
        "/bin/echo child 9.2",
    ]

    events = apply(manifest, tmp_path, noop=noop)
    assert {event.state.value for event in events.values()} == {"would change" if noop else "changed"}
    if not noop:
        output = [(tmp_path / name).read_text() for name in ("jinja", "jet", "go")]
        assert output == ["jinja 9.2\n", "jet 9.2\n", "go 9.2\n"]
    load(bundle, facts)  # a bundle on trial is read again for its health checks
    assert asked(tmp_path) == 1


def test_unused_facts_run_nothing(lay: Lay, tmp_path: Path) -> None:
    bundle = lay(
        {
            "manifest.yaml": "resources: [{exec: [{'/bin/echo {{ facts.kernel }}': {}}]}]\n",
            "facts.d/openssh.sh": OPENSSH,
        }
    )
    assert apply(load(bundle), tmp_path)["/bin/echo Linux"].state.value == "changed"
    assert asked(tmp_path) == 0


@pytest.mark.root
def test_fact_failure_is_a_failure_of_each_user(lay: Lay, tmp_path: Path) -> None:
    bundle = lay(
        {
            "manifest.yaml": """
                resources:
                  - exec:
                      - name: {command: "/bin/echo {{ facts.openssh.version }}"}
                      - default: {command: "/bin/echo {{ facts.openssh.version | default('none') }}"}
                      - whole: {command: "/bin/echo {{ facts.openssh | default({}) | to_json }}"}
                      - defined: {command: "/bin/echo {{ facts.openssh is defined }}"}
                      - get: {command: "/bin/echo {{ facts.get('openssh', 'none') }}"}
                      - item: {command: "/bin/echo {{ facts['openssh'] }}"}
                      - membership: {command: "/bin/echo {{ 'openssh' in facts }}"}
                      - lookup: {command: "/bin/echo {{ lookup('facts.openssh.version', 'none') }}"}
                      - condition: {command: /bin/echo, control: {if: facts.openssh.version is defined}}
                      - other: {command: "/bin/echo {{ facts.kernel }}"}
                  - file:
                      - DIR/jinja: {template: x.j2, IDS}
                      - DIR/jet: {template: x.jet, IDS}
                      - DIR/go: {template: x.tmpl, IDS}
            """,
            "x.j2": "{{ facts.openssh.version | default('none') }}\n",
            "x.jet": "[[ if isset(facts.openssh.version) ]]some[[ end ]]\n",
            "x.tmpl": '{{ with .facts.openssh }}{{ .version | default "none" }}{{ end }}\n',
            "facts.d/openssh.sh": BROKEN,
        }
    )
    events = apply(load(bundle), tmp_path)
    assert events.pop("other").state.value == "changed"
    assert {event.state.value for event in events.values()} == {"failed"}
    assert [name for name, event in events.items() if FAILURE not in str(event.errors)] == []
    assert not any((tmp_path / name).exists() for name in ("jinja", "jet", "go"))


@pytest.mark.parametrize(
    ("name", "text", "said", "times"),
    [
        ("x.jet", "[[ facts.kernel ]]", "Linux", 0),
        ("x.jet", "[[ isset(facts.openssh) ]]", "true", 1),
        ("x.jet", "[[ isset(facts.nothing) ]]", "false", 0),
        ("x.jet", "[[ facts.openssh.version ]]", "9.2", 1),
        ("x.jet", '[[ facts["openssh"]["version"] ]]', "9.2", 1),
        ("x.jet", '[[ lookup("facts.openssh.version", "none") ]]', "9.2", 1),
        ("x.jet", '[[ facts.openssh.version = "8" ]][[ facts.openssh.version ]]', "8", 1),
        ("x.jet", '[[ facts.openssh = "8" ]][[ facts.openssh ]]', "8", 0),
        (
            "x.jet",
            '[[ range k, v := facts ]][[ if k == "openssh" ]][[ v.version ]][[ end ]][[ end ]]',
            "9.2",
            1,
        ),
        ("x.tmpl", "{{ .facts.kernel }}", "Linux", 0),
        ("x.tmpl", "{{ .Facts.openssh.version }}", "9.2", 1),
        ("x.tmpl", '{{ index .facts "openssh" "version" }}', "9.2", 1),
        ("x.tmpl", '{{ hasKey .facts "openssh" }}', "true", 0),
        ("x.tmpl", '{{ get (get .facts "openssh") "version" }}', "9.2", 1),
        ("x.tmpl", '{{ dig "openssh" "version" "none" .facts }}', "9.2", 1),
        ("x.tmpl", '{{ (pick .facts "openssh") | toJson }}', '{"openssh":{"version":"9.2"}}', 1),
        ("x.tmpl", "{{ kindOf .facts }} {{ typeOf .facts }}", "map map[string]interface {}", 0),
        ("x.tmpl", '{{ contains "9.2" (toJson .facts) }}', "true", 1),
        ("x.tmpl", '{{ contains "9.2" (printf "%v" .facts) }}', "true", 1),
        ("x.tmpl", "{{ (deepCopy .facts).openssh.version }}", "9.2", 1),
        ("x.tmpl", "{{ (merge (dict) .facts).openssh.version }}", "9.2", 1),
        (
            "x.tmpl",
            '{{ range $k, $v := .facts }}{{ if eq $k "openssh" }}{{ $v.version }}{{ end }}{{ end }}',
            "9.2",
            1,
        ),
        ("x.tmpl", '{{ $_ := set .facts "openssh" "8" }}{{ .facts.openssh }}', "8", 0),
        ("x.tmpl", '{{ $_ := unset .facts "openssh" }}{{ hasKey .facts "openssh" }}', "false", 0),
    ],
)
def test_go_and_jet_templates_trigger_their_facts(
    lay: Lay, tmp_path: Path, name: str, text: str, said: str, times: int
) -> None:
    files = {"manifest.yaml": "resources: []\n", "facts.d/openssh.sh": OPENSSH}
    bundle = lay({**files, name: text})
    scope = load(bundle).scope
    engine = "jet" if name == "x.jet" else "go"
    assert render_file(str(bundle / name), engine, scope, BundleFiles.of(bundle)).text == said
    assert asked(tmp_path) == times


@pytest.mark.parametrize(
    "files",
    [
        {"manifest.yaml": "data: {v: '{{ facts.openssh.version }}'}\nresources: []\n"},
        {
            "manifest.yaml": """
                data: {v: 1}
                hierarchy: {order: ["v{{ facts.openssh.version }}"]}
                resources: []
            """
        },
        {
            "manifest.yaml": "resources_template: list.j2\n",
            "list.j2": "{% if facts.openssh.version is defined %}[]{% endif %}",
        },
        {
            "manifest.yaml": "resources: [{exec: [{'/bin/true': {}}]}]\n",
            "hiera.yaml": EVERYWHERE["hiera.yaml"],
        },
    ],
    ids=["data", "hierarchy", "list", "tree"],
)
def test_data_and_lists_that_ask_in_vain_refuse_the_manifest(lay: Lay, files: Mapping[str, str]) -> None:
    bundle = lay({**files, "facts.d/openssh.sh": BROKEN})
    with pytest.raises(ManifestError) as caught:
        load(bundle)
    assert FAILURE in str(caught.value)


def test_invalid_fact_files_are_refused_together(lay: Lay) -> None:
    bundle = lay(
        {
            "manifest.yaml": "resources: [{file: [{/x: {ensure: nope}}]}]\n",
            "facts.d/os.yaml": "family: Own\n",
            "facts.d/open-ssh.sh": OPENSSH,
        }
    )
    with pytest.raises(ManifestError) as caught:
        load(bundle)
    places = [problem.split(": ")[0] for problem in map(str, caught.value.problems)]
    assert places == ["web/manifest.yaml:1", "facts.d/open-ssh.sh", "facts.d/os.yaml"]


def test_bundles_see_their_own_facts(lay: Lay) -> None:
    text = "resources: [{exec: [{'/bin/echo {{ facts.role.name }}': {}}]}]\n"
    web = lay({"manifest.yaml": text, "facts.d/role.txt": "name=web\n"})
    db = lay({"manifest.yaml": text, "facts.d/role.yaml": "name: db\n"}, "db")
    facts = host()
    names = [load(bundle, facts).declarations[0].properties.name for bundle in (web, db)]
    assert names == ["/bin/echo web", "/bin/echo db"]
    with pytest.raises(ManifestError, match="unknown key 'role' in facts"):
        load(lay({"manifest.yaml": text}, "none"), facts)


def test_explain_says_that_a_fact_of_the_bundle_was_used(lay: Lay, tmp_path: Path) -> None:
    bundle = lay(
        {
            "manifest.yaml": "resources: [{exec: [{one: {command: '/bin/echo {{ facts.openssh.version }}'}}]}]\n",
            "facts.d/openssh.sh": OPENSSH,
        }
    )
    recorder = Recorder()
    inputs = msgspec.structs.replace(Inputs(host(), {}), watch=recorder.watch)
    manifest = load_manifest(bundle / "manifest.yaml", "web/manifest.yaml", inputs)
    (result,) = explain_resource(manifest, "exec#one", recorder, None)
    assert "9.2" in str(result)
    assert "openssh" in str(result)
    assert asked(tmp_path) == 1
