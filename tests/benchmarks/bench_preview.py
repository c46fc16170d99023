"""A preview of 10,000 machines of six kinds with different unused names, and a bundle of 100 resources.

    python tests/benchmarks/bench_preview.py [MACHINES]

Prints the groups, the time including reading all facts from files, and the memory. Compares a sample with machines that
are resolved separately.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from puller.authoring.preview.differences import compare
from puller.authoring.preview.groups import FactFiles, Machine, preview
from puller.authoring.preview.resolvers import Given, SeparateResolver, Shared
from puller.facts.given_facts import facts_of
from puller.manifest.manifest import ManifestSource

KINDS = ("debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "rocky-9", "fedora-43")
OURS = "owner: root, group: root, mode: '0644'"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory(prefix="puller-bench-") as scratch:
        place = Path(scratch)
        facts = place / "facts"
        facts.mkdir()
        for name, text in machines(count):
            (facts / f"{name}.json").write_text(text)
        provided = Given(b"0123456789abcdef")
        sides = [SeparateResolver(bundle(place / name, name), provided) for name in ("old", "new")]
        measure(sides, FactFiles([facts]))


def machines(count: int) -> Iterator[tuple[str, str]]:
    """Return the facts of machines, with the same number of each kind."""
    of = {kind: facts_of(kind) for kind in KINDS}
    for number in range(count):
        result = of[KINDS[number % len(KINDS)]]
        name = f"host{number:05}"
        networking = {**result["networking"], "hostname": name, "fqdn": f"{name}.example.com"}
        yield name, json.dumps({**result, "networking": networking})


def bundle(directory: Path, version: str) -> ManifestSource:
    """Write 100 resources: files with text, with templates of two engines, for some systems only, and services."""
    (directory / "templates").mkdir(parents=True)
    (directory / "templates/a.j2").write_text(f"{version} {{{{ facts.os.family }}}} {{{{ data.n }}}}\n")
    (directory / "templates/b.tmpl").write_text("{{ .facts.os.name }} {{ .data.n }}\n")
    lines = ["data: {n: 1}", "resources:", "  - file:"]
    lines += [f"      - /a/{n}: {{{OURS}, template: templates/a.j2}}" for n in range(20)]
    lines += [f"      - /b/{n}: {{{OURS}, template: templates/b.tmpl}}" for n in range(20)]
    lines += [f"      - /c/{n}: {{{OURS}, content: '{{{{ facts.os.name }}}}'}}" for n in range(40)]
    only = "control: {if: \"facts.os.family == 'Debian'\"}"
    lines += [f"      - /d/{n}: {{{OURS}, content: {version}, {only}}}" for n in range(10)]
    lines += ["  - service:"]
    lines += [f"      - s{n}: {{ensure: running, subscribe: ['file#/a/{n}']}}" for n in range(10)]
    (directory / "manifest.yaml").write_text("\n".join(lines) + "\n")
    return ManifestSource(directory / "manifest.yaml", "bench/manifest.yaml")


def measure(sides: list[SeparateResolver], fleet: FactFiles) -> None:
    shared = [Shared(side) for side in sides]
    begun, begun_working = time.perf_counter(), time.process_time()
    result = preview(shared[0], shared[1], fleet)
    took, worked = time.perf_counter() - begun, time.process_time() - begun_working
    for group in result.groups:
        print(f"{len(group.machines)} of {result.total} machines: {len(group.changes)} changes")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    resolved = ", ".join(str(side.resolved) for side in shared)
    print(
        f"{took:.1f} s, {worked:.1f} s of a processor, {peak:.0f} MiB at most; resolved: {resolved} machines"
    )
    sample(sides, fleet, {name: group.changes for group in result.groups for name in group.machines})


def sample(sides: list[SeparateResolver], fleet: FactFiles, changes: dict[str, object]) -> None:
    every: list[Machine] = list(fleet)
    chosen = every[:: max(1, len(every) // 24)]
    for machine in chosen:
        assert changes[machine.name] == compare(sides[0](machine), sides[1](machine)).changes
    print(f"{len(chosen)} machines checked by themselves")


if __name__ == "__main__":
    main()
