"""The network access of this process. Separate from ``network``, which few runs of ``apply`` need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bundles.confined.network import Network


class _Way:
    """A network, created on demand."""

    def __init__(self, network: Network | None) -> None:
        self.network = network

    def made(self) -> Network:
        """Return the network, created on first use."""
        if self.network is None:
            from bundles.confined.network import Network  # 1 % of an idle apply, which uses no network

            self.network = Network()
        return self.network


_current: _Way | None = None


@contextlib.contextmanager
def confined(network: Network | None = None, *, at_once: bool = False) -> Iterator[Network]:
    """Send all network requests through unprivileged workers while the block runs.

    ``at_once`` forks the first worker now, before secrets are read. A fork takes a fraction of the time of a new
    program, which later workers need. ``network`` may already have such a forked worker.
    """
    key_path = _Way(network)
    with _used(key_path):
        if at_once:
            key_path.made().split_off()
        yield key_path.made()


def confined_when_needed() -> contextlib.AbstractContextManager[None]:
    """Like ``confined``, for commands that may not need the network."""
    return _used(_Way(None))


@contextlib.contextmanager
def _used(way: _Way) -> Iterator[None]:
    global _current  # as in ``bundles.progress``: one per process
    before, _current = _current, way
    try:
        yield
    finally:
        _current = before
        if way.network is not None:
            way.network.close()


def missing_protections() -> list[str]:
    """Return a sentence for each protection that the kernel lacks, as reported by workers so far."""
    network = None if _current is None else _current.network
    return [] if network is None else [*network.missing.values()]


def current() -> Network | None:
    """Return the network for requests. ``None``: this process sends them itself."""
    return None if _current is None else _current.made()
