"""Settings of yaml documents: only the bytes of a value or an entry change (``docs/resources/setting.md``).

* libyaml gives all positions (``yaml_nodes``). PyYAML writes new values, in the style of the file.
* Anchors, aliases, tags and merge keys stay unchanged. On the path to a value, or inside it, they are rejected, because
  an edit there would have further effects. Aliases are never followed.
* A key is compared by its text, with or without quotes.
"""

from collections.abc import Iterator
from typing import Any

from puller.resources.base import PropertyError
from puller.resources.edits.formats.text_lines import FormatError, Found, Setting, ending_of, indentation_of
from puller.resources.edits.formats.trees import (
    MISSING,
    Way,
    edited_tree,
    find_in,
    line_at,
    line_end,
    line_start,
    nested,
    tree_problems,
    way_of,
)
from puller.resources.edits.formats.yaml_nodes import (
    BlockStyle,
    Document,
    Member,
    Node,
    can_be_literal,
    document_of,
    flow,
    is_block,
    scalar,
)

NEW_TEXT = ""


def problems(setting: Setting) -> Iterator[PropertyError]:
    """Yield errors of a setting that are independent of the file."""
    yield from tree_problems(setting)


def find(text: str, setting: Setting) -> Found:
    """Return the value and line of the key. Raises ``FormatError`` for an invalid document or a conflicting value."""
    document, key_path = document_of(text), way_of(setting)
    _refuse_marks(text, document, key_path)
    result = find_in(document.tree, key_path, lambda: line_at(text, _members(document, key_path)[-1].start))
    return result if type(result.value) in (int, float, bool, list, dict, type(None)) else _as_text(result)


def with_value(text: str, setting: Setting) -> str:
    """Return the text with the value. Raises the exceptions of :func:`find`."""
    return _edited(text, setting, setting.value)


def without(text: str, setting: Setting) -> str:
    """Return the text without the entry. Raises the exceptions of :func:`find`."""
    return _edited(text, setting, MISSING)


def _as_text(result: Found) -> Found:
    return Found(is_there=result.is_there, value=str(result.value), line=result.line)


def _edited(text: str, setting: Setting, value: Any) -> str:
    document = document_of(text)
    _refuse_marks(text, document, way_of(setting))
    new = edited_tree(text, setting, value, _tree, _set)
    if new is not text and document_of(new).marks != document.marks:
        raise FormatError("the edit would change an anchor, an alias or a tag")
    return new


def _tree(text: str) -> Any:
    return document_of(text).tree


def _refuse_marks(text: str, document: Document, key_path: Way) -> None:
    nodes = [document.root, *(member.node for member in _members(document, key_path))]
    for node in nodes:
        if node and node.mark:
            raise FormatError(
                f"line {line_at(text, node.start)} has {node.mark}, where an edit would change more"
            )
        if node and node.members and "<<" in node.members:
            line = line_at(text, node.members["<<"].start)
            raise FormatError(f"line {line} has a merge key, so the effective value may be elsewhere")
    if len(nodes) > len(key_path) and nodes[-1] and nodes[-1].has_marks:
        raise FormatError(
            f"line {line_at(text, nodes[-1].start)} has a value with anchors, aliases or tags in it"
        )


def _members(document: Document, key_path: Way) -> list[Member]:
    """Return the existing members on a path."""
    members: list[Member] = []
    node = document.root
    for name in key_path:
        if node is None or not node.members or name not in node.members:
            break
        members.append(node.members[name])
        node = members[-1].node
    return members


def _set(text: str, key_path: Way, value: Any) -> str:
    document = document_of(text)
    members = _members(document, key_path)
    edit = _Edit(text, document.style)
    if value is MISSING:
        return edit.without(document.root, members)
    remainder = nested(key_path[len(members) + 1 :], value)
    container = members[-1].node if members else document.root
    if len(members) == len(key_path):
        return edit.with_value(members, value)
    if container is not None and container.members:
        return edit.with_member(container, key_path[len(members)], remainder)
    if members:
        return edit.with_value(members, {key_path[len(members)]: remainder})
    return edit.with_root(container, {key_path[0]: remainder})


class _Edit:
    """Changes of a text. Each method returns the new text."""

    def __init__(self, text: str, style: BlockStyle) -> None:
        self.text = text
        self.style = style
        self.newline = ending_of(text)

    def with_root(self, root: Node | None, value: dict[str, Any]) -> str:
        """Return the text with the first entries of a document."""
        [(key, item)] = value.items()
        lines = self.style.entry(key, item)
        if root is not None and root.is_flow:  # an empty mapping in flow style
            return self.text[: root.start] + self.newline.join(lines) + self.text[root.end :]
        return self.with_lines(len(self.text), lines)

    def with_lines(self, place: int, lines: list[str]) -> str:
        """Return the text with lines at the start of a line, or after an unterminated last line."""
        before = self.text[:place]
        if before and not before.endswith("\n"):
            before += self.newline
        return before + "".join(line + self.newline for line in lines) + self.text[place:]

    def with_member(self, container: Node, name: str, value: Any) -> str:
        """Return the text with a new entry at the end of a non-empty mapping."""
        *_, last = (container.members or {}).values()
        if container.is_flow:
            end = last.node.end
            return f"{self.text[:end]}, {scalar(name, flow=True)}: {flow(value)}{self.text[end:]}"
        indentation = self.indentation(last)
        lines = [f"{indentation}{line}" if line else "" for line in self.style.entry(name, value)]
        return self.with_lines(line_end(self.text, last.node.content_end), lines)

    def with_value(self, members: list[Member], value: Any) -> str:
        """Return the text with another value of an existing entry."""
        member, node = members[-1], members[-1].node
        is_literal = can_be_literal(value) and node.style not in ("'", '"')
        if node.in_flow or (node.is_flow and not node.is_empty and is_block(value)):
            return self.with_inline(member, flow(value))
        if is_block(value) or is_literal:
            return self.with_block(member, value)
        return self.with_inline(member, scalar(value, style=node.style))

    def with_inline(self, member: Member, written: str) -> str:
        """Return the text with a value on the line of its key."""
        node, text = member.node, self.text
        if node.start == node.end:
            return f"{text[: member.colon]} {written}{text[member.colon :]}"
        if not node.is_block:
            return f"{text[: node.start]}{written}{text[node.end :]}"
        ending = self.newline if text[: line_end(text, node.content_end)].endswith("\n") else ""
        return f"{text[: member.colon]} {written}{self.comment(member)}{ending}{self.behind(member)}"

    def with_block(self, member: Member, value: Any) -> str:
        """Return the text with a value on separate lines. A comment after the key or the old value stays there."""
        node = member.node
        style = BlockStyle(self.style.step, self.style.offset)
        if node.is_block and node.column is not None:
            width = node.column - len(self.indentation(member))
            style = BlockStyle(width, style.offset) if node.members else BlockStyle(style.step, width)
        indentation = self.indentation(member)
        head, *remainder = style.value(value)
        lines = [f"{indentation}{line}" if line else "" for line in remainder]
        first = f"{self.text[: member.colon]}{head}{self.comment(member)}{self.newline}"
        below = "".join(line + self.newline for line in lines)
        return first + below + self.behind(member)

    def comment(self, member: Member) -> str:
        """Return the text after a key's colon and its value if they share a line, including blanks before it."""
        node = member.node
        if node.style in ("|", ">"):
            return ""
        start = member.colon if node.is_block or node.start == node.end else node.end
        end = line_end(self.text, start)
        return self.text[start : min(end, node.start) if node.is_block else end].rstrip()

    def without(self, root: Node | None, members: list[Member]) -> str:
        """Return the text without the last of the members."""
        member = members[-1]
        container = members[-2].node if len(members) > 1 else root
        siblings = list(container.members.values()) if container and container.members else [member]
        if container is not None and container.is_flow:
            return self.without_in_flow(container, siblings, siblings.index(member))
        if len(siblings) > 1:
            return self.text[: line_start(self.text, member.start)] + self.behind(member)
        if len(members) > 1:
            return self.with_inline(members[-2], "{}")
        return f"{self.text[: line_start(self.text, member.start)]}{{}}{self.newline}{self.behind(member)}"

    def without_in_flow(self, container: Node, siblings: list[Member], index: int) -> str:
        if len(siblings) == 1:
            return f"{self.text[: container.start]}{{}}{self.text[container.end :]}"
        if index:
            return self.text[: siblings[index - 1].node.end] + self.text[siblings[index].node.end :]
        return self.text[: siblings[0].start] + self.text[siblings[1].start :]

    def behind(self, member: Member) -> str:
        """Return the text from the line after an entry."""
        return self.text[line_end(self.text, member.node.content_end) :]

    def indentation(self, member: Member) -> str:
        """Return the blanks before a key of a block mapping."""
        return indentation_of(self.text[line_start(self.text, member.start) : member.start])
