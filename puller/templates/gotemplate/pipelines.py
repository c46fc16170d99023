"""Pipelines compiled to closures: each operand becomes a function of the frame (variables, output) and of dot.

* Compilation resolves everything that the text determines: variables, functions, and the types of constants.
* Errors that Go reports only when it reaches a place are raised only there, so a dead branch never fails.
* ``nil`` and *no value* are both false and print alike. They differ in field access: every field of *no value* is
  *no value*, and ``nil`` has no fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from puller.templates.gotemplate.function_calls import (
    ANY,
    Constant,
    Evaluate,
    Frame,
    Struct,
    Type,
    compile_call,
    compile_call_with_rendering,
    compile_logic,
    failure_of,
    run,
    signature_of,
)
from puller.templates.gotemplate.go_functions import Function
from puller.templates.gotemplate.nodes import (
    Boolean,
    Chain,
    Command,
    Dot,
    Field,
    Identifier,
    Nil,
    Number,
    Operand,
    Pipeline,
    String,
    Variable,
)
from puller.templates.govalue.strconv import quote
from puller.templates.govalue.types import MISSING, type_name
from puller.templates.template_errors import FunctionError, TemplateSource

FindFunction = Callable[[str], Function]

_Fielded = Field | Variable | Chain
_CONSTANTS: Final = (Boolean, Nil, Number, String)


class Variables:
    """The place of each variable in a frame. Each variable has its own place."""

    def __init__(self) -> None:
        self._names = ["$"]
        self._places = [0]
        self.size = 1

    def declare(self, name: str) -> int:
        """Declare a variable of this name at a new place. It hides an earlier one until ``forget``."""
        self._names.append(name)
        self._places.append(self.size)
        self.size += 1
        return self._places[-1]

    def find(self, name: str) -> int | None:
        """Return the place of the latest variable with this name, or ``None`` if only another branch declared it."""
        for index in range(len(self._names) - 1, -1, -1):
            if self._names[index] == name:
                return self._places[index]
        return None

    def mark(self) -> int:
        """Return the current position, for ``forget``."""
        return len(self._names)

    def forget(self, mark: int) -> None:
        """Forget all declarations since ``mark``."""
        del self._names[mark:], self._places[mark:]


class Expressions:
    """Compiles the pipelines of a template."""

    def __init__(self, source: TemplateSource, find_function: FindFunction) -> None:
        self.variables = Variables()
        self._source = source
        self._find_function = find_function

    # Pipelines and commands ------------------------------------------------------------------------------------------

    def pipeline(self, node: Pipeline) -> Evaluate:
        """Compile a pipeline: it assigns the value of the last command to the declared variables, and returns it."""
        evaluate: Evaluate | None = None
        for command in node.commands:
            evaluate = self._command(command, evaluate)
        assert evaluate is not None  # noqa: S101  for the type checker: the parser refuses empty pipelines
        return self._declaration(node, evaluate) if node.declared else evaluate

    def _declaration(self, node: Pipeline, evaluate: Evaluate) -> Evaluate:
        places = []
        for name in node.declared:
            place = self.variables.find(name) if node.assigns else self.variables.declare(name)
            if place is None:
                return self._failing(node.position, f"undefined variable: {name}")
            places.append(place)

        def declare(frame: Frame, dot: Any) -> Any:
            value = evaluate(frame, dot)
            if value is None:
                value = MISSING  # Go unwraps the result, so nil becomes *no value* in a variable
            for place in places:
                frame.variables[place] = value
            return value

        return declare

    def _command(self, node: Command, final: Evaluate | None) -> Evaluate:
        first, *arguments = node.words
        match first:
            case Identifier():
                return self._call(first, arguments, final)
            case Field() | Chain():
                return self._fields(first, arguments, final)
            case Variable() if first.path:
                return self._fields(first, arguments, final)
        if arguments or final is not None:
            return self._failing(first.position, "an argument is given to something that is not a function")
        if isinstance(first, Nil):
            return self._failing(first.position, "nil is not a command")
        return self._constant(first, ANY) if isinstance(first, _CONSTANTS) else self._operand(first)

    def _operand(self, node: Operand) -> Evaluate:
        """Compile an operand other than a constant, without arguments."""
        match node:
            case Dot():
                return _evaluate_dot
            case Identifier():
                return self._call(node, (), None)
            case Field() | Variable() | Chain():
                return self._path(node, node.path)
            case Pipeline():
                return self.pipeline(node)
        raise AssertionError(f"a constant is no operand here: {node}")

    def _chain_start(self, node: Chain) -> Evaluate:
        evaluate = self._operand(node.operand)
        if not isinstance(node.operand, Pipeline):
            return evaluate

        def start(frame: Frame, dot: Any) -> Any:
            value = evaluate(frame, dot)
            # Go unwraps the result of a pipeline, so that nil becomes *no value* as in a variable.
            return MISSING if value is None else value

        return start

    def _variable(self, node: Variable) -> Evaluate:
        place = self.variables.find(node.name)
        if place is None:
            return self._failing(node.position, f"undefined variable: {node.name}")

        def variable(frame: Frame, _dot: Any) -> Any:
            return frame.variables[place]

        return variable

    def _constant(self, node: Constant, desired: Type) -> Evaluate:
        try:
            value = desired.fit_constant(node, _shown(node))
        except FunctionError as error:
            return self._failing(node.position, str(error))
        return lambda _frame, _dot: value

    def _failing(self, position: int, message: str) -> Evaluate:
        """Return an operand that fails at evaluation."""

        def fail(_frame: Frame, _dot: Any) -> NoReturn:
            raise self._source.error(position, message)

        return fail

    # Fields and methods ----------------------------------------------------------------------------------------------

    def _path(self, node: _Fielded, path: Sequence[str], missing: Any = MISSING) -> Evaluate:
        """Compile the value at ``path``, all fields of the node or all but the last. ``missing`` is the default."""
        if isinstance(node, Field):
            return self._walk(node, path, missing) if path else _evaluate_dot
        start = self._variable(node) if isinstance(node, Variable) else self._chain_start(node)
        if not path:
            return start
        walk = self._walk(node, path, missing)
        return lambda frame, dot: walk(frame, start(frame, dot))

    def _walk(self, node: _Fielded, path: Sequence[str], missing: Any) -> Evaluate:
        """Compile field access that starts at a value instead of dot."""
        member = self._member(node)

        def walk(frame: Frame, value: Any) -> Any:
            for name in path:
                if isinstance(value, dict):
                    try:  # not ``get``, which ignores the capitalised names of a TemplateScope
                        value = value[name]
                    except KeyError:
                        return missing
                elif value is MISSING:
                    return missing
                else:
                    value = member(frame, value, name)
            return value

        return walk

    def _member(self, node: _Fielded) -> Callable[[Frame, Any, str], Any]:
        """Compile access to a field of a value that is not a mapping."""

        def member(frame: Frame, value: Any, name: str) -> Any:
            if isinstance(value, Struct):
                if name in value.methods:
                    return self._call_method(frame, value, name, (), node.position)
                if name in value.fields():
                    return value.fields()[name]
            kind = "nil" if value is None else f"of type {type_name(value)}"
            what = ".".join([_shown_start(node), *node.path[: node.path.index(name)]])
            raise self._source.error(node.position, f"{what or '.'} is {kind}: it has no field {name}")

        return member

    def _fields(self, node: _Fielded, arguments: Sequence[Operand], final: Evaluate | None) -> Evaluate:
        if not arguments and final is None:
            return self._path(node, node.path)
        receiver = self._path(node, node.path[:-1])
        name = node.path[-1]
        evaluators = [self._unfitted(argument) for argument in arguments]

        def call(frame: Frame, dot: Any) -> Any:
            # Evaluate the pipeline's value before the receiver, since it may fail or write.
            last = () if final is None else (final(frame, dot),)
            value = receiver(frame, dot)
            if value is MISSING:
                return MISSING
            if not isinstance(value, Struct) or name not in value.methods:
                raise self._source.error(node.position, f"{name} is not a method but has arguments")
            provided = [argument(frame, dot) for argument in evaluators]
            return self._call_method(frame, value, name, [*provided, *last], node.position)

        return call

    def _unfitted(self, node: Operand) -> Evaluate:
        """Compile an argument whose type depends on the method. A constant stays a node until the call."""
        return (lambda _frame, _dot: node) if isinstance(node, _CONSTANTS) else self._operand(node)

    def _call_method(
        self, frame: Frame, receiver: Struct, name: str, provided: Sequence[Any], position: int
    ) -> Any:
        method = receiver.methods[name]
        signature = signature_of(method, skip=1)
        try:
            signature.check(name, len(provided))
            types = map(signature.type_of, range(len(provided)))
            values = [
                desired.fit_constant(value, _shown(value))
                if isinstance(value, _CONSTANTS)
                else desired.fit(value)
                for desired, value in zip(types, provided, strict=True)
            ]
        except FunctionError as error:
            raise self._source.error(position, str(error)) from None
        return run(frame, method, failure_of(self._source, name, position), receiver, *values)

    # Calls -----------------------------------------------------------------------------------------------------------

    def _call(self, node: Identifier, arguments: Sequence[Operand], final: Evaluate | None) -> Evaluate:
        function = self._find_function(node.name)
        signature = function.signature
        try:
            signature.check(node.name, len(arguments) + (final is not None))
        except FunctionError as error:
            return self._failing(node.position, str(error))
        evaluators = [self._argument(argument, signature.type_of(i)) for i, argument in enumerate(arguments)]
        if final is not None:
            final = self._fitted(final, signature.type_of(len(arguments)), node.position)
        if function.stops_at is not None:
            return compile_logic(evaluators, final, function.stops_at)
        compiled = compile_call_with_rendering if signature.takes_rendering else compile_call
        return compiled(function.call, failure_of(self._source, node.name, node.position), evaluators, final)

    def _argument(self, node: Operand, desired: Type) -> Evaluate:
        if isinstance(node, _CONSTANTS):
            return self._constant(node, desired)
        if desired is ANY and isinstance(node, _Fielded) and node.path:
            return self._path(node, node.path, missing=None)
        return self._fitted(self._operand(node), desired, node.position)

    def _fitted(self, evaluate: Evaluate, desired: Type, position: int) -> Evaluate:
        if desired is ANY:

            def any_value(frame: Frame, dot: Any) -> Any:
                value = evaluate(frame, dot)
                return None if value is MISSING else value

            return any_value

        def fitted(frame: Frame, dot: Any) -> Any:
            value = evaluate(frame, dot)
            if has(value):
                return value
            try:
                return desired.fit(value)
            except FunctionError as error:
                raise self._source.error(position, str(error)) from None

        has = desired.has
        return fitted


def _shown_start(node: _Fielded) -> str:
    """Return the start of a path before its fields, for messages."""
    match node:
        case Field():
            return ""
        case Variable():
            return node.name
    return node.operand.name if isinstance(node.operand, Identifier) else "(…)"


def _evaluate_dot(_frame: Frame, dot: Any) -> Any:
    return dot


def _shown(node: Constant) -> str:
    match node:
        case Number():
            return node.text
        case String():
            return quote(node.value)
        case Boolean():
            return "true" if node.value else "false"
    return "nil"
