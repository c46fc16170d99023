"""``puller run`` with unexpected failures of fetching: too little memory, or a bug in Puller.

The run reports each failure in its output and exit status, and enforces the last good bundle.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

import pytest
from tuf.api.metadata import TargetFile

from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from tests.support.sites import bin_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from puller.values.common_properties import Reference
    from tests.support.stories import Host, Outcome, Publisher

MIB = 1024 * 1024

WITHIN = """
import resource, sys
from pathlib import Path
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from puller.cli import main
try:
    main(sys.argv[1:])
finally:
    status = Path("/proc/self/status").read_text()
    sys.stdout.flush()
    print(status.partition("VmPeak:")[2].split()[0])
"""


def run_within(host: Host, limit: int) -> tuple[int, str, int]:
    """Return exit status, output and peak address space of a run with ``limit`` bytes of address space.

    All threads share one arena of the allocator, because mostly empty arenas would count as used address space.
    """
    command = [sys.executable, "-c", WITHIN, str(limit), "run", "--config", str(host.configuration)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )  # fmt: skip
    *output, peak = done.stdout.splitlines()
    return done.returncode, "\n".join(output), int(peak) * 1024


BIN = bin_of("web/index.json")


def fill(publisher: Publisher, count: int) -> None:
    """Publish ``count`` additional targets of 120 bytes each."""
    site = publisher.site
    with site.locked():
        edition = site.edition(lambda _: b"")
        for path in map("more/{:06}".format, range(count)):
            edition.published.bin(BIN).targets[path] = TargetFile(1, {"sha256": "0" * 64}, path)
        edition.sign_bins([BIN])
        edition.sign_timestamp()
        site.write(edition)
    publisher.deploy()


@pytest.mark.everything
@pytest.mark.attack("machine.memory")
def test_low_memory_keeps_the_last_good_bundle(settled: Host, publisher: Publisher) -> None:
    fill(publisher, 10)
    status, _, usual = run_within(settled, sys.maxsize)
    assert status == 0
    fill(publisher, 25_000)
    (settled.machine / "motd").unlink()
    status, output, _ = run_within(settled, usual + 24 * MIB)
    assert status == 14, output
    assert "the memory is exhausted" in output
    assert "Traceback" not in output
    settled.assert_enforces("1.0.0")


@pytest.mark.everything
def test_memory_depends_on_actual_file_sizes(settled: Host, publisher: Publisher) -> None:
    """The limit for manifests is 64 MiB, and this manifest has a thousand bytes."""
    publisher.publish("1.1.0")
    _, _, usual = run_within(settled, sys.maxsize)
    assert usual < 2048 * MIB
    status, output, _ = run_within(settled, usual + 4 * MIB)
    assert status == 0, output
    settled.assert_enforces("1.1.0")


PLACES = {
    "the revalidation": "puller.run.site_refresh.revalidate",
    "the refresh": "bundles.client.client.TrustClient.refresh",
    "the choice": "puller.run.policy.decision.ReleaseSelector.select",
    "the download": "bundles.client.client.TrustClient.fetch",
    "the installation": "bundles.store.store.Store.install",
}


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("https://user:secret@www"), MemoryError(), RecursionError()]
)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_bug_while_fetching_does_not_stop_enforcement(
    settled: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, place: str, error: Exception
) -> None:
    def broken(*_arguments: object, **_options: object) -> NoReturn:
        raise error

    publisher.publish("1.1.0")
    (settled.machine / "motd").unlink()
    monkeypatch.setattr(place, broken)
    outcome = settled.run()
    is_bug = not isinstance(error, MemoryError)
    assert outcome.status == (1 if is_bug else 14)
    output = f"{type(error).__name__}: .*this is a bug in Puller" if is_bug else "the memory is exhausted"
    settled.assert_told(output, outcome)
    assert ("Traceback" in outcome.output) is is_bug
    assert "secret" not in outcome.output
    settled.assert_enforces("1.0.0")
    monkeypatch.undo()
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")


def test_bug_while_loading_keeps_the_last_good_bundle(
    settled: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, name: str, inputs: Inputs, known: Collection[Reference]) -> Manifest:
        if "1.1.0" in name:
            raise ZeroDivisionError
        return load_manifest(path, name, inputs, known)

    publisher.publish("1.1.0")
    (settled.machine / "motd").unlink()
    monkeypatch.setattr("puller.run.bundle_run.load_manifest", broken)
    outcome = settled.run()
    assert outcome.status == 1
    settled.assert_told("ZeroDivisionError: .*this is a bug in Puller", outcome)
    settled.assert_enforces("1.0.0")


def test_bug_in_site_data_does_not_stop_enforcement(settled: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> NoReturn:
        raise ZeroDivisionError

    settled.configure(data=["https://www.example.org/data.yaml"])
    (settled.machine / "motd").unlink()
    monkeypatch.setattr("puller.data.site_data.download_if_changed", broken)
    outcome: Outcome = settled.run()
    assert outcome.status == 1
    assert re.search("ZeroDivisionError.*continuing without it", outcome.output)
    settled.assert_enforces("1.0.0")
