"""Changes to permission bits as chmod(1) has them: ``u+rwX,go-w,a-s``.

* Each is for somebody (``u``, ``g``, ``o``, ``a``): without, chmod asks the umask, which no resource depends on.
* ``X`` is ``x`` for a directory, and for a file that somebody may execute.
* Setuid and setgid of a directory are changed only where ``s`` is written; ``t`` is for ``o`` and ``a``.
* Changes that end elsewhere when they are made again (``u+X,o+x`` on what nobody may execute) are made until they end.
"""

import re
import stat

_CLAUSE = re.compile(r"([ugoa]+)((?:[-+=][rwxXst]*)+)")
_CHANGE = re.compile(r"([-+=])([rwxXst]*)")
_OF_WHOM = {"u": 0o4700, "g": 0o2070, "o": 0o1007, "a": 0o7777}
_LETTERS = {"r": 0o444, "w": 0o222, "x": 0o111, "s": 0o6000, "t": 0o1000}
_ANY_SEARCH, _SET_ID = 0o111, 0o6000


class ModeChanges:
    """Changes, in their order; ``text`` is as they were written."""

    __slots__ = ("_changes", "text")

    def __init__(self, text: str) -> None:
        """``text`` is known to be of the right form."""
        self.text = text
        self._changes = [
            (_mask(clause[1]), change[1], change[2])
            for clause in _CLAUSE.finditer(text)
            for change in _CHANGE.finditer(clause[2])
        ]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModeChanges) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def over(self, actual: int) -> int:
        """The permission bits of what has the ``st_mode`` ``actual`` before."""
        is_directory, bits = stat.S_ISDIR(actual), stat.S_IMODE(actual)
        # What is given only to somebody who has it already may spread once more for each of the three.
        for _ in range(3):
            before, bits = bits, self._once(bits, is_directory=is_directory)
            if bits == before:  # as for nearly all that is in a tree
                break
        return bits

    def _once(self, bits: int, *, is_directory: bool) -> int:
        for whose, operator, letters in self._changes:
            named = _bits(letters, can_search=is_directory or bool(bits & _ANY_SEARCH))
            kept = _SET_ID & ~named if is_directory else 0
            named &= whose & ~kept
            if operator == "+":
                bits |= named
            elif operator == "-":
                bits &= ~named
            else:
                bits = (bits & (~whose | kept)) | named
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
