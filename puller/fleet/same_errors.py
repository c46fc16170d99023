"""Equal problems of several hosts: the same code, bundle, resource, property and place, and the same wrong name.

A problem without a name has its message as a value, such as the output of a tool. Values of one host or one moment are
replaced in all texts: *connection to 10.0.0.7:5432 refused (attempt 12345)* on one host equals *10.0.0.9:5432 …
(attempt 777)* on another. Small numbers stay, because exit statuses and versions have a meaning.
"""

import hashlib
import re
from functools import partial

from foundation.problems import Problem

_VARYING = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<uuid>"),
    (re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b"), "<address>"),
    (re.compile(r"\b([0-9a-fA-F]{1,4}:){3,7}:?[0-9a-fA-F]{0,4}\b"), "<address>"),
    (re.compile(r"(?<![\w.])(/var)?/tmp/[^\s'\",;:)]+"), "<temporary file>"),
    (re.compile(r"\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{12,}\b"), "<digest>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|seconds)\b"), "<duration>"),
    (re.compile(r"(?<![\w.])\d{4,}(?![\w.]*\.\d)"), "<number>"),
)
_LONGEST = 1000


def general_problem(problem: Problem, host: str) -> Problem:
    """Return a problem without the values of ``host`` and of the moment."""
    return problem.map_texts(partial(general, host=host))


def general(text: str, host: str) -> str:
    """Return a text without the values of ``host`` and of the moment."""
    text = " ".join(text[: 4 * _LONGEST].split())
    for name in sorted({host, host.partition(".")[0]}, key=len, reverse=True):
        if len(name) > 2:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<host>", text)
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def key_of(bundle: str, reference: str, problem: Problem) -> str:
    """Return the identity of a problem in a fleet, which is made of values that are general already."""
    of_problem = (problem.code, problem.subject, problem.property, str(problem.location))
    is_named = bool(problem.name)
    value = problem.name if is_named else problem.message
    values = "\0".join((bundle, reference, *of_problem, str(is_named), value))
    return hashlib.sha256(values.encode("utf-8", "replace")).hexdigest()[:16]
