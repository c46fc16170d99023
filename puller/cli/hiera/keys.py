"""Keys and encrypted values on the command line; what eyaml makes is read, and eyaml reads what is made here."""

import os
import textwrap
from collections.abc import Sequence

from puller.errors import UsageError

PRIVATE, PUBLIC = "private_key.pkcs7.pem", "public_key.pkcs7.pem"


def create(directory: str) -> list[str]:
    """Write a new pair into ``directory``, and give the two paths. Raises ``UsageError`` where there is one."""
    from bundles.filesystem.atomic import write_file
    from hiera.eyaml.pkcs7 import create_key_pair

    paths = [os.path.join(directory, name) for name in (PRIVATE, PUBLIC)]
    for path in paths:
        if os.path.lexists(path):
            raise UsageError(f"{path}: there is a key already; it is not overwritten")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    for path, content, mode in zip(paths, create_key_pair(), (0o600, 0o644), strict=True):
        write_file(path, content, mode=mode)
    return paths


def encrypted(text: str, certificates: Sequence[str], *, block: bool) -> str:
    """``text`` as ``ENC[PKCS7,…]``; as a ``block``, in the short lines of a folded YAML text."""
    from hiera.eyaml.eyaml import encrypt

    sealed = encrypt(text, [_read(path) for path in certificates or (os.path.join("keys", PUBLIC),)])
    return ">\n" + textwrap.indent("\n".join(textwrap.wrap(sealed, 60)), "    ") if block else sealed


def decrypted(data: bytes, private_key: str, name: str) -> str:
    """``data`` as text with what is encrypted in it made readable; blocks of several lines too.

    Raises ``HieraError`` with ``name`` and the line of what cannot be decrypted, ``UsageError`` for what is no text.
    """
    import re

    from hiera.errors import HieraError
    from hiera.eyaml.eyaml import Decryptor

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: is not UTF-8 text, at byte {error.start}") from None
    decryptor = Decryptor(lambda: _read(private_key))

    def opened(found: re.Match[str]) -> str:
        try:
            return decryptor.decrypt(re.sub(r"\s", "", found[0]))
        except HieraError as error:
            line = text.count("\n", 0, found.start()) + 1
            raise error.at(f"{name}:{line}") from None

    return re.sub(r"ENC\[[\w,+/=\s]+?\]", opened, text)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
