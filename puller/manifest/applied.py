"""The names and data with which a child manifest is applied, for reports, ``explain`` and ``render``."""

import msgspec

from foundation.masking import HIDDEN, mask_urls
from hiera.tree.ruby.values import printable
from puller.manifest.declaration import Declaration

_LONGEST = 60  # characters of the value of one key


def applied_as(declaration: Declaration) -> list[str]:
    """Return a sentence for each place that applies a child. Empty for other resources."""
    if declaration.child is None:
        return []
    return list(dict.fromkeys(_sentence(place) for place in declaration.places()))


def _sentence(place: Declaration) -> str:
    alias = f" as {place.properties.alias}" if place.properties.alias else ""
    return f"by {place.problems.source}{alias}, {_data(place)}"


def _data(place: Declaration) -> str:
    if place.child is None or getattr(place.properties, "data", None) is None:
        return "with its data"
    is_hidden = "data" in place.hidden
    pairs = [
        f"{key}: {HIDDEN if is_hidden else _shortened(value)}"
        for source in place.child.given.handed
        for key, value in source.data.items()
    ]
    return f"with {', '.join(pairs)}" if pairs else "without data"


def _shortened(value: object) -> str:
    text = mask_urls(msgspec.json.encode(printable(value), enc_hook=str).decode())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
