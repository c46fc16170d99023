"""Check of a TCP port and its greeting."""

from bundles.deadline import Deadline
from puller.checks.check_outcome import Answer
from puller.checks.kinds import Tcp, parse_address
from puller.checks.streams import NoConnectionError, closing, connect, greeting


def ask(check: Tcp, deadline: Deadline) -> Answer:
    """Connect, and read the greeting if the check needs it. Raises ``NotCarriedOut`` and ``DeadlineError``."""
    try:
        stream = connect(*parse_address(check.address), deadline)
    except NoConnectionError as error:
        return Answer([str(error)])
    with closing(stream):
        if check.greets is not None and (wrong := greeting(stream, check.greets, deadline)):
            return Answer([f"{check.address} {wrong}"])
    return Answer([], f"{check.address} accepts connections")
