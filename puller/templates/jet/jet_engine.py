"""The Jet engine: templates of Jet 6 as its Go implementation renders them, without HTML escaping, and their functions.

* A template is compiled once and can be rendered many times. Renderings share only the data that the template
  itself assigns to (``data`` and similar objects).
* ``include``, ``extends``, ``import`` and ``exec`` find other templates with a loader. Without it they find no files.
  Scaffolds share text with ``render(path, value)`` instead.

Rendering takes these steps:

1. Cut the text into tokens and parse them: ``expression_parser.py``, ``parser.py``. Syntax errors are raised here.
2. Load the templates that it extends and imports, for their blocks.
3. Compile expressions, statements and blocks to functions of a frame: ``expressions.py``, ``calls.py``,
   ``statements.py``.
4. Create a frame with the functions and the budget.
5. Run the body, which returns the text. Loop rounds, nested blocks and long texts count against the budget.

Functions that every template has:

* A typed parameter accepts values that Go's reflection can convert, and rejects others.
* If a function's result is larger than its arguments, the budget is charged before it is made.
* ``isset`` checks its arguments before they are evaluated, so the compiler handles it (``calls.py``).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from foundation.quantities import counted
from puller.templates.govalue.printf import sprintf
from puller.templates.govalue.text import (
    escape_html,
    escape_js,
    escape_query,
    escape_template_html,
    to_json,
    to_lower,
    to_upper,
    trim_space,
)
from puller.templates.govalue.types import MISSING, Strings, byte_length, is_number, to_bytes, type_name
from puller.templates.jet.frame import BlockCode, Frame, Program
from puller.templates.jet.nodes import Reference
from puller.templates.jet.parser import parse
from puller.templates.jet.statements import StatementCompiler
from puller.templates.jet.values import (
    Function,
    IntRange,
    Rendered,
    Writer,
    as_any,
    as_int,
    as_string,
    describe,
)
from puller.templates.scope import Function as ScopeFunction
from puller.templates.template_errors import LONG_TEXT, Budget, Exceeded, FunctionError, TemplateSource

_PIECE_COST: Final = 64
"""Characters that a piece of a split text counts as, since a list of many short strings is large too."""


def _go_function(name: str, call: Callable[..., Any], *parameters: Callable[[Any], Any]) -> Function:
    """Return a function of Go's library. ``parameters`` convert the arguments, and ``call`` gets the frame first."""

    count = len(parameters)

    def checked(frame: Frame, values: list[Any]) -> Any:
        if len(values) != count:
            raise FunctionError(f"takes {counted(count, 'argument')}, not {len(values)}")
        return call(frame, *map(_converted, parameters, values))

    return Function(name, checked, "none" if parameters == (as_any,) else "all")


def _converted(convert: Callable[[Any], Any], value: Any) -> Any:
    return value if type(value) is str and convert is as_string else convert(as_any(value))


def external(name: str, function: Callable[..., Any]) -> Function:
    """Return a function that the caller of the engine provides to the template."""

    def call(_: Frame, values: list[Any]) -> Any:
        provided = [as_any(value) for value in values]
        try:
            return function(*provided)
        except TypeError as error:
            if error.__traceback__ and error.__traceback__.tb_next:
                raise  # a defect inside the function, not a wrong number of arguments
            raise FunctionError(f"cannot be called with {counted(len(provided), 'argument')}") from error

    return Function(name, call)


def _repeat(frame: Frame, text: str, count: int) -> str:
    if count < 0:
        raise FunctionError(f"cannot repeat {count} times")
    _pay(frame, len(text) * count)
    return text * count


def _replace(frame: Frame, text: str, old: str, new: str, limit: int) -> str:
    result = text.count(old)
    changes = min(result, limit) if limit >= 0 else result
    _pay(frame, len(text) + changes * (len(new) - len(old)))
    return text.replace(old, new, limit)


def _split(frame: Frame, text: str, separator: str) -> Strings:
    _pay(frame, _PIECE_COST * text.count(separator))
    return Strings(text.split(separator) if separator else text)


def _pay(frame: Frame, characters: int) -> None:
    if characters > LONG_TEXT:
        frame.budget.spend(characters)


def _is_set(_: Frame, values: list[Any]) -> bool:
    """Implement ``isset`` under another name. By its own name, it is checked before evaluation (``calls.py``)."""
    return all(value is not MISSING and value is not None for value in values)


def _length(_: Frame, values: list[Any]) -> int:
    (value,) = _exactly(1, values)
    if isinstance(value, str):
        return byte_length(value)
    if isinstance(value, (list, tuple, dict, bytes)):
        return len(value)
    if value is MISSING:
        raise FunctionError("requires a value")
    raise FunctionError(f"{describe(value)} has no length")


def _map(_: Frame, values: list[Any]) -> dict[str, Any]:
    if len(values) % 2:
        raise FunctionError("the last key requires a value")
    result: dict[str, Any] = {}
    for key, value in zip(values[::2], values[1::2], strict=True):
        if not isinstance(key, str):
            raise FunctionError(f"a key must be a string, not {describe(key)}")
        if value is not MISSING:
            result[key] = value
    return result


def _slice(_: Frame, values: list[Any]) -> list[Any]:
    return [as_any(value) for value in values]


def _ints(_: Frame, values: list[Any]) -> IntRange:
    if len(values) > 2:
        raise FunctionError(f"takes 2 arguments, not {len(values)}")
    for value in values:
        if not is_number(value):
            raise FunctionError(f"requires a number, not {describe(value)}")
    start, end, *_rest = [*map(as_int, values), 0, 0]
    if end <= start:
        raise FunctionError(f"from ({start}) must be smaller than to ({end})")
    return IntRange(start, end)


def _exec(frame: Frame, values: list[Any]) -> Any:
    path, *context = _one_or_two_values(values)
    inner = _run(frame, path, context)[0]
    return inner.returned


def _include_if_exists(frame: Frame, values: list[Any]) -> Rendered:
    path, *context = _one_or_two_values(values)
    if frame.load(path, "/") is None:
        return Rendered("", true=False)
    return Rendered(_run(frame, path, context)[1])


def _run(frame: Frame, path: str, context: list[Any]) -> tuple[Frame, str]:
    # Relative to the root, since a function does not get the calling template's directory.
    program = frame.load(path, "/")
    if program is None:
        raise FunctionError(f"unknown template {path}")
    inner = frame.inner(program)
    if context:
        inner.dot, inner.boxed = context[0], False
    frame.budget.enter()
    try:
        return inner, program.body(inner)
    finally:
        frame.budget.leave()


def _one_or_two_values(values: list[Any]) -> list[Any]:
    if not 1 <= len(values) <= 2:
        raise FunctionError(f"takes 1 or 2 arguments, not {len(values)}")
    if not isinstance(values[0], str):
        raise FunctionError("the path of a template must be a string")
    return values


def _exactly(count: int, values: list[Any]) -> list[Any]:
    if len(values) != count:
        raise FunctionError(f"takes {counted(count, 'argument')}, not {len(values)}")
    return values


def _dump(frame: Frame, values: list[Any]) -> str:
    """Return the variables and blocks with these names, or all, for debugging a template."""
    if any(not isinstance(value, str) for value in values[1:]):
        raise FunctionError("requires names as strings")
    if not values or is_number(values[0]):
        return _dump_all(frame)
    return "".join(_dump_variable(frame, str(name)) + _dump_block(frame, str(name)) for name in values)


def _dump_all(frame: Frame) -> str:
    roots = dict(frame.scope) if frame.scope is not None else {}
    names = sorted({*frame.variables, *roots})
    blocks = sorted(frame.blocks)
    return "".join(
        [
            f"Context:\n\t{type_name(frame.dot)} {sprintf('%#v', frame.dot)}\nVariables in scope:\n",
            *(_dump_variable(frame, name) for name in names),
            "Blocks:\n",
            *(_dump_block(frame, name) for name in blocks),
        ]
    )


def _dump_variable(frame: Frame, name: str) -> str:
    if name in frame.variables:
        value = frame.variables[name][0]
    elif frame.scope is not None and name in frame.scope:
        value = frame.scope[name]
    else:
        return ""
    return f"\t{name}:={sprintf('%#v', value)} // {type_name(value)}\n"


def _dump_block(frame: Frame, name: str) -> str:
    block = frame.blocks.get(name)
    return f"\tblock {name}({block.signature}), from {block.path}\n" if block else ""


_FUNCTIONS: Final = (
    _go_function("lower", lambda _, text: to_lower(text), as_string),
    _go_function("upper", lambda _, text: to_upper(text), as_string),
    _go_function("hasPrefix", lambda _, text, prefix: text.startswith(prefix), as_string, as_string),
    _go_function("hasSuffix", lambda _, text, suffix: text.endswith(suffix), as_string, as_string),
    _go_function("repeat", _repeat, as_string, as_int),
    _go_function("replace", _replace, as_string, as_string, as_string, as_int),
    _go_function("split", _split, as_string, as_string),
    _go_function("trimSpace", lambda _, text: trim_space(text), as_string),
    _go_function("html", lambda _, text: escape_html(text), as_string),
    _go_function("url", lambda _, text: escape_query(text), as_string),
    _go_function("json", lambda _, value: to_bytes(to_json(value)), as_any),
    _go_function("writeJson", lambda _, value: Rendered(to_json(value) + "\n"), as_any),
    Function("isset", _is_set),
    Function("len", _length),
    Function("map", _map, "keys"),
    Function("slice", _slice),
    Function("array", _slice),
    Function("ints", _ints),
    Function("exec", _exec),
    Function("includeIfExists", _include_if_exists),
    Function("dump", _dump),
    Writer("safeHtml", escape_template_html),
    Writer("safeJs", escape_js),
    Writer("raw", str),
    Writer("unsafe", str),
)
BUILTINS: Final[Mapping[str, Function | Writer]] = {function.name: function for function in _FUNCTIONS}

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
        self, dot: Any, functions: Mapping[str, ScopeFunction] | None = None, *, budget: Budget | None = None
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
