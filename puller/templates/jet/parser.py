"""Parses tokens into a tree.

    template    = { extends | import } body
    body        = { text | action }
    action      = [ assignment [ ";" ] ] [ pipeline ]
                | "if" [ assignment ";" ] expression body { "else" "if" … } [ "else" body ] "end"
                | "range" [ targets ( ":=" | "=" ) ] expression body [ "else" body ] "end"
                | "block" name "(" parameters ")" [ expression ] body [ "content" body ] "end"
                | "yield" name "(" arguments ")" [ expression ] [ "content" body "end" ]
                | "yield" "content" [ expression ]
                | "include" expression [ expression ]   |   "return" expression
                | "try" body [ "catch" [ name ] body ] "end"
    assignment  = targets ( ":=" | "=" ) expression { "," expression }
    pipeline    = command { "|" command }
    command     = expression [ ":" arguments ]

Expressions are in ``expression_parser.py``. As in Jet, unmatched ``else``, ``content`` and ``catch`` inside a body are
dropped: the text after them belongs to the body.
"""

from __future__ import annotations

from typing import NamedTuple

from puller.templates.govalue.text import is_blank
from puller.templates.jet.expression_parser import ExpressionParser, Token, tokenize
from puller.templates.jet.nodes import (
    Action,
    Assignment,
    Block,
    Body,
    Call,
    Catch,
    Chain,
    Command,
    Expression,
    Field,
    If,
    Include,
    Index,
    Literal,
    Parameter,
    Range,
    Reference,
    Return,
    Statement,
    Target,
    Text,
    Tree,
    Try,
    Yield,
    YieldContent,
)
from puller.templates.template_errors import TemplateSource


class _Mark(NamedTuple):
    """``end``, ``else``, ``content`` or a whole ``catch``, which ends a body."""

    kind: str
    offset: int
    catch: Catch | None = None


def parse(source: TemplateSource, left: str, right: str) -> Tree:
    """Return the tree of a template. Raises TemplateError."""
    try:
        return _Parser(source, tokenize(source.text, left, right)).template()
    except RecursionError:
        raise source.error(0, "the template is nested too deeply to be parsed") from None


class _Parser(ExpressionParser):
    def __init__(self, source: TemplateSource, tokens: list[Token]) -> None:
        super().__init__(source, tokens)
        self.blocks: dict[str, Block] = {}

    def template(self) -> Tree:
        extends: Reference | None = None
        imports: list[Reference] = []
        while True:
            if self.token.kind == "text" and is_blank(self.token.text):
                self.position += 1  # blank text before the first action is dropped, for any kind of action
                continue
            kind = self.tokens[self.position + 1].kind if self.token.kind == "left" else ""
            if kind == "import":
                imports.append(self.reference())
            elif kind == "extends":
                if extends or imports:
                    raise self.source.error(
                        self.token.offset, "extends must be the first action, and the only extends"
                    )
                extends = self.reference()
            else:
                break
        return Tree(extends, tuple(imports), self.top(), self.blocks)

    def reference(self) -> Reference:
        self.position += 2
        path = self.term()
        if not isinstance(path, Literal) or not isinstance(path.value, str):
            raise self.source.error(path.offset, "the path of a template must be a string")
        self.close("the action")
        return Reference(path.offset, path.value)

    def top(self) -> Body:
        statements: list[Statement] = []
        while self.token.kind != "eof":
            statement = self.statement()
            if not isinstance(statement, _Mark):
                statements.append(statement)
            # Like Jet, drop a stray catch at the top, with its body, and reject other stray statements.
            elif statement.kind != "catch":
                raise self.source.error(statement.offset, f"found {statement.kind} outside of any block")
        return tuple(statements)

    def body(self, opening: Token, *ends: str) -> tuple[Body, _Mark]:
        statements: list[Statement] = []
        while self.token.kind != "eof":
            statement = self.statement()
            if not isinstance(statement, _Mark):
                statements.append(statement)
            elif statement.kind in ends:
                return tuple(statements), statement
        raise self.source.error(opening.offset, f"{opening.text} is not closed with end")

    def statement(self) -> Statement | _Mark:
        if self.token.kind == "text":
            return Text(self.next().text)
        self.expect("left", "text or an action")
        match self.token.kind:
            case "if":
                return self.if_(self.next())
            case "range":
                return self.range_(self.next())
            case "block":
                return self.block(self.next())
            case "yield":
                return self.yield_(self.next())
            case "include":
                return self.include(self.next())
            case "try":
                return self.try_(self.next())
            case "return":
                return self.return_(self.next())
            case "catch":
                return self.catch(self.next())
            case "else":
                return self.otherwise(self.next())
            case "end" | "content":
                return self.end(self.next())
        return self.action()

    def action(self) -> Action:
        offset = self.token.offset
        parsed = self.assignment_or_expression()
        if not isinstance(parsed, Assignment):
            return Action(offset, None, self.pipeline(parsed))
        if self.take(";"):
            return Action(offset, parsed, self.pipeline(self.expression()))
        self.close("the assignment")
        return Action(offset, parsed, ())

    def end(self, token: Token) -> _Mark:
        self.close(token.kind)
        return _Mark(token.kind, token.offset)

    def otherwise(self, token: Token) -> _Mark:
        if self.token.kind != "if":  # "else if": the caller that parses else continues with the if
            self.close("else")
        return _Mark("else", token.offset)

    def if_(self, token: Token) -> If:
        assignment = None
        condition = self.assignment_or_expression()
        if isinstance(condition, Assignment):
            assignment = condition
            self.expect(";", "a semicolon and a condition after the assignment")
            condition = self.expression()
        self.close("if")
        body, mark = self.body(token, "else", "end")
        otherwise: Body | None = None
        if mark.kind == "else" and self.token.kind == "if":
            otherwise = (self.if_(self.next()),)
        elif mark.kind == "else":
            otherwise, _ = self.body(token, "end")
        return If(token.offset, assignment, condition, body, otherwise)

    def range_(self, token: Token) -> Range:
        parsed = self.assignment_or_expression(in_range=True)
        self.close("range")
        body, mark = self.body(token, "else", "end")
        otherwise = self.body(token, "end")[0] if mark.kind == "else" else None
        if isinstance(parsed, Assignment):
            return Range(token.offset, parsed.declares, parsed.targets, parsed.values[0], body, otherwise)
        return Range(token.offset, False, (), parsed, body, otherwise)

    def block(self, token: Token) -> Block:
        name = self.block_name("block")
        parameters = self.parameters(declaring=True)
        context = self.optional_expression()
        self.close("block")
        body, mark = self.body(token, "content", "end")
        content = self.body(token, "end")[0] if mark.kind == "content" else None
        block = Block(token.offset, name, parameters, context, body, content)
        # The last definition in the text counts, even in an unreachable place.
        self.blocks[name] = block
        return block

    def yield_(self, token: Token) -> Yield | YieldContent:
        if self.take("content"):
            context = self.optional_expression()
            self.close("yield")
            return YieldContent(token.offset, context)
        name = self.block_name("yield")
        arguments = self.parameters(declaring=False)
        context = None if self.token.kind == "content" else self.optional_expression()
        content: Body | None = None
        if self.token.kind == "content":
            opening = self.next()
            self.close("yield")
            content, _ = self.body(opening, "end")
        else:
            self.close("yield")
        return Yield(token.offset, name, arguments, context, content)

    def block_name(self, description: str) -> str:
        if self.token.kind == "dot":
            return self.next().text
        return self.expect("name", f"the name of the {description}").text

    def parameters(self, *, declaring: bool) -> tuple[Parameter, ...]:
        self.expect("(", "an opening parenthesis")
        parameters: list[Parameter] = []
        while True:
            parameter = self.parameter(declaring)
            # Jet accepts consecutive commas.
            if parameter:
                parameters.append(parameter)
            if not self.take(","):
                break
        self.expect(")", "a comma or the closing parenthesis")
        return tuple(parameters)

    def parameter(self, declaring: bool) -> Parameter | None:
        token = self.token
        if token.kind == "name":
            after = self.tokens[self.position + 1].kind
            if after in ("=", ":="):
                self.position += 2
                return Parameter(token.offset, token.text, self.expression())
            # In a yield as well: a name alone is never a value, and fails as an argument at runtime.
            if declaring or after in (",", ")"):
                self.position += 1
                return Parameter(token.offset, token.text, None)
        if declaring or token.kind in (",", ")"):
            return None
        return Parameter(token.offset, "", self.expression())

    def include(self, token: Token) -> Include:
        path = self.expression()
        context = self.optional_expression()
        self.close("include")
        return Include(token.offset, path, context)

    def return_(self, token: Token) -> Return:
        value = self.expression()
        self.close("return")
        return Return(token.offset, value)

    def try_(self, token: Token) -> Try:
        self.close("try")
        body, mark = self.body(token, "catch", "end")
        return Try(token.offset, body, mark.catch)

    def catch(self, token: Token) -> _Mark:
        name = "" if self.token.kind == "right" else self.expect("name", "a name for the error").text
        self.close("catch")
        body, _ = self.body(token, "end")
        return _Mark("catch", token.offset, Catch(token.offset, name, body))

    def pipeline(self, first: Expression) -> tuple[Command, ...]:
        commands = [self.command(first)]
        while not self.take("right"):
            if not self.take("|"):
                self.refuse("| or the end of the action")
            if self.token.kind not in ("name", "field", "dot"):
                self.refuse("the name of a function")
            commands.append(self.command(self.expression()))
        return tuple(commands)

    def command(self, base: Expression) -> Command:
        if isinstance(base, Call):
            return Command(base.offset, base.base, base.arguments)
        return Command(base.offset, base, self.arguments() if self.take(":") else None)

    def assignment_or_expression(self, *, in_range: bool = False) -> Assignment | Expression:
        expression = self.expression()
        if self.token.kind not in (",", "=", ":="):
            return expression
        offset = expression.offset
        targets = [self.target(expression)]
        while self.take(","):
            targets.append(self.target(self.expression()))
        if self.token.kind not in ("=", ":="):
            self.refuse("a comma, := or =")
        declares = self.next().kind == ":="
        values = [self.expression()]
        while self.take(","):
            values.append(self.expression())
        return self.assignment(offset, declares, targets, values, in_range)

    def assignment(
        self, offset: int, declares: bool, targets: list[Target], values: list[Expression], in_range: bool
    ) -> Assignment:
        looks_up = not in_range and len(targets) == 2 and len(values) == 1 and isinstance(values[0], Index)
        fits = len(targets) <= 2 and len(values) == 1 if in_range else looks_up or len(targets) == len(values)
        if not fits:
            raise self.source.error(offset, f"cannot assign {len(values)} values to {len(targets)} targets")
        for target in targets if declares else ():
            if isinstance(target, (Field, Chain)):
                raise self.source.error(
                    target.offset, f"cannot declare {target}: only a name can be declared"
                )
        return Assignment(offset, declares, tuple(targets), tuple(values), looks_up)

    def target(self, expression: Expression) -> Target:
        if isinstance(expression, Target):
            return expression
        raise self.source.error(expression.offset, f"cannot assign to {expression}")
