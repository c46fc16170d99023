"""JSON that Puller itself has written, into typed values."""

from typing import TypeVar

import msgspec

_Value = TypeVar("_Value")


def decode(data: bytes, kind: type[_Value]) -> _Value:
    """``msgspec.json.decode``, to which brackets without end are not well-formed, like any other damage.

    Raises ``msgspec.DecodeError``, which is a ``ValueError``.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("is nested too deeply") from None
