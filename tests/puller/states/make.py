"""A host's state with something of every kind in it, as this version of Puller writes it: kept in tests/cases/states.

    python -m tests.puller.states.make

writes ``tests/cases/states/VERSION.tar.gz``. It is made once, when a version is released, and never again: what is
written by this version has to be read, or refused in words, by every later one (``test_states_of_versions.py``).

The directory of the host has the name ``@HOST@`` in there, as have machines that it is unpacked on another one.
"""

import gzip
import io
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from puller.version import __version__
from tests.support.stories import STORY_FILES, Host, Outcome, Publisher, execute_here

CASES = Path(__file__).parents[2] / "cases/states"
PLACEHOLDER = b"@HOST@"
KEPT = ("state", "run", "machine")
"""What is kept of a host; its configuration, facts and trust anchor are made anew."""

TEMPLATE = b"{{ facts.machine }} by a template\n"
MANIFEST = """\
removed: absent
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd": {content: "Hello from VERSION\\n"}
      - "{{ facts.machine }}/app.conf": {source: files/app.conf}
      - "{{ facts.machine }}/rendered": {template: files/rendered.j2}
      - "{{ facts.machine }}/only-VERSION": {content: "VERSION"}
  - exec:
      - defaults: {path: "/usr/bin:/bin"}
      - reload:
          command: test -e "{{ facts.machine }}/reloadable"
          refreshonly: true
          subscribe: ["file#{{ facts.machine }}/motd"]
"""
BROKEN = (
    MANIFEST
    + """\
      - "true": {health_checks: [{command: "sh -c 'exit 2'"}]}
"""
)


def fill(host: Host, publisher: Publisher, directory: Path) -> None:
    """Let a host have a past: releases, one that was given up, a pin, a refresh that is pending, reports that wait."""
    files = {**STORY_FILES, "files/rendered.j2": TEMPLATE}
    host.configure(reports={"to": [str(directory / "nowhere" / "reports")]})
    publisher.publish("1.0.0", MANIFEST, files=files)
    _expect(host.run(), 6)
    (host.machine / "reloadable").touch()
    _expect(host.run(), 0)
    publisher.publish("1.1.0", MANIFEST, files=files)
    _expect(host.run(), 0)
    publisher.publish("1.2.0", BROKEN, files=files)
    _expect(host.run(), 7)
    _expect(host.puller("pin", "web", "1.1.0"), 0)
    (host.machine / "reloadable").unlink()
    (host.machine / "motd").unlink()
    _expect(host.run(), 6)


def _expect(outcome: Outcome, status: int) -> None:
    assert outcome.status == status, outcome.output


def pack(host_directory: Path, path: Path) -> None:
    """The state as a tar.gz whose owners and times are nobody's, with a placeholder for where it was."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for top in KEPT:
            for member in sorted((host_directory / top, *(host_directory / top).rglob("*"))):
                info = archive.gettarinfo(member, str(member.relative_to(host_directory)))
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                info.mtime = 1_700_000_000
                data = b""
                if info.isreg():
                    data = member.read_bytes().replace(os.fsencode(host_directory), PLACEHOLDER)
                    info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def unpack(path: Path, host_directory: Path) -> None:
    """What ``pack`` has packed, for a host in another directory, of the user that does it."""
    with tarfile.open(path) as archive:
        for member in archive:
            target = host_directory / member.name
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
            elif member.issym():
                target.symlink_to(member.linkname)
            else:
                content = archive.extractfile(member)
                assert content is not None
                target.write_bytes(content.read().replace(PLACEHOLDER, os.fsencode(host_directory)))
                target.chmod(member.mode)
        for member in archive.getmembers()[::-1]:
            if member.isdir():
                (host_directory / member.name).chmod(member.mode)


def main() -> None:
    """Write the state of this version, unless it is there."""
    path = CASES / f"{__version__}.tar.gz"
    if path.exists():
        sys.exit(f"{path}: is there, and stays as it is")
    CASES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "www").mkdir()
        publisher = Publisher(directory / "publisher", directory / "www")
        host = Host(directory / "host", publisher.site.anchor, str(directory / "www"), execute_here)
        fill(host, publisher, directory)
        pack(directory / "host", path)
    print(path)


if __name__ == "__main__":
    main()
