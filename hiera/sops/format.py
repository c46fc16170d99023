"""The format of SOPS: encrypted values, the rules that select them, and the MAC of a file.

* A value is encrypted by AES-256-GCM with the key of the file. Its path is the additional data, so a value that was
  moved to another place is not decrypted. Indexes of lists are not part of the path.
* The MAC is a SHA-512 over the plain values in their order, encrypted like a value. The time of the last change is its
  additional data. It reveals removed, added and reordered values.
* The key of the file is encrypted for each recipient. Shamir's secret sharing and key services are rejected.
* The types and texts of values are those of Go, in which SOPS is written: ``True``, ``1000`` for ``1e3``.

Source: https://github.com/getsops/sops, ``aes/cipher.go`` and ``sops.go``.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256, sha512
from hmac import compare_digest
from math import isfinite
from typing import Any, Final

from hiera.errors import EnvelopeError
from hiera.sops import MARK
from hiera.sops.identities import Identities, normalized, wrapped

METADATA: Final = "sops"
"""The key of the metadata, at the top of a file."""

NAMES: Final = "puller_names"
"""The key of the metadata with the names of recipients. SOPS ignores it."""

Path = tuple[str, ...]
Scalar = str | int | float | bool
RULES: Final = ("unencrypted_suffix", "encrypted_suffix", "unencrypted_regex", "encrypted_regex")
_COMMENT_RULES: Final = ("unencrypted_comment_regex", "encrypted_comment_regex")
_SERVICES: Final = ("kms", "gcp_kms", "hckms", "azure_kv", "hc_vault", "pgp")
_VERSION: Final = "3.10.2"

_VALUE: Final = re.compile(r"ENC\[AES256_GCM,data:([^,]+),iv:([^,]+),tag:([^,]+),type:([a-z]+)\]")
_LEAST_INTEGER: Final = -(2**63)
_GREATEST_INTEGER: Final = 2**63 - 1
_OF_ENCRYPTED_ONLY: Final = sha256(b"sops").digest()


class Timestamp(str):
    """An unquoted date of YAML, which SOPS reads as a time."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """Which values are encrypted: the kind of the rule, and its suffix or expression."""

    kind: str = "unencrypted_suffix"
    pattern: str = "_unencrypted"

    def selects(self, path: Path) -> bool:
        """Return whether the value at a path is encrypted. Raises ``EnvelopeError`` for an invalid expression."""
        if self.kind.endswith("_suffix"):
            matches = any(step.endswith(self.pattern) for step in path)
        else:
            # 5 % of an idle run, and most files have no expression
            from hiera.go_regex.pattern import compile_pattern, is_found
            from hiera.go_regex.syntax import PatternError

            try:
                expression = compile_pattern(self.pattern)
            except PatternError as error:
                raise EnvelopeError("", f"{self.kind} is not a regular expression: {error}") from None
            matches = any(is_found(expression, step) for step in path)
        return matches == self.kind.startswith("encrypted")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of an encrypted file."""

    sealed: Mapping[str, str]
    """The encrypted key of the file, by recipient."""
    mac: str
    last_modified: str
    """As written, since it is the additional data of the MAC."""
    rule: Rule = Rule()
    mac_only_encrypted: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of recipients."""

    @classmethod
    def parse(cls, value: object) -> Metadata:
        """Return the metadata in a file. Raises ``EnvelopeError`` for an unsupported kind."""
        if not isinstance(value, Mapping):
            raise EnvelopeError("", f"{METADATA} is not a mapping with the metadata of SOPS")
        if any(value.get(name) for name in _COMMENT_RULES):
            detail = f"{' and '.join(_COMMENT_RULES)} are not supported"
            raise EnvelopeError("", detail, hint=f"use one of {', '.join(RULES)}")
        rules = [Rule(kind, str(value[kind])) for kind in RULES if value.get(kind)]
        if len(rules) > 1:
            raise EnvelopeError("", f"has several of {', '.join(RULES)}, expected one")
        mac, modified = value.get("mac"), value.get("lastmodified")
        if not isinstance(mac, str) or not mac or not isinstance(modified, str):
            raise EnvelopeError("", "the metadata of SOPS have no mac or lastmodified")
        names = value.get(NAMES)
        return cls(
            _sealed(value),
            mac,
            modified,
            rules[0] if rules else Rule(),
            value.get("mac_only_encrypted") is True,
            {str(key): str(name) for key, name in names.items()} if isinstance(names, Mapping) else {},
        )

    def as_mapping(self) -> dict[str, Any]:
        """Return the metadata as SOPS writes them."""
        result: dict[str, Any] = {
            "age": [{"recipient": recipient, "enc": text} for recipient, text in self.sealed.items()],
            "lastmodified": self.last_modified,
            "mac": self.mac,
            self.rule.kind: self.rule.pattern,
            "version": _VERSION,
        }
        if self.mac_only_encrypted:
            result["mac_only_encrypted"] = True
        if self.names:
            result[NAMES] = dict(self.names)
        return result


def _sealed(value: Mapping[str, Any]) -> dict[str, str]:
    groups = value.get("key_groups")
    threshold = value.get("shamir_threshold")
    if (isinstance(groups, list) and len(groups) > 1) or (isinstance(threshold, int) and threshold > 1):
        hint = "encrypt the file with a single key group"
        raise EnvelopeError(
            "", "the key is divided among several key groups, which is not supported", hint=hint
        )
    group = value if value.get("age") else groups[0] if isinstance(groups, list) and groups else value
    entries = group.get("age") if isinstance(group, Mapping) else None
    sealed = {
        normalized(entry["recipient"]): entry["enc"]
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, Mapping)
        and isinstance(entry.get("recipient"), str)
        and isinstance(entry.get("enc"), str)
    }
    if not sealed:
        services = [name for name in _SERVICES if isinstance(group, Mapping) and group.get(name)]
        others = f", only for {', '.join(services)}" if services else ""
        hint = "add a recipient of age to the file"
        raise EnvelopeError("", f"not encrypted for a recipient of age{others}", hint=hint)
    return sealed


class Cipher:
    """Encrypts and decrypts the values of one file, and computes its MAC in the order of the calls."""

    def __init__(self, key: bytes, rule: Rule, *, mac_only_encrypted: bool = False) -> None:
        # cryptography takes 65 % of an idle run, and ``puller hiera lookup`` imports this module
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if len(key) != 32:
            raise EnvelopeError("", f"the key of the file has {len(key)} bytes, expected 32")
        self._aes = AESGCM(key)
        self._rule = rule
        self._only_encrypted = mac_only_encrypted
        self._digest = sha512(_OF_ENCRYPTED_ONLY if mac_only_encrypted else b"")
        self.written: dict[tuple[Path, str, bytes], str] = {}
        """Ciphertexts of values that were decrypted, so that unchanged values keep theirs."""

    def decrypt(self, value: Scalar | None, path: Path) -> Scalar | None:
        """Return the plain value, and add it to the MAC. Raises ``EnvelopeError``."""
        if value is None:
            return None
        is_encrypted = self._rule.selects(path)
        if is_encrypted and value != "":
            if not isinstance(value, str) or not is_ciphertext(value):
                raise EnvelopeError("", "is not encrypted, although the rule of the file selects it")
            value = self._opened(value, path)
        elif not is_encrypted:
            verify_unsealed(value)
        self._count(value, is_encrypted)
        return value

    def encrypt(self, value: Scalar | None, path: Path) -> Scalar | None:
        """Return the value as it is written: encrypted if the rule selects it. Add it to the MAC.

        Raises ``EnvelopeError`` for a value that is encrypted already, and for a number that SOPS cannot read.
        """
        if value is None:
            return None
        if isinstance(value, str) and value.startswith(MARK):
            raise EnvelopeError("", "is encrypted by SOPS already", hint="write the plain value")
        if isinstance(value, int) and not _LEAST_INTEGER <= value <= _GREATEST_INTEGER:
            raise EnvelopeError("", "is too large a number for SOPS", hint="quote the number")
        is_encrypted = self._rule.selects(path)
        if is_encrypted and isinstance(value, Timestamp):
            value = str(value)
        self._count(value, is_encrypted)
        if not is_encrypted or value == "":
            return value
        return self._sealed(_kind(value), _bytes(value), path)

    def encrypt_comment(self, text: str, path: Path) -> str:
        """Return the text of a comment in a mapping at ``path``, encrypted if the rule selects it."""
        return self._sealed("comment", text.encode(), path) if text and self._rule.selects(path) else text

    def decrypt_comment(self, text: str, path: Path) -> str | None:
        """Return the plain text of an encrypted comment, ``None`` if it belongs to another path."""
        try:
            return str(self._opened(text, path))
        except EnvelopeError:
            return None

    def mac(self, last_modified: str) -> str:
        """Return the encrypted MAC of all values so far."""
        return self._seal(self._digest.hexdigest().upper().encode(), "str", last_modified)

    def verify(self, metadata: Metadata) -> None:
        """Raise ``EnvelopeError`` unless the MAC is that of all values so far."""
        try:
            expected, _ = self._open(metadata.mac, metadata.last_modified)
        except EnvelopeError:
            raise EnvelopeError(
                "", "the MAC of the file is damaged, so its values cannot be trusted"
            ) from None
        if not compare_digest(expected, self._digest.hexdigest().upper().encode()):
            detail = (
                "the values do not match the MAC of the file: values were added, removed, moved or changed"
            )
            raise EnvelopeError("", detail)

    def _count(self, value: Scalar, is_encrypted: bool) -> None:
        if is_encrypted or not self._only_encrypted:
            self._digest.update(_bytes(value))

    def _opened(self, text: str, path: Path) -> Scalar:
        plain, kind = self._open(text, additional(path))
        value = _typed(plain, kind)
        self.written[path, kind, plain] = text
        return value

    def _sealed(self, kind: str, plain: bytes, path: Path) -> str:
        return self.written.get((path, kind, plain)) or self._seal(plain, kind, additional(path))

    def _open(self, text: str, additional_data: str) -> tuple[bytes, str]:
        from cryptography.exceptions import InvalidTag  # see above

        match = _VALUE.fullmatch(text)
        if match is None:
            raise EnvelopeError("", "is not a value that SOPS encrypted")
        try:
            data, vector, tag = (b64decode(part, validate=True) for part in match.group(1, 2, 3))
            if len(tag) != 16:
                raise EnvelopeError("", "its authentication tag is shortened")
            return self._aes.decrypt(vector, data + tag, additional_data.encode()), match[4]
        except (Base64Error, ValueError):
            raise EnvelopeError("", "is not a value that SOPS encrypted") from None
        except InvalidTag:
            raise EnvelopeError(
                "", "was changed, moved from another key, or encrypted with another key"
            ) from None

    def _seal(self, plain: bytes, kind: str, additional_data: str) -> str:
        vector = os.urandom(32)
        sealed = self._aes.encrypt(vector, plain, additional_data.encode())
        data, iv, tag = (b64encode(part).decode() for part in (sealed[:-16], vector, sealed[-16:]))
        return f"ENC[AES256_GCM,data:{data},iv:{iv},tag:{tag},type:{kind}]"


def open_cipher(metadata: Metadata, identities: Identities) -> Cipher:
    """Return the cipher of a file. Raises ``EnvelopeError`` if no identity opens it."""
    key = identities.open_key(metadata.sealed, metadata.names)
    return Cipher(key, metadata.rule, mac_only_encrypted=metadata.mac_only_encrypted)


def sealed_key(key: bytes, recipients: Mapping[str, str]) -> dict[str, str]:
    """Return the key of a file encrypted for each of ``recipients``. Raises ``EnvelopeError``."""
    return {recipient: wrapped(key, recipient) for recipient in recipients}


def is_ciphertext(text: str) -> bool:
    """Return whether a text is an encrypted value."""
    return _VALUE.fullmatch(text) is not None


def verify_unsealed(value: object) -> None:
    """Raise ``EnvelopeError`` if a value that is not decrypted is a ciphertext, which no host can use."""
    if isinstance(value, str) and value.startswith(MARK):
        raise EnvelopeError("", "is encrypted, although the rule of the file does not select it")


def ciphertext_kind(text: str) -> str:
    """Return the type of an encrypted value: ``str``, ``int``, ``float``, ``bool``, ``bytes`` or ``time``."""
    match = _VALUE.fullmatch(text)
    return match[4] if match else "str"


def is_comment(value: object) -> bool:
    """Return whether an item of a list is an encrypted comment, which SOPS writes as an item."""
    return isinstance(value, str) and is_ciphertext(value) and ciphertext_kind(value) == "comment"


def additional(path: Path) -> str:
    """Return the additional data of the values at a path."""
    return ":".join(path) + ":"


def _typed(plain: bytes, kind: str) -> Scalar:
    try:
        text = plain.decode()
    except UnicodeDecodeError:
        raise EnvelopeError("", "the decrypted value is not UTF-8 text") from None
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return _number(text)
        if kind == "bool":
            return {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}[text.lower()]
    except (ValueError, KeyError):
        raise EnvelopeError("", f"the decrypted value is not a value of the type {kind}") from None
    if kind == "time":
        return Timestamp(text)
    if kind not in ("str", "bytes", "comment"):
        raise EnvelopeError("", f"the value has the unknown type {kind}")
    return text


def _number(text: str) -> int | float:
    """Return a float of SOPS. Raises ``ValueError`` for infinity and NaN, which data cannot have.

    JSON has one type of numbers, and Go writes 5.0 as 5, so ``5`` is an integer.
    """
    number = float(text)
    if not isfinite(number):
        raise ValueError("is not a finite number")
    return int(text) if re.fullmatch(r"[-+]?[0-9]{1,300}", text) and text != "-0" else number


def _kind(value: Scalar) -> str:
    if isinstance(value, bool):
        return "bool"
    return {int: "int", float: "float"}.get(type(value), "str")


def _bytes(value: Scalar) -> bytes:
    """Return a value as Go writes it."""
    if isinstance(value, bool):
        return b"True" if value else b"False"
    if isinstance(value, float):
        text = format(Decimal(repr(value)), "f")
        return (text.rstrip("0").rstrip(".") if "." in text else text).encode()
    if isinstance(value, Timestamp):
        return _rfc3339(value).encode()
    return str(value).encode()


def _rfc3339(text: str) -> str:
    """Return a date of YAML as RFC 3339. It is a time in UTC without a zone of its own."""
    match = re.fullmatch(
        r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[Tt ]+(\d{1,2}):(\d{1,2}):(\d{1,2})(\.\d+)?\s*(Z|[-+]\d{2}:\d{2})?)?",
        text,
    )
    if match is None:
        return text
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    date = f"{year}-{int(month):02}-{int(day):02}"
    part = (fraction or "").rstrip("0").rstrip(".")
    zone = "Z" if zone in (None, "+00:00") else zone
    return f"{date}T{int(hour or 0):02}:{int(minute or 0):02}:{int(second or 0):02}{part}{zone}"
