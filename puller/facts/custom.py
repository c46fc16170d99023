"""Custom facts from the files and executables in ``facts.d``.

* Only files of root, or of the running user, are read or run, exactly as they were checked
  (``puller.system.trusted_files``).
* Files are processed in the order of their names, and later ones have priority: mappings merge, other values are
  replaced.
* Invalid, slow or untrusted files are named in the problems and left out. They never stop a run.

From a directory to facts (``docs/facts.md``):

1. The directory is checked, with every directory and link on the way. A missing directory has no facts.
2. Its names are processed in order, without leftovers of editors and package managers.
3. Each path is checked like the directory, since a link leads elsewhere.
4. A document is read. Its format follows from its name.
5. An executable is run, with a time limit and limited output. The format follows from the output.
6. The result is merged over earlier facts. A problem is recorded, and the next file follows.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any

from puller.facts import fact_values
from puller.facts.fact_values import FactError, merged
from puller.system.commands import Command, run
from puller.system.trusted_files import judge

# Names of files that editors and package managers leave behind.
_LEFTOVERS = (
    "~",
    ".bak",
    ".dpkg-dist",
    ".dpkg-new",
    ".dpkg-old",
    ".dpkg-tmp",
    ".rpmnew",
    ".rpmorig",
    ".rpmsave",
    ".swp",
)


def load(directories: Sequence[str], limit: float) -> tuple[dict[str, Any], list[FactError]]:
    """Return the facts of all directories, and all problems. ``limit`` is in seconds, for each executable."""
    facts: Any = {}
    problems: list[FactError] = []
    for path in _sources(directories, problems):
        # 6.
        try:
            facts = merged(facts, _read(path, limit))
        except FactError as error:
            problems.append(error)
        except OSError as error:
            problems.append(FactError(path, error.strerror or str(error)))
    return facts, problems


def _sources(directories: Sequence[str], problems: list[FactError]) -> Iterator[str]:
    """Yield the files of each directory in the order of their names. A missing directory is empty."""
    for directory in directories:
        try:
            # 1. Reject a directory in which other users can create files.
            judged = judge(directory)
            names = [] if judged.reason else sorted(os.listdir(judged.path))
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(FactError(directory, error.strerror or str(error)))
            continue
        if judged.reason:
            problems.append(FactError(directory, f"is not read: {judged.reason}"))
        # 2.
        for name in names:
            if not is_leftover(name):
                yield os.path.join(directory, name)


def _read(path: str, limit: float) -> dict[str, Any]:
    # 3. Use the checked path from now on, since the name could lead elsewhere by now.
    judged = judge(path)
    mode = judged.found.st_mode
    if stat.S_ISDIR(mode):
        return {}
    if judged.reason:
        raise FactError(path, f"is not read: {judged.reason}")
    form = fact_values.form_of_name(path)
    if not stat.S_ISREG(mode):
        raise FactError(path, "is not a regular file")
    # 4.
    if form:
        text = fact_values.content(judged.path)
        if form != "json" and not text.strip():  # as a full disk leaves it (JSON is never empty)
            raise FactError(path, "is empty, so remove it, or write a comment into it")
        return fact_values.parse(text, form, path)
    # 5.
    if mode & stat.S_IXUSR:
        return _run(path, judged.path, limit)
    raise FactError(path, "must be executable, or named *.json, *.yaml, *.yml or *.txt")


def _run(path: str, program: str, limit: float) -> dict[str, Any]:
    """Return the facts that a program prints. ``path`` is its name in messages."""
    text = output_of(path, program, limit)
    return fact_values.parse(text, fact_values.form_of_output(text), f"output of {path}")


def is_leftover(name: str) -> bool:
    """Return whether a file is hidden, or a leftover of editors and package managers."""
    return name.startswith(".") or name.endswith(_LEFTOVERS)


def output_of(path: str, program: str, limit: float) -> bytes:
    """Return the output of a program, UTF-8 text, at most one byte above the size limit of a document.

    ``path`` is its name in messages. Raises ``FactError``, and ``OSError`` if it cannot be started.
    """
    completed = run(Command([program], timeout=limit, output_limit=fact_values.SIZE_LIMIT + 1))
    if completed.exit_code != 0:
        raise FactError(path, f"{completed.outcome}: {completed.tail(3)}".rstrip(": "))
    if "\ufffd" in completed.stdout:  # replaces bytes that are not UTF-8
        raise FactError(f"output of {path}", "is not UTF-8 text")
    return completed.stdout.encode()
