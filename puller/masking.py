"""What a run says of a resource, without the secrets that went into its properties.

Types do not show what must not be shown; this is for the sentences of others: of a server that quotes a URL, of the
system about a path, of a health check that prints what it was given.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from hiera.secrets import MASK
from puller.manifest.declaration import Declaration
from puller.report import Event


def mask(event: Event, declaration: Declaration) -> None:
    """Take the values of secret properties out of all texts of the event."""
    values = msgspec.to_builtins(declaration.properties, enc_hook=str)
    texts = {text for name in declaration.secret & values.keys() for text in _texts(values[name])}
    for text in sorted(texts, key=len, reverse=True):  # one may hold another
        event.errors = [error.replace(text, MASK) for error in event.errors]
        event.differences = [difference.replace(text, MASK) for difference in event.differences]
        event.noop_message = event.noop_message.replace(text, MASK)
    if "health_checks" in declaration.secret:
        # Their output may hold any part of the command.
        event.errors = [_without_output(error, event) for error in event.errors]
        for result in event.health_checks:
            result.output = MASK if result.output else ""


def _without_output(error: str, event: Event) -> str:
    for result in event.health_checks:
        if result.output:
            error = error.replace(result.output, MASK)
    return error


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value that is not blank."""
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
