"""Checks of values, for ``@validate`` and as tests of expressions (``value is ipv4``).

A number is checked in its printed form, so that ``port: 80`` and ``port: "80"`` are both an ``int``.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Final

from foundation.times import is_duration
from hiera import regex

_INT: Final = re.compile(r"[-+]?\d+", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOSTNAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_SHELL_SPECIAL: Final = re.compile(r"[`$;|&><()\n]")


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    # In Python True is a number, and its printed form differs from the author's text.
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _fits(value: Any, pattern: re.Pattern[str]) -> bool:
    text = _text(value)
    return text is not None and pattern.fullmatch(text) is not None


def is_ip(value: Any) -> bool:
    """Test for an IPv4 or IPv6 address."""
    return is_ipv4(value) or is_ipv6(value)


def is_ipv4(value: Any) -> bool:
    """Test for an IPv4 address: ``192.0.2.1``."""
    return _is_address(value, 4)


def is_ipv6(value: Any) -> bool:
    """Test for an IPv6 address: ``2001:db8::1``."""
    return _is_address(value, 6)


def _is_address(value: Any, version: int) -> bool:
    try:
        return isinstance(value, str) and ipaddress.ip_address(value).version == version
    except ValueError:
        return False


def is_int(value: Any) -> bool:
    """Test for a whole number."""
    return _fits(value, _INT)


def is_float(value: Any) -> bool:
    """Test for a number, whole or not."""
    return _fits(value, _FLOAT)


def is_hostname(value: Any) -> bool:
    """Test for a host name, with or without a domain."""
    # The maximum lengths in the DNS: 253 for a name, 63 for each label.
    return isinstance(value, str) and len(value) <= 253 and _fits(value, _HOSTNAME)


def is_fqdn(value: Any) -> bool:
    """Test for a host name with a domain, whose last part is not a number."""
    return is_hostname(value) and "." in value and not value.rpartition(".")[2].isdigit()


def is_shell_safe(value: Any) -> bool:
    """Test for text without shell characters that run, chain or redirect commands."""
    text = _text(value)
    return text is not None and not _SHELL_SPECIAL.search(text.strip())


def matches(value: Any, pattern: str) -> bool:
    """Test for text that contains a match of the regular expression. Anchor it with ``^`` and ``$``."""
    text = _text(value)
    return text is not None and regex.is_found(re.compile(pattern), text)


CHECKS: Final = {
    "ip": is_ip,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "int": is_int,
    "float": is_float,
    "duration": is_duration,
    "hostname": is_hostname,
    "fqdn": is_fqdn,
    "shell_safe": is_shell_safe,
}
