"""The commands of ``puller hiera``: look up keys, show all data, list keys and compare two hosts.

``puller.cli.hiera.encryption`` has the commands for encrypted values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from hiera.errors import HieraError
from puller.cli.command_table import CommandGroup
from puller.cli.completing import files
from puller.cli.hiera.encryption import create_keys, decrypt, encrypt
from puller.cli.hiera.lookup_sources import (
    facts_of,
    member,
    open_answers,
    printable_value,
    secret_printer,
    show_explanation,
    show_values,
    source_of,
)
from puller.cli.options import fact_options, format_option, identity_option, no_system_facts_option, together
from puller.cli.output import show, warn
from puller.data.lookups import Answer, Question
from puller.errors import UsageError
from puller.exit_status import ExitStatus

if TYPE_CHECKING:
    from hiera.values import Secret


# ``puller hiera lookup``, after its options are parsed.


def find_values(
    arguments: tuple[str, ...], output_format: str, *, explain: bool, reveal: bool, options: Mapping[str, Any]
) -> int:
    """Look up keys and print their values. Return the exit status. Raises ``UsageError``.

    ``arguments`` are keys, followed by the source if no option names it.
    """
    keys, source = source_of(arguments, options)
    question = question_of(options, explained=explain)
    secret = secret_printer(reveal, masked=explain)
    result = {
        key: printable_value(answer, secret) for key, answer in _ask(keys, question, source, options).items()
    }
    if output_format == "json":
        show({key: member(answer, explain) for key, answer in result.items()}, "json")
    elif explain:
        for answer in result.values():
            show_explanation(answer)
    else:
        show_values(result)
    return ExitStatus.OK if all(answer.found for answer in result.values()) else ExitStatus.NO


def _ask(
    keys: Sequence[str], question: Question, source: str | None, options: Mapping[str, Any]
) -> dict[str, Answer]:
    """Return the answers by key. An error of all facts or data is the answer for each key."""
    try:
        with open_answers(options, source, facts_of(options), print_warning) as answers:
            return {key: answers.ask(key, question) for key in keys}
    except HieraError as error:
        return {key: Answer(key, error=str(error)) for key in keys}


def question_of(options: Mapping[str, Any], *, explained: bool = False) -> Question:
    """Return the question that the options describe. Raises ``UsageError``."""
    default = options.get("default")
    return Question(_merge(options), default, default is not None, options.get("value_type"), explained)


def _merge(options: Mapping[str, Any]) -> Any:
    """Return the strategy that ``puppet lookup`` derives from the same options."""
    merge = options.get("merge")
    deep = {
        name: options.get(name) for name in ("knock_out_prefix", "sort_merged_arrays", "merge_hash_arrays")
    }
    if merge != "deep":
        if any(value not in (None, False) for value in deep.values()):
            detail = "--knock-out-prefix, --sort-merged-arrays and --merge-hash-arrays"
            raise UsageError(f"{detail} are for --merge deep only")
        return merge
    chosen = {
        "strategy": "deep",
        "sort_merged_arrays": deep["sort_merged_arrays"],
        "merge_hash_arrays": deep["merge_hash_arrays"],
    }
    prefix = deep["knock_out_prefix"]
    return chosen if prefix is None else {**chosen, "knockout_prefix": prefix}


def print_warning(text: str) -> None:
    """Print a warning about the data."""
    warn(f"warning: {text}")


# Options for the place of the data and for the host.

_EXISTING = click.Path(exists=True, dir_okay=False)
_DIRECTORY = click.Path(exists=True, file_okay=False)
data_place_options = together(
    fact_options,
    click.option(
        "--hiera", "config", type=_EXISTING, metavar="FILE", help="A hiera.yaml with its data beside it."
    ),
    click.option(
        "--environment",
        type=_DIRECTORY,
        metavar="DIR",
        help="A Puppet environment with hiera.yaml, data and modules.",
    ),
    click.option("--document", type=_EXISTING, metavar="FILE", help="A single document."),
    click.option(
        "--global", "global_config", type=click.Path(), metavar="FILE", help="The global hiera.yaml."
    ),
    click.option("--modules", multiple=True, type=_DIRECTORY, metavar="DIR", help="A directory of modules."),
    click.option(
        "--environment-name",
        default="production",
        show_default=True,
        metavar="NAME",
        help="The value of %{environment}.",
    ),
    click.option(
        "--private-key",
        type=_EXISTING,
        metavar="FILE",
        help="The eyaml key for levels without a key of their own.",
    ),
    identity_option,
    no_system_facts_option,
)
"""For ``open_answers``."""


_reveal_option = click.option("--reveal", is_flag=True, help="Show secrets. Requires root and a terminal.")
_source_argument = click.argument("source", required=False, metavar="[SOURCE]", shell_complete=files)


@click.group(cls=CommandGroup)
def hiera() -> None:
    """Look up and encrypt hierarchical data.

    Data is a Hiera 5 tree with the semantics of Puppet, a single document, or a bundle, which may have both.

    \b
      puller hiera lookup nginx::workers --environment production
      puller hiera lookup nginx::workers --environment production --facts web01.yaml --explain
      puller hiera resolve web
      puller hiera diff web --facts web01.yaml --facts web02.yaml
    """


class _KeysMayBeginWithADash(click.Command):
    """Accepts keys with a leading dash, which data may have. The only option with one dash is ``-h``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options, keys = self._sorted(args)
        return super().parse_args(ctx, [*options, "--", *keys])

    def _sorted(self, args: list[str]) -> tuple[list[str], list[str]]:
        with_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        options: list[str] = []
        keys: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":
                keys.extend(words)
            elif word.startswith("--") or word == "-h":
                options += [word, *islice(words, 1 if word in with_value else 0)]
            else:
                keys.append(word)
        return options, keys


@hiera.command(cls=_KeysMayBeginWithADash)
@click.argument("arguments", nargs=-1, required=True, metavar="KEY... [SOURCE]")
@click.option(
    "--merge",
    type=click.Choice(["first", "unique", "hash", "deep"]),
    metavar="STRATEGY",
    help="Merge the values of all levels: first, unique, hash or deep. Overrides the merge options "
    "of the data.",
)
@click.option(
    "--knock-out-prefix",
    metavar="PREFIX",
    help="With --merge deep: the prefix of values that remove other values.",
)
@click.option("--sort-merged-arrays", is_flag=True, help="With --merge deep: sort merged lists.")
@click.option("--merge-hash-arrays", is_flag=True, help="With --merge deep: merge mappings inside lists.")
@click.option("--default", "default", metavar="VALUE", help="The value of a missing key.")
@click.option("--type", "value_type", metavar="TYPE", help="The Puppet type that the value must have.")
@click.option("--explain", is_flag=True, help="Show the searched levels instead of the value.")
@_reveal_option
@format_option
@data_place_options
def lookup(
    arguments: tuple[str, ...], output_format: str, explain: bool, reveal: bool, **options: Any
) -> int:
    """Print the value of each KEY.

    If no option names the data, the last argument does, if there are several: a bundle, a directory or a document. A
    single argument is a key, and the data is in the current directory. With --format json, the output is one object
    with a member for each key: {"KEY": {"found": true, "value": …}}, {"found": false} or {"error": "…"}.

    \b
      puller hiera lookup nginx::workers --environment /etc/puppetlabs/code/environments/production
      puller hiera lookup data.port web
      puller hiera lookup users --environment . --merge deep --explain

    Exit status: 0 if all keys are found, otherwise 1.
    """
    return find_values(arguments, output_format, explain=explain, reveal=reveal, options=options)


@hiera.command()
@_source_argument
@_reveal_option
@format_option
@data_place_options
def resolve(source: str | None, output_format: str, reveal: bool, **options: Any) -> int:
    """Show all data of SOURCE for one host.

    Keys with errors are reported on standard error.

    Exit status: 0, or 1 if a key has an error.
    """
    place = _place(source, options)
    secret = secret_printer(reveal, masked=True)
    with open_answers(options, place, facts_of(options), print_warning) as answers:
        result = answers.ask_all(question_of({}))
    for key in result:
        printable_value(result[key], secret)
    show({key: result[key].value for key in sorted(result) if result[key].found}, output_format)
    errors = [answer.error for answer in result.values() if answer.error]
    for error in errors:
        warn(str(error))
    return ExitStatus.NO if errors else ExitStatus.OK


def _place(source: str | None, options: Mapping[str, Any]) -> str | None:
    """Return the source, by default the current directory."""
    return source_of(("", source) if source else ("",), options)[1]


class _KeysGroup(CommandGroup):
    """``keys`` lists keys, and ``keys create`` makes a pair for eyaml. A SOURCE named create needs ``./create``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@hiera.group(cls=_KeysGroup, short_help="List all keys, or create a key pair for encryption.")
def keys() -> None:
    """List all keys and their levels, or create a key pair for encrypted values.

    \b
      puller hiera keys web
      puller hiera keys --environment production --format json
      puller hiera keys create --directory keys
    """


keys.add_command(create_keys)
hiera.add_command(encrypt)
hiera.add_command(decrypt)


@keys.command("list")
@_source_argument
@format_option
@data_place_options
def list_keys(source: str | None, output_format: str, **options: Any) -> None:
    """List the keys of SOURCE and their levels for this host.

    The level with the highest priority is first.
    """
    place = _place(source, options)
    with open_answers(options, place, facts_of(options), print_warning) as answers:
        held = answers.holders()
    show({key: held[key] for key in sorted(held)}, output_format)


@hiera.command(short_help="Compare the data of two hosts.")
@_source_argument
@_reveal_option
@format_option
@data_place_options
def diff(source: str | None, output_format: str, reveal: bool, **options: Any) -> int:
    """Show the keys that differ between two hosts, with their levels.

    Pass --facts twice, once for each host. System facts are ignored.

    \b
      puller hiera diff web --facts web01.yaml --facts web02.yaml

    Exit status: 0 if all values are equal, otherwise 1.
    """
    files = options["facts_files"]
    if len(files) != 2:
        raise UsageError("diff: requires --facts twice, once for each host")
    place = _place(source, options)
    secret = secret_printer(reveal, masked=True)
    first, second = (_answers_of_host(options, place, file) for file in files)
    differences = {
        key: {
            file: _side(answers.get(key), secret)
            for file, answers in zip(files, (first, second), strict=True)
        }
        for key in sorted({*first, *second})
        if _value(first.get(key)) != _value(second.get(key))
    }
    show(differences, output_format)
    # The same status as diff(1).
    return ExitStatus.NO if differences else ExitStatus.OK


def _answers_of_host(options: Mapping[str, Any], place: str | None, file: str) -> dict[str, Answer]:
    options = {**options, "no_system_facts": True}
    facts = facts_of(options, facts_files=(file,))
    with open_answers(options, place, facts, print_warning) as answers:
        return answers.ask_all(question_of({}, explained=True))


def _value(answer: Answer | None) -> Any:
    return (answer.found, answer.value, answer.error) if answer else (False, None, "")


def _side(answer: Answer | None, secret: Callable[[Secret], Any]) -> dict[str, Any]:
    if answer is None:
        return {"found": False}
    printable_value(answer, secret)
    return {**answer.as_data(), **({"from": list(answer.places)} if answer.places else {})}
