"""Expressions and conditions of Ansible, rewritten for manifests of Puller.

* Only names change: variables become ``data.NAME``, and facts become facts of Puller by a table.
* ``Untranslatable`` is raised if the result could differ: results of tasks, lookups, other hosts, unknown filters.
* ``{% if %}`` in a value becomes a conditional expression.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from jinja2 import Environment, TemplateError

from puller.authoring.importing.written_expressions import (
    Untranslatable,
    data_name,
    is_simple,
    literal,
    verify_expression,
)

Token = tuple[str, str]
"""Kind and text of a token of Jinja2."""

_WORDS: Final = frozenset(
    "and or not in is if else true false none True False None".split()  # noqa: SIM905  a list of words
)
_OTHER_HOSTS: Final = frozenset(
    {"hostvars", "groups", "ansible_play_hosts", "ansible_play_batch", "play_hosts", "ansible_play_hosts_all"}
)
_CONTROLLER: Final = frozenset(
    {
        "role_path",
        "playbook_dir",
        "inventory_dir",
        "inventory_file",
        "ansible_version",
        "vars",
        "ansible_run_tags",
    }
)
_LOOKUPS: Final = frozenset({"lookup", "query", "q"})
_FUNCTIONS: Final = frozenset({"range", "dict", "undef", "read_file"})
_TEXT_LIMIT: Final = 100_000
"""Maximum characters of a translated text."""
_TOKEN_LIMIT: Final = 2000
"""Maximum parts of an expression, since the time is quadratic in their number."""
_EXPRESSIONS_LIMIT: Final = 1000
"""Maximum expressions in a value."""
_STATEMENTS_LIMIT: Final = 100
"""Maximum statements in a value, since each may contain the next."""


class Names(msgspec.Struct, frozen=True):
    """The meaning of names at one place."""

    facts: Mapping[str, str]
    """Expressions of Puller by fact, without the prefix ``ansible_``."""
    loop_variables: frozenset[str] = frozenset()
    inline: Mapping[str, str] = {}
    """Translated expressions of variables of one task."""
    registered: frozenset[str] = frozenset()
    """Variables with results of tasks."""
    role_name: str = ""
    files: str = ""
    """The directory of the files of the role, for ``lookup('file')``."""
    constants: Mapping[str, str] = {}
    """Expressions for further names, such as ``ansible_managed``."""

    def with_loop(self, *variables: str) -> "Names":
        """Return a copy with more loop variables."""
        return msgspec.structs.replace(self, loop_variables=self.loop_variables | set(variables))

    def with_registered(self, *variables: str) -> "Names":
        """Return a copy with more variables that tasks set."""
        return msgspec.structs.replace(self, registered=self.registered | set(variables))


@functools.cache
def _environment() -> Environment:
    return Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701  only its lexer is used


def _tokens(text: str) -> list[Token]:
    if len(text) > _TEXT_LIMIT:
        raise Untranslatable(f"a text of more than {_TEXT_LIMIT} characters with expressions")
    try:
        tokens = [(kind, value) for _, kind, value in _environment().lexer.tokeniter(text, None)]
    except TemplateError as error:
        raise Untranslatable(f"invalid syntax of Jinja2 ({error})") from None
    if sum(kind == "block_begin" for kind, _ in tokens) > _STATEMENTS_LIMIT:
        raise Untranslatable(f"a value with more than {_STATEMENTS_LIMIT} statements")
    if sum(kind == "variable_begin" for kind, _ in tokens) > _EXPRESSIONS_LIMIT:
        raise Untranslatable(f"a value with more than {_EXPRESSIONS_LIMIT} expressions")
    return tokens


def has_expression(value: Any) -> bool:
    """Return whether a value contains an expression of Jinja2."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value or "{#" in value
    if isinstance(value, Mapping):
        return any(has_expression(key) or has_expression(item) for key, item in value.items())
    return isinstance(value, list) and any(map(has_expression, value))


def translate_value(value: Any, names: Names) -> Any:
    """Return a value with all expressions translated. Raises ``Untranslatable``."""
    if isinstance(value, str):
        return translate_text(value, names)
    if isinstance(value, Mapping):
        return {translate_text(str(key), names): translate_value(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [translate_value(item, names) for item in value]
    return value


def translate_text(text: str, names: Names) -> str:
    """Return a text with its expressions translated. Raises ``Untranslatable``."""
    if not has_expression(text):
        return text
    parts, rest = _parts(_tokens(text), names)
    if rest:
        raise Untranslatable("an unbalanced block of Jinja2")
    if not any(kind == "if" for kind, _ in parts):
        return "".join(f"{{{{ {part} }}}}" if kind == "expression" else part for kind, part in parts)
    return f"{{{{ {_joined(parts)} }}}}"


def as_expression(value: Any, names: Names) -> str:
    """Return a value as one expression, without braces. Raises ``Untranslatable``."""
    if isinstance(value, str) and has_expression(value):
        parts, rest = _parts(_tokens(value.strip()), names)
        if rest:
            raise Untranslatable("an unbalanced block of Jinja2")
        return _joined(parts)
    if isinstance(value, list):
        return f"[{', '.join(as_expression(item, names) for item in value)}]"
    if isinstance(value, Mapping):
        pairs = (f"{literal(str(key))}: {as_expression(item, names)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return literal(value)


def _joined(parts: Sequence[Token]) -> str:
    """Return parts of a text as one expression."""
    if not parts:
        return "''"
    pieces = [part if kind != "data" else literal(part) for kind, part in parts]
    if len(pieces) == 1:
        return pieces[0]
    return " ~ ".join(
        f"({piece})" if kind != "data" and not is_simple(piece) else piece
        for (kind, _), piece in zip(parts, pieces, strict=True)
    )


def _parts(tokens: Sequence[Token], names: Names) -> tuple[list[Token], Sequence[Token]]:
    """Return the parts of a text up to an unmatched block, and the tokens from this block on."""
    parts: list[Token] = []
    while tokens:
        kind, value = tokens[0]
        if kind == "data":
            parts.append(("data", value))
            tokens = tokens[1:]
        elif kind == "variable_begin":
            inner, tokens = _until(tokens[1:], "variable_end")
            parts.append(("expression", _rewritten(inner, names)))
        elif kind == "comment_begin":
            _, tokens = _until(tokens[1:], "comment_end")
        elif kind == "raw_begin":
            inner, tokens = _until(tokens[1:], "raw_end")
            parts.append(("expression", literal("".join(value for _, value in inner))))
        elif kind == "block_begin":
            inner, after = _until(tokens[1:], "block_end")
            word = _first_word(inner)
            if word in ("elif", "else", "endif"):
                return parts, tokens
            if word != "if":
                raise Untranslatable(f"the statement {{% {word} %}} in a value")
            conditional, tokens = _conditional(inner, after, names)
            parts.append(("if", conditional))
        else:
            raise Untranslatable("a statement of Jinja2 in a value")
    return parts, tokens


def _conditional(
    inner: Sequence[Token], tokens: Sequence[Token], names: Names
) -> tuple[str, Sequence[Token]]:
    """Return ``{% if %} … {% endif %}`` as an expression, and the tokens behind it."""
    condition = _rewritten(_without_first(inner), names)
    body, tokens = _parts(tokens, names)
    if not tokens:
        raise Untranslatable("a block of Jinja2 without its end")
    inner, tokens = _until(tokens[1:], "block_end")
    word = _first_word(inner)
    if word == "endif":
        return f"{_joined(body)} if {condition} else ''", tokens
    if word == "elif":
        other, tokens = _conditional(inner, tokens, names)
        return f"{_joined(body)} if {condition} else ({other})", tokens
    alternative, tokens = _parts(tokens, names)
    if not tokens:
        raise Untranslatable("a block of Jinja2 without its end")
    _, tokens = _until(tokens[1:], "block_end")
    return f"{_joined(body)} if {condition} else {_joined(alternative)}", tokens


def _until(tokens: Sequence[Token], end: str) -> tuple[Sequence[Token], Sequence[Token]]:
    for index, (kind, _) in enumerate(tokens):
        if kind == end:
            return tokens[:index], tokens[index + 1 :]
    raise Untranslatable("a block of Jinja2 without its end")


def _first_word(tokens: Sequence[Token]) -> str:
    return next((value for kind, value in tokens if kind == "name"), "")


def _without_first(tokens: Sequence[Token]) -> Sequence[Token]:
    index = next((index for index, (kind, _) in enumerate(tokens) if kind == "name"), 0)
    return tokens[index + 1 :]


# Expressions.


def translate_expression(source: str, names: Names) -> str:
    """Return an expression without braces. Raises ``Untranslatable``."""
    tokens = _tokens(f"{{{{ {source} }}}}")
    if not tokens or tokens[0][0] != "variable_begin" or tokens[-1][0] != "variable_end":
        raise Untranslatable("invalid syntax of Jinja2")
    inner, rest = _until(tokens[1:], "variable_end")
    if rest:
        raise Untranslatable("braces inside an expression")
    return _rewritten(inner, names)


def _rewritten(tokens: Sequence[Token], names: Names) -> str:
    if len(tokens) > _TOKEN_LIMIT:
        raise Untranslatable(f"an expression of more than {_TOKEN_LIMIT} parts")
    result: list[str] = []
    index = 0
    while index < len(tokens):
        kind, value = tokens[index]
        if kind == "name" and value not in _WORDS and _is_variable(tokens, index):
            text, index = _name(tokens, index, names)
            result.append(text)
        else:
            result.append(" " if kind == "whitespace" else value)
            index += 1
    expression = "".join(result).strip()
    verify_expression(expression)
    return expression


def _is_variable(tokens: Sequence[Token], index: int) -> bool:
    before = [value for kind, value in tokens[:index] if kind != "whitespace"][-2:]
    last = before[-1] if before else ""
    if last in (".", "|", "is") or before == ["is", "not"]:
        return False
    after = next((value for kind, value in tokens[index + 1 :] if kind != "whitespace"), "")
    return not (after == "=" and last in ("(", ","))


def _name(tokens: Sequence[Token], index: int, names: Names) -> tuple[str, int]:
    """Return the replacement of a name with the steps behind it, and the index of the next token."""
    name = tokens[index][1]
    following = next((value for kind, value in tokens[index + 1 :] if kind != "whitespace"), "")
    if name in names.loop_variables:
        return name, index + 1
    if name in names.inline:
        inner = names.inline[name]
        return (inner if is_simple(inner) else f"({inner})"), index + 1
    if name in names.registered:
        raise Untranslatable(f"depends on {name}, the result of a task")
    if name in _LOOKUPS and following == "(":
        return _lookup(tokens, index, names)
    if name in _FUNCTIONS and following == "(":
        return name, index + 1
    if name in names.constants:
        return names.constants[name], index + 1
    if name in _OTHER_HOSTS:
        raise Untranslatable(f"reads {name}, which contains other hosts")
    if name in _CONTROLLER:
        raise Untranslatable(f"reads {name}, which exists only on the control node")
    if name == "omit":
        return "none", index + 1
    if name in ("role_name", "ansible_role_name"):
        return literal(names.role_name), index + 1
    if name == "ansible_facts" or (name.startswith("ansible_") and name != "ansible_managed"):
        return _fact(tokens, index, names)
    if following == "(":
        raise Untranslatable(f"calls the function {name}")
    return data_name(name), index + 1


def _steps(tokens: Sequence[Token], index: int) -> list[tuple[str, int]]:
    """Return the constant steps behind a name, such as ``.a['b']``, each with the index behind it."""
    steps = []
    while index + 1 < len(tokens):
        texts = [value for _, value in tokens[index : index + 3]]
        if texts[0] == "." and tokens[index + 1][0] == "name":
            steps.append((texts[1], index + 2))
            index += 2
        elif (
            texts[0] == "["
            and len(texts) == 3
            and texts[2] == "]"
            and tokens[index + 1][0] in ("string", "integer")
        ):
            steps.append((texts[1].strip("'\""), index + 3))
            index += 3
        else:
            break
    return steps


def _fact(tokens: Sequence[Token], index: int, names: Names) -> tuple[str, int]:
    name = tokens[index][1]
    steps = _steps(tokens, index + 1)
    if name == "ansible_facts":
        if not steps:
            raise Untranslatable("reads ansible_facts as a whole")
        first, start = steps[0]
        first, steps = first.removeprefix("ansible_"), steps[1:]
    else:
        first, start = name.removeprefix("ansible_"), index + 1
    paths = [(first, start)]
    for step, end in steps:
        paths.append((f"{paths[-1][0]}.{step}", end))
    for path, end in reversed(paths):
        if path in names.facts:
            expression = names.facts[path]
            return (expression if is_simple(expression) else f"({expression})"), end
    raise Untranslatable(f"reads the fact {paths[0][0]}, which Puller lacks")


def _lookup(tokens: Sequence[Token], index: int, names: Names) -> tuple[str, int]:
    """Return the replacement of a lookup."""
    depth, end = 0, index + 1
    for end in range(index + 1, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[end][1], 0)
        if depth == 0 and tokens[end][1] == ")":
            break
    inner = [token for token in tokens[index + 2 : end] if token[0] != "whitespace" and token[1] != "("]
    kind = inner[0][1].strip("'\"").rpartition(".")[2] if inner and inner[0][0] == "string" else "?"
    if kind == "file" and len(inner) == 3 and inner[2][0] == "string" and names.files:
        path = inner[2][1].strip("'\"")
        if not path.startswith(("/", "~")) and ".." not in path:
            return f"read_file('{names.files}/{path.removeprefix('files/')}')", end + 1
    if kind in ("flattened", "items") and len(inner) > 2:
        arguments = _rewritten(_arguments(tokens[index + 2 : end]), names)
        levels = "" if kind == "flattened" else "levels=1"
        return f"([{arguments}] | flatten({levels}))", end + 1
    raise Untranslatable(f"uses lookup('{kind}'), which the control node evaluates")


def _arguments(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the arguments of a lookup behind its name, without ``wantlist``."""
    comma = next(index for index, token in enumerate(tokens) if token[1] == ",")
    text = "".join(value for _, value in tokens[comma + 1 :])
    if match := re.search(r",\s*wantlist\s*=\s*(True|true)\s*$", text):
        text = text[: match.start()]
    elif "wantlist" in text:
        raise Untranslatable("uses a lookup with wantlist")
    return _tokens(f"{{{{ {text} }}}}")[1:-1]


# Conditions.


def conditions_of(when: Any) -> list[Any]:
    """Return the conditions of ``when`` as a list."""
    if when is None:
        return []
    return list(when) if isinstance(when, list) else [when]


def translate_condition(condition: Any, names: Names) -> str:
    """Return one condition as an expression. Raises ``Untranslatable``."""
    if isinstance(condition, bool):
        return str(condition).lower()
    if not isinstance(condition, str):
        raise Untranslatable("a condition that is not text")
    if has_expression(condition):
        return as_expression(condition, names)
    return translate_expression(condition, names)
