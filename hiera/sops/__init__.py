"""Files encrypted by SOPS (https://getsops.io), with recipients of age, and how they are recognized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from foundation.problems import KeyPath

MARK: Final = "ENC[AES256_GCM,"
"""The begin of each encrypted value."""


def is_sealed(text: str) -> bool:
    """Return whether a text may be an encrypted file. The MAC of each such file is encrypted."""
    return MARK in text


def find_ciphertext(value: Any, path: KeyPath = ()) -> KeyPath | None:
    """Return the path of the first encrypted value in a loaded file, also of a truncated one. ``None`` without one."""
    if isinstance(value, str):
        return path if value.startswith(MARK) else None
    entries = value.items() if isinstance(value, Mapping) else enumerate(value) if type(value) is list else ()
    for key, item in entries:
        if (place := find_ciphertext(item, (*path, key))) is not None:
            return place
    return None
