"""Template files and texts of a manifest, rendered by the engine that they name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bundles.files import read_limited
from hiera.errors import HieraError
from hiera.expressions import Scope
from puller.errors import ResourceError
from puller.system import reason
from puller.templates import engine as engines
from puller.templates.errors import FunctionError, TemplateError

_LIMIT = 16 * 1024 * 1024  # bytes of a template file
_ENGINE_OF_ENDING = {".jet": "jet", ".tmpl": "go", ".gotmpl": "go"}


def engine_of(path: str) -> str:
    """The engine for a file whose manifest names none: by its ending, else Jinja2."""
    return next((engine for ending, engine in _ENGINE_OF_ENDING.items() if path.endswith(ending)), "jinja")


def render_file(path: str, engine: str, scope: Scope, directory: Path) -> str:
    """The text of a template file; raises ``TemplateError`` and ``ResourceError``."""
    try:
        text = read_limited(path, _LIMIT).decode("utf-8")
    except OSError as error:
        raise ResourceError(f"template {path} cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise ResourceError(f"template {path} is not usable: {error}") from error
    return render_text(_short(path, directory), text, engine, scope, directory)


def render_text(name: str, text: str, engine: str, scope: Scope, directory: Path) -> str:
    """The same for a text; ``name`` is what messages call it, ``directory`` where includes are found."""
    if engine == "jinja":
        from puller.templates.jinja import JinjaEngine

        return JinjaEngine(root=directory).render(name, text, scope)
    dot = engines.Scope(scope.facts, scope.data, scope.environ)
    try:
        return engines.load_engine(engine).compile(name, text).render(dot, _functions(scope, directory))
    except TemplateError as error:
        raise ResourceError(f"{error}\n{error.excerpt()}") from error


def render_list(path: str, scope: Scope, directory: Path) -> str:
    """The text of ``resources_template``: a file of the manifest's directory."""
    from puller.templates.functions import find_inside

    return render_file(find_inside(directory, path), engine_of(path), scope, directory)


def _functions(scope: Scope, directory: Path) -> Mapping[str, Callable[..., Any]]:
    """``lookup``, ``readFile`` and ``file`` for the engines of Go's kind, with errors that they can place."""
    from puller.templates.functions import read_text

    def read(path: Any) -> str:
        return read_text(directory, path)

    return {"lookup": _placed(scope.lookup), "readFile": _placed(read), "file": _placed(read)}


def _placed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (HieraError, TypeError) as error:
            raise FunctionError(str(error)) from error

    return call


def _short(path: str, directory: Path) -> str:
    return path.removeprefix(f"{directory}/")
