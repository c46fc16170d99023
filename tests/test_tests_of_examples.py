"""The tests of the example bundles: they pass, and fail for a broken copy."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
BUNDLES = sorted(
    str(path.parent.relative_to(EXAMPLES))
    for path in (
        *EXAMPLES.glob("configurations/*/manifest.yaml"),
        *EXAMPLES.glob("site/bundles/*/manifest.yaml"),
    )
)
BREAKS = {
    "configurations/alertmanager": (
        "manifest.yaml",
        '{{ data.name }}.tar.gz"\n  directory',
        '{{ data.nam }}"\n  directory',
    ),
    "configurations/docker": ("manifest.yaml", "'present' if data.proxy", "'present' if data.users"),
    "configurations/firewall": ("templates/nftables.conf.j2", "ipaddr('subnet')", "ipaddr('address')"),
    "configurations/first-boot": ("manifest.yaml", "entry.content | b64decode", "entry.content | b64encode"),
    "configurations/haproxy": ("templates/haproxy.cfg.j2", "templates/backends.j2", "templates/global.j2"),
    "configurations/kubernetes-node": ("manifest.yaml", "held: true", "held: false"),
    "configurations/log-rotation": ("manifest.yaml", "default(true) else", "default(false) else"),
    "configurations/memcached": ("instance.yaml", "listen: 127.0.0.1", "listen: 0.0.0.0"),
    "configurations/postfix": ("templates/map.j2", "dictsort", "dictsort(reverse=true)"),
    "configurations/postgresql": ("manifest.yaml", "postgresql-{{ data.version }}", "postgresql-15"),
    "configurations/workstation": ("roles/base.yaml", "'suspend' if", "'suspend' if not"),
    "configurations/local-users": ("templates/sudoers.j2", "{% for", "{% fro"),
    "configurations/nginx": ("manifest.yaml", "worker_connections: 768", "worker_connection: 768"),
    "configurations/node-exporter": ("manifest.yaml", "service: {template", "service: {ensure: absent} #"),
    "configurations/ntp": ("templates/ntp.conf.j2", "data.servers", "data.server"),
    "configurations/ntp-tree": ("templates/ntp.conf.j2", "hiera(", "hirea("),
    "configurations/os-hardening": ("manifest.yaml", "auditd: false", "auditd: true"),
    "configurations/security": ("manifest.yaml", 'PermitRootLogin: "no"', 'PermitRootLogin: "yes"'),
    "configurations/ssh-hardening": ("manifest.yaml", 'permit_root_login: "no"', 'permit_root_login: "yes"'),
    "configurations/staff-vm": ("classes/staff_vm.yaml", "STAFF_VM=1", "STAFF_VM=2"),
    "site/bundles/base": ("templates/motd.j2", "facts.", "fact."),
    "site/bundles/shop": ("templates/index.html.j2", "{{ site.title }}", "Shop"),
}
"""A file of each bundle, a text in it, and a mistake that replaces the text."""

Execute = Callable[..., tuple[int, str]]


@pytest.mark.parametrize("name", BUNDLES)
def test_each_has_tests_that_pass(execute: Execute, name: str) -> None:
    status, output = execute("test", str(EXAMPLES / name))
    assert status == 0, output


@pytest.mark.parametrize("name", BUNDLES)
@pytest.mark.representatives(8)
def test_a_copy_that_is_broken_fails(execute: Execute, tmp_path: Path, name: str) -> None:
    copied = Path(shutil.copytree(EXAMPLES, tmp_path / "examples")) / name
    file, before, after = BREAKS[name]
    text = (copied / file).read_text()
    assert before in text
    (copied / file).write_text(text.replace(before, after))
    status, output = execute("test", str(copied))
    assert status == 1, output
    assert "FAIL" in output
