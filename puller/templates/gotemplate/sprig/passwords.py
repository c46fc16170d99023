"""Passwords (hashes, encryption, and passwords derived from a master password), and random text and numbers.

``bcrypt``, ``htpasswd``, ``encryptAES`` and all random functions have a random part, so a file with them changes every
time.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import hashlib
import hmac
import os
import secrets
import string
import uuid
from collections.abc import Callable
from typing import Any, Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from puller.templates.gotemplate.function_calls import Rendering, Uint32
from puller.templates.govalue.types import from_bytes, to_bytes
from puller.templates.template_errors import FunctionError

_BLOCK: Final = 16
_KEY_SIZE: Final = 32
_BCRYPT_COST: Final = 10
_BCRYPT_MAX: Final = 72
_BCRYPT_ALPHABET: Final = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_BASE64_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_LIBCRYPT: Final = ("libcrypt.so.1", "libcrypt.so.2", "libc.so")  # glibc's neighbours, Fedora's, musl's


# Hashes --------------------------------------------------------------------------------------------------------------


def _bcrypt(password: str) -> str:
    """``bcrypt``: the hash of a password, or a message if the password is too long."""
    if len(to_bytes(password)) > _BCRYPT_MAX:
        return f"failed to encrypt string with bcrypt: bcrypt: password length exceeds {_BCRYPT_MAX} bytes"
    salt = (
        base64.b64encode(os.urandom(16))
        .rstrip(b"=")
        .translate(bytes.maketrans(_BASE64_ALPHABET, _BCRYPT_ALPHABET))
    )
    return _crypt(password, f"$2a${_BCRYPT_COST:02d}${salt.decode()}")


def _crypt(password: str, setting: str) -> str:
    """Return the hash from the C library's ``crypt``, which every system with passwords has."""
    if "\0" in password:
        raise FunctionError("a password with a NUL byte cannot be hashed")
    crypt = _find_crypt()
    crypt.restype = ctypes.c_char_p
    crypt.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    hashed: bytes | None = crypt(to_bytes(password), setting.encode())
    if not hashed or not hashed.startswith(setting[:7].encode()):
        raise FunctionError("the system's crypt does not know bcrypt")
    return hashed.decode()


def _find_crypt() -> Any:
    for name in _LIBCRYPT:
        try:
            # PyDLL keeps Python's lock: crypt() returns a static buffer.
            return ctypes.PyDLL(name).crypt
        except (OSError, AttributeError):
            continue
    raise FunctionError(f"bcrypt needs the library libcrypt: none of {', '.join(_LIBCRYPT)} is installed")


def _htpasswd(user: str, password: str) -> str:
    """``htpasswd``: a line for Apache's password file, or a message if the name contains a colon."""
    return f"invalid username: {user}" if ":" in user else f"{user}:{_bcrypt(password)}"


# Encryption ----------------------------------------------------------------------------------------------------------


def _key(password: str) -> bytes:
    return to_bytes(password)[:_KEY_SIZE].ljust(_KEY_SIZE, b"\0")


def _encrypt_aes(password: str, text: str) -> str:
    """``encryptAES``: AES-256 in CBC mode. The result is the initial vector and the padded text, in base64."""
    if not text:
        return ""
    data = to_bytes(text)
    padding = _BLOCK - len(data) % _BLOCK
    vector = os.urandom(_BLOCK)
    encryptor = Cipher(algorithms.AES(_key(password)), modes.CBC(vector)).encryptor()
    encrypted = encryptor.update(data + bytes([padding]) * padding) + encryptor.finalize()
    return base64.b64encode(vector + encrypted).decode()


def _decrypt_aes(password: str, text: str) -> str:
    """``decryptAES``: decrypts a text of ``encryptAES``. Raises FunctionError for other text."""
    if not text:
        return ""
    try:
        data = base64.b64decode(to_bytes(text), validate=True)
    except binascii.Error as error:
        raise FunctionError(f"the encrypted text is not base64: {error}") from None
    vector, encrypted = data[:_BLOCK], data[_BLOCK:]
    if len(vector) < _BLOCK or not encrypted or len(encrypted) % _BLOCK:
        raise FunctionError(f"the encrypted text has {len(data)} bytes, expected blocks of {_BLOCK}")
    decryptor = Cipher(algorithms.AES(_key(password)), modes.CBC(vector)).decryptor()
    decrypted = decryptor.update(encrypted) + decryptor.finalize()
    if not 1 <= decrypted[-1] <= _BLOCK:
        raise FunctionError("the text does not decrypt: another password, or damaged")
    return from_bytes(decrypted[: -decrypted[-1]])


# Derived passwords ---------------------------------------------------------------------------------------------------

_NAMESPACE: Final = b"com.lyndir.masterpassword"
_TEMPLATES: Final = {
    "maximum": "anoxxxxxxxxxxxxxxxxx axxxxxxxxxxxxxxxxxno",
    "long": "CvcvnoCvcvCvcv CvcvCvcvnoCvcv CvcvCvcvCvcvno CvccnoCvcvCvcv CvccCvcvnoCvcv CvccCvcvCvcvno CvcvnoCvccCvcv "
    "CvcvCvccnoCvcv CvcvCvccCvcvno CvcvnoCvcvCvcc CvcvCvcvnoCvcc CvcvCvcvCvccno CvccnoCvccCvcv CvccCvccnoCvcv "
    "CvccCvccCvcvno CvcvnoCvccCvcc CvcvCvccnoCvcc CvcvCvccCvccno CvccnoCvcvCvcc CvccCvcvnoCvcc CvccCvcvCvccno",
    "medium": "CvcnoCvc CvcCvcno",
    "short": "Cvcn",
    "basic": "aaanaaan aannaaan aaannaaa",
    "pin": "nnnn",
}
_CHARACTERS: Final = {
    "V": "AEIOU",
    "C": "BCDFGHJKLMNPQRSTVWXYZ",
    "v": "aeiou",
    "c": "bcdfghjklmnpqrstvwxyz",
    "A": "AEIOUBCDFGHJKLMNPQRSTVWXYZ",
    "a": "AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
    "n": "0123456789",
    "o": "@&%?,=[]_:-+*$#!'^~;()/.",
    "x": "AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
}


def _derive_password(counter: Uint32, kind: str, password: str, user: str, site: str) -> str:
    """``derivePassword``: by the Master Password algorithm, version 0. It is reproducible and never stored."""
    if kind not in _TEMPLATES:
        return f"cannot find password template {kind}"
    key = hashlib.scrypt(
        to_bytes(password), salt=_NAMESPACE + _counted(user), n=32768, r=8, p=2, maxmem=2**26, dklen=64
    )
    seed = hmac.digest(key, _NAMESPACE + _counted(site) + counter.to_bytes(4, "big"), "sha256")
    templates = _TEMPLATES[kind].split()
    template = templates[seed[0] % len(templates)]
    return "".join(
        _CHARACTERS[letter][byte % len(_CHARACTERS[letter])]
        for letter, byte in zip(template, seed[1:], strict=False)
    )


def _counted(text: str) -> bytes:
    data = to_bytes(text)
    return len(data).to_bytes(4, "big") + data


_PASSWORDS: Final[dict[str, Callable[..., Any]]] = {
    "bcrypt": _bcrypt,
    "decryptAES": _decrypt_aes,
    "derivePassword": _derive_password,
    "encryptAES": _encrypt_aes,
    "htpasswd": _htpasswd,
}


_PRINTABLE: Final = "".join(map(chr, range(32, 127)))


def _check(rendering: Rendering, count: int) -> None:
    if count < 0:
        raise FunctionError(f"{count} random characters: the count is negative")
    rendering.allow(2 * count)  # randBytes writes base64, which is longer


def _choose(rendering: Rendering, count: int, characters: str) -> str:
    _check(rendering, count)
    return "".join(secrets.choice(characters) for _ in range(count))


def _alpha(rendering: Rendering, count: int) -> str:
    """``randAlpha``: ``count`` random letters."""
    return _choose(rendering, count, string.ascii_letters)


def _alpha_num(rendering: Rendering, count: int) -> str:
    """``randAlphaNum``: ``count`` random letters and digits."""
    return _choose(rendering, count, string.ascii_letters + string.digits)


def _ascii(rendering: Rendering, count: int) -> str:
    """``randAscii``: ``count`` random printable ASCII characters."""
    return _choose(rendering, count, _PRINTABLE)


def _numeric(rendering: Rendering, count: int) -> str:
    """``randNumeric``: ``count`` random digits."""
    return _choose(rendering, count, string.digits)


def _bytes(rendering: Rendering, count: int) -> str:
    """``randBytes``: ``count`` random bytes, in base64."""
    _check(rendering, count)
    return base64.b64encode(secrets.token_bytes(count)).decode()


def _int(smallest: int, end: int) -> int:
    """``randInt``: a number from the smallest to before the end. Raises FunctionError for an empty range."""
    if end <= smallest:
        raise FunctionError(f"the range from {smallest} to below {end} is empty")
    return smallest + secrets.randbelow(end - smallest)


def _shuffle(text: str) -> str:
    """``shuffle``: the characters of the text in a random order."""
    characters = list(text)
    secrets.SystemRandom().shuffle(characters)
    return "".join(characters)


def _uuidv4() -> str:
    """``uuidv4``: a random UUID."""
    return str(uuid.uuid4())


_RANDOM: Final[dict[str, Callable[..., Any]]] = {
    "randAlpha": _alpha,
    "randAlphaNum": _alpha_num,
    "randAscii": _ascii,
    "randBytes": _bytes,
    "randInt": _int,
    "randNumeric": _numeric,
    "shuffle": _shuffle,
    "uuidv4": _uuidv4,
}

FUNCTIONS: Final = {**_PASSWORDS, **_RANDOM}
