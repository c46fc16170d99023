"""A simulated fleet: reports of its hosts, in files as they arrive."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from foundation.differences import (
    Action,
    Difference,
    DifferenceKind,
    acting,
    added,
    changed,
    presence,
    with_causes,
    with_diff,
)
from foundation.problems import Location, Problem, ProblemCode
from puller.delivery.report_document import pack
from puller.reporting.history import identity
from puller.reporting.report import (
    BundleReport,
    Event,
    HoldReason,
    PublishedBundle,
    Report,
    RestlessResource,
    SentReport,
    State,
    Summary,
)
from tests.puller.problems import failure

SYSTEMS = (("Debian", "Debian", "12"), ("Debian", "Debian", "13"), ("RedHat", "Rocky", "9"))


def facts_of(host: str) -> dict[str, Any]:
    """Return the default facts of a host."""
    family, name, major = SYSTEMS[sum(host.encode()) % len(SYSTEMS)]
    return {
        "os": {
            "family": family,
            "name": name,
            "release": {"full": major, "major": major},
            "architecture": "amd64",
        },
        "virtual": "kvm",
    }


def sent(host: str, at: datetime, version: str = "1.0.0", **given: Any) -> SentReport:
    """Return the report of a host whose run ended ``at``, in sync with ``version`` of the bundle ``web``.

    ``given``: ``published``, ``failed`` (resource: error), ``changed`` (resource: difference), ``problems``,
    ``exit_status``, ``held``, ``held_because``, ``quarantined``, ``restless``, ``diff``, ``given_up``, ``facts``,
    ``paused``, ``expires``, ``left_out``, ``pin``, ``waits_until``, ``good``, ``given_up_events``,
    ``events``, ``reboots``.
    """
    failed, changed = given.get("failed", {}), given.get("changed", {})
    events = [
        _event(reference, State.FAILED, problems=[failure(error)]) for reference, error in failed.items()
    ]
    events += [
        _event(reference, State.CHANGED, differences=[_difference(difference, given.get("diff", ""))])
        for reference, difference in changed.items()
    ]
    events += given.get("events", [])
    summary = Summary.of(events, 0.1)
    summary.stable, summary.resources = 20, 20 + len(events)
    published = given.get("published", version)
    bundle = BundleReport(
        name="web",
        version=version,
        sha256="ab" * 32,
        outcome="applied",
        held=given.get("held", ""),
        held_because=given.get("held_because") or (HoldReason.ROLLOUT if given.get("held") else None),
        published=published,
        summary=summary,
        events=events,
    )
    if given.get("given_up"):
        wrong, why = given["given_up"]
        bundle.given_up = BundleReport(
            name="web", version=wrong, outcome=why, events=given.get("given_up_events", [])
        )
    status = given.get("exit_status", 4 if summary.failed else 7 if given.get("given_up") else 0)
    began = at - timedelta(seconds=1)
    report = Report(
        run=identity(began),
        started=began.isoformat(timespec="milliseconds"),
        finished=at.isoformat(timespec="milliseconds"),
        host=host,
        puller="1.0.0",
        exit_status=status,
        paused=given.get("paused", ""),
        problems=[*map(failure, given.get("problems", []))],
        reboots=given.get("reboots", []),
        bundles=[bundle],
    )
    standing = PublishedBundle(
        name="web",
        channel="stable",
        pin=given.get("pin", ""),
        published=published,
        waits_until=given.get("waits_until", ""),
        enforced=version,
        enforced_since=(at - timedelta(hours=3)).isoformat(timespec="seconds"),
        good=given.get("good", version),
        held=given.get("held", ""),
        quarantined=given.get("quarantined", []),
    )
    return SentReport(
        host=host,
        sent=at.isoformat(timespec="milliseconds"),
        facts=given.get("facts", facts_of(host)),
        metadata_expire=given.get("expires", (at + timedelta(days=6)).isoformat(timespec="seconds")),
        recipient=given.get("recipient", ""),
        bundles=[standing],
        restless=[
            RestlessResource(
                bundle="web", reference=reference, runs=10, changes=9, differences=[_difference(difference)]
            )
            for reference, difference in given.get("restless", {}).items()
        ],
        left_out=given.get("left_out", ""),
        report=report,
    )


def _difference(desired: str, diff: str = "") -> Difference:
    return Difference("content", "old", desired, DifferenceKind.CHANGED, diff=diff)


def _event(reference: str, state: State, **additional: Any) -> Event:
    kind, _, name = reference.partition("#")
    return Event(type=kind, name=name, state=state, **additional)


def deliver(directory: Path, documents: Iterable[SentReport]) -> list[Path]:
    """Write documents into a directory with the times of their runs, and return the files."""
    files = []
    for document in documents:
        file = directory / document.host / f"{document.report.run}.json.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pack(document))
        arrived = datetime.fromisoformat(document.report.finished).timestamp()
        os.utime(file, (arrived, arrived))
        files.append(file)
    return files


def importing(place: Path, location: str) -> subprocess.Popen[bytes]:
    """Start `puller fleet import` as a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "puller", "fleet", "import", str(place), "--store", location],
        stdout=subprocess.DEVNULL,
    )


def names(count: int) -> list[str]:
    """Return names of hosts."""
    return [f"host{number:05}.example.com" for number in range(count)]


def wave(
    hosts: Iterable[str], begin: datetime, hours: float, *, breaks: str = "", seed: int = 1, step: float = 1.0
) -> Iterator[SentReport]:
    """Return reports of a rollout from 1.4.0 to 1.5.0 within ``hours``. Each host reports every ``step`` hours.

    On hosts of the system family ``breaks``, a service fails to start with 1.5.0.
    """
    dice = random.Random(seed)
    turn = {host: dice.random() * hours for host in hosts}
    clock = -2 * step
    while clock <= hours + 2 * step:
        for host, reached in turn.items():
            at = begin + timedelta(hours=clock, seconds=dice.random() * 300)
            if clock < 0:
                yield sent(host, at, "1.4.0")
            elif clock < reached:
                yield sent(
                    host,
                    at,
                    "1.4.0",
                    published="1.5.0",
                    held="the rollout of web 1.5.0 has not reached this host",
                )
            elif clock - reached < step:
                yield _reached(host, at, breaks)
            else:
                yield _after(host, at, breaks)
        clock += step


def _reached(host: str, at: datetime, breaks: str) -> SentReport:
    if breaks and facts_of(host)["os"]["family"] == breaks:
        return sent(host, at, "1.5.0", failed={"service#web": f"web.service on {host} failed with pid 48213"})
    return sent(
        host,
        at,
        "1.5.0",
        changed={"file#/etc/web.conf": "new"},
        diff="--- a\n+++ b\n-old\n+new\n",
    )


def _after(host: str, at: datetime, breaks: str) -> SentReport:
    if breaks and facts_of(host)["os"]["family"] == breaks:
        return sent(host, at, "1.5.0", failed={"service#web": f"web.service on {host} failed with pid 9931"})
    return sent(host, at, "1.5.0")


NEXT = "1.6.0"
DIFF = "--- /etc/web.conf (now)\n+++ /etc/web.conf (desired)\n@@ -1,2 +1,2 @@\n listen 80\n-workers 2\n+workers 4\n"
HEALTH = Problem(
    code=ProblemCode.CHANGE_FAILED,
    message="health check web: exit status 22: the server answers 404",
    hint="read `journalctl -u web`",
    location=Location("manifest.yaml", 31),
)


REFUSED = Problem(code=ProblemCode.NETWORK_FAILURE, message="puller.example.com: connection refused")


def every_outcome() -> list[Event]:
    """Return one event for each outcome of a resource."""
    content = with_diff([changed("mode", "0600", "0644"), changed("content", "24cdfb0f", "cc471c7d")], DIFF)
    restart = with_causes([acting("command", Action.RESTART, refresh=True)], ["file#/etc/web.conf"])
    return [
        _event("package#tree", State.CHANGED, differences=[presence("absent", "2.1.0")]),
        _event("file#/etc/web.conf", State.CHANGED, differences=content),
        _event(
            "file#/etc/old.conf", State.CHANGED, differences=[presence("present", "absent")], reversal=True
        ),
        _event("exec#migrate the database", State.CHANGED, differences=[acting("command", Action.RUN)]),
        _event("service#web", State.REFRESHED, differences=restart),
        _event(
            "user#deploy",
            State.FAILED,
            problems=[HEALTH],
            differences=[added("shell", "/bin/bash")],
            is_planned=True,
        ),
        _event("file#/home/deploy/.profile", State.SKIPPED, unmet_requirements=["user#deploy"]),
    ]


def incident(now: datetime) -> Iterator[SentReport]:
    """Return the reports of 40 hosts in the middle of a rollout of 1.6.0, with a host for each kind of problem."""
    hosts = names(40)
    yield from wave(hosts, now - timedelta(hours=14), 8, breaks="RedHat")
    for number, host in enumerate(hosts):
        at = now - timedelta(minutes=25 - number % 20)
        turn = (now + timedelta(minutes=10 * number)).isoformat(timespec="seconds")
        waiting = {
            "published": NEXT,
            "waits_until": turn,
            "held": f"web {NEXT} reaches this host at {number * 2} %, now 20 %",
            "exit_status": 20,
        }
        if number == 3:
            yield sent(host, now - timedelta(hours=9), "1.5.0")
        elif number == 4:
            yield sent(host, at, NEXT, events=every_outcome(), good="1.5.0")
        elif number in (5, 7, 9):
            failed = _event("service#web", State.FAILED, problems=[HEALTH])
            yield sent(
                host,
                at - timedelta(hours=1),
                "1.5.0",
                published=NEXT,
                given_up=(NEXT, "its health checks failed, and it was rolled back"),
                given_up_events=[failed],
                quarantined=[NEXT],
            )
            yield sent(
                host,
                at,
                "1.5.0",
                published=NEXT,
                quarantined=[NEXT],
                held=f"{NEXT} is in quarantine: its health checks failed",
                held_because=HoldReason.QUARANTINE,
                exit_status=20,
            )
        elif number == 6:
            yield sent(host, at, "1.4.0", published=NEXT, pin="1.4.0")
        elif number == 8:
            yield sent(host, at, "1.5.0", paused="disabled by root: repair of the disk", exit_status=20)
        elif number == 10:
            yield sent(host, at, "1.5.0", expires=(at + timedelta(hours=20)).isoformat(timespec="seconds"))
        elif number == 11:
            yield sent(host, at, "1.5.0", exit_status=14, problems=[REFUSED])
        elif number < 15:
            yield sent(host, at, NEXT, good="1.5.0" if number == 14 else NEXT)
        elif facts_of(host)["os"]["family"] != "RedHat":
            yield sent(host, at, "1.5.0", **waiting)
        else:
            yield _after(host, at, "RedHat")


def json_of(document: SentReport) -> bytes:
    """Return a document as uncompressed JSON."""
    return msgspec.json.encode(document)


def now() -> datetime:
    """Return the current time in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)
