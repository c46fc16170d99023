"""Calls of template functions: the state of a rendering, signatures, and the conversion of arguments as in Go.

* A Python function's annotations are its signature in Go: ``str`` is ``string``, ``int`` is ``int``, ``Any`` is
  ``interface {}``, ``*rest: Any`` is variadic.
* Types are strict: an ``int64`` is not an ``int``, and a number is not a string. Only constants of the template are
  untyped.
* An object exposes only the fields and methods that it lists. Templates never reach a Python attribute.
* A nil slice or map is empty, is ``null`` in JSON, and cannot be written to.
* Calls are compiled to closures. The pipeline's value is evaluated first, and is the last argument.
* Any exception of a function fails the template, with the place and the name of the function, as a panic does in Go.
* Long results count against the limits of the rendering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final

from puller.templates.gotemplate.nodes import Boolean, Nil, Number, String
from puller.templates.govalue.strconv import Complex
from puller.templates.govalue.types import (
    MISSING,
    GoObject,
    Int64,
    Ints,
    NilMap,
    NilSlice,
    StringMap,
    Strings,
    type_name,
)
from puller.templates.template_errors import (
    LONG_TEXT,
    Budget,
    Exceeded,
    FunctionError,
    Pieces,
    TemplateError,
    TemplateSource,
)

_CHARACTERS_PER_ITEM: Final = 8  # memory of a list item, in characters


class Rendering:
    """The rendering of a file or partial: its output, and the functions that it can use."""

    __slots__ = ("_pieces", "budget", "environ", "functions", "texts")

    def __init__(
        self, functions: Mapping[str, Callable[..., Any]], environ: Mapping[str, Any], budget: Budget
    ) -> None:
        self.functions = functions
        self.environ = environ
        self.budget = budget
        self.texts: list[str] = []
        """The latest output. Loops and calls gather it."""
        self._pieces = Pieces(budget)

    def gather(self) -> None:
        """Count the latest output. Raises Exceeded if it is too much."""
        self._pieces.take(self.texts)

    def text(self) -> str:
        """Return the whole output. Raises Exceeded if it is too much."""
        self.gather()
        return self._pieces.joined()

    def spend(self, result: str | list[Any]) -> None:
        """Count a long result of a function. Raises Exceeded if it is too much."""
        self.budget.spend(len(result) if isinstance(result, str) else _CHARACTERS_PER_ITEM * len(result))

    def allow(self, characters: int) -> None:
        """Check the length of a text before a function expands a shorter one. Raises Exceeded if it is too long."""
        if characters > self.budget.limits.characters:
            self.budget.spend(characters)

    def host(self, name: str) -> Callable[..., Any]:
        """Return a function of the renderer. Raises FunctionError if it does not exist."""
        try:
            return self.functions[name]
        except KeyError:
            raise FunctionError(f"{name} is not available here") from None


class Frame:
    """The variables of one call of a template, ``$`` first, and the output of the call."""

    __slots__ = ("rendering", "variables", "write")

    def __init__(self, rendering: Rendering, dot: Any, size: int) -> None:
        self.rendering = rendering
        self.write = rendering.texts.append
        self.variables = [MISSING] * size
        self.variables[0] = dot


# Go values that only this engine uses, in addition to ``govalue``.


class Struct(GoObject):
    """A value with fields and methods.

    Methods are functions with the value as their first parameter. Their annotations are their signature in Go
    (``function_calls.py``).
    """

    methods: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def fields(self) -> Mapping[str, Any]:
        """Return the exported fields by name."""
        return {}


class Uint32(int):
    """Go's ``uint32``: only constants can have this type."""

    go_type: ClassVar[str] = "uint32"


Constant = Boolean | Nil | Number | String


@dataclass(frozen=True, slots=True)
class Type:
    """A type of Go: its name, a test of its values, a function for nil (if nil fits), and the value of a constant.

    ``literal`` returns a constant of the template as a value of this type, or ``None`` if it does not fit.
    """

    name: str
    has: Callable[[Any], bool]
    nil: Callable[[], Any] | None = None
    literal: Callable[[Constant], Any] = lambda _: None

    def fit(self, value: Any) -> Any:
        """Return the value as an argument for a parameter of this type. Raises FunctionError if it does not fit."""
        if self.has(value):
            return value
        if value is not None and value is not MISSING:
            raise FunctionError(f"wrong type for value; expected {self.name}; got {type_name(value)}")
        if self.nil is None:
            raise FunctionError(f"invalid value; expected {self.name}")
        return self.nil()

    def fit_constant(self, constant: Constant, shown: str) -> Any:
        """Return a constant of the template as a value of this type. Raises FunctionError with ``shown``."""
        if isinstance(constant, Nil):
            if self.nil is None:
                raise FunctionError(f"cannot assign nil to {self.name}")
            return self.nil()
        value = self.literal(constant)
        if value is None:
            raise FunctionError(f"expected {self.name}; found {shown}")
        return value


def ideal_value(constant: Constant) -> Any:
    """Return a constant as a value without a required type. Raises FunctionError if it overflows Go's ``int``."""
    if not isinstance(constant, Number):
        return None if isinstance(constant, Nil) else constant.value
    value = constant.ideal
    if value is None:
        raise FunctionError(f"{constant.text} overflows int")
    return Complex(value) if isinstance(value, complex) else value


def _integer(constant: Constant) -> int | None:
    return constant.integer if isinstance(constant, Number) else None


def _int64(constant: Constant) -> Int64 | None:
    integer = _integer(constant)
    return None if integer is None else Int64(integer)


def _uint32(constant: Constant) -> Uint32 | None:
    integer = _integer(constant)
    return None if integer is None or integer < 0 else Uint32(integer % 2**32)


def _float(constant: Constant) -> float | None:
    return constant.real if isinstance(constant, Number) else None


def _text(constant: Constant) -> str | None:
    return constant.value if isinstance(constant, String) else None


def _boolean(constant: Constant) -> bool | None:
    return constant.value if isinstance(constant, Boolean) else None


ANY: Final = Type("interface {}", lambda value: value is not MISSING, lambda: None, ideal_value)

_TYPES: Final = {
    "Any": ANY,
    "str": Type(
        "string",
        lambda value: isinstance(value, str),
        literal=_text,
    ),
    # Not isinstance: bool, int64 and uint32 are subclasses of int here, but other types in Go.
    "int": Type("int", lambda value: type(value) is int, literal=_integer),
    "Int64": Type("int64", lambda value: isinstance(value, Int64), literal=_int64),
    "Uint32": Type("uint32", lambda value: isinstance(value, Uint32), literal=_uint32),
    "float": Type(
        "float64",
        lambda value: isinstance(value, float),
        literal=_float,
    ),
    "bool": Type(
        "bool",
        lambda value: isinstance(value, bool),
        literal=_boolean,
    ),
    "dict[str, Any]": Type(
        "map[string]interface {}",
        lambda value: isinstance(value, dict) and not isinstance(value, StringMap),
        NilMap,
    ),
    "list[Any]": Type(
        "[]interface {}",
        lambda value: isinstance(value, (list, tuple)) and not isinstance(value, (Strings, Ints)),
        NilSlice,
    ),
}


def define_type(annotation: str, name: str, has: Callable[[Any], bool]) -> None:
    """Make a class of values usable as an annotation. Nil does not fit it."""
    _TYPES[annotation] = Type(name, has)


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's parameters: the fixed types, and the type of all further arguments (``None`` forbids them).

    ``takes_rendering``: the calling rendering is its first argument.
    """

    fixed: tuple[Type, ...]
    rest: Type | None = None
    takes_rendering: bool = False

    def type_of(self, index: int) -> Type:
        """Return the type of the argument at this index, which ``check`` must have allowed."""
        if index < len(self.fixed):
            return self.fixed[index]
        assert self.rest is not None  # noqa: S101  for the type checker: ``check`` counted
        return self.rest

    def check(self, name: str, count: int) -> None:
        """Raise FunctionError for a call with too few or too many arguments."""
        if self.rest is not None and count < len(self.fixed):
            raise FunctionError(
                f"wrong number of args for {name}: want at least {len(self.fixed)} got {count}"
            )
        if self.rest is None and count != len(self.fixed):
            raise FunctionError(f"wrong number of args for {name}: want {len(self.fixed)} got {count}")


@cache
def signature_of(function: Callable[..., Any], skip: int = 0) -> Signature:
    """Read a function's annotations. ``skip`` omits first parameters, such as the receiver of a method."""
    code = function.__code__
    names = code.co_varnames[skip : code.co_argcount]
    annotations = function.__annotations__
    takes_rendering = bool(names) and annotations[names[0]] == "Rendering"
    fixed = tuple(_TYPES[annotations[name]] for name in names[takes_rendering:])
    is_variadic = code.co_flags & 0x04  # inspect.CO_VARARGS, without the costly import of inspect
    remainder = _TYPES[annotations[code.co_varnames[code.co_argcount]]] if is_variadic else None
    return Signature(fixed, remainder, takes_rendering)


Evaluate = Callable[[Frame, Any], Any]
"""A compiled operand: returns its value in a frame, with this dot."""

Failure = Callable[[Exception], Exception]

_COUNTED: Final = (str, list)


def failure_of(source: TemplateSource, name: str, position: int) -> Failure:
    """Return the converter of errors from the function ``name``, called at ``position``."""

    def failure(error: Exception) -> Exception:
        if isinstance(error, RecursionError):
            return source.limit(position, "templates and values are nested too deeply")
        if isinstance(error, Exceeded):
            return source.limit(position, error)
        kind = type(error) if isinstance(error, TemplateError) else TemplateError  # an error in a partial
        return source.error(position, f"error calling {name}: {error}", kind)

    return failure


def compile_call(
    call: Callable[..., Any], failure: Failure, arguments: Sequence[Evaluate], final: Evaluate | None
) -> Evaluate:
    """Return the call of a function of values only."""
    # Most calls have one or two arguments, and need no list.
    if final is None and len(arguments) == 1:
        return _call_with_argument(call, failure, arguments[0])
    if final is not None and not arguments:
        return _call_with_argument(call, failure, final)
    if final is None and len(arguments) == 2:
        return _call_with_two(call, failure, *arguments)

    def call_with_many(frame: Frame, dot: Any) -> Any:
        last = () if final is None else (final(frame, dot),)
        values = [argument(frame, dot) for argument in arguments]
        return run(frame, call, failure, *values, *last)

    return call_with_many


def _call_with_argument(call: Callable[..., Any], failure: Failure, argument: Evaluate) -> Evaluate:
    def call_with_argument(frame: Frame, dot: Any) -> Any:
        value = argument(frame, dot)
        try:
            result = call(value)
            if isinstance(result, _COUNTED) and len(result) >= LONG_TEXT:
                frame.rendering.spend(result)
        except Exception as error:
            raise failure(error) from error
        return result

    return call_with_argument


def _call_with_two(call: Callable[..., Any], failure: Failure, first: Evaluate, second: Evaluate) -> Evaluate:
    def call_with_two(frame: Frame, dot: Any) -> Any:
        left, right = first(frame, dot), second(frame, dot)
        try:
            result = call(left, right)
            if isinstance(result, _COUNTED) and len(result) >= LONG_TEXT:
                frame.rendering.spend(result)
        except Exception as error:
            raise failure(error) from error
        return result

    return call_with_two


def compile_call_with_rendering(
    call: Callable[..., Any], failure: Failure, arguments: Sequence[Evaluate], final: Evaluate | None
) -> Evaluate:
    """Return the call of a function with the rendering as its first argument, followed by values."""

    def call_with_rendering(frame: Frame, dot: Any) -> Any:
        last = () if final is None else (final(frame, dot),)
        values = [argument(frame, dot) for argument in arguments]
        return run(frame, call, failure, frame.rendering, *values, *last)

    return call_with_rendering


def run(frame: Frame, call: Callable[..., Any], failure: Failure, *values: Any) -> Any:
    """Call a function and return its result. Raises the result of ``failure`` for an error."""
    try:
        result = call(*values)
        if isinstance(result, _COUNTED) and len(result) >= LONG_TEXT:
            frame.rendering.spend(result)
    except Exception as error:
        raise failure(error) from error
    return result


def compile_logic(arguments: Sequence[Evaluate], final: Evaluate | None, stops_at: bool) -> Evaluate:
    """Compile ``and`` and ``or``: the first decisive argument, or the last. Later arguments are not evaluated."""

    def decide(frame: Frame, dot: Any) -> Any:
        value = last = None if final is None else final(frame, dot)
        for argument in arguments:
            value = argument(frame, dot)
            if bool(value) is stops_at:
                return value
        return value if final is None else last

    return decide
