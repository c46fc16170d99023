"""Signing with keys in a PKCS#11 token: SoftHSM, with the same code as for hardware."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bundles.client.client import TrustClient
from bundles.publisher.lifecycle import verify_site
from bundles.publisher.site import Site
from bundles.transport.mirror import DirectoryMirror

pytestmark = pytest.mark.softhsm

LIBRARY = "/usr/lib/softhsm/libsofthsm2.so"
ONLINE, ALICE, BOB = "hsm:2?label=token", "hsm:3?label=token", "hsm:4?label=token"

Command = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, puller: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return ``run("site", …)``: it runs a process, as a process can load a token's library only once."""
    (tmp_path / "tokens").mkdir()
    (tmp_path / "softhsm2.conf").write_text(f"directories.tokendir = {tmp_path}/tokens\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(tmp_path / "softhsm2.conf"))
    monkeypatch.chdir(tmp_path)
    in_token = ["pkcs11-tool", "--module", LIBRARY, "--token-label", "token", "--login", "--pin", "1234"]
    commands = [
        ["softhsm2-util", "--init-token", "--free", "--label", "token", "--pin", "1234", "--so-pin", "5678"]
    ]
    for number, curve in (("02", "prime256v1"), ("03", "secp384r1"), ("04", "prime256v1")):
        commands.append([*in_token, "--keypairgen", "--key-type", f"EC:{curve}", "--id", number])
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "web").mkdir()
    (tmp_path / "web/manifest.yaml").write_text("resources: []\n")

    def run(*arguments: str, status: int = 0, pin: str | None = "1234", library: str = LIBRARY) -> str:
        environment = {**os.environ, "PYKCS11LIB": library}
        if pin is not None:
            environment["PULLER_PIN"] = pin
        done = subprocess.run(
            [puller, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        output = done.stdout + done.stderr
        assert done.returncode == status, output
        return output

    return run


def published(directory: Path) -> str | None:
    """Return the version that a host with the first root and no other metadata would enforce."""
    first = directory / "site/public/metadata/1.root.json"
    mirror = DirectoryMirror(str(directory / "site/public"))
    release = TrustClient(directory / "host", first, [mirror], ["web"]).refresh().find("web", "stable")
    return release.version if release else None


def test_hosts_accept_signatures_of_a_token(run: Command, tmp_path: Path) -> None:
    run("site", "init", "site", "--no-passphrase")
    run("site", "publish", "site", "web", "--version", "1.0.0")
    assert published(tmp_path) == "1.0.0"
    run("site", "rotate", "site", "timestamp", "--uri", ONLINE)
    run("site", "rotate", "site", "targets", "--uri", "hsm:3")
    output = run("site", "keys", "list", "site")
    assert "ecdsa-sha2-nistp256  1 of 1     hsm:2?label=token (site/keys/timestamp-" in output
    assert "ecdsa-sha2-nistp384  1 of 1     hsm:3?label=token (site/keys/targets-" in output
    run("site", "publish", "site", "web", "--version", "1.1.0")
    assert published(tmp_path) == "1.1.0"
    run("site", "refresh", "site")
    run("site", "verify", "site")
    assert published(tmp_path) == "1.1.0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pin": "9999"}, ".uri: cannot sign: PinIncorrect"),
        (
            {"pin": None},
            "PIN: is required, and there is no terminal for a prompt: use --pin-file or $PULLER_PIN",
        ),
        ({"library": "/missing.so"}, "cannot sign: "),
        ({"library": ""}, "cannot sign: PYKCS11LIB environment variable must be set"),
    ],
)
def test_a_token_that_does_not_sign_says_why_and_nothing_changes(
    run: Command, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    run("site", "init", "site", "--no-passphrase")
    run("site", "rotate", "site", "timestamp", "--uri", ONLINE)
    before = (tmp_path / "site/public/metadata/timestamp.json").read_bytes()
    output = run("site", "refresh", "site", status=64, **changes)
    assert message in output
    assert (tmp_path / "site/public/metadata/timestamp.json").read_bytes() == before
    assert verify_site(Site(tmp_path / "site"))


def test_a_pin_from_a_file_needs_no_environment(run: Command, tmp_path: Path) -> None:
    (tmp_path / "pin").write_text("1234\n")
    run("site", "init", "site", "--no-passphrase")
    run("site", "rotate", "site", "timestamp", "--uri", ONLINE, "--pin-file", "pin", pin=None)
    run("site", "refresh", "site", "--pin-file", "pin", pin=None)


def test_a_key_that_is_not_in_the_token_is_not_added(run: Command) -> None:
    run("site", "init", "site", "--no-passphrase")
    for uri in ("hsm:9", "hsm:2?label=other", "hsm:x"):
        assert f"{uri}: cannot be used as a key: " in run(
            "site", "keys", "add", "site", "targets", "--uri", uri, status=64
        )


def test_two_people_sign_the_root_with_their_tokens(run: Command, tmp_path: Path) -> None:
    run("site", "init", "site", "--no-passphrase")
    run("site", "publish", "site", "web", "--version", "1.0.0")
    (own,) = (path.stem.removeprefix("root-") for path in (tmp_path / "site/keys").glob("root-*"))
    for name, uri in (("alice", ALICE), ("bob", BOB)):
        (tmp_path / f"{name}.pub").write_text(run("site", "keys", "public", "--uri", uri))
        run("site", "keys", "add", "site", "root", "--public", f"{name}.pub")
    run("site", "keys", "remove", "site", own, "--threshold", "2")
    run("site", "root", "export", "site", "next.json")
    run("site", "root", "sign", "next.json", "--uri", BOB, "--yes")
    assert "Complete" in run("site", "root", "sign", "next.json", "--uri", ALICE, "--yes")
    assert "in force, signed again: root" in run("site", "root", "import", "site", "next.json")
    assert "root       " in run("site", "keys", "list", "site")
    assert published(tmp_path) == "1.0.0"
