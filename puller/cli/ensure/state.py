"""``puller state``: the current state of one resource. (``puller status`` describes the agent and its bundles.)"""

from typing import Any

import click

from foundation.suggestions import meant
from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.cli.completing import resource_types
from puller.cli.options import fact_options, format_option
from puller.cli.output import show
from puller.errors import UsageError
from puller.facts.given_facts import facts_from
from puller.manifest.manifest import working_directory
from puller.manifest.problems import decode, find_problems
from puller.resources.base import Context, Resource, ResourceType
from puller.resources.content_sources import fetch_url
from puller.resources.registry import find_type, type_names
from puller.system.noop import NoopSystem


@click.command()
@click.argument("type_name", metavar="TYPE", shell_complete=resource_types)
@click.argument("name")
@format_option
@fact_options
def state(type_name: str, name: str, output_format: str, **options: Any) -> None:
    """Show the current state of a resource. This command changes nothing.

    \b
      puller state file /etc/motd
      puller state service nginx --format json
    """
    resource_type = find_type(type_name)
    if resource_type is None:
        raise UsageError(f"unknown resource type {type_name!r}", **meant(type_name, type_names()))
    if not resource_type.has_state:
        raise UsageError(f"{type_name}: exists only as a declaration in a manifest")
    resource = _resource(resource_type, name, options)
    show({"type": type_name, "name": name, **resource.describe(resource.look())}, output_format)


def _resource(resource_type: ResourceType, name: str, options: dict[str, Any]) -> Resource[Any, Any]:
    raw = {"name": name}
    reference = f"{resource_type.type_name}#{name}"
    if problem := next(find_problems(resource_type, raw), None):
        raise UsageError(f"{reference}: {problem}")
    properties = decode(resource_type, raw)
    for error in resource_type.problems(properties):
        if error.property == "name":  # other missing properties concern the desired state, which is not used
            raise UsageError(f"{reference}: {error}")
    if unsaid := resource_type.unsaid(properties):
        raise UsageError(f"{reference}: {unsaid}")
    context = Context(
        system=NoopSystem(),  # refuses to write, because this command only reads
        files=BundleFiles.anywhere(working_directory()),
        scope=Scope(facts_from(options), {}),
        fetch=fetch_url,
        shared={},
        declared=lambda type_name: [name] if type_name == resource_type.type_name else [],
        noop=True,
    )
    return resource_type(properties, context)
