"""The parser of the Puppet language.

* It follows the grammar of Puppet 7, and accepts old forms that its modules still contain.
* The depth of nested expressions is limited, so that a hostile source ends in ``SyntaxProblem``.
* It evaluates nothing.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from puller.authoring.importing.puppet.language.lexer import Lexer, Source, SyntaxProblem, Token
from puller.authoring.importing.puppet.language.syntax import (
    Access,
    Assignment,
    Attribute,
    Binary,
    Call,
    Case,
    Chain,
    ClassDefinition,
    Collector,
    Default,
    Define,
    HashLiteral,
    If,
    Lambda,
    ListLiteral,
    Literal,
    Node,
    NodeDefinition,
    Opaque,
    Parameter,
    Regex,
    ResourceBody,
    ResourceDeclaration,
    ResourceDefaults,
    ResourceOverride,
    Selector,
    Text,
    TypeName,
    Unary,
    Variable,
)

DEPTH_LIMIT: Final = 60
"""Maximum depth of nested blocks, expressions and texts."""
_CHAINS: Final = frozenset({"->", "~>", "<-", "<~"})
_STATEMENTS: Final = frozenset(
    {
        "include",
        "require",
        "contain",
        "tag",
        "debug",
        "info",
        "notice",
        "warning",
        "err",
        "crit",
        "alert",
        "emerg",
    }
    | {"fail", "realize", "import", "break", "next", "return", "create_resources", "validate_legacy"}
)
"""Functions whose call needs no parentheses."""
_LEVELS: Final = (
    frozenset({"or", "||"}),
    frozenset({"and", "&&"}),
    frozenset({"<", ">", "<=", ">="}),
    frozenset({"==", "!="}),
    frozenset({"<<", ">>"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
    frozenset({"=~", "!~"}),
    frozenset({"in"}),
)
_KEYWORDS: Final = frozenset({"if", "unless", "case", "default"})
_LEVEL_OF: Final = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}
_SAME: Final = {"||": "or", "&&": "and"}
_CONSTANTS: Final = {"true": True, "false": False, "undef": None, "default": Default.DEFAULT}


class Parser:
    """Reads one source text. ``ruby`` accepts ``a ? b : c``, as expressions of ERB have it."""

    def __init__(self, text: str, line: int = 1, depth: int = 0, *, ruby: bool = False) -> None:
        self._tokens = Lexer(text, line).tokens()
        self._index = 0
        self._depth = depth
        self._ruby = ruby

    # Tokens.

    @property
    def _token(self) -> Token:
        return self._tokens[self._index]

    def _peek(self, distance: int = 1) -> Token:
        return self._tokens[min(self._index + distance, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self._token
        if token.kind != "end":
            self._index += 1
        return token

    def _is(self, *values: str) -> bool:
        return self._token.kind == "operator" and self._token.value in values

    def _is_word(self, *values: str) -> bool:
        return self._token.kind == "name" and self._token.value in values

    def _accept(self, value: str) -> bool:
        if self._is(value):
            self._next()
            return True
        return False

    def _expect(self, value: str) -> Token:
        if not self._is(value):
            raise self._problem(f"{value!r} is expected")
        return self._next()

    def _problem(self, message: str) -> SyntaxProblem:
        token = self._token
        text = "the end of the file" if token.kind == "end" else repr(token.value or token.kind)
        return SyntaxProblem(token.line, f"{message} instead of {text[:60]}")

    @contextlib.contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > DEPTH_LIMIT:
            raise SyntaxProblem(self._token.line, f"the source is nested more than {DEPTH_LIMIT} deep")
        yield
        self._depth -= 1

    # Statements.

    def program(self) -> tuple[Node, ...]:
        """Return all statements of the source. Raises ``SyntaxProblem``."""
        statements = []
        while self._token.kind != "end":
            if not self._accept(";"):
                statements.append(self._statement())
        return tuple(statements)

    def expression(self) -> Node:
        """Return the source as one expression. Raises ``SyntaxProblem``."""
        node = self._expression()
        if self._token.kind != "end":
            raise self._problem("the end of the expression is expected")
        return node

    def template_parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters between ``|`` of a template. Raises ``SyntaxProblem``."""
        return self._parameters("|", "|")

    def _block(self) -> tuple[Node, ...]:
        with self._deeper():
            self._expect("{")
            statements = []
            while not self._accept("}"):
                if self._token.kind == "end":
                    raise self._problem("'}' is expected")
                if not self._accept(";"):
                    statements.append(self._statement())
        return tuple(statements)

    def _statement(self) -> Node:
        with self._deeper():
            token = self._token
            if (
                token.kind == "name"
                and self._peek().kind in ("name", "string", "type")
                and not self._is_call()
            ):
                match token.value:
                    case "class":
                        return self._class()
                    case "define":
                        return self._define()
                    case "function" | "plan":
                        return self._function()
            if token.kind == "name" and token.value == "node":
                return self._node()
            if token.kind == "name" and token.value == "type" and self._peek().kind == "type":
                self._next()
                name = self._next().value
                self._expect("=")
                return Opaque("type", name, self._expression(), line=token.line)
            first = self._operand()
            if not self._is(*_CHAINS):
                return first
            operands, operators = [first], []
            while self._is(*_CHAINS):
                operators.append(self._next().value)
                operands.append(self._operand())
            return Chain(tuple(operands), tuple(operators), line=token.line)

    def _is_call(self) -> bool:
        return self._peek().kind == "operator"

    def _operand(self) -> Node:
        """Return a resource, a collector, or an expression."""
        token, following = self._token, self._peek()
        if token.kind == "operator" and token.value in ("@", "@@"):
            self._next()
            return self._resource(token.value)
        is_block = following.value == "{" and following.kind == "operator"
        if token.kind == "name" and is_block and token.value not in _KEYWORDS:
            return self._resource("")
        if token.kind == "type" and following.kind == "operator":
            if following.value in ("<|", "<<|"):
                return self._collector()
            if following.value == "{":
                self._next()
                return ResourceDefaults(token.value, self._attributes_in_braces(), line=token.line)
        if (
            token.kind == "name"
            and token.value in _STATEMENTS
            and following.value != "("
            and following.value != "."
        ):
            return self._plain_call()
        node = self._expression()
        if isinstance(node, Access) and isinstance(node.target, TypeName) and self._is("{"):
            return ResourceOverride(node, self._attributes_in_braces(), line=node.line)
        if self._is("=", "+="):
            operator = self._next().value
            value = self._expression()
            if operator == "+=":
                value = Binary("+", node, value, line=value.line)
            return Assignment(node, value, line=token.line)
        return node

    def _plain_call(self) -> Node:
        token = self._next()
        arguments: list[Node] = []
        if token.value in ("break", "next", "return") and (self._is("}") or self._token.line != token.line):
            return Call(token.value, (), line=token.line)
        if self._token.kind != "end" and not self._is("}", ";"):
            arguments.append(self._expression())
            while self._accept(","):
                arguments.append(self._expression())
        return Call(token.value, tuple(arguments), line=token.line)

    def _class(self) -> Node:
        line = self._next().line
        name = self._definition_name()
        parameters = self._parameters("(", ")") if self._is("(") else ()
        parent = ""
        if self._is_word("inherits"):
            self._next()
            parent = self._definition_name()
            if self._is("(") and not parameters:
                parameters = self._parameters("(", ")")
        return ClassDefinition(name, parameters, parent, self._block(), line=line)

    def _define(self) -> Node:
        line = self._next().line
        name = self._definition_name()
        parameters = self._parameters("(", ")") if self._is("(") else ()
        return Define(name, parameters, self._block(), line=line)

    def _definition_name(self) -> str:
        if self._token.kind not in ("name", "string"):
            raise self._problem("a name is expected")
        return self._next().value

    def _function(self) -> Node:
        token = self._next()
        name = self._definition_name()
        if self._is("("):
            self._parameters("(", ")")
        if self._accept(">>"):
            self._expression()
        self._block()
        return Opaque(token.value, name, line=token.line)

    def _node(self) -> Node:
        line = self._next().line
        matches = [self._node_match()]
        while self._accept(","):
            if self._is("{"):
                break
            matches.append(self._node_match())
        if self._is_word("inherits"):
            self._next()
            self._node_match()
        return NodeDefinition(tuple(matches), self._block(), line=line)

    def _node_match(self) -> Node:
        token = self._next()
        if token.kind == "regex":
            return Regex(token.value, line=token.line)
        if token.kind == "name" and token.value == "default":
            return Literal(Default.DEFAULT, line=token.line)
        if token.kind == "text":
            return self._text(token)
        if token.kind not in ("string", "name", "number"):
            raise SyntaxProblem(token.line, "the name of a node is expected")
        value = token.value
        while self._is(".", "-") and not self._token.spaced:
            value += self._next().value + self._next().value
        return Literal(value, line=token.line)

    def _parameters(self, opening: str, closing: str) -> tuple[Parameter, ...]:
        self._expect(opening)
        parameters = []
        while not self._accept(closing):
            line, kind = self._token.line, None
            if self._token.kind == "type":
                kind = self._postfix(self._primary())
            self._accept("*")
            token = self._next()
            if token.kind != "variable":
                self._index -= token.kind != "end"
                raise self._problem("a parameter is expected")
            # A default of a lambda cannot contain ``|``.
            default = self._expression() if self._accept("=") else None
            parameters.append(Parameter(token.value, kind, default, line=line))
            if not self._accept(",") and not self._is(closing):
                raise self._problem(f"',' or {closing!r} is expected")
        return tuple(parameters)

    def _resource(self, form: str) -> Node:
        token = self._next()
        if token.kind == "type" and self._is("{"):
            return ResourceDefaults(token.value, self._attributes_in_braces(), line=token.line)
        if token.kind != "name":
            raise SyntaxProblem(token.line, "the type of a resource is expected")
        self._expect("{")
        bodies: list[ResourceBody] = []
        while not self._accept("}"):
            with self._deeper():
                line, title = self._token.line, self._expression()
                self._expect(":")
                bodies.append(ResourceBody(title, self._attributes(), line=line))
            if not self._accept(";") and not self._is("}"):
                raise self._problem("'}' is expected")
        return ResourceDeclaration(token.value, tuple(bodies), form, line=token.line)

    def _attributes_in_braces(self) -> tuple[Attribute, ...]:
        self._expect("{")
        attributes = self._attributes()
        self._accept(";")
        self._expect("}")
        return attributes

    def _attributes(self) -> tuple[Attribute, ...]:
        attributes = []
        while not self._is("}", ";"):
            token = self._next()
            is_name = token.kind in ("name", "string") or (token.kind == "operator" and token.value == "*")
            if not is_name:
                self._index -= token.kind != "end"
                raise self._problem("the name of an attribute is expected")
            if not self._accept("=>"):
                self._expect("+>")
            attributes.append(Attribute(token.value, self._expression(), line=token.line))
            if not self._accept(","):
                break
        return tuple(attributes)

    def _collector(self) -> Node:
        token = self._next()
        closing = "|>" if self._next().value == "<|" else "|>>"
        query: list[str] = []
        while not self._is(closing):
            if self._token.kind == "end":
                raise self._problem(f"{closing!r} is expected")
            query.append(self._next().value)
        self._next()
        attributes = self._attributes_in_braces() if self._is("{") else ()
        return Collector(token.value, " ".join(query), attributes, line=token.line)

    # Expressions.

    def _expression(self) -> Node:
        with self._deeper():
            node = self._binary(0)
            if self._ruby and self._accept("?"):
                chosen = self._expression()
                self._expect(":")
                other = self._expression()
                return If(((node, (chosen,)),), (other,), line=node.line)
            return node

    def _binary(self, level: int) -> Node:
        """Return operands with operators of this level or a higher level."""
        left, count = self._unary(), 0
        while self._token.kind in ("operator", "name") and _LEVEL_OF.get(self._token.value, -1) >= level:
            token = self._next()
            count += 1
            if count > DEPTH_LIMIT:
                raise SyntaxProblem(token.line, f"an expression has more than {DEPTH_LIMIT} operators")
            right = self._binary(_LEVEL_OF[token.value] + 1)
            left = Binary(_SAME.get(token.value, token.value), left, right, line=token.line)
        return left

    def _unary(self) -> Node:
        token = self._token
        if self._is("!", "-", "*"):
            with self._deeper():
                self._next()
                return Unary(token.value, self._unary(), line=token.line)
        return self._postfix(self._primary())

    def _postfix(self, node: Node) -> Node:
        for _ in range(DEPTH_LIMIT):
            token = self._token
            if self._is("[") and (not token.spaced or isinstance(node, TypeName)):
                with self._deeper():
                    self._next()
                    node = Access(node, self._items("]"), line=token.line)
            elif self._is(".") and self._peek().kind in ("name", "type"):
                self._next()
                name = self._next().value
                node = self._call(name, (node,), token.line)
            elif self._is("?") and self._peek().value == "{":
                node = self._selector(node)
            else:
                return node
        raise SyntaxProblem(node.line, f"an expression has more than {DEPTH_LIMIT} steps")

    def _items(self, closing: str) -> tuple[Node, ...]:
        items = []
        while not self._accept(closing):
            item = self._expression()
            if self._accept("=>"):
                # The last argument can be a hash without braces.
                pairs = [(item, self._expression())]
                while self._accept(","):
                    if self._is(closing):
                        break
                    key = self._expression()
                    self._expect("=>")
                    pairs.append((key, self._expression()))
                item = HashLiteral(tuple(pairs), line=item.line)
            items.append(item)
            if not self._accept(",") and not self._is(closing):
                raise self._problem(f"',' or {closing!r} is expected")
        return tuple(items)

    def _call(self, name: str, first: tuple[Node, ...], line: int) -> Node:
        arguments = first
        if self._is("(") and (not first or not self._token.spaced):
            with self._deeper():
                self._next()
                arguments = (*first, *self._items(")"))
        return Call(name, arguments, self._lambda(), line=line)

    def _lambda(self) -> Lambda | None:
        if not self._is("|", "||"):
            return None
        line = self._token.line
        if self._accept("||"):
            return Lambda((), self._block(), line=line)
        parameters = self._parameters("|", "|")
        return Lambda(parameters, self._block(), line=line)

    def _selector(self, subject: Node) -> Node:
        with self._deeper():
            line = self._next().line
            self._expect("{")
            options = []
            while not self._accept("}"):
                value = self._expression()
                self._expect("=>")
                options.append((value, self._expression()))
                if not self._accept(",") and not self._is("}"):
                    raise self._problem("',' or '}' is expected")
        return Selector(subject, tuple(options), line=line)

    def _primary(self) -> Node:
        token = self._token
        match token.kind:
            case "string":
                self._next()
                return Literal(token.value, line=token.line)
            case "text":
                self._next()
                return self._text(token)
            case "number":
                self._next()
                return Literal(_number(token.value), line=token.line)
            case "variable":
                self._next()
                return Variable(token.value, line=token.line)
            case "regex":
                self._next()
                return Regex(token.value, line=token.line)
            case "type":
                self._next()
                node = TypeName(token.value, line=token.line)
                return node if not self._is("(") else self._call(token.value, (), token.line)
            case "name":
                return self._word()
        if self._is("("):
            with self._deeper():
                self._next()
                node_in = self._assigned_expression()
                self._expect(")")
            return node_in
        if self._is("["):
            with self._deeper():
                self._next()
                return ListLiteral(self._items("]"), line=token.line)
        if self._is("{"):
            with self._deeper():
                return self._hash()
        raise self._problem("an expression is expected")

    def _assigned_expression(self) -> Node:
        node = self._expression()
        if self._accept("="):
            return Assignment(node, self._expression(), line=node.line)
        return node

    def _hash(self) -> Node:
        line = self._next().line
        pairs = []
        while not self._accept("}"):
            key = self._expression()
            self._expect("=>")
            pairs.append((key, self._expression()))
            if not self._accept(",") and not self._is("}"):
                raise self._problem("',' or '}' is expected")
        return HashLiteral(tuple(pairs), line=line)

    def _word(self) -> Node:
        token = self._token
        readers: dict[str, Callable[[], Node]] = {"if": self._if, "unless": self._unless, "case": self._case}
        if token.value in readers and self._peek().value not in ("=>", ",", "}", "]"):
            return readers[token.value]()
        self._next()
        if token.value in _CONSTANTS and not self._is("("):
            return Literal(_CONSTANTS[token.value], line=token.line)
        if self._is("(") or (self._is("|") and self._peek().kind in ("variable", "type")):
            return self._call(token.value, (), token.line)
        return Literal(token.value, bare=True, line=token.line)

    def _if(self) -> Node:
        line = self._next().line
        branches = [(self._assigned_expression(), self._block())]
        otherwise: tuple[Node, ...] = ()
        while self._is_word("elsif"):
            self._next()
            branches.append((self._assigned_expression(), self._block()))
        if self._is_word("else"):
            self._next()
            # Puppet rejects `else if`. Its meaning is clear.
            otherwise = self._else_if() if self._is_word("if") else self._block()
        return If(tuple(branches), otherwise, line=line)

    def _else_if(self) -> tuple[Node, ...]:
        with self._deeper():
            return (self._if(),)

    def _unless(self) -> Node:
        line = self._next().line
        condition, body = self._expression(), self._block()
        otherwise: tuple[Node, ...] = ()
        if self._is_word("else"):
            self._next()
            otherwise = self._block()
        return If(((Unary("!", condition, line=line), body),), otherwise, line=line)

    def _case(self) -> Node:
        line = self._next().line
        subject = self._expression()
        self._expect("{")
        options = []
        while not self._accept("}"):
            values = [self._expression()]
            while self._accept(","):
                if self._is(":"):
                    break
                values.append(self._expression())
            self._expect(":")
            options.append((tuple(values), self._block()))
        return Case(subject, tuple(options), line=line)

    # Texts.

    def _text(self, token: Token) -> Node:
        with self._deeper():
            parts: list[str | Node] = [
                self._inner(part) if isinstance(part, Source) else part for part in token.parts
            ]
        return Text(tuple(parts), line=token.line)

    def _inner(self, source: Source) -> Node:
        """Return the expression in ``${…}``. A first word without ``$`` is a variable."""
        if not source.text.strip():
            return Literal("", line=source.line)
        parser = Parser(source.text, source.line, self._depth)
        first, second = parser._token, parser._peek()
        is_variable = (
            first.kind in ("name", "number")
            and second.value != "("
            and (second.kind == "end" or second.value in (".", "["))
        )
        if is_variable:
            parser._tokens[0] = Token("variable", first.value, first.line, first.spaced)
        statements = parser.program()
        if len(statements) != 1:
            raise SyntaxProblem(source.line, "the expression in a text has several statements")
        return statements[0]


def _number(text: str) -> int | float:
    if text.lower().startswith("0x"):
        return int(text, 16)
    if text.isdigit():
        return (
            int(text, 8)
            if text.startswith("0") and len(text) > 1 and set(text) <= set("01234567")
            else int(text)
        )
    return float(text)


def parse(text: str) -> tuple[Node, ...]:
    """Return the statements of a manifest. Raises ``SyntaxProblem``."""
    return Parser(text).program()
