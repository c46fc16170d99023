"""The Jinja2 environment of expressions and template files: sandboxed, strict and bounded.

* Using a missing name, key or item is an error, except in ``default`` and ``is defined``. An attribute of a missing
  value (``nope.deeper``) is missing too.
* ``a.b`` on a mapping is the key ``b``. If the key is missing, ``get``, ``items``, ``keys`` and ``values`` are methods.
  Text has its harmless methods. All other attributes of Python objects are out of reach.
* Included and imported templates can use all names of the including template, and blocks the surrounding names. A macro
  can use only its arguments. ``default`` and ``is defined`` raise an error for names of the macro's caller.
* Loops, calls and filters pay from one budget (``hiera.limits``), and so do operators that make text or lists.
* Using a secret reveals it and makes the result a secret. Containers on the path to a value are only opened,
  and their other items do not count as used. A list or mapping that is used as a whole (printed, compared, or passed to
  a filter or function) is searched for secrets.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from types import MethodType
from typing import Any, Final, NoReturn

from jinja2 import Template, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import TemplateModule
from jinja2.exceptions import TemplateSyntaxError
from jinja2.lexer import TokenStream
from jinja2.parser import Parser
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
from hiera.expressions.builtins import format_method, percent, replace
from hiera.expressions.filters import FILTERS, TESTS, qualified, table
from hiera.expressions.refused import refused
from hiera.expressions.template_code import code_of
from hiera.expressions.undefined import (
    FILTERS_OF_MISSING,
    TESTS_OF_MISSING,
    ExplainedUndefined,
    callers,
    place_of,
    with_columns,
)
from hiera.expressions.versions_and_dates import TIME_PARTS, TIMES
from hiera.limits import SCALARS, meter
from hiera.values import MISSING, Secret, step

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


_OPTIONS: Final = (
    *("block_start_string", "block_end_string", "variable_start_string", "variable_end_string"),
    *("comment_start_string", "comment_end_string", "line_statement_prefix", "line_comment_prefix"),
    *("trim_blocks", "lstrip_blocks", "newline_sequence", "keep_trailing_newline"),
)
"""The options of the lexer and the compiler that differ between these environments."""


class _Parser(Parser):
    """Jinja2's parser, with imports and blocks that see the surrounding names unless the template forbids it."""

    def parse_import_context(self, node: Any, default: bool) -> Any:
        del default
        return super().parse_import_context(node, default=True)

    def parse_block(self) -> nodes.Block:
        block = super().parse_block()
        block.scoped = True
        return block


class _Template(Template):
    """A template whose module, imported without context, can use the names of the whole rendering."""

    environment: Sandbox

    def _get_default_module(self, ctx: Context | None = None) -> TemplateModule:
        del ctx
        return self.make_module(dict(self.environment.given))


class _Generator(CodeGenerator):
    """Jinja2's compiler, with each loop, call, comparison and ``~`` going through the environment.

    Generated code handles the common types inline: text and whole numbers are printed and calculated directly, and
    other types need a call. ``t_value`` and ``t_kind`` are read before they are set again.
    """

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802  the compiler's naming
        if _is_shared(node):
            # Refer to ``loop`` in the body. Otherwise Jinja2 creates no ``loop`` variable, and included templates miss
            # it.
            requested = nodes.Output([nodes.Name("loop", "load")])
            node.body.append(nodes.If(nodes.Const(False), [requested], [], []).set_lineno(node.lineno))
        steps = nodes.EnvironmentAttribute("steps", lineno=node.lineno)
        node.iter = nodes.Call(steps, [node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:  # noqa: N802
        if isinstance(node.node, nodes.EnvironmentAttribute):  # not a call of the template's own
            self.visit(node.node, frame)
            self._write_all(node.args, frame, "(", ")")
            return
        self.write(f"(environment.tell({self.dump_local_context(frame)}) or ")
        super().visit_Call(node, frame, forward_caller=forward_caller)
        self.write(")")

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:  # noqa: N802
        self._refuse(node.name, node, is_filter=True)
        if (position := _NAMING.get(node.name.rpartition(".")[2])) is not None:
            for argument in node.args[position : position + 1]:  # map('vault'), selectattr('path', 'exists')
                if isinstance(argument, nodes.Const) and isinstance(argument.value, str):
                    self._refuse(argument.value, node, is_filter=node.name.endswith("map"))
        super().visit_Filter(node, frame)

    def visit_Test(self, node: nodes.Test, frame: Frame) -> None:  # noqa: N802
        self._refuse(node.name, node, is_filter=False)
        super().visit_Test(node, frame)

    def _refuse(self, name: str, node: nodes.Node, *, is_filter: bool) -> None:
        """Fail for a filter or test of Ansible that is unsupported, with the replacement in the message."""
        if sentence := refused(name, is_filter=is_filter):
            self.fail(sentence, node.lineno)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self._write_all(node.nodes, frame, "environment.joined((", "))")

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802
        """``a.b.c`` is one call with all names."""
        names, start = [node.attr], node.node
        while isinstance(start, nodes.Getattr):
            names.insert(0, start.attr)
            start = start.node
        self._write_all([start], frame, "environment.reach(", f"{tuple(names)!r})")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        """Compare whole values. A constant side needs no search: a collection never equals a text or a number."""
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        searches = any(operand.op in ("in", "notin") for operand in node.ops)
        if searches or len(sides) > 2 or not any(isinstance(side, nodes.Const) for side in sides):
            operands = [
                nodes.Operand(
                    item.op, _whole(item.expr, "searched" if item.op in ("in", "notin") else "whole")
                )
                for item in node.ops
            ]
            node = nodes.Compare(_whole(node.expr), operands, lineno=node.lineno)
        super().visit_Compare(node, frame)

    def _arithmetic(self, node: nodes.BinExpr, frame: Frame) -> bool:
        """Write the operation inline if it has a small constant as its right side. Return whether it was written."""
        constant = node.right.value if isinstance(node.right, nodes.Const) else None
        if type(constant) is not int or not 0 < constant < _SMALL or _is_long(node):
            return False
        self.write(f"(t_value {node.operator} {constant} if type(t_value := ")
        self.visit(node.left, frame)
        # A chain of multiplications must not produce a huge number.
        self.write(f") is int{f' and {-_SMALL} < t_value < {_SMALL}' if node.operator == '*' else ''}")
        self.write(f" else environment.call_binop(context, {node.operator!r}, t_value, {constant}))")
        return True

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802
        self._arithmetic(node, frame) or super().visit_Add(node, frame)

    def visit_Mul(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802
        self._arithmetic(node, frame) or super().visit_Mul(node, frame)

    def visit_Mod(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802
        self._arithmetic(node, frame) or super().visit_Mod(node, frame)

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:  # noqa: N802
        """Print adjacent parts as one text if the output is neither buffered nor escaped."""
        if frame.buffer is not None or frame.require_output_check or _escapes(frame):
            super().visit_Output(node, frame)
            return
        for start in range(0, len(node.nodes), _PRINTED_AT_ONCE):
            self._print(node.nodes[start : start + _PRINTED_AT_ONCE], frame)

    def _print(self, parts: list[nodes.Expr], frame: Frame) -> None:
        if len(parts) == 1:
            super().visit_Output(nodes.Output(parts, lineno=parts[0].lineno), frame)
            return
        finalize = self._make_finalize()
        form, values = "", []
        for part in parts:
            try:
                form += self._output_child_to_const(part, frame, finalize).replace("%", "%%")
            except Exception:  # noqa: BLE001  no constant, or one that fails: when it is reached
                form += "%s"
                values.append(part)
        if not values:
            self.writeline(f"yield {form % ()!r}", parts[0])
            return
        self.writeline(f"yield (t_text if len(t_text := {form!r} % (", parts[0])
        for part in values:
            self.newline(part)
            self.write("(t_value if (t_kind := type(t_value := ")
            self.visit(part, frame)
            self.write(f")) is str and len(t_value) < {_LONG} or t_kind is int")
            self.write(" else environment.shown(t_value)),")
        self.write(f")) < {_LONG} else environment.counted(t_text))")

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        if _escapes(frame):
            super()._output_child_pre(node, frame, finalize)
        else:
            self.write("(t_value if (t_kind := type(t_value := ")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        if _escapes(frame):
            super()._output_child_post(node, frame, finalize)
        else:
            self.write(
                ")) is str else str(t_value) if t_kind is int else str(environment.finalize(t_value)))"
            )

    def _write_all(self, parts: Iterable[nodes.Expr], frame: Frame, start: str, end: str) -> None:
        self.write(start)
        for part in parts:
            self.visit(part, frame)
            self.write(", ")
        self.write(end)


_SMALL: Final = (1 << 30) - 1
"""Limit of operands: one operation on smaller whole numbers stays below the limits on numbers."""

_LONG: Final = 1024
"""Minimum length of a printed text that counts at once, so that many texts side by side stay limited."""

_PRINTED_AT_ONCE: Final = 64
_LONGEST_CHAIN: Final = 8


def _is_long(node: nodes.BinExpr) -> bool:
    """Return whether a chain of operators is long enough to exceed Python's nesting limit in the generated code."""
    left: nodes.Node = node
    for _ in range(_LONGEST_CHAIN):
        if not isinstance(left, nodes.BinExpr):
            return False
        left = left.left
    return True


def _escapes(frame: Frame) -> bool:
    return bool(frame.eval_ctx.volatile or frame.eval_ctx.autoescape)


_WHOLE_ALREADY: Final = (
    *(nodes.Call, nodes.Compare, nodes.Concat, nodes.Const, nodes.Filter, nodes.Not, nodes.Test),
)


def _whole(node: nodes.Expr, how: str = "whole") -> nodes.Expr:
    """Return an operand of a comparison, searched for secrets if it may contain any."""
    if isinstance(node, _WHOLE_ALREADY):
        return node
    whole = nodes.EnvironmentAttribute(how, lineno=node.lineno)
    return nodes.Call(whole, [node], [], None, None, lineno=node.lineno)


_NAMING: Final = {"map": 0, "reject": 0, "rejectattr": 1, "select": 0, "selectattr": 1}
"""Filters with the name of a filter or test as an argument, and the argument's position."""


def _is_shared(loop: nodes.For) -> bool:
    """Return whether other templates see the loop's variables: included, imported or rendered templates."""
    called = (call.node for call in loop.find_all(nodes.Call))
    is_shared = any(isinstance(node, nodes.Name) and node.name in ("render", "template") for node in called)
    return is_shared or any(loop.find_all((nodes.Include, nodes.Import, nodes.FromImport)))


_FILTERS: Final = qualified(FILTERS | table(FILTERS_OF_MISSING, {}, counted=True))
_TESTS: Final = qualified(TESTS | table(TESTS_OF_MISSING, {}, counted=False))


_HARMLESS: Final = SCALARS | {dict, list}
"""Types that are never secrets themselves, but can contain secrets."""

_SIZED: Final = frozenset({dict, range, *map(type, ({}.keys(), {}.values(), {}.items()))})
_ROUNDS_AT_ONCE: Final = 32


class _Steps:
    """The items of a loop, counted. Its length is the length of the items, for ``loop.length``."""

    __slots__ = ("_items",)

    def __init__(self, items: Any) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._batches())

    def _batches(self) -> Iterator[Iterable[Any]]:
        """Yield the items in batches. The steps are paid for, and the time limit is checked, before each batch."""
        items = self._items
        if type(items) in _SIZED:
            items = list(items)
        if type(items) not in (list, tuple):  # one by one, since making an item may be slow or fail
            for item in items:
                meter.spend(1)
                yield (_opened(item),)
            return
        for start in range(0, len(items), _ROUNDS_AT_ONCE):
            batch = items[start : start + _ROUNDS_AT_ONCE]
            meter.spend(len(batch))
            yield batch if _HARMLESS.issuperset(map(type, batch)) else map(_opened, batch)

    def __len__(self) -> int:
        return len(self._items)


def _opened(item: Any) -> Any:
    """Return the item with its secret opened. The items of a tuple are opened, since a loop unpacks it."""
    return tuple(map(meter.opened, item)) if type(item) is tuple else meter.opened(item)


class _Context(Context):
    """The names of a template. A name of a secret is revealed, like a key of a mapping."""

    def resolve_or_missing(self, key: str) -> Any:
        value = super().resolve_or_missing(key)
        return meter.opened(value) if isinstance(value, Secret) else value


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment with the rules of this module."""

    # Only these operators can produce much larger values than their operands.
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = _Generator
    context_class = _Context
    template_class = _Template
    concat = staticmethod(limits.concat)

    def __init__(
        self,
        included: Callable[[str, str], str] = lambda name, parent: name,
        **options: Any,
    ) -> None:
        super().__init__(undefined=ExplainedUndefined, keep_trailing_newline=True, optimized=False, **options)
        self.included = included
        self.filters = _FILTERS
        self.tests = _TESTS
        self.globals["undef"] = self.undef
        self.globals.pop("lipsum")  # random text, different in every run
        self.steps = _Steps
        self.tell = callers.tell
        self.whole = whole
        self.searched = searched
        self.has_columns = False
        """Whether compiled code contains the columns of its expressions (``columns.place_of``)."""
        self._is_compiling = False
        self.given: Mapping[str, Any] = {}
        """The names of the current rendering."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Parser(self, source, name, filename).parse()

    def compile(
        self,
        source: Any,
        name: str | None = None,
        filename: str | None = None,
        raw: bool = False,
        defer_init: bool = False,
    ) -> Any:
        """Return the code of a template, from the cache if possible. Syntax trees are compiled as Jinja2 does it."""
        compiling = functools.partial(super().compile, source, name, filename, raw, defer_init)
        make = functools.partial(self._with_columns, compiling) if self.has_columns else compiling
        if not isinstance(source, str) or raw or defer_init:
            return make()
        settings = (getattr(self, option) for option in _OPTIONS)
        return code_of(
            (source, name, filename, self.finalize is None, self.has_columns, *settings), len(source), make
        )

    def _with_columns(self, compiling: Callable[[], Any]) -> Any:
        self._is_compiling = True
        try:
            return compiling()
        finally:
            self._is_compiling = False

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        """Return the tokens of a text. During compilation, tokens have columns."""
        if not self._is_compiling:
            return super()._tokenize(source, name, filename, state)
        tokens = with_columns(self.lexer.tokeniter(source, name, filename, state), source)
        return TokenStream(self.lexer.wrap(tokens, name, filename), name, filename)

    def handle_exception(self, source: str | None = None) -> NoReturn:
        """Raise the current error, as Jinja2 does, at a line number that it can handle."""
        error = sys.exc_info()[1]
        if isinstance(error, TemplateSyntaxError) and error.lineno is not None:
            error.lineno, column = place_of(error.lineno)
            error.column = column  # type: ignore[attr-defined]  # ours
        super().handle_exception(source)

    def join_path(self, template: str, parent: str) -> str:
        """Return the name of the template that ``parent`` includes as ``template``."""
        return self.included(template, parent)

    def undef(self, hint: str | None = None) -> Undefined:
        """Return an undefined value with a message: ``data.port | default(undef('set a port'))``."""
        return self.undefined(hint or "undef() makes the value undefined")

    def reach(self, value: Any, names: tuple[str, ...]) -> Any:
        """``value.a.b.c`` in an expression."""
        for name in names:
            if type(value) is dict and (below := value.get(name, MISSING)) is not MISSING:
                value = below
            else:
                value = self.getattr(value, name)
        return value if type(value) in _HARMLESS else meter.opened(value)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """``obj.attribute``, also for filters."""
        if isinstance(obj, ExplainedUndefined):
            return obj  # report the first missing value
        # Jinja2's own objects (loop, macros, namespaces) are guarded by its sandbox.
        if isinstance(obj, _RUNTIME):
            return super().getattr(obj, attribute)
        obj = meter.opened(obj)
        result = step(obj, attribute) if isinstance(obj, Mapping) else MISSING
        if result is not MISSING:
            return meter.opened(result)
        if isinstance(obj, TIMES) and attribute in TIME_PARTS:
            return getattr(obj, attribute)
        method = self._method(obj, attribute)
        return self.undefined(obj=obj, name=attribute) if method is None else method

    def _method(self, obj: Any, name: str) -> Any:
        if isinstance(obj, Mapping) and name in MAPPING_METHODS:
            # Values of ``items`` and ``values`` are not searched for secrets later, so reveal them here.
            return getattr(meter.revealed(obj) if name in ("items", "values") else obj, name)
        if not isinstance(obj, str):
            return None
        if name in TEXT_METHODS:
            return getattr(obj, name)
        return functools.partial(_BOUNDED_METHODS[name], obj) if name in _BOUNDED_METHODS else None

    def getitem(self, obj: Any, argument: Any) -> Any:
        """``obj[argument]`` in an expression."""
        if type(obj) is dict and type(argument) is str and (at := obj.get(argument, MISSING)) is not MISSING:
            return at if type(at) in _HARMLESS else meter.opened(at)
        if isinstance(obj, ExplainedUndefined):
            return obj
        if isinstance(obj, TemplateReference):
            return super().getitem(obj, argument)
        value: Any = MISSING
        if isinstance(obj, Mapping) and isinstance(argument, (str, int)):
            value = step(obj, argument)
        elif isinstance(obj, (str, list, tuple)) and isinstance(argument, (int, slice)):
            try:
                value = obj[argument]
            except IndexError:
                pass
        return self.undefined(obj=obj, name=argument) if value is MISSING else meter.opened(value)

    def call(self, context: Context, obj: Any, /, *arguments: Any, **named: Any) -> Any:
        """``obj(…)`` in an expression."""
        if not SCALARS.issuperset(map(type, arguments)):
            arguments = tuple(map(meter.revealed, arguments))
        callers.enter(context)
        try:
            if type(obj) is Macro:
                value = obj(context.eval_ctx, *arguments, **_given(named))
            elif type(obj) is MethodType and hasattr(obj.__func__, "is_plain"):  # ``lookup`` needs no checks
                value = obj(*arguments, **_given(named))
            else:
                value = super().call(context, obj, *arguments, **named)
        finally:
            callers.leave()
        return meter.made(whole(value))

    def call_binop(self, _context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator with a potentially large result."""
        value = _OPERATORS[operator](whole(left), whole(right))
        return value if type(value) in SCALARS and type(value) is not str else meter.made(value)

    def shown(self, value: Any) -> str:
        """Return a value as text, for printing adjacent values."""
        return self.counted(str(printed(value)))

    def counted(self, text: str) -> str:
        """Return a printed text, counted if it is long."""
        if len(text) >= _LONG:
            meter.print(len(text))
        return text

    def joined(self, parts: tuple[Any, ...]) -> str:
        """``a ~ b``."""
        return limits.concat([str(part) if type(part) in SCALARS else str(printable(part)) for part in parts])


def whole(value: Any) -> Any:
    """Return a value with all secrets in it revealed."""
    return value if type(value) in SCALARS else meter.revealed(value)


def searched(value: Any) -> Any:
    """Return the right side of ``in``, with secrets revealed. In a mapping only keys are compared."""
    return value if type(value) is dict else whole(value)


def printed(value: Any) -> Any:
    """Return a value as template files print it. Null prints nothing, as in Ansible.

    Text made from a list or mapping counts towards the limits.
    """
    value = printable(value)
    if value is None:
        return ""
    return meter.made(str(value)) if isinstance(value, (dict, list, tuple)) else value


def printable(value: Any) -> Any:
    """Return a value as templates print it. Raises ExpressionError for types without a text form."""
    if type(value) in SCALARS:
        return value
    value = meter.revealed(value)
    if isinstance(value, (dict, list, tuple)):
        limits.verify_printed(value)
    else:
        limits.verify_writable(value)
    return value


def _given(named: dict[str, Any]) -> dict[str, Any]:
    """Return the named arguments in the template."""
    return {name: whole(value) for name, value in named.items() if name not in ("_loop_vars", "_block_vars")}


def _join_items(separator: str, items: Any) -> str:
    texts = [limits.text_of(meter.revealed(item)) for item in items]
    limits.verify_length("", sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


_BOUNDED_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "format": format_method,
    "join": _join_items,
    "replace": replace,
}


def _times(left: Any, right: Any) -> Any:
    if type(left) is str and type(right) is int and len(left) * right <= limits.TEXT_LIMIT:
        return left * right
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
