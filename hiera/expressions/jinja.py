"""The one place that builds Jinja2 environments: sandboxed, strict and bounded.

* A name, key or item that does not exist is an error wherever it is used, except by ``default`` and
  ``is defined``. What is asked of it (``nope.deeper``) is as missing as itself.
* ``a.b`` on a mapping is the key ``b``; where there is no such key, ``get``, ``items``, ``keys`` and
  ``values`` work. In template files text has its harmless methods too. Nothing else of Python's objects can
  be reached.
* Loops, calls, operators and filters pay from one budget (``hiera.limits``).
* Secrets are opened for whoever uses them here; then the result is a secret.
* A condition without ``else`` that is false is the empty text, as Jinja2 prints it.
* Every failure is one of ``hiera.errors``; where a secret was looked at, its sentence quotes nothing.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from jinja2 import (
    BaseLoader,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
    nodes,
)
from jinja2 import UndefinedError as JinjaUndefinedError
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import TemplateModule
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import (
    BlockReference,
    Context,
    LoopContext,
    Macro,
    StrictUndefined,
    TemplateReference,
    Undefined,
)
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.utils import missing as nothing

from hiera import limits
from hiera.errors import ExpressionError, HieraError, LimitError, UndefinedError
from hiera.expressions import filters
from hiera.expressions.builtins import BOUNDED, percent, replace
from hiera.expressions.checks import CHECKS
from hiera.limits import meter
from hiera.values.paths import MISSING, step
from hiera.values.plain import described, plain
from hiera.values.secrets import Secret

MAPPING_METHODS: Final = frozenset({"get", "items", "keys", "values"})
TEXT_METHODS: Final = frozenset(
    {
        *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii"),
        *("isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "lower", "lstrip"),
        *("partition", "removeprefix", "removesuffix", "rfind", "rindex", "rpartition", "rsplit", "rstrip"),
        *("split", "splitlines", "startswith", "strip", "swapcase", "title", "upper"),
    }
)
_RUNTIME: Final = (
    BlockReference,
    Cycler,
    Joiner,
    LoopContext,
    Macro,
    Namespace,
    TemplateModule,
    TemplateReference,
)


# -- what is missing ------------------------------------------------------------------------------


class _Undefined(StrictUndefined):
    """What does not exist; using it raises UndefinedError, printing a list that it is in as well."""

    __slots__ = ()
    __repr__ = StrictUndefined.__str__

    def __init__(
        self, hint: str | None = None, obj: Any = nothing, name: Any = None, exc: Any = JinjaUndefinedError
    ) -> None:
        super().__init__(hint, obj, name, exc)
        if exc is JinjaUndefinedError:
            # Jinja2 raises what this returns when it is called with a message.
            self._undefined_exception = self._error  # type: ignore[assignment]

    def _error(self, _message: str) -> UndefinedError:
        owner, name = self._undefined_obj, self._undefined_name
        if self._undefined_hint or owner is nothing:
            return UndefinedError("", self._undefined_hint or f"there is no {name!r}", name)
        if isinstance(owner, Mapping):
            return UndefinedError("", f"there is no key {name!r}{_advice(owner, name)}", name, owner)
        return UndefinedError("", f"{described(owner)} has no {name!r}{_advice(owner, name)}")


_INSTEAD: Final[dict[type, Mapping[str, str]]] = {
    list: {
        **dict.fromkeys(("append", "insert"), "values are not changed; a longer list is list + [item]"),
        "extend": "values are not changed; a longer list is list + other",
        **dict.fromkeys(
            ("remove", "pop", "clear"),
            "values are not changed; a shorter list is list | reject('equalto', item) | list",
        ),
        "sort": "values are not changed; a sorted list is list | sort",
        "reverse": "values are not changed; the other way round is list | reverse | list",
        "index": "whether it is there is item in list",
        "count": "how many are alike is list | select('equalto', item) | list | length",
        "get": "an item is list[0], or list[0] | default(…)",
    },
    dict: {
        **dict.fromkeys(
            ("update", "setdefault"), "values are not changed; a larger mapping is a | combine(b)"
        ),
        **dict.fromkeys(("pop", "popitem", "clear"), "values are not changed; a key is read with .get"),
        "has_key": "whether it is there is key in mapping",
    },
    str: {
        "strip": "write | trim",
        "format": "write 'a {} b' as 'a ' ~ value ~ ' b'",
        "startswith": "write value is match('start')",
        "endswith": "write value is search('end$')",
    },
}
"""What people ask values for who know them from Python, and how it is said here."""


def _advice(owner: Any, name: Any) -> str:
    if isinstance(owner, str) and name in FILTERS:
        return f": write | {name}"
    kind = next((kind for kind in _INSTEAD if isinstance(owner, kind)), None)
    instead = _INSTEAD[kind].get(name) if kind is not None and isinstance(name, str) else None
    return f": {instead}" if instead else ""


# -- the sandbox ----------------------------------------------------------------------------------


class _Generator(CodeGenerator):
    """Jinja2's compiler, with each loop and each ``~`` going through the environment."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802  the compiler's naming
        steps = nodes.EnvironmentAttribute("steps", lineno=node.lineno)
        node.iter = nodes.Call(steps, [node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Steps:
    """The items of a loop, counted; as long as what it goes over, which ``loop.length`` asks."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            meter.spend(1)
            yield tuple(map(meter.opened, item)) if type(item) is tuple else meter.opened(item)

    def __len__(self) -> int:
        return len(self._items)


class _Context(Context):
    """The names of a template; one that stands for a secret is opened as what is asked of mappings is."""

    def resolve_or_missing(self, key: str) -> Any:
        value = super().resolve_or_missing(key)
        return meter.opened(value) if isinstance(value, Secret) else value


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment that keeps this module's promises."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = _Generator
    context_class = _Context
    concat = staticmethod(limits.concat)

    def __init__(self, text_methods: frozenset[str] = frozenset(), **options: Any) -> None:
        super().__init__(undefined=_Undefined, keep_trailing_newline=True, optimized=False, **options)
        self.text_methods = text_methods
        self.filters = FILTERS
        self.tests = TESTS
        self.globals.pop("lipsum")  # another text in every run
        self.steps = _Steps

    def getattr(self, obj: Any, attribute: str) -> Any:
        """``obj.attribute`` in an expression."""
        if isinstance(obj, _Undefined):
            return obj  # the first thing that is missing is the one to name
        if isinstance(obj, _RUNTIME):
            return super().getattr(obj, attribute)
        found = step(obj, attribute) if isinstance(obj, Mapping) else MISSING
        if found is not MISSING:
            return meter.opened(found)
        method = self._method(obj, attribute)
        return self.undefined(obj=obj, name=attribute) if method is None else method

    def _method(self, obj: Any, name: str) -> Any:
        if isinstance(obj, Mapping) and name in MAPPING_METHODS:
            return getattr(obj, name)
        if not isinstance(obj, str) or not self.text_methods:
            return None
        if name in self.text_methods:
            return getattr(obj, name)
        return functools.partial(_BOUNDED_METHODS[name], obj) if name in _BOUNDED_METHODS else None

    def getitem(self, obj: Any, argument: Any) -> Any:
        """``obj[argument]`` in an expression."""
        if isinstance(obj, _Undefined):
            return obj
        if isinstance(obj, TemplateReference):
            return super().getitem(obj, argument)
        found: Any = MISSING
        if isinstance(obj, Mapping) and isinstance(argument, (str, int)):
            found = step(obj, argument)
        elif isinstance(obj, (str, list, tuple)) and isinstance(argument, (int, slice)):
            try:
                found = obj[argument]
            except IndexError:
                pass
        return self.undefined(obj=obj, name=argument) if found is MISSING else meter.opened(found)

    def call(self, context: Context, obj: Any, /, *arguments: Any, **named: Any) -> Any:
        """``obj(…)`` in an expression."""
        meter.spend(1)
        value = super().call(context, obj, *map(meter.opened, arguments), **named)
        return value if isinstance(value, _Steps) else meter.made(meter.opened(value))

    def call_binop(self, _context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator that could make too much."""
        left, right = meter.opened(left), meter.opened(right)
        return meter.made(_OPERATORS[operator](left, right))

    def joined(self, parts: tuple[Any, ...]) -> str:
        """``a ~ b``."""
        return limits.concat(limits.text_of(printable(part)) for part in parts)


def printable(value: Any) -> Any:
    """A value as templates print it; a function would print its address, another one in every run."""
    value = meter.opened(value)
    if callable(value) and not isinstance(value, Undefined):
        raise ExpressionError("", "a function is printed, not what it returns: call it")
    if isinstance(value, (dict, list, tuple)):
        limits.verify_printed(value)
    return value


def _join_items(separator: str, items: Any) -> str:
    texts = [limits.text_of(meter.opened(item)) for item in items]
    limits.verify_length("", sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


_BOUNDED_METHODS: Final[dict[str, Callable[..., Any]]] = {"join": _join_items, "replace": replace}


def _times(left: Any, right: Any) -> Any:
    limits.verify_product(left, right)
    return left * right


def _power(left: Any, right: Any) -> Any:
    limits.verify_power(left, right)
    return left**right


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, (str, list)) and isinstance(right, (str, list)):
        limits.verify_length(left, len(left) + len(right))
    return left + right


_OPERATORS: Final = {"+": _plus, "*": _times, "**": _power, "%": percent}


def _opening(function: Callable[..., Any], *, strict: bool, counted: bool) -> Callable[..., Any]:
    """``function`` with secrets opened for it; ``strict``: refuses what is missing; ``counted``: by size."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if strict:  # str() of what is missing raises, and says what it is
            arguments = tuple(str(item) if isinstance(item, Undefined) else item for item in arguments)
        named = {name: meter.opened(argument) for name, argument in named.items()}
        value = function(*map(meter.opened, arguments), **named)
        return meter.made(value) if counted else value

    return call


def _as_text(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that takes text, and writes down what is none."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return function(
            *(limits.text_of(a) if isinstance(a, _COLLECTIONS) else a for a in arguments), **named
        )

    return call


def _of_items(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that takes apart what it is given, also a text into characters."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, str):
                limits.verify_length([], len(argument))
        return function(*arguments, **named)

    return call


_COLLECTIONS: Final = (dict, list, tuple)
_OF_TEXT: Final = frozenset(
    {
        *(
            "capitalize",
            "e",
            "escape",
            "forceescape",
            "lower",
            "safe",
            "string",
            "striptags",
            "title",
            "trim",
        ),
        *("truncate", "upper", "urlize", "wordcount"),
    }
)
_OF_ITEMS: Final = frozenset({"groupby", "list", "sort", "unique"})
_JINJA_FILTERS: Final = {
    name: _as_text(function) if name in _OF_TEXT else _of_items(function) if name in _OF_ITEMS else function
    for name, function in JINJA_FILTERS.items()
}


def _table(jinja: Mapping[str, Any], own: Mapping[str, Any], *, counted: bool) -> dict[str, Any]:
    lenient = {name: _opening(function, strict=False, counted=counted) for name, function in jinja.items()}
    return lenient | {
        name: _opening(function, strict=name not in _LENIENT, counted=counted)
        for name, function in own.items()
    }


_LENIENT: Final = frozenset({"mandatory", "ternary"})  # they may be given what is missing, and not use it
FILTERS: Final = _table({**_JINJA_FILTERS, **BOUNDED}, filters.FILTERS, counted=True)
_MORE_CHECKS: Final = {name: check for name, check in CHECKS.items() if name not in JINJA_TESTS}
TESTS: Final = _table(JINJA_TESTS, {**_MORE_CHECKS, **filters.TESTS}, counted=False)


# -- expressions ----------------------------------------------------------------------------------


@functools.cache
def _expressions() -> Sandbox:
    environment = Sandbox()
    for name in ("cycler", "joiner", "namespace"):
        environment.globals.pop(name)  # they keep state, which one expression has no use for
    return environment


@functools.cache
def _checks() -> Sandbox:
    environment = Sandbox()
    environment.tests = TESTS | _table({}, CHECKS, counted=False)
    return environment


def for_templates(loader: BaseLoader, **options: Any) -> Sandbox:
    """An environment for whole template files."""
    return Sandbox(TEXT_METHODS, loader=loader, finalize=printable, trim_blocks=True, **options)


@functools.lru_cache(maxsize=2048)
def compile_expression(source: str) -> Callable[[Mapping[str, Any]], Any]:
    """A function from names to the value of the expression, which is plain or a secret.

    It and this raise ExpressionError, UndefinedError and LimitError.
    """
    return _function(_expressions(), source)


def compile_check(source: str) -> Callable[[Mapping[str, Any]], Any]:
    """The same for ``@validate``, where ``is float`` is a check like ``is int``, of text too."""
    return _function(_checks(), source)


def _function(environment: Sandbox, source: str) -> Callable[[Mapping[str, Any]], Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # '\d' in a text is what people write in patterns
            compiled = environment.compile_expression(source, undefined_to_none=False)
    except Exception as error:  # noqa: BLE001  the compiler of another project, on any text
        raise translated(error) from None

    def value(names: Mapping[str, Any]) -> Any:
        with meter:
            try:
                return meter.sealed(_bounded(plain(compiled(names))))
            except Exception as error:  # noqa: BLE001  whatever functions and filters raise
                raise translated(error, source, names) from None

    return value


def _bounded(value: Any) -> Any:
    """A result, unless it would be too large when it is written down somewhere."""
    if isinstance(value, (dict, list)):
        meter.opened(value)
    return value


def translated(error: Exception, source: str = "", names: Mapping[str, Any] | None = None) -> HieraError:
    """Any exception of Jinja2 or from inside an expression, as one of ours.

    ``names`` are those that exist. After a look at a secret, only what is in ``source`` is quoted.
    """
    if isinstance(error, UndefinedError) and (not meter.secret or str(error.name) in source):
        error.among = error.among or [name for name in names or () if name.islower()]
        return error
    if isinstance(error, LimitError) or (isinstance(error, HieraError) and not meter.secret):
        return error
    if isinstance(error, TemplateSyntaxError):
        what = "something follows the expression" if "chunk after" in str(error.message) else error.message
        return ExpressionError("", f"is not valid: {what}")
    if isinstance(error, TemplateNotFound):
        return UndefinedError("", f"there is no template {error.name!r}")
    if isinstance(error, (RecursionError, MemoryError)):
        return LimitError("", "is nested too deeply, calls itself without end, or makes too much")
    if meter.secret:
        return ExpressionError("", f"fails on a secret value ({type(error).__name__})")
    kind = "" if isinstance(error, (TemplateError, TypeError, ValueError)) else f"{type(error).__name__}: "
    return ExpressionError("", f"cannot be evaluated: {kind}{error}")
