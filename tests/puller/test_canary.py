"""Canaries: every input receives secrets, every command runs at every verbosity, and no output contains a secret.

* A canary is a secret that names the input that received it. It may occur in managed files, in the input files, in the
  unpacked bundle, and in the environment of the command that needs it. It may occur nowhere else.
* The commands are taken from the command line itself: a new command is either run here, or listed with the reason why
  not.
* Every started process is recorded, with its command line and environment.
"""

import gzip
import io
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from hiera.envelopes import create_key_pair
from hiera.eyaml import encrypt
from hiera.sops.identities import new_identity
from hiera.sops.writing import Readers
from hiera.sops.writing import encrypt as seal
from puller.cli.command_table import cli
from puller.engine.ensure import REQUEST

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Publisher, WebServer

SONG = re.compile(r"c4n4ry-[a-z]+-\w+", re.IGNORECASE)
"""Matches canaries whose case a template has changed, too."""


def canary(door: str) -> str:
    """Return the secret for an input."""
    return f"c4n4ry-{door}-{sum(door.encode())}"


def heard(text: str | bytes) -> set[str]:
    """Return the canaries in a text."""
    return set(SONG.findall(text if isinstance(text, str) else text.decode("utf-8", "replace")))


# --- inputs -------------------------------------------------------------------------------------------------

STORY = Path(__file__).parents[1] / "cases" / "canary"
"""A bundle. ``C:door`` becomes the canary of the input *door*, ``E:door`` the encrypted canary."""


def unpacked(path: Path) -> bytes:
    """Return the content of a file, with compressed lists of resources decompressed."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.name.endswith(".json.gz") else data


class Aviary:
    """A host and a publisher with canaries in every input, and a record of all outputs and processes."""

    def __init__(self, host: "Host", publisher: "Publisher", web: "WebServer", execute: "Execute") -> None:
        self.host, self.publisher, self.web, self.execute = host, publisher, web, execute
        self.home = host.configuration.parent
        self.address = web.url.removeprefix("http://")
        self.said: dict[str, str] = {}
        """All output, by command line."""
        self.started: list[tuple[list[str], dict[str, str]]] = []
        """The command line and the environment of every process."""
        self.temporary = self.home / "tmp"
        self.temporaries: dict[Path, int] = {}
        """Temporary files that contained a canary while a process ran, and the mode of their directory."""
        private, self.certificate = create_key_pair()
        (self.home / "private.pem").write_bytes(private)
        identity, self.recipient = new_identity()
        (self.home / "age.txt").write_text(f"{identity}\n")

    def filled(self, text: str, version: str = "") -> str:
        """Return ``text`` with canaries in place of their marks."""
        text = re.sub(r"E:([a-z]+)", lambda door: encrypt(canary(door[1]), [self.certificate]), text)
        text = re.sub(r"C:([a-z]+)", lambda door: canary(door[1]), text)
        return text.replace("WEB", self.address).replace("SUM", "f" * 64).replace("VERSION", version)

    def sealed(self, text: str) -> str:
        """Return a data file with canaries as SOPS encrypts it for the host."""
        return seal(self.filled(text), "data.yaml", Readers({self.recipient: ""}))

    def publish(self, version: str) -> None:
        """Publish the story's bundle with other content in its sensitive file."""
        texts = {
            str(path.relative_to(STORY)): path.read_text() for path in STORY.rglob("*") if path.is_file()
        }
        files = {path: self.filled(text, version).encode() for path, text in texts.items()}
        files["data/sops.yaml"] = self.sealed("app::sops: C:sops\n").encode()
        self.publisher.publish(version, files.pop("manifest.yaml").decode(), files=files)
        extra = self.web.root / "extra"
        extra.mkdir()
        (extra / "plain").write_text("plain\n")
        (extra / "site.yaml").write_text(self.filled("data:\n  # @sensitive\n  site: C:sitedata\n"))

    def configure(self) -> None:
        """Write credentials of every kind, and data of this host."""
        (self.home / "token").write_text(canary("passwordfile"))
        url = self.filled("http://u:C:siteuser@WEB")
        self.host.configure(
            site=[url, self.filled("http://u:C:mirroruser@127.0.0.1:1/other")],
            data=[self.filled("http://u:C:datauser@WEB/extra/site.yaml?sig=C:dataquery")],
            eyaml_private_key=str(self.home / "private.pem"),
            age_identities=[str(self.home / "age.txt")],
            http={
                "retries": 0,
                "username": "me",
                "password": canary("httppassword"),
                "headers": {"X-Api-Key": canary("httpheader")},
                "proxy": "",
            },
            reports={
                "textfile": str(self.home / "puller.prom"),
                "to": [
                    str(self.home / "sent"),
                    self.filled("http://u:C:reportuser@127.0.0.1:1/r/"),
                    {
                        "url": self.filled("http://u:C:siteuser@WEB/r/"),
                        "headers": {"X-Key": canary("httpheader")},
                    },
                ],
            },
        )
        (self.home / "sent").mkdir()
        (self.home / "data.yaml").write_text(self.filled("data:\n  # @sensitive\n  token: C:hostdata\n"))
        (self.home / "data.d").mkdir()
        (self.home / "data.d/uri.yaml").write_text("data: {uri: 'x://{{ data.site }}'}\n")
        (self.home / "data.d/sops.yaml").write_text(self.sealed("data:\n  hostsops: C:hostsops\n"))

    def run(self, *command: str) -> int:
        """Run a command line and record its output."""
        status, output = self.execute(*command)
        self.said[" ".join(command) + f" #{len(self.said)}"] = output
        return status

    def songs(self) -> dict[str, set[str]]:
        """Return the canaries in recorded outputs, by command line."""
        return {command: songs for command, text in self.said.items() if (songs := heard(text))}

    def files_with_songs(self, *directories: Path) -> dict[Path, set[str]]:
        """Return the canaries in contents and names of files, by path."""
        result = {}
        for directory in directories:
            for path in directory.rglob("*"):
                text = unpacked(path) if path.is_file() and not path.is_symlink() else b""
                if songs := heard(text) | heard(str(path)):
                    result[path] = songs
        return result


@pytest.fixture
def aviary(
    host: "Host",
    publisher: "Publisher",
    web: "WebServer",
    execute: "Execute",
    monkeypatch: pytest.MonkeyPatch,
) -> Aviary:
    """A prepared host and publisher that have not run any command yet."""
    birds = Aviary(host, publisher, web, execute)
    birds.temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(birds.temporary))
    monkeypatch.setenv("HOME", str(birds.home / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(birds.home / "user-state"))
    start = subprocess.Popen.__init__

    def record(process: Any, arguments: Any, *remainder: Any, **options: Any) -> None:
        birds.started.append((list(arguments), dict(options.get("env") or os.environ)))
        for path in birds.files_with_songs(birds.temporary):
            top = birds.temporary / path.relative_to(birds.temporary).parts[0]
            birds.temporaries[path] = stat.S_IMODE(top.stat().st_mode)
        start(process, arguments, *remainder, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", record)
    monkeypatch.chdir(birds.home)
    birds.publish("1.0.0")
    birds.configure()
    return birds


def commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return every command of the command line."""
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        if (below := command.get_command(context, name)) is not None:
            yield from commands(below, (*path, name))


# --- a run --------------------------------------------------------------------------------------------------

VERBOSITIES: tuple[tuple[str, ...], ...] = (
    ("--noop", "--diff", "-v"),
    ("--diff", "-v"),
    (),
    ("-q",),
    ("--detailed-exitcodes",),
)


@pytest.mark.attack("modes.secret", "credentials.output")
@pytest.mark.attack("modes.secret")
def test_run_outputs_contain_no_canary(aviary: Aviary) -> None:
    host, machine = aviary.host, aviary.host.machine
    for options in VERBOSITIES:
        aviary.run("run", "--config", str(host.configuration), *options)
    aviary.publish("2.0.0")  # the old content of a sensitive file is secret, too
    (machine / "data").write_text(f"old {canary('literal')} {canary('hostdata')}\n")
    for options in VERBOSITIES:
        aviary.run("run", "--config", str(host.configuration), *options)

    # The managed files contain the secrets.
    reached = set().union(*aviary.files_with_songs(machine).values())
    doors = (
        "literal",
        "hostdata",
        "nested",
        "eyaml",
        "hieramarked",
        "sitedata",
        "sensitivecontent",
        "secretfile",
        "sops",
        "hostsops",
    )
    assert set(map(canary, doors)) <= reached
    assert (machine / "environment").read_text() == canary("eyaml")
    assert all(text for command, text in aviary.said.items() if "-q" not in command)
    states = host.states()
    for name in (
        "data",
        "url",
        "other",
        "marked",
        "jinja",
        "jet",
        "go",
        "child",
        "scaffold-jet",
        "scaffold-own",
    ):
        assert any(key.endswith(f"#{name}") and states[key] in ("stable", "changed") for key in states), name
    failing = [key for key in states if "failing" in key and "guard" not in key]
    assert {states[key] for key in failing} == {"failed"}, states

    assert aviary.songs() == {}
    for path, songs in aviary.files_with_songs(aviary.home / "state", aviary.home / "run").items():
        where = path.relative_to(aviary.home / "state")
        # Only the files that the host needs: the signed bundle, and the last good copies of site data.
        assert where.parts[0] in ("bundles", "data"), (path, songs)
        assert not stat.S_IMODE((aviary.home / "state" / where.parts[0]).stat().st_mode) & 0o077
        if where.parts[0] == "data":
            assert songs == {canary("sitedata")}
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert aviary.files_with_songs(aviary.temporary, aviary.home / "user-state") == {}
    assert set(aviary.temporaries.values()) == {0o700}
    assert heard((aviary.home / "puller.prom").read_text()) == set()
    sent, waiting = aviary.home / "sent", aviary.home / "state/spool"
    assert (
        len([*sent.rglob("*.json.gz")])
        == len([*waiting.rglob("*.json.gz")]) / 2
        == 2 * (len(VERBOSITIES) - 1)
    )
    assert aviary.files_with_songs(sent, waiting) == {}


def test_canary_reaches_its_own_process_only(aviary: Aviary) -> None:
    aviary.run("run", "--config", str(aviary.host.configuration))
    assert len(aviary.started) > 10
    for arguments, environment in aviary.started:
        in_environment = {environment.get("PASSWORD", ""), environment.get("P", "")}
        assert heard(json.dumps(environment)) <= in_environment, arguments
        # If a command line contains a secret, the process list shows it. `puller lint` warns of it.
        if arguments[0] not in (f"/{canary('hostdata')}/command", f"/{canary('hostdata')}/guard"):
            assert heard(" ".join(arguments)) == set()


# --- every command ------------------------------------------------------------------------------------------

REVEALS = "gives what is encrypted: that is what it is for"
NO_INPUT = "takes nothing that could be a secret"

# By command: the arguments, or the reason to skip it. HOME, BUNDLE, SITE, MACHINE, CONFIG and canaries are substituted.
HOST = ("--config CONFIG",)
ON_BUNDLE = (
    "BUNDLE --facts FACTS --data HOME/data.yaml --private-key HOME/private.pem --identity HOME/age.txt"
)
ENSURE = "--owner root --group root --data HOME/data.yaml"
EDIT = "--data HOME/data.yaml"
KEYS = "--passphrase-file HOME/passphrase"
TABLE: Mapping[str, str | tuple[str, ...]] = {
    "run": HOST,
    "apply": (
        f"{ON_BUNDLE} --state-directory HOME/applied --noop --diff -v",
        f"{ON_BUNDLE} --state-directory HOME/applied -q",
        f"{ON_BUNDLE} --state-directory HOME/applied --diff -v --set token=C:given",
        f"{ON_BUNDLE} --state-directory HOME/applied --set C:given",
        f"{ON_BUNDLE} --state-directory HOME/applied --set token='[C:given'",
        "http://u:C:siteuser@WEB/x.tar.gz?C:sourcequery",
    ),
    "ensure file": (
        f"MACHINE/ensured --content C:ensured --mode 0600 --sensitive {ENSURE} --diff -v",
        f"MACHINE/ensured --content C:other --mode 0600 --sensitive {ENSURE} --diff -v --session SESSION",
        f"MACHINE/ensured --content '{{{{ data.token }}}}' --mode 9 {ENSURE} --diff",
        f"MACHINE/ensured --source http://u:C:sourceuser@WEB/missing?C:sourcequery --mode 0600 {ENSURE}",
        f"MACHINE/ensured --content C:ensured --mode 0600 --encoding nonsense --sensitive {ENSURE}",
    ),
    "ensure fragment": (
        f"a-part --path MACHINE/whole --content C:ensured --sensitive {ENSURE}",
        f"a-part --path C:ensured --content C:ensured --sensitive {ENSURE}",
    ),
    "ensure line": (
        f"edited --path MACHINE/edited --create --line C:ensured --sensitive {EDIT} --diff -v",
        f"edited --path MACHINE/edited --line C:other --match 'C:ens.*' --sensitive {EDIT} --diff -v",
        f"edited --path MACHINE/edited --line C:ensured --match ( --sensitive {EDIT}",
        f"edited --path MACHINE/edited --line C:ensured --validate 'false {{}}' --sensitive {EDIT}",
    ),
    "ensure block": (
        f"edited --path MACHINE/edited-block --create --content C:ensured --sensitive {EDIT} --diff -v",
        f"edited --path MACHINE/edited-block --content C:other --sensitive {EDIT} --diff -v",
        f"edited --path MACHINE/edited-block --content C:other --marker nothing --sensitive {EDIT}",
    ),
    "ensure setting": (
        f"edited --path MACHINE/edited-ini --create --format ini --key k --value C:ensured --sensitive {EDIT} -v",
        f"edited --path MACHINE/edited-ini --format ini --key k --value C:other --sensitive {EDIT} --diff -v",
        f"edited --path MACHINE/edited-ini --format json --key k --value C:other --sensitive {EDIT} --diff -v",
    ),
    "ensure exec": (
        "name --command 'sh -c \"echo $P; exit 1\"' --environment P=C:ensured --sensitive",
        "name --command 'echo C:ensured \\\"' --sensitive",
        "name --command true --environment C:ensured --sensitive",
        "name --command 'sh -c \"cat; exit 1\"' --stdin C:ensured",
        "name --command true --sensitive --check 'echo C:ensured \\\"' --check 'sh -c \"echo C:ensured; exit 2\"'",
    ),
    "ensure archive": (
        "MACHINE/e.tar.gz --url http://u:C:archiveuser@WEB/e.tar.gz?C:archivequery --owner root --group root"
        " --username me --password C:archivepassword --headers X-Key=C:archiveheader",
        "MACHINE/e.tar.gz --url http://u:C:archiveuser@WEB:port/e?C:archivequery --owner root --group root",
        "MACHINE/e.tar.gz --url ftp://u:C:archiveuser@WEB/e.tar.gz --owner root --group root --headers C:archiveheader",
        "MACHINE/e.tar.gz --url http://u:C:archiveuser/@WEB/e.tar.gz --owner root --group root",
    ),
    "ensure package": ("none-of-canaries --provider none --sensitive --check C:ensured",),
    "ensure repository": ("none-of-canaries absent --provider none --sensitive --check C:ensured",),
    "ensure service": ("none-of-canaries running --sensitive --check 'echo C:ensured'",),
    "ensure user": (
        "none-of-canaries --password C:ensured",
        "none-of-canaries --provider none --password '*' --sensitive --check C:ensured",
        "none-of-canaries --authorized-keys 'C:ensured PRIVATE KEY'",
    ),
    "ensure group": ("none-of-canaries --provider none --sensitive --check C:ensured",),
    "ensure checkout": (
        "MACHINE/checked-out --url http://u:C:checkoutuser@127.0.0.1:1/app.git",
        "MACHINE/checked-out --url 'http://u:C:checkoutuser@WEB/app.git?C:checkoutquery' --sensitive --check C:ensured",
    ),
    "ensure cron": (
        "none-of-canaries --schedule @daily --command 'echo C:ensured' --sensitive --provider none",
        "none-of-canaries --schedule '61 * * * *' --command 'echo C:ensured' --sensitive",
    ),
    "ensure unit": (
        "none-of-canaries.service --content C:ensured --sensitive --provider none",
        "none-of-canaries --content C:ensured --sensitive",
    ),
    "ensure alternative": ("none-of-canaries --path /C:ensured --sensitive --provider none",),
    "ensure diversion": ("/none-of-canaries --to /C:ensured --sensitive --provider none",),
    "ensure kernel_module": (
        "none_of_canaries --provider none --options C:ensured=1 --sensitive --check C:ensured",
    ),
    "ensure link": ("MACHINE/ensured-link --target C:ensured --sensitive --diff --check C:ensured",),
    "ensure locale": ("no_NE.UTF-8 --provider none --sensitive --check C:ensured",),
    "ensure mount": ("MACHINE/nothing unmounted --provider none --sensitive --check C:ensured",),
    "ensure swap": ("MACHINE/none-of-canaries --size 1M --provider none --sensitive --check C:ensured",),
    "ensure sysctl": ("none.of.canaries --value C:ensured --provider none --sensitive --check C:ensured",),
    "ensure host_entry": (
        "none.of.canaries --address 192.0.2.1 --provider none --sensitive --check C:ensured",
    ),
    "ensure hostname": ("none-of-canaries --provider none --sensitive --check C:ensured",),
    "ensure timezone": ("None/Of_Canaries --provider none --sensitive --check C:ensured",),
    "ensure reboot": (
        "none-of-canaries --max-uptime 1000d --message C:ensured --sensitive --check C:ensured",
    ),
    "ensure scaffold": (
        "MACHINE/ensured --source BUNDLE/t/tree-own --engine jinja --scaffold-data own=C:ensured --sensitive --diff",
        "MACHINE/failing-tree --source BUNDLE/t/tree-own --engine jinja --scaffold-data other=C:ensured --sensitive",
        "MACHINE/failing-tree --source BUNDLE/t/tree-own --scaffold-data C:ensured --sensitive",
    ),
    "ensure apply": (
        "child.yaml --apply-data handed=C:ensured --sensitive",
        "child.yaml --apply-data C:ensured",
    ),
    "ensure api pipe": ("", "--yaml", "--noop --diff"),
    "session new": ("--directory HOME/another-session",),
    "session report": ("--session SESSION", "--session SESSION --format json"),
    "state": (
        "file MACHINE/ensured",
        "file MACHINE/data --format json",
        "archive http://u:C:archiveuser@WEB/x",
    ),
    "help": NO_INPUT,
    "version": NO_INPUT,
    "schema manifest": NO_INPUT,
    "schema report": NO_INPUT,
    "schema repository": NO_INPUT,
    "schema request": NO_INPUT,
    "schema result": NO_INPUT,
    "render": (
        ON_BUNDLE,
        f"{ON_BUNDLE} --format json --set token=C:given",
        "BUNDLE/t/all.j2 --facts FACTS --data HOME/data.yaml",
        "BUNDLE/t/own.jet --facts FACTS --data HOME/data.yaml --format json",
        "BUNDLE/t/failing.tmpl --facts FACTS --data HOME/data.yaml",
        "BUNDLE/t/tree-jinja --engine jinja --facts FACTS --data HOME/data.yaml",
        "BUNDLE/t/tree-jinja --engine jinja --facts FACTS --data HOME/data.yaml -o MACHINE/rendered",
    ),
    "lint": (
        ON_BUNDLE,
        f"{ON_BUNDLE} --set literal=[C:given]",
        *(
            f"{ON_BUNDLE} -v --strict --format {form}"
            for form in ("text", "json", "github", "sarif", "junit")
        ),
    ),
    "test": (
        "SOURCE --private-key HOME/private.pem",
        "SOURCE --private-key HOME/private.pem --update",
        "SOURCE --private-key HOME/private.pem --format json",
        "SOURCE --private-key HOME/private.pem --format junit -o HOME/results.xml",
    ),
    "preview": (
        "BUNDLE --from BUNDLE/child.yaml --facts FACTS --data HOME/data.yaml --private-key HOME/private.pem",
        "BUNDLE --from BUNDLE --facts FACTS --private-key HOME/private.pem --format json --set token=C:given",
        "BUNDLE --from BUNDLE/child.yaml --facts FACTS --private-key HOME/private.pem --format markdown",
        "BUNDLE/child.yaml --from BUNDLE --facts FACTS --private-key HOME/private.pem --format json",
    ),
    "facts": ("", "--format json"),
    "hiera decrypt": REVEALS,
    "hiera encrypt": ("--certificate HOME/certificate.pem", "--certificate HOME/data.yaml"),
    "hiera diff": ("BUNDLE --facts FACTS --facts HOME/other.json --private-key HOME/private.pem",),
    "hiera keys create": ("--directory HOME/keys",),
    "hiera keys list": ("BUNDLE --facts FACTS --private-key HOME/private.pem",),
    "hiera lookup": (  # without --explain a plain lookup prints decrypted values, like Puppet's
        "literal url child.list nested.list.0.x BUNDLE --facts FACTS --private-key HOME/private.pem",
        "app::marked BUNDLE --facts FACTS --private-key HOME/private.pem --format json",
        "app::password app::text BUNDLE --facts FACTS --private-key HOME/private.pem --explain",
        "app::password.x data.literal.x BUNDLE --facts FACTS --private-key HOME/private.pem",
        "app::password BUNDLE --facts FACTS --private-key HOME/private.pem --type Integer",
        "app::password BUNDLE --facts FACTS --private-key HOME/data.yaml",
    ),
    "hiera resolve": tuple(
        f"BUNDLE --facts FACTS --private-key HOME/private.pem --format {form}" for form in ("yaml", "json")
    ),
    "explain": tuple(
        f"{subject} --config CONFIG --format {form}"
        for form in ("text", "json")
        for subject in (
            *("literal", "token", "nested", "url", "site", "app::password", "app::marked", "app::password.x"),
            *("file#MACHINE/data", "file#MACHINE/marked", "file#MACHINE/fetched", "file#MACHINE/failing-go"),
            *(
                "archive#MACHINE/b.tar.gz",
                "exec#failing-words",
                "exec#marked-environment",
                "apply#child.yaml",
            ),
        )
    ),
    "status": ("--config CONFIG", "--config CONFIG --format json", "--config CONFIG --check"),
    "history": ("--config CONFIG", "--config CONFIG --format json", "file#* --config CONFIG"),
    "diff": ("--config CONFIG -v", "--config CONFIG --format json"),
    "doctor": ("--config CONFIG", "--config CONFIG --format json"),
    "check": ("--config CONFIG", "web --config CONFIG --format json", "--run --config CONFIG"),
    "forget": ("web --config CONFIG", "base --config CONFIG"),
    "disable": ("--config CONFIG --reason canaries",),
    "enable": HOST,
    "rollback": ("web --config CONFIG",),
    "pin": ("web 1.0.0 --config CONFIG",),
    "unpin": ("web --config CONFIG",),
    "quarantine list": ("--config CONFIG", "--config CONFIG --format json"),
    "quarantine clear": ("--all --config CONFIG",),
    "bundle build": ("SOURCE --name web --version 3.0.0 -o HOME/web-3.0.0.tar.gz",),
    "bundle inspect": ("HOME/web-3.0.0.tar.gz", "HOME/web-3.0.0.tar.gz --format json"),
    "bundle new": NO_INPUT,
    "import ansible": NO_INPUT,
    "import cloud-config": NO_INPUT,
    "import machine": NO_INPUT,
    "import puppet": NO_INPUT,
    "site init": (f"SITE {KEYS}",),
    "site publish": (
        f"SITE SOURCE --name web --version 3.0.0 {KEYS}",
        "SITE SOURCE --version 3 --passphrase-file HOME/token",
    ),
    "site data": (f"SITE HOME/token --name exports {KEYS}", f"SITE --withdraw exports {KEYS}"),
    "site release": (f"SITE SOURCE --name web --version 3.1.0 --noop {KEYS}",),
    "site push": ("SITE HOME/www", "SITE HOME/www --noop --format json"),
    "site mirror": ("SITE/public HOME/copy --root SITE/public/metadata/1.root.json --noop --format json",),
    "site promote": (f"SITE web --from stable --to canary {KEYS}",),
    "site rollout": (f"SITE web --percent 50 {KEYS}",),
    "site halt": (f"SITE web {KEYS}",),
    "site back": (f"SITE web {KEYS}",),
    "site withdraw": (f"SITE web {KEYS}",),
    "site refresh": (f"SITE {KEYS}", "SITE --passphrase-file HOME/token"),
    "site prune": (
        f"SITE --noop {KEYS}",
        f"SITE --versions 1 --after 1m {KEYS}",
        "SITE --noop --format json",
    ),
    "site history": ("SITE web", "SITE web --format json"),
    "site list": ("SITE", "SITE --format json", "SITE --all", "SITE --all --format json"),
    "site verify": ("SITE",),
    "site keys new": (f"HOME/new-key.pem {KEYS}",),
    "site keys list": ("SITE", "SITE --format json"),
    "site keys add": (f"SITE timestamp {KEYS}",),
    "site keys remove": (f"SITE 0000 {KEYS}",),
    "site keys public": (
        f"--key HOME/new-key.pem {KEYS}",
        "--key HOME/new-key.pem --passphrase-file HOME/token",
    ),
    "site keys passphrase": (f"SITE {KEYS} --new-passphrase-file HOME/token",),
    "site rotate": ("SITE timestamp --passphrase-file HOME/token", f"SITE timestamp {KEYS}"),
    "site threshold": (f"SITE timestamp 1 {KEYS}",),
    "site root renew": (f"SITE {KEYS}",),
    "site root export": ("SITE HOME/root-export.json",),
    "site root show": ("SITE",),
    "site root sign": (f"HOME/root-export.json --key HOME/new-key.pem --yes {KEYS}",),
    "site root import": (f"SITE HOME/root-export.json {KEYS}",),
    "site root discard": ("SITE",),
    "site serve": "runs until it is stopped, and only serves what is public",
    "fleet serve-reports": "runs until it is stopped, and takes what has no secrets",
    **dict.fromkeys(
        (
            "fleet import",
            "fleet status",
            "fleet page",
            "fleet facts",
            "fleet exports",
            "fleet forget",
            "fleet recipients",
            "site watch",
        ),
        "knows of hosts what their reports say, which have no secrets",
    ),
    "config check": HOST,
    "keys init": NO_INPUT,
    "keys show": NO_INPUT,
    "secrets decrypt": REVEALS,
    "secrets edit": "the plain text goes to an editor, as test_cli_secrets shows",
    "secrets encrypt": ("BUNDLE/manifest.yaml --reader host=none",),
    "secrets rekey": ("BUNDLE --add host=none",),
    "secrets recipients": ("BUNDLE",),
    "config sample": NO_INPUT,
    "install-units": NO_INPUT,
    "completion": NO_INPUT,
    "demo": NO_INPUT,
}


def test_every_command_is_in_the_table() -> None:
    missing = {" ".join(path) for path in commands()} - TABLE.keys()
    assert not missing, "say in TABLE how it is run with canaries, or why it is not"


@pytest.mark.attack("credentials.output")
@pytest.mark.everything
def test_no_command_says_a_canary(aviary: Aviary, monkeypatch: pytest.MonkeyPatch) -> None:
    host, home = aviary.host, aviary.home
    host.run()
    bundle = next(host.state.glob("bundles/web/*/manifest.yaml")).parent
    (home / "certificate.pem").write_bytes(aviary.certificate)
    (home / "passphrase").write_text(canary("passphrase"))
    (home / "other.json").write_text('{"machine": "/other", "uid": 0, "gid": 0}')
    aviary.run("session", "new", "--directory", str(home / "session"))
    places = {
        "HOME": home,
        "BUNDLE": bundle,
        "MACHINE": host.machine,
        "CONFIG": host.configuration,
        "SITE": home / "own-site",
        "SESSION": home / "session",
        "SOURCE": home.parent / "publisher/sources/web-1.0.0",
        "FACTS": home / "facts.d/story.json",
    }
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    for command, runs in TABLE.items():
        for line in runs if not isinstance(runs, str) else ():
            filled = re.sub("|".join(places), lambda name: str(places[name[0]]), aviary.filled(line))
            stdin = {"hiera encrypt": canary("encrypted"), "ensure api pipe": request(host.machine)}.get(
                command, ""
            )
            sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
            aviary.run(*command.split(), *shlex.split(filled))
    # A secret on a command line is visible there. Its output must not repeat it.
    output = {command.split(" #")[0]: text for command, text in aviary.said.items()}
    assert not [command for command, text in output.items() if "bug in Puller" in text]
    assert not [command for command, text in output.items() if "\x1b" in text], "colour, and no terminal"
    assert aviary.songs() == {}
    assert heard(json.dumps([str(path) for path in home.rglob("*")])) == set()
    retained = [
        home / name for name in ("session", "another-session", "applied", "run", "tmp", "user-state", "keys")
    ]
    assert aviary.files_with_songs(*retained) == {}
    assert any((home / "session").glob("*.json"))


def request(machine: Path) -> str:
    """Return a request for the pipe: a resource that fails and contains a secret."""
    content = f"{canary('ensured')} {{{{ data.token.x }}}}"
    properties = {"name": str(machine / "piped"), "content": content, "mode": "0600", "sensitive": True}
    return json.dumps(
        {"protocol": REQUEST, "type": "file", "properties": {**properties, "owner": "root", "group": "root"}}
    )


# --- broken files -------------------------------------------------------------------------------------------

BROKEN_DATA = [
    'data: {token: "C:broken',
    "data:\n  token: C:broken\n    other: 1",
    "data:\n\ttoken: C:broken",
    "data: {token: C:broken, token: C:broken}",
    "data: {token: !!python/object:os.system C:broken}",
    "data: {token: *C:broken }",
    "data: {token: !C:broken }",
    "data: {token: !C:broken [x]}",
    "data: {token: @C:broken }",
    "data: {token: %C:broken }",
    "data: {token: |C:broken }",
    "data:\n  token: |C:broken\n",
    "data:\n  token: >C:broken\n",
    "data: [C:broken]",
    "data: C:broken",
    "token: C:broken",
    "- C:broken",
    "data:\n  # @sensitive\n  # @validate isIP(value)\n  token: C:broken",
    "data:\n  # @sensitive\n  # @validate value.nope\n  token: C:broken",
    "data:\n  # @sensitive\n  token: C:broken\n  other: '{{ data.token + 1 }}'",
    "data:\n  # @sensitive\n  token: C:broken\n  other: '{{ data.token.deeper }}'",
    "data:\n  # @sensitive\n  token: C:broken\n  other: '{{ lookup(data.token) }}'",
    "data:\n  # @sensitive\n  token: {list: [C:broken]}\n  other: 'x {{ data.token }}'",
    "data:\n  # @sensitive\n  token: C:broken\nhierarchy: {order: ['{{ data.token }}']}",
    "data:\n  # @sensitive\n  token: C:broken\n  other: '{{ data.other ~ data.token }}'",
]
OURS = "owner: root, group: root, mode: '0600'"
MARKED = [
    "content: [C:broken]",
    "content: {a: C:broken}",
    "content: 4711471147114711",
    "content: C:broken, encoding: nonsense",
    "content: C:broken, template: x",
    "content: C:broken, health_checks: [{command: [C:broken]}]",
    "content: C:broken, health_checks: [C:broken]",
    "source: 'http://u:C:broken@127.0.0.1:1:1/?C:broken', checksum: x",
    f"content: C:broken}}}}, {{file: {{name: /x/y, {OURS}, content: C:broken x",
    f"content: C:broken, interpolate: true}}}}, {{file: {{name: /x/y, {OURS}, contents: C:broken x",
]
MADE_OF_SECRETS = [
    "{file: {name: '/x/{{ data.token }}'}}",
    "{file: {name: /x, owner: '{{ data.token }}', group: '{{ [data.token] }}', mode: '{{ data.token }}'}}",
    f"{{file: {{name: /x, {OURS}, content: '{{{{ data.token }}}}', engine: '{{{{ data.token }}}}'}}}}",
    "{exec: {name: a, command: 'x \"{{ data.token }}'}}, {exec: {name: a, command: '{{ data.token }}'}}",
    "{exec: {name: a, environment: ['{{ data.token }}']}}, {exec: {name: b, timeout: '{{ data.token }}'}}",
    "{exec: {name: a, control: {if: data.token}}}, {exec: {name: b, control: {unless: data.token + 1}}}",
    "{exec: {name: a, control: {if: \"data.token == 'x'\"}}}, {exec: {name: b, cwd: '{{ data.token }}'}}",
    "{exec: {name: a, require: ['{{ data.token }}']}}",
    "{exec: {name: a, returns: ['{{ data.token }}'], path: '{{ data.token }}', creates: '/{{ data.token }}'}}",
    "{scaffold: {name: /x, source: '{{ data.token }}', engine: '{{ data.token }}'}}",
    "{scaffold: {name: /x, source: y, post: [{'*': '{{ data.token }} \"'}]}}",
    "{scaffold: {name: /x, source: '{{ data.token }}', post: [{'{{ data.token }}': x}]}}",
    "{archive: {name: /x.tar.gz, url: 'http://{{ data.token }}/{{ data.token }}', owner: root, group: root}}",
    "{archive: {name: /x.tar.gz, url: 'http://{{ data.token }}:{{ data.token }}/', owner: root, group: root}}",
    "{archive: {name: /x.zip, checksum: '{{ data.token }}', url: 'http://h/x.zip', owner: root, group: root}}",
    "{package: {name: x, timeout: '{{ data.token }}', provider: apt}}",
    "{service: {name: x, enable: '{{ data.token }}'}}",
    "{apply: {name: child.yaml, data: {x: '{{ data.token + 1 }}'}}}",
    "{file: [{defaults: {owner: '{{ data.token }}'}}, {'/{{ data.token }}': {}}]}",
]
TOKEN = "data:\n  # @sensitive\n  token: C:broken\n"
LISTS = {
    "list.jet": "- file: {name: /x, content: [ [[ data.token ]] ], mode: [[ data.token ]], owner: [[ data.token ]]}\n",
    "list.j2": "- file: {name: /x, content: {{ data.token }}, owner: {{ data.token }}, mode: {{ data.token }}}\n",
    "names.j2": "- file: {name: '/x/{{ data.token }}'}\n- exec: {name: a, alias: '{{ data.token }}'}\n",
    "failing.jet": "- file: {name: [[ data.token ]]\n",
    "twice.jet": "- [[ data.token ]]: {name: a}\n  [[ data.token ]]: {name: a}\n",
}
BROKEN_MANIFESTS = [
    *(f"resources: [{{file: {{name: /x/y, {OURS}, sensitive: true, {rest}}}}}]" for rest in MARKED),
    *(f"{TOKEN}resources: [{resources}]" for resources in MADE_OF_SECRETS),
    *(f"{TOKEN}resources_template: {path}" for path in LISTS),
    TOKEN + "pre_message: '{{ data.token + 1 }}'\nresources: []",
    "resources: [{archive: {name: /x.tar.gz, password: 4711471147114711, headers: {a: [C:broken]}}}]",
    "resources: [{archive: {name: /x.tar.gz, url: 'ftp://u:C:broken@h/x?C:broken', owner: root, group: root}}]",
    "resources: [{apply: {name: 'http://u:C:broken@h/x?C:broken'}}]",
]


@pytest.mark.parametrize("text", BROKEN_MANIFESTS)
def test_a_broken_manifest_is_told_without_its_secrets(tmp_path: Path, execute: "Execute", text: str) -> None:
    for name, content in {"manifest.yaml": text, "child.yaml": "resources: []", **LISTS}.items():
        (tmp_path / name).write_text(content.replace("C:broken", canary("broken")))
    for command in (
        "lint",
        "apply --noop --diff -v --state-directory state",
        "render",
        "render --format json",
    ):
        name, *options = command.split()
        _, output = execute(name, str(tmp_path), *options)
        assert "bug in Puller" not in output
        assert "internal error" not in output
        assert heard(output) == set()
        assert "4711" not in output
    assert output


@pytest.mark.parametrize("text", BROKEN_DATA)
def test_broken_data_are_told_without_their_secrets(tmp_path: Path, execute: "Execute", text: str) -> None:
    (tmp_path / "data.yaml").write_text(text.replace("C:broken", canary("broken")))
    (tmp_path / "manifest.yaml").write_text("data: {token: ''}\nresources: []")
    for command in ("lint", "render", "apply --noop --state-directory state"):
        name, *options = command.split()
        _, output = execute(name, str(tmp_path), *options, "--data", str(tmp_path / "data.yaml"))
        assert "bug in Puller" not in output
        assert heard(output) == set(), output
    _, output = execute("hiera", "resolve", str(tmp_path / "data.yaml"))
    assert heard(output) == set(), output


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("site", "http://u:C:broken@127.0.0.1:1/x"),
        ("site", "http:/u:C:broken@127.0.0.1:1/x"),
        ("site", "http://u:C:broken/x@127.0.0.1:1/x"),
        ("site", "http://u:C:broken x@127.0.0.1:1/x"),
        ("site", ["http://127.0.0.1:1/x", "ftp://u:C:broken@127.0.0.1:1/x"]),
        ("data", ["http://u:C:broken@127.0.0.1:1/x?C:broken", "ftp://u:C:broken@h/?C:broken"]),
        ("data", ["http://u:C:broken@127.0.0.1:1/x?C:broken"]),
        ("http", {"proxy": "http://u:C:broken@127.0.0.1:1"}),
        ("http", {"proxy": "u:C:broken@127.0.0.1:1"}),
        ("http", {"proxy": "C:broken://"}),
        ("http", {"proxy": ["C:broken"]}),
        ("http", {"password": 4711471147114711}),
        ("http", {"password": {"a": "C:broken"}, "token_file": "/nonexistent"}),
        ("http", {"username": "me", "password": "C:broken\né"}),
        ("http", {"headers": {"X-Key": "C:broken\n"}}),
        ("http", {"headers": {"X-Key": ["C:broken"]}}),
        ("http", {"headers": ["C:broken"]}),
        ("http", {"token": "C:broken"}),
        ("http", "C:broken"),
        ("reports", {"to": ["http://u:C:broken@127.0.0.1:1/x"]}),
        ("reports", {"to": ["http://u:C:broken@127.0.0.1:1/x/", "http://u:C:broken@127.0.0.1:1/x/"]}),
        ("reports", {"to": ["ftp://u:C:broken@127.0.0.1:1/x/"]}),
        ("reports", {"to": ["http:/u:C:broken@127.0.0.1:1/x/"]}),
        ("reports", {"to": ["s3://u:C:broken@bucket/x/"]}),
        ("reports", {"to": [{"url": "http://127.0.0.1:1/", "proxy": "http://u:C:broken@127.0.0.1:1"}]}),
        ("reports", {"to": [{"url": "http://127.0.0.1:1/", "password": 4711471147114711}]}),
        ("reports", {"to": [{"url": "http://127.0.0.1:1/", "headers": {"X-Key": "C:broken\n"}}]}),
        ("reports", {"to": [{"url": "http://u:C:broken@127.0.0.1:1/", "token": "C:broken"}]}),
    ],
)
@pytest.mark.representatives(6)
def test_site_problem_is_reported_without_credentials(
    host: "Host", execute: "Execute", key: str, value: Any
) -> None:
    filled = json.loads(json.dumps(value).replace("C:broken", canary("broken")))
    host.configure(site="http://127.0.0.1:1/site")
    host.configure(
        **{key: {"retries": 0, **filled} if key == "http" and isinstance(filled, dict) else filled}
    )
    config = ("--config", str(host.configuration))
    for command in ("run -v", "run --noop", "run -q", "status", "config check", "explain x"):
        _, output = execute(*command.split(), *config)
        assert "bug in Puller" not in output
        assert heard(output) == set(), output
        assert "4711" not in output
    for path in (*host.state.rglob("*"), *(host.configuration.parent / "run").rglob("*")):
        assert not path.is_file() or heard(unpacked(path)) == set(), path
