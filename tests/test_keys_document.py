"""The ceremonies of ``docs/keys.md``, run as printed on the page, while a host follows the site."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bundles.client.client import TrustClient
from bundles.publisher.roles import RoleKeys
from bundles.publisher.signing_keys import load_public_key
from bundles.publisher.site import Site
from bundles.transport.mirror import DirectoryMirror

PAGE = Path(__file__).parents[1] / "docs" / "keys.md"
ELSEWHERE = ("Tokens and key services", "Signed anew every day")
"""Sections that this test skips because their commands need a token (tested below) or a machine (tests/system)."""

Execute = Callable[..., tuple[int, str]]


def sections() -> Iterator[tuple[str, list[str]]]:
    """Return the title and the command lines of each section."""
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        yield title, re.findall(r"^    (\S.*)$", text, re.MULTILINE)


@pytest.fixture
def _office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a directory with the page's prerequisites."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULLER_PASSPHRASE", "open sesame")
    (tmp_path / "new.pass").write_text("open barley\n")
    (tmp_path / "own.pass").write_text("a secret of their own\n")
    (tmp_path / "web").mkdir()
    (tmp_path / "web/manifest.yaml").write_text("resources: []\n")


def with_ids(line: str) -> str:
    """Return a line with key ids in place of their placeholders."""
    if "FIRST" in line:
        held = RoleKeys(Site(Path("site")), lambda _: b"open sesame").held_keys()
        (first,) = (key.key_id for key in held if key.role == "root" and key.place)
        line = line.replace("FIRST", first[:6])
    if "ALICE" in line:
        line = line.replace("ALICE", load_public_key(Path("alice.pub")).public.keyid[:6])
    return line


def is_of_a_person(line: str) -> bool:
    """Return whether the holder of a root key runs the command. Each holder has a passphrase."""
    return line.startswith(("puller site keys new", "puller site root sign"))


def typed(line: str, execute: Execute) -> str:
    """Return the output of a line of the page. Questions are answered with yes."""
    command, *arguments = shlex.split(with_ids(line))
    assert command == "puller", line
    if arguments[:2] == ["site", "push"]:
        arguments[-1] = "www"
    if is_of_a_person(line):
        arguments += ["--yes"] if "sign" in arguments else []
        arguments += ["--passphrase-file", "own.pass"]
    status, output = execute(*arguments)
    assert status == 0, f"{line}\n{output}"
    return output


class Follower:
    """A host that was provisioned with the first root and refreshes repeatedly."""

    def __init__(self, directory: Path) -> None:
        self._state, self._first = directory / "state", directory / "first-root.json"

    def version(self) -> Any:
        if not self._first.exists():
            shutil.copyfile("site/root.json", self._first)
        mirror = DirectoryMirror("site/public")
        return TrustClient(self._state, self._first, [mirror], ["web"]).refresh().find("web", "stable")


@pytest.mark.usefixtures("_office")
@pytest.mark.everything
def test_the_ceremonies_of_the_page_can_be_typed(
    tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, output = Follower(tmp_path), ""
    for title, lines in sections():
        if title in ELSEWHERE:
            continue
        for line in lines:
            output = typed(line, execute)
            if "new.pass" in line:
                monkeypatch.setenv("PULLER_PASSPHRASE", "open barley")
            if "publish" in line:
                assert host.version()
            elif "import" in line:
                assert "in force, signed again: root" in output, line
                assert str(host.version()) == "web 1.0.0", line
    listed = execute("site", "keys", "list", "site")[1]
    assert listed.count("2 of 3     not here") == 3
    assert listed.count("2 of 2     site/keys/targets-") == 2
    assert "A change is pending" not in listed
    assert not (tmp_path / "site/pending-root.json").exists()
    assert host.version()


def test_no_command_of_the_page_is_left_out() -> None:
    indented = re.findall(r"^    \S.*$", PAGE.read_text(), re.MULTILINE)
    assert sum(len(lines) for _, lines in sections()) == len(indented) > 50
    assert {title for title, _ in sections()} >= {*ELSEWHERE}


@pytest.mark.softhsm
@pytest.mark.usefixtures("_office")
def test_the_commands_for_tokens_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = "/usr/lib/softhsm/libsofthsm2.so"
    (tmp_path / "tokens").mkdir()
    (tmp_path / "softhsm2.conf").write_text(f"directories.tokendir = {tmp_path}/tokens\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(tmp_path / "softhsm2.conf"))
    monkeypatch.setenv("PULLER_PIN", "1234")
    prepare = "softhsm2-util --init-token --free --label publisher --pin 1234 --so-pin 5678 &&"
    for number in ("02", "03"):
        prepare += (
            f" pkcs11-tool --module {library} --token-label publisher --login --pin 1234"
            f" --keypairgen --key-type EC:prime256v1 --id {number} &&"
        )
    (lines,) = (lines for title, lines in sections() if title == "Tokens and key services")
    script = "\n".join(re.sub(r"^(puller site root sign .*)", r"\1 --yes", line) for line in lines)
    script = f"set -eu\n{prepare} puller site init site\n{script}\npuller site keys list site"
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in force, signed again: root" in done.stdout.split("next-root.json: 1 new signature")[1]
    assert done.stdout.count("hsm:2?label=publisher (site/keys/timestamp-") == 1
