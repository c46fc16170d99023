"""The trial process: ``python -m puller.authoring.cases.trial_process``, the first process in its namespaces.

1. Read the trial from standard input, and load the bundle from this machine twice. Each run needs its own catalog.
2. Import all code that a resource may need, since the tree may have no Python.
3. Enter the private root.
4. Apply the catalog. If no resource has failed, apply it again.
5. Write the outcome to standard output. Commands of the bundle have no access to this descriptor.

``docs/trials.md`` describes the limits.
"""

import contextlib
import ctypes
import errno
import importlib
import os
import pkgutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from foundation.problems import ProblemCode
from hiera.errors import HieraError
from hiera.sops.identities import OPAQUE
from puller.authoring.cases.trial import Trial, TrialOutcome
from puller.data.sources import DataSource, Origin
from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import PullerError, ResourceError, SourceError
from puller.facts.fact_tree import described
from puller.manifest.graph.host_catalog import HostCatalog, load_together
from puller.manifest.manifest import Inputs, ManifestSource
from puller.reporting.report import Event, State
from puller.system.processes import StopRequests

# The private root: an overlay of the tree, with all writes in memory.
#
# 1. The process has its own ``/proc`` and a few devices without state. All kernel settings are read-only.
# 2. The required files of this machine (Python's modules, the bundle) are mounted read-only at their own paths.
# 3. The old root is unmounted. Afterwards no path leads to the machine.
# 4. The process enters a user namespace and continues as its root, without rights over earlier mounts: they are
#    locked, so they cannot be unmounted or made writable. Commands of a bundle can still mount their own file
#    systems. See user_namespaces(7) and mount_namespaces(7).

_PLACE: Final = "/sys"
"""Location of the private root. The original content of this directory is not used in these namespaces."""

_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS: Final = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}

# include/uapi/linux/mount.h, sched.h and prctl.h
_MNT_DETACH: Final = 2
_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUTS: Final = 0x04000000
_CLONE_NEWIPC: Final = 0x08000000
_CLONE_NEWUSER: Final = 0x10000000
_PR_SET_DUMPABLE: Final = 4


def enter_private_root(tree: str, needed: Iterable[str]) -> None:
    """Change the root of this process to a copy of ``tree``. The process has its own mount namespace and one thread.

    ``needed``: paths of this machine that stay readable. Raises ``SourceError`` if the kernel refuses.
    """
    root = f"{_PLACE}/root"
    _mount("-t", "tmpfs", "-o", "mode=0755", "puller-trial", _PLACE)
    for name in ("tree", "upper", "work", "root"):
        os.mkdir(f"{_PLACE}/{name}")
    # Bind-mounted, because commas and colons in the path would split the options of overlayfs.
    _mount("--bind", tree, f"{_PLACE}/tree")
    layers = f"lowerdir={_PLACE}/tree,upperdir={_PLACE}/upper,workdir={_PLACE}/work"
    mode = os.stat(f"{_PLACE}/tree").st_mode & 0o7777
    os.chmod(f"{_PLACE}/upper", mode)
    _mount("-t", "overlay", "-o", f"nodev,{layers}", "overlay", root)
    _mount_kernel(root)
    for path in needed:  # after /dev, because a bundle may be in /dev/shm
        _show(path, root)
    settings = os.open(
        "/proc/sys/user", os.O_PATH | os.O_DIRECTORY
    )  # writable, unlike the settings in the private root
    try:
        _change_root(root)
        _enter_user_namespace()
        _forbid_control_groups(settings)
    finally:
        os.close(settings)
    # The memory of this process still belongs to the machine's namespace. Commands must not read its environment or
    # forge its result.
    _libc_call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def _show(path: str, root: str) -> None:
    """Mount a file or directory of this machine, read-only, at its own path below ``root``."""
    target = Path(root + path)
    if os.path.isdir(path):
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount("--bind", "-o", "ro,nodev", path, str(target))


def _mount_kernel(root: str) -> None:
    for name in ("proc", "sys", "dev"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    _mount("-t", "proc", "-o", "nosuid,nodev,noexec", "proc", f"{root}/proc")
    for path in _of_kernel(f"{root}/proc"):
        _mount("--bind", "-o", "ro", path, path)
    _mount("-t", "sysfs", "-o", "ro,nosuid,nodev,noexec", "sysfs", f"{root}/sys")
    _mount("-t", "tmpfs", "-o", "mode=0755,nosuid", "dev", f"{root}/dev")
    for name in filter(lambda name: os.path.exists(f"/dev/{name}"), _DEVICES):
        Path(f"{root}/dev/{name}").touch()
        _mount("--bind", f"/dev/{name}", f"{root}/dev/{name}")
    for name, target in _LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")
    os.mkdir(f"{root}/dev/shm")  # noqa: S108  that of the private root
    _mount("-t", "tmpfs", "-o", "mode=1777,nosuid,nodev", "shm", f"{root}/dev/shm")  # noqa: S108


def _of_kernel(proc: str) -> list[str]:
    """Return the writable entries of ``/proc`` that belong to no process. Their mode alone lets root write."""
    with os.scandir(proc) as entries:
        return [
            entry.path
            for entry in entries
            if not entry.name.isdecimal()
            and not entry.is_symlink()
            and (entry.is_dir() or entry.stat().st_mode & 0o222)
        ]


def _change_root(root: str) -> None:
    """Put the old root over the new root, as pivot_root(2) describes, and unmount it."""
    os.chdir(root)
    _run("pivot_root", ".", ".")
    _libc_call("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def _enter_user_namespace() -> None:
    """Give up all rights outside a new user namespace, in which each account keeps its number.

    Only a process outside the namespace can write its numbers: a child, which runs nothing of the tree.
    """
    maps = {name: _same_numbers(Path(f"/proc/self/{name}").read_text()) for name in ("uid_map", "gid_map")}
    process = os.getpid()
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os._exit(_write_maps(wait, process, maps))
    os.close(wait)
    try:
        _libc_call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC)
        os.write(go, b"1")
    finally:
        os.close(go)
        _, status = os.waitpid(child, 0)
    if status:
        raise SourceError(
            "uid_map: cannot create a private root on this machine: the kernel refuses its accounts",
            code=ProblemCode.SYSTEM_ERROR,
        )


def _same_numbers(lines: str) -> str:
    """Return a map without renumbering, for a namespace inside one with the map ``lines`` (*inside outside count*)."""
    return "".join(f"{inside} {inside} {count}\n" for inside, _, count in map(str.split, lines.splitlines()))


def _write_maps(wait: int, process: int, maps: dict[str, str]) -> int:
    """Write the maps of ``process`` on its request. Return 1 if that fails, otherwise 0."""
    try:
        if os.read(wait, 1):
            for name, lines in maps.items():
                Path(f"/proc/{process}/{name}").write_text(lines)
    except OSError:
        return 1
    return 0


def _forbid_control_groups(settings: int) -> None:
    """Forbid namespaces of control groups, in which those of this machine could be mounted and written.

    ``settings``: a descriptor of ``/proc/sys/user``, where each process sees the limits of its own user namespace.
    """
    file = os.open("max_cgroup_namespaces", os.O_WRONLY, dir_fd=settings)
    with open(file, "w") as stream:
        stream.write("0")


def _mount(*arguments: str) -> None:
    _run("mount", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split())
        raise SourceError(
            f"{' '.join(command)}: cannot create a private root on this machine: {said}",
            code=ProblemCode.SYSTEM_ERROR,
        )


def _libc_call(name: str, *arguments: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        # unshare(2) reports ENOSPC for the limit user.max_user_namespaces, which some machines set to 0.
        limit = (
            ": user.max_user_namespaces is too low" if name == "unshare" and number == errno.ENOSPC else ""
        )
        raise SourceError(
            f"{name}: cannot create a private root on this machine: {os.strerror(number)}{limit}",
            code=ProblemCode.SYSTEM_ERROR,
        )


_STATE: Final = Path("/var/lib/puller")

_PACKAGES: Final = ("puller", "hiera", "bundles")
_NOT_HERE: Final = ("puller.cli", "puller.run", "puller.authoring", "puller.__main__", "bundles.client")
"""Packages that no resource needs."""

_COMPILED: Final = ("bz2", "ctypes", "hashlib", "lzma", "ssl", "uuid", "zlib", "yaml.cyaml", "encodings.idna")
"""Modules with libraries of this machine, which a tree may lack or have in other versions."""


def main() -> None:
    """Run the trial that standard input describes."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    trial = msgspec.json.decode(sys.stdin.buffer.read(), type=Trial)
    outcome = _outcome(trial)
    with open(answer, "wb") as stream:
        stream.write(msgspec.json.encode(outcome))


def _outcome(trial: Trial) -> TrialOutcome:
    try:
        catalogs = [_load(trial) for _ in range(2)]
        _load_code()
        enter_private_root(trial.tree, _needed(trial, catalogs[0]))
        with contextlib.suppress(OSError):
            socket.sethostname(_host_name(trial))
        first = _apply(catalogs[0])
        has_failed = any(event.state is State.FAILED for event in first)
        return TrialOutcome(first=tuple(first), second=() if has_failed else tuple(_apply(catalogs[1])))
    except (PullerError, HieraError, OSError) as error:
        return TrialOutcome(error=str(error))


def _load(trial: Trial) -> HostCatalog:
    data = tuple(DataSource(Origin.COMMAND_LINE, place, values) for place, values in trial.data)
    inputs = Inputs(described(trial.facts), trial.environ, data, trial.private_key, OPAQUE)
    return load_together([ManifestSource(Path(path), name) for path, name in trial.manifests], inputs)


def _host_name(trial: Trial) -> str:
    networking = trial.facts.get("networking")
    name = networking.get("hostname") if isinstance(networking, dict) else None
    return name if isinstance(name, str) and name else "host"


def _load_code() -> None:
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}.", onerror=lambda name: None):
            if not module.name.startswith(_NOT_HERE):
                importlib.import_module(module.name)
    for name in _COMPILED:
        importlib.import_module(name)


def _needed(trial: Trial, catalog: HostCatalog) -> Iterator[str]:
    """Yield paths of this machine: the modules of Python, each bundle, its libraries."""
    found = {path for entry in sys.path if os.path.exists(entry) for path in (entry, os.path.realpath(entry))}
    found -= {path for path in found if _is_of_system(path) and os.path.exists(trial.tree + path)}
    for path, _ in trial.manifests:
        found |= {os.path.dirname(path), os.path.dirname(os.path.realpath(path))}
    for declaration in catalog.declarations:
        files = declaration.home.files
        found |= {tree.root for tree in (files.tree, *files.libraries.values())}
    yield from sorted(path for path in map(os.path.abspath, found) if path != "/")


def _is_of_system(path: str) -> bool:
    """Return whether a path belongs to the standard library. The tree may have its own of the same version."""
    return os.path.dirname(os.__file__) == path or path.endswith("lib-dynload")


def _apply(catalog: HostCatalog) -> list[Event]:
    _STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
    stops = StopRequests()
    pending = PendingRefreshes(_STATE / "pending-refreshes.json", "trial")
    return apply_catalog(catalog, Settings(), stops, pending, state_directory=_STATE, fetch=_no_fetch).events


def _no_fetch(url: str) -> bytes:
    raise ResourceError(f"{url} is not downloaded, because a trial has no network")


if __name__ == "__main__":
    main()
