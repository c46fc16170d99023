"""The removal policy of a resource: keep or remove its objects when it is no longer declared."""


class Removed(str):
    """``keep`` or ``absent``. Compares as text."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> "Removed":
        """Parse the word. Raise ``ValueError``."""
        if value in (KEEP, ABSENT):
            return cls(value)
        raise ValueError(f"is {value!r}, expected keep or absent")


KEEP = Removed("keep")
"""It stays, and ``puller status`` lists it."""
ABSENT = Removed("absent")
"""It is removed if Puller has created it."""
