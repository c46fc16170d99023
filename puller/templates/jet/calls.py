"""Calls and pipelines, compiled to functions of the frame.

* ``f(a, b)`` calls anywhere. ``f: a, b`` and ``value | f`` call only in an action.
* A piped value is the first argument, or replaces ``_`` in the call.
* A writer (``raw``, ``safeHtml`` …) prints, so it must be the last function of a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from puller.templates.govalue.types import MISSING
from puller.templates.jet import values
from puller.templates.jet.expressions import ExpressionCompiler, pay
from puller.templates.jet.frame import ROOT_NAMES, Frame, Output, Value
from puller.templates.jet.nodes import (
    Arguments,
    Call,
    Chain,
    Command,
    Dot,
    Expression,
    Field,
    Index,
    Name,
    Underscore,
)
from puller.templates.jet.values import Function, Writer, to_text
from puller.templates.template_errors import Exceeded, FunctionError, LimitError, TemplateError


class _Written(str):
    """Text that a writer has printed, which cannot be used in any other way."""

    __slots__ = ()


class _Argument(NamedTuple):
    """An argument, compiled for any type (``loose``), and for typed parameters."""

    loose: Value
    strict: Value


class CallCompiler(ExpressionCompiler):
    """Compiles expressions, calls and pipelines of one template."""

    def pipeline(self, commands: Sequence[Command]) -> Output:
        """Return the output of ``a | b | c``."""
        head, *remainder = commands
        if not remainder and head.arguments is None:
            return self.text(head.base)
        argument = self._head(head)
        for command in remainder:
            arguments = command.arguments or Arguments((), slot=False)
            value = self._function_call(command.base, arguments, argument, in_pipeline=True)
            argument = _Argument(value, value)
        return self.text_of(argument.loose, commands[-1].offset)

    def _head(self, command: Command) -> _Argument:
        if command.arguments is None:
            return self._argument(command.base)
        call = self._function_call(command.base, command.arguments, None, in_pipeline=True)
        return _Argument(call, call)

    def _argument(self, node: Expression) -> _Argument:
        return _Argument(self.value(node), self.unboxed(node))

    def _call(self, node: Call) -> Value:
        if not isinstance(node.base, (Name, Field, Chain, Dot)):
            return lambda frame: self.fail(node.offset, f"{node.base} cannot be called")
        return self._function_call(node.base, node.arguments, None, in_pipeline=False)

    def _function_call(
        self, base: Expression, arguments: Arguments, piped: _Argument | None, *, in_pipeline: bool
    ) -> Value:
        if isinstance(base, Name) and base.name == "isset":
            return self._isset(base, arguments, piped)
        function, offset = self.value(base), base.offset
        provided = self._arguments(arguments, piped)
        loose = [argument.loose for argument in provided]
        strict = [argument.strict for argument in provided]
        keyed = [argument.loose if place % 2 else argument.strict for place, argument in enumerate(provided)]
        # The function selects the kind of arguments. It is known only at the call, since names are variables.
        arguments_for = {"none": loose, "all": strict, "keys": keyed}

        def call(frame: Frame) -> Any:
            called = function(frame)
            if type(called) is Function:
                typed = arguments_for[called.typed]
                values = [argument(frame) for argument in typed]
                if piped is not None:
                    self._refuse_written(offset, values)
                return self._invoke(offset, frame, called, values)
            if in_pipeline and type(called) is Writer:
                return self._write(offset, frame, called, loose)
            if in_pipeline and piped is None and called is MISSING:
                return MISSING  # as in Jet, a missing value can be "called" at the head of an action
            return self.fail(offset, f"{base} cannot be called here: {_why_not(called)}")

        return call

    def _arguments(self, arguments: Arguments, piped: _Argument | None) -> list[_Argument]:
        if piped is None:
            return [self._argument(node) for node in arguments.expressions]
        provided = [
            piped if isinstance(node, Underscore) else self._argument(node) for node in arguments.expressions
        ]
        return provided if arguments.slot else [piped, *provided]

    def _invoke(self, offset: int, frame: Frame, function: Function, provided: list[Any]) -> Any:
        try:
            result = function.call(frame, provided)
            pay(frame, result)
        except (LimitError, RecursionError):
            raise
        except Exceeded as error:
            self.fail(offset, error)
        except (FunctionError, ValueError, TemplateError) as error:
            raise self.source.error(offset, f"{function.name}: {error}") from error
        return result

    def _write(self, offset: int, frame: Frame, writer: Writer, arguments: list[Value]) -> str:
        provided = [argument(frame) for argument in arguments]
        self._refuse_written(offset, provided)
        if any(value is MISSING for value in provided):
            self.fail(offset, f"{writer.name}: the value to print is missing")
        pieces = [
            self.printed(offset, frame, value, lambda v: writer.escape(to_text(v))) for value in provided
        ]
        return _Written("".join(pieces))

    def _refuse_written(self, offset: int, provided: list[Any]) -> None:
        if _Written in map(type, provided):  # it must be the piped value
            self.fail(offset, "a writer such as raw must be the last of a pipeline")

    # isset

    def _isset(self, base: Name, arguments: Arguments, piped: _Argument | None) -> Value:
        if not arguments.expressions and piped is None:
            return lambda frame: self.fail(base.offset, "isset: takes at least 1 argument")
        checks = [self._is_set(node, piped) for node in arguments.expressions]
        if piped is None:
            return lambda frame: all(check(frame) for check in checks)

        def piped_isset(frame: Frame) -> bool:
            piped.loose(frame)  # its value counts as set, but evaluating it must not fail
            return all(check(frame) for check in checks)

        return piped_isset

    def _is_set(self, node: Expression, piped: _Argument | None) -> Callable[[Frame], bool]:
        match node:
            case Name(name=name):
                return lambda frame: _is_name_set(frame, name)
            case Dot():
                return lambda frame: _is_something(frame.dot)
            case Field() | Chain():
                return self._evaluates(self.value(node))
            case Index(base=base, position=position):
                pieces = [
                    self._is_set(base, piped),
                    self._is_set(position, piped),
                    self._evaluates(self.value(node)),
                ]
                return lambda frame: all(part(frame) for part in pieces)
            case Underscore():
                return lambda frame: piped is not None
        return lambda frame: True  # Jet evaluates no other nodes here, so that even isset(nil) is true

    def _evaluates(self, value: Value) -> Callable[[Frame], bool]:
        def check(frame: Frame) -> bool:
            try:
                return _is_something(value(frame))
            except LimitError:
                raise
            except TemplateError:
                return False

        return check


def _is_name_set(frame: Frame, name: str) -> bool:
    cell = frame.variables.get(name)
    if cell is not None:
        return _is_something(cell[0])
    if frame.scope is not None and (name in ROOT_NAMES or name in frame.scope):
        return _is_something(frame.scope[name])
    return name in frame.functions


def _is_something(value: Any) -> bool:
    return value is not MISSING and value is not None


def _why_not(called: Any) -> str:
    if type(called) is Writer:
        return "a writer prints and does not return a value"
    return "the value is missing" if called is MISSING else f"it is {values.describe(called)}, not a function"
