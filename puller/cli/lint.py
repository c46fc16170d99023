"""``puller lint``: everything that can be known about a manifest without applying it."""

from typing import Any

import click

from puller.cli.inputs import data_options
from puller.cli.options import fact_options
from puller.exit_status import ExitStatus
from puller.given import load_inputs
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
        for warning in manifest.warnings:
            click.echo(f"{warning} (warning)")
        count = len(manifest.declarations)
        click.echo(f"{found.name}: {count} resources, {len(warnings)} warnings, no errors")
        inputs.warn()
    return ExitStatus.OK
