"""Positions of nodes in a yaml document, from libyaml's events, and values written as yaml.

* Aliases are not expanded, so a document takes only as much memory as its text.
* Written values, in flow or block style, have the same meaning in YAML 1.1 and 1.2.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import yaml

from puller.resources.edits.formats.text_lines import FormatError, remembered
from puller.resources.edits.formats.trees import MAX_DEPTH, line_at

# Written values

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
    """A plain scalar whose value differs between YAML versions, or has a type that settings do not support."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes texts that either version would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, _pattern in (("int", _INTEGER), ("float", _FLOAT)):
    _whole = re.compile(f"(?:{_pattern.pattern})$")
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, list("-+.0123456789"))


class _Reader(yaml.constructor.SafeConstructor, yaml.resolver.Resolver):
    """A reader of YAML 1.1 that behaves like PyYAML."""

    def __init__(self) -> None:
        yaml.constructor.SafeConstructor.__init__(self)
        yaml.resolver.Resolver.__init__(self)

    def read(self, text: str) -> Any:
        tag = str(self.resolve(yaml.ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]
        kind = tag.rpartition(":")[2]
        if kind == "str":
            return text
        if kind not in ("null", "bool", "int", "float"):
            return Unclear(text)  # such as a date
        return getattr(self, f"construct_yaml_{kind}")(yaml.ScalarNode(tag, text))


_READER = _Reader()


@lru_cache(maxsize=4096)
def read_plain(text: str) -> Any:
    """Return the value of a plain scalar, or an :class:`Unclear` if the YAML versions differ."""
    try:
        old, new = _READER.read(text), _read_1_2(text)
    except (ValueError, OverflowError):  # an integer of thousands of digits, or 0b_
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
    """Return whether a value has its own lines in block style."""
    return bool(value) and isinstance(value, Mapping | list | tuple)


def scalar(value: Any, *, style: str | None = None, flow: bool = False) -> str:
    """Return a scalar or an empty collection on one line. ``style`` is the preferred quote of a text."""
    if isinstance(value, str) and not value.replace("\t", "").isprintable():
        style = '"'  # the only style with escapes for line ends and control characters
    quotes = style if isinstance(value, str) and style in ("'", '"') else None
    written = _dumped([value], quotes, flow=flow)
    return written[1:-1] if flow else written[2:]


def flow(value: Any) -> str:
    """Return a value in flow style: ``{a: [1, 2]}``."""
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
    """The indentation of a file: ``step`` blanks for a mapping in a mapping, ``offset`` for a sequence in a mapping."""

    def __init__(self, step: int = 2, offset: int = 0) -> None:
        self.step = max(step, 1)
        self.offset = max(offset, 0)

    def entry(self, key: str, value: Any) -> list[str]:
        """Return the lines of one key and its value."""
        head, *remainder = self.value(value)
        return [f"{scalar(key)}:{head}", *remainder]

    def value(self, value: Any) -> list[str]:
        """Return the rest of a key's line after the colon, and the lines below it, relative to the key's column."""
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
                head, *remainder = self._lines(item)
            elif can_be_literal(item):
                head, remainder = literal_header(item), _indented(item, "")
            else:
                head, remainder = scalar(item), []
            yield f"- {head}"
            yield from (f"  {line}" if line else "" for line in remainder)


def can_be_literal(value: Any) -> bool:
    """Return whether a value is a text of several lines that is readable after ``|``."""
    if not isinstance(value, str) or "\n" not in value.rstrip("\n") or value[0] in " \t\n":
        return False
    is_plain = all(sign.isprintable() or sign in "\n\t" for sign in value)
    return is_plain and not value.endswith("\n\n")


def literal_header(value: str) -> str:
    """Return the sign before the lines of a literal text."""
    return "|" if value.endswith("\n") else "|-"


def _indented(value: str, indentation: str) -> list[str]:
    lines = value.removesuffix("\n").split("\n")
    return [f"{indentation}{line}" if line else "" for line in lines]


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Node(msgspec.Struct):
    """A value of the document, by its positions in the text."""

    start: int
    end: int
    """The end. For a block, the start of the next node."""
    content_end: int
    """The end of its last character."""
    is_flow: bool = False
    """A collection in brackets or braces."""
    is_block: bool = False
    """A collection of lines, or a text after ``|`` or ``>``."""
    in_flow: bool = False
    """Inside of brackets or braces."""
    is_empty: bool = True
    """An empty collection."""
    style: str | None = None
    """The quotes of a scalar, or ``|`` or ``>``."""
    column: int | None = None
    """The column of the lines of a block collection."""
    members: "dict[str, Member] | None" = None
    """The entries of a mapping."""
    mark: str = ""
    """``an anchor``, ``a tag``, ``an alias``."""
    has_marks: bool = False
    """Whether it or any value inside it has a mark."""
    value: Any = None


class Member(msgspec.Struct):
    """An entry of a mapping."""

    start: int
    colon: int
    """The position after the colon."""
    node: Node


class Document(msgspec.Struct, frozen=True):
    """A parsed text."""

    root: Node | None
    tree: Any
    marks: tuple[str, ...]
    """All anchors, aliases and tags, in order."""
    style: BlockStyle


@remembered
def document_of(text: str) -> Document:
    """Parse a text. Raises :class:`FormatError` if it is invalid, or has duplicate keys or a second document."""
    if text.startswith("\ufeff"):
        raise FormatError("the document begins with a byte order mark")
    builder = _Builder(text)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        where = f"line {line_at(text, mark.index)}" if mark else "the document"
        raise FormatError(
            f"{where} is not valid YAML: {getattr(error, 'problem', None) or 'not valid'}"
        ) from None
    except UnicodeEncodeError as error:
        raise FormatError(f"line {line_at(text, error.start)} is not UTF-8, as yaml is") from None
    return builder.document()


class _Open(msgspec.Struct):
    """An unfinished collection. ``key`` is a key whose value is still missing."""

    node: Node
    key: tuple[str, int, int] | None = None


class _Builder:
    def __init__(self, text: str) -> None:
        self.text = text
        self.root: Node | None = None
        self.documents = 0
        self.open: list[_Open] = []
        self.marks: list[str] = []
        self.step: int | None = None
        self.offset: int | None = None

    def document(self) -> Document:
        style = BlockStyle(2 if self.step is None else self.step, self.offset or 0)
        tree = self.root.value if self.root else None
        return Document(self.root, tree, tuple(self.marks), style)

    def take(self, event: Any) -> None:
        """Process one event."""
        if isinstance(event, yaml.ScalarEvent):
            self.put(self.scalar(event))
        elif isinstance(event, yaml.CollectionStartEvent):
            self.begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.end(event)
        elif isinstance(event, yaml.AliasEvent):
            node = self.node(event, value=Unclear(f"*{event.anchor}"), mark="an alias")
            self.marks.append(f"*{event.anchor}")
            self.put(node)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                start: Any = event.start_mark
                line = line_at(self.text, start.index)
                raise FormatError(f"line {line} begins a second document, expected one")

    def node(self, event: Any, **more: Any) -> Node:
        start, end = event.start_mark.index, event.end_mark.index
        in_flow = bool(self.open) and self.open[-1].node.is_flow
        return Node(start=start, end=end, content_end=end, in_flow=in_flow, **more)

    def scalar(self, event: Any) -> Node:
        style = event.style or None
        mark = self.mark(event)
        value = event.value if style else read_plain(event.value)
        node = self.node(event, style=style, value=Unclear(event.value) if mark else value, mark=mark)
        if style in ("|", ">"):
            node.is_block = True
            written = self.text[node.start : node.end]
            keeps = "+" in written.partition("\n")[0].partition("#")[0]
            node.content_end = node.end - 1 if keeps else node.start + len(written.rstrip())
        return node

    def mark(self, event: Any) -> str:
        """Return the mark that prevents a separate edit of the node, for messages."""
        if event.anchor:
            self.marks.append(f"&{event.anchor}")
        if event.tag:
            self.marks.append(str(event.tag))
        return "an anchor" if event.anchor else "a tag" if event.tag else ""

    def begin(self, event: Any) -> None:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        node = self.node(
            event, mark=self.mark(event), is_flow=bool(event.flow_style), value={} if is_mapping else []
        )
        node.members = {} if is_mapping else None
        node.is_block = not node.is_flow
        node.column = None if node.is_flow else event.start_mark.column
        node.content_end = node.start
        if node.is_block:
            self.learn(node)
        self.open.append(_Open(node))
        if len(self.open) > MAX_DEPTH:
            raise FormatError(f"the document is nested more than {MAX_DEPTH} deep")

    def learn(self, node: Node) -> None:
        """Take the first indentation of each kind as the style of the file."""
        parent = self.open[-1].node if self.open else None
        if parent is None or parent.members is None or parent.column is None or node.column is None:
            return
        width = node.column - parent.column
        if node.members is None:
            self.offset = width if self.offset is None else self.offset
        else:
            self.step = width if self.step is None else self.step

    def end(self, event: Any) -> None:
        node = self.open.pop().node
        node.end = event.end_mark.index
        if node.is_flow:
            node.content_end = node.end
        self.put(node)

    def put(self, node: Node) -> None:
        """Add a complete node to its parent."""
        node.has_marks = node.has_marks or bool(node.mark)
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        into = parent.node
        into.has_marks = into.has_marks or node.has_marks
        into.is_empty = False
        into.content_end = max(into.content_end, node.content_end)
        if into.members is None:
            into.value.append(node.value)
        elif parent.key is None:
            parent.key = self.name(node), node.start, node.end
        else:
            self.put_member(into, *parent.key, node)
            parent.key = None

    def name(self, node: Node) -> str:
        """Return the text of a key. For another type of key, return a text that no setting can match."""
        if node.members is not None or isinstance(node.value, list) or node.mark:
            return f"\0{self.text[node.start : node.content_end]}"
        return str(node.value) if isinstance(node.value, str) else self.text[node.start : node.end]

    def put_member(self, into: Node, name: str, start: int, end: int, node: Node) -> None:
        if into.members is None or name in into.members:
            raise FormatError(f"line {line_at(self.text, start)} has the key {name!r} again")
        colon = self.text.find(":", end, node.start)
        into.members[name] = Member(start, node.start if colon < 0 else colon + 1, node)
        into.value[name] = node.value
