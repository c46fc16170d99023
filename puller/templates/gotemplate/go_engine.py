"""The engine ``go``: Go's ``text/template`` with Sprig's functions.

Rendering takes these steps. The titles in quotes are sections of https://pkg.go.dev/text/template.

1. Cut the text into tokens, trimmed beside ``{{-`` and ``-}}``: ``lexer.py`` ("Text and spaces").
2. Parse the tokens into a tree for the file and one for each ``define`` and ``block``, and refuse the errors that Go
   reports before it renders: ``parser.py`` ("Actions", "Nested template definitions").
3. Compile the trees to closures. Names become functions, constants get the types of their places, variables get places
   in a frame: this module and ``pipelines.py`` ("Arguments", "Pipelines", "Variables", "Functions").
4. Give the rendering its functions, environ and budget, and a frame where dot is also ``$``.
5. Run the closures. Loop rounds, calls and long texts count against the budget.
6. Join the output, which also counts against the budget.

A template called with ``template`` has its own frame and cannot access the variables of its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, ClassVar, Final

from puller.templates.gotemplate.function_calls import Evaluate, Frame, Rendering
from puller.templates.gotemplate.go_functions import find_function, unknown_function_message
from puller.templates.gotemplate.nodes import (
    Action,
    Body,
    Branch,
    Break,
    Call,
    Continue,
    Node,
    Range,
    Text,
)
from puller.templates.gotemplate.parser import parse
from puller.templates.gotemplate.pipelines import Expressions, FindFunction
from puller.templates.govalue.printf import format_value
from puller.templates.govalue.types import MISSING, is_integer, map_keys
from puller.templates.scope import TemplateScope
from puller.templates.template_errors import PIECES_AT_ONCE, Budget, Exceeded, FunctionError, TemplateSource

# The compiler. It counts loop rounds and calls, because a rendering could continue forever there.

Execute = Callable[[Frame, Any], None]

_ROUNDS_BETWEEN_LOOKS: Final = 128


class _Leave(Exception):
    """Raised by ``break``, and caught by the loop."""


class _Next(Exception):
    """Raised by ``continue``, and caught by the loop."""


class Compiled:
    """A compiled body: run it with a frame of ``size`` variables."""

    __slots__ = ("execute", "size")

    def __init__(self, execute: Execute, size: int) -> None:
        self.execute = execute
        self.size = size


def compile_bodies(
    source: TemplateSource, bodies: Mapping[str, Body], find: FindFunction
) -> dict[str, Compiled]:
    """Compile all trees of a file. ``template`` looks them up by name when it runs."""
    templates: dict[str, Compiled] = {}
    for name, body in bodies.items():
        compiler = _Compiler(source, Expressions(source, find), templates)
        execute = compiler.body(body)
        templates[name] = Compiled(execute, compiler.expressions.variables.size)
    return templates


def text_of(value: Any) -> str:
    """Return a value as an action prints it. Raises ValueError for an endless value."""
    return "<no value>" if value is None or value is MISSING else format_value(value)


class _Compiler:
    def __init__(
        self, source: TemplateSource, expressions: Expressions, templates: Mapping[str, Compiled]
    ) -> None:
        self.expressions = expressions
        self._source = source
        self._templates = templates

    def body(self, nodes: Body) -> Execute:
        """Return code that runs the nodes in order. Variables declared in the body are known up to its end."""
        mark = self.expressions.variables.mark()
        steps = [self._step(node) for node in nodes]
        self.expressions.variables.forget(mark)
        if len(steps) == 1 and not isinstance(steps[0], str):
            return steps[0]

        def run(frame: Frame, dot: Any) -> None:
            for step in steps:
                if isinstance(step, str):
                    frame.write(step)
                else:
                    step(frame, dot)

        return run

    def _step(self, node: Node) -> str | Execute:
        """Return code for one node. Text stays text."""
        match node:
            case Text(_, text):
                return text
            case Action():
                return self._action(node)
            case Branch():
                return self._branch(node)
            case Range():
                return self._range(node)
            case Call():
                return self._call(node)
            case Break():
                return _leave
            case Continue():
                return _next

    def _action(self, node: Action) -> Execute:
        """Return code for ``{{pipeline}}``: the value is printed like ``fmt.Print``, or assigned to a variable."""
        evaluate = self.expressions.pipeline(node.pipeline)
        if node.pipeline.declared:
            return evaluate

        def show(frame: Frame, dot: Any) -> None:
            value = evaluate(frame, dot)
            kind = type(value)
            if kind is str:
                frame.write(value)
                return
            try:
                frame.write(str(value) if kind is int else text_of(value))
            except ValueError as error:
                raise self._source.error(node.position, str(error)) from None

        return show

    def _branch(self, node: Branch) -> Execute:
        """Return code for ``{{if pipeline}} T1 {{else if pipeline}} T2 {{else}} T0 {{end}}``, and ``with``.

        The first arm with a non-empty value runs. ``with`` sets dot to the value, and ``if`` keeps dot. Variables of an
        arm's pipeline are known in the arms after it too, up to ``end``.
        """
        mark = self.expressions.variables.mark()
        arms: list[tuple[Evaluate, Execute]] = []
        otherwise: Execute = _nothing
        for pipeline, body in node.arms:
            if pipeline is None:
                otherwise = self.body(body)
            else:
                arms.append((self.expressions.pipeline(pipeline), self.body(body)))
        self.expressions.variables.forget(mark)
        return _choose_with(arms, otherwise) if node.sets_dot else _choose(arms, otherwise)

    def _range(self, node: Range) -> Execute:
        """Return code for ``{{range $index, $element := pipeline}} T1 {{else}} T0 {{end}}``.

        1. The pipeline is evaluated: a list, a map, an integer, or nothing.
        2. For each element, maps in key order, the variables are set and T1 runs with the element as dot. ``break``
           ends the loop, ``continue`` the round.
        3. Without elements, T0 runs with the outer dot.
        """
        variables = self.expressions.variables
        mark = variables.mark()
        evaluate = self.expressions.pipeline(node.pipeline)
        places = [variables.find(name) for name in node.pipeline.declared]
        body = self._loop(node.position, places, self.body(node.body))
        otherwise = self.body(node.otherwise)
        variables.forget(mark)
        has_index = len(places) > 1

        def run(frame: Frame, dot: Any) -> None:
            rounds = self._rounds(evaluate(frame, dot), has_index, node.position)  # 1.
            if not body(frame, rounds):  # 2.
                otherwise(frame, dot)  # 3.

        return run

    def _loop(
        self, position: int, places: Sequence[int | None], body: Execute
    ) -> Callable[[Frame, Iterable[tuple[Any, Any]]], bool]:
        """Return code that runs the body for each round, and returns whether any round ran.

        In each round, the last variable at ``places`` is set to the element, and a variable before it to the index or
        key.
        """
        element_place = places[-1] if places else None
        index_place = places[0] if len(places) > 1 else None

        def loop(frame: Frame, rounds: Iterable[tuple[Any, Any]]) -> bool:
            rendering, variables = frame.rendering, frame.variables
            texts = rendering.texts
            ran, remaining = False, 0
            try:
                for index, element in rounds:
                    ran = True
                    if remaining == 0:  # the first round, and after each batch of rounds
                        remaining = _ROUNDS_BETWEEN_LOOKS
                        rendering.budget.look()
                    remaining -= 1
                    if len(texts) >= PIECES_AT_ONCE:
                        rendering.gather()
                    if element_place is not None:
                        variables[element_place] = element
                    if index_place is not None:
                        variables[index_place] = index
                    try:
                        body(frame, element)
                    except _Next:
                        pass
            except _Leave:
                pass
            except Exceeded as error:
                raise self._source.limit(position, error) from None
            return ran

        return loop

    def _rounds(self, value: Any, has_index: bool, position: int) -> Iterable[tuple[Any, Any]]:
        try:
            return _rounds_over(value, has_index)
        except FunctionError as error:
            raise self._source.error(position, str(error)) from None

    def _call(self, node: Call) -> Execute:
        """Return code for ``{{template "name" pipeline}}``, and for ``block``, which combines it with ``define``.

        1. The template is looked up at the call, since it may be defined further down, or missing in a dead branch.
        2. Its dot is the value of the pipeline, or *no value*.
        3. It runs one level deeper, in its own frame where ``$`` is its dot. The caller's variables are unknown there.
        """
        evaluate = _no_value if node.pipeline is None else self.expressions.pipeline(node.pipeline)

        def call(frame: Frame, dot: Any) -> None:
            template = self._templates.get(node.name)  # 1. look up
            if template is None:
                raise self._source.error(node.position, f"template {node.name!r} is not defined")
            value = evaluate(frame, dot)  # 2. dot
            if value is None:
                value = MISSING  # in a variable, nil becomes *no value*
            budget = frame.rendering.budget
            try:  # 3. run
                budget.enter()
                if len(frame.rendering.texts) >= PIECES_AT_ONCE:
                    frame.rendering.gather()
                template.execute(Frame(frame.rendering, value, template.size), value)
            except Exceeded as error:
                raise self._source.limit(node.position, error) from None
            finally:
                budget.leave()

        return call


def _no_value(_frame: Frame, _dot: Any) -> Any:
    return MISSING


def _nothing(_frame: Frame, _dot: Any) -> None:
    return


def _leave(_frame: Frame, _dot: Any) -> None:
    raise _Leave


def _next(_frame: Frame, _dot: Any) -> None:
    raise _Next


def _choose(arms: list[tuple[Evaluate, Execute]], otherwise: Execute) -> Execute:
    if len(arms) == 1:
        condition, body = arms[0]
        return lambda frame, dot: (body if condition(frame, dot) else otherwise)(frame, dot)

    def choose(frame: Frame, dot: Any) -> None:
        for condition, body in arms:
            if condition(frame, dot):
                body(frame, dot)
                return
        otherwise(frame, dot)

    return choose


def _choose_with(arms: list[tuple[Evaluate, Execute]], otherwise: Execute) -> Execute:
    def choose(frame: Frame, dot: Any) -> None:
        for evaluate, body in arms:
            value = evaluate(frame, dot)
            if value:
                body(frame, value)
                return
        otherwise(frame, dot)

    return choose


def _rounds_over(value: Any, has_index: bool) -> Iterable[tuple[Any, Any]]:
    """Return index or key, and element, of each round. Raises FunctionError for values without elements."""
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    if isinstance(value, dict):
        return [(key, value[key]) for key in map_keys(value)]
    if value is None or value is MISSING:
        return ()
    if not is_integer(value):
        raise FunctionError(f"range can't iterate over {text_of(value)}")
    if has_index:
        raise FunctionError(f"can't use {value} to iterate over more than one variable")
    kind = type(value)
    return ((number, number) for number in map(kind, range(value)))


_TOO_DEEP: Final = "actions, templates or values are nested too deeply"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

# A context variable, because ``env`` must also work in partials, whose dot is chosen by the file that renders them.
_environ: Final[ContextVar[Mapping[str, Any]]] = ContextVar("environ", default=_NOTHING)


class GoTemplate:
    """A parsed file, without state between renderings.

    Its tree is called by the last part of the file's name, so a file ``etc/a.conf`` can call itself as ``{{ template
    "a.conf" . }}``.
    """

    __slots__ = ("_root", "_source")

    def __init__(self, source: TemplateSource, left: str, right: str) -> None:
        name = source.name.rpartition("/")[2]
        bodies = parse(
            source, unknown_function_message, left, right, root=name
        )  # 1. split, 2. parse and check
        self._source = source
        self._root = compile_bodies(source, bodies, find_function)[name]  # 3. compile

    def render(
        self,
        dot: Any,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        budget: Budget | None = None,
    ) -> str:
        """Return the text, steps 4 to 6. Raises TemplateError, including LimitError.

        For a partial, ``budget`` is the budget of the file that renders it.
        """
        # 4. As in Go, fields are *no value* in a template without data, and fail for nil.
        dot = MISSING if dot is None else dot
        before = _environ.set(dot["environ"]) if isinstance(dot, TemplateScope) else None
        rendering = Rendering(functions or _NOTHING, _environ.get(), budget or Budget())
        try:
            self._root.execute(Frame(rendering, dot, self._root.size), dot)  # 5. run
            return rendering.text()  # 6. join
        except Exceeded as error:
            raise self._source.limit(0, error) from None
        except RecursionError:
            raise self._source.limit(0, _TOO_DEEP) from None
        finally:
            if before is not None:
                _environ.reset(before)


class GoEngine:
    """The language with its delimiters. An empty delimiter means Go's default."""

    name: ClassVar[str] = "go"

    def __init__(self, left_delimiter: str = "", right_delimiter: str = "") -> None:
        self._left = left_delimiter or "{{"
        self._right = right_delimiter or "}}"

    def compile(self, name: str, text: str) -> GoTemplate:
        """Return the parsed text, steps 1 to 3. Raises TemplateError with ``name``, line and column."""
        source = TemplateSource(name, text)
        try:
            return GoTemplate(source, self._left, self._right)
        except RecursionError:
            raise source.limit(0, _TOO_DEEP) from None
