"""Calls of functions, compiled to closures.

* Any exception of a function fails the template, with the place and the name of the function, as a panic does in Go.
* Long results count against the limits of the rendering.
* The pipeline's value is evaluated first, and is the last argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from puller.templates.gotemplate.rendering_state import Frame
from puller.templates.limits import LONG_TEXT, Exceeded
from puller.templates.template_errors import TemplateError
from puller.templates.template_text import TemplateSource

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
        return _call_with_one(call, failure, arguments[0])
    if final is not None and not arguments:
        return _call_with_one(call, failure, final)
    if final is None and len(arguments) == 2:
        return _call_with_two(call, failure, *arguments)

    def call_with_many(frame: Frame, dot: Any) -> Any:
        last = () if final is None else (final(frame, dot),)
        values = [argument(frame, dot) for argument in arguments]
        return run(frame, call, failure, *values, *last)

    return call_with_many


def _call_with_one(call: Callable[..., Any], failure: Failure, argument: Evaluate) -> Evaluate:
    def call_with_one(frame: Frame, dot: Any) -> Any:
        value = argument(frame, dot)
        try:
            result = call(value)
            if isinstance(result, _COUNTED) and len(result) >= LONG_TEXT:
                frame.rendering.spend(result)
        except Exception as error:
            raise failure(error) from error
        return result

    return call_with_one


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
