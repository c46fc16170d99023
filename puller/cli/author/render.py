"""``puller render``: what a manifest, a template or a tree of templates comes to on this host."""

import contextlib
from typing import Any

import click

from foundation.masking import HIDDEN, mask_urls
from puller.cli.author.render_templates import find_template_options, render_templates, template_options
from puller.cli.completing import files
from puller.cli.options import (
    before_option,
    data_options,
    fact_options,
    format_option,
    other_machine_options,
)
from puller.cli.output import say, show, warn
from puller.manifest.applied import applied_as
from puller.manifest.declaration import Declaration
from puller.manifest.host_catalog import load_together
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.manifest.problems import Problems
from puller.manifest.source import ManifestSource, open_source
from puller.run.host import load_inputs


@click.command()
@click.argument("source", shell_complete=files)
@format_option
@template_options
@before_option
@fact_options
@other_machine_options
@data_options
@click.option("--source", "as_text", is_flag=True, help="Show the text that resources_template has made.")
def render(
    source: str, output_format: str, *, before: tuple[str, ...], as_text: bool, **options: Any
) -> None:
    """Show the data and the resources of SOURCE as they are for this host, in the order in which they would be applied.

    With --engine SOURCE is a template, rendered as a file's `template` would be, or a directory of templates,
    rendered as a scaffold would be. A file that ends in .j2, .jet or .tmpl needs no --engine.

    With --source it is the text that `resources_template` has made, with the lines that errors name, also when what
    stands there is wrong.

    With --with it is read together with the bundles that come before it in the configuration of its hosts, as by
    `puller lint`.

    Nothing is looked at on the machine beside its facts. What is sensitive is not shown.

    \b
      puller render web
      puller render web --facts host.yaml --fact role=db --format json
      puller render web --with base
      puller render web --source
      puller render web/templates/app.conf.j2 --data values.yaml
      puller render web/templates/app --engine jet --data values.yaml -o /tmp/app
    """
    if (wanted := find_template_options(source, options)) is not None:
        render_templates(source, wanted, load_inputs(options), output_format)
        return
    with contextlib.ExitStack() as opened:
        *others, found = (opened.enter_context(open_source(one)) for one in (*before, source))
        inputs = load_inputs(options)
        if as_text:
            _show_texts(found, inputs.for_manifest(), output_format)
            return
        manifest = load_together((*others, found), inputs.for_manifest()).manifests[-1]
        resources = [_resource(manifest.declarations[index]) for index in manifest.order]
        show({"data": _plain(manifest.scope.data), "resources": resources}, output_format)
        inputs.warn()


def _show_texts(source: ManifestSource, inputs: Inputs, output_format: str) -> None:
    texts: list[Problems] = []
    try:
        load_manifest(source.path, source.name, inputs, texts=texts)
    finally:
        made = {text.source: _readable(text) for text in texts if text.is_rendered}
        if output_format == "json":
            show(made, output_format)
        else:
            for name, text in made.items():
                say(f"# {name}")
                for number, line in enumerate(text.splitlines(), start=1):
                    say(f"{number:5}  {line}")
    if not made:
        warn(f"{source.name}: has no resources_template")


def _readable(text: Problems) -> str:
    """A rendered text, or what stands for it when it was rendered with secrets at hand."""
    return text.text if text.mask is mask_urls else f"{HIDDEN}\n"


def _resource(declaration: Declaration) -> dict[str, Any]:
    properties: dict[str, Any] = (
        {"error": declaration.failure} if declaration.failure else declaration.shown()
    )
    if applied := applied_as(declaration):
        properties["applied"] = applied
    item = {"item": f"{declaration.where}: {declaration.item}"} if declaration.item else {}
    return {declaration.type.type_name: [{declaration.properties.name: properties, **item}]}


def _plain(value: Any) -> Any:
    """Mappings and lists of our own kinds as the plain ones that YAML and JSON writers know."""
    if hasattr(value, "items"):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
