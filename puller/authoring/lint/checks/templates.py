"""Templates that their engine cannot read, and missing files that templates and expressions name.

* ``template-syntax``: an error of the parser, with its line and column. Nothing is rendered.
* ``missing-file``: a constant path of an included template, or in a function call, that the bundle lacks.
* ``unknown-name``: a Go template that its file does not define.
* ``foreign-expression``: ``${data.port}``, which no supported engine replaces.

All templates that the bundle uses are read, and all files with the name of a template. In expressions of manifests, the
calls of ``read_file``, ``readFile``, ``file`` and ``template`` are examined. Only the syntax trees are examined. Paths
that an expression computes are unknown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from jinja2 import nodes

from foundation.problems import Location, ProblemCode
from foundation.suggestions import meant, nearest
from hiera.document.foreign_notation import find_foreign_in_template
from hiera.errors import HieraError
from puller.authoring.lint.bundle import Bundle, ManifestFile, bundle_of
from puller.authoring.lint.checks.files import TemplateUse, named_files, template_uses
from puller.authoring.lint.expression_names import Parsed, parse_condition, parse_text
from puller.authoring.lint.findings import Finding, Subject, problem_of_text, read_text
from puller.authoring.lint.go_names import parse_go
from puller.authoring.lint.jet_names import parse_jet
from puller.authoring.lint.known_names import UNKNOWN_NAME, TextPart, template_part
from puller.authoring.lint.template_names import parse_jinja
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError
from puller.manifest.entries import FOR
from puller.templates.functions import OF_FILES
from puller.templates.gotemplate import nodes as go
from puller.templates.jet import nodes as jet
from puller.templates.rendering import load, named_engine
from puller.templates.template_errors import TemplateError

# Calls with constant paths in the syntax trees of the three template languages.

RENDER: Final = "render"
"""The function of scaffolds whose paths are partials of the tree."""
_TEMPLATE: Final = "template"


class Called(NamedTuple):
    """One path, and its position in the text."""

    path: str
    function: str
    line: int = 1
    offset: int = -1
    """Offset in the text, or -1 if only the line is known."""


def of_jinja(tree: nodes.Node) -> Iterator[Called]:
    """Yield the calls in a template or expression of Jinja2, except calls of names that the template sets."""
    results = [tree] if isinstance(tree, nodes.Call) else []
    own = {node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"} | {*_imported(tree)}
    for call in (*results, *tree.find_all(nodes.Call)):
        if not isinstance(call.node, nodes.Name) or call.node.name in own or not call.args:
            continue
        name, first = call.node.name, call.args[0]
        if name in (*OF_FILES, RENDER) and isinstance(first, nodes.Const) and _is_path(first.value, name):
            yield Called(first.value, name, call.lineno)


def _imported(tree: nodes.Node) -> Iterator[str]:
    """Yield the names of macros that a template defines or imports."""
    for node in tree.find_all((nodes.Macro, nodes.FromImport)):
        if isinstance(node, nodes.Macro):
            yield node.name
        elif isinstance(node, nodes.FromImport):
            yield from (name if isinstance(name, str) else name[1] for name in node.names)


def of_go(value: Any) -> Iterator[Called]:
    """Yield the calls in a Go template, including piped ones: ``"motd" | readFile``."""
    for node in _all(value):
        if isinstance(node, go.Command):
            yield from _of_words(node.words)
        elif isinstance(node, go.Pipeline):
            for item, following in zip(node.commands, node.commands[1:], strict=False):
                if len(following.words) == 1:
                    yield from _of_words((following.words[0], item.words[-1]))


def _of_words(words: tuple[go.Operand, ...]) -> Iterator[Called]:
    match words:
        case (go.Identifier(name=name), go.String(value=path, position=position), *_):
            if name in (*OF_FILES, RENDER) and name != _TEMPLATE:
                yield Called(path, name, offset=position)


def undefined_in_go(bodies: dict[str, go.Body]) -> Iterator[tuple[str, int]]:
    """Yield the names in ``{{ template "name" }}`` that the file does not define, with their offsets."""
    for node in _all(bodies):
        if isinstance(node, go.Call) and node.name not in bodies:
            yield node.name, node.position


def of_jet(value: Any) -> Iterator[Called]:
    """Yield the calls of a Jet template outside ``try``, and its includes."""
    for node in _outside_of_try(value):
        match node:
            case jet.Include(path=jet.Literal(value=str(path)), offset=offset):
                yield Called(path, "include", offset=offset)
            case (
                jet.Call(base=jet.Name(name=name), arguments=arguments)
                | jet.Command(base=jet.Name(name=name), arguments=arguments)
            ) if arguments is not None:
                yield from _of_arguments(name, arguments)


def _of_arguments(name: str, arguments: jet.Arguments) -> Iterator[Called]:
    if name not in (*OF_FILES, RENDER) or name == _TEMPLATE:
        return
    match arguments.expressions:
        case (jet.Literal(value=str(path), offset=offset), *_):
            yield Called(path, name, offset=offset)


def _is_path(value: Any, function: str) -> bool:
    """Return whether a constant is a path. ``template`` also accepts text."""
    if not isinstance(value, str) or not value:
        return False
    return function != _TEMPLATE or not ("\n" in value or "{{" in value)


def _all(value: Any) -> Iterator[Any]:
    """Yield a node and all nodes below it."""
    yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ():
        yield from _all(part)


def _outside_of_try(value: Any) -> Iterator[Any]:
    if isinstance(value, jet.Try):
        return
    yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ():
        yield from _outside_of_try(part)


# Findings of missing files.

MISSING: Final = ProblemCode.MISSING_FILE
_SHARES: Final = (
    ". Jet cannot load other templates, and files of a scaffold share text with render(path, value)"
)


def in_template(use: TemplateUse, text: str, name: str) -> Iterator[Finding]:
    """Yield the findings in one template. A template that does not parse has no findings here."""
    if use.engine == "jinja":
        if (parsed := parse_jinja(text, use.delimiters)) is not None:
            part = template_part(name, text, skipped=parsed.skipped)
            for called in of_jinja(parsed.tree):
                yield from _missing(called, use.files, use.tree, part)
    elif use.engine == "go":
        yield from _in_go(use, text, template_part(name, text))
    else:
        yield from _in_jet(use, text, template_part(name, text))


def in_expressions(parsed: Parsed, files: BundleFiles, part: TextPart) -> Iterator[Finding]:
    """Yield the findings in the expressions of one text."""
    for tree, _ in parsed.trees:
        for called in of_jinja(tree):
            yield from _missing(called, files, "", part)


def _in_jet(use: TemplateUse, text: str, part: TextPart) -> Iterator[Finding]:
    if (tree := parse_jet(use.path, text, use.delimiters)) is not None:
        for called in of_jet(tree):
            yield from _missing(called, use.files, use.tree, part)


def _in_go(use: TemplateUse, text: str, part: TextPart) -> Iterator[Finding]:
    bodies = parse_go(os.path.basename(use.path), text, use.delimiters)
    if bodies is None:
        return
    for called in of_go(bodies):
        yield from _missing(called, use.files, use.tree, part)
    root = os.path.basename(use.path)
    for name, offset in undefined_in_go(bodies):
        defined = [body for body in bodies if body != root]
        detail = f"the template {name!r} is not defined in this file"
        names = meant(name, defined)
        yield part.finding(UNKNOWN_NAME, detail, (name,), offset=offset, **names)


def _missing(called: Called, files: BundleFiles, tree: str, part: TextPart) -> Iterator[Finding]:
    message, similar = _problem(called, files, tree)
    if message:
        needle, place = (called.path,), (called.line, called.offset)
        yield part.finding(MISSING, message, needle, *place, suggestions=similar)


def _problem(called: Called, files: BundleFiles, tree: str) -> tuple[str, tuple[str, ...]]:
    """Return the message about a path without a file, and similar paths. Empty for an existing file."""
    if called.function == "include":
        return f"unknown template {called.path}{_SHARES}", ()
    if called.function == RENDER:
        path = os.path.join(tree, os.path.normpath(f"./{called.path}"))
        is_missing = bool(tree) and not files.is_prefixed(called.path) and not os.path.isfile(path)
        return (f"{called.path} is rendered, but missing in the scaffold" if is_missing else ""), ()
    try:
        path = files.find(called.path)
    except HieraError as error:
        return str(error), ()
    if os.path.isfile(path):
        return "", ()
    message = f"{called.path} is {_DONE[called.function]}, but missing in the bundle"
    return message, _near(called.path, path)


_DONE: Final = {"file": "read", "readFile": "read", "read_file": "read", "template": "rendered"}


def _near(written: str, path: str) -> tuple[str, ...]:
    """Return similar file names in the same directory."""
    try:
        beside = os.listdir(os.path.dirname(path))
    except OSError:
        return ()
    before = written[: len(written) - len(os.path.basename(written))]
    return nearest(written, [f"{before}{name}" for name in beside])


Path = tuple[str | int, ...]


def _called(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each call with a missing file."""
    for manifest in bundle_of(subject).manifests.values():
        for key in ("resources", "exports", "pre_message", "post_message"):
            path = (*manifest.run_path, key)
            for where, parsed in _parsed(manifest.run.get(key), path):
                yield from _found(manifest, where, parsed)


def _found(manifest: ManifestFile, path: Path, parsed: Parsed) -> Iterator[Finding]:
    yield from in_expressions(parsed, manifest.files, manifest.yaml.part(path))


def _parsed(value: Any, path: Path) -> Iterator[tuple[Path, Parsed]]:
    """Yield all texts with expressions below a value, and expressions without braces."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _parsed(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _parsed(item, (*path, index))
    elif isinstance(value, str):
        if "{{" in value:
            yield path, parse_text(value)
        elif "(" in value and ("control" in path[-2:-1] or path[-1] == FOR):
            yield path, parse_condition(value)


_SYNTAX: Final = ProblemCode.TEMPLATE_SYNTAX
_MISSING: Final = ProblemCode.MISSING_FILE


def _unreadable(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in all templates."""
    bundle = bundle_of(subject)
    visited: set[tuple[str, str, tuple[str, str]]] = set()
    waiting = [use for named in named_files(bundle) for use in template_uses(named)]
    waiting += _by_name(bundle, {use.path for use in waiting})
    while waiting:
        use = waiting.pop(0)
        key = (use.path, use.engine, use.delimiters)
        if key in visited:
            continue
        visited.add(key)
        if (text := read_text(use.path)) is not None:
            yield from _check(use, text, bundle, waiting)
        elif problem := problem_of_text(use.path):
            yield Finding.of(_SYNTAX, Location(bundle.name_of(use.path)), problem)


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
    yield from in_template(use, text, name)
    yield from _foreign(name, text)
    if use.engine == "jinja" and (parsed := parse_jinja(text, use.delimiters)) is not None:
        yield from _includes(use, parsed[0], parsed[2], name, waiting)
        return
    try:
        load(use.engine, use.delimiters).compile(os.path.basename(use.path), text)
    except TemplateError as error:
        place = Location(name, error.line, error.column)
        yield Finding.of(_SYNTAX, place, error.message)
    except ResourceError:  # another check reports invalid delimiters of the manifest
        return


def _foreign(name: str, text: str) -> Iterator[Finding]:
    """Yield expressions in the notation of another tool, which would be printed literally."""
    for line, column, expression in find_foreign_in_template(text):
        detail = f"{expression} is ordinary text. Write expressions between the delimiters of the engine"
        yield Finding.of(ProblemCode.FOREIGN_EXPRESSION, Location(name, line, column), detail)


def _includes(
    use: TemplateUse, tree: nodes.Template, skipped: int, name: str, waiting: list[TemplateUse]
) -> Iterator[Finding]:
    """Yield findings about constant paths that a Jinja2 template includes, imports or extends."""
    kinds = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
    for node in tree.find_all(kinds):
        written = getattr(node, "template", None)
        if not isinstance(written, nodes.Const) or not isinstance(written.value, str):
            continue
        result, problem = _meant(use, written.value)
        if result is not None:
            waiting.append(TemplateUse(result, "jinja", use.files.within(result), use.delimiters))
        elif not getattr(node, "ignore_missing", False):
            place = Location(name, node.lineno + skipped)
            yield Finding.of(_MISSING, place, problem, name=written.value)


def _meant(use: TemplateUse, written: str) -> tuple[str | None, str]:
    """Return the file of an include, or the problem."""
    if use.tree and not use.files.is_prefixed(written):
        path = os.path.join(use.tree, written)
    else:
        try:
            path = use.files.find(written)
            if not os.path.isfile(path) and not use.files.is_prefixed(written):
                path = use.files.at(os.path.dirname(use.path)).find(written)  # beside the including template
        except HieraError as error:
            return None, str(error)
    return (path, "") if os.path.isfile(path) else (None, f"{written} is included, but missing in the bundle")


def check(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in templates, and in expressions that name files."""
    yield from _called(subject)
    yield from _unreadable(subject)
