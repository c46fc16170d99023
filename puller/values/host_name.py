"""Host names that are valid in paths and URLs.

A name may come from a resolver, a custom fact or another machine. In a path it must be the name of one directory.
"""

LONGEST = 253
"""Characters of a host name (RFC 1035)."""
EXPECTED_NAME = (
    f"expected letters, digits, '.', '-' and '_', not starting with '.', at most {LONGEST} of them"
)

_ALLOWED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_")


def is_host_name(text: str) -> bool:
    """Return whether a text can be the name of a host's directory."""
    return 0 < len(text) <= LONGEST and text[0] != "." and _ALLOWED.issuperset(text)
