"""Properties of a resource that is absent or excluded by ``control`` are not evaluated."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from puller.errors import ManifestError
from puller.manifest.manifest import Manifest

if TYPE_CHECKING:
    from tests.support.stories import Execute

Load = Callable[..., Manifest]
SWITCH = "\"{{ 'present' if facts.on else 'absent' }}\""
PROPERTIES = {
    "file content": 'file: [{/x: {ENSURE, content: "{{ data.text }}", owner: root, group: root, mode: "0644"}}]',
    "file source": 'file: [{/x: {ENSURE, source: "{{ data.path }}", owner: root, group: root, mode: "0644"}}]',
    "file template": 'file: [{/x: {ENSURE, template: "{{ data.path }}", validate: "true {}", owner: root, group: root, '
    'mode: "0644"}}]',
    "file of TinyCM": 'file: [{/x: {ENSURE, contents: "{{ data.text }}", type: constant, owner: a, group: b, '
    'mode: "0644"}}]',
    "kernel_module": 'kernel_module: [{br_netfilter: {ENSURE, options: ["a={{ data.text }}"]}}]',
    "block": 'block: [{x: {ENSURE, path: /x, content: "{{ data.text }}"}}]',
    "setting": 'setting: [{x: {ENSURE, path: /x.ini, format: ini, section: a, key: b, value: "{{ data.text }}"}}]',
    "cron": 'cron: [{x: {ENSURE, schedule: "0 1 * * *", command: "{{ data.text }}"}}]',
    "sysctl": 'sysctl: [{vm.swappiness: {ENSURE, value: "{{ data.number }}"}}]',
    "link": 'link: [{/x: {ENSURE, target: "{{ data.path }}"}}]',
    "user": 'user: [{x: {ENSURE, groups: ["{{ data.text }}"], comment: "{{ data.text }}"}}]',
}
DATA = "data: {text: abc, path: manifest.yaml, number: 1}\n"


@pytest.mark.parametrize("written", PROPERTIES.values(), ids=PROPERTIES)
def test_an_absent_resource_may_have_a_content(load: Load, written: str) -> None:
    text = "resources:\n  - " + written.replace("ENSURE", f"ensure: {SWITCH}")
    (off,) = load(text, facts={"on": False}).declarations
    assert (off.failures, off.properties.ensure) == ((), "absent")
    (missing,) = load(text, facts={"on": True}).declarations
    assert "unknown key" in str(missing.failures[0])
    (on,) = load(DATA + text, facts={"on": True}).declarations
    assert (on.failures, on.properties.ensure) == ((), "present")
    (static,) = load(text.replace(SWITCH, "absent"), facts={}).declarations
    assert static.failures == ()


def test_a_tree_may_be_a_directory_or_absent(load: Load) -> None:
    text = """
    resources:
      - file:
          - /srv/app:
              ensure: "{{ 'directory' if facts.on else 'absent' }}"
              recurse: true
              purge: true
              force: true
              owner: root
              group: root
              mode: "0755"
    """
    assert load(text, facts={"on": True}).declarations[0].shown()["purge"]
    (off,) = load(text, facts={"on": False}).declarations
    assert off.failures == ()
    assert {"purge", "force"} & off.shown().keys() == {"force"}


def test_a_kernel_module_may_be_loaded_or_blacklisted(load: Load) -> None:
    text = """
    resources:
      - kernel_module: [{floppy: {ensure: "{{ 'loaded' if facts.on else 'blacklisted' }}", options: [a=1]}}]
    """
    assert load(text, facts={"on": True}).declarations[0].shown().get("options", ()) == ("a=1",)
    assert load(text, facts={"on": False}).declarations[0].shown().get("options", ()) == ()


def test_the_name_of_a_left_out_resource_is_not_needed(load: Load) -> None:
    text = """
    resources:
      - file: [{"{{ data.dir }}/x": {alias: conf, ensure: absent, control: {if: "'dir' in data"}}}]
      - exec: [{"true": {subscribe: [file#conf], require: [file#conf]}}]
    """
    assert [declaration.type.type_name for declaration in load(text).declarations] == ["exec"]
    assert len(load(text, sources=({"dir": "/srv"},)).declarations) == 2
    with pytest.raises(ManifestError, match="unknown key 'dir' in data"):
        load(text.replace("'dir' in data", "true"))


def test_an_absent_file_is_removed_on_the_machine(tmp_path: Path, execute: Execute) -> None:
    path = tmp_path / "target"
    manifest = f"""
data: {{enabled: true}}
resources:
  - file:
      - {path}:
          ensure: "{{{{ 'present' if data.enabled else 'absent' }}}}"
          content: "{{{{ data.text }}}}"
          owner: "{os.geteuid()}"
          group: "{os.getegid()}"
          mode: "0644"
"""
    (tmp_path / "manifest.yaml").write_text(manifest)
    assert execute("apply", str(tmp_path), "--set", "text=abc")[0] == 0
    assert path.read_text() == "abc"
    assert execute("apply", str(tmp_path), "--set", "enabled=false", "--noop")[0] == 0
    assert path.exists()
    for _ in range(2):
        assert execute("apply", str(tmp_path), "--set", "enabled=false")[0] == 0
        assert not path.exists()
