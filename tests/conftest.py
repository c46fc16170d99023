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
from bundles.publisher.lifecycle import make_site
from tests.support.sites import BIN_BITS
from tests.support.stories import Execute, Host, Publisher, Web, WebServer, execute_here
from tests.support.sweeps import Sweep

pytest_plugins = ["tests.attack_results", "tests.support.selection", "tests.support.processes"]


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Return ``tell(line)``, which prints a line in the summary at the end of the run."""
    return partial(record_property, "told")


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Return whether this run may take hours."""
    requested: bool = request.config.option.thorough
    return requested


@pytest.fixture(
    params=[
        pytest.param(10, id="every tenth step"),
        pytest.param(1, id="every step", marks=pytest.mark.crash),
    ]
)
def sweep(request: pytest.FixtureRequest) -> Sweep:
    """Return ``sweep(happens_at)``, which makes a fault happen at each step and returns the number of steps.

    ``happens_at(step)`` returns whether the fault happened: it does not after the last step. A plain run tries the
    first, every tenth and the last steps. ``--left-out`` tries each step.
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
    """Set private default paths for commands without a configuration, instead of paths of this machine or user.

    Two workers with the same user's lock would block each other.
    """
    places = tmp_path_factory.mktemp("places")
    (places / "login").mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(places / "users"))
        patch.setenv("XDG_RUNTIME_DIR", str(places / "login"))
        patch.setattr("puller.state._ROOT_STATE", places / "state")
        patch.setattr("puller.state._ROOT_RUN", places / "run")
        yield


CONFINED = (
    "puller.run.jobs.confined",
    "puller.run.jobs.confined_when_needed",
    "puller.cli.ensure.confined_when_needed",
)
"""Names to patch where jobs create the worker processes for network access."""


@pytest.fixture(scope="session", autouse=True)
def _one_process() -> Iterator[None]:
    """Let jobs in this process access the network directly: worker processes for thousands of runs take minutes.

    Tests of workers request the fixture ``workers``. Programs that tests start always use workers.
    """
    with pytest.MonkeyPatch.context() as patch:
        for place in CONFINED:
            patch.setattr(place, lambda *_, **__: contextlib.nullcontext(Network()))
        patch.setattr("puller.cli._make_network", Network)
        yield


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the test modules that workers import to the path. The agent passes its own path to its workers."""
    monkeypatch.syspath_prepend(Path(__file__).parent / "simulators/workers")


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs in this process access the network by worker processes, as the agent does."""
    for place in CONFINED:
        monkeypatch.setattr(place, lambda *_, **__: confined())


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebServer]:
    """Web server that ``publisher`` deploys to and ``host`` pulls from. System tests replace it with nginx."""
    (tmp_path / "www").mkdir()
    server = WebServer(tmp_path / "www")
    yield server
    server.stop()


@pytest.fixture
def execute() -> Execute:
    """Function that runs ``puller``. System tests replace it with the installed command."""
    return execute_here


@pytest.fixture(scope="session")
def new_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """New site with 16 bins, made once: creating a site takes longer than many of the stories."""
    return make_site(tmp_path_factory.mktemp("publisher") / "site", None, bin_bits=BIN_BITS).directory


@pytest.fixture
def publisher(tmp_path: Path, web: Web, new_site: Path) -> Publisher:
    """Publisher without any bundle yet."""
    return Publisher(tmp_path / "publisher", web.root, like=new_site)


@pytest.fixture
def host(tmp_path: Path, web: Web, publisher: Publisher, execute: Execute) -> Host:
    """Host that follows ``publisher`` and has not run yet."""
    return Host(tmp_path / "host", publisher.site.anchor, web.url, execute)


@pytest.fixture
def settled(host: Host, publisher: Publisher) -> Host:
    """Host that enforces version 1.0.0 of the story."""
    publisher.publish("1.0.0")
    assert host.run().status == 0
    return host
