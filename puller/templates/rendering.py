"""Template files and texts of a manifest, rendered by the engine that they name."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from bundles.filesystem.atomic import read_limited
from hiera.errors import HieraError
from hiera.expressions.expressions import Scope
from hiera.values.secrets import has_secret, revealed
from puller.errors import ResourceError, reason
from puller.templates.bundle_files import find_inside, read_text
from puller.templates.engine import choose_engine, load_engine
from puller.templates.errors import FunctionError, LimitError, TemplateError
from puller.templates.scope import Engine, TemplateScope

if TYPE_CHECKING:
    from puller.templates.jinja import JinjaEngine, JinjaTemplate

Delimiters = tuple[str, str]
"""The left and the right one; one that is empty is the engine's own."""
OWN: Delimiters = ("", "")

_LIMIT = 16 * 1024 * 1024  # bytes of a template file


class Rendered(NamedTuple):
    """A text, and whether it must not be shown because a secret went into it."""

    text: str
    is_secret: bool


def render_file(
    path: str,
    engine: str,
    scope: Scope,
    directory: Path,
    delimiters: Delimiters = OWN,
    *,
    sensitive: bool = False,
) -> Rendered:
    """Render a template file; raises ``ResourceError``, with the line of the template where there is one.

    ``sensitive``: errors quote no values, whether these are known as secrets or not.
    """
    try:
        text = read_limited(path, _LIMIT).decode("utf-8")
    except OSError as error:
        raise ResourceError(f"template {path} cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise ResourceError(f"template {path} is not usable: {error}") from error
    name = path.removeprefix(f"{directory}/")
    return render_text(name, text, engine, scope, directory, delimiters, sensitive=sensitive)


def render_text(
    name: str,
    text: str,
    engine: str,
    scope: Scope,
    directory: Path,
    delimiters: Delimiters = OWN,
    *,
    sensitive: bool = False,
) -> Rendered:
    """The same for a text; ``name`` is what messages call it, ``directory`` where includes are found."""
    loaded = load(engine, delimiters, root=directory)
    with errors_explained():
        template = loaded.compile(name, text)
    if engine == "jinja":
        with errors_explained(secret=sensitive):
            text = cast("JinjaTemplate", template).render_names(scope.names)
        return Rendered(text, cast("JinjaEngine", loaded).used_secret)
    seen = seen_by(engine, scope, directory)
    with errors_explained(seen, secret=sensitive):
        return Rendered(template.render(seen.dot, seen.functions), seen.is_secret)


@contextmanager
def errors_explained(seen: "Seen | None" = None, *, secret: bool = False, below: str = "") -> Iterator[None]:
    """Make a ``TemplateError`` a ``ResourceError`` with the place in front, below a directory.

    What the template says of values is left out when there were secrets among what it has seen.
    """
    try:
        yield
    except TemplateError as error:
        raise ResourceError(
            below + explained(error, secret=secret or bool(seen and seen.is_secret))
        ) from error


def explained(error: TemplateError, *, secret: bool = False) -> str:
    """What is wrong, and below it the line of the template with a mark at the place."""
    if secret and not (error.is_of_text or isinstance(error, LimitError)):
        place = f"{error.file}:{error.line}:{error.column}"
        said = f"{place}: fails; there may be secrets in what it says, so that is not shown"
    else:
        said = str(error)
    return f"{said}\n{error.excerpt()}" if error.source_line else said


def load(
    engine: str,
    delimiters: Delimiters = OWN,
    *,
    root: Path | None = None,
    files: Mapping[str, str] | None = None,
) -> Engine:
    """The engine with its delimiters; raises ``ResourceError`` for some that cannot be.

    What templates of Jinja2 include comes from ``files`` (path → text) or from below ``root``. Those of Jet include
    only what is below a directory ``_partials`` of ``files``: other includes fail, as they do in the reference.
    """
    left, right = delimiters
    try:
        if engine == "jinja":
            from puller.templates.jinja import JinjaEngine

            return JinjaEngine(left, right, root=root, files=files)
        if engine == "jet" and files:
            from puller.templates.jet.engine import JetEngine
            from puller.templates.tree import PARTIALS

            partials = {path: text for path, text in files.items() if PARTIALS in path.split("/")[:-1]}
            return JetEngine(left, right, partials.get)
        return load_engine(engine, left_delimiter=left, right_delimiter=right)
    except ValueError as error:
        raise ResourceError(str(error)) from error


class Seen:
    """What a template sees at its top, and may call beside its engine's own functions."""

    def __init__(
        self,
        dot: TemplateScope,
        functions: Mapping[str, Callable[..., Any]],
        *,
        is_secret: bool = False,
    ) -> None:
        self.dot = dot
        self.functions = functions
        self.is_secret = is_secret
        """Whether there were secrets among it by now that the engine does not recognise."""

    def opened(self, value: Any) -> Any:
        """``value`` for an engine that knows no secrets."""
        self.is_secret = self.is_secret or has_secret(value)
        return revealed(value)


def seen_by(engine: str, scope: Scope, directory: Path) -> Seen:
    """Those of a template of this engine. Jinja2 takes facts as they are asked for, and knows a secret when it sees it.

    For the engines of Go's kind values are plain: all facts are gathered, and secrets opened.
    """
    if engine == "jinja":
        return Seen(TemplateScope(scope.facts, scope.data, scope.environ), scope.functions)
    data = dict(scope.data)
    is_secret = has_secret(data)
    dot = TemplateScope(dict(scope.facts), revealed(data) if is_secret else data, scope.environ)
    functions = _functions(Scope(dot["facts"], dot["data"], dot["environ"]), directory)
    seen = Seen(dot, functions, is_secret=is_secret)
    if (hiera := scope.functions.get("hiera")) is not None:
        functions["hiera"] = _placed(lambda key, *default: seen.opened(hiera(key, *default)))
    return seen


def render_list(path: str, scope: Scope, directory: Path, engine: str | None = None) -> Rendered:
    """``resources_template``: a file of the manifest's directory; ``engine`` is what its name may not contradict."""
    try:
        chosen = choose_engine(path, engine)
    except ValueError as error:
        raise ResourceError(f"resources_template {error}") from error
    return render_file(find_inside(directory, path), chosen, scope, directory)


def _functions(scope: Scope, directory: Path) -> dict[str, Callable[..., Any]]:
    """``lookup``, ``readFile`` and ``file`` for the engines of Go's kind, with errors that they can place."""

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
