"""Permission bits: octal modes (``0644``), masks (``x00``) and symbolic changes (``u+rwX,go-w``).

Modes are parsed once and compared as numbers. A mode of three digits, or of four that begin with 0, clears setuid,
setgid and the sticky bit of a file, and keeps them on a directory, where they control its use.

Symbolic changes follow chmod(1), with these rules:

* Each change names ``u``, ``g``, ``o`` or ``a``. Otherwise chmod would use the umask, on which no
  resource depends.
* ``X`` means ``x`` for a directory, and for a file with any execute bit.
* Setuid and setgid of a directory change only if ``s`` is written. ``t`` has an effect only with ``o`` or ``a``.
* Changes are repeated until the mode is stable. ``u+X,o+x`` on a file without execute bits needs two rounds.
"""

import re
import stat
from functools import lru_cache
from typing import ClassVar

from hiera.values import described

# Symbolic changes.

# Texts, which ``re`` compiles when the first mode of this kind is parsed: few manifests have one.
_CLAUSE = r"([ugoa]+)((?:[-+=][rwxXst]*)+)"
_CHANGE = r"([-+=])([rwxXst]*)"
_OF_WHOM = {"u": 0o4700, "g": 0o2070, "o": 0o1007, "a": 0o7777}
_LETTERS = {"r": 0o444, "w": 0o222, "x": 0o111, "s": 0o6000, "t": 0o1000}
_ANY_SEARCH, _SET_ID = 0o111, 0o6000


class ModeChanges:
    """Symbolic changes, in their order. ``text`` is the original notation."""

    __slots__ = ("_changes", "text")

    def __init__(self, text: str) -> None:
        """``text`` must be valid."""
        self.text = text
        self._changes = [
            (_mask(clause[1]), change[1], change[2])
            for clause in re.finditer(_CLAUSE, text)
            for change in re.finditer(_CHANGE, clause[2])
        ]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModeChanges) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def over(self, actual: int) -> int:
        """Return the permission bits for a path whose ``st_mode`` is ``actual`` now."""
        is_directory, bits = stat.S_ISDIR(actual), stat.S_IMODE(actual)
        # ``X`` can cascade through user, group and other.
        for _ in range(3):
            before, bits = bits, self._once(bits, is_directory=is_directory)
            if bits == before:  # the usual case
                break
        return bits

    def _once(self, bits: int, *, is_directory: bool) -> int:
        for whose, operator, letters in self._changes:
            named = _bits(letters, can_search=is_directory or bool(bits & _ANY_SEARCH))
            retained = _SET_ID & ~named if is_directory else 0
            named &= whose & ~retained
            if operator == "+":
                bits |= named
            elif operator == "-":
                bits &= ~named
            else:
                bits = (bits & (~whose | retained)) | named
        return bits


def _mask(who: str) -> int:
    mask = 0
    for letter in who:
        mask |= _OF_WHOM[letter]
    return mask


def _bits(letters: str, *, can_search: bool) -> int:
    bits = _LETTERS["x"] if "X" in letters and can_search else 0
    for letter in letters.replace("X", ""):
        bits |= _LETTERS[letter]
    return bits


_OCTAL = r"(?:0[oO])?(0*)([0-7]{1,4})"
_MASK = r"[0-7x]{3}"
_CHANGES = "[ugoa]+(?:[-+][rwxXst]+|=[rwxXst]*)+"
_SYMBOLIC = f"{_CHANGES}(?:,{_CHANGES})*"
_PERMISSIONS, _SPECIAL, _EXECUTE = 0o777, 0o7000, 0o111


class FileMode:
    """Permission bits. Some may be kept.

    ``bits`` are the expected bits, and ``kept`` those that a mask keeps. They never overlap. If the mode ``is_exact``,
    ``bits`` include setuid, setgid and the sticky bit. If set, ``changes`` replace all these. They change the current
    bits.
    """

    NEW_FILE: ClassVar[int] = stat.S_IFREG | 0o644
    """The base mode of a new file: the bits that the umask 022 leaves."""
    NEW_DIRECTORY: ClassVar[int] = stat.S_IFDIR | 0o755
    """The base mode of a new directory."""
    ANY: ClassVar["FileMode"]
    """Keeps all bits."""
    WANTED: ClassVar[str] = (
        "octal digits such as '0644' or '2775', a mask such as 'x00', or changes such as 'u=rwX,go-w'"
    )
    PATTERN: ClassVar[str] = f"^(?:0[oO])?0*[0-7]{{1,4}}$|^[0-7x]{{3}}$|^{_CHANGES}(?:,{_CHANGES})*$"
    """Matches all valid texts, for a schema."""

    # Not a dataclass: msgspec would decode one from a mapping by itself, and this is parsed from text.
    __slots__ = ("bits", "changes", "is_exact", "kept")

    def __init__(
        self, bits: int, kept: int = 0, *, is_exact: bool = False, changes: "ModeChanges | None" = None
    ) -> None:
        self.bits = bits
        self.kept = kept
        self.is_exact = is_exact
        self.changes = changes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileMode) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[object, ...]:
        return self.bits, self.kept, self.is_exact, self.changes

    @classmethod
    def parse(cls, text: object) -> "FileMode":
        """Parse any of the forms. Raise ``ValueError``."""
        if not isinstance(text, str):
            # Without the value: YAML has converted 0644 to 420, which is hard to recognise.
            raise ValueError(f"is {described(text)}, expected text")
        return cls._of_text(text)

    @classmethod
    @lru_cache(maxsize=256)  # ten thousand files have a few modes
    def _of_text(cls, text: str) -> "FileMode":
        if match := re.fullmatch(_OCTAL, text):
            bits = int(match[2], 8)
            # As in chmod(1), a fifth digit includes the special bits, so it clears them.
            return cls(bits, is_exact=bits > _PERMISSIONS or len(match[1] + match[2]) > 4)
        if re.fullmatch(_MASK, text):
            return cls(
                int(text.replace("x", "0"), 8), int("".join("7" if d == "x" else "0" for d in text), 8)
            )
        if re.fullmatch(_SYMBOLIC, text):
            return cls(0, changes=ModeChanges(text))
        raise ValueError(f"is {text!r}, expected {cls.WANTED}")

    def over(self, actual: int) -> int:
        """Return the permission bits for a path whose ``st_mode`` is ``actual`` now."""
        if self.changes is not None:
            return self.changes.over(actual)
        keeps_special = stat.S_ISDIR(actual) and not self.is_exact
        return self.bits | (actual & (self.kept | (_SPECIAL if keeps_special else 0)))

    def over_copy(self, actual: int, *, is_program: bool) -> int:
        """Return the permission bits of a copy whose ``st_mode`` is ``actual`` now.

        The source decides who may execute the copy: all readers of a program, otherwise no user. Changes apply to these
        bits. They apply twice because a change such as ``g+r`` adds a reader.
        """
        for _ in range(2):
            readers = actual & 0o444
            execute = (readers >> 2 | stat.S_IXUSR) if is_program else 0
            actual = stat.S_IFMT(actual) | self.over((actual & ~_EXECUTE) | execute)
        return stat.S_IMODE(actual)

    @property
    def gives_set_id(self) -> bool:
        """Whether it makes a file run as its owner or group."""
        return bool(self.over(self.NEW_FILE) & (stat.S_ISUID | stat.S_ISGID))

    @property
    def leaves_programs(self) -> bool:
        """Whether a new file keeps the execute bits of a program in the bundle."""
        return self.over(self.NEW_FILE) != self.over(self.NEW_FILE | 0o111)

    def searchable(self) -> "FileMode":
        """Return the mode for a directory, with search permission for all readers.

        Symbolic changes stay as they are, because ``X`` provides this.
        """
        # Each r becomes an x two bits below it, because a listable directory without search permission is useless.
        bits = self.bits | (self.bits & 0o444) >> 2
        return FileMode(bits, self.kept, is_exact=self.is_exact, changes=self.changes)

    def is_independent(self, *, directory: bool) -> bool:
        """Return whether the bits of a file or directory do not depend on its current bits."""
        return self.changes is None and not self.kept and (self.is_exact or not directory)

    def merged(self, other: "FileMode") -> "FileMode":
        """Return the combination of both: ``7xx`` and ``xx0`` are ``7x0`` (TinyCM). Raise ``ValueError`` for a
        conflict.
        """
        if self == other:
            return self
        both = _PERMISSIONS & ~self.kept & ~other.kept
        if (
            self.changes
            or other.changes
            or self.is_exact != other.is_exact
            or (self.bits ^ other.bits) & both
        ):
            raise ValueError(f"{self} and {other} require different permissions")
        return FileMode(self.bits | other.bits, self.kept & other.kept, is_exact=self.is_exact)

    def __str__(self) -> str:
        if self.changes is not None:
            return self.changes.text
        if self.is_exact:
            return f"{self.bits:04o}" if self.bits > _PERMISSIONS else f"{self.bits:05o}"
        digits = f"{self.bits:03o}"
        retained = f"{self.kept:03o}"
        text = "".join("x" if keep == "7" else digit for digit, keep in zip(digits, retained, strict=True))
        return text if self.kept else f"0{text}"


FileMode.ANY = FileMode(0, _PERMISSIONS | _SPECIAL)
