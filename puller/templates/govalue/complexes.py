"""Go's ``complex128``."""

from __future__ import annotations

from typing import Any, ClassVar

from puller.templates.govalue.strconv import format_float
from puller.templates.govalue.types import GoObject


class Complex(GoObject):
    """A number that a template can write as a constant, and print."""

    go_type: ClassVar[str] = "complex128"
    go_kind: ClassVar[str] = "complex128"

    def __init__(self, value: complex) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return self.value != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Complex) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def json_value(self) -> Any:
        """Raises ValueError: JSON has no complex numbers."""
        raise ValueError(f"json: unsupported type: {self.go_type}")

    def text(self) -> str:
        """As ``(1.5+2i)``."""
        imaginary = format_float(self.value.imag)
        sign = "" if imaginary[0] in "+-" else "+"
        return f"({format_float(self.value.real)}{sign}{imaginary}i)"
