"""Names of hosts that may stand in paths and URLs.

A name may come from a resolver, a custom fact or another machine; in a path it is the name of one directory, whatever
it is.
"""

LONGEST = 253
"""Characters of a host name (RFC 1035)."""
WANTED = f"wanted letters, digits, '.', '-' and '_', not '.' first, at most {LONGEST} of them"

_ALLOWED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_")


def is_host_name(text: str) -> bool:
    """Whether a text can be the name of a host's directory."""
    return 0 < len(text) <= LONGEST and text[0] != "." and _ALLOWED.issuperset(text)
