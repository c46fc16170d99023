"""Byte order marks, and text in encodings that Puller does not read.

* A UTF-8 byte order mark is not part of a text. Text that is edited or rendered keeps it at the start.
* Text in UTF-16 or UTF-32 is never edited or rendered: additions by Puller would be in another encoding.
"""

import codecs

MARK = "\ufeff"
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
IS_WIDE = "is text in UTF-16 or UTF-32, expected UTF-8"


def is_wide(data: bytes) -> bool:
    """Return whether data begins as text in UTF-16 or UTF-32 does, with or without a byte order mark."""
    # The first character of a configuration is an ASCII character, which has a NUL beside it in these encodings.
    return data.startswith(_WIDE_MARKS) or b"\0" in data[:2]


def holds_wide(text: str, data: bytes) -> bool:
    """Return whether data begins as text in UTF-16 or UTF-32 does, and contains ``text``."""
    return is_wide(data) and any(text.encode(encoding) in data for encoding in _WIDE)
