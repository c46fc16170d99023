"""Trials: a bundle applied in a process with its own root, devices, processes and network.

* All mounts, files and daemons of a trial are in namespaces that end with the trial process. The trial process ends
  when this process ends, for any reason. A trial creates no directory on this machine.
* The tree is read-only. All writes go to memory.
* A trial protects this machine from mistakes. The commands of the bundle are root only in a user namespace. Memory,
  processor time and the kernel are shared with the machine.

``docs/trials.md`` is the guide.
"""

import os
import shutil
import subprocess
import sys
from typing import Any, Final

import msgspec

from foundation.formatting import lines
from foundation.problems import ProblemCode
from puller.errors import UsageError
from puller.reporting.report import Event, State, from_a_word

# Documents that the trial process reads and writes.


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle, its machine, and the tree to apply it to."""

    tree: str
    """The absolute path of the directory with an installed system."""
    manifests: tuple[tuple[str, str], ...]
    """Path and name of each manifest: the bundles that precede it on its hosts, then the bundle."""
    facts: dict[str, Any] = {}
    data: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Place and values of data over that of the bundle, lowest precedence first."""
    environ: dict[str, str] = {}
    private_key: str = ""
    """The path of the key for encrypted values."""


class TrialOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of each resource in both runs. After a failed first run, the second is empty."""

    first: tuple[Event, ...] = ()
    second: tuple[Event, ...] = ()
    error: str = ""
    """Why the application was incomplete."""

    @property
    def failures(self) -> list[str]:
        """A sentence for each failure. Empty if the trial has passed."""
        return [
            *([self.error] if self.error else []),
            *(_of_first(event) for event in self.first if event.state is State.FAILED),
            *(_of_second(event) for event in self.second if event.state is State.FAILED or event.changed),
        ]


def _of_first(event: Event) -> str:
    return f"{event.reference}: cannot be applied: {'; '.join(event.errors)}"


def _of_second(event: Event) -> str:
    why = (
        "; ".join((*event.errors, *lines(event.differences, is_predicted=event.is_predicted)))
        or "is refreshed again"
    )
    return f"{event.reference}: changes again when it is applied a second time: {why}"


_TOOLS: Final = ("setpriv", "unshare", "mount", "pivot_root")  # all of util-linux
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_LIMIT: Final = 1800.0  # seconds, for both runs
_SAID: Final = 2000  # characters of the output of a process that ended without a result


def run_trial(trial: Trial, *, limit: float = _LIMIT) -> TrialOutcome:
    """Apply the bundle twice, in at most ``limit`` seconds. Raises ``UsageError`` if no trial is possible here."""
    verify_allowed()
    _verify_tree(trial.tree)
    try:
        done = subprocess.run(
            _command(),
            input=msgspec.json.encode(trial),
            capture_output=True,
            env=_environment(),
            cwd="/",
            # Ctrl-C reaches only this process. When it ends, the trial ends.
            start_new_session=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return TrialOutcome(error=f"exceeded the limit of {limit:.0f} seconds and was stopped")
    if done.returncode:
        said = from_a_word(done.stderr.decode("utf-8", "replace").strip(), _SAID)
        return TrialOutcome(error=f"ended without a result, with status {done.returncode}: {said}")
    return msgspec.json.decode(done.stdout, type=TrialOutcome)


def verify_allowed() -> None:
    """Raise ``UsageError`` if no trial is possible here, with any tree."""
    if os.geteuid() != 0:
        raise UsageError("--apply requires root, because it mounts a private root")
    if missing := [tool for tool in _TOOLS if not shutil.which(tool, path=_PATH)]:
        raise UsageError(
            f"--apply requires {', '.join(missing)} (Debian: the packages util-linux and mount)",
            code=ProblemCode.MISSING_DEPENDENCY,
        )


def _verify_tree(tree: str) -> None:
    if not os.path.isdir(tree):
        raise UsageError(
            f"{tree}: is not a directory", expected="the tree of an installed system for --apply"
        )
    if not any(
        os.path.lexists(os.path.join(tree, file)) for file in ("etc/os-release", "usr/lib/os-release")
    ):
        raise UsageError(
            f"{tree}: etc/os-release is missing", expected="the tree of an installed system for --apply"
        )
    if os.path.samefile(tree, "/"):
        raise UsageError(
            f"{tree}: is the root of this machine", expected="the tree of another system for --apply"
        )


def _command() -> list[str]:
    return [
        # Each process ends with its parent, for any reason: this process, unshare, process 1 and all others.
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", "--mount", "--propagation", "private", "--net", "--pid"),
        *("--fork", "--kill-child=KILL"),
        *(sys.executable, "-P", "-m", "puller.authoring.cases.trial_process"),
    ]


def _environment() -> dict[str, str]:
    own = {name: os.environ[name] for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE") if name in os.environ}
    return {"PATH": _PATH, "LANG": "C.UTF-8", **own}
