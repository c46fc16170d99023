"""Go's ``fmt``: ``%v`` and the rest of ``Sprintf``.

* ``format_value`` is ``%v``, the format of nested values in both engines.
* Maps print in key order, so the same value always gives the same text.
* As in Go, a wrong verb, a missing or an extra operand appears in the text, as ``%!d(string=hi)``. It raises no error.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from puller.templates.govalue.strconv import (
    Complex,
    can_backquote,
    format_float,
    format_int,
    quote,
    quote_rune,
)
from puller.templates.govalue.types import (
    MISSING,
    GoObject,
    NilMap,
    NilSlice,
    Uint8,
    byte_slice,
    ensure_small,
    from_bytes,
    map_keys,
    to_bytes,
    type_name,
)

_MAX_WIDTH: Final = 1_000_000
_BASES: Final = {"d": 10, "v": 10, "b": 2, "o": 8, "O": 8, "x": 16, "X": 16}
_DEFAULT_PRECISION: Final = {"b": -1, "g": -1, "G": -1, "x": -1, "X": -1, "e": 6, "E": 6, "f": 6}
_EXPONENT: Final = (re.compile("[eE]"), re.compile("[pP]"))
_MARKS: Final = {"b": "0b", "x": "0x", "X": "0X"}


def format_value(value: Any) -> str:
    """Return the value as Go prints it with ``%v``: ``[1 2]``, ``map[a:1 b:2]``, ``<nil>``, ``1e+06``.

    Raises ValueError for a value that is too large to print (:func:`ensure_small`).
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    ensure_small(value)
    return _print_value(_PLAIN, value, 0)


def sprint(*values: Any) -> str:
    """Return Go's ``Sprint``: a space between two operands if neither is a string."""
    pieces: list[str] = []
    after_text = True
    for value in values:
        is_text = isinstance(value, str)
        if not is_text and not after_text:
            pieces.append(" ")
        pieces.append(format_value(value))
        after_text = is_text
    return "".join(pieces)


def sprintln(*values: Any) -> str:
    """Return Go's ``Sprintln``: a space between all operands, and a newline."""
    return " ".join(format_value(value) for value in values) + "\n"


def sprintf(template: str, *values: Any) -> str:
    """Return the text of Go's ``Sprintf``. Errors of the format appear in the text.

    Raises ValueError for an operand that is too large to print (:func:`ensure_small`).
    """
    # Check unused operands too, since extra operands are printed.
    for value in values:
        if isinstance(value, (dict, list, tuple)):
            ensure_small(value)
    plan = _plan(template) if len(template) <= _LONGEST_PLANNED else None
    if plan is None or sum(type(part) is _Spec for part in plan) != len(values):
        return _Printer(template, values).run()
    remainder = iter(values)
    return "".join(
        [part if isinstance(part, str) else _print_operand(part, next(remainder)) for part in plan]
    )


class _Spec(NamedTuple):
    """A verb with its flags. ``go_syntax`` is ``%#v``."""

    verb: str
    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int | None = None
    precision: int | None = None
    go_syntax: bool = False

    def pad(self, text: str, *, zeros: bool = True) -> str:
        if self.width is None:
            return text
        if self.minus:
            return text.ljust(self.width)
        return text.rjust(self.width, "0" if zeros and self.zero else " ")


_PLAIN: Final = _Spec("v")


@functools.lru_cache(maxsize=128)
def _plan(template: str) -> tuple[str | _Spec, ...] | None:
    """Return alternating texts and verbs of a usual format, or ``None`` if it selects operands by number or star."""
    pieces: list[str | _Spec] = []
    end = 0
    for match in _USUAL.finditer(template):
        if "%" in template[end : match.start()]:
            return None
        pieces.append(template[end : match.start()])
        end = match.end()
        pieces.append("%" if match["verb"] == "%" else _spec_of(match))
    return None if "%" in template[end:] else (*pieces, template[end:])


_USUAL: Final = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<width>\d{0,6})(?:\.(?P<precision>\d{0,6}))?(?P<verb>[a-zA-Z%])", re.A
)
_LONGEST_PLANNED: Final = 256


def _spec_of(match: re.Match[str]) -> _Spec:
    """Return the spec of a verb, with the same result as ``_Printer``."""
    flags, verb = match["flags"], match["verb"]
    is_value = verb == "v"
    return _Spec(
        verb,
        minus="-" in flags,
        plus="+" in flags and not is_value,
        sharp="#" in flags and not is_value,
        space=" " in flags,
        zero="0" in flags and "-" not in flags,
        width=int(match["width"]) if match["width"] else None,
        precision=None if match["precision"] is None else int(match["precision"] or 0),
        go_syntax="#" in flags and is_value,
    )


class _Printer:
    """A run over a format, with its position in the text and in the operands."""

    def __init__(self, template: str, values: Sequence[Any]) -> None:
        self.template = template
        self.values = values
        self.position = 0
        self.operand = 0
        self.good_index = True
        self.reordered = False

    def run(self) -> str:
        pieces: list[str] = []
        end = len(self.template)
        while self.position < end:
            percent = self.template.find("%", self.position)
            if percent < 0:
                pieces.append(self.template[self.position :])
                break
            pieces.append(self.template[self.position : percent])
            self.position = percent + 1
            pieces.append(self._directive())
        return "".join(pieces) + self._extra()

    def _extra(self) -> str:
        if self.reordered or self.operand >= len(self.values):
            return ""
        remainder = (self._describe(value) for value in self.values[self.operand :])
        return f"%!(EXTRA {', '.join(remainder)})"

    @staticmethod
    def _describe(value: Any) -> str:
        if value is None or value is MISSING:
            return "<nil>"
        return f"{type_name(value)}={format_value(value)}"

    def _directive(self) -> str:
        """Return the output of a verb, after its ``%``. Go's documentation of ``fmt``:

        1. Flags: ``+``, ``-``, ``#``, space and ``0``.
        2. ``[n]`` before a ``*`` or the verb: the number of its operand.
        3. A width, and after a point a precision: digits, or ``*`` for an operand.
        4. The verb. A minus pads on the right with spaces, since zeros would change the number.
        """
        self.good_index = True
        flags = self._flags()  # 1.
        indexed = self._index()  # 2.
        complaints, width, minus = self._width(indexed)  # 3.
        additional, precision = self._precision(indexed)
        complaints += additional
        self._index()  # 2.
        if self.position >= len(self.template):
            return complaints + "%!(NOVERB)"
        verb = self.template[self.position]  # 4.
        self.position += 1
        minus = minus or "-" in flags
        spec = _Spec(
            verb,
            minus=minus,
            plus="+" in flags,
            sharp="#" in flags,
            space=" " in flags,
            zero="0" in flags and not minus,
            width=width,
            precision=precision,
        )
        return complaints + self._apply(spec)

    def _apply(self, spec: _Spec) -> str:
        if spec.verb == "%":
            return "%"
        if not self.good_index:
            return f"%!{spec.verb}(BADINDEX)"
        if self.operand >= len(self.values):
            return f"%!{spec.verb}(MISSING)"
        value = self.values[self.operand]
        self.operand += 1
        # ``%+v`` prints no sign in Go: it names the fields of structs, which are unsupported here.
        if spec.verb == "v":
            spec = spec._replace(go_syntax=spec.sharp, sharp=False, plus=False)
        return _print_operand(spec, value)

    def _flags(self) -> str:
        start = self.position
        while self.position < len(self.template) and self.template[self.position] in "+-# 0":
            self.position += 1
        return self.template[start : self.position]

    def _number(self) -> int | None:
        start = self.position
        while self.position < len(self.template) and self.template[self.position] in "0123456789":
            self.position += 1
        digits = self.template[start : self.position]
        if len(digits) > 7 or int(digits or 0) > _MAX_WIDTH:
            self.position = len(self.template)  # Go gives up on the whole format here
            return None
        return int(digits) if digits else None

    def _index(self) -> bool:
        """Read an operand number such as ``[3]``. Return whether the format contains one here."""
        if self.template[self.position : self.position + 1] != "[":
            return False
        self.reordered = True
        close = self.template.find("]", self.position)
        if close < 0:
            self.good_index = False
            self.position += 1
            return True
        digits = self.template[self.position + 1 : close]
        self.position = close + 1
        self.good_index = digits.isdecimal() and len(digits) < 8 and 1 <= int(digits) <= len(self.values)
        if self.good_index:
            self.operand = int(digits) - 1
        return True

    def _starred(self) -> int | None:
        """Return the operand of ``*`` as a width or precision, or ``None`` if it is invalid."""
        self.position += 1
        if self.operand >= len(self.values):
            return None
        value = self.values[self.operand]
        self.operand += 1
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_WIDTH:
            return None
        return int(value)

    def _width(self, indexed: bool) -> tuple[str, int | None, bool]:
        """Return the complaint about the width, the width, and whether it included a minus."""
        if self.template[self.position : self.position + 1] != "*":
            width = self._number()
            if indexed and width is not None:  # "%[3]2d": the index belongs after the width
                self.good_index = False
            return "", width, False
        width = self._starred()
        if width is None:
            return "%!(BADWIDTH)", None, False
        return "", abs(width), width < 0

    def _precision(self, indexed: bool) -> tuple[str, int | None]:
        if self.template[self.position : self.position + 1] != ".":
            return "", None
        if indexed and self.template[self.position - 1] == "]":
            self.good_index = False
        self.position += 1
        self._index()
        if self.template[self.position : self.position + 1] != "*":
            return "", self._number() or 0
        precision = self._starred()
        if precision is None or precision < 0:
            return "%!(BADPREC)", None
        return "", precision


# A value and a verb -------------------------------------------------------------------------------------


def _print_operand(spec: _Spec, value: Any) -> str:
    if value is None or value is MISSING:
        return spec.pad("<nil>") if spec.verb in "vT" else f"%!{spec.verb}(<nil>)"
    if spec.verb == "T":
        return _format_text(spec._replace(verb="s"), type_name(value))
    if spec.verb == "p" and isinstance(value, (dict, list, tuple, bytes)):
        raise ValueError("%p is an address, which would be another one in each run")
    return _print_value(spec, value, 0)


def _print_value(spec: _Spec, value: Any, depth: int) -> str:
    if value is None or value is MISSING:
        return "interface {}(nil)" if spec.go_syntax and depth else "<nil>"
    if isinstance(value, str):
        return _format_text(spec, value)
    if isinstance(value, bool):
        return spec.pad("true" if value else "false") if spec.verb in "tv" else _bad_verb(spec, value)
    if isinstance(value, int):
        return _format_integer(spec, value)
    if spec.verb == "w":
        return _bad_verb(spec, value)
    if isinstance(value, float):
        return _format_number(spec, value)
    if isinstance(value, (NilMap, NilSlice)) and spec.go_syntax:
        return f"{type_name(value)}(nil)"
    if isinstance(value, dict):
        return _format_map(spec, value, depth)
    if isinstance(value, (list, tuple)):
        return _format_list(spec, value, depth)
    if isinstance(value, bytes):
        return _format_bytes(spec, value)
    return _format_object(spec, value)


def _bad_verb(spec: _Spec, value: Any) -> str:
    text = _print_value(spec._replace(verb="v", go_syntax=False), value, 0)
    return f"%!{spec.verb}({type_name(value)}={text})"


def _format_object(spec: _Spec, value: Any) -> str:
    if isinstance(value, Complex):
        return _format_complex(spec, value)
    if isinstance(value, GoObject):
        if spec.verb in "vsqxX":
            return _format_text(spec._replace(go_syntax=False), value.text())
        number = value.as_integer()
        if number is None:
            return _bad_verb(spec, value)
        is_bad = spec.verb not in _BASES and spec.verb not in "cU"
        return f"%!{spec.verb}({type_name(value)}={number})" if is_bad else _format_integer(spec, number)
    return _format_text(spec._replace(go_syntax=False), str(value))  # for example a date


def _format_list(spec: _Spec, value: Sequence[Any], depth: int) -> str:
    items = [_print_value(spec, item, depth + 1) for item in value]
    if spec.go_syntax:
        return f"{type_name(value)}{{{', '.join(items)}}}"
    return f"[{' '.join(items)}]"


def _format_map(spec: _Spec, value: dict[Any, Any], depth: int) -> str:
    items = [
        f"{_print_value(spec, key, depth + 1)}:{_print_value(spec, value[key], depth + 1)}"
        for key in map_keys(value)
    ]
    if spec.go_syntax:
        return f"{type_name(value)}{{{', '.join(items)}}}"
    return f"map[{' '.join(items)}]"


def _format_bytes(spec: _Spec, value: bytes) -> str:
    if spec.go_syntax:
        return f"[]byte{{{', '.join(f'{b:#x}' for b in value)}}}"
    if spec.verb in "sqxX":
        return _format_text(spec, from_bytes(value))
    return _format_list(spec, [Uint8(b) for b in value], 0)


def _format_text(spec: _Spec, text: str) -> str:
    # A precision cuts characters of text, and bytes of hexadecimal.
    if spec.verb in "xX":
        return spec.pad(_hex(spec, text))
    if spec.verb not in "vsq":
        return _bad_verb(spec, text)
    if spec.precision is not None:
        text = text[: spec.precision]
    return spec.pad(_quoted(spec, text) if spec.verb == "q" or spec.go_syntax else text)


def _quoted(spec: _Spec, text: str) -> str:
    if spec.sharp and can_backquote(text):
        return f"`{text}`"
    return quote(text, ascii_only=spec.plus)


def _hex(spec: _Spec, text: str) -> str:
    if spec.precision is not None:
        text = byte_slice(text, 0, spec.precision)
    data = to_bytes(text)
    mark = f"0{spec.verb}" if spec.sharp and data else ""
    separator = " " + mark if spec.space else ""
    pairs = separator.join(f"{b:02x}" for b in data)
    return mark + (pairs if spec.verb == "x" else pairs.upper())


def _format_integer(spec: _Spec, value: int) -> str:
    verb = spec.verb
    if verb in _BASES:
        if spec.go_syntax and isinstance(value, Uint8):
            return f"{int(value):#x}"
        return _format_digits(spec, int(value), _BASES[verb])
    if verb in "cqU":
        return _format_rune(spec, int(value))
    return _bad_verb(spec, value)


def _format_digits(spec: _Spec, value: int, base: int) -> str:
    sign = "-" if value < 0 else "+" if spec.plus else " " if spec.space else ""
    # As in Go and C, zero with a precision of 0 prints no digits.
    if spec.precision == 0 and value == 0:
        return spec.pad("", zeros=False)
    digits = format_int(abs(value), base)
    if spec.verb == "X":
        digits = digits.upper()
    if spec.precision is not None:
        digits = digits.rjust(spec.precision, "0")
    elif spec.zero and spec.width is not None:
        digits = digits.rjust(spec.width - len(sign), "0")
    if spec.sharp and base == 8:
        digits = digits if digits.startswith("0") else "0" + digits
    elif spec.sharp:
        digits = _MARKS.get(spec.verb, "") + digits
    if spec.verb == "O":
        digits = "0o" + digits
    return spec.pad(sign + digits, zeros=False)


def _format_rune(spec: _Spec, code: int) -> str:
    if spec.verb == "q":
        return spec.pad(quote_rune(code, ascii_only=spec.plus))
    valid = 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
    character = chr(code) if valid else "\ufffd"
    if spec.verb == "c":
        return spec.pad(character)
    text = f"U+{code % 2**64:0{max(spec.precision or 0, 4)}X}"
    if spec.sharp and valid and character.isprintable():
        text += f" '{character}'"
    return spec.pad(text, zeros=False)


def _format_number(spec: _Spec, value: float) -> str:
    verb = {"v": "g", "F": "f"}.get(spec.verb, spec.verb)
    if verb not in _DEFAULT_PRECISION:
        return _bad_verb(spec, value)
    precision = _DEFAULT_PRECISION[verb] if spec.precision is None else spec.precision
    text = format_float(value, verb, precision)
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("+", text)
    if sign == "+":
        sign = "+" if spec.plus else " " if spec.space else ""
    if digits in ("Inf", "NaN"):
        # Go signs a positive infinity without the sign flag, and never pads it with zeros.
        is_bare_infinity = digits == "Inf" and not sign
        return spec.pad(("+" if is_bare_infinity else sign) + digits, zeros=False)
    if spec.sharp and verb != "b":
        digits = _with_decimal_point(digits, verb, precision)
    if spec.zero and spec.width is not None and sign:
        digits = digits.rjust(spec.width - len(sign), "0")
    return spec.pad(sign + digits)


def _with_decimal_point(text: str, verb: str, precision: int) -> str:
    """Keep the decimal point and the zeros up to the precision, for ``%#g``."""
    match = _EXPONENT[verb in "xX"].search(text)
    mantissa, power = (text[: match.start()], text[match.start() :]) if match else (text, "")
    missing = 0
    if verb in "gGx":
        missing = (6 if precision < 0 else precision) - len(mantissa.replace(".", "").lstrip("0"))
    if "." not in mantissa:
        missing -= mantissa == "0"  # a leading zero counts once
        mantissa += "."
    return f"{mantissa}{'0' * max(missing, 0)}{power}"


def _format_complex(spec: _Spec, value: Complex) -> str:
    if spec.verb not in _DEFAULT_PRECISION and spec.verb not in "vF":
        return _bad_verb(spec, value)
    imaginary = _format_number(spec._replace(plus=True), value.value.imag)
    return f"({_format_number(spec, value.value.real)}{imaginary}i)"
