"""The problems of an exception that fails a resource, also of the operating system and of a bug.

The module is there from the start of a run: without free descriptors nothing can be imported any more.
"""

import contextlib
import errno
from pathlib import Path

from bundles.filesystem.free_space import free_space
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
    """The reason that the system has given, the path, and of a full disk how full it is."""
    name = declaration.properties.name
    # Not all errors of the system name a path; a resource that is a path is the best that is known then.
    path = error.filename or (name if name.startswith("/") else "")
    what = reason(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and isinstance(path, str) and path.startswith("/"):
        known = [*getattr(error, "__notes__", [])]
        with contextlib.suppress(OSError):
            known.append(free_space(Path(path)))
        what = ": ".join([what, *([", ".join(known)] if known else [])])
    return f"{path}: {what}" if path else what


def _bug(error: Exception, declaration: Declaration) -> str:
    """An error that nobody has expected, with the end of its traceback; what it says of itself may be a secret."""
    import traceback

    said = type(error).__name__ if declaration.properties.sensitive else repr(error)
    return f"internal error: {said}\n{''.join(traceback.format_tb(error.__traceback__, limit=-3))}"
