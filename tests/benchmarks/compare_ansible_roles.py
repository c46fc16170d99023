"""Compare the templates of public Ansible roles as Puller and as Ansible render them.

    python tests/benchmarks/compare_ansible_roles.py ROLES --ansible VENV/bin/python

``ROLES`` is a directory with checkouts of roles and collections, which do not belong to this project. ``--ansible``
names a Python that has ansible-core. Each template is rendered with the defaults and variables of its role and one
fixed set of facts. Ansible resolves the variables for both sides, so the numbers describe templates only.

The output has the number of templates by outcome. ``--list OUTCOME`` shows the templates of an outcome, with the first
differing line or the error:

* ``same``: both render the same bytes.
* ``different``: both render, and the bytes differ.
* ``refused``: only Ansible renders.
* ``accepted``: only Puller renders.
* ``neither``: both fail, usually because a variable of a task is missing.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hiera.errors import HieraError
from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError
from puller.templates.jinja import JinjaEngine
from puller.templates.template_errors import TemplateError

FACTS = {
    "ansible_architecture": "x86_64",
    "ansible_default_ipv4": {"address": "192.0.2.7", "interface": "eth0", "gateway": "192.0.2.1"},
    "ansible_distribution": "Debian",
    "ansible_distribution_major_version": "12",
    "ansible_distribution_release": "bookworm",
    "ansible_distribution_version": "12.11",
    "ansible_date_time": {"date": "2026-01-02", "iso8601": "2026-01-02T03:04:05Z", "year": "2026"},
    "ansible_dns": {"nameservers": ["192.0.2.1"], "search": ["example.com"]},
    "ansible_domain": "example.com",
    "ansible_default_ipv6": {},
    "ansible_env": {"HOME": "/root", "PATH": "/usr/bin:/bin"},
    "ansible_fqdn": "web01.example.com",
    "ansible_hostname": "web01",
    "ansible_managed": "Ansible managed",
    "ansible_memtotal_mb": 2048,
    "ansible_nodename": "web01",
    "ansible_mounts": [{"mount": "/", "device": "/dev/vda1", "fstype": "ext4", "options": "rw"}],
    "ansible_os_family": "Debian",
    "ansible_packages": {},
    "ansible_pkg_mgr": "apt",
    "ansible_processor_cores": 2,
    "ansible_processor_vcpus": 2,
    "ansible_python_version": "3.11.2",
    "ansible_service_mgr": "systemd",
    "ansible_system": "Linux",
    "inventory_hostname": "web01",
    "inventory_hostname_short": "web01",
}

# Runs in the Python of Ansible: reads roles from standard input, and writes results to standard output.
ANSIBLE_SIDE = r"""
import json, os, sys
from pathlib import Path
os.environ["ANSIBLE_NOCOLOR"] = "1"
import yaml
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([])
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

def trusted(value):
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: trusted(item) for key, item in value.items()}
    return [trusted(item) for item in value] if isinstance(value, list) else value

def plain(value):
    return json.loads(json.dumps(value))

loader, request, results = DataLoader(), json.load(sys.stdin), []
for role in request["roles"]:
    name = Path(role["directory"]).name
    variables = {**role["variables"], **request["facts"], "ansible_role_name": name, "role_name": name}
    variables["ansible_facts"] = {name.removeprefix("ansible_"): fact for name, fact in request["facts"].items()}
    templar, resolved = Templar(loader=loader, variables=trusted(variables)), {}
    for name in variables:
        try:
            resolved[name] = plain(templar.evaluate_expression(trust_as_template(name)))
        except Exception:
            pass
    texts = {}
    for path in role["templates"]:
        search = [str(Path(path).parent), role["directory"] + "/templates"]
        try:
            text = trust_as_template(Path(path).read_text())
            engine = Templar(loader=loader, variables=trusted(resolved))
            engine = engine.copy_with_new_env(searchpath=search, available_variables=trusted(resolved))
            rendered = engine.template(text, escape_backslashes=False, overrides={"trim_blocks": True})
            texts[path] = {"text": "" if rendered is None else str(rendered)}
        except Exception as error:
            texts[path] = {"error": str(error)[:300]}
    results.append({"resolved": resolved, "texts": texts})
json.dump(results, sys.stdout)
"""


class Role(NamedTuple):
    """A role: its directory, variables and templates."""

    directory: Path
    variables: Mapping[str, Any]
    templates: list[Path]


class Outcome(NamedTuple):
    """The outcome of a template, with the first difference or the error."""

    kind: str
    template: Path
    detail: str


def find_roles(root: Path) -> Iterator[Role]:
    """Yield the roles below a directory that have templates."""
    import yaml

    for directory in sorted({path.parent for path in root.rglob("templates") if path.is_dir()}):
        templates = sorted(path for path in (directory / "templates").rglob("*.j2") if path.is_file())
        variables: dict[str, Any] = {}
        for name in ("defaults", "vars"):
            files = [directory / name / "main.yml", directory / name / "main.yaml"]
            files += sorted((directory / name / "main").glob("*.y*ml"))
            if name == "vars":
                files.append(directory / name / "Debian.yml")
            for file in files:
                try:
                    variables |= yaml.safe_load(file.read_text()) or {}
                except (OSError, yaml.YAMLError, TypeError, ValueError):
                    continue
        if templates:
            yield Role(directory, json.loads(json.dumps(variables, default=str)), templates)


def render_with_ansible(roles: list[Role], python: str) -> list[dict[str, Any]]:
    """Return the resolved variables and the rendered templates of each role."""
    request = {
        "facts": FACTS,
        "roles": [
            {
                "directory": str(role.directory),
                "variables": role.variables,
                "templates": [str(path) for path in role.templates],
            }
            for role in roles
        ],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(ANSIBLE_SIDE)
        script.flush()
        done = subprocess.run(
            [python, script.name], input=json.dumps(request), capture_output=True, text=True, check=True
        )
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


def render_with_puller(role: Role, template: Path, variables: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the rendered text, or ``None`` and the error."""
    scope = Scope({}).with_names(variables)
    engine = JinjaEngine(root=BundleFiles.of(role.directory / "templates"))
    try:
        name = str(template.relative_to(role.directory / "templates"))
        return engine.render(name, template.read_text(), scope), ""
    except (TemplateError, HieraError, ResourceError, UnicodeDecodeError) as error:
        return None, str(error).splitlines()[0]


def compare(role: Role, template: Path, ours: tuple[str | None, str], theirs: Mapping[str, str]) -> Outcome:
    """Return the outcome of one template."""
    (text, error), expected = ours, theirs.get("text")
    relative = template.relative_to(role.directory.parent)
    if text is None or expected is None:
        kind = "neither" if text is None and expected is None else "refused" if text is None else "accepted"
        detail = error if kind == "refused" else theirs.get("error", "")
        return Outcome(kind, relative, detail)
    if text == expected:
        return Outcome("same", relative, "")
    pairs = zip([*text.splitlines(), ""], [*expected.splitlines(), ""], strict=False)
    difference = next(((our, their) for our, their in pairs if our != their), ("", ""))
    return Outcome("different", relative, f"{difference[0]!r}, Ansible {difference[1]!r}")


def main() -> int:
    """Print the number of templates by outcome."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("roles", type=Path)
    parser.add_argument("--ansible", required=True, help="a Python that has ansible-core")
    parser.add_argument("--list", action="append", default=[], metavar="OUTCOME")
    options = parser.parse_args()
    roles = list(find_roles(options.roles))
    outcomes = []
    for role, result in zip(roles, render_with_ansible(roles, options.ansible), strict=True):
        for template in role.templates:
            ours = render_with_puller(role, template, result["resolved"])
            outcomes.append(compare(role, template, ours, result["texts"][str(template)]))
    counts = Counter(outcome.kind for outcome in outcomes)
    rendered = counts["same"] + counts["different"] + counts["refused"]
    print(f"{len(roles)} roles, {len(outcomes)} templates, {rendered} that Ansible renders")
    for kind in ("same", "different", "refused", "accepted", "neither"):
        print(f"{kind:10} {counts[kind]:5}")
    for outcome in outcomes:
        if outcome.kind in options.list:
            print(f"{outcome.kind}: {outcome.template}: {outcome.detail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
