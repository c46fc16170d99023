"""The files of kernel_module, read by the real modprobe and systemd in a booted Debian.

A container cannot load modules: a simulated kernel tests that
(``tests/puller/resources/kernel/test_kernel_module.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

MANIFEST = """\
resources:
  - package: [{kmod: {}}]
  - kernel_module:
      - dummy: {options: {numdummies: 2}}
      - foo-bar: {options: ['text="a b"', 'list=1,2']}
      - cramfs: {ensure: blacklisted}
      - freevxfs: {ensure: blacklisted}
      - hfs: {ensure: absent}
"""
LOADED = "resources: [{kernel_module: {name: dummy, ensure: loaded}}]\n"


def test_written_files_work_with_modprobe_and_systemd(debian: Machine) -> None:
    (debian.root / "root/manifest.yaml").write_text(MANIFEST)
    apply = ("puller", "apply", "/root/manifest.yaml", "-v")
    dry = debian.run(*apply, "--noop").stdout
    assert dry.count("Would have written /etc/") == 4, dry
    debian.run("apt-get", "-qq", "update")
    done = debian.run(*apply)
    assert "6 resources, 1 stable, 5 changed" in done.stdout, done.stdout
    assert "6 resources, 6 stable" in debian.run(*apply).stdout
    configured = {line.strip() for line in debian.run("modprobe", "--showconfig").stdout.splitlines()}
    assert configured >= {
        "options dummy numdummies=2",
        'options foo_bar text="a b" list=1,2',
        "blacklist cramfs",
        "install cramfs /bin/false",
        "blacklist freevxfs",
        "install freevxfs /bin/false",
    }
    assert not [line for line in configured if " hfs" in line]
    named = debian.run("systemd-analyze", "cat-config", "modules-load.d", check=False).stdout
    lines = {line for line in named.splitlines() if line and not line.startswith("#")}
    assert lines >= {"dummy", "foo_bar"}
    assert lines.isdisjoint({"cramfs", "hfs"})


def test_in_a_container_loaded_is_refused_and_nothing_is_written(debian: Machine) -> None:
    (debian.root / "root/manifest.yaml").write_text(LOADED)
    for options in (("--noop",), ()):
        ended = debian.run("puller", "apply", "/root/manifest.yaml", *options, check=False)
        assert ended.returncode == 4
        assert "no /proc/modules, as in a container" in ended.stdout
    assert not (debian.root / "etc/modules-load.d/dummy.conf").exists()
