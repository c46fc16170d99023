"""Ruby's regular expressions, written as Python's.

* ``^`` and ``$`` match at every line; ``\\A``, ``\\z``, ``\\Z``, ``\\h``, ``(?<name>…)``, ``(?mix)`` and POSIX
  classes mean what they mean in Ruby.
* An expression that Python cannot compile raises ``ExpressionError``, never an exception of ``re``.
"""

import re
from functools import lru_cache

from hiera.errors import ExpressionError

_POSIX = {
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "A-Za-z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "word": r"\w",
    "space": r"\s",
    "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
    "cntrl": r"\x00-\x1f\x7f",
    "print": r"\x20-\x7e",
    "graph": r"\x21-\x7e",
}
_ESCAPES = {
    r"\A": r"\A",
    r"\z": r"\Z",
    r"\Z": r"(?=\n?\Z)",
    r"\h": "[0-9A-Fa-f]",
    r"\H": "[^0-9A-Fa-f]",
    r"\e": r"\x1b",
}
_TOKEN = re.compile(
    r"\\.|\[:(?P<posix>\w+):\]|\(\?<(?P<name>[A-Za-z_]\w*)>|\(\?(?P<flags>[mix]*(?:-[mix]+)?)(?P<end>[:)])|.",
    re.DOTALL,
)


@lru_cache(maxsize=1024)
def compiled(text: str) -> re.Pattern[str]:
    """``text``, a Ruby expression; raises ``ExpressionError``."""
    flags = ""
    out: list[str] = []
    try:
        for found in _TOKEN.finditer(text):
            if found["end"] == ")":  # Python wants flags for all that follows at the very front
                flags += found["flags"]
            else:
                out.append(_translated(found))
        return re.compile((f"(?{_flags(flags)})" if flags else "") + "".join(out), re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ExpressionError("", f"not a regular expression that can be used: /{text}/: {error}") from None


def _translated(found: re.Match[str]) -> str:
    if found["posix"]:
        return _POSIX.get(found["posix"], found[0])
    if found["name"]:
        return f"(?P<{found['name']}>"
    if found["flags"] is not None:
        return f"(?{_flags(found['flags'])}:"
    return _ESCAPES.get(found[0], found[0])


def _flags(text: str) -> str:
    """Ruby's ``m`` lets a dot match a newline, which is ``s`` elsewhere."""
    return text.replace("m", "s")
