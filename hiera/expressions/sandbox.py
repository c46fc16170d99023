"""The Jinja2 environment of expressions and template files: sandboxed, strict and bounded.

* A name, key or item that does not exist is an error wherever it is used, except by ``default`` and
  ``is defined``. What is asked of it (``nope.deeper``) is as missing as itself.
* ``a.b`` on a mapping is the key ``b``; where there is no such key, ``get``, ``items``, ``keys`` and
  ``values`` work. In template files text has its harmless methods too. Nothing else of Python's objects can
  be reached.
* Loops, calls, operators and filters pay from one budget (``hiera.limits``).
* Secrets are revealed to whoever uses them here; then the result is a secret.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import TemplateModule
from jinja2.runtime import (
    BlockReference,
    Context,
    LoopContext,
    Macro,
    TemplateReference,
    Undefined,
)
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace

from hiera import limits
from hiera.errors import ExpressionError
from hiera.expressions.builtins import percent, replace
from hiera.expressions.filter_tables import FILTERS, TESTS
from hiera.expressions.undefined import ExplainedUndefined
from hiera.limits import meter
from hiera.values import sizes
from hiera.values.paths import MISSING, step
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
            yield tuple(map(meter.revealed, item)) if type(item) is tuple else meter.revealed(item)

    def __len__(self) -> int:
        return len(self._items)


class _Context(Context):
    """The names of a template; one that stands for a secret is revealed as what is asked of mappings is."""

    def resolve_or_missing(self, key: str) -> Any:
        value = super().resolve_or_missing(key)
        return meter.revealed(value) if isinstance(value, Secret) else value


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment that keeps this module's promises."""

    # Those that can make much of little; the others cannot make more than they are given.
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = _Generator
    context_class = _Context
    concat = staticmethod(limits.concat)

    def __init__(
        self,
        text_methods: frozenset[str] = frozenset(),
        included: Callable[[str, str], str] = lambda name, parent: name,
        **options: Any,
    ) -> None:
        super().__init__(undefined=ExplainedUndefined, keep_trailing_newline=True, optimized=False, **options)
        self.text_methods = text_methods
        self.included = included
        self.filters = FILTERS
        self.tests = TESTS
        self.globals.pop("lipsum")  # another text in every run
        self.steps = _Steps

    def join_path(self, template: str, parent: str) -> str:
        """The name of the template that ``parent`` includes as ``template``."""
        return self.included(template, parent)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """``obj.attribute`` in an expression."""
        if isinstance(obj, ExplainedUndefined):
            return obj  # the first thing that is missing is the one to name
        # Jinja2's own objects (loop, macros, namespaces) are guarded by its sandbox.
        if isinstance(obj, _RUNTIME):
            return super().getattr(obj, attribute)
        found = step(obj, attribute) if isinstance(obj, Mapping) else MISSING
        if found is not MISSING:
            return meter.revealed(found)
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
        if isinstance(obj, ExplainedUndefined):
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
        return self.undefined(obj=obj, name=argument) if found is MISSING else meter.revealed(found)

    def call(self, context: Context, obj: Any, /, *arguments: Any, **named: Any) -> Any:
        """``obj(…)`` in an expression."""
        meter.spend(1)
        value = super().call(context, obj, *map(meter.revealed, arguments), **named)
        return value if isinstance(value, _Steps) else meter.made(meter.revealed(value))

    def call_binop(self, _context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator that could make too much."""
        left, right = meter.revealed(left), meter.revealed(right)
        return meter.made(_OPERATORS[operator](left, right))

    def joined(self, parts: tuple[Any, ...]) -> str:
        """``a ~ b``."""
        return limits.concat(sizes.text_of(printable(part)) for part in parts)


def printable(value: Any) -> Any:
    """A value as templates print it. Raises ExpressionError for a function, which has another address in every run."""
    value = meter.revealed(value)
    if callable(value) and not isinstance(value, Undefined):
        raise ExpressionError("", "a function is printed, not what it returns: call it")
    if isinstance(value, (dict, list, tuple)):
        sizes.verify_printed(value)
    return value


def _join_items(separator: str, items: Any) -> str:
    texts = [sizes.text_of(meter.revealed(item)) for item in items]
    sizes.verify_length("", sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


_BOUNDED_METHODS: Final[dict[str, Callable[..., Any]]] = {"join": _join_items, "replace": replace}


def _times(left: Any, right: Any) -> Any:
    sizes.verify_product(left, right)
    return left * right


def _power(left: Any, right: Any) -> Any:
    sizes.verify_power(left, right)
    return left**right


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, (str, list)) and isinstance(right, (str, list)):
        sizes.verify_length(left, len(left) + len(right))
    return left + right


_OPERATORS: Final = {"+": _plus, "*": _times, "**": _power, "%": percent}
