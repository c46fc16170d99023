"""Watched rollouts: how far a release spreads that breaks some machines, and whether a sound release is halted.

    python tests/benchmarks/bench_watch.py [--hosts 10000] [--hours 10] [--seeds 1] [--only sound]

Simulated hosts report every half hour into a real store. A rollout grows evenly over ``--hours``, and the default rule
of site.yaml judges it each quarter of an hour. There are three kinds of machine, each a third of the hosts.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bundles.format.release import Release, Rollout
from bundles.publisher.settings import WatchRule
from puller.fleet.host_document import Document
from puller.fleet.store.database import Store
from puller.fleet.store.queries import Reader
from puller.fleet.store.writing import put
from puller.fleet.views import condition_of
from puller.fleet.watching import judge, outcomes_of

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.simulators import fleet as simulated

STEP, EVERY = timedelta(minutes=15), timedelta(minutes=30)
FAILED = {"failed": {"service#web": "it does not come up"}}


class Fault(NamedTuple):
    """A fault of a release on ``part`` of the hosts of ``system`` (empty: all), ``later`` after they installed it."""

    name: str
    part: float = 0.0
    system: str = ""
    later: timedelta = timedelta(0)
    silent: bool = False
    noise: float = 0.0
    """Share of all reports with a failure that is unrelated to the release."""


FAULTS = (
    Fault("sound"),
    Fault("sound, and one report of 500 fails", noise=0.002),
    Fault("breaks 5 % of one kind, at once", 0.05, "Rocky"),
    Fault("breaks 5 % of one kind, after an hour", 0.05, "Rocky", timedelta(hours=1)),
    Fault("breaks 1 % of one kind, at once", 0.01, "Rocky"),
    Fault("breaks 5 % of all, at once", 0.05),
    Fault("breaks all of one kind, at once", 1.0, "Rocky"),
    Fault("10 % of one kind fall silent", 0.10, "Rocky", silent=True),
)


def simulate(
    fault: Fault, hosts: list[str], hours: float, directory: Path, seed: int = 7
) -> tuple[float | None, timedelta, int]:
    """Return percent of hosts reached at the halt (``None``: not halted), its delay, and the number of hosts hit."""
    dice = random.Random(seed)
    begin = simulated.now() - timedelta(days=2)
    release = Release(
        "web",
        "1.5.0",
        Rollout(start=begin, duration=timedelta(hours=hours), before=Release.of("web", "1.4.0")),
    )
    of_kind = {host for host in hosts if fault.system in ("", simulated.facts_of(host)["os"]["name"])}
    hit = {host for host in sorted(of_kind) if dice.random() < fault.part}
    got: dict[str, Any] = {}
    turn = {host: dice.random() for host in hosts}
    store = Store.open(str(directory / f"{FAULTS.index(fault)}-{seed}.db"), make=True)
    rule, now, due = WatchRule(), begin - EVERY, dict.fromkeys(hosts, begin - EVERY * 2)
    while now <= begin + timedelta(hours=hours) + 8 * EVERY:
        documents = []
        for host in hosts:
            if now - due[host] < EVERY - STEP * turn[host]:
                continue
            due[host] = now
            takes = release.chosen_for(host, now, current=host in got).release == release
            if takes:
                got.setdefault(host, now)
            is_hit = host in hit and host in got and now - got[host] >= fault.later
            if is_hit and fault.silent and now > got[host]:
                continue
            fails = (is_hit and not fault.silent) or dice.random() < fault.noise
            version = "1.5.0" if takes else "1.4.0"
            sent = simulated.sent(
                host,
                now,
                version,
                published="1.5.0",
                held="" if takes else "waits",
                **(FAILED if fails else {}),
            )
            documents.append(Document(sent, b"", now, *condition_of(sent), 0))
        with store.writing() as connection:
            put(connection, documents)
        if now >= begin:
            reader = Reader(store, now + timedelta(seconds=1))
            outcomes, usual = outcomes_of(reader, release, "stable", rule.kinds)
            if judge(outcomes, rule, usual).reasons:
                reached = len(got) / len(hosts) * 100
                return reached, now - begin, len(hit & got.keys())
        now += STEP
    store.close()
    return None, now - begin, len(hit & got.keys())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=1, help="simulations of each release")
    parser.add_argument("--only", default="", help="what the name of a release begins with")
    provided = parser.parse_args()
    hosts = simulated.names(provided.hosts)
    print(f"{provided.hosts} hosts, a rollout over {provided.hours:g} h\n")
    print("| a release that | reached when it was halted | after | hosts that were hit | seconds here |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as directory:
        for fault in (fault for fault in FAULTS if fault.name.startswith(provided.only)):
            for seed in range(7, 7 + provided.seeds):
                began = time.monotonic()
                reached, after, hit = simulate(fault, hosts, provided.hours, Path(directory), seed)
                output = "all: it was not halted" if reached is None else f"{reached:.1f} %"
                when = "" if reached is None else str(after)
                row = f"| {fault.name} | {output} | {when} | {hit} | {time.monotonic() - began:.0f} |"
                print(row, flush=True)


if __name__ == "__main__":
    main()
