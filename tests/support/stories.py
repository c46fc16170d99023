"""A publisher, a web server and a host: the parts of a story.

The publisher signs real bundles, the web server serves them on loopback, and the host runs ``puller`` in this process.
System tests replace the web server by nginx, and the command by the installed one.
"""

import contextlib
import errno
import io
import json
import os
import random
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO, TypeVar

import msgspec
import pytest

from bundles.format.release import TrialRule
from bundles.publisher.channels import AT_ONCE, Channels, RolloutRequest
from bundles.publisher.lifecycle import make_site, refresh_site
from bundles.publisher.publication import publish_bundle
from bundles.publisher.roles import RoleKeys
from bundles.publisher.signing_keys import make_key
from bundles.publisher.site import Site
from bundles.publisher.web_server import SiteHandler, SiteServer
from puller.cli import main
from puller.reporting.history import load_all_events
from puller.state import Directories

# The bundle of most stories: a directory, a changing and a constant file, and reactions to changes.
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


class Outcome(NamedTuple):
    """The exit status and output of a command."""

    status: int
    output: str


Execute = Callable[..., tuple[int, str]]


Server = TypeVar("Server")


def execute_here(*arguments: str) -> tuple[int, str]:
    """Run ``puller`` in this process, which takes a tenth of the time of a new one. Return its status and output."""
    output = io.StringIO()
    return _run_main(arguments, output, output), output.getvalue()


class Captured(io.TextIOWrapper):
    """A standard stream in memory that takes text and bytes. ``puller`` recognises it by its type."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", write_through=True)

    @property
    def text(self) -> str:
        self.seek(0)
        return self.read()


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``puller`` in this process, with output and errors apart as from ``subprocess.run``."""
    output, errors = Captured(), Captured()
    status = _run_main(arguments, output, errors)
    return subprocess.CompletedProcess(arguments, status, output.text, errors.text)


def _run_main(arguments: Sequence[str], output: TextIO, errors: TextIO) -> int:
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        pytest.raises(SystemExit) as ended,
    ):
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


class Publisher:
    """Publishes bundles in channel stable, and deploys to ``served``, which tests modify."""

    story = STORY
    story_files = STORY_FILES

    def __init__(self, directory: Path, served: Path, like: Path | None = None) -> None:
        """Make a site, or copy the site in the directory ``like`` with its keys."""
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
        trial: TrialRule | None = None,
    ) -> None:
        """Publish and deploy a bundle. Its version replaces VERSION in the manifest."""
        source = self._sources / f"{name}-{version}"
        for path, data in {"manifest.yaml": manifest.replace("VERSION", version).encode(), **files}.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(data)
        publish_bundle(
            self.site, source, _no_passphrase, name=name, version=version, request=request, trial=trial
        )
        self.deploy()

    def rotate(self, role: str) -> None:
        """Replace the key of a role, and deploy."""
        RoleKeys(self.site, _no_passphrase).rotate(role, lambda: make_key(None))
        self.deploy()

    def say(self, statement: Callable[[Channels], object]) -> None:
        """Change the statement of a channel, and deploy."""
        statement(Channels(self.site, _no_passphrase))
        self.deploy()

    def refresh(self) -> None:
        """Sign metadata again when due, and deploy."""
        refresh_site(self.site, _no_passphrase)
        self.deploy()

    def deploy(self) -> None:
        """Deploy like ``rsync --delete``, which reverts changes of tests in ``served``."""
        for entry in self.served.iterdir():
            shutil.rmtree(entry)
        shutil.copytree(self.site.public, self.served, dirs_exist_ok=True)

    @contextlib.contextmanager
    def at_another_time(self, **difference: float) -> Iterator[None]:
        """Shift this publisher's clock while the block runs, for example by ``days=-30``."""
        usual = self.site
        self.site = Site(usual.directory, lambda: datetime.now(UTC) + timedelta(**difference))
        try:
            yield
        finally:
            self.site = usual

    def newest(self, pattern: str) -> Path:
        """Return the served path of the newest file that matches the pattern."""
        public = self.site.public
        status = max(public.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
        return self.served / status.relative_to(public)


def _no_passphrase(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


class Host:
    """A host that follows one site. ``machine`` has its managed files. All files are below ``directory``.

    A version passes in its first run in order, unless ``lasting_trials`` is set.
    """

    lasting_trials = False

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
        settings = self.settings
        if not self.lasting_trials:
            bundles = [{"trial": {"duration": "0s"}, **bundle} for bundle in settings["bundles"]]
            settings = {**settings, "bundles": bundles}
        self.configuration.write_text(json.dumps(settings, indent=2))  # JSON is YAML, and written faster

    def puller(self, *words: str) -> Outcome:
        """Run a command with this host's configuration."""
        return Outcome(*self._execute(*words, "--config", str(self.configuration)))

    def run(self, *options: str) -> Outcome:
        """Run like the timer."""
        return self.puller("run", *options)

    def status(self) -> dict[str, Any]:
        """Return the output of ``puller status``."""
        status, output = self.puller("status", "--format", "json")
        assert status == 0, output
        result: dict[str, Any] = json.loads(output)
        return result

    @property
    def enforced(self) -> str | None:
        """The enforced version of the first bundle in ``puller status``."""
        version: str | None = self.status()["bundles"][0]["enforced"]
        return version

    def unpacked(self, bundle: str) -> set[str]:
        """Return the SHA-256 of each stored version of a bundle."""
        return {path.name for path in (self.state / "bundles" / bundle).iterdir() if len(path.name) == 64}

    def report(self) -> dict[str, Any]:
        """Return the report of the last run, with an event for each resource."""
        report = load_all_events(Directories(self.state, self.state))
        assert report is not None
        result: dict[str, Any] = json.loads(msgspec.json.encode(report))
        return result

    def states(self) -> dict[str, str]:
        """Return the state of each resource in the last run, by reference. Names are relative to ``machine``."""
        events = [event for bundle in self.report()["bundles"] for event in bundle["events"]]
        return {f"{event['type']}#{self._short(event['name'])}": event["state"] for event in events}

    def assert_enforces(self, version: str) -> None:
        """Check that the machine and ``puller status`` have this version of the story."""
        assert (self.machine / "motd").read_text() == f"Hello from {version}\n"
        assert (self.machine / "app.conf").read_bytes() == STORY_FILES["files/app.conf"]
        assert self.enforced == version

    def assert_told(self, message: str, outcome: Outcome) -> None:
        """Check that output, report and ``puller status`` match ``message``, a regular expression."""
        last = self.status()["last_run"]
        for text in (outcome.output, "\n".join(problem["text"] for problem in last["problems"])):
            assert re.search(message, text), f"{message!r} is not in:\n{text}"
        assert last["exit_status"] == outcome.status == self.report()["exit_status"]

    def problem_codes(self) -> set[str]:
        """Return the codes of the problems of the last run."""
        return {problem["code"] for problem in self.report()["problems"]}

    def _short(self, name: str) -> str:
        return os.path.relpath(name, self.machine) if name.startswith("/") else name


class Web(Protocol):
    """A running web server. ``root`` is served at ``url``."""

    root: Path

    @property
    def url(self) -> str: ...


def listening(make: Callable[[int], Server]) -> Server:
    """Return the result of ``make`` for a port that clients never get, even while a server is stopped.

    By default, the system gives clients ports from 32768 on.
    """
    for _ in range(100):
        try:
            return make(random.SystemRandom().randrange(20_000, 32_000))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise AssertionError("no port is free")


class WebServer:
    """A web server on loopback with a permanent address and optional faults."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answer: tuple[int, bytes] | None = None
        """Status and body that replace every answer."""
        self.stalled = threading.Event()
        """Set when a request has come that never gets an answer."""
        self.stall_at = ""
        """Requests whose path contains this text never get an answer."""
        self.requests: list[str] = []
        """The requested paths."""
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
            self.rfile.read(1)  # until the client disconnects
        elif self._web.answer:
            status, body = self._web.answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            super().do_GET()
