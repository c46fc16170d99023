"""``puller lint``: everything that can be known about a manifest without applying it."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from puller.cli.options import before_option, data_options, fact_options, no_system_facts_option
from puller.errors import ManifestError
from puller.exit_status import ExitStatus
from puller.manifest.declaration import Declaration
from puller.manifest.host_catalog import load_together
from puller.manifest.manifest import Manifest
from puller.manifest.notations import find_foreign
from puller.manifest.problems import Problems
from puller.manifest.source import open_source
from puller.run.inputs import load_inputs


@click.command()
@click.argument("source")
@before_option
@fact_options
@no_system_facts_option
@data_options
def lint(source: str, before: tuple[str, ...], **options: Any) -> int:
    """Check SOURCE: a manifest, a directory with a manifest.yaml, or a bundle file.

    All problems are listed at once, each with its file and line. What an expression cannot give for these facts is a
    warning, as it may be there on the machines that the manifest is for.

    With --with it is read together with the bundles that come before it in the configuration of its hosts: it may name
    their resources, and must agree with what they declare.

    \b
      puller lint web
      puller lint web --facts examples/db.yaml
      puller lint web --with base

    Exit status: 0 when nothing is wrong, 13 when the manifest would be refused.
    """
    with contextlib.ExitStack() as opened:
        *others, found = (opened.enter_context(open_source(one)) for one in (*before, source))
        inputs = load_inputs(options)
        try:
            manifest = load_together((*others, found), inputs.for_manifest()).manifests[-1]
        except ManifestError as error:
            if not before and "which is not declared" in str(error):
                click.echo(
                    "(resources of a bundle that comes before it on its hosts are known by --with BUNDLE)"
                )
            # Another tool's notation may be the very reason; and what is refused need not even be text.
            _show(_foreign([Problems.of_text(found.name, found.path.read_text(errors="replace"))]))
            raise
        data_files = (Problems.of_text(path, Path(path).read_text()) for path in options["data_files"])
        problems = [
            *(_failure(declaration) for declaration in manifest.declarations if declaration.failure),
            *(sentence for declaration in manifest.declarations for sentence in _seen_secrets(declaration)),
            *_foreign([*manifest.texts, *data_files]),
            *_unused(manifest),
        ]
        _show([*problems, *(f"{warning} (warning)" for warning in manifest.warnings)])
        count = len(manifest.declarations)
        click.echo(f"{found.name}: {count} resources, {len(problems)} warnings, no errors")
        inputs.warn()
    return ExitStatus.OK


def _unused(manifest: Manifest) -> Iterator[str]:
    """Warnings of libraries that are packed for nothing."""
    if not manifest.files.libraries:
        return
    from puller.manifest.libraries import unused_libraries

    yield from (f"{sentence} (warning)" for sentence in unused_libraries(manifest.files, manifest.name))


def _show(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        click.echo(sentence)


def _failure(declaration: Declaration) -> str:
    """A warning of what expressions cannot give; a loop that fails says so itself, of its items each says which."""
    item = f" ({declaration.item})" if declaration.looped is not None else ""
    return f"{declaration.where}: warning: {declaration.reference}: {declaration.failure}{item}"


def _foreign(texts: Iterable[Problems]) -> Iterator[str]:
    """Warnings of expressions that would be installed as they are."""
    for text in texts:
        for line, expression in find_foreign(text.text):
            what = f"{expression} is ordinary text here; an expression is written {{{{ … }}}}"
            yield f"{text.source}:{line}: warning: {text.mask(what)}"


def _seen_secrets(declaration: Declaration) -> Iterator[str]:
    """Warnings of secrets that the process list would show."""
    for name in sorted(declaration.secret & declaration.type.command_lines):
        what = f"{name} is made of a secret, which the process list shows while the command runs"
        advice = "hand it over in the environment, or in a file"
        yield f"{declaration.where}: warning: {declaration.reference}: {what}: {advice}"
