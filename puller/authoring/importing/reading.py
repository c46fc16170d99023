"""Source files of an import, read with limits.

* The importer executes nothing from the source, and follows no link that leads outside of it.
* Each file and the complete tree have a maximum size, so a hostile source ends in an error.
* YAML is read by the strict loader of Puller, which limits aliases and depth, and keeps line numbers.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives import hashes, hmac, padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from foundation.problems import Location, ProblemCode
from hiera import parsing
from hiera.errors import HieraError
from puller.errors import SourceError, file_problem

FILE_LIMIT: Final = 4 << 20
"""Maximum bytes of a text file."""
COPY_LIMIT: Final = 64 << 20
"""Maximum bytes of a file that is copied unchanged."""
TREE_LIMIT: Final = 256 << 20
"""Maximum bytes of all files together."""
FILES_LIMIT: Final = 50_000
"""Maximum number of files and directories."""
_DEPTH_LIMIT: Final = 40
_SKIPPED: Final = frozenset({".git", ".github", ".tox", ".venv", "node_modules", "__pycache__"})


class VaultText(msgspec.Struct, frozen=True):
    """A value that Ansible Vault has encrypted."""

    text: str


class UnsafeText(msgspec.Struct, frozen=True):
    """A text whose braces are literal."""

    text: str


class Secrets(msgspec.Struct, frozen=True):
    """The means to convert values of Ansible Vault: its password, and the encryption of eyaml."""

    password: bytes
    encrypt: Callable[[str], str]

    def converted(self, text: str) -> str:
        """Return an encrypted value as ``ENC[PKCS7,…]``. Raises ``VaultError``."""
        return self.encrypt(decrypt_vault(text, self.password))


class VaultError(Exception):
    """A value of Vault that cannot be decrypted. The text is the reason."""


VAULT_HEADER: Final = "$ANSIBLE_VAULT;"


def decrypt_vault(text: str, password: bytes) -> str:
    """Return the text of an encrypted value in the format 1.1 or 1.2 of Ansible Vault. Raises ``VaultError``."""
    header, _, body = text.strip().partition("\n")
    lines = body.splitlines()
    if not re.fullmatch(r"\$ANSIBLE_VAULT;1\.[12];AES256(;.*)?", header.strip()):
        raise VaultError("the format of the vault is unknown")
    try:
        salt, digest, data = (bytes.fromhex(part.decode()) for part in _vault_parts(lines))
    except ValueError:
        raise VaultError("the vault is damaged") from None
    # The iterations and lengths are those of ansible.parsing.vault.VaultAES256.
    key = PBKDF2HMAC(hashes.SHA256(), 80, salt, 10_000).derive(password)
    check = hmac.HMAC(key[32:64], hashes.SHA256())
    check.update(data)
    if not compare_digest(check.finalize(), digest):
        raise VaultError("the password of the vault is wrong, or the vault is damaged")
    opener = Cipher(algorithms.AES(key[:32]), modes.CTR(key[64:80])).decryptor()
    padded = opener.update(data) + opener.finalize()
    unpadder = padding.PKCS7(128).unpadder()
    try:
        return (unpadder.update(padded) + unpadder.finalize()).decode()
    except ValueError:
        raise VaultError("the content of the vault is not UTF-8 text") from None


def _vault_parts(lines: Sequence[str]) -> list[bytes]:
    """Return salt, digest and data as hexadecimal text. Raises ``ValueError``."""
    parts = bytes.fromhex("".join(line.strip() for line in lines)).split(b"\n")
    if len(parts) != 3:
        raise ValueError
    return parts


_SECRET_NAME: Final = re.compile(
    rb"(?:passw(?:or)?d|passphrase|_pass|_pwd|secret|token|api_?key|access_key|secret_key|private_key|psk)"
    rb"[\"']?[ \t]{0,9}[=:][ \t]{0,9}[^\s=]|://[^/@\s:]{1,99}:[^/@\s]{1,99}@",
    re.I,
)
_COMMENTS: Final = (b"#", b";", b"//")


def has_secret(content: bytes) -> bool:
    """Return whether a file or command probably contains a private key or a password. Comments do not count."""
    if b"PRIVATE KEY" in content:
        return True
    return any(
        _SECRET_NAME.search(line)
        for line in map(bytes.strip, content.splitlines())
        if not line.startswith(_COMMENTS)
    )


def _text_of(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("requires a text")
    return value


_TAGS: Final = {
    "!vault": lambda value: VaultText(_text_of(value)),
    "!vault-encrypted": lambda value: VaultText(_text_of(value)),
    "!unsafe": lambda value: UnsafeText(value) if isinstance(value, str) else value,
}


class Document:
    """A YAML document with the lines of its parts."""

    def __init__(self, name: str, text: str) -> None:
        """Parse the text. Raises ``HieraError``."""
        self.name = name
        self._text = text
        self.value: Any = parsing.load_yaml(text, name, tags=_TAGS)

    def line(self, path: tuple[str | int, ...]) -> int:
        """Return the line of the value at a path, from 1."""
        return parsing.locate(self._text, path)[0]

    def original(self, path: tuple[str | int, ...]) -> str | None:
        """Return the source text of the scalar at a path."""
        return parsing.original(self._text, path)


def as_mapping(value: Any) -> dict[str, Any]:
    """Return a mapping, or an empty mapping for any other value."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a value as a list. A text without expressions is split at commas, and null is an empty list."""
    if value is None:
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")] if "{{" not in value else [value]
    return list(value) if isinstance(value, list) else [value]


class SourceTree:
    """The files below the directory of a role, playbook or repository."""

    def __init__(self, root: Path) -> None:
        """Raise ``SourceError`` if the directory is unreadable."""
        self.root = Path(os.path.realpath(root))
        self.rejected: dict[str, str] = {}
        """Skipped files, with the reason."""
        self._bytes = 0
        if not self.root.is_dir():
            raise SourceError(str(root), "is not a directory")

    def is_file(self, path: str) -> bool:
        """Return whether a relative path is a regular file inside of the tree."""
        return self._resolved(path, stat.S_ISREG) is not None

    def is_directory(self, path: str) -> bool:
        """Return whether a relative path is a directory inside of the tree."""
        return self._resolved(path, stat.S_ISDIR) is not None

    def files(self, directory: str) -> Iterator[str]:
        """Yield the regular files below a directory in sorted order, by paths relative to the root."""
        yield from self._walk(directory.rstrip("/"), 0, [0])

    def _walk(self, directory: str, depth: int, count: list[int]) -> Iterator[str]:
        resolved = self._resolved(directory or ".", stat.S_ISDIR)
        if resolved is None:
            return
        if depth > _DEPTH_LIMIT:
            self.rejected[directory] = f"is nested more than {_DEPTH_LIMIT} deep"
            return
        try:
            names = sorted(os.listdir(resolved))
        except OSError as error:
            self.rejected[directory] = file_problem(error)
            return
        for name in names:
            count[0] += 1
            if count[0] > FILES_LIMIT:
                raise SourceError(
                    f"{self.root}: has more than {FILES_LIMIT} files", code=ProblemCode.LIMIT_EXCEEDED
                )
            path = f"{directory}/{name}" if directory not in ("", ".") else name
            if name in _SKIPPED:
                continue
            if os.path.isdir(self.root / path):
                if os.path.islink(self.root / path):
                    self.rejected[path] = "is a link to a directory"
                else:
                    yield from self._walk(path, depth + 1, count)
            elif self.is_file(path):
                yield path
            elif path not in self.rejected:
                self.rejected[path] = "is a link that leads outside, or is not a regular file"

    def text(self, path: str) -> str:
        """Return a text file. Raises ``SourceError``."""
        try:
            return self.content(path, FILE_LIMIT).decode()
        except UnicodeDecodeError:
            raise SourceError(f"{path}: is not UTF-8 text") from None

    def content(self, path: str, limit: int = COPY_LIMIT) -> bytes:
        """Return the bytes of a file. Raises ``SourceError``."""
        resolved = self._resolved(path, stat.S_ISREG)
        if resolved is None:
            raise SourceError(
                f"{path}: does not exist, is not a regular file, or leads outside of the source"
            )
        try:
            with open(resolved, "rb") as file:
                data = file.read(limit + 1)
        except OSError as error:
            raise SourceError(file_problem(error, where=path)) from error
        self._bytes += len(data)
        if len(data) > limit:
            raise SourceError(f"{path}: has more than {limit} bytes", code=ProblemCode.LIMIT_EXCEEDED)
        if self._bytes > TREE_LIMIT:
            raise SourceError(
                f"{self.root}: has more than {TREE_LIMIT} bytes in all files", code=ProblemCode.LIMIT_EXCEEDED
            )
        return data

    def is_executable(self, path: str) -> bool:
        """Return whether the owner can execute a file."""
        resolved = self._resolved(path, stat.S_ISREG)
        return resolved is not None and bool(os.stat(resolved).st_mode & stat.S_IXUSR)

    def document(self, path: str) -> Document:
        """Return a YAML document. Raises ``SourceError``."""
        try:
            return Document(path, self.text(path))
        except HieraError as error:
            raise SourceError(str(error), location=Location(path), code=error.problems[0].code) from error

    def find_document(self, path: str) -> Document | None:
        """Return a YAML document, or ``None`` for a missing or rejected file. Rejected files are recorded."""
        if not self.is_file(path):
            return None
        try:
            return Document(path, self.text(path))
        except HieraError as error:
            problem = error.problems[0]
            self.rejected[path] = f"line {problem.location.line}: {problem.message}"
        except SourceError as error:
            self.rejected[path] = error.message
        return None

    def reason(self, path: str) -> str:
        """Return why ``find_document`` returned ``None`` for a path."""
        return self.rejected.get(path, "is missing")

    def _resolved(self, path: str, is_kind: Any) -> str | None:
        """Return the real path of an object of this kind inside of the tree."""
        if "\0" in path:
            return None
        real = os.path.realpath(self.root / path)
        if real != str(self.root) and not real.startswith(f"{self.root}{os.sep}"):
            return None
        try:
            return real if is_kind(os.stat(real).st_mode) else None
        except (OSError, ValueError):
            return None
