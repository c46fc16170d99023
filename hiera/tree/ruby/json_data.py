"""JSON as Ruby's parser reads it for ``json_data``: comments are allowed, ``NaN`` and trailing commas are rejected."""

import json
import re
from typing import Any, NoReturn

from hiera.errors import DocumentError
from hiera.tree.ruby import psych

MAX_DEPTH = 100  # as in Ruby

# A text is matched whole, so that a comment-like part of it stays. An unterminated text is matched as well, otherwise
# the search for its end would restart at each character.
_TEXT_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*+"?|/\*.*?(?:\*/|\Z)|//[^\n]*\n', re.DOTALL)
_UNKNOWN_ESCAPE = re.compile(r'\\(?:u[0-9A-Fa-f]{4}|["\\/bfnrtu]|(.))', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def load(data: bytes, path: str) -> Any:
    """Return the value in ``data``. Raises ``DocumentError``, with line and column if known."""
    text = psych.decode(data, path, "utf-8")
    try:
        _verify_depth(text)
        value = json.loads(_cleaned(text), parse_constant=_refuse)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        what = f"{error.msg} at line {error.lineno} column {error.colno}"
    except UnicodeEncodeError:
        what = "an escape of half a character, such as \\ud800, without its other half"
    except ValueError as error:  # a constant, or a number with thousands of digits
        what = str(error)
    raise DocumentError("", f"Unable to parse ({path}): {what}")


def _verify_depth(text: str) -> None:
    """Check the depth, since Python's parser would recurse up to its limit, on the C stack."""
    depth = 0
    for found in _BRACKET.finditer(_TEXT_OR_COMMENT.sub("", text)):
        depth += 1 if found[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"nesting of {depth} is too deep")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"unexpected token at '{constant}'")


def _cleaned(text: str) -> str:
    """Return the text without comments and without Ruby's extra escapes (``\\q`` is ``q``). Positions stay the same."""
    return _TEXT_OR_COMMENT.sub(_clean, text) if "//" in text or "/*" in text or "\\" in text else text


def _clean(found: re.Match[str]) -> str:
    part = found[0]
    if part.startswith("/*") and (len(part) < 4 or not part.endswith("*/")):
        return part
    if part[0] == "/":
        return re.sub(r"[^\n]", " ", part)
    return _UNKNOWN_ESCAPE.sub(lambda escape: escape[1] or escape[0], part) if "\\" in part else part
