"""Filters that encode and decode values: JSON, YAML, Base64, digests, UUIDs, URLs and password hashes."""

from __future__ import annotations

import base64
import ctypes
import functools
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, TypedDict, Unpack
from urllib.parse import unquote_plus
from uuid import UUID, uuid5

import yaml

from hiera import limits, parsing
from hiera.errors import DocumentError, ExpressionError
from hiera.expressions.texts import as_text
from hiera.values import plain


def to_json(
    value: Any,
    indent: int | None = None,
    sort_keys: bool = False,
    ensure_ascii: bool = True,
    separators: Sequence[str] | None = None,
) -> str:
    """Return JSON on one line."""
    between, after_key = separators or (", " if indent is None else ",", ": ")
    limits.verify_width(between)
    limits.verify_width(after_key)
    limits.verify_width(indent or 0)
    value = plain(value)
    limits.verify_printed(value, functools.partial(json.dumps, ensure_ascii=ensure_ascii), indent or 0)
    return json.dumps(
        value,
        indent=indent,
        sort_keys=sort_keys,
        ensure_ascii=ensure_ascii,
        allow_nan=False,
        separators=(between, after_key),
    )


def to_nice_json(value: Any, indent: int = 4, sort_keys: bool = True, ensure_ascii: bool = True) -> str:
    """Return readable JSON: indented, with sorted keys."""
    return to_json(value, indent, sort_keys, ensure_ascii)


class YamlStyle(TypedDict, total=False):
    """Further keyword arguments of the YAML filters."""

    width: int
    explicit_start: bool
    explicit_end: bool
    default_style: str
    canonical: bool
    allow_unicode: bool


def to_yaml(
    value: Any,
    indent: int | None = None,
    sort_keys: bool = True,
    default_flow_style: bool | None = None,
    **style: Unpack[YamlStyle],
) -> str:
    """Return YAML, with the innermost lists and mappings on one line. Raises ExpressionError."""
    styles = YamlStyle.__annotations__.keys()
    if unknown := sorted(style.keys() - styles):
        raise ExpressionError("", f"to_yaml does not accept {unknown[0]}, only {', '.join(sorted(styles))}")

    class Dumper(yaml.CSafeDumper):
        # Shared lists would become anchors, which few readers of configuration files support.
        def ignore_aliases(self, _data: Any) -> bool:
            return True

    complete_style: YamlStyle = {"allow_unicode": True, **style}
    value = plain(value)
    limits.verify_yaml(value, indent or 2)
    return str(
        yaml.dump(
            value,
            Dumper=Dumper,
            indent=indent,
            sort_keys=sort_keys,
            default_flow_style=default_flow_style,
            **complete_style,
        )
    )


def to_nice_yaml(
    value: Any,
    indent: int = 4,
    sort_keys: bool = True,
    default_flow_style: bool = False,
    **style: Unpack[YamlStyle],
) -> str:
    """Return readable YAML: each item on its own line."""
    return to_yaml(value, indent, sort_keys, default_flow_style, **style)


def from_json(text: str) -> Any:
    """Return the value of a JSON text, with the strict rules of facts in JSON."""
    return parsing.load_json(as_text(text, "from_json"), "the text given to from_json")


def from_yaml_all(text: str) -> list[Any]:
    """Return the values of all documents of a YAML text, with the rules of ``from_yaml``.

    Raises ExpressionError.
    """
    text = as_text(text, "from_yaml_all")
    try:
        events = yaml.parse(text, Loader=yaml.CSafeLoader)
        marks = [event.start_mark for event in events if isinstance(event, yaml.DocumentStartEvent)]
        starts = [mark.index for mark in marks if mark is not None]
    except yaml.YAMLError as error:
        raise DocumentError("the text given to from_yaml_all", f"is no YAML: {error}") from None
    pieces = [text[start:end] for start, end in pairwise([*starts, len(text)])]
    return [
        parsing.load_yaml(part, f"document {n} given to from_yaml_all")
        for n, part in enumerate(pieces, start=1)
    ]


def from_yaml(text: str) -> Any:
    """Return the value of a YAML text, with the strict rules of a manifest."""
    return parsing.load_yaml(as_text(text, "from_yaml"), "the text given to from_yaml")


def b64encode(text: str, encoding: str = "utf-8", urlsafe: bool = False) -> str:
    """Return text as Base64. ``urlsafe`` writes ``-`` and ``_`` for ``+`` and ``/``."""
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    return encode(as_text(text, "b64encode").encode(encoding)).decode("ascii")


def b64decode(text: str, encoding: str = "utf-8", urlsafe: bool = False) -> str:
    """Return the text decoded from Base64."""
    decode = base64.urlsafe_b64decode if urlsafe else base64.b64decode
    return decode(as_text(text, "b64decode")).decode(encoding)


# -- digests and UUIDs -----------------------------------------------------------------------------


def digest(text: str, hashtype: str = "sha1") -> str:
    """Return the digest of a text's UTF-8 bytes, in hexadecimal: ``hash('sha512')``. Raises ExpressionError."""
    data = as_text(text, "hash").encode()
    try:
        return hashlib.new(hashtype, data, usedforsecurity=False).hexdigest()
    except (TypeError, ValueError):
        known = "md5, sha1, sha224, sha256, sha384, sha512, blake2b"
        raise ExpressionError("", f"hash does not accept {hashtype!r}, only {known} and their like") from None


def sha256(text: str) -> str:
    """Return the SHA-256 of a text's UTF-8 bytes, in hexadecimal."""
    return digest(as_text(text, "sha256"), "sha256")


def sha1(text: str) -> str:
    """Return the SHA-1 of a text's UTF-8 bytes, in hexadecimal, for compatibility. It is insecure."""
    return digest(as_text(text, "sha1"), "sha1")


def md5(text: str) -> str:
    """Return the MD5 of a text's UTF-8 bytes, in hexadecimal, for compatibility. It is insecure."""
    return digest(as_text(text, "md5"), "md5")


_ANSIBLE: Final = "361E6D51-FAEC-444A-9079-341386DA8E2E"


def to_uuid(text: str, namespace: str = _ANSIBLE) -> str:
    """Return the UUID (version 5) of a text in a namespace, by default Ansible's. It is always the same.

    Raises ExpressionError.
    """
    try:
        return str(uuid5(UUID(namespace), as_text(text, "to_uuid")))
    except (AttributeError, ValueError):
        raise ExpressionError("", f"to_uuid requires a UUID as namespace, not {namespace!r}") from None


def urldecode(text: str) -> str:
    """Return a decoded part of a URL: ``%20`` and ``+`` are blanks."""
    return unquote_plus(as_text(text, "urldecode"))


# ``password_hash``: hashes for ``/etc/shadow``, made by the system's ``crypt(3)``. The salt is a required argument,
# because a random salt would change the file in every run.

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
    """Return a password hash for ``/etc/shadow`` with the given salt: ``password_hash('sha512', data.salt)``.

    ``hashtype`` is ``sha512``, ``sha256``, ``md5`` or ``blowfish``. Raises ExpressionError without a salt.
    """
    hashtype = hashtype.removesuffix("_crypt")
    if hashtype not in _PREFIXES:
        raise ExpressionError("", f"password_hash does not accept {hashtype!r}, only {', '.join(_PREFIXES)}")
    if salt is None or not re.fullmatch(_SALT, salt):
        expected = "requires a salt of up to 22 letters, digits, dots and slashes"
        raise ExpressionError(
            "", f"password_hash {expected}: a new one in every run would change the file each time"
        )
    prefix = f"${ident}$" if ident and hashtype in ("blowfish", "bcrypt") else _PREFIXES[hashtype]
    return _crypt(as_text(password, "password_hash"), f"{prefix}{_cost(hashtype, rounds)}{salt}")


def _cost(hashtype: str, rounds: int | None) -> str:
    most = _MOST_ROUNDS.get(hashtype)
    if rounds is not None and (most is None or not 1 <= rounds <= most):
        expected = "no rounds for this hash" if most is None else f"1 to {most}"
        raise ExpressionError("", f"rounds of {hashtype} is {rounds}, expected {expected}")
    if hashtype in ("blowfish", "bcrypt"):
        return f"{rounds or 12:02}$"
    # The default is left out, as other programs do.
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
    # Not CDLL: it would let other threads overwrite the result of crypt.
    library = next((result for name in _LIBRARIES if (result := _opened(ctypes.PyDLL, name))), None)
    if library is None:
        raise ExpressionError("", "password_hash requires libcrypt, which is not installed")
    library.crypt.restype = ctypes.c_char_p
    library.crypt.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
    return library


def _opened(kind: Callable[[str], Any], name: str) -> Any:
    try:
        return kind(name)
    except OSError:
        return None
