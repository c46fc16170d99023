"""Rendering of a tree of templates to a tree of texts, in memory.

* Files are rendered in the order of their names, directory by directory. A later write to a path replaces an earlier
  one.
* Files below a directory ``_partials`` are not rendered. A *file* of that name ends its directory.
* ``render(path, value)`` reads inside the source tree. ``write(path, text)`` writes inside the target, into existing
  directories. A path that leaves the tree through ``..`` is refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from puller.templates.govalue.text import is_blank
from puller.templates.scope import Engine, Function, Template, TemplateScope
from puller.templates.template_errors import (
    DEFAULT_LIMITS,
    Budget,
    FunctionError,
    Limits,
    SkippedEmpty,
    TemplateError,
)

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
