"""The notation ``${ … }`` of CCM for expressions.

* It is an expression in a document with a ``ccm`` section, and in ``hierarchy.order`` of every document.
* Elsewhere it is ordinary text.
* Parameter expansions of shells, such as ``${NAME}``, are ordinary text everywhere except in ``hierarchy.order``.
* Its conditions (``a ?? b``, ``c ? a : b``, ``a?.b``) and its ``&&``, ``||`` and ``!`` become those of Jinja2. Its
  predicates (``filter(list, # > 1)``) have no equivalent.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from hiera import parsing
from hiera.errors import HieraError

Path = tuple[str | int, ...]

# Patterns are compiled on first use: an idle run needs none of them.
_ANY: Final = r"\$\{[^{}][^}]*\}"
_NAME: Final = r"(?!(?:Facts|Data|Environ)\b)[A-Za-z_]\w*|\d+|[@*#?$!-]"
_OF_SHELL: Final = rf"(?a)\$\{{[#!]?(?:{_NAME})(?:\[[^]]*\])?(?:\}}|:?[-=+?:#%/^,@])"
_OF_TEXT: Final = r"\$\{\s*(?:(?:[Dd]ata|[Ff]acts|[Ee]nviron)\.|lookup\s*\()[^{}\n]*\}"
"""Names of shell parameters never contain a dot."""
_LONGEST: Final = 60  # characters of an excerpt
_PIECE: Final = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\?\?|\?:|\?\.|[][(){}?:,])"""
_CLOSING: Final = ("", ")", "]", "}")
_NESTING: Final = ("(", "[", "{", "?", "?:")
_MOST_NESTED: Final = 60
_MOST_PIECES: Final = 2000
"""Limits of a translated expression. A longer one keeps its text, because the translation is recursive."""
_OPTIONAL: Final = r"\b([Dd]ata|[Ff]acts|[Ee]nviron)((?:\.\w+)*\?\.\w+(?:\??\.\w+)*)"
_LOOKUP: Final = r"""lookup\(\s*("[^"]*"|'[^']*')\s*\)"""
_OPERAND: Final = r"[\w.]+(?:\([^()]*\)|\[[^][]*\])?"
"""An operand that needs no parentheses."""


SECTION: Final = "ccm"
"""The section of CCM's manifests with the keys of a run."""

ORDER: Final[Path] = ("hierarchy", "order")


class Foreign(NamedTuple):
    """An expression of CCM in a YAML text."""

    line: int
    text: str
    """The expression, shortened."""
    replacement: str
    """The expression of Jinja2, or empty if Jinja2 has no equivalent."""
    is_evaluated: bool
    """Whether it is an expression at this place, and not ordinary text."""


def find_foreign(text: str) -> Iterator[Foreign]:
    """Yield each expression of CCM in a YAML text. Empty for invalid YAML."""
    if "${" not in text:
        return
    try:
        value = parsing.load_yaml(text, "")
    except HieraError:
        return
    is_of_ccm = isinstance(value, dict) and SECTION in value
    for path, expression in _walk(value, ()):
        is_evaluated = is_of_ccm or _is_in_order(path)
        line = parsing.locate(text, path)[0]
        replacement = re.sub(" {2,}", " ", _replacement(expression))
        if not _is_valid(replacement):
            replacement = ""
        yield Foreign(line, _shown(expression), replacement, is_evaluated)


def converted(value: Any, path: Path = ()) -> Any:
    """Return a value of a document with the expressions of CCM in Puller's notation, keys included."""
    if isinstance(value, str):
        return _converted_text(value, path) if "${" in value else value
    if isinstance(value, Mapping):
        return {
            converted(key, (*path, key)) if isinstance(key, str) else key: converted(item, (*path, key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [converted(item, (*path, index)) for index, item in enumerate(value)]
    return value


def _converted_text(text: str, path: Path) -> str:
    in_order = _is_in_order(path)
    return re.sub(
        _ANY, lambda match: _replacement(match[0]) if in_order or _is_foreign(match[0]) else match[0], text
    )


def _replacement(expression: str) -> str:
    from hiera.document.annotations import in_words  # with Jinja2, 36 % of an idle run

    return f"{{{{ {_Conditions(in_words(expression[2:-1].strip())).translated()} }}}}"


def _is_valid(replacement: str) -> bool:
    from hiera.expressions.jinja import compile_expression  # Jinja2 takes 36 % of an idle run

    try:
        compile_expression(replacement[2:-2])
    except HieraError:
        return False
    return True


class _Conditions:
    """A reader of one expression that translates the conditions of CCM, also within brackets.

    ``??`` binds more than ``? :``, and both are right-associative. Invalid expressions keep their text, so the
    parser of Jinja2 reports them.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.pieces = [piece for piece in re.split(_PIECE, expression) if piece]

    def translated(self) -> str:
        nested = sum(piece in _NESTING for piece in self.pieces)
        if "?" not in self.expression or nested > _MOST_NESTED or len(self.pieces) > _MOST_PIECES:
            return self.expression
        text = self._conditional()
        return self.expression if self.pieces else text

    def _next(self) -> str:
        return self.pieces[0] if self.pieces else ""

    def _conditional(self) -> str:
        condition, is_simple = self._coalesced()
        if self._next() not in ("?", "?:"):
            return condition
        condition = condition if is_simple else f"({condition})"
        if self.pieces.pop(0) == "?:":
            return f"{condition} or ({self._conditional()})"
        value = self._conditional()
        if self._next() != ":":
            return f"{condition} ? {value}"
        self.pieces.pop(0)
        value = f"({value})" if " if " in value else value
        return f"{value} if {condition} else {self._conditional()}"

    def _coalesced(self) -> tuple[str, bool]:
        """Return operands of ``??`` as conditions, and whether there is only one operand."""
        operands = [self._operand()]
        while self._next() == "??":
            self.pieces.pop(0)
            operands.append(self._operand())
        text = operands.pop()
        is_simple = not operands
        for operand in reversed(operands):
            value = re.sub(_LOOKUP, r"lookup(\1, none)", operand)
            value = value if re.fullmatch(_OPERAND, value) else f"({value})"
            test = f"{value} is not none"
            test = test if value.startswith("lookup(") else f"{value} is defined and {test}"
            text = f"{value} if {test} else {text}"
        return text, is_simple

    def _operand(self) -> str:
        """Return the text before the next condition, comma or closing bracket."""
        text = ""
        while (piece := self._next()) not in (*_CLOSING, "?", "?:", "??", ":", ","):
            self.pieces.pop(0)
            text += piece
            if piece in "([{":
                while self._next() not in _CLOSING:
                    text += self._conditional()
                    if self._next() in (",", ":"):
                        text += f"{self.pieces.pop(0)} "
                text += self.pieces.pop(0) if self.pieces else ""
        return re.sub(_OPTIONAL, _optional, text.strip())


def _optional(match: re.Match[str]) -> str:
    return f"lookup('{match[1].lower()}{match[2].replace('?', '')}', none)"


def _shown(expression: str) -> str:
    first, *additional = expression.splitlines()
    return f"{first[:_LONGEST]}…" if additional or len(first) > _LONGEST else first


def find_foreign_in_template(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the line, column and text of each expression of CCM in a template. Its own notations are skipped."""
    for match in re.finditer(_OF_TEXT, text):
        before = text.rfind("\n", 0, match.start())
        yield text.count("\n", 0, match.start()) + 1, match.start() - before, match[0][:_LONGEST]


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield from ((path, expression) for expression in _expressions(value, path))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(key, (*path, key)) if isinstance(key, str) else ()
            yield from _walk(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index))


def _expressions(text: str, path: Path) -> Iterator[str]:
    in_order = _is_in_order(path)
    for match in re.finditer(_ANY, text):
        if in_order or _is_foreign(match[0]):
            yield match[0]


def _is_in_order(path: Path) -> bool:
    return path[:2] == ORDER


def _is_foreign(expression: str) -> bool:
    return not re.match(_OF_SHELL, expression)
