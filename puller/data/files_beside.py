"""The files ``.env`` and ``.hiera`` beside a manifest, or in the current directory, as CCM reads them.

* ``.env`` adds variables to ``environ``. Each line is ``NAME=value``, with optional double quotes.
* ``.hiera`` is a data document below the data of the command line.
* Another user must not choose data for root. A file that another user owns or can write is ignored with a warning, and
  so is a link.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from foundation.problems import Location, Problem, ProblemCode
from puller.data.sources import SIZE_LIMIT
from puller.errors import reason

_VARIABLE = r"(?:export\s+)?([A-Za-z_]\w*)=(.*)"


class FilesBeside(msgspec.Struct, frozen=True):
    """The contents of the files beside a manifest."""

    environ: Mapping[str, str] = {}
    document: str | None = None
    """The text of ``.hiera``."""
    name: str = ""
    """The name of ``.hiera`` in messages."""
    ignored: tuple[Problem, ...] = ()
    """Why files were ignored."""


def read_beside(directory: Path) -> FilesBeside:
    """Return the files of a directory. A missing file is empty."""
    ignored: list[Problem] = []
    environment = _read(directory / ".env", ignored)
    document = _read(directory / ".hiera", ignored)
    return FilesBeside(parse_env(environment or ""), document, str(directory / ".hiera"), tuple(ignored))


def parse_env(text: str) -> dict[str, str]:
    """Return the variables of a ``.env`` file. Lines without a variable are ignored."""
    variables = {}
    for line in text.splitlines():
        if match := re.fullmatch(_VARIABLE, line.strip()):
            value = match[2].strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            variables[match[1]] = value[1:-1] if quoted else value
    return variables


def _read(path: Path, ignored: list[Problem]) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if why := _distrust(os.fstat(descriptor)):
                ignored.append(_ignored(path, why))
                return None
            content = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        ignored.append(_ignored(path, f"cannot be read: {reason(error)}"))
        return None
    if len(content) > SIZE_LIMIT:
        ignored.append(_ignored(path, f"has more than {SIZE_LIMIT} bytes"))
        return None
    return content.decode("utf-8", "surrogateescape")


def _distrust(status: os.stat_result) -> str:
    """Return why a file is not trusted. Empty if only root and the running user can write to it."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}"
    own_group = status.st_gid == os.getegid()
    return "is writable by others" if status.st_mode & (0o002 if own_group else 0o022) else ""


def _ignored(path: Path, why: str) -> Problem:
    message = f"{why}, so it is ignored"
    return Problem(code=ProblemCode.UNTRUSTED_PATH, message=message, location=Location(str(path)))
