"""Public keys of OpenPGP, as far as they must be told from anything else before a package manager trusts them."""

import re

import msgspec

_BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
_END = "-----END PGP PUBLIC KEY BLOCK-----"
_LINE = re.compile(r"[ -~]{0,200}")
# The tag of a packet is in its first byte: 6 is a public key, in the old form and in the new one (RFC 9580, 4.2).
_FIRST_BYTES = (0x98, 0x99, 0x9A, 0xC6)
_LARGEST = 1024 * 1024  # bytes; keyrings of distributions have some ten thousand


class Key(msgspec.Struct, frozen=True):
    """A public key, or several: armoured lines, or bytes."""

    lines: tuple[str, ...] = ()
    data: bytes = b""

    @property
    def content(self) -> bytes:
        """The key as a file."""
        return self.data or "".join(f"{line}\n" for line in self.lines).encode()


def is_armoured(text: str) -> bool:
    """Whether a property is a key itself, and not the name of a file."""
    return text.lstrip().startswith("-----BEGIN")


def parse_key(data: bytes) -> Key:
    """A key of either form; raises ``ValueError``, whose text continues *key*."""
    if len(data) > _LARGEST:
        raise ValueError(f"has {len(data)} bytes, wanted at most {_LARGEST}")
    if b"PRIVATE KEY BLOCK" in data:
        raise ValueError("holds a private key, wanted a public one")
    if data[:1] and data[0] in _FIRST_BYTES:
        return Key(data=data)
    return Key(_parse_armour(data.decode("ascii", "replace")))


def _parse_armour(text: str) -> tuple[str, ...]:
    lines = [line.rstrip() for line in text.strip().splitlines()]
    if not lines or lines[0] != _BEGIN or lines[-1] != _END:
        raise ValueError(f"is no public key of OpenPGP, wanted {_BEGIN} … or its binary form")
    if lines.count(_BEGIN) > 1:
        raise ValueError("holds several blocks, wanted one; gpg --export --armor makes one of several keys")
    if strange := next((line for line in lines if not _LINE.fullmatch(line)), None):
        raise ValueError(f"has the line {strange!r}, wanted plain text")
    return tuple(lines)
