"""``ABSENT``: no value. Null is a value."""

from enum import Enum
from typing import Final


class Absent(Enum):
    """The type of ``ABSENT``."""

    ABSENT = 0

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT
