"""Answers to debconf questions of packages, set before the installation.

* Answers may be passwords, so they are passed on standard input only, and never appear in messages.
* debconf silently accepts questions that no package asks, so the answers are read back.
* An installed package does not ask again. Different answers are detected from debconf's file, without a process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.packages.manager import Job
from puller.resources.packages.package_properties import Answer
from puller.resources.read_once import ReadOnce
from puller.system.commands import Completed

DATABASE = "/var/cache/debconf/config.dat"
"""All answers except passwords. debconf stores passwords in a separate file and usually removes them after use."""
_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "DEBCONF_NOWARNINGS": "yes"}


def give_answers(job: Job, answers: Sequence[tuple[str, Answer]]) -> None:
    """Set all answers, each with its package, in one call.

    Raises ``ResourceError`` if debconf then has other answers.
    """
    lines = [f"{package} {item.question} {item.type} {item.value.reveal()}\n" for package, item in answers]
    provided = _called("debconf-set-selections", job.execute, lines)
    if provided.exit_code != 0:
        raise ResourceError(f"debconf-set-selections: {provided.outcome}")
    requested = _called("debconf-communicate", job.query, [f"GET {item.question}\n" for _, item in answers])
    result = requested.stdout.split("\n")[:-1]
    for (package, item), line in zip(answers, result, strict=False):
        if line != f"0 {item.value.reveal()}":
            raise ResourceError(
                f"debconf does not have the answer to {item.question} that {package} was given"
            )
    if len(result) != len(answers):
        raise ResourceError(
            f"debconf-communicate: {requested.outcome}, and {len(result)} answers of {len(answers)}"
        )


class Database(ReadOnce[Mapping[str, str]]):
    """The answers in debconf's file, by question."""


def find_other_answers(answers: Sequence[Answer], context: Context) -> Iterator[str]:
    """Yield the questions that debconf answers differently for an installed package. Raises ``OSError``."""
    if Database not in context.shared:
        context.shared[Database] = Database((DATABASE,), _parse)
    known: Mapping[str, str] = context.shared[Database].current(context)
    for answer in answers:
        if known.get(answer.question, answer.value.reveal()) != answer.value.reveal():
            yield answer.question


def _parse(contents: Mapping[str, bytes]) -> Mapping[str, str]:
    """Return the values of stanzas with ``Name: …`` and ``Value: …``. Unanswered questions have no value."""
    result = {}
    for stanza in contents.get(DATABASE, b"").decode(errors="replace").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line)
        if "Name" in fields and "Value" in fields:
            result[fields["Name"]] = fields["Value"]
    return result


def _called(program: str, run: Callable[..., Completed], lines: Sequence[str]) -> Completed:
    try:
        return run(program, environment=_ENVIRONMENT, text="".join(lines))
    except ResourceError as error:
        raise ResourceError(f"{error} (package debconf)") from error
