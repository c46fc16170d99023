"""Five thousand files in sync, each from its own Jinja2 template: seconds of processor time.

    .venv/bin/python tests/benchmarks/bench_apply_templates.py [--size 5000] [--rounds 5]

* Each template has a loop over five servers, conditions and filters, and ten lines. No two templates are equal.
* A first run caches the compiled templates. *Kept* uses this cache. *None kept* starts with an empty state directory
  and compiles all templates. Both change nothing.
* The two alternate, so that a busy moment of the machine affects both. The medians are shown.
"""

import argparse
import grp
import os
import pwd
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

OWNER = pwd.getpwuid(os.getuid()).pw_name
GROUP = grp.getgrgid(os.getgid()).gr_name
PULLER = Path(sys.executable).with_name("puller")

BEGINNING = """\
data:
  port: 8080
  tls: true
  certificate: shop
  servers:
{servers}
resources:
  - file:
      - defaults: {{owner: {owner}, group: {group}, mode: "0644"}}
"""
SERVER = "    - {{name: s{number}, address: 10.0.0.{number}, backup: {backup}}}\n"
TEMPLATE = """\
# {number}: managed
listen {{{{ data.port }}}};
host {{{{ facts.networking.hostname }}}}
{{% for one in data.servers %}}
upstream {{{{ one.name }}}} {{{{ one.address }}}}:{{{{ one.port | default(80) }}}}{{{{ ' backup' if one.backup }}}};
{{% endfor %}}
{{% if data.tls %}}ssl on; certificate {{{{ data.certificate | upper }}}};{{% else %}}ssl off;{{% endif %}}

number {number}
"""


def write_bundle(bundle: Path, files: Path, size: int) -> None:
    """Write a bundle with this number of files, which are applied to the directory ``files``."""
    (bundle / "templates").mkdir(parents=True)
    files.mkdir()
    servers = "".join(SERVER.format(number=n, backup=str(n % 2 == 0).lower()) for n in range(5))
    with (bundle / "manifest.yaml").open("w") as manifest:
        manifest.write(BEGINNING.format(servers=servers, owner=OWNER, group=GROUP))
        for number in range(size):
            manifest.write(f"      - {files}/{number}: {{template: templates/{number}.j2}}\n")
            (bundle / f"templates/{number}.j2").write_text(TEMPLATE.format(number=number))


def measure(bundle: Path, state: Path) -> float:
    """Return seconds of processor time of one run."""
    command = ["puller", "apply", str(bundle), "--state-directory", str(state)]
    silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(PULLER, command, os.environ, file_actions=silence)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    # If the environment forbids Python to store bytecode, each start would compile again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        write_bundle(work / "bundle", work / "files", options.size)
        first = measure(work / "bundle", work / "state")
        retained, none_kept = [], []
        for _ in range(options.rounds):
            retained.append(measure(work / "bundle", work / "state"))
            none_kept.append(measure(work / "bundle", work / "empty"))
            shutil.rmtree(work / "empty")
        size = (work / "state/template-cache/templates").stat().st_size
    print(f"{options.size} files from templates, {options.rounds} rounds, code of {size / 2**20:.0f} MiB")
    print(f"  first run    {first:6.2f} s")
    print(f"  none kept    {statistics.median(none_kept):6.2f} s")
    print(f"  kept         {statistics.median(retained):6.2f} s   ", end="")
    print("target: at most 2", "reached" if statistics.median(retained) <= 2 else "MISSED")


if __name__ == "__main__":
    main()
