"""Filters for texts: quoting, sizes, regular expressions, file names and URLs.

The filters for file names never access the disk.
"""

from __future__ import annotations

import ntpath
import posixpath
import re
import shlex
from typing import Any, Final, TypedDict, Unpack
from urllib.parse import urlsplit as split_url

from hiera import limits, regex
from hiera.errors import ExpressionError, LimitError
from hiera.values import described, plain

REGEX_LIMIT: Final = 1 << 20
"""Maximum length of a text for regular expressions."""
PATTERN_LIMIT: Final = 10_000
"""Maximum length of a regular expression: a million characters take a second to compile."""


def as_text(value: Any, name: str) -> str:
    """Return a text or a number as text. Raises ExpressionError with the filter's name for other types."""
    if isinstance(value, str) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return str(value)
    raise ExpressionError("", f"{name} requires text, not {described(value)}")


def quote(value: Any) -> str:
    """Return the text as one word for a shell, quoted if needed."""
    return shlex.quote(as_text(value, "quote"))


class CommentParts(TypedDict, total=False):
    """The parts of a comment. ``None`` means the decoration without trailing blanks."""

    beginning: str
    decoration: str
    end: str
    newline: str
    postfix: str | None
    postfix_count: int
    prefix: str | None
    prefix_count: int


def comment(text: Any, style: str = "plain", **parts: Unpack[CommentParts]) -> str:
    """Return comment lines in the style ``plain``, ``c``, ``cblock``, ``erlang`` or ``xml``.

    ``decoration`` and other parts override the style. Raises ExpressionError for another style or part, LimitError for
    a comment that is too long.
    """
    if style not in _COMMENTS:
        raise ExpressionError("", f"comment does not accept style {style!r}, only {', '.join(_COMMENTS)}")
    if unknown := sorted(parts.keys() - _COMMENT_PARTS):
        raise ExpressionError(
            "", f"comment does not accept {unknown[0]}, only {', '.join(sorted(_COMMENT_PARTS))}"
        )
    return _commented(as_text(text, "comment"), {**_COMMENT_PARTS, **_COMMENTS[style], **parts})


def _commented(text: str, pieces: dict[str, Any]) -> str:
    decoration, newline = str(pieces["decoration"]), str(pieces["newline"])
    limits.verify_width(decoration)
    bare = decoration.rstrip()
    lines = [decoration + line for line in text.split(newline)]
    # A line with only the decoration loses its trailing blanks, except the last line.
    lines[:-1] = [bare if line == decoration else line for line in lines[:-1]]
    before, after = (bare if pieces[name] is None else str(pieces[name]) for name in ("prefix", "postfix"))
    above = before if before in ("", newline) else before + newline
    above_count, below_count = int(pieces["prefix_count"]), int(pieces["postfix_count"])
    length = len(above) * above_count + (len(newline) + len(after)) * below_count
    limits.verify_length(text, length + sum(map(len, lines)) + len(newline) * len(lines))
    head = f"{pieces['beginning']}{newline}" if pieces["beginning"] else ""
    foot = f"{newline}{pieces['end']}" if pieces["end"] else ""
    return f"{head}{above * above_count}{newline.join(lines)}{(newline + after) * below_count}{foot}"


_COMMENTS: Final[dict[str, dict[str, str]]] = {
    "plain": {"decoration": "# "},
    "c": {"decoration": "// "},
    "cblock": {"beginning": "/*", "decoration": " * ", "end": " */"},
    "erlang": {"decoration": "% "},
    "xml": {"beginning": "<!--", "decoration": " - ", "end": "-->"},
}
_COMMENT_PARTS: Final[CommentParts] = {
    "beginning": "",
    "decoration": "",
    "end": "",
    "newline": "\n",
    "postfix": None,
    "postfix_count": 1,
    "prefix": None,
    "prefix_count": 1,
}
"""The default parts of a comment."""


def type_debug(value: Any) -> str:
    """Return Python's name for the type of a value: ``str``, ``int``, ``dict``."""
    return type(plain(value)).__name__


_UNITS: Final = "BKMGTPEZY"
_AMOUNT: Final = r"([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*"


def human_readable(size: float, isbits: bool = False, unit: str | None = None) -> str:
    """Return a number of bytes with a suitable unit, or with ``unit``: ``1.50 GB``."""
    if unit is None:
        power = max((n for n in range(len(_UNITS)) if size >= 1 << 10 * n), default=0)
    else:
        power = max(_UNITS.find(unit[:1].upper()), 0)
    base = "bits" if isbits else "Bytes"
    return f"{size / (1 << 10 * power):.2f} {_UNITS[power] + base[0] if power else base}"


def human_to_bytes(size: Any, default_unit: str | None = None, isbits: bool = False) -> int:
    """Return the number of bytes in a text such as ``1.5 GB`` or ``10M``. ``isbits`` reads units of bits.

    Raises ExpressionError.
    """
    match = re.fullmatch(_AMOUNT, as_text(size, "human_to_bytes")[:100], re.ASCII)
    if match is None:
        raise ExpressionError("", f"human_to_bytes requires text such as '10 MB', not {str(size)[:100]!r}")
    unit = match[2] or default_unit or "B"
    power, base = _UNITS.find(unit[0].upper()), "b" if isbits else "B"
    prefix = "" if power == 0 else _UNITS[power]
    word = f"{_PREFIXES[power]}{'bit' if isbits else 'byte'}"
    if power < 0 or (len(unit) > 1 and unit != prefix + base and unit.lower() != word):
        raise ExpressionError(
            "", f"human_to_bytes does not accept unit {unit!r}, only B, K{base}, M{base} and so on"
        )
    return round(float(match[1]) * (1 << 10 * power))


_PREFIXES: Final = ("", "kilo", "mega", "giga", "tera", "peta", "exa", "zetta", "yotta")


def split(value: str, separator: str | None = None, maxsplit: int = -1) -> list[str]:
    """Return the parts of a text between separators (blanks by default)."""
    fields = as_text(value, "split").split(
        separator, maxsplit if 0 <= maxsplit < limits.ITEM_LIMIT else limits.ITEM_LIMIT
    )
    limits.verify_length(fields, len(fields))
    return fields


# -- regular expressions ----------------------------------------------------------------------------


def _pattern(pattern: str, ignorecase: bool, multiline: bool) -> re.Pattern[str]:
    if len(pattern) > PATTERN_LIMIT:  # compiling is a single step, too
        raise LimitError("", f"a pattern has {len(pattern)} characters, at most {PATTERN_LIMIT} are possible")
    try:
        return re.compile(pattern, (re.IGNORECASE if ignorecase else 0) | (re.MULTILINE if multiline else 0))
    except (re.error, RecursionError, OverflowError) as error:
        raise ExpressionError("", f"invalid regular expression {pattern!r}: {error}") from None


def _subject(value: Any, name: str) -> str:
    text = as_text(value, name)
    if len(text) > REGEX_LIMIT:
        raise LimitError("", f"{name} accepts at most {REGEX_LIMIT} characters, not {len(text)}")
    return text


def regex_replace(
    value: Any,
    pattern: str,
    replacement: str = "",
    ignorecase: bool = False,
    multiline: bool = False,
    count: int = 0,
    mandatory_count: int = 0,
) -> str:
    """Return the text with every match replaced. ``\\\\1`` or ``\\\\g<name>`` in the replacement is a group.

    Raises ExpressionError.
    """
    made = found = 0

    def expand(match: re.Match[str]) -> str:
        nonlocal made, found
        found += 1
        text = match.expand(replacement) if "\\" in replacement else replacement
        # Count each replacement when it is made, since it may be much longer than its match.
        made += len(text)
        limits.verify_length(text, made)
        return text

    compiled, text = _pattern(pattern, ignorecase, multiline), _subject(value, "regex_replace")
    replaced, found = regex.bounded(compiled, text, lambda: (compiled.sub(expand, text, count), found))
    if mandatory_count and found != mandatory_count:
        raise ExpressionError(
            "", f"{pattern!r} should match {mandatory_count} times, and matches {found} times"
        )
    return replaced


def regex_search(
    value: Any, pattern: str, *groups: str, ignorecase: bool = False, multiline: bool = False
) -> Any:
    """Return the first match, or a list of its ``groups`` (``'\\\\1'``, ``'\\\\g<name>'``), or null without a match."""
    compiled, text = _pattern(pattern, ignorecase, multiline), _subject(value, "regex_search")

    def search() -> Any:
        match = compiled.search(text)
        if match is None or not groups:
            return match and match[0]
        return [match[group] for group in desired]

    desired = [_group(group, compiled) for group in groups]
    return regex.bounded(compiled, text, search)


def _group(text: Any, pattern: re.Pattern[str]) -> int | str:
    """Return the group that an argument names. Raises ExpressionError."""
    named = re.fullmatch(r"\\(?:(\d{1,3})|g<(\w+)>)", text, re.ASCII) if isinstance(text, str) else None
    if named is None:
        raise ExpressionError(
            "", f"regex_search does not accept group {text!r}, only '\\\\1' and '\\\\g<name>'"
        )
    group: int | str = named[2] or int(named[1])
    if (group not in pattern.groupindex) if isinstance(group, str) else group > pattern.groups:
        raise ExpressionError("", f"the pattern of regex_search lacks the group {group!r}")
    return group


def regex_findall(value: Any, pattern: str, multiline: bool = False, ignorecase: bool = False) -> list[Any]:
    """Return all matches: of the whole pattern, of its only group, or lists of its groups."""
    compiled, text = _pattern(pattern, ignorecase, multiline), _subject(value, "regex_findall")
    matches = regex.bounded(compiled, text, lambda: compiled.findall(text))
    return [list(item) if isinstance(item, tuple) else item for item in matches]


def regex_escape(value: Any, re_type: str = "python") -> str:
    """Return a regular expression that matches exactly this text. ``posix_basic`` is for sed and grep.

    Raises ExpressionError.
    """
    text = as_text(value, "regex_escape")
    if re_type == "posix_basic":
        return re.sub(r"[].[^$*\\]", r"\\\g<0>", text)
    if re_type != "python":
        raise ExpressionError("", f"regex_escape does not accept {re_type!r}, only python and posix_basic")
    return re.escape(text)


def matches(
    value: Any, pattern: str, ignorecase: bool = False, multiline: bool = False, match_type: str = "search"
) -> bool:
    """Test ``regex``: ``search``, ``match`` or ``fullmatch``, as ``match_type`` selects.

    Raises ExpressionError.
    """
    if match_type not in ("fullmatch", "match", "search"):
        raise ExpressionError("", f"regex does not accept {match_type!r}, only search, match and fullmatch")
    compiled, text = _pattern(pattern, ignorecase, multiline), _subject(value, "regex")
    return regex.bounded(compiled, text, lambda: getattr(compiled, match_type)(text) is not None)


def matches_start(value: Any, pattern: str, ignorecase: bool = False, multiline: bool = False) -> bool:
    """Test ``match``: the regular expression matches at the start of the text."""
    compiled, text = _pattern(pattern, ignorecase, multiline), _subject(value, "match")
    return regex.bounded(compiled, text, lambda: compiled.match(text) is not None)


def matches_anywhere(value: Any, pattern: str, ignorecase: bool = False, multiline: bool = False) -> bool:
    """Test ``search``: the regular expression matches somewhere in the text."""
    return regex.is_found(_pattern(pattern, ignorecase, multiline), _subject(value, "search"))


# File names and URLs.


def basename(path: str) -> str:
    """Return the last part of a path."""
    return posixpath.basename(as_text(path, "basename"))


def dirname(path: str) -> str:
    """Return a path without its last part."""
    return posixpath.dirname(as_text(path, "dirname"))


def normpath(path: str) -> str:
    """Return a path without ``.``, ``..`` and doubled slashes. Links are not resolved."""
    return posixpath.normpath(as_text(path, "normpath"))


def relpath(path: str, start: str | None = None) -> str:
    """Return the path from the directory ``start`` to this path, both absolute. Raises ExpressionError."""
    path, start = as_text(path, "relpath"), "" if start is None else as_text(start, "relpath")
    if not (path.startswith("/") and start.startswith("/")):
        raise ExpressionError("", "relpath requires two absolute paths: '/etc/app/x' | relpath('/etc')")
    return posixpath.relpath(path, start)


def commonpath(paths: Any) -> str:
    """Return the longest common parent of all paths in a list."""
    return posixpath.commonpath([as_text(path, "commonpath") for path in paths])


def win_basename(path: str) -> str:
    """Return the last part of a Windows path."""
    return ntpath.basename(as_text(path, "win_basename"))


def win_dirname(path: str) -> str:
    """Return a Windows path without its last part."""
    return ntpath.dirname(as_text(path, "win_dirname"))


def win_splitdrive(path: str) -> list[str]:
    """Return the drive of a Windows path, and the remaining path."""
    return list(ntpath.splitdrive(as_text(path, "win_splitdrive")))


def splitext(path: str) -> list[str]:
    """Return a path without its extension, and the extension."""
    return list(posixpath.splitext(as_text(path, "splitext")))


def path_join(pieces: Any) -> str:
    """Return the parts of a path joined. An absolute part discards the parts before it."""
    return posixpath.join(
        *(as_text(part, "path_join") for part in ([pieces] if isinstance(pieces, str) else pieces))
    )


def urlsplit(value: str, query: str = "") -> Any:
    """Return the parts of a URL: ``scheme``, ``hostname``, ``port``, ``path`` …, or the part that ``query`` names.

    Raises ExpressionError.
    """
    try:
        url_parts = split_url(as_text(value, "urlsplit"))
        result = {name: getattr(url_parts, name) for name in _PARTS}
    except ValueError as error:
        raise ExpressionError("", f"urlsplit cannot read the URL: {error}") from None
    if query and query not in result:
        raise ExpressionError("", f"urlsplit does not accept {query!r}, only {', '.join(_PARTS)}")
    return result[query] if query else result


_PARTS = ("fragment", "hostname", "netloc", "password", "path", "port", "query", "scheme", "username")


def is_uri(value: Any, schemes: Any = None) -> bool:
    """Test ``uri``: text that can be read as a URI, with a scheme of ``schemes`` if the argument is present."""
    scheme = _scheme(value)
    return scheme is not None and (not schemes or scheme in schemes)


def is_url(value: Any, schemes: Any = None) -> bool:
    """Test ``url``: a URI with a host, or a file URI."""
    return is_uri(value, schemes) and (_scheme(value) == "file" or bool(urlsplit(value, "netloc")))


def is_urn(value: Any) -> bool:
    """Test ``urn``: a URI that begins with ``urn:``."""
    return is_uri(value, ["urn"])


def is_absolute(path: Any) -> bool:
    """Test ``abs``: an absolute path."""
    return as_text(path, "abs").startswith("/")


def _scheme(value: Any) -> str | None:
    try:
        return str(urlsplit(value, "scheme"))
    except ExpressionError:
        return None
