"""Lookups in a tree of 2,000 files and 50,000 keys, compared with Puppet on the same files: seconds, ratios, rates.

    python tests/benchmarks/bench_hiera.py [--runs 5] [--no-puppet]

* One key from a cold process: ``puller hiera lookup`` and ``puppet lookup``.
* 1,000 keys in one process: ``Tree.lookup`` in a fresh interpreter and one ``puppet apply`` of 1,000 ``lookup`` calls.
  Both include the start of the interpreter.
* Lookups a second in one process that has read its files: the first level that has a key, and all levels merged deeply.
* Contenders take turns. A sample counts only if both returned the same value.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

KEYS_PER_FILE = 25
NODES = 1_990
MANY = 1_000
LEVELS = """\
version: 5
hierarchy:
  - {name: node, path: "nodes/%{trusted.certname}.yaml"}
  - {name: role, path: "roles/%{facts.role}.yaml"}
  - {name: common, path: common.yaml}
"""
FACTS = {"hostname": "n7", "domain": "x", "fqdn": "n7.x", "clientcert": "n7.x", "role": "r3"}
TARGETS = "at most 0.1 s of processor for one key, at least 10,000 lookups a second"
RATE = """\
import json, sys, time
from hiera.tree.lookup import Tree
tree = Tree(json.load(open(sys.argv[2])), environment=sys.argv[1])
keys = json.load(open(sys.argv[3]))
for merge in (None, "deep"):
    asked = keys if merge is None else keys[2::4]
    for key in asked:
        tree.lookup(key, merge=merge)
    began = time.process_time()
    for key in asked * 10:
        tree.lookup(key, merge=merge)
    rate = 10 * len(asked) / (time.process_time() - began)
    print(f"lookups a second, {merge or 'first'}:".ljust(32), f"{rate:9,.0f}")
"""
ONE_PROCESS = """\
import json, sys
from hiera.tree.lookup import Tree
tree = Tree(json.load(open(sys.argv[2])), environment=sys.argv[1])
print(sum(len(str(tree.lookup(key))) for key in json.load(open(sys.argv[3]))))
"""


def write_tree(root: Path) -> list[str]:
    """Write the environment ``production`` below ``root``. Return the keys of the host of ``FACTS``."""
    environment = root / "environments/production"
    (environment / "data/nodes").mkdir(parents=True)
    (environment / "data/roles").mkdir()
    (environment / "hiera.yaml").write_text(LEVELS)
    for number in range(NODES):
        write_file(environment / f"data/nodes/n{number}.x.yaml", number * KEYS_PER_FILE, KEYS_PER_FILE)
    for number in range(9):
        write_file(environment / f"data/roles/r{number}.yaml", number * KEYS_PER_FILE, KEYS_PER_FILE)
    write_file(environment / "data/common.yaml", 0, MANY)
    return [f"profile::m{number % 40}::k{number}" for number in range(MANY)]


def write_file(path: Path, first: int, count: int) -> None:
    forms = ("text {0} of %{{facts.role}}", "[a{0}, b, c]", "{{port: {0}, name: x}}", "{0}")
    lines = (
        f"profile::m{number % 40}::k{number}: {forms[number % 4].format(number)}\n"
        for number in range(first, first + count)
    )
    path.write_text("---\n" + "".join(lines))


def seconds(command: list[str], check: Callable[[str], bool]) -> tuple[float, float]:
    """Return seconds of wall clock and of processor time."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if not check(done.stdout):
        raise SystemExit(f"{command[0]}: unexpected answer: {done.stdout[:200]}")
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def contenders(
    root: Path, keys: list[str], with_puppet: bool
) -> dict[str, tuple[list[str], Callable[[str], bool]]]:
    environment, facts, names = root / "environments/production", root / "facts.json", root / "keys.json"
    facts.write_text(json.dumps(FACTS))
    names.write_text(json.dumps(keys))
    key = keys[500]
    item = [sys.executable, "-m", "puller", "hiera", "lookup", key, "--environment", str(environment)]
    item += ["--facts", str(facts), "--no-system-facts", "--format", "json"]
    result: dict[str, tuple[list[str], Callable[[str], bool]]] = {
        "one key, puller hiera lookup": (item, lambda out: json.loads(out)[key]["found"] is True),
        "1,000 keys, Tree.lookup": (
            [sys.executable, "-c", ONE_PROCESS, str(environment), str(facts), str(names)],
            bool,
        ),
    }
    if with_puppet:
        manifest = root / "many.pp"
        calls = ", ".join(f"lookup('{name}')" for name in keys)
        manifest.write_text(f"$facts_of_the_host = 1\n$all = [{calls}]\nnotice($all.size)\n")
        settings = [f"--{name}={root / name}" for name in ("confdir", "vardir")]
        settings += [
            f"--environmentpath={root / 'environments'}",
            f"--hiera_config={root / 'none/hiera.yaml'}",
        ]
        requested = [
            "puppet",
            "lookup",
            key,
            "--node",
            "n7.x",
            "--facts",
            str(facts),
            "--render-as",
            "json",
            *settings,
        ]
        result["one key, puppet lookup"] = (requested, lambda out: out.strip() != "")
        result["1,000 keys, puppet apply"] = (
            ["puppet", "apply", str(manifest), *settings],
            lambda out: "1000" in out,
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-puppet", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        with_puppet = shutil.which("puppet") is not None and not arguments.no_puppet
        measured = contenders(root, write_tree(root), with_puppet)
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
        for _ in range(arguments.runs):
            for name, (command, check) in measured.items():
                samples[name].append(seconds(command, check))
        rates = [sys.executable, "-c", RATE, *measured["1,000 keys, Tree.lookup"][0][-3:]]
        print(subprocess.run(rates, capture_output=True, text=True, check=True).stdout, end="")
    medians = {name: statistics.median(wall for wall, _ in values) for name, values in samples.items()}
    for name in sorted(medians):
        processor = statistics.median(cpu for _, cpu in samples[name])
        print(f"{name:32} {medians[name]:7.3f} s, processor {processor:7.3f} s")
    print(f"wanted: {TARGETS}")
    if with_puppet:
        for what, ours, theirs in (
            ("one key", "puller hiera lookup", "puppet lookup"),
            ("1,000 keys", "Tree.lookup", "puppet apply"),
        ):
            print(f"{what}: {medians[f'{what}, {theirs}'] / medians[f'{what}, {ours}']:.0f} times as fast")


if __name__ == "__main__":
    main()
