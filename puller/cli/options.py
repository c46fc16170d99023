"""The options that several commands share: configuration, facts, data, application and output formats.

* ``--fact NAME=VALUE`` overrides ``--facts FILE``, which overrides custom facts, which override the built-in ones.
* An explicitly named document must be readable. Unlike a custom fact, a broken ``--facts`` file is an error.
"""

import functools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from foundation.times import Duration, is_time, parse_until
from puller.cli.completing import fact_assignments, files, resources_of_host, systems
from puller.state import DEFAULT_CONFIGURATION, PRIVATE_KEY, configuration_file

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Return several options as one decorator. ``--help`` shows them in this order."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return add


class DurationType(click.ParamType[timedelta]):
    """The type of an option that takes a duration. The command gets a ``timedelta``."""

    name = "duration"

    def __init__(self, *, above_zero: bool = True) -> None:
        self._above_zero = above_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the duration. Raises ``click.UsageError`` with the name of the option."""
        if isinstance(value, timedelta):
            return value
        try:
            return Duration.parse_text(value, above_zero=self._above_zero).delta
        except ValueError as error:
            option = param.opts[-1] if param else "duration"
            raise click.UsageError(f"{option} {error}", ctx) from None


DURATION = DurationType()


class EndType(click.ParamType["timedelta | datetime"]):
    """The type of an option that takes a duration or a future time, such as ``tomorrow``."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta | datetime:
        """Return the duration or the time. Raises ``click.UsageError`` with the name of the option."""
        now = datetime.now(UTC)
        if isinstance(value, str) and is_time(value, now):
            try:
                return parse_until(value, now)
            except ValueError as error:
                raise click.UsageError(f"{param.opts[-1] if param else 'time'} {error}", ctx) from None
        return DURATION.convert(value, param, ctx)


as_user_option: Decorator = click.option(
    "--as-user",
    is_flag=True,
    help="Use the configuration and state of the current user's own agent.",
)


def configuration_option(help: str, *, name: str = "path", **additional: Any) -> Decorator:  # noqa: A002  click's word
    """Return ``--config``, by default this host's file, and ``--as-user``. The file is the parameter ``name``."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_file(*arguments: Any, as_user: bool, **options: Any) -> Any:
            options[name] = configuration_file(options[name], as_user=as_user)
            return function(*arguments, **options)

        option = click.option(
            "--config",
            name,
            metavar="FILE",
            show_default=DEFAULT_CONFIGURATION,
            shell_complete=files,
            help=help,
            **additional,
        )
        return option(as_user_option(with_file))

    return add


def _format_option(*formats: str, help: str) -> Decorator:  # noqa: A002  click's word
    """Return ``--format``, by default the first format."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help=help,
    )


def noop_option(help: str) -> Decorator:  # noqa: A002  click's word
    """Return ``--noop`` with its aliases, for the parameter ``noop``."""
    return click.option("-n", "--noop", "--dry-run", "noop", is_flag=True, help=help)


def output_option(
    help: str,  # noqa: A002  click's word
    *former_names: str,
    metavar: str = "FILE",
    required: bool = False,
) -> Decorator:
    """Return ``-o``/``--output`` for the parameter ``output``, a path. ``metavar`` is FILE, DIR or FILE|DIR."""
    return click.option(
        "-o",
        "--output",
        *former_names,
        "output",
        metavar=metavar,
        required=required,
        type=click.Path(file_okay=metavar != "DIR", dir_okay=metavar != "FILE", path_type=Path),
        shell_complete=files,
        help=help,
    )


format_option = _format_option("yaml", "json", help="YAML for people, JSON for programs.")
text_format_option = _format_option("text", "json", help="Text for people, JSON for programs.")
any_format_option = _format_option("text", "yaml", "json", help="Text for people, YAML or JSON for programs.")

fact_options = together(
    click.option(
        "--fact",
        "fact_pairs",
        multiple=True,
        metavar="NAME=VALUE",
        shell_complete=fact_assignments,
        help="Set a fact to a text. Dots separate keys: os.family=Debian.",
    ),
    click.option(
        "--facts",
        "facts_files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Override facts with those of a YAML, JSON or NAME=VALUE (*.txt) file.",
    ),
    click.option(
        "--facts-dir",
        "facts_directories",
        multiple=True,
        type=click.Path(exists=True, file_okay=False),
        metavar="DIR",
        help="Read custom facts from DIR instead of /etc/puller/facts.d.",
    ),
)
"""For ``puller.facts.given_facts.facts_from``, through ``**options``."""

no_system_facts_option: Decorator = click.option(
    "--no-system-facts",
    is_flag=True,
    help="Ignore the facts of this machine, and use only --fact and --facts.",
)

other_machine_options = together(
    no_system_facts_option,
    click.option(
        "--os",
        "of",
        metavar="SYSTEM",
        shell_complete=systems,
        help="Use the facts of a known system such as debian-12.",
    ),
)
"""For commands that change nothing here: ``puller.facts.given_facts.chosen_facts`` reads both."""


class _KeyFile(click.Path):
    """The path of a key. It must exist, unless it is the default, which most hosts do not need."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == PRIVATE_KEY else super().convert(value, param, ctx)


private_key_option: Decorator = click.option(
    "--private-key",
    default=PRIVATE_KEY,
    show_default=True,
    type=_KeyFile(exists=True, dir_okay=False),
    metavar="FILE",
    help="The key for encrypted values in the bundle's Hiera tree.",
)

identity_option: Decorator = click.option(
    "--identity",
    "identities",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A key of age or SSH for files that SOPS encrypted. Repeatable.  [default: the keys of this host]",
)

data_options = together(
    click.option(
        "--data",
        "data_files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Merge a data document over the manifest's own data.",
    ),
    click.option(
        "--set",
        "data_pairs",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set a value over all other data, in YAML: web.port=8080.",
    ),
    private_key_option,
    identity_option,
)
"""With ``fact_options`` for ``puller.run.host.load_inputs``, which resolves a manifest with them."""

_CONTEXT = (
    "fact_pairs",
    "facts_files",
    "facts_directories",
    "no_system_facts",
    "of",
    "data_files",
    "data_pairs",
)


def has_context(options: Mapping[str, Any]) -> bool:
    """Return whether the options of a command describe a machine or its data."""
    return any(options.get(name) for name in _CONTEXT)


before_option = click.option(
    "--with",
    "before",
    multiple=True,
    metavar="SOURCE",
    shell_complete=files,
    help="A bundle that precedes SOURCE on its hosts. SOURCE may refer to its resources.",
)

only_option: Decorator = click.option(
    "--only",
    "only",
    multiple=True,
    metavar="REFERENCE",
    shell_complete=resources_of_host,
    help="Apply only these resources, such as file#/etc/nginx/*, and their requirements.",
)

job_options = together(
    noop_option("Show the changes without making them."),
    click.option(
        "--diff/--no-diff", default=None, help="Show the changes in files.  [default: on a terminal]"
    ),
    click.option(
        "--detailed-exitcodes",
        is_flag=True,
        help="Exit with 2 after changes, or with --noop if changes are due, and with 6 after failures.",
    ),
    only_option,
    click.option("-v", "--verbose", is_flag=True, help="Show unchanged resources, too."),
    click.option("-q", "--quiet", is_flag=True, help="Show only failures."),
)
"""The fields of ``puller.run.jobs.Options``."""
