"""Settings of ini files: ``key = value`` below ``[section]`` (``docs/resources/setting.md``).

* A section ends at the next header. Equal headers form one section. The lines before the first header form the section
  without a name.
* A value ends with its line, or continues over several lines (``text_lines.py``). ``:`` separates only if the separator
  contains it.
* A new key is inserted after the last comment that contains it. Otherwise it follows the last setting of its section,
  before trailing comments and blank lines, which belong to the next section. In an empty section it follows the header.
"""

from collections.abc import Iterator

import msgspec

from puller.resources.base import PropertyError
from puller.resources.edits.formats.text_lines import (
    BLANKS,
    Found,
    Lines,
    Pair,
    Setting,
    edited,
    edited_in_all,
    extended,
    found_in_all,
    found_pair,
    indentation_of,
    is_blank,
    is_comment,
    is_text,
    last_lines,
    lines_of,
    pair_by_sign,
    pair_problems,
    remembered,
    uncommented,
    with_pair,
    without_pairs,
)

NEW_TEXT = ""
_SEPARATOR = " = "


class _Section(msgspec.Struct):
    """All parts of one section."""

    header: int | None = None
    pairs: dict[str, list[Pair]] = msgspec.field(default_factory=dict)
    commented: dict[str, int] = msgspec.field(default_factory=dict)
    """The last line that has the key commented out, by key."""
    last: int | None = None
    """The last line of a setting."""
    indentation: str = ""
    """The indentation of the last setting."""

    def add_comment(self, pair: Pair) -> None:
        if pair.value is not None:
            self.commented[pair.key] = pair.index

    def add(self, pair: Pair) -> None:
        self.pairs.setdefault(pair.key, []).append(pair)
        self.last = pair.lines[-1]
        if pair.value is not None:
            self.indentation = indentation_of(pair.head)


def problems(setting: Setting) -> Iterator[PropertyError]:
    """Yield errors of a setting that are independent of the file."""
    yield from pair_problems(setting, first_signs="#;[", signs=_signs(setting))
    separator = _SEPARATOR if setting.separator is None else setting.separator
    if separator.strip(" \t") not in ("=", ":"):
        yield PropertyError(
            "separator", f"is {separator!r}, expected = or :, with or without blanks around it"
        )
    section = setting.section
    if section is not None and not _can_be_header(section):
        yield PropertyError("section", f"is {section!r}, expected the name between the brackets of a header")


def find(text: str, setting: Setting) -> Found:
    """Return the value and line of a key. Raises ``FormatError`` if the text is ambiguous."""

    def find_by(continuation: str) -> Found:
        return found_pair(_pairs(_sections(text, _signs(setting), continuation), setting))

    return found_in_all(text, setting, find_by, _is_header)


def with_value(text: str, setting: Setting) -> str:
    """Return the text with the value. Raises ``FormatError`` if no edit is correct in every reading of the text."""
    return edited_in_all(text, setting, _with_value, _all_pairs, _is_header)


def without(text: str, setting: Setting) -> str:
    """Return the text without the key. Its section stays. Raises ``FormatError`` as :func:`with_value`."""
    absent = msgspec.structs.replace(setting, value=msgspec.UNSET)
    return edited_in_all(text, absent, _without, _all_pairs, _is_header)


def _with_value(text: str, setting: Setting, continuation: str) -> str:
    sections, lines = _sections(text, _signs(setting), continuation), lines_of(text)
    separator = _SEPARATOR if setting.separator is None else setting.separator
    if pairs := _pairs(sections, setting):
        head = pairs[-1].head + (separator if pairs[-1].value is None else "")
        return with_pair(text, lines, pairs, head + setting.value)
    line = f"{setting.key}{separator}{setting.value}"
    return _with_new(lines, sections.get(setting.section), setting, line)


def _without(text: str, setting: Setting, continuation: str) -> str:
    return without_pairs(
        text, lines_of(text), _pairs(_sections(text, _signs(setting), continuation), setting)
    )


def _all_pairs(text: str, setting: Setting, continuation: str) -> dict[tuple[str | None, str], list[Pair]]:
    sections = _sections(text, _signs(setting), continuation)
    return {(name, key): pairs for name, section in sections.items() for key, pairs in section.pairs.items()}


def _with_new(lines: Lines, section: _Section | None, setting: Setting, line: str) -> str:
    count = len(lines.contents)
    if section is None:
        gap = [""] if count and not is_blank(lines.contents[-1]) else []
        return edited(lines, at=count, inserted=[*gap, f"[{setting.section}]", line])
    line = section.indentation + line
    if (commented := section.commented.get(str(setting.key))) is not None:
        return edited(lines, at=commented + 1, inserted=[line])
    if section.last is not None:
        return edited(lines, at=section.last + 1, inserted=[line])
    if section.header is not None:
        return edited(lines, at=section.header + 1, inserted=[line])
    gap = [""] if count and not is_blank(lines.contents[0]) else []
    return edited(lines, at=0, inserted=[line, *gap])


@remembered
def _sections(text: str, signs: tuple[str, ...], continuation: str) -> dict[str | None, _Section]:
    """Return the sections of a text. The settings before the first header have the section ``None``."""
    sections: dict[str | None, _Section] = {None: _Section()}
    section, contents = sections[None], lines_of(text).contents
    ends, end = last_lines(text, continuation, _is_header), -1
    for index, content in enumerate(contents):
        if index <= end or is_blank(content):
            continue
        if is_comment(content):
            section.add_comment(pair_by_sign(index, uncommented(content), signs))
        elif (header := _header_of(content)) is None:
            end = ends.get(index, index)
            section.add(extended(pair_by_sign(index, content, signs), contents, end, continuation))
        else:
            section = sections.setdefault(header, _Section())
            section.header = index
    return sections


def _is_header(content: str) -> bool:
    return _header_of(content) is not None


def _can_be_header(section: str) -> bool:
    return is_text(section) and "\n" not in section and _header_of(f"[{section}]") == section


def _header_of(content: str) -> str | None:
    """Return the name in a header line, including blanks, or ``None``. Text may follow the bracket."""
    content = content.strip(BLANKS)
    name, bracket, behind = content[1:].partition("]")
    if not (content.startswith("[") and bracket):
        return None
    is_longer = content.endswith("]") and behind.strip(BLANKS)[:1] not in ("", "#", ";")
    return content[1:-1] if is_longer else name  # [remote "a]b"]


def _pairs(sections: dict[str | None, _Section], setting: Setting) -> list[Pair]:
    section = sections.get(setting.section)
    return section.pairs.get(str(setting.key), []) if section else []


def _signs(setting: Setting) -> tuple[str, ...]:
    return ("=", ":") if setting.separator and ":" in setting.separator else ("=",)
