"""Permission bits, parsed once and compared as numbers."""

import re
from typing import ClassVar

from hiera.values.plain import described

_OCTAL = re.compile(r"(?:0[oO])?0*([0-7]{1,3})")
_MASK = re.compile(r"[0-7x]{3}")


class FileMode:
    """Permission bits of which some may be left as they are: ``0644``, or a mask such as ``x00``.

    ``bits`` are the wanted ones, ``kept`` those that the mask leaves alone; they never overlap.
    """

    NEW_FILE: ClassVar[int] = 0o644
    """Bits of a new file where a mask leaves them alone: those that the umask 022 leaves."""
    NEW_DIRECTORY: ClassVar[int] = 0o755
    """Bits of a new directory, likewise."""

    # Not a dataclass: msgspec would decode one from a mapping by itself, and this is parsed from text.
    __slots__ = ("bits", "kept")

    def __init__(self, bits: int, kept: int = 0) -> None:
        self.bits = bits
        self.kept = kept

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileMode) and (self.bits, self.kept) == (other.bits, other.kept)

    def __hash__(self) -> int:
        return hash((self.bits, self.kept))

    WANTED: ClassVar[str] = "octal digits such as '0644', at most 0777, or a mask such as 'x00'"

    @classmethod
    def parse(cls, text: object) -> "FileMode":
        """Read ``0644``, ``644``, ``0o644``, ``0O644`` or a three-digit mask with ``x``; raises ``ValueError``."""
        if not isinstance(text, str):
            # Not the value: YAML has made 420 of 0644, which nobody would recognise.
            raise ValueError(f"is {described(text)}, wanted text: quote it")
        if match := _OCTAL.fullmatch(text):
            return cls(int(match[1], 8))
        if _MASK.fullmatch(text):
            return cls(
                int(text.replace("x", "0"), 8), int("".join("7" if d == "x" else "0" for d in text), 8)
            )
        raise ValueError(f"is {text!r}, wanted {cls.WANTED}")

    def over(self, actual: int) -> int:
        """The permission bits for a path that has ``actual`` now."""
        return self.bits | (actual & self.kept)

    def searchable(self) -> "FileMode":
        """The mode for a directory: search permission wherever there is read permission."""
        # Each r becomes an x two bits below it: a directory that may be listed but not entered is of no use.
        return FileMode(self.bits | (self.bits & 0o444) >> 2, self.kept)

    def merged(self, other: "FileMode") -> "FileMode":
        """Both at once: ``7xx`` and ``xx0`` are ``7x0`` (TinyCM). Raises ``ValueError`` for different digits."""
        both = 0o777 & ~self.kept & ~other.kept
        if (self.bits ^ other.bits) & both:
            raise ValueError(f"{self} and {other} want different permissions")
        return FileMode(self.bits | other.bits, self.kept & other.kept)

    def __str__(self) -> str:
        digits = f"{self.bits:03o}"
        kept = f"{self.kept:03o}"
        text = "".join("x" if keep == "7" else digit for digit, keep in zip(digits, kept, strict=True))
        return text if self.kept else f"0{text}"
