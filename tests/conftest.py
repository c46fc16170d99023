"""Fixtures for all tests: private directories for each worker, and a publisher, a web server and a host.

The plugins select the tests of a run (`tests/support/selection.py`), start workers and enforce time limits
(`tests/support/processes.py`), and record the results of tests of attacks (`tests/attack_results.py`).
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from bundles.confined.current import confined
from bundles.confined.network import Network
from bundles.publisher.new_site import make_site
from tests.support.stories import Execute, Host, Publisher, Web, WebServer, execute_here
from tests.support.sweeps import Sweep

pytest_plugins = ["tests.attack_results", "tests.support.selection", "tests.support.processes"]


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """``tell(line)`` for the end of the run, where it is seen beside the tests being green."""
    return partial(record_property, "told")


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether this run may take hours."""
    asked: bool = request.config.option.thorough
    return asked


@pytest.fixture(
    params=[
        pytest.param(5, id="every fifth step"),
        pytest.param(1, id="every step", marks=pytest.mark.crash),
    ]
)
def sweep(request: pytest.FixtureRequest) -> Sweep:
    """``sweep(happens_at)`` lets something happen at step after step, until one is beyond the last; gives how many
    there are.

    ``happens_at`` tells whether it happened. A plain run tries the first, every fifth and the last ones, and what is
    left out of it tries each.
    """
    stride: int = request.param

    def tried(happens_at: Callable[[int], bool]) -> int:
        beyond = next(step for step in count(0, stride) if not happens_at(step))
        between = range(max(0, beyond - stride + 1), beyond)
        return next((step for step in between if not happens_at(step)), beyond)

    return tried


# --- a publisher and a host ---------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def _own_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The places of commands without a configuration are not this machine's or user's, nor another worker's.

    Two workers that share the lock of a user would find each other at work.
    """
    places = tmp_path_factory.mktemp("places")
    (places / "login").mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(places / "users"))
        patch.setenv("XDG_RUNTIME_DIR", str(places / "login"))
        patch.setattr("puller.state.directories._ROOT_STATE", places / "state")
        patch.setattr("puller.state.directories._ROOT_RUN", places / "run")
        yield


CONFINED = (
    "puller.run.jobs.confined",
    "puller.run.jobs.confined_when_needed",
    "puller.cli.ensure.ensure.confined_when_needed",
)
"""Where jobs are given the processes that speak to the network."""


@pytest.fixture(scope="session", autouse=True)
def _one_process() -> Iterator[None]:
    """What is run in this process speaks to the network by itself: workers for thousands of runs take minutes.

    Tests of workers ask for the fixture ``workers``; what is started as a program has them in any case.
    """
    with pytest.MonkeyPatch.context() as patch:
        for place in CONFINED:
            patch.setattr(place, lambda *_, **__: contextlib.nullcontext(Network()))
        patch.setattr("puller.cli._make_network", Network)
        yield


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of tests that workers import: a worker is told where the agent finds its modules."""
    monkeypatch.syspath_prepend(Path(__file__).parent / "simulators/workers")


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is run in this process speaks to the network by workers, as the agent does."""
    for place in CONFINED:
        monkeypatch.setattr(place, lambda *_, **__: confined())


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebServer]:
    """What ``publisher`` deploys to and ``host`` pulls from; system tests have nginx instead."""
    (tmp_path / "www").mkdir()
    server = WebServer(tmp_path / "www")
    yield server
    server.stop()


@pytest.fixture
def execute() -> Execute:
    """What runs ``puller``; system tests have the installed command instead."""
    return execute_here


@pytest.fixture(scope="session")
def new_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site as ``puller site init`` makes it: making one takes longer than many a story that begins with it."""
    return make_site(tmp_path_factory.mktemp("publisher") / "site", None).directory


@pytest.fixture
def publisher(tmp_path: Path, web: Web, new_site: Path) -> Publisher:
    """A publisher of nothing yet."""
    return Publisher(tmp_path / "publisher", web.root, like=new_site)


@pytest.fixture
def host(tmp_path: Path, web: Web, publisher: Publisher, execute: Execute) -> Host:
    """A host that follows ``publisher``, and has not run yet."""
    return Host(tmp_path / "host", publisher.site.anchor, web.url, execute)


@pytest.fixture
def settled(host: Host, publisher: Publisher) -> Host:
    """A host on which the story's 1.0.0 is in force."""
    publisher.publish("1.0.0")
    assert host.run().status == 0
    return host
