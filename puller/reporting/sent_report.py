"""The document that a host sends to its fleet after a run, and its JSON Schema.

* A document contains everything that the fleet stores about a host. The newest document replaces all earlier ones.
* Values are plain and serialisable. They contain no secrets.
* Later versions may add fields and problem codes. A reader ignores unknown fields and treats unknown codes as text.
"""

from typing import Any

import msgspec

from foundation.differences import Difference
from foundation.problems import ProblemCode
from puller.reporting.report import Report
from puller.values.export_types import Value


class RestlessResource(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A resource that changes in run after run."""

    bundle: str
    reference: str
    """``type#name``."""
    runs: int
    """How many runs were looked at: the newest ones in which it was applied."""
    changes: int
    """In how many of them it changed."""
    differences: list[Difference] = []
    """Of the last changes, the newest first, each once and without a diff."""


class PublishedBundle(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A bundle on a host, after a run. Times are UTC in ISO 8601; empty: there is none, or it is not known."""

    name: str
    channel: str = ""
    pin: str = ""
    published: str = ""
    """The version that the channel names."""
    waits_until: str = ""
    """When the wave reaches this host that it has not reached yet."""
    enforced: str = ""
    enforced_since: str = ""
    good: str = ""
    """The last version that passed its health checks."""
    held: str = ""
    """Why another version than the published one is enforced."""
    quarantined: list[str] = []
    """Versions that this host has given up."""
    exports: dict[str, Value] = {}
    """The values that the bundle exports, by name; of the types that its manifest says."""


class SentReport(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="format", tag=3):
    """A host after a run, in one document, with its format in front."""

    host: str
    """As for waves: the name that the configuration gives it, or its own."""
    sent: str
    """When it was put together, UTC in ISO 8601."""
    facts: dict[str, Any] = {}
    """Those that the configuration lists, nested as in expressions."""
    metadata_expire: str = ""
    """When the first of the site's metadata on this host expire, UTC in ISO 8601."""
    bundles: list[PublishedBundle] = []
    restless: list[RestlessResource] = []
    left_out: str = ""
    """A sentence about what is missing because the document would be too large."""
    report: Report
    """The run; of the resources that were in order it has the number."""


# JSON Schema (2020-12), generated from the types above.

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of a ``SentReport``."""
    schema = msgspec.json.schema(SentReport)
    schema["$defs"][ProblemCode.__name__] = {"title": ProblemCode.__name__, "type": "string"}
    return {"$schema": _DIALECT, "title": "A report of a host of Puller", **schema}
