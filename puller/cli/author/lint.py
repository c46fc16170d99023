"""Checks of a bundle before its publication.

``puller lint``: checks of a bundle without applying it.

``puller test``: checks of a bundle's cases, without any machine.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from bundles.filesystem.safe_paths import write_output
from foundation.problems import ProblemCode
from puller.authoring.cases.contexts import open_contexts
from puller.authoring.cases.results import Result, as_json, summary, text_lines
from puller.authoring.cases.results import as_junit as cases_as_junit
from puller.authoring.cases.running import (
    BundleWithCases,
    Settings,
    Suite,
    notes_on_snapshots,
    processors,
    run_suite,
    suite_of,
    update_snapshots,
)
from puller.authoring.cases.trial import verify_allowed
from puller.authoring.lint import finding_formats
from puller.authoring.lint.check import Linted, lint_bundle, lint_on_each
from puller.authoring.lint.finding_formats import as_junit
from puller.cli.completing import files
from puller.cli.options import (
    before_option,
    data_options,
    fact_options,
    has_context,
    other_machine_options,
    output_option,
    private_key_option,
)
from puller.cli.output import warn
from puller.errors import ConfigurationError, UsageError, file_problem
from puller.exit_status import ExitStatus
from puller.manifest.manifest import open_source
from puller.run.host import load_inputs
from puller.values.colour import is_wanted

_FORMATS = ("text", "json", "github", "sarif", "junit")


@click.command()
@click.argument("source", shell_complete=files)
@before_option
@fact_options
@other_machine_options
@data_options
@click.option("--strict", is_flag=True, help="Treat all warnings as errors.")
@click.option(
    "-v", "--verbose", is_flag=True, help="List the expressions that cannot be checked with these facts."
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(_FORMATS),
    default=_FORMATS[0],
    show_default=True,
    help="Text for people, JSON for programs, or github, sarif and junit for CI services.",
)
@click.option(
    "--documents",
    metavar="URL",
    envvar="PULLER_DOCUMENTS",
    show_envvar=True,
    default="",
    help="The URL of Puller's documentation, for links in SARIF files.",
)
def lint(
    source: str,
    before: tuple[str, ...],
    strict: bool,
    verbose: bool,
    output_format: str,
    documents: str,
    **options: Any,
) -> int:
    """Find errors in a manifest or a bundle.

    SOURCE is a manifest, a directory with a `manifest.yaml`, or a bundle file. Lint reports all problems at once,
    each with its location and its rule. Errors fail on every host, so a bundle with errors cannot be published. You
    can disable warnings with a comment or in .puller-lint.yaml. docs/lint.md lists all rules. Expressions without a
    value for these facts are skipped, because other machines may have a value.

    By default, lint checks SOURCE for the machines of its test cases (`puller test`), with the bundles that precede it
    there. Without test cases, it uses the machines of `puller.yaml` in a parent directory (docs/repository.md). Without
    both, or with options for facts and data, it uses these options and the facts of this machine.

    With --with, lint also reads the bundles that precede SOURCE in the configuration of its hosts. SOURCE may refer to
    their resources and must not contradict them.

    \b
      puller lint web
      puller lint web --facts examples/db.yaml
      puller lint web --with base
      puller lint web --strict --format sarif > web.sarif

    Exit status: 0 without errors, 1 with errors, 13 if SOURCE cannot be read, 64 if SOURCE does not exist.
    """
    with contextlib.ExitStack() as opened:
        *others, result = (opened.enter_context(open_source(item)) for item in (*before, source))
        inputs = load_inputs(options, opaque=True)
        contexts = (
            [] if before or has_context(options) else open_contexts(source, options["private_key"], opened)
        )
        if contexts:
            linted = lint_on_each(result, [(context.inputs, context.before) for context in contexts])
        else:
            provided = options["data_files"]
            linted = lint_bundle(result, inputs.for_manifest(), before=others, data_files=provided)
        if strict:
            linted = linted.strict()
        for line in _lines(linted, output_format, verbose, documents):
            click.echo(line)  # the formats have escaped invisible characters
        if not before and not contexts and any(finding.is_undeclared for finding in linted.findings):
            hint = "(to read the bundles that precede it on its hosts, use --with BUNDLE or a puller.yaml)"
            click.echo(hint, err=output_format != "text")
        inputs.warn()
    return ExitStatus.NO if linted.has_errors else ExitStatus.OK


def _lines(linted: Linted, output_format: str, verbose: bool, site: str) -> Iterable[str]:
    """Return the lines of the findings in a format. Its module is imported here.

    ``site`` is the address of the documents of Puller.
    """
    if output_format == "github":
        return finding_formats.github_lines(linted, verbose=verbose)
    if output_format == "junit":
        return [as_junit(linted)]
    if output_format == "text":
        return finding_formats.text_lines(linted, verbose=verbose, colours=is_wanted(sys.stdout))

    return [
        finding_formats.as_sarif(linted, site)
        if output_format == "sarif"
        else finding_formats.as_json(linted)
    ]


@click.command("test")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, shell_complete=files)
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Run only cases whose name matches a pattern such as web01 or debian/*.",
)
@click.option(
    "--update",
    is_flag=True,
    help="Write the snapshots of cases with `snapshot: true`, and delete outdated snapshots.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(("text", "json", "junit")),
    default="text",
    show_default=True,
    help="Text for people, JSON for programs, or JUnit XML for CI services.",
)
@output_option("Write the results to FILE, and print the text for people.")
@click.option(
    "-j",
    "--jobs",
    metavar="NUMBER",
    type=click.IntRange(min=1),
    help="The maximum number of processes.  [default: one for each processor]",
)
@private_key_option
@click.option(
    "--apply",
    is_flag=True,
    help="Apply each case twice, as root, in a temporary private root directory.",
)
@click.option(
    "--tree",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="With --apply: the tree of an installed system, for cases that name no tree.",
)
def test(
    sources: tuple[str, ...],
    only: tuple[str, ...],
    *,
    update: bool,
    output_format: str,
    output: Path | None,
    jobs: int | None,
    private_key: str,
    apply: bool,
    tree: str | None,
) -> int:
    """Run the test cases of bundles.

    SOURCE is a bundle directory or a bundle file. A case is a file in the directory `tests` of the bundle. It
    describes a machine by a known system, facts and data, and lists the expected resources. Puller resolves the
    bundle for this machine, including the contents of its files. The machine that runs the tests stays unchanged.

    \b
      puller test web
      puller test web --only 'debian/*'
      puller test web --update
      puller test web --apply --tree /srv/trees/debian-12
      puller test bundles/* --format junit -o results.xml

    Exit status: 0 if all cases pass, 1 if a case fails or a bundle has no cases.
    """
    if apply:
        verify_allowed()
    elif tree:
        raise UsageError("test: --tree is for --apply")
    start = time.perf_counter()
    has_text = output_format == "text" or output is not None
    tell = click.echo if has_text else _print_nothing
    with open_bundles(sources, update=update) as bundles:
        results, complaints = run_tests(
            bundles, Settings(private_key, update, apply, tree or ""), only, jobs, tell
        )
    seconds = time.perf_counter() - start
    if has_text:
        click.echo(summary(results, seconds))
    if output_format != "text" or output is not None:
        _write(_formatted(results, seconds, output_format), output)
    for complaint in complaints:
        warn(complaint)
    return ExitStatus.OK if not complaints and all(result.passed for result in results) else ExitStatus.NO


@contextlib.contextmanager
def open_bundles(sources: Iterable[str | Path], *, update: bool = False) -> "Iterator[list[BundleWithCases]]":
    """Open the bundles at ``sources`` while the block runs. Raises ``SourceError`` and ``UnpackError``."""
    with contextlib.ExitStack() as opened:
        results = []
        for source in map(str, sources):
            manifest = opened.enter_context(open_source(source))
            is_packed = not manifest.path.is_relative_to(Path(source).absolute()) and not os.path.samefile(
                manifest.path, source
            )
            if is_packed and update:
                raise UsageError(f"{source}: is a bundle file, but snapshots require a directory")
            shown = source if is_packed else os.path.normpath(os.path.dirname(manifest.name))
            results.append(BundleWithCases(manifest.path, "" if shown == "." else shown))
        yield results


def run_tests(
    bundles: "Iterable[BundleWithCases]",
    settings: "Settings",
    only: Sequence[str] = (),
    jobs: int | None = None,
    tell: Callable[[str], object] = click.echo,
) -> tuple[list[Result], list[str]]:
    """Return the results of all cases, and sentences about bundles without cases. ``tell`` receives results at once."""
    results: list[Result] = []
    complaints: list[str] = []
    for bundle in bundles:
        suite = suite_of(bundle, only)
        complaints += filter(None, [suite.without_any])
        results += _run_one(suite, settings, jobs or processors(), tell)
    if only and not results:
        complaints.append(f"no case has a name like {' or '.join(only)}")
    return results, complaints


def _run_one(suite: Suite, settings: "Settings", jobs: int, tell: Callable[[str], object]) -> list[Result]:
    results = []
    for result in run_suite(suite, settings, jobs):
        results.append(result)
        for line in text_lines(result, colours=is_wanted(sys.stdout)):
            tell(line)
    for line in update_snapshots(suite, results) if settings.update else notes_on_snapshots(suite):
        tell(line)
    return results


def _formatted(results: Sequence[Result], seconds: float, output_format: str) -> str:
    if output_format == "json":
        return as_json(results, seconds)
    if output_format == "junit":
        return cases_as_junit(results, seconds)
    lines = [line for result in results for line in text_lines(result)]
    return "\n".join([*lines, summary(results, seconds)]) + "\n"


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return

    try:
        write_output(output, text.encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigurationError(
            file_problem(error, "cannot be written", where=output), code=ProblemCode.UNWRITABLE_OUTPUT
        ) from error


def _print_nothing(line: str) -> None:
    """Print nothing, because another format uses the output."""
