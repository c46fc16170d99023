"""The time of lint for a bundle of many files: templates, a manifest that uses each, and data.

    .venv/bin/python tests/benchmarks/bench_lint.py [--files 500] [--rounds 3]

Each round is a separate process. The figure includes its start.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PULLER = Path(sys.executable).with_name("puller")
ENTRY = (
    '      - /etc/app/{n}.conf: {{template: templates/{n}.conf.j2, owner: root, group: root, mode: "0644"}}\n'
)
TEMPLATE = """\
# {{ facts.networking.hostname }}
{% for worker in range(data.workers) %}
worker {{ worker }} of {{ data.workers | string }}
{% endfor %}
"""


def write(bundle: Path, files: int) -> None:
    """Write the bundle. The manifest is one of its files."""
    (bundle / "templates").mkdir(parents=True)
    text = "data: {workers: 8}\nresources:\n  - file:\n"
    for number in range(files - 1):
        (bundle / f"templates/{number}.conf.j2").write_text(TEMPLATE)
        text += ENTRY.format(n=number)
    (bundle / "manifest.yaml").write_text(text)


def main() -> None:
    """Print the seconds of each round and the output of lint."""
    # If the environment forbids Python to store bytecode, each start would compile again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        bundle = Path(directory, "web")
        write(bundle, options.files)
        for _ in range(options.rounds):
            start = time.monotonic()
            done = subprocess.run([PULLER, "lint", bundle], check=False, capture_output=True, text=True)
            print(f"{time.monotonic() - start:6.2f} s  {done.stdout.splitlines()[-1].rpartition('/')[2]}")


if __name__ == "__main__":
    main()
