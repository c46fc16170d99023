"""Conversion of values for JSON and YAML."""

from collections.abc import Callable
from typing import Any

from hiera.errors import LookupFailure
from hiera.tree.ruby import values
from hiera.tree.ruby.values import OddKey, Symbol
from hiera.values.secrets import Decrypted, Secret


def printable(value: Any, secret: Callable[[Secret], Any] = str) -> Any:
    """Return ``value`` made of plain Python values. ``secret`` converts a secret, by default to the mask.

    Raises ``LookupFailure`` for numbers that JSON does not support.
    """
    if isinstance(value, dict):
        return {_name(name, secret): printable(item, secret) for name, item in value.items()}
    if isinstance(value, list):
        return [printable(item, secret) for item in value]
    if isinstance(value, Secret):
        return secret(value)
    # As Puppet prints the two symbols that data may contain, undef and default.
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise LookupFailure("", f"the number {values.inspect(value)} cannot be written")
    return value


def _name(name: Any, secret: Callable[[Secret], Any]) -> Any:
    """Return a key. JSON converts the key 1 to text later, which keeps it apart from "1" here."""
    if isinstance(name, OddKey):
        return printable(name.value, secret) if isinstance(name.value, Secret) else values.to_s(name)
    return values.inspect(name) if isinstance(name, float) else name


def with_decrypted(secret: Secret) -> Any:
    """Return a secret as ``puppet lookup`` shows it: decrypted texts in clear, ``Sensitive`` values masked."""
    return printable(secret.reveal(), with_decrypted) if isinstance(secret, Decrypted) else str(secret)


def revealed(secret: Secret) -> Any:
    """Return a secret with all its content in clear."""
    return printable(secret.reveal(), revealed)
