"""``puller lint``: everything that can be known about a manifest without applying it."""

from collections.abc import Iterator
from typing import Any

import click

from puller.cli.inputs import data_options
from puller.cli.options import fact_options
from puller.exit_status import ExitStatus
from puller.given import load_inputs
from puller.manifest.declaration import Declaration
from puller.manifest.loader import load_manifest
from puller.manifest.source import open_source


@click.command()
@click.argument("source")
@fact_options
@data_options
def lint(source: str, **options: Any) -> int:
    """Check SOURCE: a manifest, a directory with a manifest.yaml, or a bundle file.

    All problems are listed at once, each with its file and line. What an expression cannot give for these facts is a
    warning, as it may be there on the machines that the manifest is for.

    \b
      puller lint web
      puller lint web --facts examples/db.yaml

    Exit status: 0 when nothing is wrong, 13 when the manifest would be refused.
    """
    with open_source(source) as found:
        inputs = load_inputs(options)
        manifest = load_manifest(found.path, found.name, inputs.for_manifest())
        warnings = [d for d in manifest.declarations if d.failure]
        for declaration in warnings:
            click.echo(f"{declaration.where}: warning: {declaration.reference}: {declaration.failure}")
        seen = [sentence for declaration in manifest.declarations for sentence in _seen_secrets(declaration)]
        for sentence in seen:
            click.echo(sentence)
        for warning in manifest.warnings:
            click.echo(f"{warning} (warning)")
        count = len(manifest.declarations)
        click.echo(f"{found.name}: {count} resources, {len(warnings) + len(seen)} warnings, no errors")
        inputs.warn()
    return ExitStatus.OK


def _seen_secrets(declaration: Declaration) -> Iterator[str]:
    """Warnings of secrets that the process list would show."""
    for name in sorted(declaration.secret & declaration.type.command_lines):
        what = f"{name} is made of a secret, which the process list shows while the command runs"
        advice = "hand it over in the environment, or in a file"
        yield f"{declaration.where}: warning: {declaration.reference}: {what}: {advice}"
