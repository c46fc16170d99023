"""Expressions, compiled to functions of the frame.

* A tree is compiled once. Evaluation neither walks the tree nor parses text.
* Errors get their place only here, where the node is known.
* *Boxed*: while an item of a list is ``.``, Go gives it the type *any value*. Such a dot prints, compares and is
  indexed like any value, but it cannot be calculated with, is true unless nil, and fits no typed parameter. A named
  variable unboxes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from puller.templates.govalue.printf import format_value
from puller.templates.govalue.types import MISSING
from puller.templates.jet import values
from puller.templates.jet.frame import ROOT_NAMES, Frame, Output, Value
from puller.templates.jet.nodes import (
    Binary,
    Call,
    Chain,
    Dot,
    Expression,
    Field,
    Index,
    Key,
    Literal,
    Name,
    Nil,
    Not,
    Sign,
    Slice,
    Ternary,
    Underscore,
)
from puller.templates.jet.values import is_true, to_text
from puller.templates.template_errors import LONG_TEXT, Exceeded, FunctionError, TemplateSource, similar_names

_T = TypeVar("_T")
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": values.add,
    "-": values.subtract,
    "*": values.multiply,
    "/": values.divide,
    "%": values.modulo,
    "<": values.less,
    "<=": values.less_or_equal,
    ">": values.greater,
    ">=": values.greater_or_equal,
}
_GIVES_BOOLEAN: Final = frozenset(("<", "<=", ">", ">=", "==", "!=", "&&", "||"))


class ExpressionCompiler:
    """Compiles the expressions of a template. The subclass compiles calls."""

    def __init__(self, source: TemplateSource) -> None:
        self.source = source
        self._compiled: dict[int, Value] = {}

    def fail(self, offset: int, problem: Exception | str) -> NoReturn:
        """Raise the problem as an error with its place."""
        if isinstance(problem, Exceeded):
            raise self.source.limit(offset, problem) from problem
        error = self.source.error(offset, str(problem))
        raise error from (problem if isinstance(problem, Exception) else None)

    def value(self, node: Expression) -> Value:
        """Return the expression's value, compiled only once, since nested callers can request it repeatedly."""
        compiled = self._compiled.get(id(node))
        if compiled is None:
            compiled = self._compiled[id(node)] = self._value(node)
        return compiled

    def finish(self) -> None:
        """Discard the tree after compilation."""
        self._compiled.clear()

    def _value(self, node: Expression) -> Value:
        match node:
            case Literal(value=value):
                return lambda frame: value
            case Nil():
                return lambda frame: MISSING
            case Dot():
                return lambda frame: frame.dot
            case Underscore(offset=offset):
                return lambda frame: self.fail(offset, "_ has a value only in a call that is piped to")
            case Name():
                return self._name(node)
            case Field():
                return self._field(node)
            case Chain():
                return self._chain(node)
            case Index():
                return self._index(node)
            case Slice():
                return self._slice(node)
            case Call():
                return self._call(node)
            case Sign():
                return self._sign(node)
            case Not(operand=operand):
                is_operand_true = self.truth(operand)
                return lambda frame: not is_operand_true(frame)
            case Binary():
                return self._binary(node)
            case Ternary():
                return self._choice(node, self.value)

    def unboxed(self, node: Expression) -> Value:
        """Return the value for typed uses, which reject a boxed dot."""
        if isinstance(node, Ternary):
            return self._choice(node, self.unboxed)
        if not isinstance(node, Dot):
            return self.value(node)
        offset = node.offset

        def dot(frame: Frame) -> Any:
            if frame.boxed:
                self.fail(offset, "the item . has no type here, give it a name: range i, item := …")
            return frame.dot

        return dot

    def truth(self, node: Expression) -> Callable[[Frame], bool]:
        """Return whether the expression is true, as a function of the frame."""
        if isinstance(node, Dot):
            return lambda frame: frame.dot is not None if frame.boxed else is_true(frame.dot)
        if isinstance(node, Ternary):
            return self._choice(node, self.truth)
        value = self.value(node)
        if isinstance(node, Not) or (isinstance(node, Binary) and node.operator in _GIVES_BOOLEAN):
            return value
        return lambda frame: is_true(value(frame))

    def text(self, node: Expression) -> Output:
        """Return the output of an expression."""
        if isinstance(node, Ternary):
            return self._choice(node, self.text)
        if isinstance(node, Dot):
            offset = node.offset
            return lambda frame: self.printed(
                offset, frame, frame.dot, format_value if frame.boxed else to_text
            )
        value = self.value(node)
        if isinstance(node, Name):
            return self._text_of_name(node, value)
        if isinstance(node, Field) and len(node.keys) == 1:
            return self._text_of_key(node, value)
        return self.text_of(value, node.offset)

    # Shortcuts for the most common outputs, without a call for the value. ``text_of`` defines the format.

    def _text_of_name(self, node: Name, resolve: Value) -> Output:
        name, offset = node.name, node.offset

        def text(frame: Frame) -> str:
            cell = frame.variables.get(name)
            result = resolve(frame) if cell is None else cell[0]
            kind = type(result)
            if kind is str and len(result) < LONG_TEXT:
                return result  # type: ignore[no-any-return]
            if kind is int:
                try:
                    return str(result)
                except ValueError:  # facts may contain a number with more digits than Python prints
                    pass
            return self.printed(offset, frame, result, to_text)

        return text

    def _text_of_key(self, node: Field, look_up: Value) -> Output:
        name, offset = node.keys[0].name, node.offset

        def text(frame: Frame) -> str:
            dot = frame.dot
            if type(dot) is not dict or (result := dot.get(name, MISSING)) is MISSING:
                result = look_up(frame)
            kind = type(result)
            if kind is str and len(result) < LONG_TEXT:
                return result  # type: ignore[no-any-return]
            if kind is int:
                try:
                    return str(result)
                except ValueError:  # facts may contain a number with more digits than Python prints
                    pass
            return self.printed(offset, frame, result, to_text)

        return text

    def text_of(self, value: Value, offset: int) -> Output:
        """Return the output of a compiled expression."""

        def text(frame: Frame) -> str:
            result = value(frame)
            kind = type(result)
            if kind is str and len(result) < LONG_TEXT:
                return result  # type: ignore[no-any-return]
            if kind is int:
                try:
                    return str(result)
                except ValueError:  # facts may contain a number with more digits than Python prints
                    pass
            return self.printed(offset, frame, result, to_text)

        return text

    def printed(self, offset: int, frame: Frame, value: Any, convert: Callable[[Any], str]) -> str:
        """Return the value as text. A long text counts against the budget."""
        try:
            text = convert(value)
            pay(frame, text)
        except (FunctionError, ValueError) as error:
            self.fail(offset, error)
        return text

    def _choice(
        self, node: Ternary, compile_branch: Callable[[Expression], Callable[[Frame], _T]]
    ) -> Callable[[Frame], _T]:
        condition = self.truth(node.condition)
        yes, no = compile_branch(node.yes), compile_branch(node.no)
        return lambda frame: yes(frame) if condition(frame) else no(frame)

    # Looking up

    def _name(self, node: Name) -> Value:
        name, offset = node.name, node.offset
        is_root = name in ROOT_NAMES

        def resolve(frame: Frame) -> Any:
            cell = frame.variables.get(name)
            if cell is not None:
                return cell[0]
            scope = frame.scope
            if scope is not None and (is_root or name in scope):
                return scope[name]
            function = frame.functions.get(name)
            if function is None:
                self.fail(offset, f"{name} is not defined{similar_names(name, frame.names())}")
            return function

        return resolve

    def _field(self, node: Field) -> Value:
        names = tuple(key.name for key in node.keys)
        name = names[0]

        def look_up_name(frame: Frame) -> Any:
            dot = frame.dot
            if type(dot) is dict and (value := dot.get(name, MISSING)) is not MISSING:
                return value
            return self._walk(node, dot, may_miss=False)

        def look_up(frame: Frame) -> Any:
            value = frame.dot
            for name in names:
                if type(value) is not dict:
                    break
                value = value.get(name, MISSING)
            else:
                if value is not MISSING:
                    return value
            return self._walk(node, frame.dot, may_miss=False)

        return look_up_name if len(names) == 1 else look_up

    def _chain(self, node: Chain) -> Value:
        base, names = self.value(node.base), tuple(key.name for key in node.keys)
        on_dot = isinstance(node.base, Dot)

        def look_up(frame: Frame) -> Any:
            start = value = base(frame)
            for name in names:
                if type(value) is not dict:
                    break
                value = value.get(name, MISSING)
            else:
                if value is not MISSING:
                    return value
            return self._walk(node, start, may_miss=not (on_dot and frame.boxed))

        return look_up

    def _walk(self, node: Field | Chain, value: Any, *, may_miss: bool) -> Any:
        """Follow the keys for values other than plain mappings. The last key may be missing in a map."""
        for key in node.keys:
            container, value = value, self.step(value, key)
            if value is MISSING and not (may_miss and key is node.keys[-1]):
                known = list(container) if isinstance(container, dict) else []
                self.fail(key.offset, f"{node}: unknown key {key.name!r}{similar_names(key.name, known)}")
        return value

    def step(self, value: Any, key: Key) -> Any:
        """Return ``value.key``."""
        if type(value) is dict:
            return value.get(key.name, MISSING)
        try:
            return values.field(value, key.name)
        except FunctionError as error:
            self.fail(key.offset, error)

    def _index(self, node: Index) -> Value:
        base, position, offset = self.value(node.base), self.unboxed(node.position), node.offset

        def look_up(frame: Frame) -> Any:
            container, desired = base(frame), position(frame)
            try:
                return values.index(container, desired)
            except FunctionError as error:
                self.fail(offset, error)

        return look_up

    def _slice(self, node: Slice) -> Value:
        base, offset = self.unboxed(node.base), node.offset
        start = self.unboxed(node.start) if node.start else _no_bound
        end = self.unboxed(node.end) if node.end else _no_bound

        def cut(frame: Frame) -> Any:
            value, first, last = base(frame), start(frame), end(frame)
            try:
                return values.cut(value, first, last)
            except FunctionError as error:
                self.fail(offset, error)

        return cut

    def _call(self, node: Call) -> Value:
        raise NotImplementedError

    # Operators

    def _binary(self, node: Binary) -> Value:
        if node.operator in ("&&", "||"):
            return self._logical(node)
        if node.operator in ("==", "!="):
            return self._equality(node)
        left, right = self.unboxed(node.left), self.unboxed(node.right)
        loose_right = self.value(node.right)  # when joined to text, even a boxed dot is printed
        operation, offset = _ARITHMETIC[node.operator], node.offset
        is_constant = isinstance(node.right, Literal)
        constant = node.right.value if isinstance(node.right, Literal) else None

        def calculate(frame: Frame) -> Any:
            a = left(frame)
            b = constant if is_constant else loose_right(frame) if type(a) is str else right(frame)
            try:
                result = operation(a, b)
                if type(result) is str and len(result) >= LONG_TEXT:
                    pay(frame, result)
            except (FunctionError, ValueError) as error:
                self.fail(offset, error)
            return result

        return calculate

    def _logical(self, node: Binary) -> Value:
        left, right = self.truth(node.left), self.truth(node.right)
        if node.operator == "&&":
            return lambda frame: left(frame) and right(frame)
        return lambda frame: left(frame) or right(frame)

    def _equality(self, node: Binary) -> Value:
        left, right, offset = self.value(node.left), self.value(node.right), node.offset
        desired = node.operator == "=="
        if isinstance(node.right, Literal) and isinstance(node.right.value, str):
            return self._equality_with(node.right.value, left, desired=desired)

        def compare(frame: Frame) -> bool:
            a, b = left(frame), right(frame)
            try:
                return values.equal(a, b) is desired
            except ValueError as error:
                self.fail(offset, error)

        return compare

    def _equality_with(self, text: str, remaining: Value, *, desired: bool) -> Value:
        def compare(frame: Frame) -> bool:
            value = remaining(frame)
            return (isinstance(value, str) and value == text) is desired

        return compare

    def _sign(self, node: Sign) -> Value:
        operand, offset = self.unboxed(node.operand), node.offset
        operation = values.negate if node.operator == "-" else values.affirm

        def apply(frame: Frame) -> Any:
            value = operand(frame)
            try:
                return operation(value)
            except FunctionError as error:
                self.fail(offset, error)

        return apply


def pay(frame: Frame, result: Any) -> None:
    """Count a new text if it is long. Raises Exceeded."""
    if isinstance(result, (str, bytes)) and len(result) >= LONG_TEXT:
        frame.budget.spend(len(result))


def _no_bound(_: Frame) -> None:
    return None
