"""Check of a Unix socket and its greeting."""

import socket

from bundles.deadline import Deadline
from puller.checks.check_outcome import Answer, NotCarriedOut
from puller.checks.kinds import Unix
from puller.checks.streams import closing, greeting
from puller.errors import reason


def ask(check: Unix, deadline: Deadline) -> Answer:
    """Connect, and read the greeting if the check needs it. Raises ``NotCarriedOut`` and ``DeadlineError``."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with closing(stream):
        stream.settimeout(deadline.at_most(deadline.seconds))
        try:
            stream.connect(check.path)
        except PermissionError as error:
            raise NotCarriedOut(f"{check.path}: {reason(error)}") from error
        except OSError as error:
            deadline.verify()
            return Answer([f"{check.path} accepts no connection: {reason(error)}"])
        if check.greets is not None and (wrong := greeting(stream, check.greets, deadline)):
            return Answer([f"{check.path} {wrong}"])
    return Answer([], f"{check.path} accepts connections")
