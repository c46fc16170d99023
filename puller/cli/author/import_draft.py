"""The commands of ``puller import``: a first draft of a bundle from an existing configuration.

* The commands read the source with limits, and execute nothing from it.
* They write only into a new or empty directory, and run lint on the result.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from hiera.eyaml import encrypt
from puller.authoring.cases.contexts import open_contexts
from puller.authoring.importing.ansible.ansible_importer import import_ansible
from puller.authoring.importing.cloud_config import import_cloud_config
from puller.authoring.importing.draft import Draft, refuse_used_directory, write_draft
from puller.authoring.importing.machine.machine_importer import import_machine
from puller.authoring.importing.puppet.puppet_importer import import_puppet
from puller.authoring.importing.reading import Secrets
from puller.authoring.lint.check import lint_on_each
from puller.authoring.lint.finding_formats import text_lines
from puller.cli.command_table import CommandGroup
from puller.cli.completing import files
from puller.cli.output import say
from puller.errors import UsageError
from puller.manifest.manifest import open_source
from puller.state import PRIVATE_KEY

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path), shell_complete=files)


@click.group("import", cls=CommandGroup)
def import_group() -> None:
    """Create a draft of a bundle from an existing configuration.

    A draft contains everything that has an exact counterpart. The remaining parts are comments at their place, with
    the reason and a proposal. `IMPORT.md` in the draft lists them.
    """


@import_group.command("ansible")
@click.argument("source", type=click.Path(exists=True, path_type=Path), shell_complete=files)
@_DIRECTORY
@click.option(
    "--vault-password-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The password of Ansible Vault. Its values are encrypted again, for --certificate.",
)
@click.option(
    "--certificate",
    "certificates",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A certificate of a reader, from `puller hiera keys create`. Repeatable.",
)
def ansible(
    source: Path, directory: Path, vault_password_file: Path | None, certificates: tuple[Path, ...]
) -> int:
    """Convert a role, a playbook or a repository of Ansible.

    SOURCE is the directory of a role, a playbook, or a directory with playbooks and `roles`. DIRECTORY is new or
    empty. Each file of tasks becomes a manifest, and the variables become a Hiera tree. Templates and files are
    copied unchanged. Nothing from SOURCE is executed. Values of Ansible Vault are left out and listed, unless you pass
    its password and a certificate.

    \b
      puller import ansible roles/ntp ntp
      puller import ansible site.yml site
      puller import ansible ~/infrastructure base

    Exit status: 0 if the draft is written, even with errors of lint. 13 if SOURCE cannot be read.
    """
    secrets = _secrets(vault_password_file, certificates)
    return _write(directory, lambda: import_ansible(source, source.resolve().name, secrets))


def _secrets(password_file: Path | None, certificates: Sequence[Path]) -> Secrets | None:
    if password_file is None and not certificates:
        return None
    if password_file is None or not certificates:
        raise UsageError("import ansible: --vault-password-file and --certificate require each other")
    readers = [path.read_bytes() for path in certificates]
    return Secrets(password_file.read_bytes().strip(), lambda text: encrypt(text, readers))


@import_group.command("puppet")
@click.argument("source", type=click.Path(exists=True, path_type=Path), shell_complete=files)
@_DIRECTORY
def puppet(source: Path, directory: Path) -> int:
    """Convert a module or a control repository of Puppet.

    SOURCE is the directory of a module, a control repository with modules in `site`, `site-modules`, `modules` or
    `dist`, or a file with the ending .pp. DIRECTORY is new or empty. Each class and each define becomes a manifest.
    Hiera trees and files are copied unchanged. EPP and plain ERB templates become Jinja2. Nothing from SOURCE is
    executed. Encrypted values stay encrypted, and secrets in manifests are left out and listed.

    \b
      puller import puppet modules/ntp ntp
      puller import puppet ~/control-repo site

    Exit status: 0 if the draft is written, even with errors of lint. 13 if SOURCE cannot be read.
    """
    return _write(directory, lambda: import_puppet(source, source.resolve().name))


@import_group.command("cloud-config")
@click.argument(
    "source",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    shell_complete=files,
)
@_DIRECTORY
def cloud_config(source: Path, directory: Path) -> int:
    """Convert a file of cloud-config.

    FILE starts with the line `#cloud-config`. DIRECTORY is new or empty. Passwords are left out and listed. Commands
    of `runcmd` run once, like in cloud-init.

    \b
      puller import cloud-config user-data.yaml base

    Exit status: 0 if the draft is written, even with errors of lint. 13 if FILE cannot be read.
    """
    return _write(directory, lambda: import_cloud_config(source, source.name))


@import_group.command("machine")
@_DIRECTORY
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="/",
    show_default=True,
    help="The root directory of the machine, such as a mounted image.",
)
def machine(directory: Path, root: Path) -> int:
    """Describe the changes of this machine since its installation.

    The draft contains requested packages, changed configuration files, units, accounts, cron jobs, mounts, kernel
    parameters, alternatives, diversions, and the name and time zone of the machine. Secrets and files of unknown origin
    are left out and listed. The command only reads files, and supports Debian and its derivatives. Run it as root,
    since some files are readable only by root.

    \b
      puller import machine base
      puller import machine base --root /mnt/image

    Exit status: 0 if the draft is written, even with errors of lint. 13 if the machine cannot be read.
    """
    return _write(directory, lambda: import_machine(root))


def _write(directory: Path, make: Callable[[], Draft]) -> int:
    """Write a draft, and print its counts and the result of lint."""
    refuse_used_directory(directory)
    draft = make()
    write_draft(draft, directory)
    say(f"{directory}: {draft.summary()}")
    with contextlib.ExitStack() as opened:
        source = opened.enter_context(open_source(str(directory)))
        contexts = open_contexts(str(directory), PRIVATE_KEY, opened)
        linted = lint_on_each(source, [(context.inputs, context.before) for context in contexts])
    for line in text_lines(linted):
        say(line)
    say(f"Next: read {directory}/IMPORT.md, then run puller test {directory}")
    return 0
