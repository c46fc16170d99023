"""Facts that come with a bundle. Each file in ``facts.d`` is a fact: ``openssh.sh`` is the fact ``openssh``.

* A file is read or run when its fact is looked up, and once in a run. An unused fact costs a name in a list.
* A custom fact or a fact from options with this name has priority, and the file is ignored.
* If a file fails, each lookup of its fact fails. A failing fact is never treated as missing.

From a name to its fact:

1. The host's own value has priority.
2. If Puller runs as root, it requires that only root can write the file (``puller.system.trusted_files``).
3. A document is read. Its format follows from its name, and its value may be of any type.
4. An executable is run like a custom fact, with a time limit and limited output.
5. The value or the failure is cached.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foundation.problems import DependsOn, Location, Problem, ProblemCode
from hiera.errors import HieraError
from puller.errors import reason
from puller.facts import custom, fact_values
from puller.facts.fact_tree import BUILT_IN, Facts, is_legacy_name
from puller.facts.fact_values import FactError
from puller.system.trusted_files import judge

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLES = frozenset({"environment", "facts", "server_facts", "trusted"})
"""Names with another meaning in interpolations of Puppet's hierarchies."""


class BundleFactError(HieraError):
    """A failed fact, with its file as the place. The expression that uses the fact fails."""


class FactFile(NamedTuple):
    """The file of a fact."""

    path: str
    shown: str
    """Path relative to the bundle, for messages."""


def over(
    host: Mapping[str, Any], root: Path, directories: Sequence[Path]
) -> tuple[Mapping[str, Any], list[Problem]]:
    """Return the facts of a host with the facts in ``directories`` of the bundle at ``root``, and the files' problems.

    A bundle's facts stay the same for a run: they are cached with the facts of the host. If ``host`` is a complete
    description (``--no-system-facts``, ``--os``), no executable is run, and its fact must be provided.
    """
    if not isinstance(host, Facts):
        files, problems = _files(root, directories)
        return BundleFacts(host, files, None) if files else host, problems
    directories = [path for path in directories if os.fspath(path) not in host.custom_directories]
    place = tuple(map(os.fspath, directories))
    if (known := host.of_bundles.get(place)) is not None:
        return known, []
    files, problems = _files(root, directories)
    result: Mapping[str, Any] = BundleFacts(host, files, host.limit) if files else host
    if not problems:
        host.of_bundles[place] = result
    return result, problems


class BundleFacts(Mapping[str, Any]):
    """The facts of a host with a bundle's facts. Raises ``BundleFactError`` for a fact whose file fails.

    Iterating yields names, and runs no executable of the bundle.
    """

    def __init__(self, host: Mapping[str, Any], files: Mapping[str, FactFile], limit: float | None) -> None:
        """``limit`` is in seconds, for each executable. ``None`` runs no executable."""
        self.host = host
        self.on_demand = frozenset(files)
        """The names of the bundle's facts. Code that copies facts skips these, since reading them runs executables."""
        self.unlisted: bool = getattr(host, "unlisted", False)
        """Whether to avoid listing the host's facts before a template needs the names."""
        self._files = files
        self._limit = limit
        self._known: dict[str, Any] = {}
        self._failures: dict[str, FactError] = {}

    def __getitem__(self, key: str) -> Any:
        # Most of ten thousand resources read the same few facts.
        if key not in self._known:
            self._known[key] = self._find(key)
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self.host, *self._files}))

    def __len__(self) -> int:
        return len({*self.host, *self._files})

    def __bool__(self) -> bool:
        """Return true. Without this method, a mere ``if facts`` would gather all facts."""
        return True

    def as_dict(self, *, legacy: bool = False) -> dict[str, Any]:
        """Return all facts, except failed facts, which ``problems`` names."""
        host = self.host.as_dict(legacy=legacy) if isinstance(self.host, Facts) else dict(self.host)
        answers = {name: self._answer(name) for name in self._files}
        result = {name: value for name, value in answers.items() if not isinstance(value, BundleFactError)}
        return dict(sorted({**host, **result}.items()))

    @property
    def problems(self) -> list[str]:
        """Return a sentence for each source that failed."""
        return [str(problem) for problem in (*getattr(self.host, "problems", ()), *self._failures.values())]

    def _answer(self, name: str) -> Any:
        try:
            return self[name]
        except BundleFactError as error:
            return error

    def _find(self, key: str) -> Any:
        # 1. Names that only the host has, and host facts with priority over a file.
        if key not in self._files or key in self.host:
            return self.host[key]
        # 5. A failure is raised anew each time: its reader adds its own place.
        if key not in self._failures:
            file = self._files[key]
            try:
                value = _read(file, self._limit)
                reads = getattr(self.host, "reads", None)
                return value if reads is None else reads.read((key,), value)
            except FactError as error:
                self._failures[key] = error
            except OSError as error:
                self._failures[key] = FactError(file.shown, f"cannot be read: {reason(error)}")
        failure = self._failures[key]
        on = DependsOn.FACTS if failure.is_left_out else DependsOn.NOTHING
        code = failure.problems[0].code
        raise BundleFactError(failure.where, failure.what, code=code, name=key, depends_on=on)


def _read(file: FactFile, limit: float | None) -> Any:
    # 2. Only root needs this check: files of other users are often writable by their own group.
    judged = judge(file.path)
    if judged.reason and os.geteuid() == 0:
        raise FactError(file.shown, f"is not read: {judged.reason}")
    # 3.
    if form := fact_values.form_of_name(file.path):
        return fact_values.value(fact_values.content(judged.path), form, file.shown)
    # 4.
    if limit is None:
        detail = "is not run without the facts of this machine, so pass its value with --fact or --facts"
        raise FactError(file.shown, detail, is_left_out=True)
    try:
        output = custom.output_of(file.shown, judged.path, limit)
    except OSError as error:
        raise FactError(file.shown, f"cannot be started: {_why(error, judged.path)}") from error
    return fact_values.printed(output, f"output of {file.shown}")


def _why(error: OSError, program: str) -> str:
    if isinstance(error, PermissionError) and os.statvfs(program).f_flag & os.ST_NOEXEC:
        return f"{reason(error)}: its file system is mounted with noexec"
    return reason(error)


def _files(root: Path, directories: Sequence[Path]) -> tuple[dict[str, FactFile], list[Problem]]:
    """Return the file of each fact by name, and problems of the files. Only names and modes are read."""
    files: dict[str, FactFile] = {}
    problems: list[Problem] = []
    for directory in directories:
        for file in _in_directory(root, directory, problems):
            name = os.path.splitext(os.path.basename(file.path))[0]
            first = files.setdefault(name, file)
            if what := _wrong_name(name) or _wrong_kind(file.path):
                problems.append(_invalid(file.shown, what))
            elif first is not file:
                what = f"defines the fact {name}, as {first.shown} does, so rename one of them"
                problems.append(_invalid(file.shown, what))
    return files, problems


def _in_directory(root: Path, directory: Path, problems: list[Problem]) -> list[FactFile]:
    """Return the files of a directory, sorted by name. A missing directory is empty."""
    shown = os.path.relpath(directory, root)
    try:
        if stat.S_ISLNK(os.lstat(directory).st_mode):
            problems.append(_invalid(shown, _LINK))
            return []
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(_invalid(shown, f"cannot be read: {reason(error)}"))
        return []
    retained = (name for name in names if not custom.is_leftover(name))
    return [FactFile(os.path.join(directory, name), os.path.join(shown, name)) for name in retained]


def _invalid(file: str, description: str) -> Problem:
    return Problem(code=ProblemCode.INVALID_FACT_FILE, message=description, location=Location(file))


_LINK = "is a symbolic link, which a bundle cannot contain, expected the target itself"


def _wrong_name(name: str) -> str:
    """Return why the name is invalid for a fact, or empty text."""
    if _NAME.fullmatch(name) is None:
        return f"{name!r} is not a valid fact name, expected letters, digits and underscores before the extension"
    if name in BUILT_IN or name in _VARIABLES or is_legacy_name(name):
        return f"{name} is a fact of every machine that bundles cannot replace, so rename the file"
    return ""


def _wrong_kind(path: str) -> str:
    """Return why a file is invalid as a fact, or empty text."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        return f"cannot be read: {reason(error)}"
    if stat.S_ISLNK(mode):
        return _LINK
    if not stat.S_ISREG(mode):
        return "is not a regular file"
    if fact_values.form_of_name(path) is None and not mode & stat.S_IXUSR:
        return "must be executable, or named *.json, *.yaml, *.yml or *.txt"
    return ""
