"""Root of a host tries every key and file of the machine: which encrypted values open, and where is a text in plain?

* The program runs inside a machine, with the Python of Puller there. It uses the libraries of age and AES directly, so
  that it does not depend on the code of Puller.
* Every file is tried as a key, also members of archives. Every key of a file that opens is tried on every encrypted
  value, also of other files.
* The texts to search are its arguments. It prints JSON.
"""

import base64
import gzip
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator

import pyrage
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SKIPPED = {"/proc", "/sys", "/dev", "/usr", "/opt", "/var/lib/dpkg", "/var/cache/apt"}
SIZE_LIMIT = 64 * 1024 * 1024
BLOCK = re.compile(r"-----BEGIN AGE ENCRYPTED FILE-----\n.*?-----END AGE ENCRYPTED FILE-----", re.DOTALL)
VALUE = re.compile(r'^ *"?([^\s":]+)"?: "?ENC\[AES256_GCM,data:([^,]+),iv:([^,]+),tag:([^,]+),', re.MULTILINE)
AGE_KEY = re.compile(rb"AGE-SECRET-KEY-1[A-Z0-9]+")


def all_files() -> Iterator[tuple[str, bytes]]:
    """Yield each regular file with its content, then the content of compressed files and archives."""
    for directory, names, files in os.walk("/"):
        names[:] = [name for name in names if os.path.join(directory, name) not in SKIPPED]
        for name in files:
            path = os.path.join(directory, name)
            if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > SIZE_LIMIT:
                continue
            with open(path, "rb") as file:
                data = file.read()
            yield path, data
            if data[:2] != b"\x1f\x8b":
                continue
            try:
                plain = gzip.decompress(data)
            except (OSError, EOFError, zlib.error):
                continue
            yield path, plain
            try:
                with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
                    for member in archive:
                        if content := archive.extractfile(member):
                            yield f"{path}:{member.name}", content.read()
            except tarfile.TarError:
                continue
    journal = subprocess.run(["journalctl", "--all", "--output=json"], capture_output=True, check=True)
    yield "journal", journal.stdout


def identities(data: bytes) -> Iterator[object]:
    """Yield the private keys in a file."""
    try:
        yield pyrage.ssh.Identity.from_buffer(data)
    except pyrage.IdentityError:
        pass
    for text in AGE_KEY.findall(data):
        try:
            yield pyrage.x25519.Identity.from_str(text.decode())
        except pyrage.IdentityError:
            pass


def opened(block: str, identity: object) -> bytes | None:
    try:
        key: bytes = pyrage.decrypt(block.encode(), [identity])
        return key
    except (pyrage.DecryptError, ValueError):
        return None


def decrypted(key: bytes, name: str, data: str, vector: str, tag: str) -> str | None:
    sealed = base64.b64decode(data) + base64.b64decode(tag)
    try:
        return AESGCM(key).decrypt(base64.b64decode(vector), sealed, f"{name}:".encode()).decode()
    except (InvalidTag, ValueError):
        return None


def spellings(text: str) -> list[bytes]:
    """Return a text as programs may store it."""
    data = text.encode()
    encoded = [base64.b64encode(bytes(shift) + data)[4:-4] for shift in range(3)]
    return [data, data[::-1], data.hex().encode(), data.hex().upper().encode(), *encoded]


def main(texts: list[str]) -> None:
    """Print the result of the search as JSON."""
    sought = list(itertools.chain.from_iterable(map(spellings, texts)))
    keys: dict[str, list[object]] = {}
    blocks: set[str] = set()
    values: set[tuple[str, str, str, str]] = set()
    places: set[str] = set()
    for path, data in all_files():
        if any(text in data for text in sought):
            places.add(path)
        if own := list(identities(data)):
            keys[path] = own
        text = data.decode("utf-8", "replace")
        if "AGE ENCRYPTED FILE" in text:
            # In YAML the lines are indented, in JSON their ends are escaped.
            bare = re.sub(r"(?m)^[ \t]+", "", text.replace("\\n", "\n"))
            blocks.update(BLOCK.findall(bare))
        values.update(VALUE.findall(text))
    file_keys: dict[bytes, str] = {}
    for block, (path, own) in itertools.product(blocks, keys.items()):
        for identity in own:
            if (key := opened(block, identity)) is not None:
                file_keys[key] = path
    plain = {decrypted(key, *value) for key in file_keys for value in values} - {None}
    result = {
        "keys": sorted(keys),
        "blocks": len(blocks),
        "values": len(values),
        "opening": sorted(set(file_keys.values())),
        "plain": sorted(map(str, plain)),
        "places": sorted(places),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
