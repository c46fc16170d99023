"""The Jet engine: templates of Jet 6 as its Go implementation renders them, without HTML escaping.

* A template is compiled once and can be rendered many times. Renderings share only the data that the template
  itself assigns to (``data`` and similar objects).
* ``include``, ``extends``, ``import`` and ``exec`` find other templates with a loader. Without it they find no files.
  Scaffolds share text with ``render(path, value)`` instead.

Rendering takes these steps:

1. Cut the text into tokens and parse them: ``lexer.py``, ``parser.py``. Syntax errors are raised here.
2. Load the templates that it extends and imports, for their blocks.
3. Compile expressions, statements and blocks to functions of a frame: ``expressions.py``, ``calls.py``,
   ``statements.py``.
4. Create a frame with the functions and the budget.
5. Run the body, which returns the text. Loop rounds, nested blocks and long texts count against the budget.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from puller.templates.govalue.types import MISSING
from puller.templates.jet.frame import BlockCode, Frame, Program
from puller.templates.jet.functions import BUILTINS, external
from puller.templates.jet.nodes import Reference
from puller.templates.jet.parser import parse
from puller.templates.jet.statements import StatementCompiler
from puller.templates.limits import Budget, Exceeded, TemplateSource
from puller.templates.scope import Function

Loader = Callable[[str], str | None]
"""Returns the text of the template at a path such as ``lib/page.jet``, or ``None``."""

_EXTENSIONS: Final = ("", ".jet", ".html.jet", ".jet.html")


class JetTemplate:
    """A parsed template of Jet."""

    __slots__ = ("_engine", "_program", "_source")

    def __init__(self, engine: JetEngine, source: TemplateSource, program: Program) -> None:
        self._engine = engine
        self._source = source
        self._program = program

    def render(
        self, dot: Any, functions: Mapping[str, Function] | None = None, *, budget: Budget | None = None
    ) -> str:
        """Return the text, steps 4 and 5. Raises TemplateError.

        Only a TemplateScope provides ``facts`` and similar names.
        """
        # 4. External functions have priority over Jet's own.
        known = {**BUILTINS, **{name: external(name, f) for name, f in (functions or {}).items()}}
        context = MISSING if dot is None else dot
        frame = Frame(context, known, self._program, self._engine.load, budget or Budget())
        try:  # 5.
            return self._program.body(frame)
        except Exceeded as exceeded:  # by the template as a whole
            raise self._source.limit(0, exceeded) from exceeded
        except RecursionError:
            too_deep = Exceeded("blocks and expressions are nested too deeply")
            raise self._source.limit(0, too_deep) from None


class JetEngine:
    """Jet with its delimiters. An empty delimiter means the default, ``[[`` or ``]]``."""

    name: ClassVar[str] = "jet"

    def __init__(
        self, left_delimiter: str = "", right_delimiter: str = "", loader: Loader | None = None
    ) -> None:
        self._left = left_delimiter or "[["
        self._right = right_delimiter or "]]"
        self._loader = loader
        self._programs: dict[str, Program] = {}
        self._found: dict[tuple[str, str], Program] = {}
        """Programs by the paths in templates and by the templates that contain the paths."""
        self._loading: list[str] = []

    def compile(self, name: str, text: str) -> JetTemplate:
        """Return the parsed text, steps 1 to 3. Raises TemplateError with ``name``, line and column."""
        source = TemplateSource(name, text)
        return JetTemplate(self, source, self._compile(source))

    def load(self, path: str, sibling: str) -> Program | None:
        """Return the template at ``path``, relative to the directory of ``sibling``. Raises TemplateError."""
        if (program := self._found.get((path, sibling))) is None:
            program = self._load(path, sibling)
            if program is not None:
                self._found[path, sibling] = program
        return program

    def _load(self, path: str, sibling: str) -> Program | None:
        absolute = posixpath.normpath(posixpath.join("/", posixpath.dirname(sibling), path)).lstrip("/")
        for candidate in (absolute + extension for extension in _EXTENSIONS):
            if candidate in self._programs:
                return self._programs[candidate]
            text = self._loader(candidate) if self._loader else None
            if text is not None:
                self._programs[candidate] = program = self._compile(TemplateSource(candidate, text))
                return program
        return None

    def _compile(self, source: TemplateSource) -> Program:
        """Return the program of a template. If a name has several blocks, the last one in this order counts:

        1. The blocks of the extended template, including blocks of its ancestors and imports.
        2. The blocks of imported templates, in the order of the imports.
        3. Its own blocks, anywhere in the template.

        4. The body of the topmost ancestor runs. A template that extends another one contributes only blocks.
        """
        tree = parse(source, self._left, self._right)
        compiler = StatementCompiler(source)
        blocks: dict[str, BlockCode] = {}
        extended = self._referenced(source, compiler.path, tree.extends) if tree.extends else None
        if extended:  # 1.
            blocks.update(extended.blocks)
        for reference in tree.imports:  # 2.
            blocks.update(self._referenced(source, compiler.path, reference).blocks)
        try:  # 3.
            blocks.update((name, compiler.block_code(node)) for name, node in tree.blocks.items())
            # 4.
            body = extended.body if extended else compiler.body(tree.body)
        except RecursionError:
            raise source.error(0, "the template is nested too deeply to be compiled") from None
        compiler.finish()
        return Program(body, blocks)

    def _referenced(self, source: TemplateSource, path: str, reference: Reference) -> Program:
        if path in self._loading:
            raise source.error(reference.offset, f"{path} extends or imports itself")
        self._loading.append(path)
        try:
            program = self.load(reference.path, path)
        finally:
            self._loading.pop()
        if program is None:
            raise source.error(reference.offset, f"unknown template {reference.path}")
        return program
