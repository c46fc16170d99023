"""Comments at the keys of data that look like annotations but have no effect.

* A misspelt ``@sensitive``, ``@require`` or ``@validate``, or one that belongs to no key, is an error, because the
  value is shown or unchecked.
* Any other ``@word`` may be for another program.
"""

from collections.abc import Iterator

import yaml

from hiera.document.annotations import find_annotations
from hiera.errors import HieraError
from puller.authoring.lint.findings import Finding
from puller.authoring.lint.names.bundle import bundle_of
from puller.authoring.lint.refusals import finding
from puller.authoring.lint.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in all texts of authors."""
    written = [(text.text, text.source) for text in subject.texts if not text.is_rendered]
    written += [(file.yaml.text, file.yaml.name) for file in bundle_of(subject).data_files]
    for text, source in written:
        try:
            problems = find_annotations(text, source).warnings
        except (HieraError, yaml.YAMLError):
            continue  # reading the manifest reports the mistake
        yield from (finding(problem, subject) for problem in problems)
