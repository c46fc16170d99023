"""Encrypted texts in data, ``ENC[PKCS7,…]``, compatible with hiera-eyaml.

* A text may contain several encrypted parts between other words. It is decrypted as a whole.
* The private key is loaded for the first encrypted text, not before.
* Messages never quote a plain text.
"""

import os
import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence

from foundation.problems import DependsOn, ProblemCode
from hiera.errors import EnvelopeError, HieraError

_TOKEN = re.compile(r"ENC\[(?:(\w+),)?([a-zA-Z0-9+/ =\n]+?)\]")


def is_encrypted(text: str) -> bool:
    """Return whether ``text`` contains an encrypted part."""
    # As in hiera-eyaml, a part is on a single line. Folded YAML text is one line.
    return "ENC[" in text and any("]" in line.partition("ENC[")[2] for line in text.split("\n"))


def encrypt(plain: str, certificate_pems: Sequence[bytes]) -> str:
    """Return ``plain`` as ``ENC[PKCS7,…]``, for the private key of each certificate. Raises ``EnvelopeError``."""
    from hiera.envelopes import seal  # cryptography takes 65 % of an idle run

    return f"ENC[PKCS7,{b2a_base64(seal(plain.encode(), certificate_pems), newline=False).decode()}]"


class Decryptor:
    """Decrypts texts with one private key. ``private_key`` returns it as PEM on first use."""

    def __init__(self, private_key: Callable[[], bytes]) -> None:
        self._private_key = private_key
        self._pem: bytes | None = None
        # Cached, since decrypting takes a millisecond, and texts are decrypted repeatedly.
        self._plain: dict[str, str] = {}

    def decrypt(self, text: str) -> str:
        """Return ``text`` with each encrypted part decrypted, without a final newline. Raises ``EnvelopeError``."""
        plain = _TOKEN.sub(self._part, text)
        # As in hiera-eyaml: text from a pipe ends with an unintended newline.
        return re.sub(r"(\r\n|\n|\r)\Z", "", plain)

    def _part(self, found: re.Match[str]) -> str:
        part = found[0]
        if part not in self._plain:
            scheme = found[1] or "PKCS7"
            if scheme.upper() != "PKCS7":
                raise EnvelopeError("", f"encrypted with {scheme}, but Puller supports only PKCS7")
            self._plain[part] = self._opened(found[2])
        return self._plain[part]

    def _opened(self, base64: str) -> str:
        from hiera.envelopes import open_envelope  # cryptography takes 65 % of an idle run

        if self._pem is None:
            self._pem = self._private_key()
        try:
            return open_envelope(a2b_base64(base64), self._pem).decode()
        except Base64Error:
            raise EnvelopeError("", "not base64 between the brackets of ENC[…]") from None
        except UnicodeDecodeError:
            raise EnvelopeError("", "the decrypted value is not UTF-8 text") from None


def key_reader(
    options: Mapping[str, object], read: Callable[[str], bytes], default: str | None
) -> Callable[[], bytes]:
    """Return the reader of the private key in a level's ``options``, with hiera-eyaml's names, or of ``default``.

    The reader raises ``EnvelopeError`` if both are missing.
    """

    def load() -> bytes:
        variable = options.get("pkcs7_private_key_env_var")
        # hiera-eyaml's order: the environment before the file.
        if isinstance(variable, str) and os.environ.get(variable):
            return os.environ[variable].encode()
        path = options.get("pkcs7_private_key", default)
        if not isinstance(path, str):
            detail = "pkcs7_private_key is not defined, neither in the options of the level nor for the host"
            raise EnvelopeError("", detail).depending(DependsOn.KEY)
        try:
            return read(path)
        except HieraError as error:
            error.code = ProblemCode.UNREADABLE_SECRET
            raise error.depending(DependsOn.KEY) from None

    return load
