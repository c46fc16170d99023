"""Additional functions for expressions and templates: files of the bundle, and text as a template.

Every run makes these functions, so imports that only a call needs happen in the call.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from foundation.formatting import text_of
from foundation.problems import replaced
from hiera.errors import ExpressionError, LimitError
from hiera.expressions.expressions import ROOTS, Scope, resolve
from hiera.limits import PerThread
from hiera.values import Secret
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError
from puller.templates.scope import BundleFunction, read_text

OF_FILES: Final = ("read_file", "readFile", "file", "template")
"""The names of functions with paths of the bundle as arguments."""


def bundle_functions(files: BundleFiles, scope: Scope) -> Mapping[str, Callable[..., Any]]:
    """Return ``read_file`` (also ``readFile`` and ``file``) and ``template``, for a manifest with ``files``."""

    def reader(files: BundleFiles) -> Callable[[str], str]:
        def read_file(path: str) -> str:
            return read_text(files, path)

        return read_file

    def renderer(files: BundleFiles) -> Callable[..., Any]:
        def template(path_or_text: str, **names: Any) -> Any:
            """Render a template file of the bundle, by the engine of its ending. Resolve expressions in other text.

            The template can use the names at the place of the call, and ``names``.
            """
            inner = scope.with_names({**functions(files), **_handed(names)})
            with _depth:
                if "\n" in path_or_text or "{{" in path_or_text:
                    return resolve(path_or_text, inner)
                return _rendered(path_or_text, inner, files)

        return template

    def functions(files: BundleFiles) -> dict[str, Callable[..., Any]]:
        made = dict.fromkeys(OF_FILES, BundleFunction(reader, files))
        return {**made, "template": BundleFunction(renderer, files)}

    return functions(files)


def _rendered(path: str, scope: Scope, files: BundleFiles) -> str | Secret:
    # 3 % of an idle apply, and few values use it
    from puller.templates.rendering import choose_engine, render_file

    try:
        rendered = render_file(files.find(path), choose_engine(path), scope, files)
    except ResourceError as error:
        (problem,) = error.problems
        # The line of the caller is shown instead of the excerpt.
        what = text_of(replaced(problem, excerpt=""))
        raise ExpressionError("", what, code=problem.code, name=problem.name) from error
    return Secret(rendered.text) if rendered.is_secret else rendered.text


class _Depth(PerThread):
    """The nesting depth of calls of ``template``. Raises LimitError if it is too deep."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> None:
        if self.calls == _DEEPEST:
            raise LimitError("", f"templates call one another more than {_DEEPEST} levels deep")
        self.calls += 1

    def __exit__(self, *_: object) -> None:
        self.calls -= 1


_DEEPEST: Final = 20
_depth: Final = _Depth()


def _handed(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the additional names for a called template: its caller's names, and the names passed in.

    Raises ExpressionError for a reserved name.
    """
    from hiera.expressions.undefined import callers  # with Jinja2, 36 % of an idle run

    if taken := sorted(ROOTS & names.keys()):
        raise ExpressionError("", f"template has {taken[0]} of its own: hand the value in by another name")
    return {name: value for name, value in callers.names().items() if _is_handed_on(name, value)} | dict(
        names
    )


def _is_handed_on(name: str, value: Any) -> bool:
    """Return whether a called template gets this name. Functions of paths are excluded: paths differ there."""
    return name not in ROOTS and not (name in OF_FILES and callable(value))


def over_data(scope: Scope, data: Mapping[Any, Any], files: BundleFiles) -> Scope:
    """Return ``scope`` with the data of a resource's template, also for templates that it calls."""
    scope = scope.with_data(data)
    return scope.with_names(bundle_functions(files, scope))
