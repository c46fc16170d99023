"""``puller secrets``: encrypted files for named hosts, in the format of SOPS."""

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from foundation.formatting import text_of, text_of_all
from foundation.quantities import counted
from hiera.errors import HieraError
from hiera.sops.identities import Identities
from hiera.sops.writing import Readers, decrypt, encrypt, find_metadata
from puller.authoring.secrets.editing import Edit, Edited, read_encrypted, write_text
from puller.authoring.secrets.readers import (
    Rekeyed,
    Sealed,
    desired_readers,
    find_readers,
    find_sealed,
    rekey,
    removable,
)
from puller.authoring.secrets.recipients import Host, Recipients, find_recipients, load_recipients
from puller.cli.command_table import CommandGroup
from puller.cli.completing import files
from puller.cli.fleet.fleet import STORE_VARIABLE, open_reader, opened_store
from puller.cli.options import noop_option, text_format_option, together
from puller.cli.output import say, show, warn
from puller.errors import UsageError
from puller.state import IDENTITIES, users_state

_SSH_KEYS: Final = ("id_ed25519", "id_rsa")

_identity_option = click.option(
    "--identity",
    "identities",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Your key of age or SSH. Repeatable.  [default: the keys that SOPS uses, then those of this host]",
)
_known_options = together(
    click.option(
        "--recipients",
        "recipients_file",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="People, hosts and rules.  [default: the nearest recipients.yaml above the first file]",
    ),
    click.option(
        "--store",
        "location",
        envvar=STORE_VARIABLE,
        show_envvar=True,
        metavar="FILE|URL",
        shell_complete=files,
        help="The store of the fleet, with further hosts.",
    ),
)
_reader_option = click.option(
    "--reader",
    "readers",
    multiple=True,
    metavar="READER",
    help="host=NAME, bundle=NAME, role=NAME, facts.NAME=VALUE, person=NAME or a recipient. Repeatable.",
)
_paths = click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True), metavar="FILE|DIR...")


@click.group("secrets", cls=CommandGroup)
def secrets() -> None:
    """Encrypt data files for the hosts that need them.

    The files have the format of SOPS with recipients of age, so `sops` can edit them too. The readers of a file are in
    recipients.yaml or .sops.yaml (docs/secrets.md), or in --reader.

    \b
    Your own key is, as for SOPS:
      SOPS_AGE_KEY, the file in SOPS_AGE_KEY_FILE, SOPS_AGE_SSH_PRIVATE_KEY_FILE,
      ~/.config/sops/age/keys.txt, ~/.ssh/id_ed25519, ~/.ssh/id_rsa
    """


@secrets.command("encrypt")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False), metavar="FILE..."
)
@_reader_option
@_known_options
def encrypt_files(
    paths: tuple[str, ...], *, readers: tuple[str, ...], recipients_file: str | None, location: str | None
) -> None:
    """Encrypt files in place.

    The readers are those of --reader. Without it, they are those of the rule for the file. A file that is encrypted
    already stays unchanged. All files are encrypted before the first one is written.

    \b
    Example:
      puller secrets encrypt bundles/web/data/secrets.yaml
      puller secrets encrypt secrets.yaml --reader person=alice --reader bundle=web,facts.os.family=Debian
    """
    recipients = _recipients(paths[0], recipients_file, location)
    own = _own_recipients()
    results: dict[str, str | None] = {}
    for path in paths:
        text = read_encrypted(path)
        if find_metadata(text, path) is not None:
            results[path] = None
            continue
        chosen = _readers(path, readers, recipients)
        results[path] = encrypt(text, path, chosen)
        if not own.intersection(chosen.recipients):
            warn(f"{path}: you are not among the readers, so you cannot edit the file")
    for path, result in results.items():
        if result is None:
            say(f"{path}: is encrypted already")
        else:
            write_text(path, result)
            metadata = find_metadata(result, path)
            say(f"{path}: encrypted for {counted(len(metadata.sealed) if metadata else 0, 'reader')}")


@secrets.command("decrypt")
@click.argument("path", type=click.Path(exists=True, dir_okay=False), metavar="FILE")
@_identity_option
def decrypt_file(path: str, identities: tuple[str, ...]) -> None:
    """Print the plain text of FILE. The file stays encrypted.

    \b
    Example:
      puller secrets decrypt bundles/web/data/secrets.yaml
    """
    own = _identities(identities)
    click.echo(decrypt(read_encrypted(path), path, own).text, nl=False)
    _warn_of_unusable(own)


@secrets.command("edit")
@click.argument("path", type=click.Path(dir_okay=False), metavar="FILE", shell_complete=files)
@_reader_option
@_known_options
@_identity_option
def edit_file(
    path: str,
    *,
    readers: tuple[str, ...],
    recipients_file: str | None,
    location: str | None,
    identities: tuple[str, ...],
) -> int:
    """Edit FILE in an editor, and encrypt it again.

    The editor is SOPS_EDITOR, EDITOR or vi. The plain text is in a private directory in memory, which is removed at the
    end, even after a kill. Unchanged values keep their ciphertext. If the text is invalid, FILE stays unchanged, and
    the text is kept, encrypted for your own key. The next edit resumes it. If FILE does not exist, --reader or a rule
    selects the readers of the new file.

    \b
    Example:
      puller secrets edit bundles/web/data/secrets.yaml

    Exit status: 0 if the file is saved or unchanged.
    """

    def new_readers() -> Readers:
        return _readers(path, readers, _recipients(path, recipients_file, location))

    if os.path.lexists(path) and readers:
        raise UsageError(
            "--reader is for new files", hint="`puller secrets rekey --add` changes the readers of a file"
        )
    editor = os.environ.get("SOPS_EDITOR") or os.environ.get("EDITOR") or "vi"
    drafts = os.path.join(users_state(), "drafts")
    own = _identities(identities)
    result = Edit(path, own, new_readers, editor, drafts, warn, _confirm_new_attempt).run()
    _warn_of_unusable(own)
    say(
        f"{path}: {result if result is not Edited.DISCARDED else 'unchanged, because the editor returned an error'}"
    )
    return 0


@secrets.command("rekey")
@_paths
@click.option(
    "--add", "added", multiple=True, metavar="READER", help="A reader to add, as in --reader. Repeatable."
)
@click.option("--remove", "removed", multiple=True, metavar="READER", help="A reader to remove. Repeatable.")
@click.option("--new-key", is_flag=True, help="Encrypt all values with a new key, also if no reader leaves.")
@noop_option("Show the changes, and write nothing.")
@_known_options
@_identity_option
@text_format_option
def rekey_files(
    paths: tuple[str, ...],
    *,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    new_key: bool,
    noop: bool,
    recipients_file: str | None,
    location: str | None,
    identities: tuple[str, ...],
    output_format: str,
) -> None:
    """Change the readers of encrypted files.

    Without --add and --remove, each file gets the readers of its rule. A directory stands for all encrypted files
    below it. If a reader leaves, the values get a new key, and the command lists the values that this reader has read.
    Change these values where they are used, such as the password of a database. A file that has its readers already
    stays unchanged.

    \b
    Example:
      puller secrets rekey bundles
      puller secrets rekey bundles --remove host=web2.example.com
      puller secrets rekey bundles/web/data/secrets.yaml --add bundle=web
    """
    recipients = _recipients(paths[0], recipients_file, location)
    sealed = list(find_sealed(paths))
    if removed and sealed:
        _require_selected(removed, sealed, recipients)
    own = _identities(identities)
    results = [
        rekey(each, desired_readers(each, recipients, added, removed), recipients, own, new_key=new_key)
        for each in sealed
    ]
    if output_format == "json":
        show([_plain(result) for result in results], "json")
    else:
        _print_rekeyed(results, noop=noop)
    _warn_of_unusable(own)
    for each, result in zip(sealed, results, strict=True):
        if result.is_changed and not noop:
            write_text(each.path, result.text)


@secrets.command("recipients")
@_paths
@_known_options
@text_format_option
def list_recipients(
    paths: tuple[str, ...], *, recipients_file: str | None, location: str | None, output_format: str
) -> None:
    """List the readers of encrypted files.

    A directory stands for all encrypted files below it. No key is needed. `+` marks a reader that the rule of the file
    adds at the next `puller secrets rekey`, and `-` a reader that it removes.

    \b
    Example:
      puller secrets recipients bundles
    """
    recipients = _recipients(paths[0], recipients_file, location)
    described = []
    for sealed in find_sealed(paths):
        rule = find_readers(sealed.path, recipients)
        names = sealed.names(recipients)
        desired = dict(rule[0].recipients) if rule is not None else names
        missing = {
            each: desired[each] or recipients.name_of(each) or each for each in desired if each not in names
        }
        surplus = [each for each in names if each not in desired]
        described.append((sealed.path, _shown(rule[1]) if rule else "", names, missing, surplus))
    if output_format == "json":
        show(
            [
                {"file": path, "rule": rule, "readers": names, "missing": missing, "surplus": surplus}
                for path, rule, names, missing, surplus in described
            ],
            "json",
        )
        return
    for path, source, names, missing, surplus in described:
        say(f"{path} ({source or 'no rule'}):")
        for each, name in names.items():
            say(f"{'-' if each in surplus else ' '} {name}")
        for name in missing.values():
            say(f"+ {name}")
    if not described:
        say("no file is encrypted")


# Recipients and keys of the options.


def _recipients(path: str, recipients_file: str | None, location: str | None) -> Recipients:
    start = path if os.path.isdir(path) else os.path.dirname(os.path.realpath(path))
    recipients = load_recipients(recipients_file) if recipients_file else find_recipients(start)
    if location is None:
        return recipients
    with opened_store(location) as store:
        reader = open_reader(store, None)
        bundles = reader.bundles_of_hosts()
        keys = dict(reader.recipients())
        hosts = {
            name: Host(keys.get(name, ""), tuple(bundles.get(name, ())), facts)
            for name, facts in reader.facts()
        }
    for name, host in recipients.hosts.items():
        reported = hosts[name].recipient if name in hosts else ""
        if reported and host.recipient and reported != host.recipient:
            warn(f"{name}: its reports have another recipient than {recipients.source}, which is used")
    return recipients.with_hosts(hosts)


def _readers(path: str, readers: Sequence[str], recipients: Recipients) -> Readers:
    result = find_readers(path, recipients)
    if readers:
        rule = result[0] if result else Readers({})
        return Readers(recipients.select(readers), rule.rule, rule.mac_only_encrypted)
    if result is None:
        hint = "add a rule to recipients.yaml or .sops.yaml, or use --reader"
        raise UsageError(f"{path}: no rule selects the file", hint=hint)
    return result[0]


def _require_selected(removed: Sequence[str], sealed: Sequence[Sealed], recipients: Recipients) -> None:
    for text in removed:
        if not any(removable(text, each, recipients) for each in sealed):
            raise UsageError(f"--remove {text}: selects no reader of these files")


def _identities(named: tuple[str, ...]) -> Identities:
    """Return the keys of the author, as SOPS finds them. Raises ``UsageError`` for a missing named key."""
    if named:
        return Identities(named)
    paths = []
    for variable in ("SOPS_AGE_KEY_FILE", "SOPS_AGE_SSH_PRIVATE_KEY_FILE"):
        if path := os.environ.get(variable):
            if not os.path.exists(path):
                raise UsageError(f"{variable} is {path}, which does not exist")
            paths.append(path)
    home = os.path.expanduser("~")
    configuration = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    paths.append(os.path.join(configuration, "sops/age/keys.txt"))
    paths += [os.path.join(home, ".ssh", name) for name in _SSH_KEYS]
    paths += [path for path in IDENTITIES if os.access(path, os.R_OK)]
    text = os.environ.get("SOPS_AGE_KEY")
    return Identities(tuple(paths), texts=(text,) if text else ())


def _own_recipients() -> set[str]:
    """Return the recipients of the author. No key is needed to encrypt, so unusable keys are only a warning."""
    identities = _identities(())
    try:
        recipients = {*identities.recipients()}
    except HieraError as error:
        warn(text_of_all(error.problems))
        return set()
    _warn_of_unusable(identities)
    return recipients


def _warn_of_unusable(identities: Identities) -> None:
    for problem in identities.problems:
        warn(text_of(problem))


def _confirm_new_attempt(error: HieraError) -> bool:
    say(f"puller: {text_of_all(error.problems)}", err=True)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return click.confirm("Edit the text again?", default=True, err=True)


# Output.


def _shown(path: str) -> str:
    """Return a path relative to the working directory, if it is below it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("../") else relative


def _plain(result: Rekeyed) -> dict[str, Any]:
    return {
        "file": result.path,
        "changed": result.is_changed,
        "added": result.added,
        "removed": result.removed,
        "exposed": list(result.exposed),
    }


def _print_rekeyed(results: Sequence[Rekeyed], *, noop: bool) -> None:
    changed = [result for result in results if result.is_changed]
    for result in changed:
        say(f"{result.path}: {'would be rekeyed' if noop else 'rekeyed'}")
        for name in result.added.values():
            say(f"  + {name}")
        for name in result.removed.values():
            say(f"  - {name}")
    exposed = [result for result in changed if result.removed]
    if exposed:
        say("Former readers know these values. Change them where they are used:")
        for result in exposed:
            say(f"  {result.path} ({', '.join(result.removed.values())})")
            for path in result.exposed:
                say(f"    {path}")
    if len(changed) < len(results):
        say(f"{counted(len(results) - len(changed), 'file')} unchanged")
    if not results:
        say("no file is encrypted")
