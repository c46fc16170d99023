"""JSON that Puller itself has written, into typed values."""

from typing import TypeVar

import msgspec

_Value = TypeVar("_Value")


def decode(data: bytes, kind: type[_Value]) -> _Value:
    """``msgspec.json.decode``, to which brackets without end are not well-formed, like any other damage.

    A document of another format, as a later Puller may have written it, is refused by a sentence that says so.
    Raises ``msgspec.DecodeError``, which is a ``ValueError``.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("is nested too deeply") from None
    except msgspec.ValidationError as error:
        if "`$.format`" not in str(error):
            raise
        from puller.version import __version__

        found = msgspec.json.decode(data, type=_Versioned).format
        raise msgspec.DecodeError(f"is of format {found}, which Puller {__version__} does not read") from None


class _Versioned(msgspec.Struct):
    format: object = None
