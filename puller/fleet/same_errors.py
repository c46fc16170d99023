"""Which errors are the same one: what is of one host or one moment alone is taken out of their sentences.

*connection to 10.0.0.7:5432 refused (attempt 12345)* on one host and *10.0.0.9:5432 … (attempt 777)* on another are one
failure to look at. Small numbers stay, as exit statuses and versions mean something.
"""

import hashlib
import re

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


def general(sentence: str, host: str) -> str:
    """The sentence without what is of ``host`` or of the moment."""
    text = " ".join(sentence[: 4 * _LONGEST].split())
    for name in sorted({host, host.partition(".")[0]}, key=len, reverse=True):
        if len(name) > 2:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<host>", text)
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def key_of(bundle: str, reference: str, message: str) -> str:
    """Identifies an error of a fleet: the same for the same one, whenever it comes up."""
    return hashlib.sha256("\0".join((bundle, reference, message)).encode("utf-8", "replace")).hexdigest()[:16]
