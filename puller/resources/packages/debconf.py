"""Answers to what packages ask through debconf, given before they are installed.

* They may be passwords, so they are on standard input alone, and in no message.
* debconf accepts a question that no package asks, and says nothing: what it has is read back.
"""

from collections.abc import Callable, Sequence

from puller.errors import ResourceError
from puller.resources.packages.job import Job
from puller.resources.packages.properties import Answer
from puller.system.commands import Completed

_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "DEBCONF_NOWARNINGS": "yes"}


def give_answers(job: Job, answers: Sequence[tuple[str, Answer]]) -> None:
    """Give all answers, each with its package, at once; raises ``ResourceError`` when debconf has others then."""
    lines = [f"{package} {one.question} {one.type} {one.value.reveal()}\n" for package, one in answers]
    given = _called("debconf-set-selections", job.execute, lines)
    if given.exit_code != 0:
        raise ResourceError(f"debconf-set-selections: {given.outcome}")
    asked = _called("debconf-communicate", job.query, [f"GET {one.question}\n" for _, one in answers])
    found = asked.stdout.split("\n")[:-1]
    for (package, one), line in zip(answers, found, strict=False):
        if line != f"0 {one.value.reveal()}":
            raise ResourceError(
                f"debconf does not have the answer to {one.question} that {package} was given"
            )
    if len(found) != len(answers):
        raise ResourceError(
            f"debconf-communicate: {asked.outcome}, and {len(found)} answers of {len(answers)}"
        )


def _called(program: str, run: Callable[..., Completed], lines: Sequence[str]) -> Completed:
    try:
        return run(program, environment=_ENVIRONMENT, text="".join(lines))
    except ResourceError as error:
        raise ResourceError(f"{error} (package debconf)") from error
