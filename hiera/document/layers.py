"""Layers of data that become one mapping, merged and resolved key by key as they are asked for.

* Values are merged by ``hiera.values.merge``'s rules after their expressions are resolved, so that a value which comes
  out of an expression merges as if it had been written.
* An expression sees the finished ``data``: any key in any order. What needs itself is an error that shows the way.
* What comes out of an expression is final: braces in it are text.
* A ``base`` of data from lower sources is seen below the layers, and is not part of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from foundation.problems import Location
from hiera.errors import ExpressionError, HieraError
from hiera.values.paths import path_text
from hiera.values.secrets import Secret

Path = tuple[str | int, ...]
IsReplaced = Callable[[Path, HieraError], bool]
"""Told of a value that cannot be resolved, by its path below ``data``: whether it may be left out."""


class Layer:
    """One mapping of the document, and where in the document it stands."""

    __slots__ = ("final", "place", "values")  # no NamedTuple: Python compiles code for each of those

    def __init__(self, values: Mapping[Any, Any], place: Path, *, final: bool = False) -> None:
        """``final``: it came out of an expression, so that nothing in it is resolved again."""
        self.values = values
        self.place = place
        self.final = final


class _Piece:
    """The value that one layer has for a key."""

    __slots__ = ("final", "place", "value")

    def __init__(self, value: Any, place: Path, *, final: bool) -> None:
        self.value = value
        self.place = place
        self.final = final


class Resolver:
    """The state that all mappings of one document share: how to resolve a text, and what is being resolved just now."""

    def __init__(self, locate: Callable[[Path], Location], sensitive: Collection[Path] = ()) -> None:
        """``locate`` gives the location of a path in the document; ``sensitive`` are paths of secrets."""
        self.resolve_text: Callable[[str], Any] = str
        self.locate = locate
        self.sensitive = sensitive
        self.active: list[Path] = []
        self.made_of: dict[Path, list[Path]] = {}
        """The path of a value → the places in the document that it was made of, lowest first."""

    def resolved(self, piece: _Piece) -> _Piece:
        """The piece with its expression, if its value is a text with one, replaced by what it gives.

        Raises HieraError with the place and the path of the value in front.
        """
        if piece.final or not isinstance(piece.value, str) or "{{" not in piece.value:
            return piece
        try:
            return _Piece(self.resolve_text(piece.value), piece.place, final=True)
        except HieraError as error:
            error.keys = error.keys or piece.place
            raise error.at(path_text(piece.place)).at(self.locate(piece.place)) from None

    def masked(self, path: Path, value: Any) -> Any:
        """The value, as a secret when its path says so: what other values make of it is secret then, too."""
        if not self.sensitive or tuple(map(str, path[1:])) not in self.sensitive or value is None:
            return value
        inside = value.own() if isinstance(value, LayeredMapping) else value
        return inside if isinstance(inside, Secret) else Secret(inside)

    def whole(self, piece: _Piece) -> Any:
        """The value of an item of a list, with everything in it resolved."""
        resolved = self.resolved(piece)
        value, place = resolved.value, resolved.place
        if resolved.final:
            return value
        if isinstance(value, list):
            return [
                self.whole(_Piece(item, (*place, index), final=False)) for index, item in enumerate(value)
            ]
        if isinstance(value, dict):
            return {key: self.whole(_Piece(item, (*place, key), final=False)) for key, item in value.items()}
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
        pieces = [
            _Piece(layer.values[key], (*layer.place, key), final=layer.final)
            for layer in self._layers
            if key in layer.values
        ]
        if not pieces:
            return self._base[key]
        path = (*self._path, key)
        # Sealed before it is kept: whoever asks for it from another value gets the secret.
        value = self._done[key] = self._resolver.masked(path, self._entered(path, pieces))
        return value

    def __contains__(self, key: object) -> bool:
        return any(key in layer.values for layer in self._layers) or key in self._base

    def __iter__(self) -> Iterator[Any]:
        return iter(dict.fromkeys([*self._base, *self._own_keys()]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def own(self, is_replaced: IsReplaced = lambda path, error: False) -> dict[Any, Any]:
        """The layers without the base, as a plain mapping with everything resolved, but for what ``is_replaced``."""
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

    def _entered(self, path: Path, pieces: list[_Piece]) -> Any:
        active = self._resolver.active
        if path in active:
            way = " → ".join(path_text(step) for step in (*active[active.index(path) :], path))
            raise ExpressionError("", f"{path_text(path)} refers to itself: {way}")
        active.append(path)
        try:
            return self._combined(pieces, path)
        finally:
            active.pop()

    def _combined(self, pieces: list[_Piece], path: Path) -> Any:
        alike = self._alike(pieces)
        self._resolver.made_of[path] = [piece.place for piece in alike]
        top = alike[-1].value
        if isinstance(top, Mapping):
            base = self._base.get(path[-1])
            # A piece that was replaced hides the lower sources as well, as it will when the caller merges them.
            below = base if len(alike) == len(pieces) and isinstance(base, Mapping) else None
            layers = [Layer(piece.value, piece.place, final=piece.final) for piece in alike]
            return LayeredMapping(layers, self._resolver, below, path)
        if isinstance(top, list):
            return [
                item
                if piece.final
                else self._resolver.whole(_Piece(item, (*piece.place, index), final=False))
                for piece in alike
                for index, item in enumerate(piece.value)
            ]
        return top

    def _alike(self, pieces: list[_Piece]) -> list[_Piece]:
        """The pieces that make the value, lowest first: the last, and those right below it that merge with it."""
        alike: list[_Piece] = []
        for piece in reversed(pieces):
            resolved = self._resolver.resolved(piece)
            # It had to be resolved to know its type; what lies below it never is, so that a missing fact there is no
            # error for this host.
            if alike and not mergeable(alike[-1].value, resolved.value):
                break
            alike.append(resolved)
            if not isinstance(resolved.value, (Mapping, list)):
                break
        return alike[::-1]


def mergeable(over: Any, base: Any) -> bool:
    """Whether the two become one value, instead of ``over`` replacing ``base``."""
    return any(isinstance(over, kind) and isinstance(base, kind) for kind in (Mapping, list))
