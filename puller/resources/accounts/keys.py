"""Lines of ``authorized_keys`` (sshd(8)): options, type, key in Base64, comment.

* A key is known by its type and body; what else is in its line says what may be done with it.
* A key is taken apart as far as its own type says what is in it: one that was cut short, or pasted with a character too
  many, would lock out whoever it belongs to.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence

import msgspec

from puller.resources.claims import Claim, Use

_BLANKS = " \t"
_BETWEEN = re.compile(r"[ \t]+")
_OPTION = re.compile(r'[A-Za-z0-9-]+(?:="(?:[^"\\]|\\.)*")?')
_PARTS = {
    "ssh-ed25519": (32,),
    "ssh-rsa": (None, None),
    "ssh-dss": (None, None, None, None),
    "ecdsa-sha2-nistp256": (b"nistp256", 65),
    "ecdsa-sha2-nistp384": (b"nistp384", 97),
    "ecdsa-sha2-nistp521": (b"nistp521", 133),
    "sk-ssh-ed25519@openssh.com": (32, None),
    "sk-ecdsa-sha2-nistp256@openssh.com": (b"nistp256", 65, None),
}
"""What follows the type in each key: a text, a number of bytes, or ``None`` for any."""
_SMALLEST_RSA = 128  # bytes of the modulus: what is shorter, no sshd of today takes


class Key(msgspec.Struct, frozen=True):
    """A key with all of its line."""

    type: str
    body: str
    options: str = ""
    comment: str = ""

    @property
    def identity(self) -> tuple[str, str]:
        """The part that tells it from other keys."""
        return self.type, self.body

    def __str__(self) -> str:
        return " ".join(filter(None, (self.options, self.type, self.body, self.comment)))


def claim_of_keys(path: str, owner: str, authorized: Sequence[str], *, exclusive: bool) -> Claim:
    """Return the claim of a user on the ``authorized_keys`` file at ``path``. ``exclusive``: without other keys."""
    keys = {key.identity: key for line in authorized if (key := find_key(line))}

    def rejects(line: str) -> bool:
        key = find_key(line)
        return key is not None and keys.get(key.identity, None if exclusive else key) != key

    lines = tuple(map(str, keys.values()))
    return Claim(path, Use.PART, owner=owner, editor="user", lines=lambda: lines, rejects=rejects)


def parse_key(line: str) -> Key:
    """A line that is wanted; raises ``ValueError`` for everything that is no valid public key. The message quotes
    nothing of it, as it may be a private one.
    """
    if "PRIVATE KEY" in line:
        raise ValueError("is a private key, wanted a public one")
    if not line.isprintable():
        raise ValueError("has a line end, a tab or another control character in it, wanted one line")
    key = find_key(line)
    if key is None:
        raise ValueError("is no public key, wanted one such as 'ssh-ed25519 AAAA… name'")
    if not all(_OPTION.fullmatch(option) for option in _split_options(key.options)):
        raise ValueError('has options that are not understood, wanted such as from="192.0.2.0/24",no-pty')
    _require_whole(key)
    return key


def find_key(line: str) -> Key | None:
    """The key in a line of a file; ``None`` where there is none that could be one."""
    line = line.strip(_BLANKS)
    options, rest = "", line
    if _BETWEEN.split(line, maxsplit=1)[0] not in _PARTS:
        options, rest = _after_options(line)
    words = _BETWEEN.split(rest, maxsplit=2)
    if len(words) < 2 or words[0] not in _PARTS:
        return None
    return Key(words[0], words[1], options, words[2] if len(words) > 2 else "")


def _after_options(line: str) -> tuple[str, str]:
    """The options of a line, which may have blanks in quotes, and what follows them."""
    quoted = False
    position = 0
    while position < len(line) and (quoted or line[position] not in _BLANKS):
        if line.startswith('\\"', position):
            position += 1
        elif line[position] == '"':
            quoted = not quoted
        position += 1
    return line[:position], line[position:].lstrip(_BLANKS)


def _split_options(options: str) -> Iterator[str]:
    """The options one by one; commas in quotes are part of one."""
    start, quoted = 0, False
    for position, character in enumerate(options):
        if character == '"' and options[position - 1 : position] != "\\":
            quoted = not quoted
        elif character == "," and not quoted:
            yield options[start:position]
            start = position + 1
    if options:
        yield options[start:]


def _require_whole(key: Key) -> None:
    try:
        blob = base64.b64decode(key.body, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("has a key that is no Base64") from None
    parts = [*_strings(blob)]
    if not parts or parts[0] != key.type.encode("ascii"):
        raise ValueError(f"says {key.type}, and its key is not of that type")
    wanted = _PARTS[key.type]
    if len(parts) != len(wanted) + 1 or not all(map(_is, parts[1:], wanted)):
        raise ValueError(f"has a key that is not a whole {key.type}")
    if key.type == "ssh-rsa" and len(parts[2]) < _SMALLEST_RSA:
        raise ValueError("has an RSA key of less than 1024 bits")


def _is(part: bytes, wanted: bytes | int | None) -> bool:
    if isinstance(wanted, int):
        return len(part) == wanted
    return bool(part) if wanted is None else part == wanted


def _strings(blob: bytes) -> Iterator[bytes]:
    """The strings of a blob, each after its length in four bytes; one that is cut short ends in an empty one."""
    while blob:
        length, blob = int.from_bytes(blob[:4], "big"), blob[4:]
        yield blob[:length] if len(blob) >= length else b""
        blob = blob[length:]
