"""Destinations of reports, as the configuration names them: a URL, a directory, or a prefix in an object store.

===================================  ===========================================================================
``https://fleet.example.com/r/``     PUT to ``https://fleet.example.com/r/HOST/RUN.json.gz``
``https://…/{host}/{run}.json.gz``   PUT to that, with the names of this host and of the run
``https://…/reports``                with ``method: POST``, as it is
``s3://bucket/prefix``               the object ``prefix/HOST/RUN.json.gz``, with the extra ``s3``
``/srv/reports``                     the file ``/srv/reports/HOST/RUN.json.gz``
===================================  ===========================================================================
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from bundles.errors import SettingsError
from bundles.transport.location import Location
from foundation.masking import mask_location, mask_urls
from hiera.values.secrets import Secret

HOST, RUN = "{host}", "{run}"
NAMED = f"{HOST}/{RUN}.json.gz"
"""What is added to a location that ends with a slash, to a directory and to a prefix."""
S3 = "s3://"

_WEB = ("http://", "https://")
_OF_STORES = frozenset({"proxy", "ca_bundle"})
"""The settings that an object store has, too; its credentials are those of its client."""


class DestinationOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A place that reports are sent to; what is not given of how it is reached is as ``http`` says for the site."""

    url: str | None = None
    directory: str | None = None
    method: Literal["PUT", "POST"] | None = None
    """``None``: PUT."""
    proxy: Secret | None = None
    ca_bundle: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    username: str | None = None
    password: Secret | None = None
    password_file: str | None = None
    token_file: str | None = None
    headers: dict[str, Secret] = {}

    def __repr__(self) -> str:
        return mask_urls(super().__repr__())

    @classmethod
    def of(cls, written: "str | DestinationOptions") -> "DestinationOptions":
        """As it is written in the list: a text alone, or a mapping."""
        if isinstance(written, DestinationOptions):
            return written
        return cls(directory=written) if written.startswith("/") else cls(url=written)

    @property
    def location(self) -> str:
        """The URL or the directory; it may hold credentials."""
        return self.url or self.directory or ""

    @property
    def is_store(self) -> bool:
        """Whether it is an object store's."""
        return self.location.startswith(S3)

    def given(self) -> set[str]:
        """The names of the settings of how it is reached."""
        fields = ("proxy", "ca_bundle", *_OF_THE_WEB, "headers")
        return {name for name in fields if getattr(self, name) not in (None, {})}


_OF_THE_WEB = ("client_certificate", "client_key", "username", "password", "password_file", "token_file")


def find_destination_problem(
    destinations: Sequence[str | DestinationOptions],
) -> tuple[int, str] | None:
    """The first that is wrong beyond types: its index, and how the sentence goes on."""
    seen: set[str] = set()
    for index, written in enumerate(destinations):
        options = DestinationOptions.of(written)
        for sentence in _problems(options):
            return index, sentence
        if options.location in seen:
            return index, f"names {mask_location(options.location)!r} twice"
        seen.add(options.location)
    return None


def _problems(options: DestinationOptions) -> Iterator[str]:
    if (options.url is None) is (options.directory is None):
        yield "wants either url or directory"
        return
    if options.directory is not None:
        if not options.directory.startswith("/"):
            yield f"is {options.directory!r}, wanted the absolute path of a directory"
        yield from _without(
            options, options.given() | ({"method"} if options.method else set()), "a directory"
        )
    elif options.is_store:
        given = options.given() - _OF_STORES | ({"method"} if options.method else set())
        yield from _problems_of_store(options.location)
        yield from _without(options, given, "an object store")
    else:
        yield from _problems_of_url(options)


def _without(options: DestinationOptions, given: set[str], what: str) -> Iterator[str]:
    if given:
        yield f"has {' and '.join(sorted(given))}, which {what} has not"


def _problems_of_store(location: str) -> Iterator[str]:
    bucket = location.removeprefix(S3).partition("/")[0]
    if not bucket.replace("-", "").replace(".", "").isalnum() or not {"{", "}", "?", "#"}.isdisjoint(
        location
    ):
        what = "wanted s3://BUCKET/PREFIX; credentials are those of the environment or ~/.aws"
        yield f"is no object store: {what}"


def _problems_of_url(options: DestinationOptions) -> Iterator[str]:
    url = options.location
    if not url.startswith(_WEB):
        shown = mask_location(url)
        yield f"is {shown!r}, wanted a URL (http, https, s3) or the absolute path of a directory"
        return
    try:
        place = Location.parse(url)
    except SettingsError as error:
        yield str(error)
        return
    if any(mark in place.origin for mark in "{}"):
        yield f"is {place}: {HOST} and {RUN} may stand in the path only"
    rest = place.base.replace(HOST, "").replace(RUN, "")
    if "{" in rest or "}" in rest:
        yield f"is {place}, which may have {HOST} and {RUN} and nothing else in braces"
    is_named = url.endswith("/") or (HOST in url and RUN in url)
    if options.method != "POST" and not is_named:
        what = f"wanted one that ends with '/', or {HOST} and {RUN} in it, or method: POST"
        yield f"is {place}, where each report would replace the one before: {what}"
    if options.client_key and not options.client_certificate:
        yield "has client_key without client_certificate"
    if options.token_file and (options.username or options.password or options.password_file):
        yield "has both token_file and a username or password"
    if (options.password or options.password_file) and not options.username:
        yield "has a password without username"
