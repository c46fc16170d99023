"""Which tests a plain `pytest` leaves out, the line at its end that says so, and the people of many stories.

* Without `-m`, tests that need more than Python are left out: nginx, strace, a booted Debian, tools to compare
  with, clones of the repository; and, for an ordinary user, tests that need root. What happens to be installed makes
  no difference, so that the same tests run everywhere.
* With `--left-out` exactly those are run. With `-m`, the expression alone decides.
* With `--no-skips`, a skipped test is a failure: `.ci/run` installs what every test needs.
* Stories of hundreds of runs, and matrices of hundreds of points, are a random part of themselves unless `--thorough`
  asks for all of it: the fixture `thorough`. Another part is tried each time.
* The mark `attack` and `--attack-results` are in `attack_results.py`.

What tries every step or moment of something tries some of them in a plain run, and each one with `--left-out`, as its
mark `crash` says: the fixture `sweep`.

Tests are spread over all processors by pytest-xdist. What each of its workers says at its end, and what tests tell with
the fixture `tell`, is put together in the process that started them.
"""

import contextlib
import errno
import faulthandler
import gc
import io
import json
import os
import random
import re
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, settings

from bundles.confined.current import confined
from bundles.confined.network import Network
from bundles.publisher.channels import Channels
from bundles.publisher.keys import make_key
from bundles.publisher.new_site import make_site
from bundles.publisher.publication import publish_bundle
from bundles.publisher.renewal import refresh_site
from bundles.publisher.roles import RoleKeys
from bundles.publisher.site import Site
from bundles.publisher.statements import AT_ONCE, RolloutRequest
from bundles.publisher.web_server import SiteHandler, SiteServer
from puller.cli import main
from puller.reporting.history import load_all_events
from puller.state.directories import Directories

# In the order in which a test with several marks is counted; each is a marker in pyproject.toml. The numbers are
# seconds: limits for tests that take longer than the one of pyproject.toml allows, at least three times what they take.
LEFT_OUT = {
    "clones": 3600,
    "booted": 1800,
    "packages": 1800,
    "nginx": 1800,
    "strace": 600,
    "crash": 1800,
    "facter": 300,
    "eyaml": 300,
    "softhsm": 300,
    "promtool": 300,
    "postgresql": 600,
    "chromium": 600,
    "shells": 300,
}

# Generated cases: a few in the loop that everybody waits for, many in the gate (`--hypothesis-profile=thorough`).
# Tests of hostile input ask for multiples of these.
# How long a case takes says nothing while others use the machine.
settings.register_profile(
    "plain", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("plain"), max_examples=100)
settings.load_profile("plain")

MEMORY = Path("/dev/shm")
"""Where ``tmp_path`` is, unless TMPDIR or --basetemp say otherwise: on a disk, half of the time goes to syncs."""

left_out = pytest.StashKey[Counter[str]]()
stderr = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    plugin = run_path(
        str(Path(__file__).with_name("attack_results.py"))
    )  # tests are not a package to import from
    pluginmanager.register(SimpleNamespace(**plugin), "attack_results")
    parser.addoption(
        "--left-out", action="store_true", help="run what is left out otherwise, and nothing else"
    )
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails the run")
    parser.addoption(
        "--thorough", action="store_true", help="long stories whole, and the crash matrix at each point"
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two for each processor, as many tests wait for processes of their own.

    A few files are run here: to start workers takes longer than these tests.
    """
    are_files = [".py" in argument for argument in config.args]
    return 0 if all(are_files) and len(are_files) < 4 else 2 * len(os.sched_getaffinity(0))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[left_out] = Counter()
    config.stash[stderr] = os.dup(2)  # while a test runs, its output is caught
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's `&`; tests interrupt what they start
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def has_room(directory: Path) -> bool:
    """Whether all files of the tests fit in there, and those that are programs can be started."""
    with contextlib.suppress(OSError):
        found = os.statvfs(directory)
        is_large = found.f_bavail * found.f_frsize > 2 * 1024**3
        return is_large and not found.f_flag & os.ST_NOEXEC and os.access(directory, os.W_OK)
    return False


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """All that is collected stays until the end, so that nothing is gained by searching it for garbage."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    why = {item: needs(item) for item in items}
    for item, mark in why.items():
        if mark in LEFT_OUT and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LEFT_OUT[mark]))
    if config.option.markexpr:
        return
    rest = [item for item in items if bool(why[item]) is config.option.left_out]
    if not config.option.left_out:
        config.stash[left_out].update(mark for mark in why.values() if mark)
    wanted = set(rest)
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = rest


@pytest.hookimpl(optionalhook=True)  # of pytest-timeout
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """The interpreter itself prints the stacks of all threads and ends the process, whatever the test hangs in.

    An exception from a signal would not reach every hanging test, and may be what made it hang. Another worker goes on
    with the rest.
    """
    faulthandler.dump_traceback_later(settings.timeout, exit=True, file=item.config.stash[stderr])
    return True


@pytest.hookimpl(optionalhook=True)  # of pytest-timeout
def pytest_timeout_cancel_timer() -> bool:
    faulthandler.cancel_dump_traceback_later()
    return True


def pytest_enter_pdb() -> None:
    faulthandler.cancel_dump_traceback_later()


def needs(item: pytest.Item) -> str | None:
    """The mark for which a plain run leaves this test out."""
    marks = (*LEFT_OUT,) if os.geteuid() == 0 else (*LEFT_OUT, "root")
    has = {mark.name for mark in item.iter_markers()}
    return next((mark for mark in marks if mark in has), None)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended; all of them have left out the same."""
    if sent := getattr(node, "workeroutput", {}).get("left_out"):
        node.config.stash[left_out] = Counter(sent)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in told(terminalreporter):
        terminalreporter.write_line(line)
    if counts := config.stash[left_out]:
        each = ", ".join(f"{count} {mark}" for mark, count in counts.items())
        how = "pytest --left-out; .ci/run does that too, and installs what it takes"
        terminalreporter.write_line(f"Left out: {counts.total()} tests, {each} (run them with: {how})")


def told(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    """What tests have told with the fixture of this name."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                yield from (str(line) for name, line in report.user_properties if name == "told")


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        counts = config.stash[left_out]
        config.workeroutput["left_out"] = dict(counts)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if config.option.no_skips and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """``tell(line)`` for the end of the run, where it is seen beside the tests being green."""
    return partial(record_property, "told")


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether this run may take hours."""
    asked: bool = request.config.option.thorough
    return asked


Sweep = Callable[[Callable[[int], bool]], int]


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

# What most stories publish: a directory, a file that VERSION changes, one that it does not, and what follows the first.
STORY = """\
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd":
          content: |
            Hello from VERSION
      - "{{ facts.machine }}/app.conf": {source: files/app.conf}
  - exec:
      - reload:
          command: sh -c 'echo VERSION >> {{ facts.machine }}/reloads'
          refreshonly: true
          subscribe: ["file#{{ facts.machine }}/motd"]
"""
STORY_FILES = {"files/app.conf": b"workers = 2\n"}


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
        patch.setattr("puller.cli.quick._make_network", Network)
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


class Outcome(NamedTuple):
    """How a command ended, and all that it printed."""

    status: int
    output: str


Execute = Callable[..., tuple[int, str]]
Server = TypeVar("Server")


def execute_here(*arguments: str) -> tuple[int, str]:
    """Run ``puller`` in this process, which takes a tenth of the time of a new one."""
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        pytest.raises(SystemExit) as ended,
    ):
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.getvalue()


class Publisher:
    """Publishes bundles in channel stable, and deploys to ``served``, which tests tamper with."""

    story = STORY
    story_files = STORY_FILES

    def __init__(self, directory: Path, served: Path, like: Path | None = None) -> None:
        """With a site of its own, or a copy of the one in the directory ``like``, keys included."""
        if like is None:
            self.site = make_site(directory / "site", None)
        else:
            self.site = Site(shutil.copytree(like, directory / "site"))
        self.served = served
        self._sources = directory / "sources"

    def publish(
        self,
        version: str,
        manifest: str = STORY,
        *,
        name: str = "web",
        files: Mapping[str, bytes] = STORY_FILES,
        request: RolloutRequest = AT_ONCE,
    ) -> None:
        """Publish a bundle, with its version for VERSION in the manifest, and deploy it."""
        source = self._sources / f"{name}-{version}"
        for path, data in {"manifest.yaml": manifest.replace("VERSION", version).encode(), **files}.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(data)
        publish_bundle(self.site, source, _no_passphrase, name=name, version=version, request=request)
        self.deploy()

    def rotate(self, role: str) -> None:
        """Replace the key of a role, and deploy it."""
        RoleKeys(self.site, _no_passphrase).rotate(role, lambda: make_key(None))
        self.deploy()

    def say(self, statement: Callable[[Channels], object]) -> None:
        """Say something about what is published already, and deploy it."""
        statement(Channels(self.site, _no_passphrase))
        self.deploy()

    def refresh(self) -> None:
        """Sign anew what is due, and deploy it."""
        refresh_site(self.site, _no_passphrase)
        self.deploy()

    def deploy(self) -> None:
        """As ``rsync --delete`` would: what a test did to ``served`` is undone."""
        for entry in self.served.iterdir():
            shutil.rmtree(entry)
        shutil.copytree(self.site.public, self.served, dirs_exist_ok=True)

    @contextlib.contextmanager
    def at_another_time(self, **difference: float) -> Iterator[None]:
        """While the block runs, this publisher's clock differs from the hosts': ``days=-30``."""
        usual = self.site
        self.site = Site(usual.directory, lambda: datetime.now(UTC) + timedelta(**difference))
        try:
            yield
        finally:
            self.site = usual

    def newest(self, pattern: str) -> Path:
        """The file of this kind that was published last, where it is served."""
        public = self.site.public
        found = max(public.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
        return self.served / found.relative_to(public)


def _no_passphrase(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


class Host:
    """A host that follows one site: ``machine`` is what it manages, everything else is below ``directory``, too."""

    def __init__(self, directory: Path, anchor: Path, url: str, execute: Execute) -> None:
        self.machine, self.state = directory / "machine", directory / "state"
        self.settings: dict[str, Any] = {
            "site": url,
            "bundles": [{"name": "web"}],
            "trust_anchor": str(directory / "root.json"),
            "host_name": "web01.example.com",
            "host_data": str(directory / "data.yaml"),
            "host_data_directory": str(directory / "data.d"),
            "facts_directory": str(directory / "facts.d"),
            "http": {"retries": 0},
            "state_directory": str(self.state),
            "run_directory": str(directory / "run"),
        }
        self.configuration = directory / "config.yaml"
        self._execute = execute
        (directory / "facts.d").mkdir(parents=True)
        facts = {"machine": str(self.machine), "uid": os.geteuid(), "gid": os.getegid()}
        (directory / "facts.d" / "story.json").write_text(json.dumps(facts))
        shutil.copyfile(anchor, directory / "root.json")
        self.configure()

    def configure(self, **changes: Any) -> None:
        """Write the configuration, with some keys changed."""
        self.settings |= changes
        self.configuration.write_text(yaml.safe_dump(self.settings, sort_keys=False))

    def puller(self, *words: str) -> Outcome:
        """A command about this host."""
        return Outcome(*self._execute(*words, "--config", str(self.configuration)))

    def run(self, *options: str) -> Outcome:
        """What the timer starts."""
        return self.puller("run", *options)

    def status(self) -> dict[str, Any]:
        """What ``puller status`` tells."""
        status, output = self.puller("status", "--format", "json")
        assert status == 0, output
        found: dict[str, Any] = json.loads(output)
        return found

    @property
    def enforced(self) -> str | None:
        """The version of the first bundle that is enforced, as ``puller status`` tells."""
        version: str | None = self.status()["bundles"][0]["enforced"]
        return version

    def unpacked(self, bundle: str) -> set[str]:
        """What the store has of a bundle, by SHA-256."""
        return {path.name for path in (self.state / "bundles" / bundle).iterdir() if len(path.name) == 64}

    def report(self) -> dict[str, Any]:
        """The last run's report, with an event for each resource."""
        report = load_all_events(Directories(self.state, self.state))
        assert report is not None
        found: dict[str, Any] = json.loads(msgspec.json.encode(report))
        return found

    def states(self) -> dict[str, str]:
        """What became of each resource in the last run, by reference, with names relative to ``machine``."""
        events = [event for bundle in self.report()["bundles"] for event in bundle["events"]]
        return {f"{event['type']}#{self._short(event['name'])}": event["state"] for event in events}

    def assert_enforces(self, version: str) -> None:
        """All of the story's version is on the machine, and ``puller status`` says so."""
        assert (self.machine / "motd").read_text() == f"Hello from {version}\n"
        assert (self.machine / "app.conf").read_bytes() == STORY_FILES["files/app.conf"]
        assert self.enforced == version

    def assert_told(self, message: str, outcome: Outcome) -> None:
        """The run said it, the report has it, and ``puller status`` tells it; ``message`` is a regular expression."""
        last = self.status()["last_run"]
        for text in (outcome.output, "\n".join(problem["text"] for problem in last["problems"])):
            assert re.search(message, text), f"{message!r} is not in:\n{text}"
        assert last["exit_status"] == outcome.status == self.report()["exit_status"]

    def _short(self, name: str) -> str:
        return os.path.relpath(name, self.machine) if name.startswith("/") else name


class Web(Protocol):
    """A web server that is running: ``root`` is served at ``url``."""

    root: Path

    @property
    def url(self) -> str: ...


def listening(make: Callable[[int], Server]) -> Server:
    """What ``make`` makes of a port that stays free while a server is stopped: no client is given it meanwhile.

    The system gives clients ports from 32768 on, unless it is configured otherwise.
    """
    for _ in range(100):
        try:
            return make(random.SystemRandom().randrange(20_000, 32_000))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise AssertionError("no port is free")


class WebServer:
    """A web server on loopback that is stopped and started again at one address, and misbehaves when it is told to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answer: tuple[int, bytes] | None = None
        """What it says to every request, instead of what it should."""
        self.stalled = threading.Event()
        """Set when a request has come that it will never answer."""
        self.stall_at = ""
        """A part of the path of those."""
        self.requests: list[str] = []
        """The paths that were asked for."""
        self._server: SiteServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        if self._server:
            return
        self._server = self._listen(self._port) if self._port else listening(self._listen)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def _listen(self, port: int) -> SiteServer:
        return SiteServer(("127.0.0.1", port), partial(_Handler, self))

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Handler(SiteHandler):
    def __init__(self, web: WebServer, *arguments: Any) -> None:
        self._web = web
        super().__init__(*arguments, directory=str(web.root))

    def do_GET(self) -> None:  # noqa: N802  the name is the base class's
        self._web.requests.append(self.path)
        if self._web.stall_at and self._web.stall_at in self.path:
            self._web.stalled.set()
            self.rfile.read(1)  # until the client goes away
        elif self._web.answer:
            status, body = self._web.answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            super().do_GET()


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
