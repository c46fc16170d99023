"""Masks for secrets.

* ``MASK`` replaces credentials and parts of URLs.
* ``VALUE_MASK`` replaces a secret of the data, also within other text. It is Puppet's text, which Hiera prints. It also
  takes part in comparisons of values, so it must not occur in ordinary files, as ``***`` does.
* ``HIDDEN`` replaces a whole sensitive property.
* ``Secret`` in ``hiera/values.py`` is a value that prints as a mask. ``puller/manifest/masking.py`` masks secrets in
  messages of a run.
* External text (a URL, a library's error) goes through `mask_urls` before it is displayed.
"""

import re
from typing import Protocol

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
