"""Expressions that are evaluated again when their resource has its turn: what an earlier one has made is there by then.

* Only what gave nothing when the manifest was read is evaluated again; a value is resolved once.
* What others are found by (names and references) must be known before, and is not tried again.
* Facts and data are those that the run has begun with.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles, BundlePathError
from puller.manifest.declaration import Declaration
from puller.manifest.declare import Draft
from puller.manifest.problems import Problems
from puller.templates.functions import OF_FILES


def evaluate_again(declaration: Declaration) -> list[str]:
    """Evaluate what gave nothing before, and make ``declaration`` what it is now; gives the paths that were asked for.

    What is wrong with it now, or still, is its ``failures``.
    """
    late, before = declaration.late, declaration.properties
    if late is None:
        return []
    asked: list[str] = []
    declaration.late = None
    around = declaration.problems
    problems = Problems(around.source, around.locate, around.original, around.text, around.mask)
    given, secret = dict(late.given), set(late.secret)
    draft = Draft(late.entry, declaration.type, problems, dict(late.raw), given, secret)
    draft.agent = declaration.home.agent
    draft.resolve_again(late, _noting(declaration.scope, declaration.home.files, asked))
    now = draft.declaration(declaration.home)
    if now is not None:
        now.check()
    if now is None or problems.any:
        declaration.failures = tuple(problems.all())
        return asked
    # What a parent has handed down to it stays.
    kept = {name: True for name in ("noop", "sensitive") if getattr(before, name)}
    declaration.properties = msgspec.structs.replace(now.properties, **kept)
    declaration.failures, declaration.unknown = now.failures, now.unknown
    declaration.dynamic, declaration.secret = now.dynamic, now.secret
    return asked


def _noting(scope: Scope, files: BundleFiles, asked: list[str]) -> Scope:
    """The scope with functions that note which files they are asked for."""

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **named: Any) -> Any:
            with suppress(BundlePathError, TypeError):
                asked.append(files.find(path))
            return function(path, *arguments, **named)

        return call

    return scope.with_names({name: noting(scope.functions[name]) for name in OF_FILES})
