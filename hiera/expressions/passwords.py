"""``password_hash``: passwords as ``/etc/shadow`` holds them, by the system's own ``crypt(3)``.

The salt is given, since a new one in every run would change the file in every run.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from typing import Any, Final

from hiera.errors import ExpressionError
from hiera.expressions.texts import as_text

_PREFIXES: Final = {"md5": "$1$", "sha256": "$5$", "sha512": "$6$", "blowfish": "$2b$", "bcrypt": "$2b$"}
_SALT: Final = r"[./0-9A-Za-z]{1,22}"
_LIBRARIES: Final = ("libcrypt.so.1", "libcrypt.so.2")
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
    if salt is None or not re.fullmatch(_SALT, salt):
        wanted = "wants a salt of up to 22 letters, digits, dots and slashes"
        raise ExpressionError(
            "", f"password_hash {wanted}: a new one in every run would change the file each time"
        )
    prefix = f"${ident}$" if ident and hashtype in ("blowfish", "bcrypt") else _PREFIXES[hashtype]
    return _crypt(as_text(password, "password_hash"), f"{prefix}{_cost(hashtype, rounds)}{salt}")


def _cost(hashtype: str, rounds: int | None) -> str:
    most = _MOST_ROUNDS.get(hashtype)
    if rounds is not None and (most is None or not 1 <= rounds <= most):
        wanted = "none: it has no rounds" if most is None else f"1 to {most}"
        raise ExpressionError("", f"rounds of {hashtype} is {rounds}, wanted {wanted}")
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
    # Not CDLL, which would let other threads write over what crypt gives.
    library = next((found for name in _LIBRARIES if (found := _opened(ctypes.PyDLL, name))), None)
    if library is None:
        raise ExpressionError("", "password_hash wants the system's libcrypt, which is not installed")
    library.crypt.restype = ctypes.c_char_p
    library.crypt.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
    return library


def _opened(kind: Callable[[str], Any], name: str) -> Any:
    try:
        return kind(name)
    except OSError:
        return None
