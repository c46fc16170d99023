"""Destinations of reports, as the configuration names them: a URL, a directory, or a prefix in an object store.

===================================  ===========================================================================
``https://fleet.example.com/r/``     PUT to ``https://fleet.example.com/r/HOST/RUN.json.gz``
``https://…/{host}/{run}.json.gz``   PUT to that, with the names of this host and of the run
``https://…/reports``                with ``method: POST``, as it is
``s3://bucket/prefix``               the object ``prefix/HOST/RUN.json.gz``, with the extra ``s3``
``/srv/reports``                     the file ``/srv/reports/HOST/RUN.json.gz``
===================================  ===========================================================================

To add a kind, write a ``Destination`` (``puller/delivery/destination.py``), and add its row to ``KINDS``.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from bundles.errors import SettingsError
from bundles.transport.settings import Location
from foundation.masking import mask_location, mask_urls
from hiera.values import Secret

HOST, RUN = "{host}", "{run}"
NAMED = f"{HOST}/{RUN}.json.gz"
"""Added to a location that ends with a slash, to a directory and to a prefix."""


class DestinationOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A destination of reports. Missing settings default to those in ``http`` for the site."""

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
        """Return the options of a list entry: a text or a mapping."""
        if isinstance(written, DestinationOptions):
            return written
        return cls(directory=written) if written.startswith("/") else cls(url=written)

    @property
    def location(self) -> str:
        """The URL or the directory, perhaps with credentials."""
        return self.url or self.directory or ""

    @property
    def kind(self) -> "Kind | None":
        """The row of ``KINDS``. ``None`` for an unknown kind."""
        return next((kind for kind in KINDS if kind.is_meant(self)), None)

    def given(self) -> set[str]:
        """Return the names of its connection settings."""
        return {name for name in _HOW_REACHED if getattr(self, name) not in (None, {})}


def find_destination_problem(
    destinations: Sequence[str | DestinationOptions],
) -> tuple[int, str] | None:
    """Return the first semantic error: its index, and the rest of the message."""
    visited: set[str] = set()
    for index, written in enumerate(destinations):
        options = DestinationOptions.of(written)
        for sentence in _problems(options):
            return index, sentence
        if options.location in visited:
            return index, f"names {mask_location(options.location)!r} twice"
        visited.add(options.location)
    return None


def _problems(options: DestinationOptions) -> Iterator[str]:
    if (options.url is None) is (options.directory is None):
        yield "requires either url or directory"
        return
    if (kind := options.kind) is None:
        schemes = ", ".join(
            start.removesuffix("://") for row in KINDS if row.key == "url" for start in row.starts
        )
        urls = "" if options.directory is not None else f"a URL ({schemes}) or "
        yield f"is {mask_location(options.location)!r}, expected {urls}the absolute path of a directory"
        return
    yield from kind.problems(options)
    provided = options.given() | ({"method"} if options.method else set())
    if unknown := provided - kind.settings:
        yield f"has {' and '.join(sorted(unknown))}, which {kind.title} does not support"


def _no_problems(options: DestinationOptions) -> Iterator[str]:
    del options
    yield from ()


def _problems_of_store(options: DestinationOptions) -> Iterator[str]:
    # 0.5 % of an idle run, and few hosts send there
    from foundation.object_store import Location as StoreLocation

    try:
        StoreLocation.parse(options.location)
    except ValueError as error:
        yield f"is not an object store: {error}"
    if not {"{", "}"}.isdisjoint(options.location):
        yield "is not an object store: expected s3://BUCKET/PREFIX without braces"


def _problems_of_url(options: DestinationOptions) -> Iterator[str]:
    url = options.location
    try:
        place = Location.parse(url)
    except SettingsError as error:
        yield str(error)
        return
    if any(mark in place.origin for mark in "{}"):
        yield f"is {place}: {HOST} and {RUN} are valid only in the path"
    remainder = place.base.replace(HOST, "").replace(RUN, "")
    if "{" in remainder or "}" in remainder:
        yield f"is {place}, where braces may contain only {HOST} and {RUN}"
    is_named = url.endswith("/") or (HOST in url and RUN in url)
    if options.method != "POST" and not is_named:
        detail = f"expected a URL that ends with '/' or contains {HOST} and {RUN}, or method: POST"
        yield f"is {place}, where each report would replace the previous report: {detail}"
    if options.client_key and not options.client_certificate:
        yield "has client_key without client_certificate"
    if options.token_file and (options.username or options.password or options.password_file):
        yield "has both token_file and a username or password"
    if (options.password or options.password_file) and not options.username:
        yield "has a password without username"


class Kind(NamedTuple):
    """A kind of destination."""

    title: str
    key: Literal["url", "directory"]
    starts: tuple[str, ...]
    """The beginnings of its locations."""
    settings: frozenset[str]
    """The supported settings."""
    problems: Callable[[DestinationOptions], Iterator[str]]
    """Return the problems of a location."""
    destination: str
    """The ``Destination``, as ``MODULE:CLASS``, so that only the modules of configured destinations are imported."""

    def is_meant(self, options: DestinationOptions) -> bool:
        """Return whether a location is of this kind."""
        location = getattr(options, self.key)
        return location is not None and location.startswith(self.starts)


_CREDENTIALS = ("client_certificate", "client_key", "username", "password", "password_file", "token_file")
_HOW_REACHED = frozenset({"proxy", "ca_bundle", "headers", *_CREDENTIALS})

KINDS = (
    Kind(
        title="a directory",
        key="directory",
        starts=("/",),
        settings=frozenset(),
        problems=_no_problems,
        destination="puller.delivery.destination:DirectoryDestination",
    ),
    Kind(
        title="a web server",
        key="url",
        starts=("http://", "https://"),
        settings=_HOW_REACHED | {"method"},
        problems=_problems_of_url,
        destination="puller.delivery.destination:WebDestination",
    ),
    Kind(
        title="an object store",
        key="url",
        starts=("s3://",),
        settings=frozenset({"proxy", "ca_bundle"}),
        problems=_problems_of_store,
        destination="puller.delivery.destination:ObjectStoreDestination",
    ),
)
