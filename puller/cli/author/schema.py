"""``puller schema``: JSON Schemas for editors, and for programs that write manifests or requests."""

import click

from puller.authoring.cases.contexts import repository_schema
from puller.cli.command_table import CommandGroup
from puller.cli.output import show
from puller.engine.manifest_schema import manifest_schema, request_schema
from puller.reporting.report import report_schema
from puller.reporting.results import result_schema


@click.group(cls=CommandGroup)
def schema() -> None:
    """Print the JSON Schema of a document format.

    The schemas have the version 2020-12. The schemas of manifests and requests contain all resource types of this
    machine.

    \b
      puller schema manifest > manifest.schema.json
    """


@schema.command()
def manifest() -> None:
    """Print the schema of a manifest."""
    show(manifest_schema(), "json")


@schema.command()
def repository() -> None:
    """Print the schema of `puller.yaml` in a repository of bundles."""
    show(repository_schema(), "json")


@schema.command()
def request() -> None:
    """Print the schema of a request to `puller ensure api pipe`."""
    show(request_schema(), "json")


@schema.command()
def report() -> None:
    """Print the schema of the reports that hosts send."""
    show(report_schema(), "json")


@schema.command()
def result() -> None:
    """Print the schema of the JSON output of commands."""
    show(result_schema(), "json")
