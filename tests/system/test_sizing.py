"""``docs/sizing.md``: its command prints each figure, here for a fleet of two hosts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/sizing.md").read_text()


@pytest.mark.nginx
@pytest.mark.thorough
def test_documented_command_prints_each_figure() -> None:
    (script,) = re.findall(r"^    python (tests/benchmarks/bench_sizing\.py)$", PAGE, re.MULTILINE)
    command = [sys.executable, ROOT / script, "2", "--repeat", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    for figure in (
        r"publisher, 21 bundles at once: .* s of a processor, \d+ MB",
        r"publisher, one bundle: .* MB",
        r"publisher, refresh: .* MB",
        r"publisher, disk of the site: .* MB",
        r"host, disk after the first run: .* MB",
        r"host, report: \d+ to \d+ bytes",
        r"web server, run without news: 2 requests, 231 bytes sent",
        r"web server, run with a release: 9 requests, ",
        r"  2 hosts in 1800 s: .* requests a second, .* kbit/s, .* % of a core",
        r"store, import of the first 2 reports: ",
        r"store, import of the next 2 reports: ",
        r"store, status: ",
        r"store, all pages: ",
        r"store, disk: ",
        r"store, disk of the pages: ",
    ):
        assert re.search(f"^{figure}", done.stdout, re.MULTILINE), f"{figure}\n{done.stdout}"
