"""The document that a host sends to its fleet after a run, and its JSON Schema.

* A document contains everything that the fleet stores about a host. The newest document replaces all earlier ones.
* Values are plain and serialisable. They contain no secrets.
* Later versions may add fields and problem codes. A reader ignores unknown fields and treats unknown codes as text.
"""

from collections.abc import Iterable
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
    """The number of examined runs: the newest runs that applied the resource."""
    changes: int
    """The number of examined runs that changed the resource."""
    differences: list[Difference] = []
    """Differences of these changes, newest first, without duplicates and diffs."""


class PublishedBundle(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A bundle on a host, after a run. Times are UTC in ISO 8601. An empty text is a missing or unknown value."""

    name: str
    channel: str = ""
    pin: str = ""
    published: str = ""
    """The version that the channel names."""
    waits_until: str = ""
    """The time at which the rollout reaches this host, if it is known."""
    enforced: str = ""
    enforced_since: str = ""
    good: str = ""
    """The last version that passed its health checks."""
    held: str = ""
    """Why the host does not run the published release. Usually empty."""
    quarantined: list[str] = []
    """Versions that this host has given up."""
    exports: dict[str, Value] = {}
    """The exported values of the bundle, by name. The manifest declares their types."""


FactPath = tuple[Any, ...]
"""The keys that lead to a fact: ``("os", "family")``."""


class SentFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts of a host that a document contains, and their limits."""

    facts: dict[str, Any] = {}
    """Nested as in expressions."""
    absent_facts: list[str] = []
    """Dotted names of facts that bundles have read and that the host lacks."""
    whole_facts: list[str] = []
    """Dotted names of mappings that are complete in ``facts``. Other mappings may have more keys on the host."""

    def knows(self, path: FactPath) -> bool:
        """Return whether a missing fact at ``path`` is known to be missing on the host."""
        return _has_prefix(path, self.absent_facts) or _has_prefix(path[:-1], self.whole_facts)

    def has_all_of(self, path: FactPath) -> bool:
        """Return whether the mapping at ``path`` is complete, or known to be missing."""
        return _has_prefix(path, self.whole_facts) or _has_prefix(path, self.absent_facts)


def dotted(path: Iterable[Any]) -> str:
    """Return the name of a path, such as ``os.family``."""
    return ".".join(map(str, path))


def _has_prefix(path: FactPath, names: Iterable[str]) -> bool:
    prefixes = {dotted(path[:length]) for length in range(1, len(path) + 1)}
    return not prefixes.isdisjoint(names)


class SentReport(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="format", tag=3):
    """The document about a host after a run. The format comes first."""

    host: str
    """The name of the host, as in rollouts: ``host_name`` of the configuration, or the fully qualified name."""
    sent: str
    """The time of the document, UTC in ISO 8601."""
    facts: dict[str, Any] = {}
    """The facts listed in the configuration, the names of the host, and the facts that its bundles have read, nested as
    in expressions.
    """
    absent_facts: list[str] = []
    """Dotted names of listed and read facts that the host lacks."""
    whole_facts: list[str] = []
    """Dotted names of mappings in ``facts`` that are complete. Other mappings may have more keys on the host."""
    metadata_expire: str = ""
    """The first expiry of the site's metadata on this host, UTC in ISO 8601."""
    recipient: str = ""
    """The public part of the host's key for encrypted files: ``age1…`` or ``ssh-ed25519 …``. Empty without a key."""
    bundles: list[PublishedBundle] = []
    restless: list[RestlessResource] = []
    left_out: str = ""
    """A sentence about the parts omitted because of the size limit."""
    report: Report
    """The run. It only counts unchanged resources."""


# JSON Schema (2020-12), generated from the types above.

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of a ``SentReport``."""
    schema = msgspec.json.schema(SentReport)
    schema["$defs"][ProblemCode.__name__] = {"title": ProblemCode.__name__, "type": "string"}
    return {"$schema": _DIALECT, "title": "A report of a host of Puller", **schema}
