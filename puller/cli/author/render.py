"""``puller render``: what a manifest, a template or a tree of templates comes to on this host."""

from typing import Any

import click

from puller.cli.author.render_templates import find_template_options, render_templates, template_options
from puller.cli.options import data_options, fact_options, format_option, no_system_facts_option
from puller.cli.output import show
from puller.manifest.applied import applied_as
from puller.manifest.declaration import Declaration
from puller.manifest.loader import load_manifest
from puller.manifest.source import open_source
from puller.run.inputs import load_inputs


@click.command()
@click.argument("source")
@format_option
@template_options
@fact_options
@no_system_facts_option
@data_options
def render(source: str, output_format: str, **options: Any) -> None:
    """Show the data and the resources of SOURCE as they are for this host, in the order in which they would be applied.

    With --engine SOURCE is a template, rendered as a file's `template` would be, or a directory of templates,
    rendered as a scaffold would be. A file that ends in .j2, .jet or .tmpl needs no --engine.

    Nothing is looked at on the machine beside its facts. What is sensitive is not shown.

    \b
      puller render web
      puller render web --facts host.yaml --fact role=db --format json
      puller render web/templates/app.conf.j2 --data values.yaml
      puller render web/templates/app --engine jet --data values.yaml -o /tmp/app
    """
    if (wanted := find_template_options(source, options)) is not None:
        render_templates(source, wanted, load_inputs(options), output_format)
        return
    with open_source(source) as found:
        inputs = load_inputs(options)
        manifest = load_manifest(found.path, found.name, inputs.for_manifest())
        resources = [_resource(manifest.declarations[index]) for index in manifest.order]
        show({"data": _plain(manifest.scope.data), "resources": resources}, output_format)
        inputs.warn()


def _resource(declaration: Declaration) -> dict[str, Any]:
    properties: dict[str, Any] = (
        {"error": declaration.failure} if declaration.failure else declaration.shown()
    )
    if applied := applied_as(declaration):
        properties["applied"] = applied
    return {declaration.type.type_name: [{declaration.properties.name: properties}]}


def _plain(value: Any) -> Any:
    """Mappings and lists of our own kinds as the plain ones that YAML and JSON writers know."""
    if hasattr(value, "items"):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
