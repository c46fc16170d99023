"""What goes wrong in a run outside of its resources: said at once, kept for the report, counted in the exit status."""

import msgspec

from bundles.errors import BundleError
from puller.errors import PullerError
from puller.exit_status import ExitStatus, worst
from puller.failures import status_of
from puller.log import Log
from puller.system import reason

Caught = BundleError | PullerError | OSError
"""What is trouble and no bug."""


class Troubles(msgspec.Struct):
    """``problems`` are sentences; ``statuses`` also hold what the resources come to."""

    log: Log
    problems: list[str] = []
    statuses: list[ExitStatus] = []

    @property
    def exit_status(self) -> ExitStatus:
        """What the run ends with."""
        return worst(*self.statuses)

    def error(self, sentence: str, status: ExitStatus) -> None:
        """Something went wrong that the exit status tells of."""
        self.log.error(sentence)
        self.problems.append(sentence)
        self.statuses.append(status)

    def caught(self, error: Caught) -> None:
        """The same for an error; trouble with a file of this machine stops updates, as a site that is away does."""
        if isinstance(error, OSError):
            self.error(sentence_of(error), ExitStatus.FETCH_FAILED)
        else:
            self.error(str(error), status_of(error) or ExitStatus.BUG)

    def warn(self, sentence: str) -> None:
        """Something that people should know, and that nothing failed for."""
        self.log.warn(sentence)
        self.problems.append(sentence)

    def count(self, status: ExitStatus) -> None:
        """What went well or wrong elsewhere."""
        self.statuses.append(status)


def sentence_of(error: OSError) -> str:
    """Which file, and what about it."""
    where = f"{error.filename}: " if error.filename else ""
    return where + reason(error)
