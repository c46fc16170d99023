"""All masks of secrets.

* ``MASK`` stands for credentials and for parts of URLs.
* ``VALUE_MASK`` stands for a secret of the data, also inside of other text. It has Puppet's words, which Hiera prints.
  Two values are also compared by it, so it must not occur in ordinary files, as ``***`` does.
* ``HIDDEN`` stands for a whole property that is sensitive.

* The type of secrets is ``hiera/values/secrets.py``. Credentials are handed in as anything that prints as a mask and
  gives its text to ``reveal`` alone, such as Puller's one type for secrets.
* Text from outside (a URL, a library's error) goes through `mask_urls` before it is shown; every error of this
  package does that by itself.
"""

from typing import Protocol

MASK = "***"
VALUE_MASK = "Sensitive [value redacted]"
HIDDEN = "(sensitive)"

# Not compiled here: most texts hold no URL.
# The user information of a URL: everything between "://" and the last "@" before the path.
_USERINFO = r"(?<=://)[^/?#\s]*@"
_UP_TO_LAST_AT = r"(?s)\A(\W?[A-Za-z]+:/*)?.*@"
# A query ends with the URL: at a blank, a comma or a quote; a colon behind it belongs to the sentence.
_QUERY = r"(https?://[^\s?#'\"]*)\?[^\s,'\"]*?(?=:?(?:[\s,'\"]|$))"


class Hidden(Protocol):
    """A text such as a password or a token; its ``str`` and ``repr`` are masks."""

    def reveal(self) -> str:
        """The text itself, for the one place that needs it."""
        ...


def mask_userinfo(text: str) -> str:
    """``text`` with the user name and password of every URL in it masked."""
    if "@" not in text:
        return text
    import re  # most texts hold no URL

    return re.sub(_USERINFO, f"{MASK}@", text)


def mask_location(text: str) -> str:
    """A text that is one URL, perhaps a broken one, with what stands before its last ``@`` and its query masked."""
    import re

    location, mark, _ = re.sub(_UP_TO_LAST_AT, rf"\1{MASK}@", text).partition("?")
    return f"{location}?{MASK}" if mark else location


def mask_urls(text: str) -> str:
    """``text`` with user name, password and query of every URL masked: in a signed URL the query is the permission."""
    if "://" not in text:
        return text
    import re

    return re.sub(_QUERY, rf"\1?{MASK}", mask_userinfo(text))
