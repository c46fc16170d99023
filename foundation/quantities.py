"""Numbers, sizes and shortened lists in sentences for users, and numbers in facts.

Facts have the format of Facter: two decimals, ``GiB`` by 1024 and ``GHz`` by 1000.
"""

from collections.abc import Sequence

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


_BINARY = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL = ("Hz", "kHz", "MHz", "GHz", "THz")


def bytes_text(size: int) -> str:
    """Return ``23.54 GiB`` for ``25276510208``. Below one KiB the plain number: ``512 bytes``."""
    if size < 1024:
        return f"{size} bytes"
    return _scaled(size, 1024, _BINARY)


def hertz_text(speed: int) -> str:
    """Return ``2.60 GHz`` for ``2596000000``."""
    return _scaled(speed, 1000, _DECIMAL)


def percent_text(used: int, total: int) -> str:
    """Return the used share: ``21.46%``. Without decimals at both ends."""
    if used == total:
        return "100%"
    return f"{used / total * 100:.2f}%" if used > 0 else "0%"


def megabytes(size: int) -> float:
    """Return the size in units of 1024 * 1024, for the legacy facts that end in ``_mb``."""
    return size / 1048576


def _scaled(number: int, base: int, units: tuple[str, ...]) -> str:
    scaled, position = float(number), 0
    # 1023.996 would be rounded to 1024.00, which is 1.00 of the next unit.
    while _rounded(scaled) >= base and position < len(units) - 1:
        scaled /= base
        position += 1
    return f"{_rounded(scaled):.2f} {units[position]}"


def _rounded(number: float) -> float:
    """Round to two decimals, halves away from zero like Facter. Python rounds them to the even digit."""
    return int(number * 100 + 0.5) / 100


def first_few(texts: Sequence[str], most: int = 3, separator: str = ", ") -> str:
    """Return ``web01, web02, web03 and 9 more``. With lines as the separator, the last line is ``and 9 more``."""
    reported = separator.join(texts[:most])
    additional = len(texts) - most
    return (
        f"{reported}{separator if separator.isspace() else ' '}and {additional} more"
        if additional > 0
        else reported
    )
