"""Resources of several types that require different states of one path, found before anything is changed.

Types state the paths that they write (``Resource.claims``). This module compares all claims on one canonical path, and
each claim with the claims below its path: a file cannot hold a directory.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

from puller.manifest.declaration import Declaration
from puller.resources.claims import NO_DIRECTORY, Claim, Use
from puller.resources.spellings import Spellings

_NEEDS_NOTHING = frozenset({Use.ABSENT, Use.REMOVED_PART, Use.KEPT})
_FOLLOWS_LINKS = frozenset({Use.PART, Use.REMOVED_PART, Use.CONTENTS})


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
        self._claimed: dict[str, list[_Claimed]] = {}
        self._plain: dict[str, list[tuple[Declaration, int]]] = {}
        plain: list[tuple[Declaration, int]] = []
        for index, declaration in enumerate(declarations):
            kind, properties = declaration.type, declaration.properties
            is_known = declaration.loop is None and isinstance(properties, kind.properties_type)
            if not is_known or "name" in declaration.unknown:
                continue
            if kind.claims_only_its_name:
                plain.append((declaration, index))
                continue
            for claim in kind.claims(properties):
                self._add(claim, declaration, index, spellings)
        moved = spellings.moved(declaration.properties.name for declaration, _ in plain)
        for declaration, index in plain:
            path = declaration.properties.name
            if path.rpartition("/")[0] in moved:
                path = spellings.of(path)
            self._plain.setdefault(path, []).append((declaration, index))

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
        return [*several, *(path for path, plain in self._plain.items() if len(plain) > 1)]

    def parents(self) -> list[str]:
        """Return the claimed paths that are parent directories of claimed paths."""
        above = {path.rpartition("/")[0] for path in (*self._claimed, *self._plain)}
        waiting = list(above)
        while waiting:
            parent = waiting.pop().rpartition("/")[0]
            if parent and parent not in above:
                above.add(parent)
                waiting.append(parent)
        return [path for path in above if path in self._claimed or path in self._plain]

    def at(self, path: str) -> list[_Claimed]:
        """Return all claims at a path, in the order of the catalog."""
        plain = [
            _Claimed(claim, declaration, index)
            for declaration, index in self._plain.get(path, ())
            for claim in declaration.type.claims(declaration.properties)
        ]
        return sorted([*self._claimed.get(path, ()), *plain], key=lambda claimed: claimed.position)

    def below(self, path: str) -> Iterator[_Claimed]:
        """Return all claims below a path."""
        above = f"{path}/"
        for each in {**self._claimed, **self._plain}:
            if each.startswith(above):
                yield from self.at(each)


def _between(claims: Iterable[_Claimed], spellings: Spellings) -> Iterator[Conflict]:
    """Compare claims of one path. Claims of one editor are compared by their type."""
    by_editor: dict[str, list[_Claimed]] = {}
    for claimed in claims:
        by_editor.setdefault(claimed.claim.editor, []).append(claimed)
    pairs = [*combinations(by_editor.get("", ()), 2)]
    for one, other in combinations(by_editor.values(), 2):
        pairs += product(one, other)
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
    for one, other in ((first, second), (second, first)):
        purger, filler = one.declaration, other.declaration
        purged = {spellings.directory(path) for path in purger.type.purges(purger.properties)}
        filled = {spellings.directory(path) for path in filler.type.fills(filler.properties)}
        if purged & filled:
            if one is first:
                return (
                    f"keeps files in {other.claim.path}, from which another resource removes all but its own"
                )
            return f"removes from {one.claim.path} the files of another resource"
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
