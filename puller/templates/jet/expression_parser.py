"""Splits the text of a Jet template into tokens, and parses tokens into expressions.

Tokens:

* Outside delimiters everything is text, except comments ``{* … *}``, which are dropped.
* ``[[- `` removes the white space before it, `` -]]`` the white space after it. The dash needs its space.
* Invalid text becomes a token of kind ``error``, with the message as its text. The parser raises it when it gets there,
  so that the first error in the file is reported.
* A sign is part of a number depending on the text before it: ``5 -3`` is two numbers, ``n-3`` a difference.

Expressions:

expression  = logical [ "?" expression ":" expression ]
logical     = binary operators, loosest first: "&&" and "||" alike; "==" "!="; "<" "<=" ">" ">="; "+" "-";
              "*" "/" "%"
unary       = "!" comparison | ( "-" | "+" ) operand | operand
operand     = term { "." name | "(" arguments ")" | "[" expression "]" | "[" [ from ] ":" [ to ] "]" }
term        = literal | name | "." | "." name | "_" | "nil" | "(" expression ")"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from puller.templates.govalue.strconv import parse_float, parse_int, parse_uint, unquote, unquote_rune
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
from puller.templates.template_errors import TemplateSource

SPACES: Final = " \t\r\n"
KEYWORDS: Final = frozenset((
    "extends", "import", "include", "block", "yield", "content", "if", "else", "end", "range",
    "try", "catch", "return", "and", "or", "not", "nil", "msg", "trans",
))  # fmt: skip
_WORD_KINDS: Final = {"and": "&&", "or": "||", "not": "!", "true": "bool", "false": "bool", "_": "_"}
_SPACES: Final = re.compile(f"[{SPACES}]+")
_TOKEN: Final = re.compile(
    r"""
    (?P<number> (?: 0[xX][0-9a-fA-F]*(?:\.[0-9a-fA-F]*)? | [0-9]+(?:\.[0-9]*)? | \.[0-9]+ ) (?:[eE][+-]?[0-9]*)? i? )
  | (?P<word>   \w+ )
  | (?P<field>  \.\w* )
  | (?P<string> "(?:[^"\\\n]|\\[^\n])*" )
  | (?P<raw>    `[^`]*` )
  | (?P<char>   '(?:[^'\\\n]|\\[^\n])*' )
  | (?P<sign>   && | \|\| | [<>!=:]= | [-,;*/%+?<>!=:|\[\]()] )
    """,
    re.VERBOSE,
)
_UNTERMINATED: Final = {
    '"': "the string requires a closing quote on its line",
    "`": "the raw string requires a closing backquote",
    "'": "the character constant requires a closing quote on its line",
}
_MAY_END_WORD: Final = frozenset(SPACES + ".,|:)=(;?[]+-/%*&!<>")
_TAKES_NO_SIGN_AFTER: Final = frozenset(
    ("+", "-", "number", "name", "string", "raw", "char", "bool", "field", "dot", "trans")
)


class Token(NamedTuple):
    """``kind`` is a class (``name``, ``field``, ``string`` …), or the keyword or sign itself.

    ``spaced`` is true after white space.
    """

    kind: str
    text: str
    offset: int
    spaced: bool


def tokenize(text: str, left: str, right: str) -> list[Token]:
    """Return all tokens of a template, with ``eof`` as the last one."""
    return _Lexer(text, left, right).run()


class _Lexer:
    def __init__(self, text: str, left: str, right: str) -> None:
        self.text = text
        self.left = left
        self.right = right
        self.tokens: list[Token] = []
        self.failed = False

    def run(self) -> list[Token]:
        opening = re.compile(f"{re.escape(self.left)}|{{\\*")
        # A comment counts only where a delimiter could still follow. Jet checks only for its first character.
        last = self.text.rfind(self.left[0])
        position = start = 0
        while not self.failed and (match := opening.search(self.text, position)):
            if match[0] == self.left:
                self.add_text(start, self.trimmed_end(start, match))
                start = position = self.lex_action(match.start())
            elif match.start() <= last:
                self.add_text(start, match.start())
                start = position = self.skip_comment(match.start())
            else:
                break
        if not self.failed:
            self.add_text(start, len(self.text))
        self.add("eof", "the end of the template", len(self.text))
        return self.tokens

    def add(self, kind: str, text: str, offset: int, spaced: bool = False) -> None:
        self.tokens.append(Token(kind, text, offset, spaced))

    def add_text(self, start: int, end: int) -> None:
        if end > start:
            self.add("text", self.text[start:end], start)

    def fail(self, message: str, offset: int) -> int:
        self.add("error", message, offset)
        self.failed = True
        return len(self.text)

    def trimmed_end(self, start: int, opening: re.Match[str]) -> int:
        end = opening.start()
        if self.text.startswith("- ", opening.end()):
            end = start + len(self.text[start:end].rstrip(SPACES))
        return end

    def skip_comment(self, start: int) -> int:
        end = self.text.find("*}", start + 2)
        return self.fail("the comment is not closed with *}", start) if end < 0 else end + 2

    def lex_action(self, start: int) -> int:
        """Add tokens from a left delimiter to after its right delimiter. Return the position of the next text."""
        self.add("left", self.left, start)
        position = start + len(self.left)
        if self.text.startswith("- ", position):
            position += 2
        parentheses = 0
        while not self.failed:
            begin = position
            position = self.after_spaces(begin)
            spaced = position > begin
            if (end := self.closing(begin, position)) >= 0:
                if parentheses:
                    return self.fail(
                        f"{self.right} ends the action, but a parenthesis is still open", position
                    )
                self.add("right", self.right, position, spaced)
                return end
            if position >= len(self.text):
                return self.fail(f"the action is not closed with {self.right}", start)
            position = self.lex_token(position, spaced)
            parentheses += {"(": 1, ")": -1}.get(self.tokens[-1].kind, 0)
            if parentheses < 0:
                return self.fail("the opening parenthesis is missing", self.tokens.pop().offset)
        return position

    def closing(self, begin: int, position: int) -> int:
        """Return the position after a right delimiter here, with or without a trim mark, or -1."""
        if self.text.startswith(self.right, position):
            return position + len(self.right)
        dashed = "-" + self.right
        if position > begin and self.text[position - 1] == " " and self.text.startswith(dashed, position):
            return self.after_spaces(position + len(dashed))
        return -1

    def after_spaces(self, position: int) -> int:
        match = _SPACES.match(self.text, position)
        return match.end() if match else position

    def lex_token(self, position: int, spaced: bool) -> int:
        match = _TOKEN.match(self.text, position + self.sign_length(position, spaced))
        if match is None or match.lastgroup is None:
            character = self.text[position]
            return self.fail(_UNTERMINATED.get(character, f"{character!r} means nothing here"), position)
        kind, text, end = match.lastgroup, self.text[position : match.end()], match.end()
        following = self.text[end : end + 1]
        if kind == "number" and (following == "_" or following.isalnum()):
            return self.fail(f"{text + following} is not a number", position)
        if kind in ("word", "field") and not self.can_end_word(end):
            return self.fail(f"{following!r} cannot follow {text}", end)
        self.add(self.kind_of(kind, text), text, position, spaced)
        return end

    def sign_length(self, position: int, spaced: bool) -> int:
        """Return 1 for a sign that belongs to the number after it, else 0."""
        if self.text[position] not in "+-" or self.text[position + 1 : position + 2] not in set("0123456789"):
            return 0
        return 1 if spaced or self.tokens[-1].kind not in _TAKES_NO_SIGN_AFTER else 0

    def can_end_word(self, end: int) -> bool:
        return end >= len(self.text) or self.text[end] in _MAY_END_WORD or self.text[end] == self.right[0]

    @staticmethod
    def kind_of(group: str, text: str) -> str:
        if group == "word":
            return _WORD_KINDS.get(text) or (text if text in KEYWORDS else "name")
        if group == "field":
            return "dot" if text == "." else "field"
        return text if group == "sign" else group


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

    def expect(self, kind: str, expected: str) -> Token:
        """Return a token of this kind, or fail with a message that names the ``expected`` token."""
        if self.token.kind != kind:
            self.refuse(expected)
        return self.next()

    def close(self, what: str) -> Token:
        """Read the right delimiter of an action."""
        return self.expect("right", f"the end of {what}")

    def refuse(self, expected: str) -> NoReturn:
        """Raise the error about the current token, or the lexer's own error."""
        token = self.token
        if token.kind == "error":
            raise self.source.error(token.offset, token.text)
        if token.kind in ("extends", "import"):
            raise self.source.error(
                token.offset, f"{token.kind} must come before everything else in a template"
            )
        detail = f"the keyword {token.text}" if token.kind in KEYWORDS else token.text
        raise self.source.error(token.offset, f"found {detail}, expected {expected}")

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
