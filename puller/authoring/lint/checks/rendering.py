"""Resources that fail with the available facts when they are applied, for example because a template fails.

* Templates are rendered and sources located as in ``puller test``, without changes of the machine.
* Compiling a template takes much longer than following its names. Therefore only some are rendered, and the number of
  skipped resources is reported as unchecked.
"""

from collections.abc import Iterator
from typing import Final

from foundation.problems import DependsOn, Location, ProblemCode
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.subject import Subject, failure
from puller.authoring.resolution import Failing

_MOST: Final = 20  # maximum files to render, in a few tenths of a second


def check(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each failing resource."""
    if subject.manifest is None:
        return

    failing = Failing(_MOST)
    for declaration, problems in failing.of(subject.manifest):
        for problem in problems:
            # The failing line names a missing fact. A variable that was set from a fact is not recognised.
            is_of_host = problem.depends_on is DependsOn.FACTS
            yield failure(declaration, problem, subject, is_of_host=is_of_host)
    if failing.left_out:
        detail = f"the files of {failing.left_out} further resources are not rendered. `puller test` renders all files"
        place = Location(subject.manifest_name)
        yield Finding.of(ProblemCode.RESOURCE_FAILS, Severity.UNCHECKED, place, detail)
