"""Ten thousand files from one loop compared with ten thousand separate ones: ratios of time and peak memory.

    .venv/bin/python tests/benchmarks/bench_loops.py [--size 10000] [--rounds 5]

* All manifests declare the same files with the same content, below a temporary directory. *Written out* has literal
  names. *With an expression in each name* is written out as well, and resolves as much as the loop does.
* `lint` only reads the manifest. `apply` checks the files that a first run has created. Each is a separate process.
* The variants alternate, so that a busy moment of the machine affects all of them. The medians of processor time and of
  peak memory are compared.
"""

import argparse
import grp
import os
import pwd
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

OWNER = pwd.getpwuid(os.getuid()).pw_name
GROUP = grp.getgrgid(os.getgid()).gr_name
PULLER = Path(sys.executable).with_name("puller")

BEGINNING = """\
data: {{port: 8080, directory: "{files}", names: [{names}]}}
resources:
  - file:
      - defaults: {{owner: {owner}, group: {group}, mode: "0644"}}
"""
ENTRY = """\
      - {loop}"{name}":
          content: |
            # {item}
            host = {{{{ lookup('facts.networking.hostname') }}}}
            port = {{{{ lookup('data.port') }}}}
"""


def loop(files: Path, size: int) -> Iterator[str]:
    names = ", ".join(f"file-{number}" for number in range(size))
    yield BEGINNING.format(names=names, files=files, owner=OWNER, group=GROUP)
    head = "for: name in data.names\n        "
    yield ENTRY.format(loop=head, name=f"{files}/{{{{ name }}}}", item="{{ name }}")


def written_out(files: Path, size: int, directory: str = "") -> Iterator[str]:
    yield BEGINNING.format(names="", files=files, owner=OWNER, group=GROUP)
    for number in range(size):
        item = f"file-{number}"
        yield ENTRY.format(loop="", name=f"{directory or files}/{item}", item=item)


def with_an_expression(files: Path, size: int) -> Iterator[str]:
    return written_out(files, size, "{{ data.directory }}")


MANIFESTS = {
    "written out": written_out,
    "with an expression in each name": with_an_expression,
    "a loop": loop,
}


def measure(work: Path, *arguments: str) -> tuple[float, float]:
    """Return seconds of processor time, and MiB of peak memory."""
    silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(PULLER, ["puller", *arguments], os.environ, file_actions=silence)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"puller {' '.join(arguments)} failed in {work}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def compare(work: Path, size: int, rounds: int) -> None:
    commands: dict[tuple[str, str], tuple[str, ...]] = {}
    for kind, text in MANIFESTS.items():
        bundle, files = work / kind, work / "files"
        bundle.mkdir()
        files.mkdir(exist_ok=True)
        (bundle / "manifest.yaml").write_text("".join(text(files, size)))
        state = str(work / f"state of {kind}")
        commands["lint", kind] = ("lint", str(bundle))
        commands["apply", kind] = ("apply", str(bundle), "--state-directory", state, "--quiet")
        measure(work, *commands["apply", kind])
    samples: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in commands}
    for _ in range(rounds):
        for key, command in commands.items():
            samples[key].append(measure(work, *command))
    medians = {
        key: [statistics.median(values) for values in zip(*found, strict=True)]
        for key, found in samples.items()
    }
    print(
        f"{size} files, medians of {rounds} rounds: processor seconds (ratio), peak MiB (ratio) to written out"
    )
    for (detail, kind), (seconds, peak) in medians.items():
        base_seconds, base_peak = medians[detail, "written out"]
        ratios = f"{seconds:6.2f} ({seconds / base_seconds:.2f})  {peak:6.1f} ({peak / base_peak:.2f})"
        print(f"  {detail:5}  {kind:31}  {ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=10_000, help="number of files")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each")
    arguments = parser.parse_args()
    # If the environment forbids Python to store bytecode, each start would compile again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="puller-bench-") as directory:
        compare(Path(directory), arguments.size, arguments.rounds)


if __name__ == "__main__":
    main()
