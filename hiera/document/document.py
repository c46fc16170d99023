"""The single document: ``data``, a ``hierarchy`` that chooses among ``overrides``, and the resulting data of a host.

* ``merge: first`` (the default): the first entry of ``order`` that has a section replaces top-level keys of the data.
  ``merge: deep``: the sections of all matching entries are merged, later entries over earlier ones. So precedence runs
  in opposite directions in the two modes.
* An entry whose expressions are all missing or empty does not match. Anywhere else a missing fact is an error.
* Values are resolved once and keep the type that YAML or an expression gives them. Keys are never resolved.
* A value with the annotation ``sensitive`` becomes a secret before anything is derived from it.
* An invalid structure is an error with file and line, whether or not it matters for this host.

A document goes through these steps, the first three once, the later steps for each host:

1. The text is read (``hiera.parsing``), and its structure checked.
2. Annotations are read from its comments (``annotations``).
3. The order of the hierarchy and the merge mode are read. Without a hierarchy, only the base data count.
4. Each entry of the order is resolved over the facts, and chooses its section of the overrides, or no section.
5. With ``first``, top-level keys that a chosen section replaces are dropped, so that nothing in them is resolved.
6. Base and sections are merged, and expressions are resolved when a key is needed (``layers``). Without expressions and
   secrets, the sections are only merged. A caller with several documents does this step for all documents together:
   ``choose`` ends before it.
7. A value with the annotation ``sensitive`` becomes a secret before other values can use it.
8. The caller merges the data of all its sources, and checks it by the annotations (``Annotations.failures``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from foundation.problems import Location
from hiera import parsing
from hiera.document.foreign_notation import ORDER, converted
from hiera.document.layers import (
    Entry,
    Explanation,
    IsReplaced,
    Layer,
    LayeredMapping,
    LayerSource,
    Resolver,
    mergeable,
)
from hiera.errors import DocumentError, ExpressionError, HieraError, LimitError, UndefinedError
from hiera.expressions.expressions import Scope, has_expression, parse, resolve
from hiera.limits import total
from hiera.values import MISSING, described, find_value, merge_deep, parse_path, path_text

if TYPE_CHECKING:
    from hiera.document.annotations import Annotations

Path = tuple[str | int, ...]
Locate = Callable[[Sequence[str | int]], tuple[int, int]]
MadeOf = Mapping[str, tuple[str, ...]]

KEYS: Final = ("data", "hierarchy", "overrides", "replace")
_DEFAULT_ORDER: Final = ("default",)
_MERGES: Final = ("first", "deep")


class Resolved:
    """The data of a document for a host, with its explanation."""

    __slots__ = ("data", "explanation")  # as in ``layers``

    def __init__(self, data: dict[str, Any], explanation: Explanation) -> None:
        self.data = data
        self.explanation = explanation


class Chosen:
    """The sections of a document that make up the data of a host, with their expressions."""

    __slots__ = ("entries", "layers", "merge", "source")  # as in ``layers``

    def __init__(
        self, source: str, merge: str, layers: tuple[Layer, ...], entries: tuple[Entry, ...]
    ) -> None:
        """``layers`` are lowest first, without top-level keys that a later section replaces."""
        self.source = source
        self.merge = merge
        self.layers = layers
        self.entries = entries

    @property
    def derived_keys(self) -> list[Any]:
        """The top-level keys with an expression in their values."""
        result = (
            key for layer in self.layers for key, value in layer.values.items() if holds_expression(value)
        )
        return list(dict.fromkeys(result))

    def merged(self) -> Resolved:
        """Return the data of sections without expressions."""
        data: dict[Any, Any] = functools.reduce(merge_deep, (layer.values for layer in self.layers), {})
        return self.resolved(dict(data), _made_of(self.layers))

    def of_layered(self, layered: LayeredMapping, resolver: Resolver, is_replaced: IsReplaced) -> Resolved:
        """Return the data of ``layered``, which has these layers."""
        data = layered.own(is_replaced)
        made_of = {str(key): resolver.made_of["data", key] for key in data}
        texts = {key: tuple(path_text(place[:-1]) for place in places) for key, places in made_of.items()}
        return self.resolved(data, texts)

    def resolved(self, data: dict[Any, Any], made_of: MadeOf) -> Resolved:
        """Return the data with its explanation."""
        return Resolved(data, Explanation(self.source, self.merge, self.entries, made_of))


class Document:
    """A document with a valid structure."""

    __slots__ = (
        "annotations",
        "data",
        "is_skipped",
        "locate",
        "merge",
        "order",
        "overrides",
        "replaced",
        "source",
    )

    def __init__(
        self,
        source: str,
        data: Mapping[Any, Any],
        order: tuple[str, ...],
        merge: str,
        overrides: Mapping[str, Mapping[Any, Any]],
        locate: Locate,
        annotations: Annotations | None = None,
    ) -> None:
        """``locate`` gives line and column of a path of keys, for messages.

        ``annotations`` are rules for the finished data, which the caller checks after merging all sources.
        """
        self.source = source
        self.data = data
        self.order = order
        self.merge = merge
        self.overrides = overrides
        self.locate = locate
        self.annotations = annotations
        self.replaced: frozenset[tuple[str, ...]] = frozenset()
        """The paths of values that replace values of lower sources, instead of merging with them."""
        self.is_skipped = False
        """Whether it is encrypted for other recipients, and optional."""

    @property
    def is_empty(self) -> bool:
        """Return whether the document is empty on every host."""
        return not self.data and not any(self.overrides.values())

    @property
    def is_final(self) -> bool:
        """Return whether the document has neither expressions nor secrets, on any host."""
        values = (self.data, *self.overrides.values())
        return not (self.annotations and self.annotations.sensitive) and not any(
            map(holds_expression, values)
        )

    @property
    def has_hierarchy(self) -> bool:
        """Return whether anything but the base data can be chosen."""
        return self.order != _DEFAULT_ORDER or bool(self.overrides)

    @classmethod
    def parse(
        cls,
        text: str | bytes,
        source: str,
        *,
        limit: int = parsing.SIZE_LIMIT,
        opened: Callable[[Any, str, str], Any] = lambda value, text, source: value,
    ) -> Document:
        """Read a separate document, YAML or JSON.

        ``opened`` returns the plain values of an encrypted document, ``None`` to skip it. Its arguments are the value,
        the text and ``source``. Raises DocumentError and LimitError.
        """
        # 1.
        value = parsing.load_yaml(text, source, limit=limit)
        decoded = text.decode() if isinstance(text, bytes) else text
        plain = opened(value, decoded, source)
        locate = functools.partial(parsing.locate, decoded)
        shape = _Shape(source, locate)
        mapping = shape.mapping((), plain)
        shape.verify_keys((), mapping, KEYS)
        document = cls.from_value(mapping, source, locate, annotations_of(decoded, source))  # 2.
        document.is_skipped = plain is None and value is not None
        return document

    @classmethod
    def from_value(
        cls,
        value: Mapping[str, Any],
        source: str,
        locate: Locate,
        annotations: Annotations | None = None,
    ) -> Document:
        """Return the document inside a larger one, such as a manifest. Its other keys are ignored.

        ``locate`` finds line and column of a path of keys in it. ``annotations`` are the annotations of its text.
        Raises DocumentError.
        """
        shape = _Shape(source, locate)
        order, merge = shape.hierarchy(value)  # 3.
        data = shape.mapping(("data",), value.get("data"))
        document = cls(
            source, data, order, merge, shape.overrides(value.get("overrides")), locate, annotations
        )
        if "replace" in value:
            document.replaced = shape.replaced(value["replace"], (data, *document.overrides.values()))
        return document

    def choose(
        self,
        facts: Mapping[str, Any],
        environ: Mapping[str, str] | None = None,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> Chosen:
        """Return the sections for a host, for a caller that evaluates several documents together.

        Raises ExpressionError, UndefinedError and LimitError with file, line, column and path in front.
        """
        # The hierarchy chooses the data, so its expressions cannot use ``data``.
        return self._choose(Scope(facts, _NoData(), environ, functions))

    def resolve(
        self,
        facts: Mapping[str, Any],
        environ: Mapping[str, str] | None = None,
        *,
        data: Mapping[str, Any] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        is_replaced: IsReplaced = lambda path, error: False,
    ) -> Resolved:
        """Return the data for a host. Expressions also see ``data`` of lower sources, below the document's own.

        A value that cannot be resolved is left out if ``is_replaced`` returns true for its path: a higher source
        replaces it. Raises ExpressionError, UndefinedError and LimitError with file, line, column and path in front.
        """
        chosen = self.choose(facts, environ, functions=functions)  # 4. and 5.
        sensitive = self.annotations.sensitive if self.annotations else frozenset()
        # Most documents have no expressions, and skip the slow resolver.
        if not sensitive and not any(holds_expression(layer.values) for layer in chosen.layers):
            return chosen.merged()
        # 6. and 7.
        scope, resolver = Scope(facts, data, environ, functions), Resolver(sensitive)
        layered = LayeredMapping(chosen.layers, resolver, scope.data)
        inner = scope.with_data(layered)
        resolver.resolve_text = lambda text: resolve(text, inner)
        try:
            with total:
                return chosen.of_layered(layered, resolver, is_replaced)
        except RecursionError:
            raise LimitError(self.source, "values refer to one another over too many steps") from None

    def _choose(self, scope: Scope) -> Chosen:
        """Return the sections of this host's data, lowest first, and the decision about each entry."""
        source = LayerSource(self._where, replaced=self.replaced)
        sections = [Layer(self.data, ("data",), source)]
        entries = []
        for index, text in enumerate(self.order):
            name = self._name(index, text, scope)
            reason = self._refusal(name, len(sections) > 1)
            entries.append(Entry(text, name, reason or "merged over the entries above", merged=not reason))
            if name is not None and not reason:
                sections.append(Layer(self.overrides[name], ("overrides", name), source))
        layers = sections if self.merge == "deep" else _without_replaced(sections)  # 5.
        return Chosen(self.source, self.merge, tuple(layers), tuple(entries))

    def _refusal(self, name: str | None, decided: bool) -> str:
        """Return why an entry adds nothing, or empty text if it adds its section."""
        if name is None:
            return "does not match: its reference is missing or empty"
        if name == "data" and self.data:
            return "is skipped: the base data is always there"
        if name not in self.overrides:
            return "lacks a section in overrides"
        return "is not needed: an earlier entry has decided" if decided and self.merge == "first" else ""

    def _name(self, index: int, text: str, scope: Scope) -> str | None:
        try:
            return _entry_name(text, scope)
        except HieraError as error:
            path: Path = ("hierarchy", "order", index)
            raise error.at(path_text(path)).at(self._where(path)) from None

    def _where(self, path: Path) -> Location:
        return _location(self.source, self.locate, path)


def annotations_of(text: str, source: str) -> Annotations | None:
    """Return the rules in a document's comments. Their reader is imported only if the text contains ``@``."""
    if "@" not in text:
        return None
    from hiera.document.annotations import find_annotations  # with Jinja2, 36 % of an idle run

    return find_annotations(text, source)


class _NoData(Mapping[str, Any]):
    """``data`` while the hierarchy is being chosen: every access fails."""

    def __getitem__(self, key: str) -> NoReturn:
        raise ExpressionError("", f"data.{key} is unknown here, because the hierarchy selects the data")

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _entry_name(text: str, scope: Scope) -> str | None:
    """Return an entry of the order with its expressions resolved, or ``None`` if they are all missing or empty."""
    pieces = []
    matched = not has_expression(text) and text != ""
    for piece in parse(text):
        if isinstance(piece, str):
            pieces.append(piece)
            continue
        try:
            value = piece.value(scope)
            part = "" if value is None else piece.as_text(value)
        except UndefinedError:
            part = ""
        pieces.append(part)
        matched = matched or part != ""
    return "".join(pieces) if matched else None


def _without_replaced(sections: list[Layer]) -> list[Layer]:
    """Return the sections without the top-level keys that a later one replaces."""
    taken: set[Any] = set()
    retained = []
    for section in reversed(sections):
        values = {k: v for k, v in section.values.items() if k not in taken}
        retained.append(Layer(values, section.place, section.source, final=section.final))
        taken.update(section.values)
    return retained[::-1]


def _made_of(layers: Sequence[Layer]) -> MadeOf:
    """Map each key to the sections of its value, without expressions (``Resolver.made_of`` records other values)."""
    made: dict[str, tuple[str, ...]] = {}
    values: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.values.items():
            below = made.get(str(key), ()) if mergeable(value, values.get(str(key))) else ()
            made[str(key)], values[str(key)] = (*below, path_text(layer.place)), value
    return made


def holds_expression(value: Any) -> bool:
    """Return whether a value contains an expression, keys excepted."""
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, Mapping):
        return any(map(holds_expression, value.values()))
    return isinstance(value, list) and any(map(holds_expression, value))


def _location(source: str, locate: Locate, path: Path) -> Location:
    line, column = locate(path)
    return Location(source, line, column, path, is_exact=True)


class _Shape:
    """Checks of a document's structure."""

    def __init__(self, source: str, locate: Locate) -> None:
        self.source = source
        self.locate = locate

    def error(self, path: Path, what: str) -> DocumentError:
        error = DocumentError(path_text(path) if path else "", what)
        return error.at(_location(self.source, self.locate, path))

    def mapping(self, path: Path, value: Any) -> Mapping[Any, Any]:
        """Return ``value``, or an empty mapping for null: YAML reads a section with only comments as null."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.error(path, f"is {described(value)}, expected a mapping")
        return value

    def verify_keys(self, path: Path, value: Mapping[Any, Any], known: Sequence[str]) -> None:
        for key in value:
            if key not in known:
                raise self.error((*path, key), f"unknown key {key!r}, expected {', '.join(known)}")

    def hierarchy(self, document: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
        """Return the order and the merge mode."""
        if "hierarchy" not in document:
            return _DEFAULT_ORDER, "first"
        hierarchy = document["hierarchy"]
        if not isinstance(hierarchy, Mapping) or "order" not in hierarchy:
            raise self.error(
                ("hierarchy",), f"is {described(hierarchy)}, expected a mapping with the key 'order'"
            )
        self.verify_keys(("hierarchy",), hierarchy, ("order", "merge"))
        merge = hierarchy.get("merge", "first")
        if merge not in _MERGES:
            raise self.error(("hierarchy", "merge"), f"is {merge!r}, expected 'first' or 'deep'")
        return self.order(hierarchy["order"]), merge

    def order(self, order: Any) -> tuple[str, ...]:
        if not isinstance(order, list):
            raise self.error(("hierarchy", "order"), f"is {described(order)}, expected a list")
        for index, entry in enumerate(order):
            if not isinstance(entry, str):
                raise self.error(
                    ("hierarchy", "order", index), f"is {described(entry)}, expected text: quote it"
                )
        if any("${" in entry for entry in order):
            return tuple(converted(order, ORDER))
        return tuple(order)

    def replaced(self, value: Any, sections: Sequence[Mapping[Any, Any]]) -> frozenset[tuple[str, ...]]:
        """Return the paths of values that replace values of lower sources."""
        if not isinstance(value, list):
            raise self.error(
                ("replace",), f"is {described(value)}, expected a list of keys such as web.ports"
            )
        paths = set()
        for index, key in enumerate(value):
            try:
                path = parse_path(key) if isinstance(key, str) else ()
            except HieraError as error:
                raise error.at(_location(self.source, self.locate, ("replace", index))) from None
            if not path or all(find_value(section, path) is MISSING for section in sections):
                raise self.error(("replace", index), f"is {key!r}, but this document lacks that key")
            paths.add(tuple(map(str, path)))
        return frozenset(paths)

    def overrides(self, value: Any) -> dict[str, Mapping[Any, Any]]:
        sections = self.mapping(("overrides",), value)
        return {str(name): self.mapping(("overrides", name), section) for name, section in sections.items()}
