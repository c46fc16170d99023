"""Identities of resources, and contradictions between them, such as a line that is both present and absent.

* The identity is the managed object, whatever its name in a manifest. ``cron`` and ``cron.service`` are one service.
  ``/lib/x`` and ``/usr/lib/x`` are one file. Types define the object (``Resource.identity``).
* Two declarations of one object are united if they agree. Otherwise they are an error of the manifest.
* Types state the paths that they write (``Resource.claims``). All claims on one canonical path are compared, and each
  claim with the claims below its path, since a file cannot hold a directory.
* Types find the other contradictions (``Resource.contradictions``).
* Only resources without a condition count as contradictory, since two resources that are never applied together
  contradict nothing.
* Ten thousand files cost one lookup for each of their directories.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import msgspec

from foundation.problems import Problem, ProblemCode
from puller.errors import ConfigurationError
from puller.manifest.declaration import Declaration, has_conditions
from puller.manifest.graph.catalog import DeclaredResources, has_own
from puller.resources.base import Properties
from puller.resources.claims import NO_DIRECTORY, Claim, Use
from puller.resources.registry import find_type
from puller.system.local_paths import Spellings

Key = tuple[str, Hashable]
"""The type and the object."""


def spellings_of(declarations: Sequence[Declaration], facts: Mapping[str, Any]) -> Spellings:
    """Return the canonical names of a machine, on which all declared links exist."""
    links: dict[str, str] = {}
    if all(kind.type_name != "link" for kind in {declaration.type for declaration in declarations}):
        return Spellings(facts, links)
    for declaration in declarations:
        if declaration.type.type_name == "link" and declaration.loop is None:
            target = getattr(declaration.properties, "target", "")
            if target and declaration.properties.ensure == "present":
                links[declaration.properties.name] = target
    return Spellings(facts, links)


def objects_of(declarations: Sequence[Declaration], spellings: Spellings) -> dict[int, Key]:
    """Return the objects of all declarations whose name is another text, by the ``id`` of the declaration."""
    types = {declaration.type for declaration in declarations}
    special = {kind for kind in types if has_own(kind, "identity")}
    if not special and not spellings.moved(declaration.properties.name for declaration in declarations):
        return {}  # the usual case
    known = [
        declaration
        for declaration in declarations
        if declaration.loop is None and "name" not in declaration.unknown and declaration.child is None
    ]
    paths = [
        declaration
        for declaration in known
        if declaration.type not in special and declaration.properties.name.startswith("/")
    ]
    objects: dict[int, Key] = {}
    if moved := spellings.moved(declaration.properties.name for declaration in paths):
        for declaration in paths:
            name = declaration.properties.name
            if name.rpartition("/")[0] in moved:
                objects[id(declaration)] = declaration.type.type_name, spellings.of(name)
    for declaration in known if special else ():
        kind, properties = declaration.type, declaration.properties
        # If a resource cannot be evaluated here, only its name is known.
        if kind in special and isinstance(properties, kind.properties_type):
            identity = kind.identity(properties, spellings)
            if identity != properties.name:
                objects[id(declaration)] = kind.type_name, identity
    return objects


def identity_of(reference: str, spellings: Spellings) -> Key | None:
    """Return the object that a reference of an earlier run means, ``None`` if its type is unknown now."""
    type_name, _, name = reference.partition("#")
    try:
        kind = find_type(type_name)
    except ConfigurationError:  # a type of another distribution that cannot be used now
        return None
    if kind is None:
        return None
    properties: Properties = Properties(name=name)
    if has_own(kind, "identity"):
        try:
            properties = kind.properties_type(name=name)
        except TypeError:  # its name does not identify it alone
            return None
    return type_name, kind.identity(properties, spellings)


def key_of(declaration: Declaration) -> Key:
    """Return the type and the name of a declaration."""
    return declaration.type.type_name, declaration.properties.name


# Claims of several types on one path.

_NEEDS_NOTHING = frozenset({Use.ABSENT, Use.REMOVED_PART, Use.KEPT})
_FOLLOWS_LINKS = frozenset({Use.PART, Use.REMOVED_PART, Use.CONTENTS, Use.FILLED})


class _Claimed(NamedTuple):
    claim: Claim
    declaration: Declaration
    position: int
    """The place of the declaration in the catalog."""


class Conflict(NamedTuple):
    """Two declarations that contradict each other, and a sentence about the second one."""

    first: Declaration
    second: Declaration
    sentence: str


def find_conflicts(declarations: Sequence[Declaration], spellings: Spellings) -> Iterator[Conflict]:
    """Return all pairs of declarations with contradicting claims."""
    paths = _Paths(declarations, spellings)
    for path in paths.shared():
        yield from _between(paths.at(path), spellings)
    for path in paths.parents():
        for claimed in paths.at(path):
            if claimed.claim.use in NO_DIRECTORY:
                yield from _with_contents(claimed, paths.below(path))


class _Paths:
    """All claimed paths. Claims of files and links are built only where another resource is near."""

    def __init__(self, declarations: Sequence[Declaration], spellings: Spellings) -> None:
        self._declarations = declarations
        self._claimed: dict[str, list[_Claimed]] = {}
        self._plain: dict[str, int] = {}
        """The first file or link at a path, by its place in the catalog."""
        self._further: dict[str, list[int]] = {}
        """Further files and links at the same path."""
        self._parents: dict[str, str] = {}
        """Canonical parent directories of files and links."""
        named = {kind for kind in {one.type for one in declarations} if kind.claims_only_its_name}
        for index, declaration in enumerate(declarations):
            if declaration.type in named:
                self._add_plain(declaration.properties.name, index, spellings)
            elif _is_path_known(declaration):
                for claim in declaration.type.claims(declaration.properties):
                    self._add(claim, declaration, index, spellings)

    def _add_plain(self, name: str, index: int, spellings: Spellings) -> None:
        parent = name.rpartition("/")[0]
        known = self._parents.get(parent)
        if known is None:
            known = self._parents[parent] = spellings.directory(parent) if parent[:1] == "/" else parent
        path = name if known == parent else spellings.of(name)
        if self._plain.setdefault(path, index) != index:
            self._further.setdefault(path, []).append(index)

    def _add(self, claim: Claim, declaration: Declaration, index: int, spellings: Spellings) -> None:
        if not claim.path.startswith("/"):
            return
        path = spellings.of(claim.path)
        self._claimed.setdefault(path, []).append(_Claimed(claim, declaration, index))
        if claim.use in _FOLLOWS_LINKS and (target := spellings.directory(claim.path)) != path:
            self._claimed.setdefault(target, []).append(_Claimed(claim, declaration, index))

    def shared(self) -> list[str]:
        """Return the paths with several claims."""
        several = [path for path, claimed in self._claimed.items() if len(claimed) > 1 or path in self._plain]
        return [*several, *(path for path in self._further if path not in self._claimed)]

    def parents(self) -> list[str]:
        """Return the claimed paths that are parent directories of claimed paths."""
        above = {*self._parents.values(), *(path.rpartition("/")[0] for path in self._claimed)}
        waiting = list(above)
        while waiting:
            parent = waiting.pop().rpartition("/")[0]
            if parent and parent not in above:
                above.add(parent)
                waiting.append(parent)
        return [path for path in above if path in self._claimed or path in self._plain]

    def at(self, path: str) -> list[_Claimed]:
        """Return all claims at a path, in the order of the catalog."""
        claimed = list(self._claimed.get(path, ()))
        if path in self._plain:
            for index in (self._plain[path], *self._further.get(path, ())):
                declaration = self._declarations[index]
                if _is_path_known(declaration):
                    claims = declaration.type.claims(declaration.properties)
                    claimed += (_Claimed(claim, declaration, index) for claim in claims)
        return sorted(claimed, key=lambda item: item.position)

    def below(self, path: str) -> Iterator[_Claimed]:
        """Return all claims below a path."""
        above = f"{path}/"
        for each in {**self._claimed, **self._plain}:
            if each.startswith(above):
                yield from self.at(each)


def _is_path_known(declaration: Declaration) -> bool:
    """Return whether the properties of a resource can be evaluated on this machine."""
    is_whole = isinstance(declaration.properties, declaration.type.properties_type)
    return is_whole and declaration.loop is None and "name" not in declaration.unknown


def _between(claims: Iterable[_Claimed], spellings: Spellings) -> Iterator[Conflict]:
    """Compare claims of one path. The type compares claims of one editor, except for owner, group and mode."""
    by_editor: dict[str, list[_Claimed]] = {}
    for claimed in claims:
        by_editor.setdefault(claimed.claim.editor, []).append(claimed)
    pairs = [*combinations(by_editor.get("", ()), 2)]
    for item, other in combinations(by_editor.values(), 2):
        pairs += product(item, other)
    for editor, edits in by_editor.items():
        if editor:  # one edit for each combination of attributes, because a file may have thousands of edits
            by_attributes = {
                (each.claim.owner, each.claim.group, each.claim.mode): each for each in reversed(edits)
            }
            pairs += combinations(reversed(by_attributes.values()), 2)
    for first, second in pairs:
        if first.declaration is second.declaration:
            continue
        if first.position > second.position:
            first, second = second, first
        why = second.claim.contradicts(first.claim) or _purged(first, second, spellings)
        if why:
            yield Conflict(first.declaration, second.declaration, why)


def _purged(first: _Claimed, second: _Claimed, spellings: Spellings) -> str:
    """Return why one resource would remove the contents of the other one."""
    for item, other in ((first, second), (second, first)):
        purger, filler = item.declaration, other.declaration
        purged = {spellings.directory(path) for path in purger.type.purges(purger.properties)}
        filled = {spellings.directory(path) for path in filler.type.fills(filler.properties)}
        if purged & filled:
            if item is first:
                return f"keeps files in {other.claim.path}, from which another resource removes all foreign files"
            return f"removes from {item.claim.path} the files of another resource"
    return ""


def _with_contents(above: _Claimed, below: Iterable[_Claimed]) -> Iterator[Conflict]:
    for claimed in below:
        if claimed.claim.use in _NEEDS_NOTHING or claimed.declaration is above.declaration:
            continue
        use = above.claim.use.value
        if claimed.position > above.position:
            sentence = f"is below {above.claim.path}, and another resource {use} there"
            yield Conflict(above.declaration, claimed.declaration, sentence)
        else:
            sentence = f"{use} at {above.claim.path}, and another resource is below it"
            yield Conflict(claimed.declaration, above.declaration, sentence)


class Between(msgspec.Struct, frozen=True):
    """A contradiction between two resources."""

    first: Declaration
    second: Declaration
    what: str

    @property
    def sentence(self) -> str:
        """The problem of the second resource."""
        return f"{self.what}: {self.first.reference} at {self.first.origin}"

    def problem(self) -> Problem:
        """Return the problem of the second resource."""
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
    """Return whether a type can compare the resource. Unknown properties have defaults, which must not be compared.

    A content contradicts no other resource.
    """
    return declaration.unknown <= {"content"}


def _of_types(declarations: Sequence[Declaration], spellings: Spellings) -> Iterator[Between]:
    types = {declaration.type for declaration in declarations}
    requested = sorted(
        (item for item in types if has_own(item, "contradictions")), key=lambda item: item.type_name
    )
    if not requested:  # the usual case
        return
    certain = [item for item in declarations if not has_conditions(item) and _is_known(item)]
    declared = DeclaredResources(certain, spellings)
    by_properties = {id(declaration.properties): declaration for declaration in certain}
    for item in requested:
        for first, second, sentence in item.contradictions(declared):
            yield Between(by_properties[id(first)], by_properties[id(second)], sentence)
