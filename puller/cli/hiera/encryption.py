"""``puller hiera encrypt``, ``decrypt`` and ``keys create``.

The formats are compatible with eyaml in both directions.
"""

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import click

from bundles.filesystem.safe_paths import OutputTree, open_output_directory
from foundation.problems import ProblemCode
from hiera import eyaml
from hiera.errors import HieraError
from hiera.eyaml import Decryptor
from puller.errors import UsageError, file_problem

_PRIVATE, _PUBLIC = "private_key.pkcs7.pem", "public_key.pkcs7.pem"


@click.command("create")
@click.option(
    "--directory",
    default="keys",
    show_default=True,
    metavar="DIR",
    help="The directory for the keys. Puller creates it.",
)
def create_keys(directory: str) -> None:
    """Create a private key and its certificate.

    The certificate is the public key, in the format of eyaml. Keep the private key only on machines that read the data.
    Existing files are never overwritten.
    """
    paths = [os.path.join(directory, name) for name in (_PRIVATE, _PUBLIC)]
    for path in paths:
        if os.path.lexists(path):
            raise UsageError(
                f"{path}: a key exists already and is not overwritten", code=ProblemCode.UNWRITABLE_OUTPUT
            )
    # cryptography takes 65 % of an idle run, and ``puller hiera lookup`` imports this module
    from hiera.envelopes import create_key_pair

    try:
        with open_output_directory(directory, make=True, mode=0o700):
            tree = OutputTree(directory)
        for path, content, mode in zip(paths, create_key_pair(), (0o600, 0o644), strict=True):
            tree.write(os.path.basename(path), [content], mode=mode)
            click.echo(path)
        tree.close()
    except OSError as error:
        raise UsageError(
            file_problem(error, "cannot be written", where=directory), code=ProblemCode.UNWRITABLE_OUTPUT
        ) from error


@click.command()
@click.option(
    "--certificate",
    "certificates",
    multiple=True,
    type=click.Path(exists=True),
    metavar="FILE",
    help="A certificate of a reader. Repeatable.  [default: keys/public_key.pkcs7.pem]",
)
@click.option("--block", is_flag=True, help="Print a folded YAML block with short lines.")
def encrypt(certificates: tuple[str, ...], block: bool) -> None:
    """Encrypt a text, and print it as ENC[PKCS7,…] for data files.

    Puller reads the text from standard input, without its last newline. On a terminal it prompts for the text without
    echo.

    \b
      puller hiera encrypt < password.txt
      puller hiera encrypt --certificate keys/public_key.pkcs7.pem
    """
    click.echo(_encrypted(_secret_input(), certificates, block=block))


@click.command(short_help="Decrypt the encrypted values in a text.")
@click.argument("file", required=False, type=click.File("rb"))
@click.option(
    "--private-key",
    default="keys/private_key.pkcs7.pem",
    show_default=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The private key.",
)
def decrypt(file: Any, private_key: str) -> None:
    """Print FILE, or standard input, with each ENC[PKCS7,…] decrypted.

    \b
      puller hiera decrypt data/common.eyaml
      grep ENC data/common.eyaml | puller hiera decrypt
    """
    name = file.name if file and file.name != "<stdin>" else "standard input"
    data = (file or sys.stdin.buffer).read()
    click.echo(_decrypted(data, private_key, name), nl=False)


def _secret_input() -> str:
    if sys.stdin.isatty():
        text: str = click.prompt("Text to encrypt", hide_input=True, err=True)
        return text
    return sys.stdin.read().removesuffix("\n")


def _encrypted(text: str, certificates: Sequence[str], *, block: bool) -> str:
    """Return ``text`` as ``ENC[PKCS7,…]``, or as a folded YAML ``block`` of short lines."""
    value = eyaml.encrypt(text, [_read(path) for path in certificates or (os.path.join("keys", _PUBLIC),)])
    return ">\n" + textwrap.indent("\n".join(textwrap.wrap(value, 60)), "    ") if block else value


def _decrypted(data: bytes, private_key: str, name: str) -> str:
    """Return ``data`` as text with decrypted values, including values over several lines.

    Raises ``HieraError`` with ``name`` and the line of an undecryptable value, and ``UsageError`` for binary data.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: is not UTF-8 text, at byte {error.start}", code=ProblemCode.INVALID_DOCUMENT
        ) from None
    # The key is read at the first encrypted value, so a text without any needs no key.
    decryptor = Decryptor(lambda: _read(private_key))

    def opened(match: re.Match[str]) -> str:
        try:
            # A folded block contains blanks and line ends.
            return decryptor.decrypt(re.sub(r"\s", "", match[0]))
        except HieraError as error:
            line = text.count("\n", 0, match.start()) + 1
            raise error.at(f"{name}:{line}") from None

    return re.sub(r"ENC\[[\w,+/=\s]+?\]", opened, text)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", code=ProblemCode.UNREADABLE_SOURCE) from error
