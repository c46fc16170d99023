"""``puller keys``: the identity of this host for files that SOPS encrypted.

* An SSH host key is enough, so ``init`` creates a key of age only on a host without one, or on request.
* An existing key is never overwritten: without it, the host could not read its files any more.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from bundles.filesystem.atomic import naming, replace_file
from bundles.filesystem.safe_paths import open_output_directory
from foundation.formatting import text_of
from foundation.problems import ProblemCode
from hiera.errors import EnvelopeError
from hiera.sops.identities import PublishedKey, find_published, new_identity, recipients_of
from puller.cli.command_table import CommandGroup
from puller.cli.options import configuration_option, text_format_option
from puller.cli.output import say, show, warn
from puller.config.configuration import load_configuration, require_own, require_user
from puller.errors import ConfigurationError, UsageError, file_problem
from puller.state import (
    DEFAULT_CONFIGURATION,
    IDENTITIES,
    UserConfigurationFile,
    users_identities,
)
from puller.system.trusted_files import require_trusted_directory

_AS_ROOT: Final = "use root, or --as-user for the agent of your own account"


@click.group("keys", cls=CommandGroup)
def keys() -> None:
    """Show or create the key of this host for encrypted files.

    A host decrypts files of SOPS with its SSH host key or a key of age. Authors encrypt for its recipient, the public
    part (docs/secrets.md).
    """


@keys.command("show")
@configuration_option("The configuration, whose age_identities name the keys.")
@text_format_option
def show_key(path: str, output_format: str) -> None:
    """Print the recipient of this host, and the file of its identity.

    The identity is the first usable key of age_identities. Reports contain the same recipient.

    \b
    Example:
      puller keys show
      puller keys show --format json
    """
    paths = _identity_files(path)
    key = _find(paths)
    if key is None:
        files = " and ".join(paths)
        hint = (
            f"`puller keys init{' --as-user' if isinstance(path, UserConfigurationFile) else ''}` creates one"
        )
        raise ConfigurationError(
            f"this host has no key for encrypted files: {files}",
            code=ProblemCode.UNREADABLE_SECRET,
            hint=hint,
        )
    _print(key, output_format, created=False)


@keys.command("init")
@configuration_option("The configuration, whose age_identities name the keys.")
@click.option("--age", "is_requested", is_flag=True, help="Create a key of age beside a usable SSH host key.")
@text_format_option
def init(path: str, *, is_requested: bool, output_format: str) -> None:
    """Create a key of age for this host, unless it has a key.

    If the host has an SSH host key that root can read, the command creates nothing. With --age it creates
    /etc/puller/keys/age.txt, or the first file of age_identities that is not an SSH key. An existing file is never
    overwritten. Only root can read the new file. Then the command prints the recipient, as `puller keys show` does.

    \b
    Example:
      puller keys init
      puller keys init --age
    """
    paths = _identity_files(path)
    as_user = isinstance(path, UserConfigurationFile)
    target = next((each for each in paths if not _is_ssh_path(each)), None)
    key = _find([target] if target is not None and is_requested else paths)
    if key is not None:
        _print(key, output_format, created=False)
        return
    if target is None:
        raise ConfigurationError(
            "age_identities names only SSH keys", hint=f"add a file such as {IDENTITIES[0]} to age_identities"
        )
    created = _create(target, as_user=as_user)
    _print(created, output_format, created=True)


def _identity_files(path: str) -> Sequence[str]:
    """Return the files of the configuration. A host without configuration has the default files."""
    as_user = isinstance(path, UserConfigurationFile)
    if as_user:
        require_user()
    if not os.path.lexists(path) and (as_user or path == DEFAULT_CONFIGURATION):
        return users_identities() if as_user else IDENTITIES
    return load_configuration(path).age_identities


def _is_ssh_path(path: str) -> bool:
    return os.path.basename(path).startswith("ssh_host_") or os.path.basename(os.path.dirname(path)) == ".ssh"


def _find(paths: Sequence[str]) -> PublishedKey | None:
    """Return the key of this host, and warn about unusable keys before it.

    Raises ``EnvelopeError``, and ``UsageError`` without permission.
    """
    try:
        key = find_published(paths, lambda problem: warn(text_of(problem)))
        if key is not None and key.recipient not in (own := recipients_of(key.path)):
            detail = f"{key.path}.pub is the public part of another key"
            raise EnvelopeError("", detail, hint=f"write {own[0]} into it, or remove it")
    except PermissionError as error:
        raise UsageError(
            file_problem(error, "cannot be read"), code=ProblemCode.UNREADABLE_SOURCE, hint=_AS_ROOT
        ) from error
    return key


def _create(path: str, *, as_user: bool) -> PublishedKey:
    directory, name = os.path.split(path)
    identity, recipient = new_identity()
    text = f"# The identity of this host for encrypted files. Keep it secret.\n# public key: {recipient}\n{identity}\n"
    try:
        with naming(path), open_output_directory(os.path.dirname(directory), make=True):
            pass
        with naming(path), open_output_directory(directory, make=True, mode=0o700) as descriptor:
            if as_user:
                require_own(Path(directory))
            else:
                require_trusted_directory(Path(directory))
            replace_file(descriptor, name, [text.encode()], mode=0o600, is_new=True)
    except PermissionError as error:
        raise UsageError(
            file_problem(error, "cannot be created", where=path),
            code=ProblemCode.UNWRITABLE_OUTPUT,
            hint=_AS_ROOT,
        ) from error
    except OSError as error:
        raise UsageError(
            file_problem(error, "cannot be created", where=path), code=ProblemCode.UNWRITABLE_OUTPUT
        ) from error
    return PublishedKey(recipient, path)


def _print(key: PublishedKey, output_format: str, *, created: bool) -> None:
    kind = "ssh" if key.is_ssh else "age"
    if output_format == "json":
        show({"recipient": key.recipient, "identity": key.path, "kind": kind, "created": created}, "json")
        return
    say(key.recipient)
    description = "an SSH key" if key.is_ssh else "a key of age"
    say(f"identity: {key.path} ({description}{', created now' if created else ''})")
