"""Everything that this version of Puller writes, kept in tests/cases/formats and read by the tests of later versions.

    python -m tests.puller.formats.record_formats [--version VERSION] [--again]

A real run of the command line fills a directory: a bundle with all features and with data that SOPS encrypted, a site
with encrypted keys, a copy and a mirror of the site, three hosts (in sync, with a release on trial, disabled), their
reports, also those that wait for a destination, and the fleet store. The
archive ``VERSION.tar.xz`` also has ``interface.json``: the names of commands, options, statuses, codes and properties.

The archive of a released version never changes. ``--again`` replaces that of a version that is not released yet.
The directory has the name ``@ROOT@`` in the archive. Names that are digests of a path have a placeholder as well.
"""

import argparse
import gzip
import hashlib
import io
import json
import lzma
import os
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec
import yaml

from foundation.problems import ProblemCode
from hiera.sops.identities import new_identity
from puller.cli.command_table import cli
from puller.exit_status import ExitStatus
from puller.resources import registry
from puller.version import __version__
from tests.support.stories import WebServer, execute_here

CASES = Path(__file__).parents[2] / "cases/formats"
HOSTS = ("settled", "trial", "disabled")
PASSPHRASE = "recorded formats"
TOKEN, SEALED = "token-of-the-shop", "of-this-host"
"""Encrypted values of the bundle and of each host."""
UNREACHABLE = "http://127.0.0.1:1/reports/"
TREE = "{version: 5, hierarchy: [{name: secrets, path: secrets.yaml}]}\n"
_EPOCH = 1_700_000_000
_CENTURY = "36500d"

BUNDLE = {
    "manifest.yaml": """\
requires: {puller: ">=0.1"}
give_up_after: 3
libraries: {common: ../../libraries/common}
data:
  greeting: Hello
  # @require
  port: 80
  sites:
    - {name: shop, tls: true}
    - {name: blog, tls: false}
  # @sensitive
  password: ""
  url: "http://{{ facts.host }}:{{ data.port }}/"
hierarchy:
  order: ["role:{{ lookup('facts.role') }}"]
  merge: deep
overrides:
  role:web: {port: 8080}
exports:
  port: {value: "{{ data.port }}", type: port}
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd": {content: "{{ data.greeting }} from VERSION\\n"}
      - "{{ facts.machine }}/app.conf": {template: templates/app.conf.j2}
      - "{{ facts.machine }}/secret": {content: "{{ data.password }}", mode: "0600"}
      - "{{ facts.machine }}/token": {content: "{{ hiera('token', 'none') }}\\n", mode: "0600"}
      - "{{ facts.machine }}/sealed": {content: "{{ data.sealed | default('none') }}\\n", mode: "0600"}
      - "{{ facts.machine }}/url": {content: "{{ data.url }} {{ facts.stage.name }}\\n"}
      - "{{ facts.machine }}/tree": {source: files/tree, recurse: true, purge: true, ensure: directory, mode: null}
      - "{{ facts.machine }}/parts": {fragments: true}
      - "{{ facts.machine }}/only-VERSION": {content: "VERSION", removed: absent}
      - for: site in data.sites if site.tls
        "{{ facts.machine }}/{{ site.name }}.site":
          content: "{{ site.name }}\\n"
  - fragment:
      - first part: {path: "{{ facts.machine }}/parts", order: 10, content: "first\\n"}
      - second part: {path: "{{ facts.machine }}/parts", content: "second\\n"}
  - link:
      - "{{ facts.machine }}/current": {target: app.conf}
  - scaffold:
      - "{{ facts.machine }}/scaffold": {source: templates/tool, engine: jinja, mode: "0644"}
  - line:
      - a line: {path: "{{ facts.edited }}/list", line: by Puller}
  - block:
      - a block: {path: "{{ facts.edited }}/list", content: "one\\ntwo\\n"}
  - setting:
      - a setting: {path: "{{ facts.edited }}/app.ini", format: ini, section: server, key: port, value: "8443"}
  - archive:
      - "{{ facts.machine }}/app.tar.gz":
          url: "{{ facts.downloads }}/app.tar.gz"
          checksum: CHECKSUM
          extract_parent: "{{ facts.machine }}/app"
          owner: "{{ facts.uid }}"
          group: "{{ facts.gid }}"
  - apply:
      - common:child.yaml: {data: {name: child}}
  - exec:
      - defaults: {path: "/usr/bin:/bin"}
      - the first start: {command: "true", once: true}  # its record has a digest of the command
      - once: {command: "touch {{ facts.machine }}/once", creates: "{{ facts.machine }}/once"}
      - registration: {command: touch registered, cwd: "{{ facts.machine }}", once: true}
      - reload:
          command: test -e {{ facts.machine }}/motd
          refreshonly: true
          subscribe: ["file#{{ facts.machine }}/motd"]
          health_checks:
            - {name: motd, command: "test -s {{ facts.machine }}/motd"}
""",
    "files/tree/a/one": "1\n",
    "files/tree/two": "2\n",
    "templates/app.conf.j2": "port = {{ data.port }}\n{% for site in data.sites %}{{ site.name }}\n{% endfor %}",
    "templates/tool/conf/tool.conf": "{{ data.greeting }}\n",
    "facts.d/stage.yaml": "name: production\n",
    "tests/web.yaml": """\
facts: {machine: /srv/m, edited: /srv/e, uid: 0, gid: 0, host: h, role: web, downloads: "http://h", stage: {name: x}}
data: {password: none}
expect:
  link#/srv/m/current: {target: app.conf}
""",
}
LIBRARY = {
    "library.yaml": "{}\n",
    "child.yaml": """\
resources:
  - file:
      - "{{ facts.machine }}/{{ data.name }}":
          owner: "{{ facts.uid }}"
          group: "{{ facts.gid }}"
          mode: "0644"
          content: "child\\n"
""",
}


def _write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def puller(*words: str | Path, status: int = 0) -> str:
    """Return the output of a command that must end with this exit status."""
    result, output = execute_here(*map(str, words))
    assert result == status, f"puller {' '.join(map(str, words))}: exit {result}\n{output}"
    return output


def on_host(root: Path, host: str, *words: str, status: int = 0) -> str:
    """Return the output of a command with the configuration of a host."""
    return puller(*words, "--config", root / host / "config.yaml", status=status)


def make_host(root: Path, name: str, downloads: str) -> None:
    """Write the files that operators own: configuration, facts and data."""
    directory = root / name
    settings: dict[str, Any] = {
        "site": str(root / "publisher/site/public"),
        "bundles": [{"name": "web", "trial": {"duration": "1h" if name == "trial" else "0s"}}],
        "data": ["site:common"],
        "trust_anchor": str(directory / "root.json"),
        "host_name": f"{name}.example.com",
        "host_data": str(directory / "data.yaml"),
        "host_data_directory": str(directory / "data.d"),
        "facts_directory": str(directory / "facts.d"),
        "http": {"retries": 0},
        "reports": {"to": [str(root / "reports"), UNREACHABLE], "facts": ["role"]},
        "age_identities": [str(directory / "age.txt")],
        "state_directory": str(directory / "state"),
        "run_directory": str(directory / "run"),
    }
    _write(
        directory,
        {
            "config.yaml": yaml.safe_dump(settings, sort_keys=False),
            "data.yaml": "data: {password: on the host}\n",
            "data.d/50-more.yaml": "data: {greeting: Good day}\n",
            "data.d/60-sealed.yaml": (root / "publisher/sealed.yaml").read_text(),
            "facts.d/site.json": json.dumps(facts(directory, name, downloads)),
            "edited/list": "first\n",
            "edited/app.ini": "[server]\nport = 80\n",
        },
    )
    (directory / "root.json").write_bytes((root / "publisher/site/root.json").read_bytes())


def facts(directory: Path, name: str, downloads: str) -> dict[str, Any]:
    """Return the facts of a host, some of which depend on this machine."""
    return {
        "machine": str(directory / "machine"),
        "edited": str(directory / "edited"),
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "host": name,
        "role": "web",
        "downloads": downloads,
    }


def _sample_archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("bin/app", "share/app.txt"):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(name), _EPOCH
            archive.addfile(info, io.BytesIO(name.encode()))
    return gzip.compress(packed.getvalue(), mtime=0)


SAMPLE = _sample_archive()


def source(root: Path, version: str) -> Path:
    """Return the bundle of this version, as its author writes it."""
    text = BUNDLE["manifest.yaml"].replace("CHECKSUM", hashlib.sha256(SAMPLE).hexdigest())
    directory = root / "publisher" / "sources" / version / "web"
    _write(directory, BUNDLE | {"manifest.yaml": text.replace("VERSION", version)})
    if (secrets := root / "publisher/secrets.yaml").exists():  # 0.1.0 had no encrypted files
        _write(directory, {"hiera.yaml": TREE, "data/secrets.yaml": secrets.read_text()})
    _write(root / "publisher/sources/libraries/common", LIBRARY)
    return directory


def encrypt(root: Path) -> None:
    """Make a key for each host and an author, and encrypt data for all of them by ``recipients.yaml``."""
    recipients = {}
    for name in ("publisher", *HOSTS):
        identity, recipients[name] = new_identity()
        _write(root / name, {"age.txt": f"{identity}\n"})
    hosts = {f"{name}.example.com": {"recipient": recipients[name], "bundles": ["web"]} for name in HOSTS}
    rules = [{"path": "*.yaml", "readers": ["person=alice", "bundle=web"]}]
    known = {"people": {"alice": recipients["publisher"]}, "hosts": hosts, "files": rules}
    _write(
        root / "publisher",
        {
            "recipients.yaml": yaml.safe_dump(known),
            "secrets.yaml": f"# of the shop\ntoken: {TOKEN}\nports: [8080, 8443]\n",
            "sealed.yaml": f"data: {{sealed: {SEALED}}}\n",
        },
    )
    puller("secrets", "encrypt", *(root / "publisher" / name for name in ("secrets.yaml", "sealed.yaml")))


def fill(root: Path) -> None:
    """Let a publisher, hosts and a fleet have a past, by the command line."""
    site, downloads = root / "publisher/site", root / "downloads"
    _write(root, {"reports/.keep": "", "publisher/common.yaml": "data: {greeting: Hello}\n"})
    downloads.mkdir()
    (downloads / "app.tar.gz").write_bytes(SAMPLE)
    encrypt(root)
    roles = ("root", "targets", "snapshot", "timestamp")
    puller("site", "init", site, *(word for role in roles for word in ("--expiry", f"{role}={_CENTURY}")))
    puller("site", "publish", site, source(root, "1.0.0"), "--version", "1.0.0")
    puller("site", "data", site, root / "publisher/common.yaml")
    web = WebServer(downloads)
    try:
        for host in HOSTS:
            make_host(root, host, web.url)
            on_host(root, host, "run")
        on_host(root, "trial", "run")
        on_host(root, "disabled", "pin", "web", "1.0.0")
        on_host(root, "disabled", "disable", "--reason", "a disk is replaced")
        broken = source(root, "1.1.0") / "manifest.yaml"
        check = "sh -c 'exit 2'"
        broken.write_text(
            f'{broken.read_text()}      - "true": {{health_checks: [{{command: "{check}"}}]}}\n'
        )
        puller("site", "publish", site, broken.parent, "--version", "1.1.0")
        on_host(root, "settled", "run", status=7)
        source(root, "1.2.0")
        puller(
            "site",
            "publish",
            site,
            root / "publisher/sources/1.2.0/web",
            "--version",
            "1.2.0",
            "--percent",
            "100",
        )
        on_host(root, "settled", "run")
        on_host(root, "settled", "run")
        on_host(root, "trial", "run")
        on_host(root, "disabled", "run", status=20)
    finally:
        web.stop()
    puller("site", "push", site, root / "copy")
    mirror = ("--root", site / "root.json")
    puller("site", "mirror", site / "public", root / "mirror", *mirror)
    puller("fleet", "import", root / "reports", "--store", root / "fleet.db")
    with closing(sqlite3.connect(root / "fleet.db")) as store:
        (root / "fleet.sql").write_text("\n".join(store.iterdump()) + "\n")
    for path in root.glob("fleet.db*"):
        path.unlink()
    (root / "interface.json").write_text(json.dumps(interface(), indent=1, sort_keys=True) + "\n")


def interface() -> dict[str, Any]:
    """Return the names that docs/compatibility.md promises to keep."""
    return {
        "commands": dict(_commands(cli, "puller")),
        "exit statuses": {member.name: int(member) for member in ExitStatus},
        "problem codes": sorted(ProblemCode),
        "resource types": {name: sorted(_properties(name)) for name in registry.type_names()},
    }


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, list[str]]]:
    options = [
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    ]
    yield name, sorted(options)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child in command.list_commands(context):
            result = command.get_command(context, child)
            assert result is not None
            yield from _commands(result, f"{name} {child}")


def _properties(name: str) -> list[str]:
    resource_type = registry.find_type(name)
    assert resource_type is not None
    properties = resource_type.properties_type
    return [field.encode_name for field in msgspec.structs.fields(properties)]


def digests(root: Path) -> dict[str, str]:
    """Return the names of files that are digests of a path below ``root``, with their placeholders."""
    result = {_digest(str(root / "reports"))[:16]: "@spool@"}
    for host in HOSTS:
        machine = root / host / "machine"
        key = "\0".join((f"{machine}/app", f"{machine}/app.tar.gz", hashlib.sha256(SAMPLE).hexdigest()))
        result[_digest(key)] = f"@members-{host}@"
    return result


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def names_of(root: Path) -> list[tuple[str, str]]:
    """Return pairs of a part of a file name below ``root`` and its placeholder in the archive."""
    return [(quote(str(root), safe=""), "@QUOTED@"), *digests(root).items()]


def pack(root: Path, path: Path) -> None:
    """Write the directory as a tar.xz without owners, with placeholders for its path."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in sorted(root.rglob("*")):
            name = str(member.relative_to(root))
            for real, placeholder in names_of(root):
                name = name.replace(real, placeholder)
            info = archive.gettarinfo(member, name)
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = int(info.mtime)
            data = b""
            if info.isreg():
                data = member.read_bytes().replace(os.fsencode(root), b"@ROOT@")
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    path.write_bytes(
        lzma.compress(packed.getvalue())
    )  # copies of a site are far apart, so gzip is three times larger


def unpack(path: Path, root: Path) -> None:
    """Restore a packed directory at another path, for the current user and with the facts of this machine."""
    with tarfile.open(path) as archive:
        modes: dict[Path, int] = {}  # set at the end, because only root can write without them
        for member in archive.getmembers():
            name = member.name
            for real, placeholder in names_of(root):
                name = name.replace(placeholder, real)
            target = root / name
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                modes[target] = member.mode
            elif member.issym():
                target.symlink_to(member.linkname)
            else:
                content = archive.extractfile(member)
                assert content is not None
                target.write_bytes(content.read().replace(b"@ROOT@", os.fsencode(root)))
                target.chmod(member.mode)
                os.utime(target, (member.mtime, member.mtime))
        for host in HOSTS:
            document = json.dumps(facts(root / host, host, "http://127.0.0.1:9"))
            (root / host / "facts.d/site.json").write_text(document)
    for directory, mode in modes.items():
        directory.chmod(mode)


_AS_VERSION = """\
import sys, puller.version
puller.version.__version__ = sys.argv.pop(1)
from tests.puller.formats.record_formats import main
main()
"""


def _record_as(version: str) -> int:
    """Write the archive in a process with another version, and return its exit status.

    Reports and the fleet store contain the version of the agent. Modules read it when they are imported.
    """
    command = [sys.executable, "-c", _AS_VERSION, version, *sys.argv[1:]]
    return subprocess.run(command, check=False).returncode


def main() -> None:
    """Write the archive of this version, or of the next version before its release."""
    parser = argparse.ArgumentParser(prog="record_formats", description=__doc__.partition("\n")[0])
    parser.add_argument("--again", action="store_true", help="replace the archive of an unreleased version")
    parser.add_argument("--version", default=__version__, help="version of the archive, before its release")
    options = parser.parse_args()
    path = CASES / f"{options.version}.tar.xz"
    if path.exists() and not options.again:
        sys.exit(f"{path}: exists, and the record of a released version never changes (--again replaces it)")
    if options.version != __version__:
        sys.exit(_record_as(options.version))
    CASES.mkdir(exist_ok=True)
    os.environ["PULLER_PASSPHRASE"] = PASSPHRASE
    with tempfile.TemporaryDirectory(prefix="puller-formats-") as scratch:
        root = Path(scratch).resolve() / "root"
        root.mkdir()
        fill(root)
        pack(root, path)
    print(path)


if __name__ == "__main__":
    main()
