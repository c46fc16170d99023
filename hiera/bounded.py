"""Jinja2's own filters, where one call could make too much or give another result in the next run.

Each behaves as Jinja2 documents it, up to the limits of ``hiera.bounds``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from jinja2 import pass_environment
from jinja2.filters import FILTERS as JINJA
from jinja2.filters import make_attrgetter
from jinja2.utils import htmlsafe_json_dumps

from hiera import bounds
from hiera.errors import ExpressionError, LimitError
from hiera.plain import plain


def center(value: Any, width: int = 80) -> str:
    """Jinja2's own, up to a width."""
    bounds.verify_width(width)
    return str(value).center(width)


def indent(value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Jinja2's own, up to a width."""
    bounds.verify_width(width)
    text = str(value)
    columns = len(width) if isinstance(width, str) else width
    bounds.verify_length(text, len(text) + columns * (text.count("\n") + 1))
    return str(JINJA["indent"](text, width, first, blank))


def format_text(template: str, *arguments: Any, **named: Any) -> str:
    """Jinja2's own (Python's ``%`` formats), up to a width."""
    return str(percent(str(template), named or arguments))


def percent(template: Any, arguments: Any) -> Any:
    """``%`` as an operator: a format when the left side is text, else the remainder."""
    if isinstance(template, str):
        bounds.verify_format(template)
        sizes = arguments.values() if isinstance(arguments, Mapping) else arguments
        given = sizes if not isinstance(sizes, str) and isinstance(sizes, Iterable) else [sizes]
        longest = max((len(item) for item in given if isinstance(item, str)), default=0)
        bounds.verify_length(template, len(template) + longest * template.count("%"))
    return template % arguments


def replace(value: str, old: str, new: str, count: int | None = None) -> str:
    """Jinja2's own."""
    text, old, new = str(value), str(old), str(new)
    bounds.verify_length(text, len(text) + text.count(old) * len(new))
    return text.replace(old, new, -1 if count is None else count)


@pass_environment
def join(
    environment: Any, value: Iterable[Any], separator: str = "", attribute: str | int | None = None
) -> str:
    """Jinja2's own."""
    getter = make_attrgetter(environment, attribute) if attribute is not None else lambda item: item
    texts = [str(bounds.meter.opened(getter(item))) for item in value]
    bounds.verify_length("", sum(map(len, texts)) + len(str(separator)) * len(texts))
    return str(separator).join(texts)


def batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> list[list[Any]]:
    """Jinja2's own."""
    bounds.verify_length([], linecount)
    return list(JINJA["batch"](value, linecount, fill_with))


def slices(value: Iterable[Any], count: int, fill_with: Any = None) -> list[list[Any]]:
    """Jinja2's own."""
    bounds.verify_length([], count)
    items = list(value)
    size, longer = divmod(len(items), count)
    parts = []
    for number in range(count):
        start = number * size + min(number, longer)
        part = items[start : start + size + (number < longer)]
        parts.append(part if fill_with is None or number < longer else [*part, fill_with])
    return parts


def rounded(value: float, precision: int = 0, method: str = "common") -> Any:
    """Jinja2's own, up to 100 digits."""
    if not -100 <= precision <= 100:
        raise LimitError("", f"round to {precision} digits is asked for, at most 100 are possible")
    return JINJA["round"](value, precision, method)


@pass_environment
def total(environment: Any, value: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    """Jinja2's own ``sum``; with a list as ``start`` it joins lists."""
    getter = make_attrgetter(environment, attribute) if attribute is not None else lambda item: item
    items = [getter(item) for item in value]
    if not isinstance(start, list):
        return sum(items, start)
    bounds.verify_length([], sum(map(len, items)))
    return [*start, *(part for item in items for part in item)]


def wordwrap(value: str, width: int = 79, break_long_words: bool = True, wrapstring: str = "\n") -> str:
    """Jinja2's own."""
    import textwrap

    bounds.verify_width(wrapstring)
    lines = [
        textwrap.wrap(
            line, width, expand_tabs=False, replace_whitespace=False, break_long_words=break_long_words
        )
        for line in str(value).splitlines()
    ]
    bounds.verify_length("", len(str(value)) + len(wrapstring) * sum(map(len, lines)))
    return wrapstring.join(wrapstring.join(parts) for parts in lines)


@pass_environment
def attribute(environment: Any, value: Any, name: str) -> Any:
    """Jinja2's own ``attr``, with the rules of this sandbox."""
    return environment.getattr(value, str(name))


def tojson(value: Any, indent: int | None = None) -> str:
    """Jinja2's own: JSON that is also safe inside HTML."""
    bounds.verify_width(indent or 0)
    return str(htmlsafe_json_dumps(plain(value), sort_keys=True, indent=indent))


def random(value: Any, seed: Any = None) -> Any:
    """An item of a list, or a number below this one, by ``seed`` only: ``random(seed=facts.fqdn)``."""
    from random import Random

    if seed is None:
        raise ExpressionError("", "random wants a seed, such as random(seed=facts.fqdn), so that runs agree")
    choices = range(value) if isinstance(value, int) else list(value)
    if not choices:
        raise ExpressionError("", "random was given nothing to choose from")
    return Random(str(seed)).choice(choices)  # noqa: S311  spreads hosts, keeps no secret


BOUNDED: Final[dict[str, Callable[..., Any]]] = {
    "attr": attribute,
    "batch": batch,
    "center": center,
    "format": format_text,
    "indent": indent,
    "join": join,
    "random": random,
    "replace": replace,
    "round": rounded,
    "slice": slices,
    "sum": total,
    "tojson": tojson,
    "wordwrap": wordwrap,
}
