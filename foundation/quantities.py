"""Numbers and sizes in sentences for users.

Sizes of facts have Facter's own format (``puller/values/units.py``).
"""

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 file`` or ``3 files``. ``plural`` is for irregular nouns."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def size_text(size: float) -> str:
    """Return a size in the largest decimal unit that gives at least 1: ``12.3 MB``, ``512 bytes``."""
    unit = 0
    # 999.96 is rounded to 1000.0, which is 1.0 of the next unit.
    while round(size, 1 if unit else 0) >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    if not unit:
        return counted(round(size), "byte")
    return f"{size:.1f} {_UNITS[unit]}"
