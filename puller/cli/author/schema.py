"""``puller schema``: JSON Schemas for editors, and for programs that write manifests or requests."""

import click

from puller.cli.output import show
from puller.engine.manifest_schema import manifest_schema, request_schema
from puller.reporting.results import result_schema
from puller.reporting.sent_report import report_schema


@click.group()
def schema() -> None:
    """Print a JSON Schema (2020-12), for manifests and requests made from the resource types of this machine.

    \b
      puller schema manifest > manifest.schema.json
    """


@schema.command()
def manifest() -> None:
    """Print the schema of a manifest.yaml."""
    show(manifest_schema(), "json")


@schema.command()
def request() -> None:
    """Print the schema of what puller ensure api pipe reads."""
    show(request_schema(), "json")


@schema.command()
def report() -> None:
    """Print the schema of the reports that hosts send to their fleet."""
    show(report_schema(), "json")


@schema.command()
def result() -> None:
    """Print the schema of the documents that commands print with --format json."""
    show(result_schema(), "json")
