"""JSON Schema (2020-12) of the documents that hosts send, made from the types that they are written from.

Later versions may add fields and problem codes. A reader ignores unknown fields, and treats an unknown code as text.
"""

from typing import Any

import msgspec

from foundation.problems import ProblemCode
from puller.reporting.sent_report import SentReport

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    """The JSON Schema of a ``SentReport``."""
    schema = msgspec.json.schema(SentReport)
    schema["$defs"][ProblemCode.__name__] = {"title": ProblemCode.__name__, "type": "string"}
    return {"$schema": _DIALECT, "title": "A report of a host of Puller", **schema}
