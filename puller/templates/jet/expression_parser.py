"""Parses tokens into expressions.

expression  = logical [ "?" expression ":" expression ]
logical     = binary operators, loosest first: "&&" and "||" alike; "==" "!="; "<" "<=" ">" ">="; "+" "-";
              "*" "/" "%"
unary       = "!" comparison | ( "-" | "+" ) operand | operand
operand     = term { "." name | "(" arguments ")" | "[" expression "]" | "[" [ from ] ":" [ to ] "]" }
term        = literal | name | "." | "." name | "_" | "nil" | "(" expression ")"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from puller.templates.govalue.strconv import parse_float, parse_int, parse_uint, unquote, unquote_rune
from puller.templates.jet.lexer import KEYWORDS, Token
from puller.templates.jet.nodes import (
    Arguments,
    Binary,
    Call,
    Chain,
    Dot,
    Expression,
    Field,
    Index,
    Key,
    Literal,
    Name,
    Nil,
    Not,
    Sign,
    Slice,
    Ternary,
    Underscore,
)
from puller.templates.limits import TemplateSource

_LEVELS: Final = {
    "&&": 1, "||": 1,
    "==": 2, "!=": 2,
    "<": 3, "<=": 3, ">": 3, ">=": 3,
    "+": 4, "-": 4,
    "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_COMPARISON: Final = 2
_CAN_BE_CALLED: Final = (Name, Dot, Call, Field, Chain, Index)


class ExpressionParser:
    """A reader of expressions from the tokens of a template, from any position.

    Every method that reads raises TemplateError, at the unexpected token.
    """

    def __init__(self, source: TemplateSource, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.position = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.position]

    def next(self) -> Token:
        """Return the current token and advance. The reader stays at the end, and at an error of the lexer."""
        token = self.tokens[self.position]
        if token.kind not in ("eof", "error"):
            self.position += 1
        return token

    def take(self, kind: str) -> bool:
        """Skip a token of this kind. Return whether it was present."""
        if self.token.kind != kind:
            return False
        self.position += 1
        return True

    def expect(self, kind: str, wanted: str) -> Token:
        """Return a token of this kind, or fail with a message that names the ``wanted`` token."""
        if self.token.kind != kind:
            self.refuse(wanted)
        return self.next()

    def close(self, what: str) -> Token:
        """Read the right delimiter of an action."""
        return self.expect("right", f"the end of {what}")

    def refuse(self, wanted: str) -> NoReturn:
        """Raise the complaint about the current token, or the lexer's own error."""
        token = self.token
        if token.kind == "error":
            raise self.source.error(token.offset, token.text)
        if token.kind in ("extends", "import"):
            raise self.source.error(
                token.offset, f"{token.kind} must come before everything else in a template"
            )
        detail = f"the keyword {token.text}" if token.kind in KEYWORDS else token.text
        raise self.source.error(token.offset, f"found {detail}, expected {wanted}")

    # Expressions

    def optional_expression(self) -> Expression | None:
        """Return an expression, or ``None`` at the end of the action."""
        return None if self.token.kind == "right" else self.expression()

    def expression(self) -> Expression:
        """Read ``logical [ ? expression : expression ]``."""
        condition = self.binary(1)
        if self.token.kind != "?":
            return condition
        offset = self.next().offset
        yes = self.expression()
        self.expect(":", "a colon and the other value")
        return Ternary(offset, condition, yes, self.expression())

    def binary(self, level: int) -> Expression:
        """Read operators that bind at least as tightly as ``level``, from left to right."""
        remaining = self.unary()
        while (own := _LEVELS.get(self.token.kind, 0)) >= level:
            operator = self.next()
            # The right side is one level higher, so that ``a - b - c`` is left-associative.
            remaining = Binary(operator.offset, operator.kind, remaining, self.binary(own + 1))
        return remaining

    def unary(self) -> Expression:
        """Read an operand, with an optional sign or ``!``. ``!`` extends over a comparison."""
        token = self.token
        if self.take("!"):
            return Not(token.offset, self.binary(_COMPARISON))
        if token.kind in ("-", "+"):
            self.position += 1
            return Sign(token.offset, token.kind, self.operand())
        return self.operand()

    def operand(self) -> Expression:
        """Read a term and all fields, calls and indexes that follow without space."""
        node = self.term()
        while True:
            # A space before a field starts another expression: ``include path .a`` has a context.
            if self.token.kind == "field" and not self.token.spaced:
                node = self.chain(node)
            if not isinstance(node, _CAN_BE_CALLED):
                return node
            if self.take("("):
                arguments = self.arguments()
                self.expect(")", "a comma or the closing parenthesis")
                node = Call(node.offset, node, arguments)
            elif self.token.kind == "[":
                node = self.index(node, self.next())
            else:
                return node

    def chain(self, base: Expression) -> Expression:
        """Parse ``base.a.b``. The fields of a field are a single path."""
        if isinstance(base, (Literal, Nil)):
            raise self.source.error(self.token.offset, f"{base} has no fields")
        keys: list[Key] = []
        while self.token.kind == "field":
            token = self.next()
            keys.append(Key(token.text[1:], token.offset + 1))
        if isinstance(base, Field):
            return Field(base.offset, base.keys + tuple(keys))
        return Chain(base.offset, base, tuple(keys))

    def index(self, base: Expression, opening: Token) -> Expression:
        """Read ``base[position]`` or ``base[from:to]``."""
        if self.take(":"):
            return self.slice(base, opening, None)
        position = self.expression()
        if self.take(":"):
            return self.slice(base, opening, position)
        self.close_bracket()
        return Index(opening.offset, base, position)

    def slice(self, base: Expression, opening: Token, start: Expression | None) -> Slice:
        """Read the rest of ``base[start:to]``, after the colon."""
        end = None if self.token.kind == "]" else self.expression()
        self.close_bracket()
        return Slice(opening.offset, base, start, end)

    def close_bracket(self) -> None:
        """Read ``]``. A delimiter ``]]`` in its place fails with an explanation."""
        if self.token.kind == "right" and self.token.text.startswith("]]"):
            self.refuse("the closing bracket; two in a row end the action, write ] ]")
        self.expect("]", "the closing bracket")

    def arguments(self) -> Arguments:
        """Read expressions separated by commas, up to ``)`` or the end of the pipeline's stage."""
        expressions: list[Expression] = []
        slot = False
        while self.token.kind != ")":
            expression = self.expression()
            if isinstance(expression, Underscore):
                if slot:
                    raise self.source.error(
                        expression.offset, "_ stands for the piped value only once in a call"
                    )
                slot = True
            expressions.append(expression)
            if not self.take(","):
                break
        return Arguments(tuple(expressions), slot)

    def term(self) -> Expression:
        """Read a literal, a name, a path from dot, or an expression in parentheses."""
        token = self.token
        match token.kind:
            case "name":
                node: Expression = Name(token.offset, token.text)
            case "dot":
                node = Dot(token.offset)
            case "field":
                node = Field(token.offset, (Key(token.text[1:], token.offset + 1),))
            case "_":
                node = Underscore(token.offset)
            case "nil":
                node = Nil(token.offset)
            case "(":
                return self.parenthesis()
            case kind if kind in _VALUES:
                node = self.literal(token)
            case _:
                self.refuse("a value")
        self.position += 1
        return node

    def literal(self, token: Token) -> Literal:
        """Return the value of a number, character, string or boolean."""
        try:
            return Literal(token.offset, _VALUES[token.kind](token.text), token.text)
        except ValueError as error:
            raise self.source.error(
                token.offset, f"{token.text} is not a valid {token.kind}: {error}"
            ) from None

    def parenthesis(self) -> Expression:
        """Read ``( expression )``."""
        self.expect("(", "an opening parenthesis")
        expression = self.expression()
        self.expect(")", "the closing parenthesis")
        return expression


def _number(text: str) -> float:
    """Return the number as a float, even for ``0x10`` and ``017``. An integer must still fit in 64 bits."""
    for parse_whole in (parse_int, parse_uint):
        try:
            return float(parse_whole(text, 0))
        except ValueError:
            continue
    if not set(text) & set(".eE"):
        raise ValueError("wrong digits, or more than 64 bits")
    return parse_float(text)


_VALUES: Final[dict[str, Callable[[str], float | str | bool]]] = {
    "number": _number,
    "char": lambda text: float(unquote_rune(text)),
    "string": unquote,
    "raw": unquote,
    "bool": lambda text: text == "true",
}
