"""Comments at the keys of data that look like annotations and have no effect.

* One that is nearly ``@sensitive``, ``@require`` or ``@validate`` is an error: the value is shown or unchecked.
* Any other ``@word`` may be for another program.
"""

from collections.abc import Iterator

import yaml

from hiera.document.annotations import find_annotations
from hiera.errors import HieraError
from puller.authoring.lint.findings import Finding
from puller.authoring.lint.refusals import finding
from puller.authoring.lint.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """The findings of all texts that authors have written."""
    for text in subject.texts:
        if not text.is_rendered:
            try:
                problems = find_annotations(text.text, text.source).warnings
            except (HieraError, yaml.YAMLError):
                continue  # reading the manifest has found the mistake
            yield from (finding(problem, subject) for problem in problems)
