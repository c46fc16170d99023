"""The way in which this process speaks to the network; apart from ``network``, which few runs of ``apply`` need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bundles.confined.network import Network


class _Way:
    """A way to the network, or one that is made when it is first asked for."""

    def __init__(self, network: Network | None) -> None:
        self.network = network

    def made(self) -> Network:
        """The network, made now unless it was before."""
        if self.network is None:
            from bundles.confined.network import Network

            self.network = Network()
        return self.network


_current: _Way | None = None


@contextlib.contextmanager
def confined(network: Network | None = None, *, at_once: bool = False) -> Iterator[Network]:
    """While the block runs, what is fetched and sent over the network is so by workers without privileges.

    ``at_once``: the worker of the first session is split off now, before anything secret is read. That is a fraction of
    the work of starting a new program, which the others are from, when they are needed; ``network`` is one of which it
    was split off before.
    """
    way = _Way(network)
    with _used(way):
        if at_once:
            way.made().split_off()
        yield way.made()


def confined_when_needed() -> contextlib.AbstractContextManager[None]:
    """As ``confined``, for who may have nothing to fetch."""
    return _used(_Way(None))


@contextlib.contextmanager
def _used(way: _Way) -> Iterator[None]:
    global _current  # as ``bundles.progress``: one process has one way to the network
    before, _current = _current, way
    try:
        yield
    finally:
        _current = before
        if way.network is not None:
            way.network.close()


def missing_protections() -> list[str]:
    """Return a sentence for each protection of the workers that the kernel lacks, as far as workers were started."""
    network = None if _current is None else _current.network
    return [] if network is None else [*network.missing.values()]


def current() -> Network | None:
    """How the network is to be spoken to; ``None``: by this process itself."""
    return None if _current is None else _current.made()
