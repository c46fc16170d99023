"""Problems of a run outside of its resources: said at once, kept for the report, counted in the exit status."""

import contextlib
from collections.abc import Iterator
from typing import Unpack

import msgspec

from bundles.errors import BundleError
from foundation.masking import mask_urls
from puller.errors import file_problem
from puller.exit_status import ExitStatus, worst
from puller.reporting.exit_codes import status_of
from puller.reporting.fields import Fields
from puller.reporting.log import Log
from puller.reporting.report import Summary


class RunProblems(msgspec.Struct):
    """``sentences`` are for people; ``statuses`` also hold what the resources come to."""

    log: Log
    sentences: list[str] = []
    statuses: list[ExitStatus] = []
    summaries: list[Summary] = []
    """Of the resources of each bundle: one bundle may have failed resources, and another changed ones."""
    detailed: bool = False
    """Changes alone count in the exit status."""

    @property
    def exit_status(self) -> ExitStatus:
        """The end of the run: the most serious of all that was counted."""
        failed = sum(summary.failed + summary.unmet for summary in self.summaries)
        changes = sum(summary.changes for summary in self.summaries)
        total = Summary(failed=failed, changed=changes)
        return worst(*self.statuses, total.exit_status(detailed=self.detailed))

    def error(self, sentence: str, status: ExitStatus, **fields: Unpack[Fields]) -> None:
        """Something went wrong that the exit status tells of; ``fields`` are for its entry in the log."""
        fields["exit"] = status
        self.log.error(sentence, **fields)
        self.sentences.append(sentence)
        self.statuses.append(status)

    def caught(self, error: Exception) -> str:
        """An error of any kind, told like ``error``; gives its sentence.

        A problem with a file or the memory of this machine stops updates, as a site that is away does.
        """
        sentence, status = sentence_of(error), status_of(error)
        if isinstance(error, OSError | MemoryError):
            status = ExitStatus.FETCH_FAILED
        elif status is None:
            self.log.error(_trace(error))
        self.error(sentence, status or ExitStatus.BUG)
        return sentence

    def warn(self, sentence: str) -> None:
        """Something that people should know, and that nothing failed for."""
        self.log.warn(sentence)
        self.sentences.append(sentence)

    def note(self, sentence: str, *, is_routine: bool) -> None:
        """Log a sentence. Only a sentence that is not routine is a problem of the run."""
        if is_routine:
            self.log.notice(sentence)
        else:
            self.warn(sentence)

    def count(self, status: ExitStatus) -> None:
        """Something that is told elsewhere counts in the exit status."""
        self.statuses.append(status)

    @contextlib.contextmanager
    def remembering(self) -> Iterator[None]:
        """Write down what was done; that it cannot be written is told, and is no reason to hide what was done."""
        try:
            yield
        except (BundleError, OSError) as error:
            self.warn(sentence_of(error))


def sentence_of(error: Exception) -> str:
    """The sentence about an error: which file, and what about it; of a bug, that it is one."""
    if isinstance(error, OSError):
        return file_problem(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for it"
    if status_of(error) is not None:
        return str(error)
    return mask_urls(
        f"{type(error).__name__}: {error}: this is a bug in Puller; please report it with its traceback"
    )


def _trace(error: Exception) -> str:
    import traceback  # for bugs only

    return mask_urls("".join(traceback.format_exception(error)).rstrip())
