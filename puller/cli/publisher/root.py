"""``puller site root``: changes of the root, signed by people on other machines."""

from pathlib import Path

import click

from bundles.errors import PublishError
from bundles.publisher.ceremony import Proposal
from foundation.problems import ProblemCode
from foundation.quantities import counted
from puller.cli.output import say
from puller.cli.publisher.changes import finish_key_change
from puller.cli.publisher.key_sources import is_terminal, role_keys, signer_of
from puller.cli.publisher.site_options import (
    passphrase_option,
    print_list,
    site_directory,
    uri_option,
)
from puller.cli.publisher.site_place import SiteCommands

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
def show(place: Path) -> None:
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
    _tell_missing(proposal)


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
    _tell_missing(proposal)


def _tell_missing(proposal: "Proposal") -> None:
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
