"""Man pages of the Markdown documents in ``docs/``."""

import re
from collections.abc import Mapping, Sequence

from manual.roff import Page, bold, escape
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

_READER = MarkdownIt("commonmark").enable("table")


class UnknownMarkup(Exception):
    """A document uses unsupported markup. The message names it."""


def document_page(name: str, section: int, text: str, references: Mapping[str, str]) -> Page:
    """Return the page of a document. ``references`` maps files in ``docs/`` to pages such as ``puller-data(5)``.

    Raises ``UnknownMarkup``.
    """
    title, _, body = text.strip().removeprefix("# ").partition("\n")
    page = Page(name, section, re.sub(r"[`*]", "", title))
    add_document(page, body, references, first="Description")
    return page


def add_document(page: Page, text: str, references: Mapping[str, str], *, first: str = "") -> None:
    """Add Markdown to a page. ``first`` is the title of the text before the first heading.

    Raises ``UnknownMarkup``.
    """
    if first and not text.lstrip().startswith("#"):
        page.section_heading(first)
    tokens: Sequence[Token] = _READER.parse(text)
    for node in SyntaxTreeNode(tokens).children:
        _Writer(page, references).block(node)


class _Writer:
    def __init__(self, page: Page, references: Mapping[str, str]) -> None:
        self._page, self._references = page, references

    def block(self, node: SyntaxTreeNode) -> None:
        page = self._page
        match node.type:
            case "heading":
                title = re.sub(r"[`*]|\]\([^)]*\)|\[", "", node.children[0].content)
                (page.section_heading if node.tag in {"h1", "h2"} else page.heading)(title)
            case "paragraph":
                page.paragraph(self._inline(node.children[0]))
            case "fence" | "code_block":
                page.literal(node.content)
            case "bullet_list" | "ordered_list":
                for item in node.children:
                    self._item(item)
            case "table":
                page.table(
                    [
                        [self._cell(cell) for cell in row.children]
                        for part in node.children
                        for row in part.children
                    ]
                )
            case "blockquote":
                page.add(".RS 4")
                for child in node.children:
                    self.block(child)
                page.add(".RE")
            case "hr":
                pass
            case "html_block" if node.content.startswith("<!--"):
                pass
            case other:
                raise UnknownMarkup(f"{page.name}: {other}")

    def _item(self, item: SyntaxTreeNode) -> None:
        first, *additional = item.children
        self._page.point(self._inline(first.children[0]))
        if additional:
            self._page.add(".RS 2")
            for child in additional:
                self.block(child)
            self._page.add(".RE")

    def _cell(self, cell: SyntaxTreeNode) -> str:
        return " ".join(self._inline(child) for child in cell.children).replace("\t", " ")

    def _inline(self, node: SyntaxTreeNode) -> str:
        return "".join(map(self._span, node.children))

    def _span(self, node: SyntaxTreeNode) -> str:
        match node.type:
            case "text":
                return escape(node.content)
            case "code_inline":
                return bold(node.content)
            case "softbreak" | "hardbreak":
                return "\n"
            case "strong" | "em":
                return f"\\fI{self._inline(node)}\\fR"
            case "link":
                return self._link(node)
            case "image":
                return f"[{self._inline(node)}]"
            case other:
                raise UnknownMarkup(f"{self._page.name}: {other}")

    def _link(self, node: SyntaxTreeNode) -> str:
        """Return the text of a link, and its target: another page, or an address."""
        text, target = self._inline(node), str(node.attrs.get("href", ""))
        if "://" in target:
            return f"{text} ({escape(target)})"
        path = re.sub(r"^(\.\./)*(docs/)?", "", target.partition("#")[0])
        known = self._references.get(path)
        return f"{text} ({escape(known)})" if known else text
