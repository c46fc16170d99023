"""Values of ini and keyvalue files that continue over several lines.

Programs disagree about continuation, and the text alone does not show which program reads it:

* ``indent``: a line that is indented more than its setting continues the value. Comments and blank lines may stand
  between (configparser, supervisor, Postfix, OpenLDAP).
* ``backslash``: a line that ends with a backslash continues in the next line. In ini files comment lines may stand
  between (systemd, git). In keyvalue files every line counts (``.properties``).
* ``none``: each line stands for itself (OpenSSH, MySQL, PHP).

A setting names the rule in ``continuation``. Without it, an edit is made only if it is right by every rule that the
text allows: the key has the desired value, and every other setting keeps its value. Otherwise the edit is refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from puller.resources.edits.formats.lines import lines_of
from puller.resources.edits.formats.pairs import BLANKS, Pair, indentation_of, is_blank, is_comment
from puller.resources.edits.formats.remembered import remembered
from puller.resources.edits.formats.wanted import FormatError, Found, Setting

Pairs = Mapping[tuple[str | None, str], Sequence[Pair]]
"""All settings of a text, by section and key."""
ReadPairs = Callable[[str, Setting, str], Pairs]
"""Reads a text by one rule of continuation."""
EditText = Callable[[str, Setting, str], str]
"""Edits a text by one rule of continuation."""
HeaderTest = Callable[[str], bool]
_ADVICE = "set continuation to indent, backslash or none, as the program reads the file"


@remembered
def last_lines(text: str, continuation: str, is_header: HeaderTest | None) -> dict[int, int]:
    """Return the last line of each value that has several lines, by its first line.

    ``is_header`` recognizes section headers. It is ``None`` for keyvalue files.
    """
    if continuation == "none":
        return {}
    contents = lines_of(text).contents
    return dict((_indented if continuation == "indent" else _joined)(contents, is_header))


def _indented(contents: Sequence[str], is_header: HeaderTest | None) -> Iterator[tuple[int, int]]:
    start, depth = None, 0
    for index, content in enumerate(contents):
        # Postfix reads an indented semicolon as part of the value.
        if is_blank(content) or (is_comment(content) if is_header else content.lstrip(BLANKS)[:1] == "#"):
            continue
        indentation = len(indentation_of(content))
        if start is not None and indentation > depth:
            yield start, index
        else:
            start = None if is_header and is_header(content) else index
            depth = indentation


def _joined(contents: Sequence[str], is_header: HeaderTest | None) -> Iterator[tuple[int, int]]:
    start = None
    for index, content in enumerate(contents):
        if start is None:
            is_setting = not is_blank(content) and not is_comment(content)
            if is_setting and not (is_header and is_header(content)) and _goes_on(content, is_header):
                start = index
        elif not (is_header and is_comment(content)):
            yield start, index
            if not _goes_on(content, is_header):
                start = None


def _goes_on(content: str, is_header: HeaderTest | None) -> bool:
    """Return whether the last backslash of a line is not escaped. systemd ignores blanks behind it."""
    content = content.rstrip(BLANKS) if is_header else content
    return (len(content) - len(content.rstrip("\\"))) % 2 == 1


def extended(pair: Pair, contents: Sequence[str], last: int, continuation: str) -> Pair:
    """Return the setting with all lines of its value, which are joined by newlines."""
    rest = [content.strip(BLANKS) for content in contents[pair.index + 1 : last + 1]]
    if not rest and continuation == "backslash" and contents[pair.index].rstrip(BLANKS).endswith("\\"):
        rest = [""]  # The file ends within the value.
    if not rest:
        return pair
    return Pair(pair.index, pair.key, pair.head, "\n".join([pair.value or "", *rest]), last)


def found_in_all(
    text: str, setting: Setting, find: Callable[[str], Found], is_header: HeaderTest | None
) -> Found:
    """Return the value and line of a key. Raises :class:`FormatError` if the rules of continuation disagree."""
    first, *others = (find(rule) for rule in _rules(text, setting, is_header))
    if any(other != first for other in others):
        raise _ambiguous(text, setting, is_header)
    return first


def edited_in_all(
    text: str, setting: Setting, edit: EditText, read: ReadPairs, is_header: HeaderTest | None
) -> str:
    """Return the text with one setting changed, or ``text`` itself if it is in order.

    Without a value the setting is removed. Raises :class:`FormatError` if no edit is right by every rule that the
    text allows.
    """
    rules = _rules(text, setting, is_header)
    for rule in rules:
        new = edit(text, setting, rule)
        after = rules if setting.continuation else dict.fromkeys([*rules, *_rules(new, setting, is_header)])
        if all(_is_only_change(read(text, setting, r), read(new, setting, r), setting) for r in after):
            return text if new == text else new
    if setting.continuation or (len(rules) == 1 and len(after) == 1):
        raise FormatError(f"{setting.key} cannot be changed so that this and every other key is read back")
    raise _ambiguous(new if len(rules) == 1 else text, setting, is_header)


def _rules(text: str, setting: Setting, is_header: HeaderTest | None) -> Sequence[str]:
    """Return the rules by which the text may be read, the likeliest one first."""
    return (setting.continuation,) if setting.continuation else _possible(text, is_header)


@remembered
def _possible(text: str, is_header: HeaderTest | None) -> Sequence[str]:
    rules = ["none"]
    if "\n " in text or "\n\t" in text:
        rules += ["indent"] if last_lines(text, "indent", is_header) else []
    if "\\" in text and any(
        _goes_on(content, is_header) and not is_comment(content) for content in lines_of(text).contents
    ):
        rules.append("backslash")
    return rules[::-1]


def _is_only_change(before: Pairs, after: Pairs, setting: Setting) -> bool:
    place = (setting.section, str(setting.key))
    expected = {**_values(before), place: [] if setting.is_absent else [setting.value]}
    if not expected[place]:
        del expected[place]
    return _values(after) == expected


def _values(pairs: Pairs) -> dict[tuple[str | None, str], object]:
    return {
        place: [None if pair.value is None else pair.value.rstrip(BLANKS) for pair in of_key]
        for place, of_key in pairs.items()
        if of_key
    }


def _ambiguous(text: str, setting: Setting, is_header: HeaderTest | None) -> FormatError:
    """Return the error that names the lines which may continue the value, or contain the key."""
    contents, key = lines_of(text).contents, str(setting.key)
    rules = ("indent", "backslash")
    spans = sorted(span for rule in rules for span in last_lines(text, rule, is_header).items())
    near = [span for span in spans if any(key in content for content in contents[span[0] : span[1] + 1])]
    if not spans:
        return FormatError(f"the last line ends with a backslash, so its value may continue; {_ADVICE}")
    start, last = (near or spans)[0]
    lines = f"line {start + 2}" if last == start + 1 else f"lines {start + 2} to {last + 1}"
    return FormatError(f"{lines} may continue the value of line {start + 1}; {_ADVICE}")
