"""``puller completion``: shell scripts that complete command lines of Puller."""

import click
from click.shell_completion import get_completion_class

from puller.cli.command_table import cli

_VARIABLE = "_PULLER_COMPLETE"
"""click's environment variable for completion requests of a shell."""


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")), metavar="SHELL")
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    SHELL is bash, zsh or fish. The script completes commands, options, bundles, versions and resources. Packages
    install it automatically. Names of bundles and resources appear only for users who may read the state directory.

    \b
    Example:
      puller completion bash > /etc/bash_completion.d/puller
      puller completion zsh > /usr/local/share/zsh/site-functions/_puller
      puller completion fish > /etc/fish/completions/puller.fish
    """
    source = get_completion_class(shell)
    assert source is not None  # noqa: S101  each choice has one
    script = source(cli, {}, "puller", _VARIABLE).source()
    click.echo(_with_quoted_values(script) if shell == "bash" else script)


_PLAIN = "COMPREPLY+=($value)"
_QUOTED = """\
if [[ ${COMP_WORDS[COMP_CWORD]} == [\\"\\']* ]]; then
                COMPREPLY+=("$value")
            else
                COMPREPLY+=("$(printf '%q' "$value")")
            fi"""


def _with_quoted_values(script: str) -> str:
    """Return click's script for bash with quoted values, because bash inserts them unchanged.

    Within quotes that the user has begun, bash needs no quoting. zsh and fish quote by themselves.
    """
    if _PLAIN not in script:
        raise RuntimeError("the script of click for bash has changed")
    return script.replace(_PLAIN, _QUOTED)
