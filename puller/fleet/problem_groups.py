"""Equal problems of several hosts: the same code, bundle, resource, property and name.

No message is compared, because it contains values of one host or one moment, such as the output of a tool. The name of
the reporting host is replaced in the values that are compared: ``file#/srv/web1`` on the host ``web1`` equals
``file#/srv/web2`` on ``web2``.
"""

import hashlib
import re
from functools import partial

from foundation.problems import Problem

_LONGEST = 1000


def general_problem(problem: Problem, host: str) -> Problem:
    """Return a problem without the name of its host."""
    return problem.map_texts(partial(without_host, host=host))


def without_host(text: str, host: str) -> str:
    """Return a text without the name of ``host``, of a bounded size."""
    text = " ".join(text[: 4 * _LONGEST].split())
    for name in sorted({host, host.partition(".")[0]}, key=len, reverse=True):
        if len(name) > 2:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<host>", text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def key_of(bundle: str, reference: str, problem: Problem) -> str:
    """Return the identity of a problem in a fleet. ``reference`` and ``problem`` are without the name of their host."""
    values = "\0".join((bundle, reference, problem.code, problem.subject, problem.property, problem.name))
    return hashlib.sha256(values.encode("utf-8", "replace")).hexdigest()[:16]
