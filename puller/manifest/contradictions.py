"""Resources that cannot both be as they want, such as one line of a file that is to be there and to be absent.

Types find them (``Resource.contradictions``) among what is managed under no condition: two that are never applied
together contradict nothing.
"""

from collections.abc import Iterator, Sequence

import msgspec

from puller.manifest.declaration import Declaration
from puller.manifest.implied_order import has_own, properties_by_type
from puller.manifest.ways import has_conditions


class Between(msgspec.Struct, frozen=True):
    """A contradiction between two resources."""

    first: Declaration
    second: Declaration
    what: str

    @property
    def sentence(self) -> str:
        """The problem of the second one."""
        return f"{self.what}: {self.first.reference} at {self.first.origin}"

    def problem(self) -> str:
        """The problem of the second one in full, with file and line."""
        second = self.second
        return second.problems.worded(second.path, self.sentence, f"{second.label} {second.reference}")


def find_contradictions(declarations: Sequence[Declaration]) -> Iterator[Between]:
    """All contradictions between these resources, each once."""
    types = {declaration.type for declaration in declarations}
    asked = sorted((one for one in types if has_own(one, "contradictions")), key=lambda one: one.type_name)
    if not asked:  # as for most manifests
        return
    certain = [declaration for declaration in declarations if not has_conditions(declaration)]
    by_type = properties_by_type(certain)
    by_identity = {id(declaration.properties): declaration for declaration in certain}
    said = set()
    for one in asked:
        for first, second, what in one.contradictions(lambda name: by_type.get(name, ())):
            if (key := (id(first), id(second), what)) not in said:
                said.add(key)
                yield Between(by_identity[id(first)], by_identity[id(second)], what)
