"""The file ``~/.ssh/authorized_keys`` (sshd(8)): read by root, written by a process of its user.

* The user controls everything below the home and may put a link or a foreign file there at any time. The file is opened
  name by name from the open home directory, and links are not followed. Root neither writes nor copies there.
* The process that writes runs as the user, so it cannot read files that the user cannot read.
* Comments and undeclared keys stay in place.
* A line has options, type, key in Base64 and comment. Type and key identify the entry.
* A key is decoded and checked by the rules of its type. A truncated or garbled key would lock out its owner.
"""

import base64
import binascii
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from bundles.filesystem.atomic import naming, remove_leftovers, replace_file
from puller.errors import ResourceError
from puller.resources.claims import Claim, Use
from puller.system.local_paths import open_safely
from puller.values.foreign_text import IS_WIDE, is_wide

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
"""The parts after the type in each key: a text, a number of bytes, or ``None`` for any."""
_SMALLEST_RSA = 128  # bytes of the modulus: current sshd versions reject shorter keys


class Key(msgspec.Struct, frozen=True):
    """A key with all fields of its line."""

    type: str
    body: str
    options: str = ""
    comment: str = ""

    @property
    def identity(self) -> tuple[str, str]:
        """The type and the body, which identify a key."""
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
    """Parse a line of a manifest. Raises ``ValueError`` if it is not a valid public key.

    The message never quotes the line, because it may be a private key.
    """
    if "PRIVATE KEY" in line:
        raise ValueError("is a private key, expected a public one")
    if not line.isprintable():
        raise ValueError("has a line end, a tab or another control character in it, expected one line")
    key = find_key(line)
    if key is None:
        raise ValueError("is not a public key, expected a line such as 'ssh-ed25519 AAAA… name'")
    if not all(_OPTION.fullmatch(option) for option in _split_options(key.options)):
        raise ValueError('has options that are not understood, expected such as from="192.0.2.0/24",no-pty')
    _require_whole(key)
    return key


def find_key(line: str) -> Key | None:
    """Return the key in a line of a file, or ``None`` if the line does not contain one."""
    line = line.strip(_BLANKS)
    options, remainder = "", line
    if _BETWEEN.split(line, maxsplit=1)[0] not in _PARTS:
        options, remainder = _after_options(line)
    words = _BETWEEN.split(remainder, maxsplit=2)
    if len(words) < 2 or words[0] not in _PARTS:
        return None
    return Key(words[0], words[1], options, words[2] if len(words) > 2 else "")


def _after_options(line: str) -> tuple[str, str]:
    """Split a line into its options, which may have quoted blanks, and the rest."""
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
    """Yield each option. Commas in quotes do not separate options."""
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
        raise ValueError("has a key that is not valid Base64") from None
    pieces = [*_strings(blob)]
    if not pieces or pieces[0] != key.type.encode("ascii"):
        raise ValueError(f"names the type {key.type}, but the key has another type")
    desired = _PARTS[key.type]
    if len(pieces) != len(desired) + 1 or not all(map(_is, pieces[1:], desired)):
        raise ValueError(f"has a key that is not a whole {key.type}")
    if key.type == "ssh-rsa" and len(pieces[2]) < _SMALLEST_RSA:
        raise ValueError("has an RSA key of less than 1024 bits")


def _is(part: bytes, desired: bytes | int | None) -> bool:
    if isinstance(desired, int):
        return len(part) == desired
    return bool(part) if desired is None else part == desired


def _strings(blob: bytes) -> Iterator[bytes]:
    """Yield the strings of a blob, each prefixed with its length in four bytes. A truncated one is empty."""
    while blob:
        length, blob = int.from_bytes(blob[:4], "big"), blob[4:]
        yield blob[:length] if len(blob) >= length else b""
        blob = blob[length:]


LARGEST = 1024 * 1024
"""Maximum size of the file in bytes."""
_DIRECTORY, _FILE = ".ssh", "authorized_keys"
_DIRECTORY_MODE, _FILE_MODE = 0o700, 0o600
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DesiredKeys(msgspec.Struct, frozen=True):
    """The desired keys of a user. Without ``exclusive``, undeclared keys stay."""

    keys: tuple[Key, ...]
    exclusive: bool
    name: str
    """The name of the user."""
    uid: int
    gid: int
    home: str

    @property
    def directory(self) -> str:
        """The path of the directory, for messages."""
        return f"{self.home}/{_DIRECTORY}"

    @property
    def path(self) -> str:
        """The path of the file, for messages."""
        return f"{self.directory}/{_FILE}"


class KeysState(msgspec.Struct, frozen=True):
    """The differences from the desired keys: numbers of keys, and descriptions of attributes."""

    missing: int = 0
    changed: int = 0
    """Keys with other options or another comment."""
    surplus: int = 0
    attributes: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        """Whether the keys are in sync."""
        return self == KeysState()

    def __str__(self) -> str:
        words = {"missing": self.missing, "different": self.changed, "too many": self.surplus}
        counted = [f"{number} {what}" for what, number in words.items() if number]
        return ", ".join([*counted, *self.attributes])

    def done(self) -> str:
        """Return the change as text: ``added 1 key, removed 2``."""
        counted = {"added": self.missing, "changed": self.changed, "removed": self.surplus}
        words = [f"{what} {number}" for what, number in counted.items() if number]
        if not words:
            return "made authorized_keys the user's alone"
        first = next(number for number in counted.values() if number)
        words[0] += " key" if first == 1 else " keys"
        return ", ".join(words)


def all_missing(desired: Sequence[Key]) -> KeysState:
    """Return the state for a missing file."""
    return KeysState(missing=len(desired))


def look(desired: DesiredKeys) -> KeysState:
    """Return the differences of the current file. Raises ``OSError``, and ``ResourceError`` for an invalid file."""
    with _directory(desired) as directory:
        if directory is None:
            return all_missing(desired.keys)
        attributes = [*_attributes(os.fstat(directory), desired, desired.directory, _DIRECTORY_MODE)]
        status = _stat(_FILE, directory, desired.path)
        if status is None:
            state = all_missing(desired.keys)
        else:
            attributes += _attributes(status, desired, desired.path, _FILE_MODE)
            state = merged(_read(directory, desired), desired)[1]
    if not desired.keys and status is None:
        return KeysState()
    return msgspec.structs.replace(state, attributes=tuple(attributes))


def write(desired: DesiredKeys, act: Callable[[Callable[[], object]], None]) -> None:
    """Write the desired keys. ``act`` calls the writing function as the user. Raises ``OSError`` and ``ResourceError``.

    1. Open the home as root, so that the directories above need no permissions for the user.
    2. As the user: create the directory and remove the permissions of others.
    3. Read the current file, merge, and replace it.
    """
    # 1. Home

    with open_safely(desired.home) as home, naming(desired.path):
        act(lambda: _write_as_user(home, desired))


def _write_as_user(home: int, desired: DesiredKeys) -> None:
    # 2. Directory
    if _stat(_DIRECTORY, home, desired.directory) is None:
        os.mkdir(_DIRECTORY, _DIRECTORY_MODE, dir_fd=home)
        os.fsync(home)
    with _directory(desired, home) as directory:
        if directory is None:
            raise ResourceError(f"{desired.directory} was removed while Puller made it")
        if [*_attributes(os.fstat(directory), desired, desired.directory, _DIRECTORY_MODE)]:
            os.fchown(directory, -1, desired.gid)
            os.fchmod(directory, _DIRECTORY_MODE)
        # 3. File
        status = _stat(_FILE, directory, desired.path)
        content = b"" if status is None or _is_all_ours(status, desired) else _read(directory, desired)
        remove_leftovers(directory)
        new = merged(content, desired)[0]
        replace_file(directory, _FILE, [new], mode=_FILE_MODE, gid=desired.gid)


def merged(content: bytes, desired: DesiredKeys) -> tuple[bytes, KeysState]:
    """Return the content with the desired keys, and its differences.

    Comments stay, and undeclared keys stay unless ``exclusive``. A second line of a desired key is removed, because
    sshd accepts any line that allows the login. Raises ``ResourceError`` for text in another encoding, unless all other
    lines are removed.
    """
    if is_wide(content) and not desired.exclusive:
        raise ResourceError(f"{desired.path} {IS_WIDE}")
    missing: dict[tuple[str, str], Key] = {key.identity: key for key in desired.keys}
    lines, changed, surplus = [], 0, 0
    for line in content.split(b"\n"):
        text = line.decode("utf-8", "surrogateescape").rstrip("\r")
        key = _key_in(text)
        new = missing.pop(key.identity, None) if key else None
        if new is not None:
            changed += new != key
            lines.append(line if new == key else str(new).encode())
        elif _stays(text, key, desired):
            lines.append(line)
        else:
            surplus += 1
    if lines and not lines[-1]:
        lines.pop()
    lines += [str(key).encode() for key in missing.values()]
    return b"".join(line + b"\n" for line in lines), KeysState(len(missing), changed, surplus)


def _key_in(text: str) -> Key | None:
    return None if _is_ignored_by_sshd(text) else find_key(text)


def _is_ignored_by_sshd(text: str) -> bool:
    """Return whether sshd ignores a line: a comment or an empty line."""
    text = text.lstrip(" \t")
    return not text or text.startswith("#")


def _stays(text: str, key: Key | None, desired: DesiredKeys) -> bool:
    if _is_ignored_by_sshd(text):
        return True
    is_second = key is not None and any(key.identity == one.identity for one in desired.keys)
    return not is_second and not desired.exclusive


# Reading the current file


@contextmanager
def _directory(desired: DesiredKeys, home: int | None = None) -> Iterator[int | None]:
    """Yield a descriptor of ``.ssh``, or ``None`` if it is missing. Pass ``home`` if its path may be inaccessible."""
    with ExitStack() as stack:
        if home is None:
            home = stack.enter_context(open_safely(desired.home))
        status = _stat(_DIRECTORY, home, desired.directory)
        if status is None:
            yield None
            return
        _require(desired, desired.directory, status, stat.S_ISDIR, "directory")
        directory = os.open(_DIRECTORY, _OPEN | os.O_DIRECTORY, dir_fd=home)
        stack.callback(os.close, directory)
        yield directory


def _is_all_ours(status: os.stat_result, desired: DesiredKeys) -> bool:
    """Return whether a file of root can be replaced without reading it."""
    return status.st_uid != desired.uid and desired.exclusive


def _read(directory: int, desired: DesiredKeys) -> bytes:
    """Return the content of the file, which must exist."""
    status = os.stat(_FILE, dir_fd=directory, follow_symlinks=False)
    _require(desired, desired.path, status, stat.S_ISREG, "file")
    with open(os.open(_FILE, _OPEN, dir_fd=directory), "rb", buffering=0) as stream:
        status = os.fstat(stream.fileno())
        _require(desired, desired.path, status, stat.S_ISREG, "file")
        data = stream.read(LARGEST + 1) if status.st_size <= LARGEST else None
    if data is None or len(data) > LARGEST:
        raise ResourceError(f"{desired.path} has more than {LARGEST} bytes")
    return data


def _stat(name: str, directory: int, path: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def _require(
    desired: DesiredKeys, path: str, status: os.stat_result, is_right: Callable[[int], bool], description: str
) -> None:
    """Raise unless the path is a directory or file of the user, who could otherwise redirect reads and writes."""
    if stat.S_ISLNK(status.st_mode):
        raise ResourceError(
            f"{path} is a link, which is not followed", expected=f"a {description} of {desired.name}"
        )
    if not is_right(status.st_mode):
        raise ResourceError(f"{path} is not a {description}")
    if status.st_uid != desired.uid and not (description == "file" and _is_of_root(status, desired)):
        raise ResourceError(
            f"{path} belongs to user {status.st_uid}", expected=f"a {description} of {desired.name}"
        )
    if description == "file" and status.st_nlink > 1:
        names = f"has {status.st_nlink} names (hard links)"
        raise ResourceError(
            f"{path} {names}, so it may be a file of another user", expected=f"one of {desired.name}"
        )


def _is_of_root(status: os.stat_result, desired: DesiredKeys) -> bool:
    """Return whether a file of root can be replaced by the user: it is readable, or its content is not needed."""
    return status.st_uid == 0 and (desired.exclusive or bool(status.st_mode & stat.S_IROTH))


def _attributes(status: os.stat_result, desired: DesiredKeys, path: str, mode: int) -> Iterator[str]:
    name = path.removeprefix(f"{desired.home}/")
    if status.st_uid != desired.uid:
        yield f"{name} belongs to user {status.st_uid}"
    if status.st_gid != desired.gid:
        yield f"{name} has group {status.st_gid}"
    if (now := stat.S_IMODE(status.st_mode)) != mode:
        yield f"{name} has mode {now:04o}"
