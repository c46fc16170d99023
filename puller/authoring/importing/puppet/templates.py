"""Templates of Puppet as templates of Jinja2.

* EPP and plain ERB become Jinja2 with the same result. Any other template raises ``Untranslatable``, and the original
  stays beside the draft.
* The line breaks of ``-%>`` and the indentation of ``<%-`` are resolved here, because the markers of Jinja2 remove
  more white space.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from puller.authoring.importing.puppet.language.lexer import SyntaxProblem
from puller.authoring.importing.puppet.language.puppet_parser import Parser
from puller.authoring.importing.puppet.language.syntax import Call, Node, Parameter
from puller.authoring.importing.puppet.puppet_expressions import Scope
from puller.authoring.importing.puppet.scopes import UNKNOWN, Kind, parameters_kinds
from puller.authoring.importing.written_expressions import (
    Untranslatable,
    data_name,
    grouped,
    verify_expression,
)

_TAG: Final = re.compile(r"<%(%)|%%>|<%(-|=|#)?(.*?)(-)?%>", re.S)
_BLOCKS_LIMIT: Final = 60


class _Piece(msgspec.Struct):
    """A part of a template: text, or an action of Jinja2."""

    text: str
    is_action: bool = False
    trims: bool = False
    """Whether the next line break is removed."""


class _Block(msgspec.Struct):
    kind: str
    scope: Scope


class Converted(msgspec.Struct, frozen=True):
    """The text of a template, and its declared parameters."""

    text: str
    parameters: tuple[Parameter, ...] = ()


def convert_template(text: str, scope: Scope, *, is_ruby: bool) -> Converted:
    """Return a template as Jinja2. Raises ``Untranslatable``."""
    converter = _Converter(scope, is_ruby=is_ruby)
    try:
        return converter.convert(text)
    except SyntaxProblem as problem:
        raise Untranslatable(
            f"the template has an expression that is not plain ({problem.message})"
        ) from None


class _Converter:
    def __init__(self, scope: Scope, *, is_ruby: bool) -> None:
        self.scope = scope
        self.is_ruby = is_ruby
        self.parameters: tuple[Parameter, ...] = ()
        self._blocks: list[_Block] = []
        self._pieces: list[_Piece] = []
        self._line = 1

    def convert(self, text: str) -> Converted:
        if self.is_ruby and re.search(r"^%(?!>)\s", text, re.M) and "<%" not in text:
            raise Untranslatable("the template has lines of Ruby")
        position = 0
        for match in _TAG.finditer(text):
            self._literal(text[position : match.start()])
            self._line = text.count("\n", 0, match.start()) + 1
            position = match.end()
            if match[0] == "%%>":
                self._literal("%>")
            elif match[1]:
                self._literal("<%")
            else:
                self._tag(match[2] or "", match[3].strip(), trims=bool(match[4]))
        self._literal(text[position:])
        if self._blocks:
            raise Untranslatable(f"the block {self._blocks[-1].kind} lacks its end")
        return Converted(self._joined(), self.parameters)

    def _literal(self, text: str) -> None:
        if text:
            self._pieces.append(_Piece(text))

    def _joined(self) -> str:
        """Return all pieces with the white space of Puppet."""
        result: list[str] = []
        for index, piece in enumerate(self._pieces):
            following = self._pieces[index + 1] if index + 1 < len(self._pieces) else None
            if not piece.is_action:
                text = piece.text
                if self._is_last_break(index):
                    # Puller gives the result the line breaks of the template's end.
                    result.append("" if self._pieces[index - 1].trims else "{{ '\\n' }}")
                    continue
                previous = self._pieces[index - 1] if index else None
                if (
                    previous is not None
                    and previous.is_action
                    and previous.trims
                    and not previous.text.startswith("{%")
                ):
                    text = re.sub(r"\A\r?\n", "", text)
                result.append(re.sub(r"{(?=[{%#])", "{{ '{' }}", text))
                continue
            if piece.text.startswith("{%"):
                # Jinja2 removes the line break after an action.
                is_break = (
                    following is not None and not following.is_action and re.match(r"\r?\n", following.text)
                )
                keeps = is_break and not piece.trims
                result.append(piece.text.replace("%}", "+%}") if keeps else piece.text)
            else:
                result.append(piece.text)
        return "".join(result)

    def _is_last_break(self, index: int) -> bool:
        """Return whether a piece is only the last line break, after an action that prints nothing."""
        is_last = 0 < index == len(self._pieces) - 1
        return is_last and self._pieces[index].text == "\n" and self._pieces[index - 1].text.startswith("{%")

    def _action(self, text: str, *, trims: bool) -> None:
        self._pieces.append(_Piece(text, is_action=True, trims=trims))

    def _tag(self, marker: str, code: str, *, trims: bool) -> None:
        if marker == "-" and self._pieces and not self._pieces[-1].is_action:
            # Only the indentation of the tag is removed.
            self._pieces[-1].text = re.sub(r"(^|\n)[ \t]+\Z", r"\1", self._pieces[-1].text)
        if marker == "#" or not code or code.startswith("#"):
            self._action("", trims=trims)
            return
        if len(self._blocks) > _BLOCKS_LIMIT:
            raise Untranslatable("the template has too many nested blocks")
        if marker == "=":
            self._action(f"{{{{ {self._printed(code)} }}}}", trims=trims)
        elif self.is_ruby:
            self._ruby(code, trims=trims)
        else:
            self._puppet(code, trims=trims)

    @property
    def _current(self) -> Scope:
        return self._blocks[-1].scope if self._blocks else self.scope

    def _parsed(self, code: str) -> Node:
        if self.is_ruby:
            code = ruby_as_puppet(code, set(self._current.local))
        return Parser(code, self._line, ruby=self.is_ruby).expression()

    def _printed(self, code: str) -> str:
        node = self._parsed(code)
        scope = self._current
        kind, text = scope.kind(node), scope.expression(node)
        if kind.name in ("list", "hash"):
            raise Untranslatable("the template prints a list or mapping")
        if kind.name == "boolean":
            text = f"{grouped(text)} | lower"
        elif kind.name == "unknown":
            text = f"{grouped(text)} | lower if {grouped(text)} is boolean else {grouped(text)}"
        verify_expression(text)
        return text

    def _condition(self, code: str) -> str:
        text = self._current.condition(self._parsed(code))
        verify_expression(text)
        return text

    def _open(self, kind: str, action: str, local: Mapping[str, tuple[str, Kind]], *, trims: bool) -> None:
        self._blocks.append(_Block(kind, self._current.with_local(local)))
        self._action(action, trims=trims)

    def _close(self, *, trims: bool) -> None:
        if not self._blocks:
            raise Untranslatable("an end without a block")
        self._action(f"{{% end{self._blocks.pop().kind} %}}", trims=trims)

    def _set(self, name: str, code: str, *, trims: bool) -> None:
        node = self._parsed(code)
        text, kind = self._current.expression(node), self._current.kind(node)
        verify_expression(text)
        if name in ("data", "facts", "loop", "environ"):
            raise Untranslatable(f"the variable {name} has a name that Puller uses")
        local = {name: (name, kind)}
        if self._blocks:
            self._blocks[-1].scope = self._current.with_local(local)
        else:
            self.scope = self.scope.with_local(local)
        self._action(f"{{% set {name} = {text} %}}", trims=trims)

    # EPP.

    def _puppet(self, code: str, *, trims: bool) -> None:
        if code.startswith("|"):
            if any(piece.text.strip() for piece in self._pieces):
                raise Untranslatable("the parameters of the template are not at its start")
            self._pieces = []
            self.parameters = Parser(code, self._line).template_parameters()
            kinds = parameters_kinds(self.scope, self.parameters)
            self.scope = self.scope.with_local(
                {name: (data_name(name), kind) for name, kind in kinds.items()}
            )
            self._action("", trims=trims)
        elif code == "}":
            self._close(trims=trims)
        elif re.fullmatch(r"}\s*else\s*{", code):
            self._expect("if")
            self._action("{% else %}", trims=trims)
        elif match := re.fullmatch(r"}\s*elsif\s+(.*?)\s*{", code, re.S):
            self._expect("if")
            self._action(f"{{% elif {self._condition(match[1])} %}}", trims=trims)
        elif match := re.fullmatch(r"(if|unless)\b\s*(.*?)\s*{", code, re.S):
            condition = self._condition(match[2] if match[1] == "if" else f"!({match[2]})")
            self._open("if", f"{{% if {condition} %}}", {}, trims=trims)
        elif match := re.fullmatch(r"(.*?)\s*\|([^|]*)\|\s*{", code, re.S):
            source = match[1]
            if inner := re.fullmatch(r"each\s*\((.*)\)|(.*)\.\s*each(?:\s*\(\s*\))?", source, re.S):
                variables = re.findall(r"\$(\w+)", match[2])
                self._loop(inner[1] or inner[2], variables, trims=trims)
            else:
                raise Untranslatable("the template has a block of another function than each")
        elif match := re.fullmatch(r"\$(\w+)\s*=(?![=~])\s*(.*)", code, re.S):
            self._set(match[1], match[2], trims=trims)
        else:
            raise Untranslatable(f"the template has the statement {' '.join(code.split())[:60]}")

    def _expect(self, kind: str) -> None:
        if not self._blocks or self._blocks[-1].kind != kind:
            raise Untranslatable(f"a part of {kind} is outside of its block")

    def _loop(self, code: str, variables: Sequence[str], *, trims: bool, is_indexed: bool = False) -> None:
        node = self._parsed(code)
        scope = self._current
        text, kind = scope.group(node), scope.kind(node)
        if kind.optional and kind.name != "unknown":
            text = f"({text} or [])"
        if any(name in ("data", "facts", "loop", "environ") for name in variables):
            raise Untranslatable("a loop variable has a name that Puller uses")
        local = {name: (name, UNKNOWN) for name in variables}
        if len(variables) == 1:
            action = f"{{% for {variables[0]} in {text} %}}"
            if kind.name == "hash":
                raise Untranslatable("a loop over the pairs of a mapping")
        elif (len(variables) == 2 and is_indexed) or (
            len(variables) == 2 and kind.name == "list" and not self.is_ruby
        ):
            action = f"{{% for {variables[1]} in {text} %}}{{% set {variables[0]} = loop.index0 %}}"
        elif len(variables) == 2:
            if kind.name == "unknown":
                scope.draft.assume("A template that loops with two variables expects a mapping")
            is_sorted = isinstance(node, Call) and node.name == "sort" and len(node.arguments) == 1
            if isinstance(node, Call) and is_sorted:
                text = scope.group(node.arguments[0])
            items = f"{text} | dictsort(true)" if is_sorted else f"{text}.items()"
            action = f"{{% for {variables[0]}, {variables[1]} in {items} %}}"
        else:
            raise Untranslatable("a loop with more than two variables")
        verify_expression(text)
        self._open("for", action, local, trims=trims)

    # ERB.

    def _ruby(self, code: str, *, trims: bool) -> None:
        code = re.sub(r"\s*#[^{'\"]*$", "", code) or code
        if code in ("end", "}"):
            self._close(trims=trims)
        elif code == "else":
            self._expect("if")
            self._action("{% else %}", trims=trims)
        elif match := re.fullmatch(r"elsif\s+(.*?)(?:\s+then)?", code, re.S):
            self._expect("if")
            self._action(f"{{% elif {self._condition(match[1])} %}}", trims=trims)
        elif match := re.fullmatch(r"(if|unless)\b\s*(.*?)(?:\s+then)?", code, re.S):
            condition = self._condition(match[2] if match[1] == "if" else f"!({match[2]})")
            self._open("if", f"{{% if {condition} %}}", {}, trims=trims)
        elif match := re.fullmatch(
            r"(.*?)\.(each|each_pair|each_with_index)\s*(?:do|{)\s*\|([^|]*)\|", code, re.S
        ):
            variables = [name.strip() for name in match[3].split(",")]
            if not all(re.fullmatch(r"[a-z_]\w*", name) for name in variables):
                raise Untranslatable("the variables of a loop have another form")
            if match[2] == "each_with_index":
                variables.reverse()
            self._loop(match[1], variables, trims=trims, is_indexed=match[2] == "each_with_index")
        elif match := re.fullmatch(r"([a-z_]\w*)\s*=(?![=~])\s*(.*)", code, re.S):
            self._set(match[1], match[2], trims=trims)
        else:
            raise Untranslatable(f"the template has the statement {' '.join(code.split())[:60]}")


_METHODS: Final = {
    "nil?": "ruby_nil",
    "empty?": "ruby_empty",
    "include?": "ruby_include",
    "has_key?": "has_key",
    "key?": "has_key",
    "any?": "ruby_any",
    "start_with?": "start_with",
    "is_a?": "ruby_is",
    "kind_of?": "ruby_is",
}
_RUBY: Final = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|@(\w+)|scope(?:\[|\.lookupvar\(\s*)['\"](?:::)?([\w:]+)['\"]\s*[\])]"
    r"|\.(\w+\?)|([A-Za-z_]\w*\??)|&&|\|\||=~|:(\w+)|.",
    re.S,
)
_WORDS: Final = {"nil": "undef", "true": "true", "false": "false", "and": "and", "or": "or", "not": "!"}


def ruby_as_puppet(code: str, local: set[str]) -> str:
    """Return a plain expression of Ruby in the syntax of Puppet. Raises ``Untranslatable``."""
    code = re.sub(r"defined\?\s*\(?\s*@(\w+)\s*\)?", r"(@\1 != nil)", code)
    code = re.sub(r"\.(?:is_a|kind_of)\?\s*\(?\s*([A-Z]\w*)\s*\)?", r" =~ \1", code)
    result: list[str] = []
    previous = ""
    for match in _RUBY.finditer(code):
        text = match[0]
        if match[1]:
            text = f"${match[1]}"
        elif match[2]:
            text = f"$::{match[2]}" if "::" in match[2] else f"${match[2]}"
        elif match[3]:
            if match[3] not in _METHODS:
                raise Untranslatable(f"the template calls the method {match[3]} of Ruby")
            text = f".{_METHODS[match[3]]}"
        elif match[4]:
            text = _ruby_word(match[4], previous, local)
        elif match[5]:
            if match[5] != "undef":
                raise Untranslatable("the template has a symbol of Ruby")
            text = "undef"
        elif text.startswith('"'):
            text = (
                re.sub(r"#\{", "${", text.replace("$", "\\$")).replace("${@", "${") if "#{" in text else text
            )
            if "#{" in match[0]:
                inner = re.findall(r"#\{([^}]*)\}", match[0])
                if any(not re.fullmatch(r"@\w+|\w+", item.strip()) for item in inner):
                    raise Untranslatable("the template has a text with an expression")
        if text.strip():
            previous = text.strip()
        result.append(text)
    return "".join(result)


def _ruby_word(word: str, previous: str, local: set[str]) -> str:
    if previous.endswith("."):
        return word
    if word in local:
        return f"${word}"
    if word in _WORDS:
        return _WORDS[word]
    if re.fullmatch(r"[A-Z]\w*", word) and previous == "=~":
        return {"TrueClass": "Boolean", "FalseClass": "Boolean", "Fixnum": "Integer"}.get(word, word)
    raise Untranslatable(f"the template has the word {word} of Ruby")


def template_name(node: Call) -> str | None:
    """Return the single literal argument of a call of ``template`` or ``epp``, or ``None``."""
    value = getattr(node.arguments[0], "value", None) if node.arguments else None
    return value if isinstance(value, str) and re.fullmatch(r"[\w.-]+(?:/[\w.+@-]+)+", value) else None
