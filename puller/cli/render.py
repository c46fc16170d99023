"""``puller render``: what a manifest comes to on this host, before anything is applied."""

from typing import Any

import click
import msgspec

from puller.cli.inputs import data_options, load_inputs
from puller.cli.options import fact_options
from puller.cli.output import format_option, show
from puller.manifest.loader import Declaration, Manifest, load_manifest
from puller.manifest.source import open_source


@click.command()
@click.argument("source")
@format_option
@fact_options
@data_options
def render(source: str, output_format: str, **options: Any) -> None:
    """Show the data and the resources of SOURCE as they are for this host, in the order in which they would be applied.

    Nothing is looked at on the machine beside its facts. Content marked sensitive is not shown.

    \b
      puller render web
      puller render web --facts host.yaml --fact role=db --format json
    """
    with open_source(source) as found:
        inputs = load_inputs(options)
        manifest = load_manifest(found.path, found.name, inputs.for_manifest())
        show({"data": _plain(manifest.scope.data), "resources": _resources(manifest)}, output_format)
        inputs.warn()


def _resources(manifest: Manifest) -> list[dict[str, Any]]:
    return [_resource(manifest.declarations[index]) for index in manifest.order]


def _resource(declaration: Declaration) -> dict[str, Any]:
    properties = {"error": declaration.failure} if declaration.failure else _shown(declaration)
    return {declaration.type.type_name: [{declaration.properties.name: properties}]}


def _shown(declaration: Declaration) -> dict[str, Any]:
    properties: dict[str, Any] = msgspec.to_builtins(declaration.properties, enc_hook=str)
    properties.pop("name")
    if declaration.properties.sensitive:
        for name in declaration.type.secret_properties & properties.keys():
            properties[name] = "(sensitive)"
    return {"ensure": declaration.properties.ensure, **properties}


def _plain(value: Any) -> Any:
    """Mappings and lists of our own kinds as the plain ones that YAML and JSON writers know."""
    if hasattr(value, "items"):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
