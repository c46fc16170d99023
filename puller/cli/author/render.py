"""The command ``puller render``: the rendered manifest, template or directory of templates for this host.

A template in a bundle or library sees the files of that bundle or library. Includes and ``readFile`` start at the
nearest parent directory with a manifest or a ``library.yaml``.
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from bundles.filesystem.safe_paths import write_output
from foundation.masking import HIDDEN, mask_urls
from foundation.quantities import first_few
from foundation.suggestions import meant
from hiera.expressions.expressions import Scope
from puller.authoring.cases.contexts import BundleContext, bundles_before, machine_names, open_contexts
from puller.bundle_paths import BundleFiles
from puller.cli.completing import files, offer
from puller.cli.options import (
    before_option,
    data_options,
    fact_options,
    format_option,
    has_context,
    other_machine_options,
    output_option,
    together,
)
from puller.cli.output import say, show, warn
from puller.data.sources import merged
from puller.errors import MissingSourceError, ResourceError, SourceError, UsageError
from puller.manifest.children import applied_as
from puller.manifest.declaration import Declaration
from puller.manifest.graph.host_catalog import load_together
from puller.manifest.libraries import LIBRARY, files_in, need_bundle_facts
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import MANIFEST, Inputs, ManifestSource, open_source
from puller.manifest.problems import Problems
from puller.resources.base import Context
from puller.resources.scaffolds.scaffold import Scaffold, ScaffoldProperties
from puller.resources.scaffolds.scaffold_tree import RenderRequest, render_source
from puller.run.host import CommandInputs, load_inputs
from puller.system.local import LocalSystem
from puller.templates.functions import bundle_functions
from puller.templates.rendering import choose_engine, named_engine, render_file
from puller.values.file_mode import FileMode

# Templates and directories of templates, without a manifest.

_ENGINES = ("jinja", "jet", "go")
_HIDDEN = f"{HIDDEN}\n"

template_options = together(
    click.option(
        "--engine",
        type=click.Choice(_ENGINES),
        help="Read SOURCE as a template in this language, or as a directory of such templates.",
    ),
    click.option(
        "--left-delimiter",
        default="",
        metavar="DELIMITER",
        help="The start of a template action, such as <<.",
    ),
    click.option(
        "--right-delimiter", default="", metavar="DELIMITER", help="The end of a template action, such as >>."
    ),
    click.option("--skip-empty", is_flag=True, help="Skip files of a directory that render as blank."),
    output_option(
        "Write to this file, or to this directory if SOURCE is a directory of templates.", metavar="FILE|DIR"
    ),
)
"""For ``find_template_options``."""


class TemplateOptions(msgspec.Struct, frozen=True):
    """Rendering options of templates, and the output path."""

    engine: str
    delimiters: tuple[str, str]
    skip_empty: bool
    output: Path | None


def find_template_options(source: str, options: Mapping[str, Any]) -> TemplateOptions | None:
    """Return the options to render SOURCE as a template, or ``None`` for a manifest. Raises ``UsageError``."""
    provided = [options[name] for name in ("left_delimiter", "right_delimiter", "skip_empty", "output")]
    left, right, skip_empty, output = provided
    engine = _engine_of(source, options["engine"])
    if engine is not None:
        return TemplateOptions(engine, (left, right), skip_empty, output)
    if any(provided):
        raise UsageError(
            "delimiters, --skip-empty and --output are for templates: add --engine jinja, jet or go"
        )
    if os.path.isdir(source) and not os.path.exists(os.path.join(source, MANIFEST)):
        raise UsageError(f"{source} has no {MANIFEST}. For templates, use --engine jinja, jet or go")
    return None


def _engine_of(source: str, provided: str | None) -> str | None:
    """Return the engine of a template or a directory of templates, or ``None`` for a manifest. Raises
    ``UsageError``.
    """
    path = source.rstrip("/")
    if provided is None and (named_engine(path) is None or os.path.exists(os.path.join(path, MANIFEST))):
        return None
    try:
        return choose_engine(path, provided)
    except ValueError as error:
        raise UsageError(f"SOURCE {error}") from None


def render_templates(
    source: str, options: TemplateOptions, inputs: CommandInputs, output_format: str
) -> None:
    """Render ``source``, and print or write the result. Raises ``SourceError`` if rendering fails."""
    if not os.path.exists(source):
        raise MissingSourceError(f"{source}: does not exist")
    path = Path(os.path.abspath(source))
    home = _home(path)
    scope = _scope(inputs, home)
    try:
        if path.is_dir():
            _Directory(source, path, home, options, scope).render(output_format)
        else:
            _render_file(path, home, options, scope, output_format)
    except ResourceError as error:
        raise SourceError(problems=error.problems) from error
    inputs.warn()


def _home(path: Path) -> BundleFiles:
    """Return the files of the bundle or library of a template, or else of its directory."""
    for above in path.parents:
        if (above / MANIFEST).is_file() or (above / LIBRARY).is_file():
            return files_in(above)
    return BundleFiles.of(path if path.is_dir() else path.parent)


def _scope(inputs: CommandInputs, home: BundleFiles) -> Scope:
    provided = inputs.for_manifest()
    scope = Scope(
        need_bundle_facts(provided.facts, Path(home.tree.root)), merged(provided.sources), provided.environ
    )
    return scope.with_names(bundle_functions(home, scope))


def _render_file(
    path: Path, home: BundleFiles, options: TemplateOptions, scope: Scope, output_format: str
) -> None:
    text, is_secret = render_file(os.path.realpath(path), options.engine, scope, home, options.delimiters)
    if options.output is not None:
        # An output directory gets the file under its name, as with cp(1).
        place = options.output / path.name if options.output.is_dir() else options.output
        write_output(place, text.encode("utf-8", "surrogateescape"), mode=0o600 if is_secret else 0o644)
        say(f"{place}: written")
    elif output_format == "json":
        show(_HIDDEN if is_secret else _printable(text), output_format)
    else:
        sys.stdout.write(
            _HIDDEN if is_secret else _printable(text)
        )  # unchanged, even without a final line end


class _Directory:
    """A directory of templates, rendered as a scaffold."""

    def __init__(
        self, name: str, path: Path, home: BundleFiles, options: TemplateOptions, scope: Scope
    ) -> None:
        self.name = name
        self.path = path
        self.home = home
        self.options = options
        self.scope = scope

    def render(self, output_format: str) -> None:
        options = self.options
        request = RenderRequest(
            str(self.path), self.name.rstrip("/"), options.engine, options.delimiters, options.skip_empty
        )
        tree = render_source(request, self.scope, self.home, LocalSystem())
        if options.output is not None:
            self._write(options.output, is_secret=tree.secret)
            return
        texts = {
            path: _HIDDEN if tree.secret else _printable(file.data.decode("utf-8", "replace"))
            for path, file in tree.files.items()
        }
        show(texts, output_format)

    def _write(self, output: Path, *, is_secret: bool) -> None:
        """Write like the resource: only changed files, and only inside ``output``."""
        left, right = self.options.delimiters
        properties = ScaffoldProperties(
            name=os.path.abspath(output),
            source=str(self.path),
            engine=self.options.engine,
            left_delimiter=left,
            right_delimiter=right,
            skip_empty=self.options.skip_empty,
            mode=FileMode(0o600) if is_secret else None,
        )
        context = Context(LocalSystem(), self.home, self.scope, _no_fetch, {}, lambda kind: ())
        scaffold = Scaffold(properties, context)
        actual = scaffold.look()
        if differences := scaffold.differences(actual):
            scaffold.change(differences, actual)
        for path in (*actual.changed, *actual.stable):
            say(f"{os.path.join(output, path)}: {'written' if path in actual.changed else 'unchanged'}")


def _no_fetch(url: str) -> bytes:
    raise ResourceError(f"{url} is not fetched while templates are rendered")


def _printable(text: str) -> str:
    """Return a text for terminals and JSON. Invalid UTF-8 bytes are replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@offer
def _machines(context: click.Context) -> Iterable[str]:
    """Return the machines of the preceding bundle argument: its test cases, or those of ``puller.yaml``."""
    source = context.params.get("source") or next(iter(context.args), None)
    return machine_names(source) if source else []


@click.command()
@click.argument("source", shell_complete=files)
@format_option
@template_options
@before_option
@fact_options
@other_machine_options
@data_options
@click.option(
    "--machine",
    metavar="NAME",
    shell_complete=_machines,
    help="The test case, or the machine of puller.yaml.",
)
@click.option("--source", "as_text", is_flag=True, help="Print the text that `resources_template` renders.")
def render(
    source: str,
    output_format: str,
    *,
    before: tuple[str, ...],
    machine: str | None,
    as_text: bool,
    **options: Any,
) -> None:
    """Print a manifest or template with its values for a machine.

    For a manifest, `render` prints the data and the resources of SOURCE in the order in which a run applies them.

    A bundle is rendered for the first machine of its test cases (`puller test`), or of `puller.yaml` in a parent
    directory (docs/repository.md). --machine selects another one. Without both, or with options for facts and data,
    `render` uses these options and the facts of this machine.

    With --engine, SOURCE is a template that is rendered like the `template` of a file, or a directory of templates that
    is rendered like a scaffold. Files that end in .j2, .jet or .tmpl need no --engine.

    With --source, `render` prints the text of `resources_template` with line numbers, even if it is invalid.

    The bundles that precede SOURCE on its machine are read, too. Sensitive values are masked.

    \b
      puller render web
      puller render web --machine debian
      puller render web --facts host.yaml --fact role=db --format json
      puller render web --with base
      puller render web --source
      puller render web/templates/app.conf.j2 --data values.yaml
      puller render web/templates/app --engine jet --data values.yaml -o /tmp/app
    """
    if machine is not None and (before or has_context(options)):
        raise UsageError("--machine excludes --with and the options for facts and data")
    if (desired := find_template_options(source, options)) is not None:
        if machine is not None:
            raise UsageError("--machine is for a bundle, and SOURCE is a template")
        render_templates(source, desired, load_inputs(options), output_format)
        return
    with contextlib.ExitStack() as opened:
        context = None
        if not before and not has_context(options):
            context = _choose(open_contexts(source, options["private_key"], opened), machine)
        before = before or (() if context else bundles_before(source))
        *others, result = (opened.enter_context(open_source(item)) for item in (*before, source))
        host = load_inputs(options)
        inputs = host.for_manifest() if context is None else context.inputs
        if as_text:
            _show_texts(result, inputs, output_format)
            return
        preceding = others if context is None else context.before
        manifest = load_together((*preceding, result), inputs).manifests[-1]
        resources = [_resource(manifest.declarations[index]) for index in manifest.order]
        show({"data": _plain(manifest.scope.data), "resources": resources}, output_format)
        host.warn()


def _choose(contexts: Sequence[BundleContext], machine: str | None) -> BundleContext | None:
    """Return the context of a name, by default the first one. Raises ``UsageError`` for an unknown name."""
    if machine is not None:
        known = {context.name: context for context in contexts}
        if machine not in known:
            raise UsageError(f"--machine: unknown machine {machine!r}", **meant(machine, known))
        return known[machine]
    if not contexts:
        return None
    first, *others = contexts
    more = f" (--machine: {first_few([context.name for context in others], 5)})" if others else ""
    warn(f"machine {first.name}{more}")
    return first


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
    """Return a rendered text, or a mask if secrets were available to it."""
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
    """Return Puller's mappings and lists as plain ones for YAML and JSON writers."""
    if hasattr(value, "items"):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
