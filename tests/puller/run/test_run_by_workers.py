"""Runs with network access in worker processes: same results as without workers, and hostile workers are refused."""

import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bundles.confined.network import Network
from puller.exit_status import ExitStatus
from tests.simulators import fileserver, reportserver

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher


pytestmark = pytest.mark.usefixtures("workers", "operations")

_HOSTILE = "hostile_workers"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects the names of opened operations, in order."""
    seen: list[str] = []
    real = Network.open

    def noted(self: Network, operation: str, *remainder: Any) -> Any:
        seen.append(operation.rpartition(":")[2])
        return real(self, operation, *remainder)

    monkeypatch.setattr(Network, "open", noted)
    return seen


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Yield a mapping from operations to their replacements in ``hostile_workers``."""
    instead: dict[str, str] = {}
    real = Network.open

    def replaced(self: Network, operation: str, *remainder: Any) -> Any:
        name = operation.rpartition(":")[2]
        return real(self, f"{_HOSTILE}:{instead[name]}" if name in instead else operation, *remainder)

    monkeypatch.setattr(Network, "open", replaced)
    yield instead
    assert instead  # otherwise the test proves nothing


@pytest.mark.everything
def test_each_step_of_a_run_is_taken_by_workers(
    host: "Host", publisher: "Publisher", opened: list[str]
) -> None:
    publisher.publish("1.0.0")
    assert host.run().status == 0
    assert opened == ["open_mirror"]  # no earlier metadata to revalidate
    del opened[:]
    assert host.run().status == 0
    assert opened == ["open_glance"]
    del opened[:]
    publisher.publish("1.1.0")
    assert host.run().status == 0
    assert opened == ["open_glance", "open_mirror"]


@pytest.mark.everything
def test_two_releases_and_the_way_back(settled: "Host", publisher: "Publisher") -> None:
    publisher.publish("1.1.0")
    assert settled.run("--detailed-exitcodes").status == ExitStatus.CHANGED
    assert settled.run("--detailed-exitcodes").status == ExitStatus.OK
    publisher.say(lambda channels: channels.roll_back("web", "stable", "1.0.0"))
    assert settled.run("--detailed-exitcodes").status == ExitStatus.CHANGED


def note_missing_landlock(real: Any) -> Any:
    """Make each session report a kernel without Landlock."""

    def open_unprotected(self: Network, *arguments: Any) -> Any:
        self.note_missing([b"landlock"])
        return real(self, *arguments)

    return open_unprotected


def test_a_missing_landlock_is_in_log_report_and_status(
    host: "Host", publisher: "Publisher", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Network, "open", note_missing_landlock(Network.open))
    publisher.publish("1.0.0")
    run = host.run()
    assert run.status == 0
    assert "this kernel has no Landlock" in run.output
    assert "this kernel has no Landlock" in host.puller("status").output
    assert host.puller("status", "--check").status == 0


EVERYTHING = """\
resources:
  - file:
      - "{{ facts.machine }}/remote":
          {source: URL/remote, owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
  - archive:
      - "{{ facts.machine }}/app.tar.gz":
          {url: URL/app.tar.gz, owner: "{{ facts.uid }}", group: "{{ facts.gid }}",
           extract_parent: "{{ facts.machine }}/app", creates: "{{ facts.machine }}/app/made"}
"""


def test_all_that_a_run_fetches_and_sends_goes_by_workers(
    host: "Host", publisher: "Publisher", opened: list[str], tmp_path: Path
) -> None:
    """Workers fetch site data, remote sources and archives, and send reports, in several runs."""
    (tmp_path / "made").write_text("of the archive")
    with tarfile.open(tmp_path / "app.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "made", "made")
    host.machine.mkdir(exist_ok=True)
    with fileserver.serving() as server, reportserver.receiving() as reports:
        server.files["/remote"] = b"from afar"
        server.files["/data.yaml"] = b"data: {workers: 8}"
        server.files["/app.tar.gz"] = (tmp_path / "app.tar.gz").read_bytes()
        host.configure(data=f"{server.url}/data.yaml", reports={"to": [f"{reports.url}/"]})
        publisher.publish("1.0.0", EVERYTHING.replace("URL", server.url))
        ended = host.run("--detailed-exitcodes")
        assert ended.status == ExitStatus.CHANGED, ended.output
        assert opened == ["open_mirror", "open_file", "open_file", "open_archive", "open_uploads"]
        assert (host.machine / "remote").read_bytes() == b"from afar"
        assert (host.machine / "app/made").read_text() == "of the archive"
        assert host.run("--detailed-exitcodes").status == ExitStatus.OK
        server.files["/remote"] = b"from afar, later"
        assert host.run("--detailed-exitcodes").status == ExitStatus.CHANGED
        assert (host.machine / "remote").read_bytes() == b"from afar, later"
        assert len(reports.documents) == 3


@pytest.mark.attack("worker.sends")
@pytest.mark.parametrize(
    ("operation", "lie", "status"),
    [
        ("open_glance", "unchanged", ExitStatus.OK),
        ("open_glance", "garbage", ExitStatus.OK),
        ("open_mirror", "other_bytes", ExitStatus.FETCH_FAILED),
        ("open_mirror", "garbage", ExitStatus.FETCH_FAILED),
        ("open_mirror", "not_there", ExitStatus.FETCH_FAILED),
        ("open_mirror", "death", ExitStatus.FETCH_FAILED),
    ],
)
def test_hostile_worker_can_only_withhold(
    settled: "Host",
    publisher: "Publisher",
    hostile: dict[str, str],
    operation: str,
    lie: str,
    status: ExitStatus,
) -> None:
    """If the worker that fetches is hostile, the last good bundle stays enforced."""
    publisher.publish("1.1.0")
    hostile[operation] = lie
    before = tree(settled.state / "bundles")
    ended = settled.run()
    assert ended.status == status, ended.output
    if operation == "open_mirror":
        assert "1.0.0" in ended.output
        assert tree(settled.state / "bundles") == before
    assert "Traceback" not in ended.output


@pytest.mark.everything
@pytest.mark.attack("worker.ends")
@pytest.mark.parametrize(("operation", "total_timeout"), [("open_glance", "100s"), ("open_mirror", "2s")])
@pytest.mark.representatives(1)
def test_endless_worker_ends_with_the_fetch_limit(
    settled: "Host", publisher: "Publisher", hostile: dict[str, str], operation: str, total_timeout: str
) -> None:
    """Revalidation has a shorter limit, after which the run fetches everything."""
    publisher.publish("1.1.0")
    settled.configure(http={"total_timeout": total_timeout, "read_timeout": "1s"})
    hostile[operation] = "silence"
    began = time.monotonic()
    ended = settled.run()
    assert time.monotonic() - began < 60
    assert ended.status in (ExitStatus.OK, ExitStatus.FETCH_FAILED), ended.output
    assert ("took longer than" in ended.output) == (operation == "open_mirror")


def tree(directory: Path) -> list[str]:
    """Return relative paths of all objects below a directory."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))
