"""Template files and texts of a manifest, rendered by the engine that they name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bundles.files import read_limited
from hiera.errors import HieraError
from hiera.expressions import Scope
from hiera.secrets import has_secret, revealed
from puller.errors import ResourceError
from puller.system import reason
from puller.templates import engine as engines
from puller.templates.errors import FunctionError, TemplateError

_LIMIT = 16 * 1024 * 1024  # bytes of a template file
_ENGINE_OF_ENDING = {".jet": "jet", ".tmpl": "go", ".gotmpl": "go"}


class Rendered(NamedTuple):
    """A text, and whether it must not be shown because a secret went into it."""

    text: str
    is_secret: bool


def engine_of(path: str) -> str:
    """The engine for a file whose manifest names none: by its ending, else Jinja2."""
    return next((engine for ending, engine in _ENGINE_OF_ENDING.items() if path.endswith(ending)), "jinja")


def render_file(path: str, engine: str, scope: Scope, directory: Path) -> Rendered:
    """Render a template file; raises ``ResourceError``, with the line of the template where there is one."""
    try:
        text = read_limited(path, _LIMIT).decode("utf-8")
    except OSError as error:
        raise ResourceError(f"template {path} cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise ResourceError(f"template {path} is not usable: {error}") from error
    return render_text(path.removeprefix(f"{directory}/"), text, engine, scope, directory)


def render_text(name: str, text: str, engine: str, scope: Scope, directory: Path) -> Rendered:
    """The same for a text; ``name`` is what messages call it, ``directory`` where includes are found."""
    try:
        return (_render_jinja if engine == "jinja" else _render_go_like)(name, text, engine, scope, directory)
    except TemplateError as error:
        raise ResourceError(f"{error}\n{error.excerpt()}") from error


def _render_jinja(name: str, text: str, engine: str, scope: Scope, directory: Path) -> Rendered:
    from puller.templates.jinja import JinjaEngine

    del engine
    loaded = JinjaEngine(root=directory)
    rendered = loaded.render(name, text, scope)
    return Rendered(rendered, loaded.used_secret)


def _render_go_like(name: str, text: str, engine: str, scope: Scope, directory: Path) -> Rendered:
    """Engines that know nothing of secrets get them opened; then whatever they render counts as secret."""
    data: Any = scope.data
    is_secret = has_secret(data)
    dot = engines.Scope(scope.facts, revealed(data) if is_secret else data, scope.environ)
    opened = scope.with_data(dot["data"])
    rendered = engines.load_engine(engine).compile(name, text).render(dot, _functions(opened, directory))
    return Rendered(rendered, is_secret)


def render_list(path: str, scope: Scope, directory: Path) -> str:
    """The text of ``resources_template``: a file of the manifest's directory."""
    from puller.templates.functions import find_inside

    return render_file(find_inside(directory, path), engine_of(path), scope, directory).text


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
