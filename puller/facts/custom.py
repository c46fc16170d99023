"""Custom facts: what the files and executables in ``facts.d`` say about this machine.

* Only what root, or the running user, has put there is read or run, and it is what was judged; see
  ``puller.system.trusted_files``.
* Files are taken in the order of their names, and later ones win: mappings merge, anything else is replaced.
* What is broken, late or not to be trusted is named in the problems and left out; it never stops a run.

The way from a directory to facts (``docs/facts.md``):

1. The directory is judged, with every directory and link on the way; one that is not there has no facts.
2. Its names are taken in order, without what editors and package managers leave.
3. Each path is judged as the directory was, since a link leads elsewhere.
4. A document is read: its form follows from its name.
5. An executable is run, in a limited time and with limited output: the form follows from what it prints.
6. What comes of it is merged over what came before; a problem is noted, and the next file is taken.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any

from puller.facts import documents
from puller.facts.fact_values import FactError, merged
from puller.system.commands import Command, run
from puller.system.trusted_files import judge

# What editors and package managers leave beside a file.
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
    """The facts of all directories, and what was wrong; ``limit`` is in seconds, for each executable."""
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
    """The files of each directory in the order of their names; a directory that is not there has none."""
    for directory in directories:
        try:
            # 1. Not a directory that a stranger could have filled.
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
    # 3. From here on by the path that was judged: the name could lead elsewhere by now.
    judged = judge(path)
    mode = judged.found.st_mode
    if stat.S_ISDIR(mode):
        return {}
    if judged.reason:
        raise FactError(path, f"is not read: {judged.reason}")
    form = documents.form_of_name(path)
    if not stat.S_ISREG(mode):
        raise FactError(path, "is not a regular file")
    # 4.
    if form:
        text = documents.content(judged.path)
        if form != "json" and not text.strip():  # as a full disk leaves it; JSON is never empty
            raise FactError(path, "is empty; remove it, or write a comment if it has no facts")
        return documents.parse(text, form, path)
    # 5.
    if mode & stat.S_IXUSR:
        return _run(path, judged.path, limit)
    raise FactError(path, "is neither executable nor named *.json, *.yaml, *.yml or *.txt")


def _run(path: str, program: str, limit: float) -> dict[str, Any]:
    """The facts that a program prints; ``path`` is the name of it in messages."""
    text = output_of(path, program, limit)
    return documents.parse(text, documents.form_of_output(text), f"output of {path}")


def is_leftover(name: str) -> bool:
    """Whether a file is hidden, or one that editors and package managers leave."""
    return name.startswith(".") or name.endswith(_LEFTOVERS)


def output_of(path: str, program: str, limit: float) -> bytes:
    """The output of a program, UTF-8 text, at most one byte more than a document may have.

    ``path`` is the name of it in messages. Raises ``FactError``, and ``OSError`` when it cannot be started.
    """
    completed = run(Command([program], timeout=limit, output_limit=documents.SIZE_LIMIT + 1))
    if completed.exit_code != 0:
        raise FactError(path, f"{completed.outcome}: {completed.tail(3)}".rstrip(": "))
    if "\ufffd" in completed.stdout:  # what stands for bytes that are no text
        raise FactError(f"output of {path}", "is not UTF-8 text")
    return completed.stdout.encode()
