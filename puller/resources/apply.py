"""The ``apply`` resource: a child manifest of the same bundle (``docs/resources/apply.md``).

* The child's resources belong to the run like all others: references, order and refreshes work across manifests. They
  are collected when the manifest is read (``puller.manifest.children``).
* The resource itself only represents them: its event counts theirs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from puller.resources.base import Properties, PropertyError, Stateless
from puller.resources.claims import agree


class ApplyProperties(Properties, frozen=True):
    """The properties of a child manifest."""

    data: Mapping[str, Any] | None = None
    """Data for the child, merged over its own data. Unset: the data of this manifest."""
    allow_apply: bool = True
    """Whether the child can have children of its own."""
    health_check_only: bool = False
    """Only read the resources of the child, as with ``noop``, and run their health checks."""


class Apply(Stateless[ApplyProperties]):
    """A child manifest."""

    type_name = "apply"
    properties_type = ApplyProperties
    expressions_kept = frozenset(
        {"control", "data"}
    )  # secrets in the data stay secrets until the child uses them
    secret_properties = frozenset({"data"})
    providers = ("puller", "ccmmanifest")  # the second is the name in CCM

    @classmethod
    def subjects(cls, properties: ApplyProperties) -> Iterable[str]:
        """Return no subjects: the child's resources are checked again themselves."""
        del properties
        return ()

    @classmethod
    def check(cls, properties: ApplyProperties) -> Iterator[PropertyError]:
        name = properties.name
        if properties.ensure != "present":
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present")
        if "://" in name:
            yield PropertyError("name", f"must be a file path, not a URL: {name!r}")
        if not name or name.startswith("/"):
            yield PropertyError("name", f"is {name!r}", expected="a path relative to the manifest")

    @classmethod
    def agree(cls, first: ApplyProperties, second: ApplyProperties) -> ApplyProperties:
        """Merge two declarations that apply one child with the same data (``puller.manifest.children``)."""
        return agree(first, second, rules={"data": lambda left_side, other: left_side})
