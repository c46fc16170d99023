"""Resources that fail with the facts at hand when their turn comes: a template that cannot be rendered, and the like.

* Nothing is touched: templates are rendered, and sources looked for, as ``puller test`` does it.
* To compile a template takes far longer than to follow its names, so that only some are; how many are not is unchecked.
"""

from collections.abc import Iterator
from typing import Final

from foundation.problems import DependsOn, Location, ProblemCode
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.refusals import failure
from puller.authoring.lint.subject import Subject
from puller.authoring.resolution import Failing

_MOST: Final = 20  # files that are rendered: a few tenths of a second


def check(subject: Subject) -> Iterator[Finding]:
    """One finding for each such resource."""
    if subject.manifest is None:
        return

    failing = Failing(_MOST)
    for declaration, problems in failing.of(subject.manifest):
        for problem in problems:
            # The line of a template that fails says which fact it is about, if any; of what is set from one it may not.
            is_of_host = problem.depends_on is DependsOn.FACTS
            yield failure(declaration, problem, subject, is_of_host=is_of_host)
    if failing.left_out:
        what = f"the files of {failing.left_out} resources are not rendered here, as there are many: puller test does"
        place = Location(subject.manifest_name)
        yield Finding.of(ProblemCode.RESOURCE_FAILS, Severity.UNCHECKED, place, what)
