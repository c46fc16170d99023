"""Files that templates and expressions ask for by constant paths, and that a bundle does not have.

Such a path means the same on every host, so that a file that is not in the bundle fails wherever the call is reached.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from foundation.problems import ProblemCode
from foundation.suggestions import nearest
from hiera.errors import HieraError
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.named_files import TemplateUse
from puller.authoring.lint.names.called_files import RENDER, Called, of_go, of_jet, of_jinja, undefined_in_go
from puller.authoring.lint.names.expressions import Parsed
from puller.authoring.lint.names.go_names import parse_go
from puller.authoring.lint.names.jet_names import parse_jet
from puller.authoring.lint.names.known import UNKNOWN_NAME
from puller.authoring.lint.names.places import TextPart, template_part
from puller.authoring.lint.names.templates import parse_jinja
from puller.bundle_paths import BundleFiles
from puller.values.suggestions import meant

MISSING: Final = ProblemCode.MISSING_FILE
_SHARES: Final = (
    "; Jet finds no other templates here, and files of a scaffold share text with render(path, value)"
)


def in_template(use: TemplateUse, text: str, name: str) -> Iterator[Finding]:
    """The findings in one template. A template that does not parse has none."""
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
    """The findings in the expressions of one text."""
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
        defined = [one for one in bodies if one != root]
        what = f"the template {name!r} is not defined in this file"
        names = meant(name, defined)
        yield part.finding(UNKNOWN_NAME, Severity.ERROR, what, (name,), offset=offset, **names)


def _missing(called: Called, files: BundleFiles, tree: str, part: TextPart) -> Iterator[Finding]:
    message, similar = _problem(called, files, tree)
    if message:
        needle, place = (called.path,), (called.line, called.offset)
        yield part.finding(MISSING, Severity.ERROR, message, needle, *place, suggestions=similar)


def _problem(called: Called, files: BundleFiles, tree: str) -> tuple[str, tuple[str, ...]]:
    """Return the message about a path without a file, and similar paths. Empty for an existing file."""
    if called.function == "include":
        return f"there is no template {called.path}{_SHARES}", ()
    if called.function == RENDER:
        path = os.path.join(tree, os.path.normpath(f"./{called.path}"))
        is_missing = bool(tree) and not files.is_prefixed(called.path) and not os.path.isfile(path)
        return (f"{called.path} is rendered, and not in the scaffold" if is_missing else ""), ()
    try:
        path = files.find(called.path)
    except HieraError as error:
        return str(error), ()
    if os.path.isfile(path):
        return "", ()
    message = f"{called.path} is {_DONE[called.function]}, and not in the bundle"
    return message, _near(called.path, path)


_DONE: Final = {"file": "read", "readFile": "read", "read_file": "read", "template": "rendered"}


def _near(written: str, path: str) -> tuple[str, ...]:
    """Similar files beside the missing one."""
    try:
        beside = os.listdir(os.path.dirname(path))
    except OSError:
        return ()
    before = written[: len(written) - len(os.path.basename(written))]
    return nearest(written, [f"{before}{name}" for name in beside])
