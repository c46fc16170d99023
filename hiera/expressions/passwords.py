"""``password_hash``: passwords as ``/etc/shadow`` holds them, by the system's own ``crypt(3)``.

The salt is given, since a new one in every run would change the file in every run.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import re
from typing import Any, Final

from hiera.errors import ExpressionError
from hiera.expressions.texts import as_text

_PREFIXES: Final = {"md5": "$1$", "sha256": "$5$", "sha512": "$6$", "blowfish": "$2b$", "bcrypt": "$2b$"}
_SALT: Final = re.compile(r"[./0-9A-Za-z]{1,22}")
_MOST_ROUNDS: Final = {
    "sha256": 1_000_000,
    "sha512": 1_000_000,
    "blowfish": 14,
    "bcrypt": 14,
}  # a second or two


def password_hash(
    password: Any,
    hashtype: str = "sha512",
    salt: str | None = None,
    rounds: int | None = None,
    ident: str | None = None,
) -> str:
    """A password as ``/etc/shadow`` holds it, with the salt that is given: ``password_hash('sha512', data.salt)``.

    ``hashtype`` is ``sha512``, ``sha256``, ``md5`` or ``blowfish``. Raises ExpressionError without a salt.
    """
    hashtype = hashtype.removesuffix("_crypt")
    if hashtype not in _PREFIXES:
        raise ExpressionError("", f"password_hash knows no {hashtype!r}, only {', '.join(_PREFIXES)}")
    if salt is None or not _SALT.fullmatch(salt):
        wanted = "wants a salt of up to 22 letters, digits, dots and slashes"
        raise ExpressionError(
            "", f"password_hash {wanted}: a new one in every run would change the file each time"
        )
    prefix = f"${ident}$" if ident and hashtype in ("blowfish", "bcrypt") else _PREFIXES[hashtype]
    return _crypt(as_text(password, "password_hash"), f"{prefix}{_cost(hashtype, rounds)}{salt}")


def _cost(hashtype: str, rounds: int | None) -> str:
    most = _MOST_ROUNDS.get(hashtype, 0)
    if rounds is not None and not 1 <= rounds <= most:
        raise ExpressionError("", f"rounds is {rounds}, which {hashtype} cannot be here: at most {most}")
    if hashtype in ("blowfish", "bcrypt"):
        return f"{rounds or 12:02}$"
    # Left out where it is what it is anyway: the same text as other programs write.
    return "" if rounds in (None, 5000) else f"rounds={rounds}$"


def _crypt(password: str, setting: str) -> str:
    made = _library().crypt(password.encode(), setting.encode())
    if not made or made.startswith(b"*"):
        raise ExpressionError(
            "", f"password_hash: this system's crypt does not take {setting[:3]} with this salt"
        )
    return str(made.decode())


@functools.cache
def _library() -> Any:
    name = ctypes.util.find_library("crypt") or "libcrypt.so.1"
    try:
        # Not CDLL, which would let other threads write over what crypt gives.
        library = ctypes.PyDLL(name)
    except OSError:
        raise ExpressionError(
            "", "password_hash wants the system's libcrypt, which is not installed"
        ) from None
    library.crypt.restype = ctypes.c_char_p
    library.crypt.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
    return library
