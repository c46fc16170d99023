"""Files that templates and expressions ask for by constant paths, and that a bundle does not have.

Such a path means the same on every host, so that a file that is not in the bundle fails wherever the call is reached.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from hiera.errors import HieraError
from puller.authoring.lint.findings import Severity
from puller.authoring.lint.named_files import TemplateUse
from puller.authoring.lint.names.called_files import RENDER, Called, of_go, of_jet, of_jinja, undefined_in_go
from puller.authoring.lint.names.expressions import Parsed
from puller.authoring.lint.names.known import UNKNOWN_NAME, Trouble
from puller.authoring.lint.names.templates import parse_jinja
from puller.bundle_paths import BundleFiles
from puller.values.suggestions import did_you_mean

MISSING: Final = "missing-file"
_SHARES: Final = (
    "; Jet finds no other templates here, and files of a scaffold share text with render(path, value)"
)


def in_template(use: TemplateUse, text: str) -> Iterator[Trouble]:
    """The troubles of one template; none of one that does not parse."""
    if use.engine == "jinja":
        if (parsed := parse_jinja(text, use.delimiters)) is not None:
            for called in of_jinja(parsed.tree):
                yield from _trouble(called._replace(line=called.line + parsed.skipped), use.files, use.tree)
    elif use.engine == "go":
        yield from _in_go(use, text)
    else:
        yield from _in_jet(use, text)


def in_expressions(parsed: Parsed, files: BundleFiles) -> Iterator[Trouble]:
    """The troubles of the expressions of one text."""
    for tree, _ in parsed.trees:
        for called in of_jinja(tree):
            yield from _trouble(called, files, "")


def _in_jet(use: TemplateUse, text: str) -> Iterator[Trouble]:
    from puller.authoring.lint.names.jet_names import parse_jet  # with the engine, for who uses it

    if (tree := parse_jet(use.path, text, use.delimiters)) is not None:
        for called in of_jet(tree):
            yield from _trouble(called, use.files, use.tree)


def _in_go(use: TemplateUse, text: str) -> Iterator[Trouble]:
    from puller.authoring.lint.names.go_names import parse_go

    bodies = parse_go(os.path.basename(use.path), text, use.delimiters)
    if bodies is None:
        return
    for called in of_go(bodies):
        yield from _trouble(called, use.files, use.tree)
    root = os.path.basename(use.path)
    for name, offset in undefined_in_go(bodies):
        defined = [one for one in bodies if one != root]
        said = did_you_mean(name, defined) if defined else ""
        what = f"the template {name!r} is not defined in this file{said}"
        yield Trouble(UNKNOWN_NAME, Severity.ERROR, what, (name,), offset=offset)


def _trouble(called: Called, files: BundleFiles, tree: str) -> Iterator[Trouble]:
    if problem := _problem(called, files, tree):
        yield Trouble(MISSING, Severity.ERROR, problem, (called.path,), called.line, called.offset)


def _problem(called: Called, files: BundleFiles, tree: str) -> str:
    if called.function == "include":
        return f"there is no template {called.path}{_SHARES}"
    if called.function == RENDER:
        path = os.path.join(tree, os.path.normpath(f"./{called.path}"))
        is_missing = bool(tree) and not files.is_prefixed(called.path) and not os.path.isfile(path)
        return f"{called.path} is rendered, and not in the scaffold" if is_missing else ""
    try:
        path = files.find(called.path)
    except HieraError as error:
        return str(error)
    if os.path.isfile(path):
        return ""
    return f"{called.path} is {_DONE[called.function]}, and not in the bundle{_near(called.path, path)}"


_DONE: Final = {"file": "read", "readFile": "read", "read_file": "read", "template": "rendered"}


def _near(written: str, path: str) -> str:
    """The file beside the one that is missing that may have been meant."""
    try:
        beside = os.listdir(os.path.dirname(path))
    except OSError:
        return ""
    before = written[: len(written) - len(os.path.basename(written))]
    said = did_you_mean(written, [f"{before}{name}" for name in beside])
    return said if said.startswith(" (did you mean") else ""
