"""The configuration of an agent of an ordinary user: what it may name, and who may have written that.

The rules are those of root's configuration, with the user in root's place: what nobody but root and that user can have
written. The difference is a group that has nobody but the user in it, which many systems make for each and let write.
"""

import os
from pathlib import Path

from foundation.problems import ProblemCode
from puller.errors import ConfigurationError, UsageError, file_problem
from puller.system.trusted_files import judge


def require_user() -> None:
    """Raise ``UsageError`` for root, whose agent is that of the machine."""
    if os.geteuid() == 0:
        raise UsageError(
            "--as-user is for ordinary users; root's agent is the machine's: run it without --as-user"
        )


def require_own(path: Path) -> None:
    """Raise ``ConfigurationError`` for a file that others can have written, or can put there.

    Judged is what the path means now. As nobody else can change anything on the way to it, it is what is read later.
    Of one that is not there, the directory is judged that it would be in.
    """
    try:
        judged = judge(os.fspath(path), private_group=True)
    except FileNotFoundError:
        require_own(path.parent)
        return
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be read", where=path)) from error
    if judged.reason:
        raise ConfigurationError(f"{path}: is not read: {judged.reason}", code=ProblemCode.UNTRUSTED_PATH)
