"""Values as texts, like ``String.new(value, format)``, and timestamps and timespans of Puppet.

* Without a format, each type has its default.
* Inside a list or mapping, texts are quoted and null is ``undef``, as in a manifest.
* Timestamps are in UTC. Timestamps and timespans count nanoseconds.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hiera.errors import LookupFailure
from hiera.tree import ruby_values as ruby

MAX_WIDTH = 10_000

_FORMAT = re.compile(r"%([\s\[+#0{<(|-]*)([1-9][0-9]*)?(?:\.([0-9]+))?([a-zA-Z])")
_PAIRS = {"[": "[]", "{": "{}", "(": "()", "<": "<>", "|": "||"}


@dataclass(frozen=True, slots=True)
class Format:
    """``%<flags><width>.<precision><letter>``."""

    letter: str
    flags: str = ""
    width: int | None = None
    precision: int | None = None

    @property
    def alternate(self) -> bool:
        return "#" in self.flags

    def delimiters(self, default: str) -> tuple[str, str]:
        """Return the delimiters of a list or mapping."""
        chosen = next((flag for flag in self.flags if flag in _PAIRS), None)
        if chosen:
            return _PAIRS[chosen][0], _PAIRS[chosen][1]
        return ("", "") if " " in self.flags else (default[0], default[1])

    def fit(self, text: str) -> str:
        """Return ``text`` cut to the precision and padded to the width."""
        text = text if self.precision is None else text[: self.precision]
        width = self.width or 0
        return text.ljust(width) if "-" in self.flags else text.rjust(width)


def parse(text: str) -> Format:
    """Return the format in ``text``. Raises ``LookupFailure``."""
    match = _FORMAT.fullmatch(text)
    if not match:
        raise LookupFailure(
            "", f"The format '{text}' is not a valid format on the form '%<flags><width>.<prec><format>'"
        )
    flags = match[1]
    if len(set(flags)) < len(flags):
        raise LookupFailure("", f"The same flag can only be used once, got '{text}'")
    if sum(flag in _PAIRS for flag in flags) > 1:
        detail = "Only one of the delimiters [ { ( < | can be given in the format flags"
        raise LookupFailure("", f"{detail}, got '{text}'")
    # Larger widths are unreasonable, and could exhaust memory.
    if any(number and len(number) > 4 for number in (match[2], match[3])):
        raise LookupFailure("", f"The format '{text}' requests more than {MAX_WIDTH} characters")
    return Format(match[4], flags, *(int(number) if number else None for number in (match[2], match[3])))


def text(value: Any, format_text: str | None = None) -> str:
    """Return ``value`` as a text. Raises ``LookupFailure`` for a format that does not fit the value's type."""
    return _text(value, parse(format_text) if format_text else None, inside=False)


def element(value: Any) -> str:
    """Return ``value`` in the form inside a list."""
    return _text(value, None, inside=True)


_DEFAULTS: dict[type, Format] = {float: Format("f"), int: Format("d"), list: Format("a"), dict: Format("h")}
_INSIDE = Format("p")


def _text(value: Any, provided: Format | None, *, inside: bool, indent: int = 0) -> str:
    if isinstance(value, (list, dict)):
        return _collection(value, provided or _DEFAULTS[type(value)], indent)
    chosen = _INSIDE if inside else provided or _DEFAULTS.get(type(value), Format("s"))
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value, chosen)
    return chosen.fit(str(value))


def _wrong(kind: str, chosen: Format, allowed: str) -> LookupFailure:
    detail = f"Illegal format '{chosen.letter}' specified for value of {kind} type"
    return LookupFailure("", f"{detail} - expected one of the characters '{allowed}'")


def _boolean(value: bool, chosen: Format) -> str:
    words = {"t": ("true", "false"), "T": ("True", "False"), "y": ("yes", "no"), "Y": ("Yes", "No")}
    letter = chosen.letter
    if letter in words:
        word = words[letter][0 if value else 1]
        return chosen.fit(word[0] if chosen.alternate else word)
    if letter in "sp":
        return chosen.fit("true" if value else "false")
    if letter in "dxXobB":
        return _integer(int(value), chosen)
    if letter in "eEfgGaA":
        return _float(float(value), chosen)
    raise _wrong("Boolean", chosen, "tTyYdxXobBeEfgGaAsp")


def _integer(value: int, chosen: Format) -> str:
    letter = chosen.letter
    if letter in "eEfgGaA":
        return _float(float(value), chosen)
    if letter == "c" and 0 <= value <= 0x10FFFF and not 0xD800 <= value <= 0xDFFF:
        return chosen.fit(f'"{chr(value)}"' if chosen.alternate else chr(value))
    if letter == "s":
        return chosen.fit(f'"{value}"' if chosen.alternate else str(value))
    if letter == "p":
        return chosen.fit(str(value))
    if letter in "dxXobB":
        return _digits(value, chosen)
    raise _wrong("Integer", chosen, "dxXobBeEfgGaAspc")


def _digits(value: int, chosen: Format) -> str:
    letter = chosen.letter
    if value < 0 and letter != "d" and not any(flag in chosen.flags for flag in "+ "):
        digits, prefix = _complement(value, letter), ""
    else:
        digits = format(abs(value), letter.lower().replace("X", "x"))
        digits = digits.upper() if letter == "X" else digits
        prefix = "-" if value < 0 else "+" if "+" in chosen.flags else " " if " " in chosen.flags else ""
    if chosen.alternate and letter != "d" and value:
        prefix += {"x": "0x", "X": "0X", "o": "0", "b": "0b", "B": "0B"}[letter]
    digits = digits.rjust(chosen.precision or 0, "0")
    columns = (chosen.width or 0) - len(prefix)
    if "0" in chosen.flags and "-" not in chosen.flags and chosen.precision is None:
        return prefix + digits.rjust(columns, "0")
    whole = prefix + digits
    return whole.ljust(chosen.width or 0) if "-" in chosen.flags else whole.rjust(chosen.width or 0)


def _complement(value: int, letter: str) -> str:
    """Return a negative number in complement: Ruby writes two dots for its endless sign digits."""
    base, sign = {"x": (16, "f"), "X": (16, "F"), "o": (8, "7"), "b": (2, "1"), "B": (2, "1")}[letter]
    count = 1
    while base**count < -value * 2:
        count += 1
    digits = format(base**count + value, {16: "x", 8: "o", 2: "b"}[base])
    digits = digits.upper() if letter == "X" else digits
    return ".." + sign + digits.lstrip(sign)


def _float(value: float, chosen: Format) -> str:
    letter = chosen.letter
    if letter in "sp":
        written = ruby.inspect(value)
        return chosen.fit(f'"{written}"' if chosen.alternate and letter == "s" else written)
    if value != value or value in (float("inf"), float("-inf")):
        return chosen.fit({"inf": "Inf", "-inf": "-Inf"}.get(str(value), "NaN"))
    if letter in "dxXobB":
        return _digits(int(value), chosen)
    if letter in "aA":
        return chosen.fit(_hexadecimal(value, letter))
    if letter in "eEfgG":
        flags = "".join(flag for flag in chosen.flags if flag in "-+ 0#")
        precision = "" if chosen.precision is None else f".{chosen.precision}"
        return f"%{flags}{chosen.width or ''}{precision}{letter}" % value
    raise _wrong("Float", chosen, "dxXobBeEfgGaAsp")


def _hexadecimal(value: float, letter: str) -> str:
    mantissa, _, exponent = value.hex().partition("p")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    written = f"{mantissa}p{exponent}"
    return written.upper() if letter == "A" else written


def _undef(_: None, chosen: Format) -> str:
    letter = chosen.letter
    words = {"n": ("nil", "null"), "u": ("undef", "undefined"), "s": ("", '""'), "p": ("undef", '"undef"')}
    if letter in words:
        return chosen.fit(words[letter][1 if chosen.alternate else 0])
    if letter in "vV":
        return chosen.fit("n/a" if letter == "v" else "N/A")
    if letter in "dxXobBeEfgGaA":
        return chosen.fit("NaN")
    raise _wrong("Undef", chosen, "nudxXobBeEfgGaAvVsp")


def _string(value: str, chosen: Format) -> str:
    changes: dict[str, Callable[[str], str]] = {
        "c": str.capitalize,
        "C": lambda name: "::".join(part.capitalize() for part in name.split("::")),
        "u": str.upper,
        "d": str.lower,
        "t": lambda name: name.strip("\0\t\n\v\f\r "),
    }
    if chosen.letter == "s":
        return chosen.fit(value)
    if chosen.letter == "p":
        return chosen.fit(quoted(value, double=chosen.alternate))
    if chosen.letter not in changes:
        raise _wrong("String", chosen, "cCudspt")
    changed = changes[chosen.letter](value)
    return chosen.fit(quoted(changed) if chosen.alternate else changed)


def _symbol(value: ruby.Symbol, chosen: Format) -> str:
    return _string(value.name, chosen) if chosen.letter != "p" else value.name


_WRITERS: tuple[tuple[type, Callable[[Any, Format], str]], ...] = (
    (bool, _boolean),
    (int, _integer),
    (float, _float),
    (str, _string),
    (type(None), _undef),
    (ruby.Symbol, _symbol),
)

_DOUBLE = {"\t": r"\t", "\n": r"\n", "\r": r"\r", '"': r"\"", "$": r"\$", "\\": r"\\"}


def quoted(value: str, *, double: bool = False) -> str:
    """Return ``value`` quoted as in a manifest: in single quotes, unless it has control characters."""
    if double or any(char < " " for char in value):
        escaped = (_DOUBLE.get(char) or (f"\\u{{{ord(char):X}}}" if char < " " else char) for char in value)
        return f'"{"".join(escaped)}"'
    # Escape a backslash only where it would escape a quote.
    return (
        "'" + re.sub(r"\\(?=$)|'", lambda result: "\\" + result[0] if result[0] == "'" else "\\", value) + "'"
    )


def _collection(value: Any, chosen: Format, indent: int) -> str:
    if isinstance(value, dict) and chosen.letter in "hsp":
        return _hash(value, chosen, indent)
    if isinstance(value, dict) and chosen.letter == "a":
        value = [list(pair) for pair in value.items()]
    if chosen.letter not in "asp":
        kind, allowed = ("Hash", "hasp") if isinstance(value, dict) else ("Array", "asp")
        raise _wrong(kind, chosen, allowed)
    return _list(value, chosen, indent)


def _list(values: list[Any], chosen: Format, indent: int) -> str:
    left, right = chosen.delimiters("[]")
    out = left
    for position, item in enumerate(values):
        nested = isinstance(item, (list, dict))
        written = _element(item, chosen, indent + 1)
        if position:
            broken = chosen.alternate and (nested or isinstance(values[position - 1], (list, dict)))
            out += ",\n" + "  " * (indent + 1) if broken else ", "
        out += written
    return out + right


def _hash(value: dict[Any, Any], chosen: Format, indent: int) -> str:
    left, right = chosen.delimiters("{}")
    inner = "\n" + "  " * (indent + 1) if chosen.alternate else ""
    pairs = (
        f"{inner}{_element(name, chosen, indent + 1)} => {_element(item, chosen, indent + 1)}"
        for name, item in value.items()
    )
    joined = ("," if chosen.alternate else ", ").join(pairs)
    return left + joined + ("\n" + "  " * indent if chosen.alternate else "") + right


def _element(value: Any, chosen: Format, indent: int) -> str:
    """Return an element. A nested collection has the format ``p``, with the outer flags in the alternate form."""
    if isinstance(value, (list, dict)):
        return _text(value, Format("p", chosen.flags if chosen.alternate else ""), inside=True, indent=indent)
    return _text(value, None, inside=True)


# Timestamps and timespans.

_NANOSECONDS = 1_000_000_000
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?)?\s*(Z|UTC|GMT|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_TIMESPAN = re.compile(
    r"(?:(\d{1,9})-(?=.*:))?(?:(?:(\d{1,9}):)?([0-5]?\d):)?(\d{1,18})(?:\.(\d{1,9}))?", re.ASCII
)


def timestamp(given: Any, formats: Any = None) -> str:
    """Return a point in time, from seconds since 1970 or a text. Raises ``LookupFailure``."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return _printed(_since_1970(given))
    if not isinstance(given, str) or not given:
        raise LookupFailure("", f"a Timestamp is made of a number or a text, not of {given!r}")
    if formats is not None:
        return _printed(_by_formats(given, formats if isinstance(formats, list) else [formats]))
    match = _TIMESTAMP.fullmatch(given)
    if not match:
        raise _unreadable(given, "%FT%T.%N %Z, %FT%T %Z, %F %T.%N %Z, %F %T %Z, %F %Z and these without zone")
    # A date without a time is its midnight.
    numbers = [int(number or 0) for number in match.groups()[:6]]
    try:
        moment = datetime(*numbers, tzinfo=_zone(match[8]))  # type: ignore[misc, arg-type]  # six numbers, checked above
        return _printed((moment.astimezone(UTC), int((match[7] or "").ljust(9, "0"))))
    except (ValueError, OverflowError):
        raise LookupFailure("", f"invalid time '{given}'") from None


def _zone(name: str | None) -> timezone:
    if not name or name in ("Z", "UTC", "GMT"):
        return UTC
    minutes = int(name[1:3]) * 60 + int(name[-2:])
    return timezone(timedelta(minutes=-minutes if name[0] == "-" else minutes))


def _since_1970(seconds: float) -> tuple[datetime, int]:
    whole, remainder = divmod(int(seconds * _NANOSECONDS), _NANOSECONDS)
    try:
        return datetime.fromtimestamp(whole, UTC), remainder
    except (ValueError, OverflowError, OSError):
        raise LookupFailure("", f"{seconds} seconds since 1970 is out of range") from None


def _by_formats(provided: str, formats: list[Any]) -> tuple[datetime, int]:
    for template in formats:
        template = str(template).replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S").replace("%N", "%f")
        try:
            moment = datetime.strptime(provided, template)
        except (ValueError, re.error):
            continue
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC), moment.microsecond * 1000
    raise _unreadable(provided, ", ".join(map(str, formats)))


def _printed(moment: tuple[datetime, int]) -> str:
    when, nanoseconds = moment
    return f"{when:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d} UTC"


def timespan(*provided: Any) -> str:
    """Return a span of time, from seconds, a text, fields, or a mapping of fields. Raises ``LookupFailure``."""
    first = provided[0]
    if isinstance(first, dict) and "string" not in first:
        return _span(first, bool(first.get("negative")))
    text = first["string"] if isinstance(first, dict) else first
    if isinstance(text, str):
        return _span(_fields_of(text), False)
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in provided):
        raise LookupFailure("", "a Timespan is made of numbers, a text or a mapping")
    if len(provided) == 1:
        total = int(text * _NANOSECONDS)
        return _span({"nanoseconds": abs(total)}, total < 0)
    return _span(dict(zip(_FIELDS, map(int, provided), strict=False)), False)


_FIELDS = {
    "days": 86400 * _NANOSECONDS,
    "hours": 3600 * _NANOSECONDS,
    "minutes": 60 * _NANOSECONDS,
    "seconds": _NANOSECONDS,
    "milliseconds": 1_000_000,
    "microseconds": 1000,
    "nanoseconds": 1,
}


def _fields_of(text: str) -> dict[str, int]:
    match = _TIMESPAN.fullmatch(text)
    if not match:
        raise _unreadable(text, "%D-%H:%M:%S.%-N, %H:%M:%S.%-N, %M:%S.%-N, %S.%-N, %D-%H:%M:%S, %H:%M:%S, %S")
    days, hours, minutes, seconds, fraction = match.groups()
    if minutes and not hours and fraction is None:
        raise _unreadable(text, "%M:%S.%-N (minutes and seconds alone need a fraction)")
    names = ("days", "hours", "minutes", "seconds")
    fields = {name: int(part or 0) for name, part in zip(names, (days, hours, minutes, seconds), strict=True)}
    return {**fields, "nanoseconds": int((fraction or "").ljust(9, "0"))}


def _span(fields: dict[str, Any], negative: bool) -> str:
    if not all(isinstance(fields.get(name, 0), int) for name in _FIELDS):
        raise LookupFailure("", "the fields of a Timespan are integers")
    total = sum(fields.get(name, 0) * size for name, size in _FIELDS.items())
    seconds, fraction = divmod(abs(total), _NANOSECONDS)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" if negative != (total < 0) else ""
    digits = f"{fraction:09d}".rstrip("0") or "0"
    return f"{sign}{days}-{hours:02d}:{minutes:02d}:{seconds:02d}.{digits}"


def _unreadable(provided: str, formats: str) -> LookupFailure:
    return LookupFailure("", f"Unable to parse '{provided}' using any of the formats {formats}")
