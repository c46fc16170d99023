"""The state that only runs of root write, recorded on a booted Debian for the tests of later versions.

    python -m tests.puller.formats.record_root_formats [--version VERSION] [--again] [--tree DIRECTORY]

The archive ``root/VERSION.tar.xz`` has the state directory, the site with its keys, the configuration, and the files
that the resources changed: kernel parameters, a masked service, an alternative, a group, and a pending reboot.
``--tree`` names a Debian with this version of Puller. Without it, the program makes one (root, mmdebstrap).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import lzma
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from puller.version import __version__
from tests.puller.formats.record_formats import CASES
from tests.support.machines import copied, make_bare, make_debian, make_wheel, powered_on

if TYPE_CHECKING:
    from tests.support.machines import Machine

ROOT_CASES = CASES / "root"
MANIFEST = """\
removed: absent
resources:
  - file:
      - defaults: {owner: root, group: root, mode: "0755"}
      - /opt/tool: {ensure: directory}
      - /opt/tool/pick: {content: "#!/bin/sh\\necho VERSION\\n"}
  - sysctl:
      - net.ipv4.ip_forward: {value: 1, path: /etc/sysctl.d/95-recorded.conf}
  - service:
      - never-wanted: {ensure: stopped, enable: masked}
  - alternative:
      - pick: {path: /opt/tool/pick, link: /usr/bin/pick, priority: 50, require: [file#/opt/tool/pick]}
  - group:
      - recorded: {gid: 4711}
  - exec:
      - once: {command: /bin/true, once: true}
  - reboot:
      - tool: {subscribe: [file#/opt/tool/pick], min_uptime: 36500d}
"""
UNMASKED = "removed: absent\nresources: [service: [never-wanted: {ensure: stopped, enable: false}]]\n"
"""Fails for a mask that is not recorded, which is the administrator's. A mask without a declaration would stay."""
SITE = "/srv/publisher"
CONFIGURATION = (
    f"site: {SITE}/public\nbundles: [{{name: host}}]\ntrust_anchor: {SITE}/root.json\nhost_name: web1\n"
)
PLACES = (
    *("etc/puller", "srv", "var/lib/puller", "opt/tool", "usr/bin/pick"),
    *("etc/sysctl.d", "etc/systemd/system", "etc/alternatives", "var/lib/dpkg/alternatives"),
    *("etc/group", "etc/gshadow"),
)
"""Everything that the runs changed on the disk. Caches below these places are excluded."""
_CACHES = ("template-cache", "downloads")
_ROLES = ("root", "targets", "snapshot", "timestamp")


def publish(machine: Machine, version: str, manifest: str) -> None:
    """Publish a version of the bundle on the machine itself."""
    source = machine.root / "srv/sources" / version / "host"
    source.mkdir(parents=True)
    (source / "manifest.yaml").write_text(manifest.replace("VERSION", version))
    path = f"/srv/sources/{version}/host"
    machine.run("puller", "site", "publish", SITE, path, "--version", version)


def changed(machine: Machine) -> list[str]:
    """Make a run, and return the changed resources. The run must succeed."""
    machine.run("puller", "run")
    report = json.loads((machine.root / "var/lib/puller/last-run.json").read_text())
    assert report["exit_status"] == 0, report
    events = [event for bundle in report["bundles"] for event in bundle.get("events", [])]
    return [f"{event['type']}#{event['name']}" for event in events if event["state"] != "stable"]


def fill(machine: Machine) -> None:
    """Let the host have a past: two versions, of which the second one requires a reboot."""
    (machine.root / "etc/puller").mkdir()
    (machine.root / "etc/puller/config.yaml").write_text(CONFIGURATION)
    expiry = [word for role in _ROLES for word in ("--expiry", f"{role}=36500d")]
    machine.run("puller", "site", "init", SITE, "--no-passphrase", *expiry)
    for version in ("1.0.0", "1.1.0"):
        publish(machine, version, MANIFEST)
        assert changed(machine), machine.say()
    assert changed(machine) == []


def pack(root: Path, path: Path) -> None:
    """Write the changed places of a disk as a tar.xz."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for place in PLACES:
            archive.add(root / place, place, filter=_kept)
    path.write_bytes(lzma.compress(packed.getvalue()))


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uname = member.gname = ""
    return None if Path(member.name).name in _CACHES else member


def unpack(path: Path, root: Path) -> None:
    """Restore the changed places on another disk, where the link of a mask has another identity."""
    with tarfile.open(path) as archive:
        archive.extractall(root, filter="fully_trusted")
    masks = root / "var/lib/puller/masks.json"
    document = json.loads(masks.read_text())
    for unit in document["units"]:
        status = (root / "etc/systemd/system" / unit).lstat()
        document["units"][unit] = [status.st_ino, status.st_ctime_ns]
    masks.write_text(json.dumps(document))


def main() -> None:
    """Write the archive of this version."""
    parser = argparse.ArgumentParser(prog="record_root_formats", description=__doc__.partition("\n")[0])
    parser.add_argument("--again", action="store_true", help="replace the archive of an unreleased version")
    parser.add_argument("--version", default=__version__, help="version of the archive, before its release")
    parser.add_argument("--tree", type=Path, help="a Debian with this version of Puller")
    options = parser.parse_args()
    path = ROOT_CASES / f"{options.version}.tar.xz"
    if path.exists() and not options.again:
        sys.exit(f"{path}: exists, and the record of a released version never changes (--again replaces it)")
    with contextlib.ExitStack() as stack:
        tree = options.tree
        if tree is None:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="puller-formats-")))
            make_wheel(scratch / "wheel")
            tree = scratch / "tree"
            make_bare(scratch / "bare", "bookworm")
            make_debian(tree, scratch / "bare", scratch / "wheel", "bookworm")
        root = stack.enter_context(copied(tree))
        with powered_on(root, "--private-network") as machine:
            fill(machine)
        pack(root, path)
    print(path)


if __name__ == "__main__":
    main()
