"""Declarations of the resources of a long text, kept for the next run: those that are plain are not worked out again.

* What a resource declares follows from its entry in the text, and from what its expressions give. The expressions are
  evaluated in every run; what was declared counts only where text and values are the same again.
* Plain is a resource of a type of ours, for the machine's own agent, that is no loop and no child manifest, and with
  which nothing is wrong. Its expressions only name facts, data and the environment, and none of the values is a secret.
  All others are declared anew; and so is whatever is read when a resource is applied: templates, conditions, sources.
* Where all resources of a text are plain, the rest of its value is kept, too: then the list of resources is not read.
* What is kept is sealed with the text and with these values (``hiera.sealing``), so that a password in either is
  written nowhere else.
* A store that fails, or holds something else, costs time and nothing more (``kept_store``).
"""

import contextlib
import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, evaluate
from hiera.expressions.named import named_in
from hiera.keeping import Store, digest_of
from hiera.sealing import names_of, seal, unseal
from hiera.values.secrets import has_secret
from puller.manifest.children import TYPE as APPLY
from puller.manifest.declaration import Declaration, Home
from puller.manifest.declare import draft_of
from puller.manifest.entries import Entry
from puller.manifest.kept_store import STORE, UNREAD
from puller.manifest.problems import Problems
from puller.resources.base import Properties, ResourceType
from puller.resources.registry import find_type, is_ours
from puller.values.convert import parse_value
from puller.values.suggestions import Path as KeyPath

_MOST_CHANGES = 3
"""An expression that has given another value so often for one text is taken for one that does so in every run."""

_DAMAGED = (ValueError, TypeError, OverflowError, LookupError, msgspec.MsgspecError)

_Place = tuple[str, tuple[Any, ...], tuple[str, ...]]
"""Of a plain resource: its type, where it stands, and the properties that expressions have given."""

_Named = dict[str, tuple[bytes, int]]
"""The expressions of plain resources, each with a digest of its value, and how often that was another one."""


class KeptDeclarations:
    """The declarations of one text that an earlier run has kept, and those to be kept for the next one."""

    def __init__(self, store: Store, text: str) -> None:
        self._store = store
        self._digest, self._key = names_of(text.encode("utf-8", "surrogatepass"))
        named, rest = self._load(self._digest, self._key) or (None, None)
        self._named: _Named | None = named
        self._rest: tuple[dict[str, Any], KeyPath] | None = rest

    def rest(self) -> dict[str, Any] | None:
        """The value of the text, with `UNREAD` for its list of resources; ``None`` where that has to be read."""
        if self._rest is None:
            return None
        value, path = self._rest
        _put(value, path, UNREAD)
        return value

    def find(self, problems: Problems, home: Home) -> list[Declaration | None]:
        """The declarations of all entries, in their order, ``None`` for what is to be declared anew.

        ``problems`` are those of the text, whose resources see ``home``. Empty where none is known, or where an
        expression gives another value now.
        """
        if self._named is None or (values := _values_of(_steady(self._named), home.scope)) is None:
            return []
        kept = self._load(*self._names_of_rows(values, home))
        try:
            return list(_declarations(problems, home, *kept)) if kept else []
        except _DAMAGED:
            return []

    def keep(
        self, problems: Problems, home: Home, read: Callable[[], Iterable[Entry]], value: Any, path: KeyPath
    ) -> None:
        """Remember what the entries of the text declare, with which nothing is wrong.

        ``read`` gives the entries, which stand at ``path`` in the ``value`` of the text.
        """
        if not STORE.has_same_maker():
            return
        # Read again: those of which declarations were made have the values of their expressions by now.
        plain = [_plain(entry, problems, home) for entry in read()]
        named = self._counted(
            frozenset[str]().union(*(found for found, *_ in filter(None, plain))), home.scope
        )
        steady = _steady(named)
        if (values := _values_of(steady, home.scope)) is None:
            return
        places: list[_Place | None] = []
        properties: dict[str, list[Any]] = {}
        for one in plain:
            if one is None or not one[0] <= steady.keys():
                places.append(None)
            else:
                places.append(one[1])
                properties.setdefault(one[1][0], []).append(one[2])
        packed = {name: msgspec.msgpack.encode(each) for name, each in properties.items()}
        rest = None if not path or None in places else (_without(value, path), path)
        self._store.keep(self._digest, seal(marshal.dumps((named, rest)), self._key))
        name, key = self._names_of_rows(values, home)
        self._store.keep(name, seal(marshal.dumps((places, packed)), key))

    def _load(self, name: bytes, key: bytes) -> Any:
        """What was kept with this name; ``None`` where there is nothing sound."""
        if isinstance(sealed := self._store.find(name), bytes):
            with contextlib.suppress(ValueError, TypeError, EOFError):
                return marshal.loads(unseal(sealed, key))  # noqa: S302  nobody else can have written it
        return None

    def _names_of_rows(self, values: Sequence[Any], home: Home) -> tuple[bytes, bytes]:
        """As ``names_of``, of the text and of all else that goes into what it declares."""
        return names_of(self._key + repr((home.removed, values)).encode("utf-8", "surrogatepass"))

    def _counted(self, expressions: frozenset[str], scope: Scope) -> _Named:
        """The expressions in this run, and those that give another value in every run."""
        known = self._named or {}
        named = {source: one for source, one in known.items() if one[1] >= _MOST_CHANGES}
        for source in expressions - named.keys():
            digest = digest_of(repr(evaluate(source, scope)).encode("utf-8", "surrogatepass"))
            before, changes = known.get(source, (digest, 0))
            named[source] = (digest, changes + (before != digest))
        return named


def _declarations(
    problems: Problems, home: Home, places: list[_Place | None], packed: dict[str, bytes]
) -> Iterator[Declaration | None]:
    """What is declared at each place. Raises one of ``_DAMAGED``."""
    types = {name: _type_of(name) for name in packed}
    each = {name: iter(_unpacked(types[name], data)) for name, data in packed.items()}
    for place in places:
        if place is None:
            yield None
            continue
        name, path, given = place
        properties = next(each[name])
        found = Declaration(types[name], properties, problems, path, home, "", frozenset(given))
        found.checked = properties
        yield found


def _plain(
    entry: Entry, problems: Problems, home: Home
) -> tuple[frozenset[str], _Place, dict[str, Any]] | None:
    """The expressions of a resource, its place and its properties; ``None`` if it is not plain."""
    if entry.loop is not None or entry.type_name == APPLY or not is_ours(entry.type_name):
        return None
    noted = Problems.of_text(problems.source, problems.text)
    if (draft := draft_of(entry, noted, home)) is None:
        return None
    kept = draft.type.expressions_kept
    named = named_in({key: value for key, value in draft.raw.items() if key not in kept})
    draft.resolve(home.scope)
    if named is None or draft.secret:
        return None
    declaration = draft.typed(home)
    declaration.check()
    if declaration.failure or declaration.unknown or noted.sentences():
        return None
    try:
        # What comes back must be what went in: a value may be of a type that is none of JSON's.
        (again,) = _unpacked(draft.type, msgspec.msgpack.encode([draft.raw]))
        marshal.dumps(entry.path)
    except _DAMAGED:
        return None
    if again != declaration.properties:
        return None
    return named, (entry.type_name, entry.path, tuple(draft.given)), draft.raw


def _without(value: Any, path: KeyPath) -> Any:
    """A copy of a mapping, and of those on the way, that has nothing at a path."""
    copy = dict(value)
    copy[path[0]] = None if len(path) == 1 else _without(copy[path[0]], path[1:])
    return copy


def _put(value: Any, path: KeyPath, what: object) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = what


def _type_of(name: str) -> ResourceType:
    """Raises ``KeyError``."""
    if (found := find_type(name)) is None:
        raise KeyError(name)
    return found


def _unpacked(resource_type: ResourceType, packed: bytes) -> list[Properties]:
    """The properties of resources of one type; raises ``msgspec.MsgspecError``."""
    return msgspec.msgpack.decode(packed, type=list[resource_type.properties_type], dec_hook=parse_value)  # type: ignore[name-defined]


def _steady(named: _Named) -> dict[str, bytes]:
    """The expressions that do not give another value in every run."""
    return {source: digest for source, (digest, changes) in named.items() if changes < _MOST_CHANGES}


def _values_of(expressions: Iterable[str], scope: Scope) -> list[tuple[str, Any]] | None:
    """What expressions give now; ``None`` where one fails or is a secret."""
    try:
        values = [(source, evaluate(source, scope)) for source in sorted(expressions)]
    except HieraError:
        return None
    return None if has_secret([value for _, value in values]) else values
