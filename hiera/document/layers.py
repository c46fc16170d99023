"""Layers of data, merged and resolved key by key on demand, and the explanation of the result.

* Expressions are resolved before the merge (``hiera.values``), so that a result merges like a literal value.
* An expression can use any key of the finished ``data``, in any order. A value that depends on itself is an error
  that lists the cycle.
* The result of an expression is final: braces in it are plain text.
* Layers of several documents are merged like their documents: lists are joined within a document, and replaced by the
  lists of later documents.
* A ``base`` of data from lower sources is visible below the layers, but is not part of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from foundation.problems import Location, ProblemCode
from hiera.errors import ExpressionError, HieraError
from hiera.values import hidden_below, path_text

Path = tuple[str | int, ...]
IsReplaced = Callable[[Path, HieraError], bool]
"""Called for a value that cannot be resolved, with its path below ``data``. Returns whether it may be left out."""


class LayerSource:
    """The source document of layers. Layers of a document share one object."""

    __slots__ = ("joins_lists", "locate", "replaced")  # Python compiles code for each NamedTuple

    def __init__(
        self,
        locate: Callable[[Path], Location],
        *,
        joins_lists: bool = False,
        replaced: Collection[tuple[str, ...]] = (),
    ) -> None:
        """``locate`` gives the location of a path in the document.

        ``joins_lists``: its lists are appended to lists of lower documents. ``replaced`` are the paths below ``data``
        whose values replace values of lower documents, instead of merging with them.
        """
        self.locate = locate
        self.joins_lists = joins_lists
        self.replaced = replaced


class Layer:
    """A mapping of a document, with its place there."""

    __slots__ = ("final", "place", "source", "values")

    def __init__(
        self, values: Mapping[Any, Any], place: Path, source: LayerSource, *, final: bool = False
    ) -> None:
        """``final``: the mapping is the result of an expression, and is not resolved again."""
        self.values = values
        self.place = place
        self.source = source
        self.final = final


class _Piece:
    """A layer's value for a key."""

    __slots__ = ("final", "place", "source", "value")

    def __init__(self, value: Any, place: Path, source: LayerSource, *, final: bool) -> None:
        self.value = value
        self.place = place
        self.source = source
        self.final = final

    def under(self, key: Any, value: Any) -> _Piece:
        """Return the piece for an item of this value."""
        return _Piece(value, (*self.place, key), self.source, final=self.final)


class Resolver:
    """The state that all mappings of one evaluation share: how to resolve a text, and the paths being resolved."""

    def __init__(self, sensitive: Collection[Path] = ()) -> None:
        """``sensitive`` are the paths of secrets, below ``data``."""
        self.resolve_text: Callable[[str], Any] = str
        self.sensitive = sensitive
        self.active: list[Path] = []
        self.made_of: dict[Path, list[Path]] = {}
        """The path of a value → the places in the document that contribute to it, lowest first."""
        self.known: dict[tuple[LayerSource, Path], _Piece] = {}
        """Resolved texts: each is resolved once, for all mappings."""

    def resolved(self, piece: _Piece) -> _Piece:
        """Return the piece with its expression replaced by the result. Other pieces are returned unchanged.

        Raises HieraError with the place and the path of the value in front.
        """
        if piece.final or not isinstance(piece.value, str) or "{{" not in piece.value:
            return piece
        key = (piece.source, piece.place)
        if (known := self.known.get(key)) is not None:
            return known
        try:
            value = self.resolve_text(piece.value)
        except HieraError as error:
            error.keys = error.keys or piece.place
            raise error.at(path_text(piece.place)).at(piece.source.locate(piece.place)) from None
        resolved = self.known[key] = _Piece(value, piece.place, piece.source, final=True)
        return resolved

    def masked(self, path: Path, value: Any) -> Any:
        """Return the value with secrets at the paths in ``sensitive``.

        Values that other expressions derive from them become secret too.
        """
        steps = path[1:]
        for secret in self.sensitive if steps else ():
            # The parts of a mapping are masked when they are read. A list is read as a whole.
            if len(secret) == len(steps) or isinstance(value, list):
                value = hidden_below(value, secret, steps)
        return value

    def whole(self, piece: _Piece) -> Any:
        """Return the value of an item of a list, completely resolved."""
        resolved = self.resolved(piece)
        value = resolved.value
        if resolved.final:
            return value
        if isinstance(value, list):
            return [self.whole(resolved.under(index, item)) for index, item in enumerate(value)]
        if isinstance(value, dict):
            return {key: self.whole(resolved.under(key, item)) for key, item in value.items()}
        return value


class LayeredMapping(Mapping[Any, Any]):
    """Layers, lowest first, as one mapping."""

    def __init__(
        self,
        layers: Sequence[Layer],
        resolver: Resolver,
        base: Mapping[Any, Any] | None = None,
        path: Path = ("data",),
    ) -> None:
        self._layers = layers
        self._resolver = resolver
        self._base = base if base is not None else {}
        self._path = path
        self._done: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        if key in self._done:
            return self._done[key]
        path = (*self._path, key)
        active = self._resolver.active
        if path in active:
            route = " → ".join(path_text(step) for step in (*active[active.index(path) :], path))
            detail = f"{path_text(path)} refers to itself: {route}"
            raise ExpressionError("", detail, code=ProblemCode.DATA_CYCLE)
        active.append(path)
        try:
            # Read first, since reading a layer may evaluate other keys: a tree looks them up.
            pieces = self._pieces(key)
            if not pieces:
                return self._base[key]
            # Mask before caching, so that other values receive the secret.
            value = self._done[key] = self._resolver.masked(path, self._combined(pieces, path))
        finally:
            active.pop()
        return value

    def _pieces(self, key: Any) -> list[_Piece]:
        return [
            _Piece(layer.values[key], (*layer.place, key), layer.source, final=layer.final)
            for layer in self._layers
            if key in layer.values
        ]

    def __contains__(self, key: object) -> bool:
        return any(key in layer.values for layer in self._layers) or key in self._base

    def __iter__(self) -> Iterator[Any]:
        return iter(dict.fromkeys([*self._base, *self._own_keys()]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def own(self, is_replaced: IsReplaced = lambda path, error: False) -> dict[Any, Any]:
        """Return the layers without the base as a resolved mapping. ``is_replaced`` may leave out failed values."""
        result = {}
        for key in self._own_keys():
            try:
                value = self[key]
                result[key] = value.own(is_replaced) if isinstance(value, LayeredMapping) else value
            except HieraError as error:
                if not is_replaced((*self._path[1:], key), error):
                    raise
        return result

    def _own_keys(self) -> list[Any]:
        return list(dict.fromkeys(key for layer in self._layers for key in layer.values))

    def _combined(self, pieces: list[_Piece], path: Path) -> Any:
        alike = self._alike(pieces, path)
        self._resolver.made_of[path] = [piece.place for piece in alike]
        top = alike[-1].value
        if isinstance(top, Mapping):
            base = self._base.get(path[-1])
            # A replaced piece also hides the lower sources, as in the caller's later merge.
            below = base if len(alike) == len(pieces) and isinstance(base, Mapping) else None
            layers = [Layer(piece.value, piece.place, piece.source, final=piece.final) for piece in alike]
            return LayeredMapping(layers, self._resolver, below, path)
        if isinstance(top, list):
            return [
                item if piece.final else self._resolver.whole(piece.under(index, item))
                for piece in alike
                for index, item in enumerate(piece.value)
            ]
        return top

    def _alike(self, pieces: list[_Piece], path: Path) -> list[_Piece]:
        """Return the pieces that make the value, lowest first: the last, and those below it that merge with it."""
        alike: list[_Piece] = []
        replaced: LayerSource | None = None
        for piece in reversed(pieces):
            above = alike[-1] if alike else None
            if piece.source is replaced:
                continue
            is_other = above is not None and piece.source is not above.source
            if (
                above is not None
                and is_other
                and isinstance(above.value, list)
                and not above.source.joins_lists
            ):
                break
            if above is not None and is_other and _is_replaced(above.source, path):
                break
            # Resolve the piece to know its type. Pieces below a replaced piece are never resolved, so that a missing
            # fact there does not fail on this host.
            resolved = self._resolver.resolved(piece)
            if above is not None and not mergeable(above.value, resolved.value):
                if is_other:
                    break
                # Within its document the value is replaced. The whole document still merges with lower documents.
                replaced = piece.source
                continue
            alike.append(resolved)
            if not isinstance(resolved.value, (Mapping, list)):
                break
        return alike[::-1]


def _is_replaced(source: LayerSource, path: Path) -> bool:
    return bool(source.replaced) and tuple(map(str, path[1:])) in source.replaced


def mergeable(over: Any, base: Any) -> bool:
    """Return whether both values merge into one value, instead of ``over`` replacing ``base``."""
    return any(isinstance(over, kind) and isinstance(base, kind) for kind in (Mapping, list))


# The explanation of one document's data: lookups, matches, and the sources of each key.


class Entry:
    """An entry of ``hierarchy.order``, and the decision about it."""

    __slots__ = ("merged", "name", "reason", "text")  # as in ``layers``

    def __init__(self, text: str, name: str | None, reason: str, *, merged: bool) -> None:
        """``text`` is the source text, ``name`` the text with its expressions resolved.

        The name is ``None`` if all expressions were missing or empty. ``reason`` is a sentence.
        """
        self.text = text
        self.name = name
        self.reason = reason
        self.merged = merged

    def sentence(self) -> str:
        """``host:{{ facts.hostname }} → host:web01: merged over the base``."""
        shown = self.text if self.name in (None, self.text) else f"{self.text} → {self.name}"
        return f"{shown}: {self.reason}"


class Explanation:
    """The steps of resolving one document."""

    __slots__ = ("entries", "keys", "merge", "source")

    def __init__(
        self, source: str, merge: str, entries: tuple[Entry, ...], keys: Mapping[str, tuple[str, ...]]
    ) -> None:
        """``merge`` is ``first`` (the first entry with a section replaces base keys) or ``deep`` (later entries win).

        ``keys`` maps each top-level key to the sections of its value, lowest first. The last section has priority.
        """
        self.source = source
        self.merge = merge
        self.entries = entries
        self.keys = keys

    def lines(self) -> Iterator[str]:
        """Return the steps as lines of text."""
        order = "the first that has a section wins" if self.merge == "first" else "later wins"
        yield f"{self.source}: merge is {self.merge}: {order}"
        yield from (f"  {entry.sentence()}" for entry in self.entries)
        yield from (f"  {key}: {' + '.join(sections)}" for key, sections in self.keys.items())

    def as_data(self) -> dict[str, Any]:
        """Return the steps as data."""
        entries = [
            {"text": entry.text, "name": entry.name, "merged": entry.merged, "reason": entry.reason}
            for entry in self.entries
        ]
        keys = {key: list(sections) for key, sections in self.keys.items()}
        return {"source": self.source, "merge": self.merge, "entries": entries, "keys": keys}
