"""Parses tokens into trees, one for the file itself and one for each ``define`` and ``block`` in it.

* Parse errors are the same as in Go, before anything is rendered: unknown functions, undeclared variables, ``break``
  outside ``range``, a template defined twice, an action without an end.
* Function names are only checked to exist. No function is imported or called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from puller.templates.gotemplate.lexer import Kind, Lexer, Token, parse_number
from puller.templates.gotemplate.nodes import (
    Action,
    Body,
    Boolean,
    Branch,
    Break,
    Call,
    Chain,
    Command,
    Continue,
    Dot,
    Field,
    Identifier,
    Nil,
    Node,
    Number,
    Operand,
    Pipeline,
    Range,
    String,
    Text,
    Variable,
    is_blank,
)
from puller.templates.govalue.strconv import unquote
from puller.templates.template_errors import TemplateError, TemplateSource

_MAX_NESTING: Final = 100
"""Limit for control structures and parentheses. Go allows more, Python's stack does not."""

_OPERANDS: Final = frozenset(
    (
        Kind.BOOLEAN,
        Kind.CHARACTER,
        Kind.COMPLEX,
        Kind.DOT,
        Kind.FIELD,
        Kind.IDENTIFIER,
        Kind.NIL,
        Kind.NUMBER,
        Kind.OPEN,
        Kind.RAW_STRING,
        Kind.STRING,
        Kind.VARIABLE,
    )
)

_Ending = Literal["end", "else", "else if", "else with"]


def parse(
    source: TemplateSource, complain: Callable[[str], str], left: str, right: str, *, root: str
) -> dict[str, Body]:
    """Return the trees by name. The file's tree is ``root``, unless it is blank and a definition has that name.

    ``complain`` returns the problem with a function name, or empty text. Raises TemplateError with the name of the
    source, line and column.
    """
    parser = _Parser(source, complain, left, right)
    parser.parse_file(root)
    return parser.bodies


class _Parser:
    def __init__(self, source: TemplateSource, complain: Callable[[str], str], left: str, right: str) -> None:
        self.bodies: dict[str, Body] = {}
        self._error = source.error
        self._complain = complain
        self._tokens = Lexer(source, left, right).tokens()
        self._waiting: list[Token] = []  # tokens that were read ahead, the next token last
        self._variables = ["$"]
        self._ranges = 0
        self._nesting = 0

    # Tokens ----------------------------------------------------------------------------------------------------------

    def _next(self) -> Token:
        return self._waiting.pop() if self._waiting else next(self._tokens)

    def _next_word(self) -> Token:
        token = self._next()
        while token.kind is Kind.SPACE:
            token = self._next()
        return token

    def _peek(self) -> Token:
        token = self._next()
        self._waiting.append(token)
        return token

    def _peek_word(self) -> Token:
        token = self._next_word()
        self._waiting.append(token)
        return token

    def _expect(self, kind: Kind, context: str) -> Token:
        token = self._next_word()
        if token.kind is not kind:
            raise self._unexpected(token, context)
        return token

    def _unexpected(self, token: Token, context: str) -> TemplateError:
        if token.kind is Kind.END:
            return self._error(token.position, "unexpected end of file")
        return self._error(token.position, f"unexpected {token.text!r} in {context}")

    # Templates -------------------------------------------------------------------------------------------------------

    def parse_file(self, root: str) -> None:
        """Parse all trees of the file. Go's documentation, "Nested template definitions" and "Actions":

        1. ``{{define "name"}} T1 {{end}}`` at the top becomes a separate tree, and prints nothing there.
        2. Text and actions become nodes of the file's tree. Control structures include everything up to their ``end``.
        3. An unmatched ``end`` or ``else`` is rejected.
        4. The file's tree gets the name ``root``. It is left out if it is blank and a definition has that name.
        """
        nodes: list[Node] = []
        while (token := self._next_word()).kind is not Kind.END:
            if token.kind is Kind.LEFT and self._peek_word().text == "define":
                self._definition(self._next())  # 1. define
                continue
            node = self._text_or_action(token)  # 2. text and actions
            if isinstance(node, str):  # 3. reject
                raise self._error(token.position, f"unexpected {{{{{node}}}}}")
            nodes.append(node)
        self._add(root, tuple(nodes), 0)  # 4. name

    def _definition(self, token: Token) -> None:
        name = self._template_name(self._next_word(), "define clause")
        self._expect(Kind.RIGHT, "define clause")
        self._separate_body(name, token, "define clause")

    def _separate_body(self, name: str, token: Token, context: str) -> None:
        """Parse the body of a ``define`` or ``block``, without the surrounding variables and loops.

        Only ``$`` exists, the dot of the call.
        """
        outer = self._variables, self._ranges
        self._variables, self._ranges = ["$"], 0
        body, ending = self._body(token)
        if ending != "end":
            raise self._error(token.position, f"unexpected {{{{else}}}} in {context}")
        self._variables, self._ranges = outer
        self._add(name, body, token.position)

    def _add(self, name: str, body: Body, position: int) -> None:
        known = self.bodies.get(name)
        if known is None or is_blank(known):
            self.bodies[name] = body
        elif not is_blank(body):
            raise self._error(position, f"the template {name!r} is defined twice")

    def _template_name(self, token: Token, context: str) -> str:
        if token.kind not in (Kind.STRING, Kind.RAW_STRING):
            raise self._unexpected(token, context)
        return self._unquote(token)

    def _unquote(self, token: Token) -> str:
        try:
            return unquote(token.text)
        except ValueError as error:
            raise self._error(token.position, f"{error}: {token.text}") from None

    # Bodies and actions ----------------------------------------------------------------------------------------------

    def _body(self, opening: Token) -> tuple[Body, _Ending]:
        """Return nodes up to the ``end`` or ``else`` of ``opening``."""
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise self._error(
                opening.position, f"more than {_MAX_NESTING} levels of actions inside one another"
            )
        nodes: list[Node] = []
        while (token := self._next_word()).kind is not Kind.END:
            node = self._text_or_action(token)
            if isinstance(node, str):
                self._nesting -= 1
                return tuple(nodes), node
            nodes.append(node)
        raise self._error(opening.position, f"unexpected end of file: {opening.text!r} has no {{{{end}}}}")

    def _text_or_action(self, token: Token) -> Node | _Ending:
        if token.kind is Kind.TEXT:
            return Text(token.position, token.text)
        if token.kind is not Kind.LEFT:
            raise self._unexpected(token, "input")
        first = self._next_word()
        if first.kind is not Kind.KEYWORD:
            self._waiting.append(first)
            return Action(first.position, self._pipeline("command", Kind.RIGHT))
        return self._keyword(first)

    def _keyword(self, token: Token) -> Node | _Ending:
        match token.text:
            case "if" | "with":
                return self._branch(token)
            case "range":
                return self._range(token)
            case "else":
                return self._else()
            case "template":
                return self._call(token)
            case "block":
                return self._block(token)
            case "define":
                raise self._error(
                    token.position, "define inside another action: it belongs at the top of the file"
                )
        self._expect(Kind.RIGHT, token.text)
        if token.text == "end":
            return "end"
        if not self._ranges:
            raise self._error(token.position, f"{{{{{token.text}}}}} outside {{{{range}}}}")
        return Break(token.position) if token.text == "break" else Continue(token.position)

    def _else(self) -> _Ending:
        token = self._next_word()
        if token.kind is Kind.KEYWORD and token.text == "if":
            return "else if"
        if token.kind is Kind.KEYWORD and token.text == "with":
            return "else with"
        if token.kind is not Kind.RIGHT:
            raise self._unexpected(token, "else")
        return "else"

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Forget variables declared inside after the block."""
        known = len(self._variables)
        yield
        del self._variables[known:]

    def _branch(self, token: Token) -> Branch:
        arms: list[tuple[Pipeline | None, Body]] = []
        ending: _Ending = "else"
        with self._scope():
            while ending != "end":
                pipeline = self._pipeline(token.text, Kind.RIGHT) if not arms or ending != "else" else None
                body, ending = self._body(token)
                arms.append((pipeline, body))
                self._check_else(token, ending, is_last=pipeline is None)
        return Branch(token.position, token.text == "with", tuple(arms))

    def _range(self, token: Token) -> Range:
        otherwise: Body = ()
        with self._scope():
            pipeline = self._pipeline("range", Kind.RIGHT)
            self._ranges += 1
            body, ending = self._body(token)
            self._ranges -= 1
            self._check_else(token, ending, is_last=False)
            if ending == "else":
                otherwise, ending = self._body(token)
                self._check_else(token, ending, is_last=True)
        return Range(token.position, pipeline, body, otherwise)

    def _check_else(self, token: Token, ending: _Ending, *, is_last: bool) -> None:
        if is_last and ending != "end":
            raise self._error(token.position, f"expected end of {token.text!r}, found another {{{{else}}}}")
        # {{else if}} belongs to if, {{else with}} to with. range has neither.
        if ending not in ("end", "else", f"else {token.text}"):
            raise self._error(token.position, f"unexpected {{{{{ending}}}}} in {token.text!r}")

    def _call(self, token: Token) -> Call:
        name = self._template_name(self._next_word(), "template clause")
        if self._peek_word().kind is Kind.RIGHT:
            self._next()
            return Call(token.position, name, None)
        return Call(token.position, name, self._pipeline("template clause", Kind.RIGHT))

    def _block(self, token: Token) -> Call:
        name = self._template_name(self._next_word(), "block clause")
        pipeline = self._pipeline("block clause", Kind.RIGHT)
        self._separate_body(name, token, "block clause")
        return Call(token.position, name, pipeline)

    # Pipelines -------------------------------------------------------------------------------------------------------

    def _pipeline(self, context: str, end: Kind) -> Pipeline:
        """Parse a pipeline up to the token ``end``. Go's documentation, "Variables" and "Pipelines":

        1. Declarations or assignments may stand in front.
        2. Commands follow, with ``|`` between them: a first word, and arguments after spaces.
        3. A later command is called with the previous result, so it cannot be a constant or dot.
        4. At least one command is required.
        """
        start = self._peek_word()
        declared, assigns = self._declarations(context)  # 1. variables
        commands: list[Command] = []
        while (token := self._next_word()).kind is not end:
            if token.kind not in _OPERANDS:
                raise self._unexpected(token, context)
            self._waiting.append(token)
            commands.append(self._command())  # 2. commands
            if len(commands) > 1:
                self._check_stage(commands)  # 3. callable
        if not commands:  # 4. not empty
            raise self._error(token.position, f"missing value for {context}")
        return Pipeline(start.position, declared, assigns, tuple(commands))

    def _check_stage(self, commands: list[Command]) -> None:
        """Check that commands after the first one can be called."""
        first = commands[-1].words[0]
        if isinstance(first, (Boolean, Dot, Nil, Number, String)):
            raise self._error(first.position, f"non executable command in pipeline stage {len(commands)}")

    def _declarations(self, context: str) -> tuple[tuple[str, ...], bool]:
        """Read ``$x :=``, ``$x =`` and, in a range, ``$i, $x :=``."""
        declared: list[str] = []
        while (variable := self._next_word()).kind is Kind.VARIABLE:
            following = self._next()
            operator = self._next_word() if following.kind is Kind.SPACE else following
            if operator.kind in (Kind.DECLARE, Kind.ASSIGN):
                # As in Go, an assignment counts as a declaration: assigning an unknown variable fails at runtime.
                self._variables.append(variable.text)
                return (*declared, variable.text), operator.kind is Kind.ASSIGN
            if (operator.kind, operator.text) != (Kind.OTHER, ","):
                # The variable is the first word of a command. Tokens are put back with the next one last.
                self._waiting += [operator, following] if operator is not following else [operator]
                break
            self._another_declaration(context, declared, operator)
            self._variables.append(variable.text)
            declared.append(variable.text)
        self._waiting.append(variable)
        return tuple(declared), False

    def _another_declaration(self, context: str, declared: list[str], comma: Token) -> None:
        if context != "range" or declared:
            raise self._error(comma.position, f"too many declarations in {context}")
        if self._peek_word().kind not in (Kind.VARIABLE, Kind.RIGHT, Kind.CLOSE):
            raise self._error(comma.position, "range can only initialize variables")

    def _command(self) -> Command:
        words: list[Operand] = []
        position = self._peek_word().position
        while True:
            self._peek_word()  # skips space
            operand = self._operand()
            if operand is not None:
                words.append(operand)
            token = self._next()
            if token.kind is Kind.SPACE:
                continue
            if token.kind in (Kind.RIGHT, Kind.CLOSE):
                self._waiting.append(token)
            elif token.kind is not Kind.PIPE:
                raise self._unexpected(token, "operand")
            return Command(position, tuple(words))

    def _operand(self) -> Operand | None:
        term = self._term()
        if term is None or self._peek().kind is not Kind.FIELD:
            return term
        if isinstance(term, (Boolean, String, Number, Nil, Dot)):
            raise self._error(self._peek().position, "a constant has no fields")
        path: list[str] = []
        while self._peek().kind is Kind.FIELD:
            path.append(self._next().text[1:])
        match term:
            case Field(position, names):
                return Field(position, (*names, *path))
            case Variable(position, name):
                return Variable(position, name, tuple(path))
        return Chain(term.position, term, tuple(path))

    def _term(self) -> Operand | None:
        token = self._next_word()
        position = token.position
        match token.kind:
            case Kind.IDENTIFIER:
                return self._function(token)
            case Kind.DOT:
                return Dot(position)
            case Kind.NIL:
                return Nil(position)
            case Kind.BOOLEAN:
                return Boolean(position, token.text == "true")
            case Kind.FIELD:
                return Field(position, (token.text[1:],))
            case Kind.VARIABLE:
                return self._variable(token)
            case Kind.STRING | Kind.RAW_STRING:
                return String(position, self._unquote(token))
            case Kind.NUMBER | Kind.COMPLEX | Kind.CHARACTER:
                return self._number(token)
            case Kind.OPEN:
                return self._parenthesised(token)
        self._waiting.append(token)
        return None

    def _function(self, token: Token) -> Identifier:
        complaint = self._complain(token.text)
        if complaint:
            raise self._error(token.position, complaint)
        return Identifier(token.position, token.text)

    def _variable(self, token: Token) -> Variable:
        if token.text not in self._variables:
            raise self._error(token.position, f"undefined variable {token.text!r}")
        return Variable(token.position, token.text)

    def _number(self, token: Token) -> Number:
        try:
            return parse_number(token)
        except ValueError as error:
            raise self._error(token.position, str(error)) from None

    def _parenthesised(self, token: Token) -> Pipeline:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise self._error(token.position, f"more than {_MAX_NESTING} levels of parentheses")
        pipeline = self._pipeline("parenthesized pipeline", Kind.CLOSE)
        self._nesting -= 1
        return pipeline
