"""``puller help``, ``puller version``, and ``puller completion``: shell scripts that complete command lines."""

import click
from click.shell_completion import CompletionItem, get_completion_class

from foundation.problem_pages import load_entries
from foundation.problems import ProblemCode
from foundation.suggestions import nearest
from puller.cli.command_table import cli
from puller.cli.output import say
from puller.cli.synonyms import commands_named, similar_commands
from puller.errors import UsageError
from puller.version import __version__

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


_SUGGESTED = 3


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    path = context.params.get("words") or ()
    root = context.find_root()
    command = _find_command(root, path)[0]
    names = command.list_commands(root) if isinstance(command, click.Group) else []
    if not path:
        names = [*names, *ProblemCode]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command("help")
@click.argument("words", metavar="[COMMAND|CODE]...", nargs=-1, shell_complete=_complete)
@click.pass_context
def help_command(context: click.Context, words: tuple[str, ...]) -> None:
    """Explain a command or a problem code.

    COMMAND is a command such as `site publish`. CODE is the code of a problem, as lint and reports print it.

    \b
    Examples:
      puller help
      puller help site publish
      puller help unknown-property
    """
    root = context.find_root()
    if len(words) == 1 and words[0] in list(ProblemCode):
        code = ProblemCode(words[0])
        say(f"{code}: {load_entries()[code].text()}")
        return
    command, command_context, unknown = _find_command(root, words)
    if unknown:
        raise _unknown_topic(words, unknown, command_context)
    click.echo(command.get_help(command_context))


@click.command()
def version() -> None:
    """Print the version of Puller."""
    say(f"puller, version {__version__}")


def _find_command(
    root: click.Context, words: tuple[str, ...]
) -> tuple[click.Command, click.Context, tuple[str, ...]]:
    """Return the command of a path, its context, and the words that name no command."""
    command, context = root.command, root
    for number, word in enumerate(words):
        child = command.get_command(context, word) if isinstance(command, click.Group) else None
        if child is None:
            return command, context, words[number:]
        command, context = child, click.Context(child, info_name=word, parent=context)
    return command, context, ()


def _unknown_topic(words: tuple[str, ...], unknown: tuple[str, ...], context: click.Context) -> UsageError:
    group = context.command
    if not isinstance(group, click.Group):
        return UsageError(f"unknown command `{context.command_path} {unknown[0]}`")
    known = group.list_commands(context)
    similar = commands_named(context, unknown[0]) or similar_commands(context, unknown[0], known)
    if len(words) > 1:
        return UsageError(f"unknown command `{context.command_path} {unknown[0]}`", suggestions=similar)
    similar = similar or nearest(unknown[0], ProblemCode, _SUGGESTED)
    hint = "" if similar else "to list all commands, use `puller help`"
    return UsageError(f"unknown command or code {unknown[0]!r}", suggestions=similar, hint=hint)
