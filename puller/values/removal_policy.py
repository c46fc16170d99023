"""The removal policy of a resource: keep or remove its objects when it is no longer declared."""


class Removed(str):
    """``keep`` or ``absent``; compares as text."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> "Removed":
        """Read the word; raises ``ValueError``."""
        if value in (KEEP, ABSENT):
            return cls(value)
        raise ValueError(f"is {value!r}, wanted keep or absent")


KEEP = Removed("keep")
"""It stays where it is, and ``puller status`` lists it."""
ABSENT = Removed("absent")
"""It is taken away, if Puller itself has made it."""
