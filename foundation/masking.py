"""Masks for secrets.

* ``MASK`` replaces credentials and parts of URLs.
* ``VALUE_MASK`` replaces a secret of the data, also within other text. It is Puppet's text, which Hiera prints. It also
  takes part in comparisons of values, so it must not occur in ordinary files, as ``***`` does.
* ``HIDDEN`` replaces a whole sensitive property.
* ``Mask`` masks secrets in messages. ``puller/manifest/masking.py`` applies it to the messages of a run.
* ``Secret`` in ``hiera/values.py`` is a value that prints as a mask.
* External text (a URL, a library's error) goes through `mask_urls` before it is displayed.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol
from urllib.parse import quote

import msgspec

MASK = "***"
VALUE_MASK = "Sensitive [value redacted]"
HIDDEN = "(sensitive)"

# Not compiled at import, because most texts contain no URL. The user information of a URL: everything between "://" and
# the last "@" before the path.
_USERINFO = r"(?<=://)[^/?#\s]*@"
_UP_TO_LAST_AT = r"(?s)\A(\W?[A-Za-z]+:/*)?.*@"
# A query ends with the URL: at a blank, a comma or a quote. A final colon belongs to the sentence.
_QUERY = r"(https?://[^\s?#'\"]*)\?[^\s,'\"]*?(?=:?(?:[\s,'\"]|$))"


class Hidden(Protocol):
    """A text such as a password or a token. Its ``str`` and ``repr`` are masks."""

    def reveal(self) -> str:
        """Return the text itself."""
        ...


def mask_userinfo(text: str) -> str:
    """Mask the user name and password of every URL in ``text``."""
    if "@" not in text:
        return text
    return re.sub(_USERINFO, f"{MASK}@", text)


def mask_location(text: str) -> str:
    """Mask a single URL, possibly a broken one: everything before its last ``@``, and its query."""
    location, mark, _ = re.sub(_UP_TO_LAST_AT, rf"\1{MASK}@", text).partition("?")
    return f"{location}?{MASK}" if mark else location


def mask_urls(text: str) -> str:
    """Mask user name, password and query of every URL in ``text``. The query of a signed URL grants access."""
    if "://" not in text:
        return text
    return re.sub(_QUERY, rf"\1?{MASK}", mask_userinfo(text))


SHORTEST = 4
"""Characters. Shorter texts occur in too many other words."""


class Mask:
    """Replaces each of ``texts`` by ``VALUE_MASK``.

    Finds a text as it is, by each of its lines, in upper and lower case, and as Python, JSON and URLs write it. It does
    not find other encodings, such as base64.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        forms = {form for text in texts for form in _forms(text) if len(form) >= SHORTEST}
        longest_first = sorted(forms, key=len, reverse=True)  # one may contain another
        self._forms = [(form.casefold(), form) for form in longest_first]

    @property
    def is_empty(self) -> bool:
        """Whether it has no secrets."""
        return not self._forms

    def __call__(self, text: str) -> str:
        """Return ``text`` with masked secrets."""
        # Ignores case, because some names are secrets in capitals. The expression contains only forms that occur: for
        # all lines of a large secret it would take seconds to compile.
        folded = text.casefold()
        results = [re.escape(form) for form_folded, form in self._forms if form_folded in folded]
        return re.sub("|".join(results), VALUE_MASK, text, flags=re.IGNORECASE) if results else text


def _forms(text: str) -> Iterator[str]:
    """Yield the forms of a secret text in messages."""
    yield from (text, *(line.strip() for line in text.splitlines()))
    for write in _WRITERS:
        # Undecodable bytes of the environment cannot occur in JSON or URLs.
        with suppress(UnicodeEncodeError):
            yield from (write(text), write(text.strip()))


def _as_in_url(text: str) -> str:
    return quote(text, safe="")


_WRITERS: tuple[Callable[[str], str], ...] = (
    lambda text: msgspec.json.encode(text).decode()[1:-1],
    lambda text: repr(text)[1:-1],
    _as_in_url,
)
