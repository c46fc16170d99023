"""``unneeded-reader``: an encrypted file that more recipients can read than need it.

* The check compares the recipients of each file of the bundle with ``recipients.yaml``, in the directory of the bundle
  or above it. Without this file, the hosts of the bundle are unknown, and there are no findings.
* A host whose ``bundles`` do not contain the bundle is unneeded. The bundle has the name of its directory. Hosts
  without the key ``bundles`` are accepted, and so are all people.
* A recipient that belongs to no person and no host is unneeded: usually a host that has gone.
* The store of the fleet is not read, so that lint has the same result everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from foundation.problems import Location, Problem, ProblemCode
from foundation.quantities import first_few
from hiera.errors import HieraError
from puller.authoring.lint.findings import Finding, Severity, Subject, finding
from puller.authoring.secrets.recipients import Recipients, find_recipients
from puller.authoring.secrets.rekeying import Sealed, find_sealed
from puller.errors import PullerError


def check(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each file with unneeded readers."""
    if not subject.is_bundle:
        return
    root = os.path.realpath(subject.directory)
    try:
        files = list(find_sealed([root]))
    except (PullerError, HieraError):  # other rules report files that a host cannot read
        return
    if not files:
        return
    try:
        recipients = find_recipients(root)
    except PullerError as error:
        for problem in error.problems:
            yield finding(problem, subject, Severity.WARNING, ProblemCode.UNNEEDED_READER)
        return
    for sealed in files if recipients.source else ():
        unneeded = list(_unneeded(sealed, recipients, os.path.basename(root)))
        if unneeded:
            place = Location(os.path.normpath(os.path.join(subject.name, os.path.relpath(sealed.path, root))))
            message = f"can be read by {first_few(unneeded)}, which the bundle does not need"
            hint = "correct recipients.yaml, or remove the readers with `puller secrets rekey`"
            problem = Problem(code=ProblemCode.UNNEEDED_READER, message=message, location=place, hint=hint)
            yield Finding(problem, Severity.WARNING)


def _unneeded(sealed: Sealed, recipients: Recipients, bundle: str) -> Iterator[str]:
    people = set(recipients.people.values())
    for recipient, name in sealed.names(recipients).items():
        if recipient in people:
            continue
        known = recipients.host_of(recipient)
        if known is None:
            yield f"{name} (unknown)"
        elif known[1].bundles is not None and bundle not in known[1].bundles:
            yield name
