"""Values as yaml, in flow and in block style: nothing that is written is read otherwise by YAML 1.1 or 1.2."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import yaml

_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_WORDS_1_2 = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class Unclear(str):
    """A scalar without quotes of which the versions of YAML make different values, or none that a setting can have."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Quotes what either version would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, _pattern in (("int", _INTEGER), ("float", _FLOAT)):
    _whole = re.compile(f"(?:{_pattern.pattern})$")
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, list("-+.0123456789"))


class _Reader(yaml.constructor.SafeConstructor, yaml.resolver.Resolver):
    """YAML 1.1, as PyYAML reads it."""

    def __init__(self) -> None:
        yaml.constructor.SafeConstructor.__init__(self)
        yaml.resolver.Resolver.__init__(self)

    def read(self, text: str) -> Any:
        tag = str(self.resolve(yaml.ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]
        kind = tag.rpartition(":")[2]
        if kind == "str":
            return text
        if kind not in ("null", "bool", "int", "float"):
            return Unclear(text)  # a date, for one
        return getattr(self, f"construct_yaml_{kind}")(yaml.ScalarNode(tag, text))


_READER = _Reader()


@lru_cache(maxsize=4096)
def read_plain(text: str) -> Any:
    """The value of a scalar without quotes; an :class:`Unclear` where the versions of YAML differ."""
    try:
        old, new = _READER.read(text), _read_1_2(text)
    except (ValueError, OverflowError):  # an integer of thousands of digits, 0b_
        return Unclear(text)
    is_same = type(old) is type(new) and (old == new or old != old)
    return old if is_same else Unclear(text)


def _read_1_2(text: str) -> Any:
    if text in _WORDS_1_2:
        return _WORDS_1_2[text]
    if _INTEGER.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text[2:] if base != 10 else text, base)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def is_block(value: Any) -> bool:
    """Whether a value has lines of its own in block style."""
    return bool(value) and isinstance(value, Mapping | list | tuple)


def scalar(value: Any, *, style: str | None = None, flow: bool = False) -> str:
    """A text, number, truth value or nothing, or a collection that is empty, on one line; a text in such quotes."""
    if isinstance(value, str) and not value.replace("\t", "").isprintable():
        style = '"'  # where line ends and the like are written as escapes
    quotes = style if isinstance(value, str) and style in ("'", '"') else None
    written = _dumped([value], quotes, flow=flow)
    return written[1:-1] if flow else written[2:]


def flow(value: Any) -> str:
    """A value in flow style: ``{a: [1, 2]}``."""
    if not is_block(value):
        return scalar(value, flow=True)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key, flow=True)}: {flow(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(flow, value)) + "]"


def _dumped(value: Any, style: str | None, *, flow: bool) -> str:
    written = yaml.dump(
        value,
        Dumper=_Dumper,
        default_style=style,
        default_flow_style=flow,
        allow_unicode=True,
        width=float("inf"),
    )
    return str(written).removesuffix("\n")


class BlockStyle:
    """How a file indents: ``step`` blanks for a mapping in a mapping, ``offset`` for a sequence in one."""

    def __init__(self, step: int = 2, offset: int = 0) -> None:
        self.step = max(step, 1)
        self.offset = max(offset, 0)

    def entry(self, key: str, value: Any) -> list[str]:
        """The lines of one key and its value."""
        head, *rest = self.value(value)
        return [f"{scalar(key)}:{head}", *rest]

    def value(self, value: Any) -> list[str]:
        """The rest of a key's line behind the colon, and the lines below it, from the column of the key."""
        if is_block(value):
            indentation = " " * (self.step if isinstance(value, Mapping) else self.offset)
            return ["", *(f"{indentation}{line}" if line else "" for line in self._lines(value))]
        if can_be_literal(value):
            return [f" {literal_header(value)}", *_indented(value, " " * self.step)]
        return [f" {scalar(value)}"]

    def _lines(self, value: Any) -> Iterator[str]:
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from self.entry(key, item)
            return
        for item in value:
            if is_block(item):
                head, *rest = self._lines(item)
            elif can_be_literal(item):
                head, rest = literal_header(item), _indented(item, "")
            else:
                head, rest = scalar(item), []
            yield f"- {head}"
            yield from (f"  {line}" if line else "" for line in rest)


def can_be_literal(value: Any) -> bool:
    """Whether a value is a text of several lines that is plain to read behind ``|``."""
    if not isinstance(value, str) or "\n" not in value.rstrip("\n") or value[0] in " \t\n":
        return False
    is_plain = all(sign.isprintable() or sign in "\n\t" for sign in value)
    return is_plain and not value.endswith("\n\n")


def literal_header(value: str) -> str:
    """The sign before the lines of a literal text."""
    return "|" if value.endswith("\n") else "|-"


def _indented(value: str, indentation: str) -> list[str]:
    lines = value.removesuffix("\n").split("\n")
    return [f"{indentation}{line}" if line else "" for line in lines]
