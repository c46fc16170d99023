"""The sentence for a tar header that is not the expected one.

* Nothing here decides anything: the reader has refused the archive already.
* Every field is a stranger's: it is shown, and never used.
"""

from collections.abc import Collection

from bundles.archive.canonical_tar import HEADER, PAX
from bundles.errors import FormatError
from bundles.format.paths import MemberPath, folded, shown

_FIELDS = (
    *("name", "mode", "owner", "group", "size", "time", "checksum", "type", "link target", "magic"),
    *("user name", "group name", "device major", "device minor", "prefix", "padding"),
)
_NUMBERS = ("owner", "group", "size", "time", "device major", "device minor")
_KINDS = {
    "\0": "a member of a tar older than POSIX",
    "0": "a regular file",
    "1": "a hard link",
    "2": "a symbolic link",
    "3": "a character device",
    "4": "a block device",
    "5": "a directory; in a bundle they follow from the files in them",
    "6": "a FIFO",
    "7": "a contiguous file",
    "g": "a global PAX header",
    "x": "a PAX header",
    "D": "a GNU directory listing",
    "K": "a GNU long link target",
    "L": "a GNU long name",
    "M": "the rest of a file from another GNU volume",
    "S": "a GNU sparse file",
    "V": "a GNU volume label",
}
_MODE_BITS = {
    0o4000: "setuid",
    0o2000: "setgid",
    0o1000: "sticky",
    0o0020: "group-writable",
    0o0002: "world-writable",
}


def diagnose(
    block: bytes,
    wanted: bytes,
    *,
    turn: MemberPath | None,
    listed: Collection[MemberPath] | None,
    before: Collection[MemberPath],
) -> FormatError:
    """The error for ``block``, a header where ``wanted`` should be.

    ``turn`` is the file expected here, ``None`` at the end of the archive; ``listed`` are the files of
    ``bundle.json``, ``None`` as long as it has not been read; ``before`` are those that came already.
    """
    here = shown(turn.text) if turn else "the end"
    if not any(block):
        return FormatError(here, "is missing, the archive ends before it")
    if block[257:262] != b"ustar":
        what = f"its header has the magic {shown(block[257:265])}" if turn else "is followed by more bytes"
        return FormatError(here, what)
    fields = _read(block)
    where = shown(_full_name(fields))
    if problem := _of_checksum(block, fields) or _of_type(fields, wanted):
        return FormatError(where, problem)
    if fields["type"] != PAX:
        try:
            path = MemberPath.parse(_full_name(fields))
        except FormatError as error:
            return error
        if path != turn:
            return FormatError(where, _of_name(path, here, listed, before))
    return FormatError(here, _of_fields(fields, _read(wanted)))


def _read(block: bytes) -> dict[str, bytes]:
    return dict(zip(_FIELDS, HEADER.unpack(block), strict=True))


def _full_name(fields: dict[str, bytes]) -> bytes:
    """The name up to its first NUL, as other readers would see it."""
    prefix, name = (fields[field].split(b"\0")[0] for field in ("prefix", "name"))
    return prefix + b"/" + name if prefix else name


def _of_checksum(block: bytes, fields: dict[str, bytes]) -> str | None:
    # "checksum" counts as eight spaces
    right = sum(block) - sum(fields["checksum"]) + 8 * 32
    if _number(fields["checksum"]) == right:
        return None
    return f"the checksum of its header is {shown(fields['checksum'])}, computed {right:06o}"


def _of_type(fields: dict[str, bytes], wanted: bytes) -> str | None:
    kind = fields["type"].decode("latin-1")
    if kind == "0" or fields["type"] == _read(wanted)["type"]:
        return None
    target = f" to {shown(fields['link target'].split(bytes(1))[0])}" if kind in "12" else ""
    known = _KINDS.get(kind, f"of the unknown type {kind!r}")
    return f"is {known}{target}; wanted {_KINDS['0']}"


def _of_name(
    path: MemberPath, here: str, listed: Collection[MemberPath] | None, before: Collection[MemberPath]
) -> str:
    if path in before:
        return "is there a second time"
    for other in before:
        if folded(other.text) == folded(path.text):
            return f"differs from {shown(other.text)} only by case or Unicode normalisation"
    if listed is not None and path not in listed:
        return "is not listed in bundle.json"
    return f"stands where {here} should"


def _of_fields(fields: dict[str, bytes], wanted: dict[str, bytes]) -> str:
    different = [field for field in _FIELDS if fields[field] != wanted[field]]
    # The checksum differs because another field does, unless it is the only one.
    field = next((field for field in different if field != "checksum"), "checksum")
    found, right = _value(field, fields[field]), _value(field, wanted[field])
    if found == right:
        found = f"{found}, spelled {shown(fields[field])},"
    return f"{field} is {found} in the archive, wanted {right}"


def _value(field: str, value: bytes) -> str:
    number = _number(value)
    if field == "mode" and number is not None:
        bits = "".join(f", {name}" for bit, name in _MODE_BITS.items() if number & bit)
        return f"{number:04o}{bits}," if bits else f"{number:04o}"
    if field in _NUMBERS and number is not None:
        return str(number)
    return shown(value.rstrip(b"\0"))


def _number(value: bytes) -> int | None:
    digits = value.rstrip(b"\0 ")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else None
