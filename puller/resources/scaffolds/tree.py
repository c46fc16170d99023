"""The tree that a scaffold makes of its source: the files that belong into its target, in memory.

* Rendering touches nothing but files below the source and the manifest's directory, and these only to read them.
* A tree that comes out differently each time would be changed in every run; it is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError
from puller.resources.scaffolds.source import read_source
from puller.resources.tree_paths import directories_of
from puller.system.protocol import System
from puller.templates.bundle_files import seen_from
from puller.templates.errors import TemplateError
from puller.templates.limits import Budget
from puller.templates.rendering import OWN, Delimiters, errors_explained, load, seen_by
from puller.templates.scope import Engine, Template
from puller.templates.tree import render_tree, walk
from puller.values.byte_order import MARK

_BEGINNINGS = {"jinja": ("{{", "{%"), "go": ("{{",), "jet": ("[[",)}


class RenderRequest(msgspec.Struct, frozen=True):
    """How a source becomes a tree."""

    source: str
    """An absolute path."""
    name: str
    """The same as the author wrote it, for messages."""
    engine: str
    delimiters: Delimiters = OWN
    skip_empty: bool = False
    sensitive: bool = False
    """Whether nothing of it may be shown, secret or not."""

    @property
    def beginnings(self) -> tuple[str, ...]:
        """The texts that an action of a template can begin with."""
        left = self.delimiters[0]
        return (left,) if left else _BEGINNINGS[self.engine]


class Rendered(msgspec.Struct, frozen=True):
    """One file of a tree."""

    data: bytes
    executable: bool = False
    """As the template that it comes from."""
    is_secret: bool = False
    """Whether a secret may be in it."""

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.data)

    def chunks(self) -> Iterable[bytes]:
        """All of it."""
        return (self.data,)

    @property
    def mode(self) -> int:
        """Permission bits, where nothing else is said."""
        return 0o755 if self.executable else 0o644


class Tree(msgspec.Struct, frozen=True):
    """The files of a target, by their paths."""

    files: Mapping[str, Rendered]
    directories: frozenset[str]
    """Those of files, and those of the source that no file came out for."""
    secret: bool = False
    """Whether it must not be shown, as a secret may be in it."""


def render_source(request: RenderRequest, scope: Scope, files: BundleFiles, system: System) -> Tree:
    """Render the source; ``files`` are those of the bundle, for functions that read files. Raises ``ResourceError``."""
    source = read_source(request.source, request.name, system, request.beginnings)
    place = files.within(request.source)
    scope = scope if place is files else seen_from(place, scope)
    loaded = load(request.engine, request.delimiters, root=place, files=source.templates)
    engine = _Engine(loaded, source.binary)
    seen = seen_by(request.engine, scope, place)
    with errors_explained(seen, secret=request.sensitive, below=f"{request.name}/"):
        texts = render_tree(
            source.texts, engine, seen.dot, skip_empty=request.skip_empty, functions=seen.functions
        )
    is_secret = request.sensitive or engine.used_secret or seen.is_secret
    rendered = {
        path: Rendered(
            _encoded(MARK + text if path in source.marked else text, request.name, path),
            path in source.executable,
            is_secret,
        )
        for path, text in sorted(texts.items())
    }
    made = {path for path, is_file in walk(source.texts) if not is_file}
    directories = frozenset(made.union(directories_of(rendered)))
    return Tree(rendered, directories, is_secret)


def require_same(first: Tree, second: Tree) -> None:
    """Raise ``ResourceError`` when two renderings of one source differ."""
    for path in sorted({*first.files, *second.files}):
        one, other = first.files.get(path), second.files.get(path)
        if one == other:
            continue
        if one is None or other is None:
            raise ResourceError(
                f"{path}: is rendered one time and not another, so it would change in every run"
            )
        where = "" if first.secret else _where(one.data, other.data)
        raise ResourceError(f"{path}: renders differently each time, so it would change in every run{where}")


def _where(one: bytes, other: bytes) -> str:
    lines = zip(one.splitlines(), other.splitlines(), strict=False)
    for number, (line, another) in enumerate(lines, start=1):
        if line != another:
            return f": line {number} is {_shown(line)}, then {_shown(another)}"
    return ""


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def _encoded(text: str, name: str, path: str) -> bytes:
    try:
        path.encode("utf-8")
        # What is no UTF-8 came from a file like that, or from a string that a template has cut in a character.
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ResourceError(f"{name}/{path!a}: cannot be written as UTF-8: {error.reason}") from error


class _Engine:
    """An engine that leaves alone what is no template, and remembers whether a secret was looked at."""

    def __init__(self, engine: Engine, binary: frozenset[str]) -> None:
        self.engine = engine
        self.binary = binary
        self.used_secret = False

    @property
    def name(self) -> str:
        return self.engine.name

    def compile(self, name: str, text: str) -> Template:
        if name in self.binary:
            return _Literal(text)
        try:
            return _Watched(self.engine.compile(name, text), self)
        except TemplateError as error:
            error.is_of_text = True
            raise


class _Literal:
    """A file that comes out as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def render(
        self,
        dot: Any,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        budget: Budget | None = None,
    ) -> str:
        del dot, functions, budget
        return self.text


class _Watched:
    """A template of the engine, which tells after each rendering whether it looked at a secret."""

    def __init__(self, template: Template, owner: _Engine) -> None:
        self.template = template
        self.owner = owner

    def render(
        self,
        dot: Any,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        budget: Budget | None = None,
    ) -> str:
        text = self.template.render(dot, functions, budget=budget)
        self.owner.used_secret |= getattr(self.owner.engine, "used_secret", False)
        return text
