"""``puller site keys``, ``threshold``, ``rotate`` and ``root``: the keys that may sign for a site, and its root.

People on other machines can sign a change of the root.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bundles.errors import KeyFileError, PublishError
from bundles.filesystem.safe_paths import write_output
from bundles.publisher.ceremony import Proposal
from bundles.publisher.roles import RotationPlan
from bundles.publisher.signing_keys import make_key, public_pem, shown_id
from foundation.problems import ProblemCode
from foundation.quantities import counted
from puller.cli.options import Decorator, noop_option, text_format_option, together
from puller.cli.output import print_table, say, show
from puller.cli.publisher.push import finish_change, finish_key_change, no_push_option
from puller.cli.publisher.site import SiteCommands
from puller.cli.publisher.site_options import (
    NEW_KEYS_VARIABLE,
    changed_passphrase,
    is_terminal,
    key_maker,
    new_passphrase,
    passphrase_option,
    print_list,
    role_keys,
    signer_of,
    site_directory,
    uri_option,
)

if TYPE_CHECKING:
    from bundles.publisher.roles import RoleKey


_ROLES = ("root", "targets", "snapshot", "timestamp")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_role: Decorator = click.argument("role", type=click.Choice(_ROLES), metavar="ROLE")
_threshold: Decorator = click.option(
    "--threshold",
    metavar="NUMBER",
    type=click.IntRange(min=1),
    help="The number of keys of the role that must sign from now on.",
)
_no_passphrase: Decorator = click.option(
    "--no-passphrase", is_flag=True, help="Store the new key unencrypted. Anyone who can read it can sign."
)
_public: Decorator = click.option(
    "--public", type=_FILE, metavar="FILE", help="The public key of another signer, in PEM."
)


_new_key = together(uri_option, _public, _no_passphrase, passphrase_option)
"""Source of a new key: generated here, or ``--uri`` or ``--public``."""


@click.group("keys", cls=SiteCommands)
def keys() -> None:
    """Show and change the keys of a site.

    A site has four roles. The role root determines the keys of all roles. Keep several root keys offline. The role
    targets signs the releases. The roles snapshot and timestamp sign the consistency and the freshness of all metadata.

    Each change creates a new root. Hosts accept it automatically, because known keys sign it. If the root keys are on
    another machine, the change waits for `puller site root export`.

    \b
    Example:
      puller site keys list site
      puller site keys add site root --public alice.pub
    """


@keys.command("list")
@site_directory
@text_format_option
def list_(directory: Path, output_format: str) -> None:
    """List the keys and the thresholds of all roles."""
    roles = role_keys(directory)
    if output_format == "json":
        show([_plain(key) for key in roles.held_keys()], "json")
        return
    rows = [
        (key.role, key.key_id[:12], key.scheme, key.needed, key.place or "not here")
        for key in roles.held_keys()
    ]
    print_table(("ROLE", "KEY", "TYPE", "MUST SIGN", "PRIVATE KEY"), rows)
    if (pending := roles.pending()) is not None:
        say(f"\nA change is pending, and waits for {'; '.join(pending.missing())}")
        say(f"  puller site root show {directory}")


@keys.command("add")
@site_directory
@_role
@_threshold
@_new_key
def add(
    directory: Path,
    role: str,
    threshold: int | None,
    uri: str | None,
    public: Path | None,
    no_passphrase: bool,
    passphrase_file: Path | None,
) -> None:
    """Add a key to ROLE: a new key, or an existing one.

    \b
    Example:
      puller site keys add site timestamp
      puller site keys add site targets --uri 'hsm:2?label=publisher' --threshold 2
      puller site keys add site root --public alice.pub
    """
    roles = role_keys(directory, passphrase_file)
    key = key_maker(roles, uri, public, no_passphrase, passphrase_file)()
    finish_key_change(directory, roles.add(role, key, threshold))


@keys.command("remove")
@site_directory
@click.argument("key")
@click.option(
    "--role", type=click.Choice(_ROLES), help="The role, if several roles have a key with this prefix."
)
@_threshold
@passphrase_option
def remove(
    directory: Path, key: str, role: str | None, threshold: int | None, passphrase_file: Path | None
) -> None:
    """Remove KEY from its role. Hosts then reject its signatures.

    KEY is the start of a key's id.

    \b
    Example:
      puller site keys remove site 0d3a
    """
    finish_key_change(directory, role_keys(directory, passphrase_file).remove(key, role, threshold))


@keys.command("passphrase")
@site_directory
@click.option(
    "--new-passphrase-file",
    type=_FILE,
    help=f"Read the new passphrase from FILE.  [default: ${NEW_KEYS_VARIABLE}, else a prompt]",
)
@click.option("--no-passphrase", is_flag=True, help="Store the keys unencrypted from now on.")
@passphrase_option
def passphrase(
    directory: Path, new_passphrase_file: Path | None, no_passphrase: bool, passphrase_file: Path | None
) -> None:
    """Encrypt the key files of the site with a new passphrase.

    The old passphrase still opens copies of the old files. If an attacker may know it, rotate the keys.

    \b
    Example:
      puller site keys passphrase site
      puller site keys passphrase site --passphrase-file old.pass --new-passphrase-file new.pass
    """
    if no_passphrase and new_passphrase_file is not None:
        raise click.UsageError("--no-passphrase and --new-passphrase-file exclude each other")
    roles = role_keys(directory, passphrase_file)
    changed = roles.change_passphrase(None if no_passphrase else changed_passphrase(new_passphrase_file))
    for path in changed:
        say(f"{path}: written with the new passphrase" if not no_passphrase else f"{path}: NOT encrypted")
    if not changed:
        say(f"{roles.site.keys}: all key files have this passphrase already: nothing to do")


@keys.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@_no_passphrase
@passphrase_option
def new(file: Path, no_passphrase: bool, passphrase_file: Path | None) -> None:
    """Create a private key in FILE, and its public key in FILE.pub.

    Use it for a signer with a separate machine. The publisher needs only the public key: `puller site keys add SITE
    root --public FILE.pub`.

    \b
    Example:
      puller site keys new alice.pem
    """
    if file == _public_file(file):
        raise KeyFileError(
            str(file),
            "is the name for the public part",
            code=ProblemCode.INVALID_NAME,
            expected="another such as FILE.pem",
        )
    for path in (file, _public_file(file)):
        if path.exists():
            raise KeyFileError(
                str(path), "exists, and keys are never written over", code=ProblemCode.UNWRITABLE_OUTPUT
            )
    made = make_key(None if no_passphrase else new_passphrase(passphrase_file))
    write_output(file, made.contents or b"", mode=0o600)
    write_output(_public_file(file), public_pem(made.public))
    say(f"{file}: a new key, {made.public.keyid}. Keep it and a copy in a private place.")
    say(f"{_public_file(file)}: its public part, for the publisher")


@keys.command("public")
@click.option("--key", "file", type=_FILE, metavar="FILE", help="The file of a private key.")
@uri_option
@passphrase_option
def public(file: Path | None, uri: str | None, passphrase_file: Path | None) -> None:
    """Print the public key, for `puller site keys add --public`.

    \b
    Example:
      puller site keys public --uri 'hsm:2?label=alice' > alice.pub
    """
    say(public_pem(signer_of(file, uri, passphrase_file).public_key).decode(), nl=False)


@click.command("threshold")
@site_directory
@_role
@click.argument("number", type=click.IntRange(min=1))
@passphrase_option
def threshold(directory: Path, role: str, number: int, passphrase_file: Path | None) -> None:
    """Require the signatures of NUMBER keys of ROLE.

    \b
    Example:
      puller site threshold site root 2
    """
    finish_key_change(directory, role_keys(directory, passphrase_file).set_threshold(role, number))


@click.command("rotate")
@site_directory
@_role
@click.option("--key", metavar="KEY", help="Replace only the key whose id has this prefix.")
@_new_key
@noop_option("Show the keys that would be replaced, and sign nothing.")
@no_push_option
def rotate(
    directory: Path,
    role: str,
    key: str | None,
    *,
    uri: str | None,
    public: Path | None,
    no_passphrase: bool,
    passphrase_file: Path | None,
    noop: bool,
    no_push: bool,
) -> None:
    """Replace the keys of ROLE, and sign its metadata again.

    Hosts accept the new keys automatically. The old key files move to DIR/keys/retired.

    \b
    Example:
      puller site rotate site timestamp
      puller site rotate site root --key 0d3a --public bob.pub
    """
    roles = role_keys(directory, passphrase_file)
    if key is None and (uri or public) and sum(held_key.role == role for held_key in roles.held_keys()) > 1:
        raise click.UsageError(f"{role} has several keys: say with --key which one is replaced")
    if noop:
        _print_rotation(directory, role, roles.plan_rotation(role, key))
        return
    make = key_maker(roles, uri, public, no_passphrase, passphrase_file)
    finish_key_change(directory, roles.rotate(role, make, key), no_push=no_push)


def _print_rotation(directory: Path, role: str, plan: RotationPlan) -> None:
    for key_id in plan.replaced:
        say(f"{directory}: would replace key {shown_id(key_id)} of {role}")
    say(f"{directory}: would sign again: {', '.join(plan.signed)}")
    if not plan.is_signed_here:
        say(f"{directory}: the change would wait for the signatures of root keys on other machines")
    finish_change(directory, changed=True, noop=True, no_push=False)


def _public_file(file: Path) -> Path:
    return file.with_suffix(".pub")


def _plain(key: "RoleKey") -> dict[str, Any]:
    return {
        "role": key.role,
        "key": key.key_id,
        "type": key.scheme,
        "must_sign": key.needed,
        "private_key": key.place,
    }


_file = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
_existing_file = click.argument(
    "file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)


@click.group("root", cls=SiteCommands)
def root() -> None:
    """Sign a change of the root on the machines of its signers.

    A change of keys or thresholds without enough signatures is stored in DIR/pending-root.json. Publishing
    continues meanwhile. Send the exported file to each signer, in any order or as copies. The import that completes
    the signatures activates the change.

    \b
    Example, on the publishing machine, on that of a signer, and back:
      puller site root renew site
      puller site root export site next-root.json
      puller site root sign next-root.json --key alice.pem
      puller site root import site next-root.json
    """


@root.command("renew")
@site_directory
@passphrase_option
def renew(directory: Path, passphrase_file: Path | None) -> None:
    """Renew the expiry of the root.

    \b
    Example:
      puller site root renew site
    """
    finish_key_change(directory, role_keys(directory, passphrase_file).renew())


@root.command("show")
@click.argument("place", metavar="[DIR|FILE]", type=click.Path(exists=True, path_type=Path))
def show_root(place: Path) -> None:
    """Show a pending change and its signatures.

    DIR may also be an exported file.

    \b
    Example:
      puller site root show site
      puller site root show next-root.json
    """
    proposal = role_keys(place).pending() if place.is_dir() else Proposal.load(place)
    if proposal is None:
        say(f"{place}: no change of the root is pending")
    else:
        _describe(place, proposal)


@root.command("export")
@site_directory
@_file
def export(directory: Path, file: Path) -> None:
    """Write the pending change to FILE for the signers.

    \b
    Example:
      puller site root export site next-root.json
    """
    proposal = _pending_proposal(directory)
    proposal.save(file)
    _describe(file, proposal)
    say(f"Next, where a key is that is still missing:\n  puller site root sign {file} --key KEY.pem")
    say(f"And then here:\n  puller site root import {directory} {file}")


@root.command("sign")
@_existing_file
@click.option(
    "--key",
    "key",
    metavar="KEY.pem",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The private key to sign with.",
)
@uri_option
@click.option("--yes", is_flag=True, help="Sign without confirmation, if you have checked FILE before.")
@passphrase_option
def sign(file: Path, key: Path | None, uri: str | None, yes: bool, passphrase_file: Path | None) -> None:
    """Show the change in FILE, and sign it after confirmation.

    This command needs neither the site nor a network. Run it on the machine with the key.

    \b
    Example:
      puller site root sign next-root.json --key alice.pem
      puller site root sign next-root.json --uri 'hsm:2?label=alice'
    """
    proposal = Proposal.load(file)
    _describe(file, proposal)
    if not yes and not _is_agreed():
        say(f"{file}: not signed")
        click.get_current_context().exit(1)
    signer = signer_of(key, uri, passphrase_file)
    key_id = signer.public_key.keyid
    if not proposal.sign(signer, str(key or uri)):
        say(f"{file}: the key {key_id[:12]} has signed it before: nothing to do")
        return
    proposal.save(file)
    say(f"{file}: signed with the key {key_id[:12]}")
    _print_missing(proposal)


@root.command("import")
@site_directory
@_existing_file
@passphrase_option
def import_(directory: Path, file: Path, passphrase_file: Path | None) -> None:
    """Import the signatures in FILE. Enough of them activate the change.

    \b
    Example:
      puller site root import site next-root.json
    """
    new, outcome = role_keys(directory, passphrase_file).take_signatures(file)
    say(f"{file}: {counted(new, 'new signature')}")
    finish_key_change(directory, outcome)


@root.command("discard")
@site_directory
def discard(directory: Path) -> None:
    """Delete the pending change.

    Signatures on exported copies stay valid. If enough keys have signed a copy, anyone with this copy and the files of
    the site can still activate the change.

    \b
    Example:
      puller site root discard site
    """
    retired = role_keys(directory).discard()
    say(f"{directory}: the pending change is forgotten")
    for path in retired:
        say(f"{path}: was made for it, and is kept")


def _pending_proposal(directory: Path) -> "Proposal":
    if (proposal := role_keys(directory).pending()) is None:
        raise PublishError(
            str(directory), "no change of the root is pending", hint="puller site root renew begins one"
        )
    return proposal


def _describe(place: Path, proposal: "Proposal") -> None:
    say(f"{place}: the next root of a site")
    say("It changes:")
    print_list(proposal.changes())
    say("Afterwards these keys sign:")
    print_list(proposal.afterwards())
    _print_missing(proposal)


def _print_missing(proposal: "Proposal") -> None:
    signed = ", ".join(key_id[:12] for key_id in proposal.signed_by())
    say(f"Signed by: {signed or 'nobody yet'}")
    for sentence in proposal.missing():
        say(f"Missing: {sentence}")
    if proposal.is_complete:
        say("Complete: puller site root import puts it in force")


def _is_agreed() -> bool:
    if not is_terminal():
        raise PublishError(
            "puller site root sign",
            "a prompt requires a terminal: check the file, then use --yes",
            code=ProblemCode.INVALID_COMMAND,
        )
    return click.confirm("Do you sign this?")
