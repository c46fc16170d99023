"""URLs of git repositories: those that git may be given, and what must not be shown of them.

* A URL names a transport that only fetches. ``ext::`` runs a command, and what begins with ``-`` is an option.
* Credentials are taken out: git gets them by its environment, never by its arguments or its configuration.
"""

import base64
import re
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from foundation.masking import mask_location
from hiera.values.secrets import Secret

_SCHEMES = ("https", "http", "ssh", "git", "file")
PROTOCOLS = ":".join(_SCHEMES)
"""As ``GIT_ALLOW_PROTOCOL`` lists them."""
_WANTED = "wanted https://, http://, ssh://, git:// or file://, user@host:path, or an absolute path"
_HOST = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_USER = r"[A-Za-z0-9_][A-Za-z0-9._+-]*"
# As for ssh(1): the host up to the first colon, the path behind it.
_LIKE_SCP = re.compile(rf"({_USER}@)?({_HOST}|\[[0-9A-Fa-f:.]+\]):[^:\-].*")


class Remote(msgspec.Struct, frozen=True):
    """The place that a working tree comes from; ``url`` has no credentials in it."""

    url: str
    authorization: Secret | None = None
    """The value of the header for HTTP, when there are credentials."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The remote that a URL names; raises ``ValueError`` with a sentence that shows no credentials."""
        if not text.isprintable() or " " in text:
            raise ValueError("has blanks or control characters in it")
        if "://" in text:
            return cls._of_url(text)
        if text.startswith("/") or _LIKE_SCP.fullmatch(text):
            return cls(text)
        raise ValueError(f"is {mask_location(text)!r}, {_WANTED}")

    @classmethod
    def _of_url(cls, text: str) -> Self:
        shown = repr(mask_location(text))
        try:
            parts = urlsplit(text)
            host, password = parts.hostname or "", parts.password
            parts.port  # noqa: B018  raises for what is no number
        except ValueError as error:
            raise ValueError(f"is {shown}, which is not a URL: {error}") from None
        if parts.scheme not in _SCHEMES or (parts.scheme == "file") is bool(parts.netloc):
            raise ValueError(f"is {shown}, {_WANTED}")
        if parts.scheme != "file" and not re.fullmatch(rf"{_HOST}|[0-9A-Fa-f:.]+", host):
            raise ValueError(f"is {shown}, which names no host")
        # Git decodes a URL before it builds the command line of ssh: ``%2D`` is a hyphen and begins an option there.
        if not unquote(text).isprintable():
            raise ValueError(f"is {shown}, which has encoded control characters in it")
        if parts.query or parts.fragment:
            raise ValueError(f"is {shown}, wanted one without a query")
        if parts.scheme in ("http", "https"):
            return cls._of_http(parts)
        if password is not None:
            raise ValueError(f"is {shown}; only http:// and https:// take a password")
        if "@" in parts.netloc and not re.fullmatch(_USER, unquote(parts.username or "").replace("@", "_")):
            raise ValueError(f"is {shown}, whose user is not valid")
        return cls(text)

    @classmethod
    def _of_http(cls, parts: SplitResult) -> Self:
        userinfo, mark, host = parts.netloc.rpartition("@")
        url = parts._replace(netloc=host).geturl()
        if not mark:
            return cls(url)
        user, _, password = userinfo.partition(":")
        pair = f"{unquote(user)}:{unquote(password)}".encode()
        return cls(url, Secret(f"Authorization: Basic {base64.b64encode(pair).decode()}"))

    @property
    def environment(self) -> dict[str, str]:
        """The variables that tell git the credentials, for this server alone."""
        if self.authorization is None:
            return {}
        parts = urlsplit(self.url)
        return {
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": f"http.{parts.scheme}://{parts.netloc}/.extraHeader",
            "GIT_CONFIG_VALUE_0": self.authorization.reveal(),
            # After a redirect git asks the other server with the same headers.
            "GIT_CONFIG_KEY_1": "http.followRedirects",
            "GIT_CONFIG_VALUE_1": "false",
        }
