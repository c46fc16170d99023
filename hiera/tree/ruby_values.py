"""Values with the semantics of Ruby: printing, equality, sorting, regular expressions, and conversion for JSON, YAML.

* ``to_s`` and ``inspect`` return exactly the text that Ruby 3.1 prints.
* ``identity`` follows Ruby's ``eql?``: ``1``, ``1.0``, ``true`` and ``"1"`` are four different values.
* A mapping keeps all keys that Ruby distinguishes, although Python treats ``1``, ``1.0`` and ``True`` as equal.
"""

import re
from collections.abc import Callable, Hashable
from functools import cmp_to_key, lru_cache
from typing import Any
from unicodedata import category

from hiera.errors import ExpressionError, LookupFailure
from hiera.values import Decrypted, Secret


class Symbol:
    """A Ruby symbol, which YAML makes of ``:name``. Data may contain only ``:undef`` and ``:default``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f":{self.name}" if re.fullmatch(r"[^\W\d]\w*[?!=]?", self.name) else f":{_quote(self.name)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and other.name == self.name

    def __hash__(self) -> int:
        return hash((Symbol, self.name))


class WholeFloat(float):
    """A mapping key such as ``1.0``, which Ruby distinguishes from the key ``1``."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and float(self) == float(other)

    def __hash__(self) -> int:
        return hash(("float", float(self)))


class OddKey:
    """A mapping key that is not data (true, null, a list). Python would confuse it or cannot hash it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return inspect(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OddKey) and identity(other.value) == identity(self.value)

    def __hash__(self) -> int:
        return hash((OddKey, identity(self.value)))


def key(value: Any) -> Any:
    """Return ``value`` as a mapping key: strings, integers and most floats stay unchanged."""
    if type(value) in (str, int):
        return value
    if isinstance(value, float):
        return WholeFloat(value) if value.is_integer() else value
    return value if isinstance(value, OddKey) else OddKey(value)


def to_s(value: Any) -> str:
    """Return ``value`` as interpolated into a text. Nil is empty text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, Symbol):
        return value.name
    return to_s(value.value) if isinstance(value, OddKey) else inspect(value)


def inspect(value: Any) -> str:
    """Return ``value`` as Ruby prints it inside a list or hash."""
    match value:
        case str():
            return _quote(value)
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case float():
            return _float(value)
        case list():
            return f"[{', '.join(map(inspect, value))}]"
        case dict():
            return "{" + ", ".join(f"{inspect(name)}=>{inspect(item)}" for name, item in value.items()) + "}"
        case Symbol() | OddKey():
            return repr(value)
        case _:
            return str(value)


_ESCAPES = {
    '"': r"\"",
    "\\": r"\\",
    "\n": r"\n",
    "\t": r"\t",
    "\r": r"\r",
    "\x1b": r"\e",
    "\a": r"\a",
    "\b": r"\b",
    "\v": r"\v",
    "\f": r"\f",
}
_PLAIN = r"[ !$-\[\]-~]*"  # printable ASCII without " # \


def _quote(text: str) -> str:
    if re.fullmatch(_PLAIN, text):
        return f'"{text}"'
    escaped = "".join(_ESCAPES.get(char) or (char if _is_printable(char) else _code(char)) for char in text)
    return '"' + re.sub(r"#(?=[{$@])", r"\\#", escaped) + '"'


def _is_printable(char: str) -> bool:
    """Ruby also prints format and private-use characters, all spaces, and the old control character NEL."""
    if char.isprintable() or char == "\x85":
        return True

    return category(char) in ("Cf", "Co", "Zs")


def _code(char: str) -> str:
    number = ord(char)
    return f"\\u{number:04X}" if number <= 0xFFFF else f"\\u{{{number:X}}}"


def _float(number: float) -> str:
    if number != number or number in (float("inf"), float("-inf")):
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    mantissa, exponent, power = float.__repr__(number).partition("e")
    if exponent and "." not in mantissa:
        mantissa += ".0"  # 1e-05 is written 1.0e-05
    return mantissa + exponent + power


def class_name(value: Any) -> str:
    """Return the name of the Ruby class of ``value``, for Puppet's messages."""
    match value:
        case bool():
            return "TrueClass" if value else "FalseClass"
        case Secret():
            return "String"
    names = {
        str: "String",
        int: "Integer",
        float: "Float",
        list: "Array",
        dict: "Hash",
        type(None): "NilClass",
    }
    return names.get(type(value), type(value).__name__)


def identity(value: Any) -> Hashable:
    """Return a hashable value that is equal for two values exactly if Ruby's ``eql?`` holds. Key order is ignored."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return (list, *map(identity, value))
    if isinstance(value, dict):
        return (dict, frozenset((name, identity(item)) for name, item in value.items()))
    if isinstance(value, Secret):
        return identity(value.reveal())
    return (float if isinstance(value, float) else type(value), value)


def is_data(value: Any) -> bool:
    """Return whether ``value`` matches Puppet's type ``Data``, which JSON can represent."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and is_data(item) for name, item in value.items())
    if isinstance(value, list):
        return all(map(is_data, value))
    return value is None or isinstance(value, (str, int, float, Decrypted))


def unique(values: list[Any]) -> list[Any]:
    """Return the first of each group of equal values, in order (Ruby's ``uniq``, ``unique(a + b)`` is ``a | b``)."""
    seen: dict[Hashable, Any] = {}
    for value in values:
        seen.setdefault(identity(value), value)
    return list(seen.values())


def sort(values: list[Any]) -> list[Any]:
    """Return ``values`` in Ruby's order. Raises ``LookupFailure`` for values that cannot be compared."""
    if len(values) < 2:
        return values
    return sorted(values, key=cmp_to_key(_compare))


def _compare(left: Any, right: Any) -> int:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in (left, right)):
        return int(left > right) - int(left < right)
    if isinstance(left, str) and isinstance(right, str):
        # Ruby compares the bytes of texts, in any locale.
        return int(left.encode() > right.encode()) - int(left.encode() < right.encode())
    if isinstance(left, list) and isinstance(right, list):
        pairs = (_compare(item, other) for item, other in zip(left, right, strict=False))
        return next(filter(None, pairs), len(left) - len(right))
    if identity(left) == identity(right):
        return 0
    detail = inspect(right) if right is None or isinstance(right, (int, float)) else class_name(right)
    raise LookupFailure(
        "", f"comparison of {class_name(left)} with {detail} failed: only like values can be sorted"
    )


def type_name(value: Any) -> str:
    """Return the name of the Puppet type of ``value``, for Puppet's messages."""
    match value:
        case bool():
            return "Boolean"
        case list():
            return "Tuple" if value else "Array"
        case dict():
            return "Struct" if value and all(isinstance(name, str) and name for name in value) else "Hash"
        case Symbol():
            return "Runtime[ruby, 'Symbol']"
        case Decrypted():
            return "String"
        case Secret():
            return "Sensitive"
    return {str: "String", int: "Integer", float: "Float", type(None): "Undef"}.get(
        type(value), type(value).__name__
    )


# Ruby's regular expressions, translated to Python.
#
# * ``^`` and ``$`` match at every line. ``\A``, ``\z``, ``\Z``, ``\h``, ``(?<name>…)``, ``(?mix)`` and POSIX classes
#   have the same meaning as in Ruby.
# * An expression that Python cannot compile raises ``ExpressionError`` instead of an exception of ``re``.

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
_PATTERN_ESCAPES = {
    r"\A": r"\A",
    r"\z": r"\Z",
    r"\Z": r"(?=\n?\Z)",
    r"\h": "[0-9A-Fa-f]",
    r"\H": "[^0-9A-Fa-f]",
    r"\e": r"\x1b",
}
_LEXEME = (  # compiled on first use
    r"(?s)\\.|\[:(?P<posix>\w+):\]|\(\?<(?P<name>[A-Za-z_]\w*)>|\(\?(?P<flags>[mix]*(?:-[mix]+)?)(?P<end>[:)])|."
)


@lru_cache(maxsize=1024)
def compiled(text: str) -> re.Pattern[str]:
    """Compile ``text``, a Ruby regular expression. Raises ``ExpressionError``."""
    flags = ""
    out: list[str] = []
    try:
        for match in re.finditer(_LEXEME, text):
            if match["end"] == ")":  # Python requires global flags at the very front
                flags += match["flags"]
            else:
                out.append(_translated(match))
        return re.compile((f"(?{_flags(flags)})" if flags else "") + "".join(out), re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ExpressionError("", f"not a regular expression that can be used: /{text}/: {error}") from None


def _translated(match: re.Match[str]) -> str:
    if match["posix"]:
        return _POSIX.get(match["posix"], match[0])
    if match["name"]:
        return f"(?P<{match['name']}>"
    if match["flags"] is not None:
        return f"(?{_flags(match['flags'])}:"
    return _PATTERN_ESCAPES.get(match[0], match[0])


def _flags(text: str) -> str:
    """Return Python's flags. Ruby's ``m``, with which a dot matches a newline, is ``s`` in Python."""
    return text.replace("m", "s")


def printable(value: Any, secret: Callable[[Secret], Any] = str) -> Any:
    """Return ``value`` made of plain Python values. ``secret`` converts a secret, by default to the mask.

    Raises ``LookupFailure`` for numbers that JSON does not support.
    """
    if isinstance(value, dict):
        return {_name(name, secret): printable(item, secret) for name, item in value.items()}
    if isinstance(value, list):
        return [printable(item, secret) for item in value]
    if isinstance(value, Secret):
        return secret(value)
    # As Puppet prints the two symbols that data may contain, undef and default.
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise LookupFailure("", f"the number {inspect(value)} cannot be written")
    return value


def _name(name: Any, secret: Callable[[Secret], Any]) -> Any:
    """Return a key. JSON converts the key 1 to text later, which keeps it apart from "1" here."""
    if isinstance(name, OddKey):
        return printable(name.value, secret) if isinstance(name.value, Secret) else to_s(name)
    return inspect(name) if isinstance(name, float) else name


def with_decrypted(secret: Secret) -> Any:
    """Return a secret as ``puppet lookup`` shows it: decrypted texts in clear, ``Sensitive`` values masked."""
    return printable(secret.reveal(), with_decrypted) if isinstance(secret, Decrypted) else str(secret)


def revealed(secret: Secret) -> Any:
    """Return a secret with all its content in clear."""
    return printable(secret.reveal(), revealed)
