"""Jinja2 for expressions, checks and template files. Only this module creates environments and compiles source.

* As in Jinja2, a false condition without ``else`` is the empty text.
* Every failure is an error of ``hiera.errors``. If a secret was used, its message quotes nothing.
* The syntax tree of an expression shows its sources: facts, data, or only constants.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import (
    BaseLoader,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
    nodes,
)
from jinja2.parser import Parser

from foundation.problems import DependsOn, ProblemCode
from hiera.errors import ExpressionError, HieraError, LimitError, UndefinedError
from hiera.expressions.checks import CHECKS
from hiera.expressions.filters import table
from hiera.expressions.sandbox import Sandbox, printed
from hiera.expressions.undefined import callers
from hiera.limits import meter
from hiera.values import plain


@functools.cache
def _expressions() -> Sandbox:
    environment = Sandbox()
    for name in ("cycler", "joiner", "namespace"):
        environment.globals.pop(name)  # they keep state, which a single expression cannot use
    return environment


@functools.cache
def _checks() -> Sandbox:
    environment = Sandbox()
    environment.tests = environment.tests | table({}, CHECKS, counted=False)
    return environment


def tree_of(source: str, *, is_check: bool = False) -> tuple[nodes.Expr, Sandbox]:
    """Return the parse tree of an expression, for analysis without evaluation, and its environment.

    ``is_check``: the expression of ``@validate``. Raises ExpressionError.
    """
    environment = _checks() if is_check else _expressions()
    try:
        parser = Parser(environment, source, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            parser.fail("something follows the expression", parser.stream.current.lineno)
    except Exception as error:  # noqa: BLE001  the parser of another project, on any text
        raise translated(error) from None
    return tree, environment


def for_templates(
    loader: BaseLoader, included: Callable[[str, str], str] = lambda name, parent: name, **options: Any
) -> Sandbox:
    """Return an environment for template files. ``included(name, parent)`` is the name passed to ``loader``."""
    sandbox = Sandbox(included, loader=loader, finalize=printed, trim_blocks=True, **options)
    sandbox.has_columns = True
    return sandbox


@functools.lru_cache(maxsize=2048)
def compile_expression(source: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function from names to the value of the expression, which is plain or a secret.

    Raises ExpressionError, UndefinedError and LimitError, as the returned function does.
    """
    return _function(_expressions(), source)


def compile_check(source: str) -> Callable[[Mapping[str, Any]], Any]:
    """``compile_expression`` for ``@validate``, where ``is float`` is a check like ``is int``, of text too."""
    return _function(_checks(), source)


def _function(environment: Sandbox, source: str) -> Callable[[Mapping[str, Any]], Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # people write '\d' in patterns
            compiled = environment.compile_expression(source, undefined_to_none=False)
    except Exception as error:  # noqa: BLE001  the compiler of another project, on any text
        raise translated(error) from None

    def value(names: Mapping[str, Any]) -> Any:
        before = callers.begin()
        with meter:
            try:
                return meter.masked(_bounded(plain(compiled(names))))
            except Exception as error:  # noqa: BLE001  whatever functions and filters raise
                raise translated(error, source, names) from None
            finally:
                callers.end(before)

    return value


def _bounded(value: Any) -> Any:
    """Return a result with all secrets in it revealed. Raises LimitError if it is too large."""
    if isinstance(value, (dict, list)):
        return meter.revealed(value)
    return value


def translated(error: Exception, source: str = "", names: Mapping[str, Any] | None = None) -> HieraError:
    """Return any exception from Jinja2 or an expression as an error of ``hiera.errors``.

    ``names`` are the existing names. If a secret was used, only text in ``source`` is quoted.
    """
    # A name in the author's expression may be quoted. A name derived from a secret must not be.
    if isinstance(error, UndefinedError) and (not meter.secret or str(error.name) in source):
        error.among = error.among or [name for name in names or () if name.islower()]
        return error
    if isinstance(error, LimitError) or (isinstance(error, HieraError) and not meter.secret):
        return error
    if isinstance(error, TemplateSyntaxError):
        detail = "something follows the expression" if "chunk after" in str(error.message) else error.message
        return ExpressionError("", f"is not valid: {detail}", code=ProblemCode.EXPRESSION_SYNTAX)
    if isinstance(error, TemplateNotFound):
        detail = f"unknown template {error.name!r}"
        return UndefinedError("", detail, error.name, code=ProblemCode.MISSING_FILE)
    if isinstance(error, (RecursionError, MemoryError)):
        return LimitError("", "is nested too deeply, calls itself without end, or makes too much")
    if meter.secret:
        return ExpressionError("", f"fails on a secret value ({type(error).__name__})")
    kind = "" if isinstance(error, (TemplateError, TypeError, ValueError)) else f"{type(error).__name__}: "
    return ExpressionError("", f"cannot be evaluated: {kind}{error}")


_FACTS = frozenset({"facts", "Facts", "environ", "Environ"})
_SAME = frozenset(
    {"read_file", "readFile", "file", "range", "dict", "namespace", "cycler", "joiner", "value"}
)
"""Names with the same meaning on every host."""
_LOOKUPS = frozenset({"lookup", "hiera"})


def depends_of(source: str) -> DependsOn:
    """Return why an expression may differ on another host. ``source`` is its text, without braces.

    Names of loops count as data. An expression that cannot be parsed depends on nothing.
    """
    try:
        tree, _ = tree_of(source)
    except HieraError:
        return DependsOn.NOTHING
    names = {node.name for node in (tree, *tree.find_all(nodes.Name)) if isinstance(node, nodes.Name)}
    paths = [node.value for node in (tree, *tree.find_all(nodes.Const)) if isinstance(node, nodes.Const)]
    roots = {str(path).partition(".")[0] for path in paths} if names & _LOOKUPS else set()
    # A template can read all facts.
    if (names | roots) & (_FACTS | {"template"}):
        return DependsOn.FACTS
    return DependsOn.DATA if names - _SAME else DependsOn.NOTHING
