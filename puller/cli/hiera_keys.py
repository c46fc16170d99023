"""Keys and encrypted values on the command line; what eyaml makes is read, and eyaml reads what is made here."""

import os
import textwrap
from collections.abc import Sequence

from puller.errors import UsageError

PRIVATE, PUBLIC = "private_key.pkcs7.pem", "public_key.pkcs7.pem"


def create(directory: str) -> list[str]:
    """Write a new pair into ``directory``, and give the two paths. Raises ``UsageError`` where there is one."""
    from bundles.files import write_file
    from hiera.envelope import create_key_pair

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
    from hiera.eyaml import encrypt

    sealed = encrypt(text, [_read(path) for path in certificates or (os.path.join("keys", PUBLIC),)])
    return ">\n" + textwrap.indent("\n".join(textwrap.wrap(sealed, 60)), "    ") if block else sealed


def decrypted(text: str, private_key: str) -> str:
    """``text`` with what is encrypted in it made readable; blocks of several lines too."""
    import re

    from hiera.eyaml import Decryptor

    decryptor = Decryptor(lambda: _read(private_key))
    return re.sub(r"ENC\[[\w,+/=\s]+?\]", lambda found: decryptor.decrypt(re.sub(r"\s", "", found[0])), text)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
