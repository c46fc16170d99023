"""Resources that cannot both be as they want, such as one line of a file that is to be there and to be absent.

Claims on paths are compared for all types (``path_claims``). Types find the other contradictions
(``Resource.contradictions``). Only resources without a condition count, since two resources that are never applied
together contradict nothing.
"""

from collections.abc import Iterator, Sequence

import msgspec

from foundation.problems import Problem, ProblemCode
from puller.manifest.declaration import Declaration
from puller.manifest.implied_order import DeclaredResources, has_own
from puller.manifest.path_claims import find_conflicts
from puller.manifest.ways import has_conditions
from puller.resources.spellings import Spellings


class Between(msgspec.Struct, frozen=True):
    """A contradiction between two resources."""

    first: Declaration
    second: Declaration
    what: str

    @property
    def sentence(self) -> str:
        """The problem of the second one."""
        return f"{self.what}: {self.first.reference} at {self.first.origin}"

    def problem(self) -> Problem:
        """The problem of the second one."""
        first, second = self.first, self.second
        return second.problems.problem(
            second.path,
            self.sentence,
            str(second.reference),
            ProblemCode.RESOURCE_CONFLICT,
            related=(first.problems.location(first.path),),
        )


def find_contradictions(declarations: Sequence[Declaration], spellings: Spellings) -> Iterator[Between]:
    """Return all contradictions between these resources, each pair once."""
    reported: set[tuple[int, int]] = set()
    for between in (*_of_paths(declarations, spellings), *_of_types(declarations, spellings)):
        pair = id(between.first), id(between.second)
        if pair not in reported:
            reported.add(pair)
            yield between


def _of_paths(declarations: Sequence[Declaration], spellings: Spellings) -> Iterator[Between]:
    for first, second, sentence in find_conflicts(declarations, spellings):
        if not has_conditions(first) and not has_conditions(second):
            yield Between(first, second, sentence)


def _is_known(declaration: Declaration) -> bool:
    """Return whether a type can compare the resource: an unknown property has its default, which says nothing.

    A content contradicts no other resource.
    """
    return declaration.unknown <= {"content"}


def _of_types(declarations: Sequence[Declaration], spellings: Spellings) -> Iterator[Between]:
    types = {declaration.type for declaration in declarations}
    asked = sorted((one for one in types if has_own(one, "contradictions")), key=lambda one: one.type_name)
    if not asked:  # as for most manifests
        return
    certain = [one for one in declarations if not has_conditions(one) and _is_known(one)]
    declared = DeclaredResources(certain, spellings)
    by_properties = {id(declaration.properties): declaration for declaration in certain}
    for one in asked:
        for first, second, sentence in one.contradictions(declared):
            yield Between(by_properties[id(first)], by_properties[id(second)], sentence)
