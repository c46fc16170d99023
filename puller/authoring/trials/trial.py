"""A trial started: the process that has a root, devices, processes and a network of its own, and what it answers.

* Nothing of it outlasts its process: mounts, files and daemons are in namespaces that go with it, and it goes when this
  process does, however that ends. No directory is made on this machine, not even for the time being.
* The tree is only read: what is written goes to memory.
* It keeps a bundle from changing this machine by mistake: what the bundle runs there is root of a user namespace only.
  Memory, processor time and the kernel itself are shared with the machine.
"""

import os
import shutil
import subprocess
import sys
from typing import Final

import msgspec

from foundation.problems import ProblemCode
from puller.authoring.trials.asked import Trial, TrialOutcome
from puller.errors import UsageError
from puller.reporting.report import from_a_word

_TOOLS: Final = ("setpriv", "unshare", "mount", "pivot_root")  # all of util-linux
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_LIMIT: Final = 1800.0  # seconds, for both runs
_SAID: Final = 2000  # characters of what a process said before it ended without an answer


def run_trial(trial: Trial, *, limit: float = _LIMIT) -> TrialOutcome:
    """Apply the bundle twice, in at most ``limit`` seconds; raises ``UsageError`` where no trial can be made here."""
    verify_allowed()
    _verify_tree(trial.tree)
    try:
        done = subprocess.run(
            _command(),
            input=msgspec.json.encode(trial),
            capture_output=True,
            env=_environment(),
            cwd="/",
            # Ctrl-C is for this process, whose end is that of the trial.
            start_new_session=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return TrialOutcome(error=f"was not done after {limit:.0f} seconds, and was ended")
    if done.returncode:
        said = from_a_word(done.stderr.decode("utf-8", "replace").strip(), _SAID)
        return TrialOutcome(error=f"has ended without an answer, with status {done.returncode}: {said}")
    return msgspec.json.decode(done.stdout, type=TrialOutcome)


def verify_allowed() -> None:
    """Raises ``UsageError`` where no trial can be made, whatever the tree."""
    if os.geteuid() != 0:
        raise UsageError("--apply mounts a private root, which only root may do")
    if missing := [tool for tool in _TOOLS if not shutil.which(tool, path=_PATH)]:
        raise UsageError(
            f"--apply needs {', '.join(missing)} (Debian: the packages util-linux and mount)",
            code=ProblemCode.MISSING_DEPENDENCY,
        )


def _verify_tree(tree: str) -> None:
    if not os.path.isdir(tree):
        raise UsageError(f"{tree}: no directory", expected="the tree of an installed system for --apply")
    if not any(
        os.path.lexists(os.path.join(tree, file)) for file in ("etc/os-release", "usr/lib/os-release")
    ):
        raise UsageError(
            f"{tree}: has no etc/os-release", expected="the tree of an installed system for --apply"
        )
    if os.path.samefile(tree, "/"):
        raise UsageError(
            f"{tree}: is the root of this machine", expected="the tree of another system for --apply"
        )


def _command() -> list[str]:
    return [
        # Each process ends with the one before it, whatever ends that: this one, unshare, process 1 and all others.
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", "--mount", "--propagation", "private", "--net", "--pid"),
        *("--fork", "--kill-child=KILL"),
        *(sys.executable, "-P", "-m", "puller.authoring.trials.inside"),
    ]


def _environment() -> dict[str, str]:
    own = {name: os.environ[name] for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE") if name in os.environ}
    return {"PATH": _PATH, "LANG": "C.UTF-8", **own}
