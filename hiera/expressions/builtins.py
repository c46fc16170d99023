"""Jinja2's own filters with limits: a single call could make too much, or differ in the next run.

Each behaves as Jinja2 documents it, up to the limits of ``hiera.limits``.
"""

from __future__ import annotations

import re
import string
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from jinja2 import pass_environment
from jinja2.filters import FILTERS as JINJA
from jinja2.filters import make_attrgetter
from jinja2.utils import htmlsafe_json_dumps

from hiera import limits
from hiera.errors import ExpressionError, LimitError
from hiera.limits import SCALARS, meter
from hiera.values import MISSING, described, plain, step


def center(value: Any, width: int = 80) -> str:
    """Jinja2's ``center``, with a limit of the width."""
    limits.verify_width(width)
    return limits.text_of(value).center(width)


def indent(value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Jinja2's ``indent``, with a limit of the width. Raises ExpressionError for null."""
    limits.verify_width(width)
    if value is None:
        raise ExpressionError("", "indent requires text, not null")
    text = limits.text_of(value)
    columns = len(width) if isinstance(width, str) else width
    limits.verify_length(text, len(text) + columns * (text.count("\n") + 1))
    return str(JINJA["indent"](text, width, first, blank))


def format_text(template: str, *arguments: Any, **named: Any) -> str:
    """Jinja2's ``format`` (Python's ``%`` formats), with a limit of the width."""
    return str(percent(limits.text_of(template), named or arguments))


class _Fields(string.Formatter):
    """The formatter of ``str.format``. Fields reach arguments, and keys and indexes of plain values."""

    def __init__(self) -> None:
        self._length = 0

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        first, *steps = re.findall(r"[^.\[\]]+", field_name) or [field_name]
        value = self.get_value(int(first) if first.isdecimal() else first, args, kwargs)
        for key in steps:
            value = step(value, int(key) if key.isdecimal() else key)
            if value is MISSING:
                raise ExpressionError("", f"format has no value for {{{field_name}}}")
        return value, first

    def format_field(self, value: Any, format_spec: str) -> str:
        if any(
            len(number) > 9 or int(number) > limits.WIDTH_LIMIT for number in re.findall(r"\d+", format_spec)
        ):
            raise LimitError("", f"a width in {format_spec!r} is more than {limits.WIDTH_LIMIT}")
        text = format(value if type(value) in SCALARS else limits.text_of(value), format_spec)
        self._length += len(text)
        limits.verify_length("", self._length)
        return text

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return super().convert_field(value if type(value) in SCALARS else limits.text_of(value), conversion)


def format_method(text: str, *arguments: Any, **named: Any) -> str:
    """Python's ``str.format``, with limits. Raises ExpressionError and LimitError."""
    return _Fields().vformat(text, arguments, named)


def percent(template: Any, arguments: Any) -> Any:
    """Apply the operator ``%``: a format if the left side is text, else the remainder."""
    if isinstance(template, str):
        limits.verify_format(template)
        if type(arguments) is tuple and SCALARS.issuperset(map(type, arguments)):
            longest = max(map(_printed_length, arguments), default=0)  # each is written once
            limits.verify_length(template, len(template) + longest * template.count("%"))
            return template % arguments
        if not isinstance(arguments, (Mapping, list, tuple)):
            limits.verify_writable(arguments)
        provided = arguments.values() if isinstance(arguments, Mapping) else arguments
        longest = max(
            map(_printed_length, provided if isinstance(provided, Iterable) else [provided]), default=0
        )
        whole = _printed_length(arguments)  # a list is one item, but a tuple is one item for each value
        limits.verify_length(template, len(template) + max(longest, whole) * template.count("%"))
    return template % arguments


def replace(value: str, old: str, new: str, count: int | None = None) -> str:
    """Jinja2's ``replace``, with a limit of the length."""
    text, old, new = map(limits.text_of, (value, old, new))
    if (len(text) + 1) * (len(new) + 1) > limits.TEXT_LIMIT:  # shorter results need no counting
        limits.verify_length(text, len(text) + text.count(old) * len(new))
    return text.replace(old, new, -1 if count is None else count)


def dictsort(
    value: Mapping[Any, Any], case_sensitive: bool = False, by: str = "key", reverse: bool = False
) -> Any:
    """Jinja2's ``dictsort``. Sorting by key reveals no secrets."""
    return JINJA["dictsort"](value if by == "key" else meter.revealed(value), case_sensitive, by, reverse)


@pass_environment
def join(
    environment: Any, value: Iterable[Any], separator: str = "", attribute: str | int | None = None
) -> str:
    """Jinja2's ``join``, with a limit of the length."""
    getter = make_attrgetter(environment, attribute) if attribute is not None else lambda item: item
    separator = limits.text_of(separator)
    if isinstance(value, str):
        limits.verify_length([], len(value))
    texts, length = [], 0
    for item in value:
        part = getter(item)
        texts.append(part if type(part) is str else limits.text_of(meter.revealed(part)))
        length += len(texts[-1]) + len(separator)
        if length > limits.TEXT_LIMIT:
            limits.verify_length("", length)
    return separator.join(texts)


def batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> list[list[Any]]:
    """Jinja2's ``batch``, with a limit of the length."""
    limits.verify_length([], linecount)
    if isinstance(value, str):
        limits.verify_length([], len(value))
    return list(JINJA["batch"](value, linecount, fill_with))


def slices(value: Iterable[Any], count: int, fill_with: Any = None) -> list[list[Any]]:
    """Jinja2's ``slice``, with a limit of the length."""
    limits.verify_length([], count)
    if isinstance(value, str):
        limits.verify_length([], len(value))
    items = list(value)
    size, longer = divmod(len(items), count)
    pieces = []
    for number in range(count):
        start = number * size + min(number, longer)
        part = items[start : start + size + (number < longer)]
        pieces.append(part if fill_with is None or number < longer else [*part, fill_with])
    return pieces


def rounded(value: float, precision: int = 0, method: str = "common") -> Any:
    """Jinja2's ``round``, up to 100 digits. Raises LimitError beyond."""
    if not -100 <= precision <= 100:
        raise LimitError("", f"round accepts at most 100 digits, not {precision}")
    return JINJA["round"](value, precision, method)


@pass_environment
def total(environment: Any, value: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    """Jinja2's ``sum``. With a list as ``start`` it joins lists."""
    getter = make_attrgetter(environment, attribute) if attribute is not None else lambda item: item
    items = [getter(item) for item in value]
    if not isinstance(start, list):
        return sum(items, start)
    limits.verify_length([], sum(map(len, items)))
    return [*start, *(part for item in items for part in item)]


@pass_environment
def truncate(environment: Any, value: Any, *arguments: Any, **named: Any) -> str:
    """Jinja2's ``truncate``, for text only. Raises ExpressionError for other values."""
    if not isinstance(value, str):
        raise ExpressionError("", f"truncate requires text, not {described(value)}")
    return str(JINJA["truncate"](environment, value, *arguments, **named))


def wordwrap(value: str, width: int = 79, break_long_words: bool = True, wrapstring: str = "\n") -> str:
    """Jinja2's ``wordwrap``. Raises LimitError for long texts."""
    limits.verify_width(wrapstring)
    text = limits.text_of(value)
    if len(text) > _WRAPPED_LIMIT:
        raise LimitError("", f"wordwrap accepts at most {_WRAPPED_LIMIT} characters, not {len(text)}")
    lines = [
        textwrap.wrap(
            line, width, expand_tabs=False, replace_whitespace=False, break_long_words=break_long_words
        )
        for line in text.splitlines()
    ]
    limits.verify_length("", len(text) + len(wrapstring) * sum(map(len, lines)))
    return wrapstring.join(wrapstring.join(parts) for parts in lines)


@pass_environment
def attribute(environment: Any, value: Any, name: str) -> Any:
    """Jinja2's ``attr``, with the rules of this sandbox."""
    return environment.getattr(value, str(name))


def tojson(value: Any, indent: int | None = None) -> str:
    """Jinja2's ``tojson``: JSON that is also safe inside HTML."""
    limits.verify_width(indent or 0)
    limits.verify_printed(value := plain(value), lambda text: str(htmlsafe_json_dumps(text)), indent or 0)
    return str(htmlsafe_json_dumps(value, sort_keys=True, indent=indent))


def pprint(value: Any) -> str:
    """Jinja2's ``pprint``, with a limit of the length."""
    limits.verify_pretty(value)
    return str(JINJA["pprint"](value))


_WRAPPED_LIMIT: Final = 1 << 20  # characters: the standard library takes seconds for longer texts


def _printed_length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (dict, list, tuple)):
        return limits.printed_length(value)
    return limits.NUMBER_BITS


BOUNDED: Final[dict[str, Callable[..., Any]]] = {
    "attr": attribute,
    "batch": batch,
    "center": center,
    "dictsort": dictsort,
    "format": format_text,
    "indent": indent,
    "join": join,
    "pprint": pprint,
    "replace": replace,
    "round": rounded,
    "slice": slices,
    "sum": total,
    "tojson": tojson,
    "truncate": truncate,
    "wordwrap": wordwrap,
}
