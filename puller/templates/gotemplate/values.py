"""Values of Go that only this engine has, beside those of ``govalue``.

* An object has the fields and methods that it lists, and no others: a template never reaches a Python attribute.
* A nil slice or map is empty like any other, but is ``null`` in JSON and cannot be written to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

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
