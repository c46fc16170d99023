"""``puller lint``: checks of a bundle without applying it."""

import contextlib
import sys
from collections.abc import Iterable
from typing import Any

import click

from puller.authoring.cases.contexts import open_contexts
from puller.authoring.lint import finding_formats
from puller.authoring.lint.check import Linted, lint_bundle, lint_on_each
from puller.authoring.lint.finding_formats import as_junit
from puller.cli.completing import files
from puller.cli.options import before_option, data_options, fact_options, has_context, other_machine_options
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
