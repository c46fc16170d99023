"""The template side of ``puller render``: a template, or a directory of templates, tried without a manifest.

A template that belongs to a bundle sees the bundle's files, as it will later: the nearest directory above it that has a
manifest, or a library.yaml, is where includes and ``readFile`` start.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from bundles.filesystem.output import write_output
from foundation.masking import HIDDEN
from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.cli.options import together
from puller.cli.output import say, show
from puller.data.sources import merged
from puller.errors import ResourceError, SourceError, UsageError
from puller.manifest.bundle_facts import need_bundle_facts
from puller.manifest.libraries import LIBRARY, files_in
from puller.manifest.source import MANIFEST
from puller.resources.base import Context
from puller.resources.scaffolds.scaffold import Scaffold, ScaffoldProperties
from puller.resources.scaffolds.tree import RenderRequest, render_source
from puller.run.host import CommandInputs
from puller.system.local import LocalSystem
from puller.templates.engine import choose_engine, named_engine
from puller.templates.functions import bundle_functions
from puller.templates.rendering import render_file
from puller.values.file_mode import FileMode

_ENGINES = ("jinja", "jet", "go")
_HIDDEN = f"{HIDDEN}\n"

template_options = together(
    click.option(
        "--engine",
        type=click.Choice(_ENGINES),
        help="Take SOURCE for a template, or a directory of them, in this language.",
    ),
    click.option(
        "--left-delimiter",
        default="",
        metavar="TEXT",
        help="What begins an action of a template, such as <<.",
    ),
    click.option(
        "--right-delimiter", default="", metavar="TEXT", help="What ends an action of a template, such as >>."
    ),
    click.option("--skip-empty", is_flag=True, help="Leave out files of a directory that come out blank."),
    click.option(
        "-o",
        "--output",
        metavar="PATH",
        help="Write there instead of printing: a directory for a directory, a file for a file.",
    ),
)
"""For ``find_template_options``."""


class TemplateOptions(msgspec.Struct, frozen=True):
    """How templates are rendered, and where to."""

    engine: str
    delimiters: tuple[str, str]
    skip_empty: bool
    output: str | None


def find_template_options(source: str, options: Mapping[str, Any]) -> TemplateOptions | None:
    """How SOURCE is to be rendered as a template; ``None`` when it is a manifest. Raises ``UsageError``."""
    given = [options[name] for name in ("left_delimiter", "right_delimiter", "skip_empty", "output")]
    left, right, skip_empty, output = given
    engine = _engine_of(source, options["engine"])
    if engine is not None:
        return TemplateOptions(engine, (left, right), skip_empty, output)
    if any(given):
        raise UsageError(
            "delimiters, --skip-empty and --output are for templates: say --engine jinja, jet or go"
        )
    if os.path.isdir(source) and not os.path.exists(os.path.join(source, MANIFEST)):
        raise UsageError(f"{source} has no {MANIFEST}; if it holds templates, say --engine jinja, jet or go")
    return None


def _engine_of(source: str, given: str | None) -> str | None:
    """The engine of a template, or of a directory of them; ``None`` for a manifest. Raises ``UsageError``."""
    path = source.rstrip("/")
    if given is None and (named_engine(path) is None or os.path.exists(os.path.join(path, MANIFEST))):
        return None
    try:
        return choose_engine(path, given)
    except ValueError as error:
        raise UsageError(f"SOURCE {error}") from None


def render_templates(
    source: str, options: TemplateOptions, inputs: CommandInputs, output_format: str
) -> None:
    """Render ``source`` and print or write what comes out; raises ``SourceError`` where it cannot be rendered."""
    if not os.path.exists(source):
        raise SourceError(f"{source}: there is no such template or directory of templates")
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
    """The files of the bundle or library that a template is of, else of the directory that it is in, or is."""
    for above in path.parents:
        if (above / MANIFEST).is_file() or (above / LIBRARY).is_file():
            return files_in(above)
    return BundleFiles.of(path if path.is_dir() else path.parent)


def _scope(inputs: CommandInputs, home: BundleFiles) -> Scope:
    given = inputs.for_manifest()
    scope = Scope(need_bundle_facts(given.facts, Path(home.tree.root)), merged(given.sources), given.environ)
    return scope.with_names(bundle_functions(home, scope))


def _render_file(
    path: Path, home: BundleFiles, options: TemplateOptions, scope: Scope, output_format: str
) -> None:
    text, is_secret = render_file(os.path.realpath(path), options.engine, scope, home, options.delimiters)
    if options.output is not None:
        # An output that is a directory takes the file by its name, as with cp(1).
        place = Path(options.output) / path.name if os.path.isdir(options.output) else Path(options.output)
        write_output(place, text.encode("utf-8", "surrogateescape"), mode=0o600 if is_secret else 0o644)
        say(f"{place}: written")
    elif output_format == "json":
        show(_HIDDEN if is_secret else _printable(text), output_format)
    else:
        sys.stdout.write(_HIDDEN if is_secret else _printable(text))  # as it is, also without an end of line


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

    def _write(self, output: str, *, is_secret: bool) -> None:
        """As the resource does it, so that nothing is written outside of ``output``, and only what differs."""
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
    """A text that a terminal and JSON can take: bytes that are no UTF-8 are replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
