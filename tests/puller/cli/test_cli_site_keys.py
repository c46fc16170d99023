"""``puller site keys``, ``threshold``, ``rotate`` and ``root``: commands and output."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bundles.errors import KeyFileError, PublishError, TokenError
from bundles.publisher.lifecycle import make_site
from bundles.publisher.signing_keys import load_public_key, load_signer
from puller.cli.publisher.site import site

PLAIN = "--no-passphrase"


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PULLER_PASSPHRASE", "PULLER_NEW_PASSPHRASE", "PULLER_PIN", "PYKCS11LIB"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "pass").write_text("open sesame\n")


def run(*arguments: str, status: int = 0, **options: Any) -> str:
    """Run ``puller site …``. Puller's errors appear as on the command line."""
    result: Result = CliRunner().invoke(site, arguments, catch_exceptions=False, **options)
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture
def made(new_site: Path) -> Path:
    """A site with unencrypted keys."""
    return Path(shutil.copytree(new_site, "site"))


@pytest.fixture(scope="module")
def sealed_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_site(tmp_path_factory.mktemp("sealed") / "site", b"open sesame").directory


@pytest.fixture
def sealed(sealed_site: Path) -> Path:
    """A site with encrypted keys."""
    return Path(shutil.copytree(sealed_site, "site"))


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("publisher.site_options", "publisher.keys"):
        monkeypatch.setattr(f"puller.cli.{module}.is_terminal", lambda: True)


def listed() -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = json.loads(run("keys", "list", "site", "--format", "json"))
    return results


def key_of(role: str) -> str:
    """Return the id of a role's only key."""
    (result,) = (key["key"] for key in listed() if key["role"] == role)
    return str(result)


# --- keys ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("made")
def test_the_list_shows_roles_thresholds_and_places() -> None:
    lines = run("keys", "list", "site").splitlines()
    assert lines[0].split() == ["ROLE", "KEY", "TYPE", "MUST", "SIGN", "PRIVATE", "KEY"]
    root = key_of("root")[:12]
    assert lines[1].split() == ["root", root, "ed25519", "1", "of", "1", f"site/keys/root-{root}.pem"]
    assert [line.split()[0] for line in lines[1:]] == ["root", "targets", "snapshot", "timestamp"]


@pytest.mark.usefixtures("made")
def test_a_replaced_key_is_accounted_for() -> None:
    old = key_of("timestamp")
    output = run("rotate", "site", "timestamp", PLAIN)
    assert "site: in force, signed again: root, timestamp\n" in output
    assert f"  - timestamp: new key {key_of('timestamp')} (ed25519)\n" in output
    assert f"  - timestamp: the key {old} (ed25519) is removed\n" in output
    assert f"site/keys/retired/timestamp-{old[:12]}.pem: an unused key" in output
    assert "puller site push site www:/srv/www/puller" in output


@pytest.mark.usefixtures("made")
def test_keys_and_thresholds_change_by_their_commands() -> None:
    run("keys", "add", "site", "targets", PLAIN)
    assert "targets: 2 of 2 keys must sign, previously 1 of 2" in run("threshold", "site", "targets", "2")
    assert "site: unchanged" in run("threshold", "site", "targets", "2")
    (first, _) = (key["key"] for key in listed() if key["role"] == "targets")
    with pytest.raises(PublishError, match="add another key first, or pass --threshold 1"):
        run("keys", "remove", "site", first[:8])
    run("keys", "remove", "site", first[:8], "--threshold", "1")
    assert key_of("targets") != first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["keys", "add", "site", "boss"], "'boss' is not one of 'root', 'targets', 'snapshot', 'timestamp'"),
        (["keys", "add", "site", "root", "--threshold", "0"], "0 is not in the range x>=1"),
        (
            ["keys", "add", "site", "root", "--uri", "hsm:", PLAIN],
            "--uri, --public and --no-passphrase exclude",
        ),
        (["keys", "add", "site", "root", "--public", "missing"], "'missing' does not exist"),
        (["keys", "passphrase", "site", PLAIN, "--new-passphrase-file", "pass"], "exclude each other"),
        (["keys", "public"], "expected one of --key and --uri"),
        (["threshold", "site", "root", "two"], "'two' is not a valid integer range"),
        (["root", "sign", "missing"], "'missing' does not exist"),
        (["root", "show", "missing"], "'missing' does not exist"),
    ],
)
@pytest.mark.usefixtures("made")
def test_contradictory_options_are_a_usage_error(arguments: list[str], message: str) -> None:
    assert message in run(*arguments, status=2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["keys", "list", "."],
        ["keys", "add", ".", "root", PLAIN],
        ["keys", "remove", ".", "0"],
        ["keys", "passphrase", ".", PLAIN],
        ["threshold", ".", "root", "2"],
        ["rotate", ".", "root", PLAIN],
        ["root", "renew", "."],
        ["root", "show", "."],
        ["root", "export", ".", "file"],
        ["root", "import", ".", "pass"],
        ["root", "discard", "."],
    ],
    ids=" ".join,
)
def test_directory_without_a_site_is_reported(arguments: list[str]) -> None:
    with pytest.raises(PublishError, match=r"\.: is not a site; `puller site init` creates one"):
        run(*arguments)


@pytest.mark.usefixtures("made")
def test_replacing_in_a_role_of_several_keys_requires_a_key_id() -> None:
    run("keys", "new", "alice.pem", PLAIN)
    run("keys", "add", "site", "targets", PLAIN)
    message = "targets has several keys: say with --key which one is replaced"
    assert message in run("rotate", "site", "targets", "--public", "alice.pub", status=2)


@pytest.mark.usefixtures("made")
def test_unavailable_key_states_the_reason() -> None:
    with pytest.raises(TokenError, match=r"file:x: is not the URI of a signing key, expected one of hsm:2"):
        run("keys", "add", "site", "root", "--uri", "file:x")
    with pytest.raises(TokenError, match="hsm:2: cannot be used as a key: PYKCS11LIB environment variable"):
        run("keys", "add", "site", "root", "--uri", "hsm:2")


# --- user-supplied keys -------------------------------------------------------------------------------------


def test_a_key_is_made_away_from_any_site() -> None:
    output = run("keys", "new", "alice.pem", "--passphrase-file", "pass")
    signer = load_signer(Path("alice.pem"), lambda _: b"open sesame")
    assert f"alice.pem: a new key, {signer.public_key.keyid}. Keep it" in output
    assert load_public_key(Path("alice.pub")).public == signer.public_key
    assert Path("alice.pem").stat().st_mode & 0o777 == 0o600
    shown = run("keys", "public", "--key", "alice.pem", "--passphrase-file", "pass")
    assert shown == Path("alice.pub").read_text()


@pytest.mark.parametrize("name", ["alice.pem", "alice.pub"])
def test_a_key_is_never_written_over(name: str) -> None:
    Path(name).write_text("precious")
    with pytest.raises(KeyFileError, match=f"{name}: exists, and keys are never written over"):
        run("keys", "new", "alice.pem", PLAIN)
    assert Path(name).read_text() == "precious"


# --- passphrases --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("sealed")
def test_a_new_key_has_the_passphrase_of_the_others() -> None:
    run("rotate", "site", "timestamp", "--passphrase-file", "pass")
    (path,) = Path("site/keys").glob("timestamp-*.pem")
    assert load_signer(path, lambda _: b"open sesame")
    Path("wrong").write_text("open barley")
    with pytest.raises(KeyFileError, match="the passphrase is wrong"):
        run("rotate", "site", "timestamp", "--passphrase-file", "wrong")
    assert [*Path("site/keys").glob("timestamp-*.pem")] == [path]


@pytest.mark.usefixtures("sealed", "_terminal")
def test_the_passphrase_is_asked_for_once() -> None:
    output = run("rotate", "site", "timestamp", input="open sesame\n")
    assert output.count("Passphrase of site/keys/") == 1
    assert "open sesame" not in output


@pytest.mark.usefixtures("sealed")
def test_the_passphrase_is_changed_from_file_or_environment() -> None:
    Path("new").write_text("open barley\n")
    output = run("keys", "passphrase", "site", "--passphrase-file", "pass", "--new-passphrase-file", "new")
    assert output.count("written with the new passphrase") == 4
    output = run("keys", "passphrase", "site", "--new-passphrase-file", "new", env={"PULLER_PASSPHRASE": "x"})
    assert "all key files have this passphrase already: nothing to do" in output
    environment = {"PULLER_PASSPHRASE": "open barley", "PULLER_NEW_PASSPHRASE": "open rye"}
    run("keys", "passphrase", "site", env=environment)
    run("refresh", "site", env={"PULLER_PASSPHRASE": "open rye"})
    assert (
        run("keys", "passphrase", "site", PLAIN, env={"PULLER_PASSPHRASE": "open rye"}).count("NOT encr") == 4
    )


@pytest.mark.usefixtures("sealed", "_terminal")
def test_the_new_passphrase_is_asked_for_twice() -> None:
    output = run("keys", "passphrase", "site", input="open barley\nopen barley\nopen sesame\n")
    assert output.count("written with the new passphrase") == 4
    run("refresh", "site", input="open barley\n")


@pytest.mark.usefixtures("sealed")
def test_new_passphrase_requires_a_terminal_or_a_file() -> None:
    with pytest.raises(KeyFileError, match=r"use --new-passphrase-file or \$PULLER_NEW_PASSPHRASE"):
        run("keys", "passphrase", "site", "--passphrase-file", "pass")


# --- the root -----------------------------------------------------------------------------------------------


@pytest.fixture
def office(made: Path) -> Path:
    """A site whose only root key belongs to another person, with a change that needs its signature."""
    run("keys", "new", "alice.pem", PLAIN)
    run("rotate", "site", "root", "--public", "alice.pub")
    run("root", "export", "site", "next.json")
    run("root", "sign", "next.json", "--key", "alice.pem", "--yes")
    run("root", "import", "site", "next.json")
    assert "NOT in force yet. This change of the root waits" in run("rotate", "site", "timestamp", PLAIN)
    return made


def test_a_change_travels_to_its_signer_and_back(office: Path) -> None:
    assert "A change is pending, and waits for 1 more signature by the root keys: " in run(
        "keys", "list", "site"
    )
    output = run("root", "export", str(office), "next.json")
    assert "puller site root sign next.json --key KEY.pem" in output
    assert "  puller site root import site next.json" in output
    output = run("root", "sign", "next.json", "--key", "alice.pem", "--yes")
    alice = load_public_key(Path("alice.pub")).public.keyid[:12]
    assert "It changes:\n  - version 2 becomes 3\n" in output
    assert f"next.json: signed with the key {alice}\nSigned by: {alice}\nComplete" in output
    assert "has signed it before: nothing to do" in run(
        "root", "sign", "next.json", "--key", "alice.pem", "--yes"
    )
    output = run("root", "import", "site", "next.json")
    assert "next.json: 1 new signature\nsite: in force, signed again: root, timestamp\n" in output
    assert "no change of the root is pending" in run("root", "show", "site")


@pytest.mark.usefixtures("office", "_terminal")
def test_a_signer_is_asked_and_may_say_no() -> None:
    run("root", "export", "site", "next.json")
    before = Path("next.json").read_bytes()
    output = run("root", "sign", "next.json", "--key", "alice.pem", input="n\n", status=1)
    assert "Do you sign this? [y/N]: n\nnext.json: not signed" in output
    assert Path("next.json").read_bytes() == before
    assert "Complete" in run("root", "sign", "next.json", "--key", "alice.pem", input="y\n")


@pytest.mark.usefixtures("office")
def test_signing_without_a_terminal_requires_confirmation() -> None:
    run("root", "export", "site", "next.json")
    with pytest.raises(PublishError, match="a prompt requires a terminal: check the file, then use --yes"):
        run("root", "sign", "next.json", "--key", "alice.pem")


@pytest.mark.usefixtures("office")
def test_pending_change_is_shown_at_the_site_and_in_the_file() -> None:
    run("root", "export", "site", "next.json")
    at_the_site, in_the_file = run("root", "show", "site"), run("root", "show", "next.json")
    assert at_the_site.removeprefix("site") == in_the_file.removeprefix("next.json")
    assert "timestamp: new key" in at_the_site
    assert "Signed by: nobody yet\nMissing: 1 more signature" in at_the_site


@pytest.mark.usefixtures("office")
def test_a_change_is_discarded() -> None:
    output = run("root", "discard", "site")
    assert "site: the pending change is forgotten\nsite/keys/retired/timestamp-" in output
    with pytest.raises(PublishError, match="no change of the root is pending; puller site root renew begins"):
        run("root", "export", "site", "next.json")


@pytest.mark.usefixtures("office")
def test_extended_change_voids_its_signatures() -> None:
    run("keys", "new", "bob.pem", PLAIN)
    run("root", "discard", "site")
    run("keys", "add", "site", "root", "--public", "bob.pub", "--threshold", "2")
    run("root", "export", "site", "next.json")
    run("root", "sign", "next.json", "--key", "alice.pem", "--yes")
    run("root", "import", "site", "next.json")
    output = run("rotate", "site", "snapshot", PLAIN)
    assert "site: this change joins the pending change, so 1 signature is void\n" in output


def test_a_refresh_says_why_the_root_is_not_signed(made: Path) -> None:
    (made / "site.yaml").write_text("expiry: {root: 1m}\n")
    run("root", "renew", "site")
    (made / "site.yaml").write_text("expiry: {root: 365d}\n")
    run("keys", "new", "alice.pem", PLAIN)
    run("keys", "add", "site", "root", "--public", "alice.pub", "--threshold", "2")
    output = run("refresh", "site")
    assert (
        "site: root expires soon, and a change of the root is pending: puller site root show site" in output
    )
    (root,) = (path for path in (made / "keys").glob("root-*.pem"))
    run("root", "discard", "site")
    root.rename("elsewhere.pem")
    output = run("refresh", "site")
    assert "root expires soon, and its keys are not in site/keys: puller site root renew site" in output
    (targets,) = (made / "keys").glob("targets-*.pem")
    targets.unlink()
    (made / "site.yaml").write_text("expiry: {targets: 9999w}\n")
    assert "targets expires soon, and not enough of its keys are in site/keys" in run("refresh", "site")


def test_a_new_key_is_not_written_over_by_its_own_public_part(made: Path) -> None:
    with pytest.raises(KeyFileError, match=r"alice\.pub: is the name for the public part, expected another"):
        run("keys", "new", "alice.pub", PLAIN)
    assert not Path("alice.pub").exists()


@pytest.mark.parametrize("command", ["list", "add", "remove", "passphrase", "new", "public"])
def test_every_command_for_keys_has_an_example(command: str) -> None:
    assert "Example:" in run("keys", command, "--help") or command == "list"


@pytest.mark.parametrize("command", ["renew", "show", "export", "sign", "import", "discard"])
def test_every_command_for_the_root_has_an_example(command: str) -> None:
    assert "Example:" in run("root", command, "--help")
