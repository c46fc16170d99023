"""JSON Schema (2020-12) of the documents that hosts send, made from the types that they are written from.

Fields that a later version adds are no error: who reads a document passes over what it does not know.
"""

from typing import Any

import msgspec

from puller.reporting.sent_report import SentReport

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    """The JSON Schema of a ``SentReport``."""
    schema = msgspec.json.schema(SentReport)
    return {"$schema": _DIALECT, "title": "A report of a host of Puller", **schema}
