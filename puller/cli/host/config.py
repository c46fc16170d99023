"""``puller config``: the configuration of this host."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from foundation.formatting import text_of
from foundation.masking import mask_location
from foundation.problems import Location, Problem
from hiera import parsing
from puller.cli.command_table import CommandGroup
from puller.cli.options import as_user_option, configuration_option, text_format_option
from puller.cli.output import print_result_of, say, warn
from puller.config.configuration import Configuration, load_configuration, sample
from puller.errors import ConfigurationError
from puller.reporting.results import ConfigCheckResult, FollowedBundle, described_problems
from puller.run.readiness import Keys, Unready, find_unready


def _located(path: str, problems: Sequence[Unready]) -> Iterator[Problem]:
    """Yield the problems with their lines. A missing key has the line of its parent, or none."""
    text = Path(path).read_text(encoding="utf-8")
    written = parsing.load_yaml(text.encode(), path)
    for problem in problems:
        is_written = isinstance(written, dict) and problem.keys[0] in written
        line = parsing.locate(text, problem.keys)[0] if is_written else 0
        yield Problem(
            code=ConfigurationError.code,
            message=problem.sentence,
            location=Location(path, line),
            subject=_shown(problem.keys),
            name=_shown(problem.keys),
        )


def _shown(keys: Keys) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".")


@click.group(cls=CommandGroup)
def config() -> None:
    """Check the configuration of this host, or print a sample."""


@config.command("sample")
@as_user_option
def print_sample(as_user: bool) -> None:
    """Print a sample with all keys, their defaults and descriptions.

    \b
      puller config sample > /etc/puller/config.yaml
      puller config sample --as-user > ~/.config/puller/config.yaml
    """
    say(sample(as_user=as_user), nl=False)


@config.command()
@configuration_option("The configuration to check.")
@click.option(
    "--file-only", is_flag=True, help="Check only the text, and not the files and users that it names."
)
@text_format_option
def check(path: str, output_format: str, *, file_only: bool) -> int:
    """Check the configuration and the files that it names.

    The command reads the configuration as a run does, and checks its files, directories and users. It fetches nothing.

    Exit status: 0 if a run can use the configuration, otherwise 78. Each problem is printed with its line. An unusable
    key beside a usable key is only a warning.
    """
    if output_format == "json":
        return print_result_of(ConfigCheckResult, lambda: _result(path, *_valid(path, file_only=file_only)))
    configuration, warnings = _valid(path, file_only=file_only)
    for problem in warnings:
        warn(f"warning: {text_of(problem)}")
    say(f"{path}: valid")
    # A mirror may have a password in its URL.
    say(f"site: {', '.join(map(mask_location, configuration.mirrors))}")
    for choice in configuration.bundles:
        which = f"version {choice.version}" if choice.version else f"channel {choice.channel}"
        say(f"bundle: {choice.name}, {which}")
    for window in configuration.windows:
        say(f"window: {window}")
    return 0


def _valid(path: str, *, file_only: bool) -> tuple[Configuration, list[Problem]]:
    """Return the configuration and its warnings. Raise ``ConfigurationError`` with every problem."""
    configuration = load_configuration(path)
    problems = [] if file_only else list(find_unready(configuration))
    if errors := [problem for problem in problems if not problem.is_warning]:
        raise ConfigurationError(problems=list(_located(path, errors)))
    return configuration, list(_located(path, problems))


def _result(path: str, configuration: Configuration, warnings: Sequence[Problem]) -> ConfigCheckResult:
    bundles = [
        FollowedBundle(name=choice.name, channel=choice.channel, version=choice.version or "")
        for choice in configuration.bundles
    ]
    return ConfigCheckResult(
        file=path,
        mirrors=[mask_location(mirror) for mirror in configuration.mirrors],
        bundles=bundles,
        windows=[str(window) for window in configuration.windows],
        problems=described_problems(warnings),
    )
