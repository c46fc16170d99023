"""Rules for the configuration of an ordinary user's agent, and for the files that it names.

The rules are those of root's configuration, with the user in root's place: only root and this user may be able to write
the files. A private group of the user may also have write permission, as many systems create it.
"""

import os
from pathlib import Path

from foundation.problems import ProblemCode
from puller.errors import ConfigurationError, UsageError, file_problem
from puller.system.trusted_files import judge


def require_user() -> None:
    """Raise ``UsageError`` for root, whose agent is the machine's."""
    if os.geteuid() == 0:
        raise UsageError(
            "--as-user is for ordinary users, and root runs the agent of the machine",
            hint="run it without --as-user",
        )


def require_own(path: Path) -> None:
    """Raise ``ConfigurationError`` for a file that other users can write or replace.

    The check follows links. No other user can change the path later, so it is the file that is read. If the file does
    not exist, check its parent directory.
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
