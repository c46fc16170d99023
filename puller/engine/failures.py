"""The problems of an exception that fails a resource, also of the operating system and of a bug.

A run imports this module at its start, because without free descriptors imports fail.
"""

import contextlib
import errno
import traceback
from pathlib import Path

from bundles.filesystem.trees import free_space
from foundation.problems import HasProblems, Problem, ProblemCode
from puller.errors import reason
from puller.manifest.declaration import Declaration


def failures_of(error: Exception, declaration: Declaration) -> list[Problem]:
    """Return the problems of an exception that fails a resource."""
    if isinstance(error, OSError):
        return [Problem(code=ProblemCode.SYSTEM_ERROR, message=_system_failure(error, declaration))]
    if isinstance(error, HasProblems):
        return list(error.problems)
    return [Problem(code=ProblemCode.INTERNAL_ERROR, message=_bug(error, declaration))]


def _system_failure(error: OSError, declaration: Declaration) -> str:
    """Return the reason of the system and the path. For a full disk, add the free space."""
    name = declaration.properties.name
    # Some errors of the system have no path. The name of the resource is then the best substitute.
    path = error.filename or (name if name.startswith("/") else "")
    what = reason(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and isinstance(path, str) and path.startswith("/"):
        known = [*getattr(error, "__notes__", [])]
        with contextlib.suppress(OSError):
            known.append(free_space(Path(path)))
        what = ": ".join([what, *([", ".join(known)] if known else [])])
    return f"{path}: {what}" if path else what


def _bug(error: Exception, declaration: Declaration) -> str:
    """Return an unexpected error with the end of its traceback. Hide the message of a sensitive resource."""
    text = type(error).__name__ if declaration.properties.sensitive else repr(error)
    return f"internal error: {text}\n{''.join(traceback.format_tb(error.__traceback__, limit=-3))}"
