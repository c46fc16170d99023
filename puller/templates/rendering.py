"""Template files and texts of a manifest, rendered by the engine that they name.

From a file to its text, with any engine. The numbers appear in the code:

1. The file is read, 16 MiB of UTF-8 at most.
2. Its engine is loaded, with its delimiters. The ending of the file name or an explicit name determines the engine.
   An engine is imported when it is first used, so a run without templates skips the imports.
3. The text is parsed and checked. Errors that do not depend on values fail here, with the line.
4. Facts, data, environ and functions are prepared. The Jet and Go engines get plain values.
5. The template is executed, within the limits of its engine: ``template_errors.py``, for Jinja2 ``hiera.limits``.
6. The text is a secret if the input contained a secret. With Jinja2, only used secrets count.

Rendering of a tree of templates to a tree of texts, in memory.

* Files are rendered in the order of their names, directory by directory. A later write to a path replaces an earlier
  one.
* Files below a directory ``_partials`` are not rendered. A *file* of that name ends its directory.
* ``render(path, value)`` reads inside the source tree. ``write(path, text)`` writes inside the target, into existing
  directories. A path that leaves the tree through ``..`` is refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from bundles.filesystem.atomic import read_limited
from foundation.formatting import text_of
from foundation.problems import ProblemCode
from hiera.errors import HieraError
from hiera.expressions.expressions import ROOTS, Scope
from hiera.values import Secret, has_secret, plain, revealed
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError, reason
from puller.templates.govalue.text import is_blank
from puller.templates.scope import (
    Engine,
    Function,
    Template,
    TemplateScope,
    plain_facts,
    read_text,
    seen_from,
)
from puller.templates.template_errors import (
    DEFAULT_LIMITS,
    Budget,
    FunctionError,
    LimitError,
    Limits,
    SkippedEmpty,
    TemplateError,
)
from puller.values.foreign_text import IS_WIDE, MARK, is_wide

if TYPE_CHECKING:
    from puller.templates.jinja import JinjaEngine, JinjaTemplate


ENGINES = ("go", "jet", "jinja")
_NAMED: Final = {
    ".j2": "jinja",
    ".jinja": "jinja",
    ".jinja2": "jinja",
    ".jet": "jet",
    ".tmpl": "go",
    ".gotmpl": "go",
}


def named_engine(path: str) -> str | None:
    """Return the engine for the ending of a template's name, or ``None``."""
    return next((engine for ending, engine in _NAMED.items() if path.endswith(ending)), None)


def choose_engine(path: str, provided: str | None = None, otherwise: str = "jinja") -> str:
    """Return the engine for a template: ``provided``, else the engine of its name, else ``otherwise``.

    Raises ValueError for an engine that contradicts the name. Its text continues a sentence about the path.
    """
    named = named_engine(path)
    if provided is None:
        return named or otherwise
    if named not in (None, provided):
        message = f"is {path!r}, a template of {named!r} by its name"
        raise ValueError(f"{message}, but engine is {provided!r}: rename it, or leave out engine")
    return provided


def load_engine(
    name: str,
    *,
    left_delimiter: str = "",
    right_delimiter: str = "",
    root: BundleFiles | None = None,
    files: Mapping[str, str] | None = None,
) -> Engine:
    """Return the engine with this name. An empty delimiter means the engine's default.

    For ``root`` and ``files`` see ``load``. Raises ValueError for a name outside of ENGINES.
    """
    if name == "jet":
        from puller.templates.jet.jet_engine import JetEngine  # most runs render no template of it

        if not files:
            return JetEngine(left_delimiter, right_delimiter)
        partials = {path: text for path, text in files.items() if PARTIALS in path.split("/")[:-1]}
        return JetEngine(left_delimiter, right_delimiter, partials.get)
    if name == "go":
        from puller.templates.gotemplate.go_engine import GoEngine  # as above

        return GoEngine(left_delimiter, right_delimiter)
    if name == "jinja":
        from puller.templates.jinja import JinjaEngine  # jinja2 takes 36 % of an idle run

        return JinjaEngine(left_delimiter, right_delimiter, root=root, files=files)
    raise ValueError(f"engine is {name!r}, expected one of {', '.join(ENGINES)}")


Delimiters = tuple[str, str]
"""Left and right delimiter. An empty one means the engine's default."""
OWN: Delimiters = ("", "")

_LIMIT = 16 * 1024 * 1024  # bytes of a template file


class Rendered(NamedTuple):
    """A text, and whether it is secret because it contains a secret."""

    text: str
    is_secret: bool


def render_file(
    path: str,
    engine: str,
    scope: Scope,
    files: BundleFiles,
    delimiters: Delimiters = OWN,
    *,
    sensitive: bool = False,
) -> Rendered:
    """Return the text of a template file, by the steps above. Raises ``ResourceError``, with the line if known.

    ``sensitive``: errors quote no values, even if the values are not known to be secret.
    """
    try:  # 1. read
        data = read_limited(path, _LIMIT)
        text = data.decode("utf-8")
        if is_wide(data):
            raise ResourceError(f"template {path} {IS_WIDE}")
    except OSError as error:
        raise ResourceError(
            f"template {path} cannot be read: {reason(error)}", code=ProblemCode.MISSING_FILE, name=path
        ) from error
    except ValueError as error:
        raise ResourceError(f"template {path} is not usable: {error}") from error
    place = files.within(path)
    scope = scope if place is files else seen_from(place, scope)
    return render_text(files.shown(path), text, engine, scope, place, delimiters, sensitive=sensitive)


def render_text(
    name: str,
    text: str,
    engine: str,
    scope: Scope,
    files: BundleFiles,
    delimiters: Delimiters = OWN,
    *,
    sensitive: bool = False,
) -> Rendered:
    """Return the text of a template from memory, from step 2 on. Raises ``ResourceError``.

    ``name`` appears in messages. Includes are looked up in ``files``. A byte order mark is kept at the start, outside
    of the template.
    """
    if text.startswith(MARK):
        plain_text = text.removeprefix(MARK)
        rendered = render_text(name, plain_text, engine, scope, files, delimiters, sensitive=sensitive)
        return rendered._replace(text=MARK + rendered.text)
    loaded = load(engine, delimiters, root=files)  # 2. load
    with errors_explained():  # 3. parse and check: values are not used yet, so none need hiding
        template = loaded.compile(name, text)
    if engine == "jinja":
        # 4. Jinja2 reads facts when it needs them, so this step is empty.
        with errors_explained(secret=sensitive):  # 5. execute
            text = cast("JinjaTemplate", template).render_names(scope.names)
        return Rendered(text, cast("JinjaEngine", loaded).used_secret)  # 6. secret?
    seen = seen_by(engine, scope, files)  # 4. prepare
    with errors_explained(seen, secret=sensitive):  # 5. execute
        text = template.render(seen.dot, seen.functions)
    return Rendered(text, seen.is_secret)  # 6. secret? Checked last: ``hiera`` may have opened a secret


@contextmanager
def errors_explained(seen: Seen | None = None, *, secret: bool = False, below: str = "") -> Iterator[None]:
    """Raise a ``ResourceError`` with the place, below the path ``below``, for a ``TemplateError`` in the block.

    Its message quotes no values if the template received secrets.
    """
    try:
        yield
    except TemplateError as error:
        (problem,) = error.problems
        raise ResourceError(
            below + explained(error, secret=secret or bool(seen and seen.is_secret)),
            code=problem.code,
            name=problem.name if problem.name in error.source_line else "",
            related=(problem.location,),
            excerpt=error.excerpt() if error.source_line else "",
            depends_on=problem.depends_on,
        ) from error


def explained(error: TemplateError, *, secret: bool = False) -> str:
    """Return the text of an error, without its excerpt."""
    if secret and not (error.is_of_text or isinstance(error, LimitError)):
        place = f"{error.file}:{error.line}:{error.column}"
        return f"{place}: fails, the message is hidden because it may contain secrets"
    return text_of(error.problems[0])


def load(
    engine: str,
    delimiters: Delimiters = OWN,
    *,
    root: BundleFiles | None = None,
    files: Mapping[str, str] | None = None,
) -> Engine:
    """Return the engine with its delimiters. Raises ``ResourceError`` for invalid delimiters.

    Templates of Jinja2 include from ``files`` (path → text) or from ``root``. Templates of Jet include only files below
    a directory ``_partials`` of ``files``. Other includes fail, as in the reference implementation.
    """
    left, right = delimiters
    try:
        return load_engine(engine, left_delimiter=left, right_delimiter=right, root=root, files=files)
    except ValueError as error:
        raise ResourceError(str(error)) from error


class Seen:
    """The scope of a template, and its functions in addition to the engine's own."""

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
        """Whether the values so far contained secrets that the engine does not recognise."""

    def opened(self, value: Any) -> Any:
        """Return ``value`` without masks, for an engine that does not support secrets."""
        self.is_secret = self.is_secret or has_secret(value)
        return revealed(value)


def seen_by(engine: str, scope: Scope, files: BundleFiles) -> Seen:
    """Return scope and functions for a template of this engine: step 4.

    Jinja2 reads facts when it needs them, and recognises secrets. The Jet and Go engines need plain values: all facts
    of the host are gathered, and secrets revealed.
    """
    if engine == "jinja":
        return Seen(TemplateScope(scope.facts, scope.data, scope.environ), scope.functions)
    data = dict(scope.data)
    is_secret = has_secret(data)
    further = _plain_names(scope)
    is_secret = is_secret or has_secret(further)
    opened = revealed if is_secret else _as_it_is
    dot = TemplateScope(plain_facts(scope.facts), opened(data), scope.environ, opened(further))
    # ``lookup`` uses the template's own values, so that a value is not plain in one place and secret in another.
    named = {name: dot[name] for name in further}
    functions = _functions(Scope(dot["facts"], dot["data"], dot["environ"], named), files)
    seen = Seen(dot, functions, is_secret=is_secret)
    if (hiera := scope.functions.get("hiera")) is not None:
        functions["hiera"] = _placed(lambda key, *default: seen.opened(hiera(key, *default)))
    return seen


def _plain_names(scope: Scope) -> dict[str, Any]:
    """Return the plain values among a scope's names, except facts, data, environ and functions."""
    kinds = (str, int, float, NoneType, Mapping, list, tuple, Secret)
    return {
        name: value if isinstance(value, Secret) else plain(value)
        for name, value in scope.functions.items()
        if isinstance(value, kinds) and name not in ROOTS
    }


def _as_it_is(value: Any) -> Any:
    return value


def render_list(path: str, scope: Scope, files: BundleFiles, engine: str | None = None) -> Rendered:
    """Return the resources of a manifest's ``resources_template``, as text that the caller parses.

    1. The engine follows from the file's name, and ``engine`` must agree.
    2. The file is found in the bundle.
    3. It is rendered like any template file.

    Raises ``ResourceError``, or ``BundlePathError`` for a path outside of the bundle.
    """
    try:  # 1.
        chosen = choose_engine(path, engine)
    except ValueError as error:
        raise ResourceError(f"resources_template {error}") from error
    return render_file(files.find(path), chosen, scope, files)  # 2. and 3.


def _functions(scope: Scope, files: BundleFiles) -> dict[str, Callable[..., Any]]:
    """Return ``lookup``, ``readFile`` and ``file`` for the Jet and Go engines, with errors that have a place."""

    def read(path: Any) -> str:
        return read_text(files, path)

    return {"lookup": _placed(scope.lookup), "readFile": _placed(read), "file": _placed(read)}


def _placed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        # TypeError: the template may call it with too many arguments.
        except (HieraError, TypeError) as error:
            raise FunctionError(str(error)) from error

    return call


PARTIALS: Final = "_partials"


def render_tree(
    files: Mapping[str, str],
    engine: Engine,
    scope: TemplateScope,
    *,
    skip_empty: bool = False,
    functions: Mapping[str, Function] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> dict[str, str]:
    """Return the rendered files by path. ``files`` maps relative paths, with ``/``, to the text of templates.

    1. Directories and files are processed in the order of their names, without partials.
    2. A directory is created before its content, so that ``write`` may write into it.
    3. Each file has its own limits, which its partials share.
    4. It is parsed, unless it already was as a partial, and executed with ``render``, ``write`` and ``functions``.
    5. With ``skip_empty`` a file with blank output is left out. In Go, rendering a blank partial has the same effect.
    6. Its text overwrites earlier text from ``write``.

    Raises TemplateError.
    """
    return _Tree(files, engine, scope, skip_empty, functions or {}, limits).render()


def walk(paths: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield the directories and files of the target in the order of their creation. The flag is true for files.

    A directory that contains only partials is created too.
    """
    made: set[str] = set()
    ended: list[str] | None = None
    # Sort by parts: a directory ``a`` comes with its content before ``a-b``, although ``-`` sorts before ``/``.
    for path in sorted(paths, key=lambda path: path.split("/")):
        *parents, name = path.split("/")
        if ended is not None and parents[: len(ended)] == ended:
            continue
        visible = parents[: parents.index(PARTIALS)] if PARTIALS in parents else parents
        for depth in range(1, len(visible) + 1):
            directory = "/".join(visible[:depth])
            if directory not in made:
                made.add(directory)
                yield directory, False
        if name == PARTIALS and visible == parents:
            ended = parents
        elif visible == parents:
            yield path, True


class _Tree:
    def __init__(
        self,
        files: Mapping[str, str],
        engine: Engine,
        scope: TemplateScope,
        skip_empty: bool,
        functions: Mapping[str, Function],
        limits: Limits,
    ) -> None:
        self.files = files
        self.engine = engine
        self.scope = scope
        self.skip_empty = skip_empty
        self.functions: Mapping[str, Callable[..., Any]] = {
            **functions,
            "render": self.render_partial,
            "write": self.write,
        }
        self.limits = limits
        self.budget = Budget(limits)
        self.templates: dict[str, Template] = {}
        self.directories = {""}
        self.written: dict[str, str] = {}

    def render(self) -> dict[str, str]:
        for path, is_file in walk(self.files):  # 1. in order
            if not is_file:
                self.make_directory(path)  # 2. directories
                continue
            self.budget = Budget(self.limits)  # 3. limits
            try:
                text = self.render_file(path, self.scope)  # 4. parse and execute
            except TemplateError as error:
                if self.engine.name == "go" and _was_skipped(error):  # 5. skip
                    continue
                raise
            if not (self.skip_empty and is_blank(text)):  # 5. skip
                self.written[path] = text  # 6. keep
        return self.written

    def make_directory(self, path: str) -> None:
        if path in self.written:
            raise TemplateError(
                path, 1, 1, "is a directory of the source, but a template has written a file there"
            )
        self.directories.add(path)

    def render_file(self, path: str, dot: Any) -> str:
        template = self.templates.get(path)
        if template is None:
            template = self.templates[path] = self.engine.compile(path, self.files[path])
        return template.render(dot, self.functions, budget=self.budget)

    def render_partial(self, path: Any, value: Any) -> str:
        """Return the template function ``render``."""
        source = _inside(path, "source")
        if source not in self.files:
            raise FunctionError(self.why_not_a_file(source))
        try:
            self.budget.enter()
            text = self.render_file(source, value)
        finally:
            self.budget.leave()
        if self.skip_empty and is_blank(text) and self.engine.name in ("go", "jet"):
            raise SkippedEmpty(f"{source} is blank, and blank files are skipped here")
        return text

    def why_not_a_file(self, source: str) -> str:
        prefix = f"{source}/" if source else ""
        if any(name.startswith(prefix) for name in self.files):
            return f"{source or '/'} is a directory of the source"
        return f"{source} is not in the source"

    def write(self, path: Any, text: Any) -> str:
        """Return the template function ``write``."""
        target = _inside(path, "target")
        if not isinstance(text, str):
            raise FunctionError(f"the text for {target} is not a string")
        if target in self.directories:
            raise FunctionError(f"{target or '/'} is a directory of the target")
        directory = posixpath.dirname(target)
        if directory not in self.directories:
            raise FunctionError(f"directory {directory} is missing in the target")
        self.written[target] = text
        return ""


def _inside(path: Any, tree: str) -> str:
    if not isinstance(path, str):
        raise FunctionError(f"the path in the {tree} is not a string")
    if "\0" in path:
        raise FunctionError(f"the path in the {tree} has a NUL in it")
    # An absolute path is relative to the root of the tree.
    inside = posixpath.normpath(posixpath.join(".", path.lstrip("/")))
    if inside == ".." or inside.startswith("../"):
        raise FunctionError(f"{path} is not inside the {tree}")
    return "" if inside == "." else inside


def _was_skipped(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, SkippedEmpty):
            return True
        error = error.__cause__
    return False
