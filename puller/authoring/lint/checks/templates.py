"""Templates that their engine cannot read, and includes of missing files.

* ``template-syntax``: an error of the parser, with its line and column. Nothing is rendered.
* ``missing-file``: a constant path of an included template, or in a function call, that the bundle lacks.
* ``unknown-name``: a Go template that its file does not define.
* ``foreign-expression``: ``${data.port}``, which no supported engine replaces.

All templates that the bundle uses are read, and all files with the name of a template.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from jinja2 import nodes

from foundation.problems import Location, ProblemCode
from hiera.document.foreign_notation import find_foreign_in_template
from hiera.errors import HieraError
from puller.authoring.lint.checks import called_files
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.named_files import TemplateUse, named_files, template_uses
from puller.authoring.lint.names.bundle import Bundle, bundle_of
from puller.authoring.lint.names.templates import parse_jinja
from puller.authoring.lint.subject import Subject, problem_of_text, read_text
from puller.errors import ResourceError
from puller.templates.engine_choice import named_engine
from puller.templates.rendering import load
from puller.templates.template_errors import TemplateError

_SYNTAX: Final = ProblemCode.TEMPLATE_SYNTAX
_MISSING: Final = ProblemCode.MISSING_FILE


def check(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in all templates."""
    bundle = bundle_of(subject)
    seen: set[tuple[str, str, tuple[str, str]]] = set()
    waiting = [use for named in named_files(bundle) for use in template_uses(named)]
    waiting += _by_name(bundle, {use.path for use in waiting})
    while waiting:
        use = waiting.pop(0)
        key = (use.path, use.engine, use.delimiters)
        if key in seen:
            continue
        seen.add(key)
        if (text := read_text(use.path)) is not None:
            yield from _check(use, text, bundle, waiting)
        elif problem := problem_of_text(use.path):
            yield Finding.of(_SYNTAX, Severity.ERROR, Location(bundle.name_of(use.path)), problem)


def _by_name(bundle: Bundle, used: set[str]) -> Iterator[TemplateUse]:
    """Yield unused files whose suffix determines their engine."""
    for path in bundle.listed[bundle.root]:
        engine = named_engine(path)
        if engine is not None and path not in used and not _is_in_tests(path, bundle):
            yield TemplateUse(path, engine, bundle.files.within(path))


def _is_in_tests(path: str, bundle: Bundle) -> bool:
    return os.path.relpath(path, bundle.root).startswith("tests/")


def _check(use: TemplateUse, text: str, bundle: Bundle, waiting: list[TemplateUse]) -> Iterator[Finding]:
    name = bundle.name_of(use.path)
    yield from called_files.in_template(use, text, name)
    yield from _foreign(name, text)
    if use.engine == "jinja" and (parsed := parse_jinja(text, use.delimiters)) is not None:
        yield from _includes(use, parsed[0], parsed[2], name, waiting)
        return
    try:
        load(use.engine, use.delimiters).compile(os.path.basename(use.path), text)
    except TemplateError as error:
        place = Location(name, error.line, error.column)
        yield Finding.of(_SYNTAX, Severity.ERROR, place, error.message)
    except ResourceError:  # another check reports invalid delimiters of the manifest
        return


def _foreign(name: str, text: str) -> Iterator[Finding]:
    """Yield expressions in the notation of another tool, which would be printed literally."""
    for line, column, expression in find_foreign_in_template(text):
        what = (
            f"{expression} is ordinary text here; an expression stands between the delimiters of the engine"
        )
        yield Finding.of(ProblemCode.FOREIGN_EXPRESSION, Severity.WARNING, Location(name, line, column), what)


def _includes(
    use: TemplateUse, tree: nodes.Template, skipped: int, name: str, waiting: list[TemplateUse]
) -> Iterator[Finding]:
    """Yield findings about constant paths that a Jinja2 template includes, imports or extends."""
    kinds = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
    for node in tree.find_all(kinds):
        written = getattr(node, "template", None)
        if not isinstance(written, nodes.Const) or not isinstance(written.value, str):
            continue
        found, problem = _meant(use, written.value)
        if found is not None:
            waiting.append(TemplateUse(found, "jinja", use.files.within(found), use.delimiters))
        elif not getattr(node, "ignore_missing", False):
            place = Location(name, node.lineno + skipped)
            yield Finding.of(_MISSING, Severity.ERROR, place, problem, name=written.value)


def _meant(use: TemplateUse, written: str) -> tuple[str | None, str]:
    """Return the file of an include, or the problem."""
    if use.tree and not use.files.is_prefixed(written):
        path = os.path.join(use.tree, written)
    else:
        try:
            path = use.files.find(written)
        except HieraError as error:
            return None, str(error)
    return (path, "") if os.path.isfile(path) else (None, f"{written} is included, and not in the bundle")
