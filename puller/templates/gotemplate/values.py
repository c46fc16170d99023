"""Values of Go that only this engine has, beside those of ``govalue``.

* An object has the fields and methods that it lists, and no others: a template never reaches a Python attribute.
* A nil slice or map is empty like any other, but is ``null`` in JSON and cannot be written to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from puller.templates.govalue.strconv import format_float
from puller.templates.govalue.types import GoObject


class Struct(GoObject):
    """A value with fields and methods. Methods are functions that take the value first; their annotations are
    their signature in Go (``signature.py``)."""

    methods: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def fields(self) -> Mapping[str, Any]:
        """The exported fields by name."""
        return {}


class Uint32(int):
    """Go's ``uint32``: only a constant can be one."""

    go_type: ClassVar[str] = "uint32"


class Complex(GoObject):
    """Go's ``complex128``: a template can write one as a constant, and print it."""

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

    def text(self) -> str:
        imaginary = format_float(self.value.imag)
        sign = "" if imaginary[0] in "+-" else "+"
        return f"({format_float(self.value.real)}{sign}{imaginary}i)"
