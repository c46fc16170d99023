"""The ``{{ expression }}`` language of manifests and data.

* Only ``{{ … }}`` is special: it ends at the first ``}}`` outside quotes and brackets. ``{% %}`` and ``{# #}`` are
  ordinary text. Write a literal ``{{`` as ``{{ '{{' }}``.
* If a text is a single expression, with only blanks around it, the result has the value's type. A line break around it
  makes the result text, so that a block of one line keeps its end of line.
* Inside other text a value must be text, a number or a boolean (``true``, ``false``). Null, lists and mappings are
  errors, and the message suggests a replacement.
* A missing name or key is an error, never the empty text.
* A value is resolved once: braces that come out of facts or data are text.
* A text that contains a secret is a secret.

Constants, plain names (``facts.os.family``) and ``lookup`` with literal arguments are answered here. Only other
expressions load Jinja2, which costs 40 ms once, and half a millisecond for each new expression.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from foundation.problems import DependsOn, ProblemCode
from hiera.errors import ExpressionError, HieraError, LimitError, UndefinedError
from hiera.expressions.refused import refuse_lookup
from hiera.limits import TEXT_LIMIT, total
from hiera.values import (
    MISSING,
    TYPES,
    Secret,
    described,
    find_value,
    first_missing,
    parse_path,
    path_text,
    plain,
)

EXPRESSION_LIMIT: Final = 10_000
"""Characters between ``{{`` and ``}}``."""

_SYNTAX: Final = ProblemCode.EXPRESSION_SYNTAX
_SHOWN: Final = 80  # characters of an expression in a message


class Scope:
    """The names that expressions see: ``facts``, ``data`` and ``environ`` (also capitalised), ``lookup``, and more.

    ``facts`` may gather lazily: only requested top-level keys are read. ``functions`` are further names, functions
    (``read_file``, ``template``) as well as values.
    """

    __slots__ = ("_texts", "data", "environ", "facts", "functions", "names")

    def __init__(
        self,
        facts: Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        functions: Mapping[str, Any] | None = None,
    ) -> None:
        self.facts = facts
        self.data: Mapping[str, Any] = {} if data is None else data
        self.environ: Mapping[str, str] = {} if environ is None else environ
        self.functions: Mapping[str, Any] = {} if functions is None else functions
        roots = {"facts": self.facts, "data": self.data, "environ": self.environ}
        self.names: dict[str, Any] = {
            **roots,
            **{name.capitalize(): root for name, root in roots.items()},
            **self.functions,
            "lookup": self.lookup,
        }
        self._texts: dict[Expression, str | Secret] = {}

    def with_data(self, data: Mapping[str, Any]) -> Scope:
        """Return this scope with other data."""
        return Scope(self.facts, data, self.environ, self.functions)

    def with_names(self, names: Mapping[str, Any]) -> Scope:
        """Return this scope with further names."""
        return Scope(self.facts, self.data, self.environ, {**self.functions, **names})

    def lookup(self, path: str, default: Any = MISSING) -> Any:
        """Return the value at a dotted path, or ``default`` if it is missing. Null is a value.

        Raises UndefinedError if the value and ``default`` are missing, and ExpressionError for an invalid path.
        """
        if not isinstance(path, str):
            raise ExpressionError(
                "", f"lookup requires a path such as 'data.web.port', not {described(path)}"
            )
        steps = parse_path(path)
        # A path reaches data and loop variables only, no functions.
        is_value = steps and (steps[0] in ROOTS or not callable(self.names.get(steps[0])))
        value = find_value(self.names, steps) if is_value else MISSING
        if value is not MISSING:
            return value
        if steps and steps[0] not in ROOTS:
            refuse_lookup(path)  # the second argument is a key, no default
        if default is MISSING:
            raise self.missing(steps)
        return default

    # For the sandbox: safe to call with plain values. It is called more often than all other functions together.
    lookup.__dict__["is_plain"] = True

    def text_of(self, expression: Expression) -> str | Secret:
        """Return an expression as it stands inside text. Plain names of facts and data are looked up once."""
        if (text := self._texts.get(expression)) is None:
            text = expression.text(self)
            if expression.root in ROOTS:
                self._texts[expression] = text
        return text

    def missing(self, steps: tuple[str, ...]) -> UndefinedError:
        """Return the error that names the first missing step of ``steps`` and the names that exist there."""
        if steps[0] not in self.names:
            return UndefinedError(
                "",
                f"unknown name {steps[0]!r}",
                steps[0],
                [name for name in self.names if name.islower()],
                code=ProblemCode.UNKNOWN_NAME,
            )
        parent, count = first_missing(self.names, steps)
        if count == len(steps):
            detail = f"{path_text(steps)} is {described(parent)}, and no value"
            return UndefinedError("", detail, steps[-1], code=ProblemCode.EXPRESSION_FAILS)
        where, key = path_text(steps[:count]), steps[count]
        if isinstance(parent, Mapping):
            return UndefinedError("", f"unknown key {key!r} in {where}", key, parent)
        detail = f"{where} is {described(parent)}, without the key {key!r}"
        return UndefinedError("", detail, key, code=ProblemCode.EXPRESSION_FAILS)


ROOTS: Final = frozenset({"facts", "data", "environ", "Facts", "Data", "Environ"})
"""The names that are available in every expression and template. Other values cannot have these names."""


# -- resolving ------------------------------------------------------------------------------------


def depends_of_value(value: Any) -> DependsOn:
    """Return why the expressions in a value may differ on another host."""
    result = {_depends_of(source) for source in _sources(value)}
    return next((on for on in (DependsOn.FACTS, DependsOn.DATA) if on in result), DependsOn.NOTHING)


def _depends_of(source: str) -> DependsOn:
    from hiera.expressions.jinja import depends_of  # Jinja2, and only for a message

    return depends_of(source)


def _sources(value: Any) -> Iterator[str]:
    """Yield the expressions in a value, without braces."""
    if isinstance(value, str):
        with contextlib.suppress(HieraError):
            yield from (piece.source for piece in parse(value) if isinstance(piece, Expression))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _sources(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _sources(item)


def has_expression(text: str) -> bool:
    """Return whether ``text`` contains the start of an expression."""
    return "{{" in text


def resolve(text: str, scope: Scope) -> Any:
    """Return ``text`` unchanged, the value of its only expression, or ``text`` with all expressions replaced.

    Raises ExpressionError, UndefinedError and LimitError, which name the expression.
    """
    if "{{" not in text:
        return text
    pieces = parse(text)
    if len(pieces) == 1 and not isinstance(pieces[0], str):
        return pieces[0].value(scope)
    return joined([piece if isinstance(piece, str) else scope.text_of(piece) for piece in pieces])


def resolve_tree(value: Any, scope: Scope, where: str = "") -> Any:
    """Return ``value`` with the texts in it resolved, except mapping keys. Values without expressions are not copied.

    Raises HieraError with ``where`` and the path of keys in front, and the path in its ``keys``.
    """
    try:
        return _resolved(value, scope)
    except HieraError as error:
        raise error.at(": ".join(filter(None, (where, path_text(error.keys))))) from None


def resolve_keys(value: Any, scope: Scope) -> Any:
    """Return ``value`` with the expressions in the keys of its mappings resolved, at all levels.

    Raises HieraError. A secret cannot be a key.
    """
    if isinstance(value, dict):
        return {_resolved_key(key, scope): resolve_keys(item, scope) for key, item in value.items()}
    return [resolve_keys(item, scope) for item in value] if isinstance(value, list) else value


def _resolved_key(key: Any, scope: Scope) -> Any:
    resolved = resolve(key, scope) if isinstance(key, str) else key
    if isinstance(resolved, (str, int, float)):
        return resolved
    raise ExpressionError(str(key), f"is {described(resolved)}, which cannot be a key")


def evaluate(expression: str, scope: Scope) -> Any:
    """Return the value of an expression without braces, as in conditions (braces are allowed).

    Raises ExpressionError, UndefinedError and LimitError.
    """
    text = expression.strip()
    if not text.startswith("{{"):
        return _expression(text).value(scope)
    pieces = parse(text)
    if len(pieces) != 1 or isinstance(pieces[0], str):
        raise ExpressionError("", f"{expression!r} is text, where one expression is expected")
    return pieces[0].value(scope)


def _resolved(value: Any, scope: Scope) -> Any:
    kind = type(value)
    if kind is str:
        return resolve(value, scope) if "{{" in value else value
    if kind is dict:
        return _resolved_items(value, value.items(), scope)
    return _resolved_items(value, enumerate(value), scope) if kind is list else value


def _resolved_items(container: Any, items: Any, scope: Scope) -> Any:
    """Return a copy of a list or mapping with its values resolved, or the container itself if they are unchanged."""
    copy = None
    for key, item in items:
        try:
            resolved = _resolved(item, scope)
        except HieraError as error:
            raise error.under(key) from None
        if resolved is not item:
            copy = container.copy() if copy is None else copy
            copy[key] = resolved
    return container if copy is None else copy


def joined(pieces: list[Any]) -> str | Secret:
    """Return texts and secrets as one text, which is a secret if any piece is a secret. Raises LimitError."""
    secret = [piece for piece in pieces if isinstance(piece, Secret)]
    texts = [piece.reveal() if isinstance(piece, Secret) else piece for piece in pieces] if secret else pieces
    if sum(map(len, texts)) > TEXT_LIMIT:
        raise LimitError("", f"makes a text of more than {TEXT_LIMIT} characters")
    text = "".join(texts)
    total.count(text)
    return Secret(text) if secret else text


# -- expressions ----------------------------------------------------------------------------------


class Expression:
    """An expression: its source, and the computation of its value."""

    __slots__ = ("source",)

    def __init__(self, source: str) -> None:
        self.source = source

    @property
    def root(self) -> str:
        """The first step of a plain name (``facts`` of ``facts.os.family``). Empty for other expressions."""
        return ""

    @property
    def where(self) -> str:
        """The expression in the form for messages."""
        shown = self.source if len(self.source) <= _SHOWN else f"{self.source[:_SHOWN]}…"
        return f"{{{{ {shown} }}}}"

    def value(self, scope: Scope) -> Any:
        """Return the value. Raises ExpressionError, UndefinedError and LimitError with the expression in front."""
        try:
            value = self.raw(scope)
            return value if type(value) in TYPES else plain(value)
        except HieraError as error:
            raise error.of_expression(self.source, _depends_of).at(self.where) from None

    def raw(self, scope: Scope) -> Any:
        """Return the value of the expression. Raises HieraError without the expression in front."""
        from hiera.expressions.jinja import compile_expression  # jinja2 takes 36 % of an idle run

        value = compile_expression(self.source)(scope.names)
        total.count(value)
        return value

    def text(self, scope: Scope) -> str | Secret:
        """Return the value as it stands inside text."""
        value = self.value(scope)
        if isinstance(value, Secret):
            return Secret(self.as_text(value.reveal()))
        return self.as_text(value)

    def as_text(self, value: Any) -> str:
        """Return a value as it stands inside text. Raises ExpressionError for null, lists and mappings."""
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            return str(value)
        advice = (
            "choose a text with | default('', true)" if value is None else "use | to_json or | join(', ')"
        )
        detail = f"is {described(value)}, which cannot stand inside text: {advice}"
        raise ExpressionError(self.where, detail).of_expression(self.source, _depends_of)


class Constant(Expression):
    """``'{{'``, ``true``, ``80``."""

    __slots__ = ("constant",)

    def __init__(self, source: str, constant: Any) -> None:
        super().__init__(source)
        self.constant = constant

    def raw(self, scope: Scope) -> Any:
        return self.constant


class Name(Expression):
    """A plain name such as ``facts.os.family``. Raises UndefinedError if it is missing."""

    __slots__ = ("steps",)

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.steps = tuple(source.split("."))

    @property
    def root(self) -> str:
        return self.steps[0]

    def raw(self, scope: Scope) -> Any:
        value = find_value(scope.names, self.steps)
        if value is MISSING:
            raise scope.missing(self.steps)
        return value


class Lookup(Expression):
    """``lookup('data.web.port', 80)`` with literals as arguments."""

    __slots__ = ("default", "path")

    def __init__(self, source: str, path: str, default: Any) -> None:
        super().__init__(source)
        self.path = path
        self.default = default

    @property
    def root(self) -> str:
        return next(iter(parse_path(self.path)), "")

    def raw(self, scope: Scope) -> Any:
        return scope.lookup(self.path, self.default)


# Patterns are compiled on first use: few runs need them all.
_TEXT: Final = r"""'[^'\\\r]*'|"[^"\\\r]*\""""
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
_LOOKUP: Final = (
    r"""lookup\(\s*(?P<quote>['"])(?P<path>(?:[^'"\\]|\\[.#])*)(?P=quote)\s*"""
    r"""(?:,\s*(?:default\s*=\s*)?(?P<default>.*?)\s*)?\)"""
)
_WORDS: Final = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}


@functools.lru_cache(maxsize=2048)
def _expression(source: str) -> Expression:
    """Return the expression with this text. The shortcuts here give the same results as Jinja2."""
    if len(source) > EXPRESSION_LIMIT:
        raise LimitError(f"{{{{ {source[:_SHOWN]}…", f"is longer than {EXPRESSION_LIMIT} characters")
    if (constant := _constant(source)) is not MISSING:
        return Constant(source, constant)
    if source.isascii() and all(step.isidentifier() for step in source.split(".")):
        return Name(source)
    match = re.fullmatch(_LOOKUP, source, re.ASCII | re.DOTALL) if source.startswith("lookup(") else None
    if match is None:
        return Expression(source)
    if match["default"] is None:
        return Lookup(source, match["path"], MISSING)
    default = _constant(match["default"])
    return Expression(source) if default is MISSING else Lookup(source, match["path"], default)


def _constant(source: str) -> Any:
    """Return the value of a text without escapes, a number or a word. ``MISSING`` for other sources."""
    first = source[:1]
    if source in _WORDS:
        return _WORDS[source]
    if first in ("'", '"') and re.fullmatch(_TEXT, source):
        return source[1:-1]
    if (first == "-" or first.isdecimal()) and re.fullmatch(_NUMBER, source):
        return float(source) if "." in source else int(source)
    return MISSING


# -- finding the expressions in a text ------------------------------------------------------------

_APART: Final = r"""[^'"()\[\]{}]*"""
_SIMPLE: Final = re.compile(  # only the brackets of one call, whose texts contain no backslash
    rf"""\{{\{{({_APART}(?:\({_APART}(?:(?:'[^'\\]*'|"[^"\\]*"){_APART})*\){_APART})?)\}}\}}"""
)
_LEXEME: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[][(){}'"]"""


def parse(text: str) -> list[str | Expression]:
    """Return the pieces of a text. A single expression with only blanks around it is the only piece."""
    split: list[Any] = _SIMPLE.split(text)
    if "{{{" in text or "{{" in "".join(split[::2]):  # not all are simple, or the start of one is ambiguous
        split = _split(text)
    split[1::2] = map(_inside, split[1::2])
    pieces: list[str | Expression] = [piece for piece in split if piece]
    if len(pieces) > 3:
        return pieces
    results = [piece for piece in pieces if not isinstance(piece, str) or piece.strip(" \t")]
    return results if len(results) == 1 else pieces


def _split(text: str) -> list[str]:
    """Return the texts outside and inside of braces in alternation, like ``_SIMPLE.split``."""
    pieces: list[str] = []
    end = 0
    while (start := text.find("{{", end)) >= 0:
        pieces.append(text[end:start])
        end = _end(text, start)
        pieces.append(text[start + 2 : end - 2])
    return [*pieces, text[end:]]


@functools.lru_cache(maxsize=2048)
def _inside(inside: str) -> Expression:
    """Return the expression between two pairs of braces."""
    return _expression(_source(inside))


def _source(inside: str) -> str:
    source = inside.strip()
    if inside.startswith(("-", "+")) or inside.endswith(("-", "+")):
        detail = "{{- and -}} work in template files only; write {{ -x }} for a negative number"
        raise ExpressionError(f"{{{{{inside}}}}}", detail, code=_SYNTAX)
    if not source:
        detail = "is empty; write {{ '{{' }} for a literal {{"
        raise ExpressionError(f"{{{{{inside}}}}}", detail, code=_SYNTAX)
    return source


def _end(text: str, start: int) -> int:
    """Return the offset behind the ``}}`` that ends the expression whose ``{{`` is at ``start``."""
    depth = 0
    for token in re.compile(_LEXEME, re.DOTALL).finditer(text, start + 2):
        result = token[0]
        if result in "([{":
            depth += 1
        elif depth == 0 and text.startswith("}}", token.start()):
            return token.end() + 1
        elif result in ")]}":
            depth -= 1
        elif len(result) == 1:
            raise ExpressionError(_excerpt(text, start), f"the quote {result} is not closed", code=_SYNTAX)
    detail = "this {{ lacks its }}; write {{ '{{' }} for a literal {{"
    raise ExpressionError(_excerpt(text, start), detail, code=_SYNTAX)


def _excerpt(text: str, start: int) -> str:
    line = text[start : start + _SHOWN].split("\n")[0]
    return line if start + len(line) == len(text) else line + "…"
