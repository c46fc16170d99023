"""One declared resource, its manifest, and its paths from the top manifest.

Several manifests may declare one resource, and each manifest may be applied several times. A condition or a stopped
manifest blocks the resource only if every path has such a blocker.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from foundation.formatting import prefixed, text_of
from foundation.masking import HIDDEN, mask_urls, mask_userinfo
from foundation.problems import DependsOn, KeyPath, Problem, replaced
from hiera.expressions.expressions import Scope
from hiera.values import Secret
from puller.bundle_paths import BundleFiles
from puller.data.bundle_data import BundleData
from puller.manifest.entries import Entry
from puller.manifest.problems import Problems
from puller.resources.base import Properties, PropertyError, ResourceType
from puller.values.common_properties import LABEL, Reference, Removed

if TYPE_CHECKING:
    from puller.manifest.loops import Item, Loop


class Agent(Enum):
    """The agent that a manifest is read for."""

    OF_THE_MACHINE = "machine"
    OF_THIS_USER = "user"
    SOME_USERS = "users"
    """Any user: the manifest is read and not applied."""


class Home(msgspec.Struct, frozen=True):
    """The environment of a manifest's resources."""

    files: BundleFiles
    """Resolves paths."""
    scope: Scope
    """Facts, data and functions, for templates and conditions."""
    data: BundleData
    """The source of ``scope.data``."""
    fail_on_error: bool = False
    child: "Child | None" = None
    """The child that the manifest belongs to. ``None`` for the top manifest."""
    has_data: bool = True
    """Whether its data are known. Unresolved expressions are otherwise not problems of the resources."""
    removed: Removed | None = None
    """The default removal policy of its resources."""
    agent: Agent = Agent.OF_THE_MACHINE


class Child(msgspec.Struct, eq=False):
    """A child manifest with its data, shared by all ``apply`` resources with the same data. Compared by identity."""

    path: str
    """The real path."""
    given: BundleData
    """Its data, without its own document."""
    failures: tuple[Problem, ...] = ()
    """The failures on this machine."""
    applied: list["Declaration"] = []
    """All declarations that apply it, in reading order."""
    applies: list["Declaration"] = []
    """The ``apply`` resources in it."""
    height: int = 0
    """The depth of nested child manifests below it."""


class Late(msgspec.Struct, frozen=True):
    """A resource with expressions that had no value when its manifest was read."""

    entry: Entry
    raw: dict[str, Any]
    """Its properties, as far as they are resolved."""
    given: dict[str, Any]
    """The original texts of properties with expressions."""
    secret: frozenset[str]
    open: frozenset[str]
    """Properties without a value yet."""


class Declaration(msgspec.Struct):
    """One resource of a manifest, with typed properties."""

    type: ResourceType
    properties: Properties
    problems: Problems
    """The problems of its text, with names and lines."""
    path: KeyPath
    home: Home
    failures: tuple[Problem, ...] = ()
    """The failures on this machine, found while its values were resolved. Without places."""
    dynamic: frozenset[str] = frozenset()
    """Properties from expressions."""
    secret: frozenset[str] = frozenset()
    """Properties from expressions that use a secret."""
    unknown: frozenset[str] = frozenset()
    """Properties without a usable value. Each has a problem or failure on record."""
    child: Child | None = None
    """The child of an ``apply`` resource."""
    united: "tuple[Declaration, ...]" = ()
    """The agreeing declarations that are united in this one. Empty for a single declaration."""
    looped: "Item | None" = None
    """The item of the loop that declares it."""
    loop: "Loop | None" = None
    """The loop that cannot be evaluated on this machine. The declaration represents all its items."""
    own_label: str = ""
    """Its label, shared with other resources (``label#maps``)."""
    late: Late | None = None
    """The data for a second evaluation of its expressions at its turn."""

    def __str__(self) -> str:
        return str(self.reference)

    @property
    def reference(self) -> Reference:
        """``type#name``."""
        return Reference.to(self.type.type_name, self.properties.name)

    def places(self) -> "tuple[Declaration, ...]":
        """Return the declarations of this resource as they were read, one for each place."""
        return self.united or (self,)

    @property
    def scope(self) -> Scope:
        """Facts, data and functions for its templates and conditions, and the names of its loop."""
        if self.looped is None:
            return self.home.scope
        # Each resource of a child manifest evaluates the conditions of the ``apply`` resource.
        return self.looped.scope if self.child is None else self.looped.kept_scope

    @property
    def item(self) -> str:
        """``for name, vhost in data.vhosts: name is 'shop'``. Empty without a loop."""
        if self.looped is not None:
            return str(self.looped)
        return "" if self.loop is None else self.loop.text

    def names(self) -> tuple[Reference, ...]:
        """Return all references to this resource, without duplicates. An unevaluated loop has none."""
        if self.loop is not None:
            return ()
        if self.united:
            return (self.reference, *self._further_names())
        if self.properties.alias:
            return self.reference, Reference.to(self.type.type_name, self.properties.alias)
        return (self.reference,)

    def labels(self) -> tuple[Reference, ...]:
        """Return the references to its labels."""
        result = dict.fromkeys(place.own_label for place in self.places() if place.own_label)
        return tuple(Reference.to(LABEL, label) for label in result)

    def _further_names(self) -> Iterator[Reference]:
        # A linked child is applied by a name other than its target.
        names = (name for place in self.united for name in place.names())
        yield from (name for name in dict.fromkeys(names) if name != self.reference)

    @property
    def loop_reference(self) -> str:
        """The reference of a loop as written, for patterns."""
        return "" if self.loop is None else self.loop.reference

    def may_expand_to(self, reference: str) -> bool:
        """Return whether a loop that cannot be evaluated on this machine may declare this reference."""
        if self.loop is None:
            return False
        alias = self.properties.alias
        is_alias = alias is not None and reference == str(Reference.to(self.type.type_name, alias))
        return is_alias or self.loop.may_have_item(reference, self.home.files)

    def parents(self) -> "Iterator[Declaration]":
        """Yield the declarations of all ``apply`` resources above it, the nearest first."""
        visited: set[int] = set()
        waiting = [place.home.child for place in self.places()]
        for child in waiting:
            if child is not None and id(child) not in visited:
                visited.add(id(child))
                yield from child.applied
                waiting += [place.home.child for place in child.applied]

    @property
    def is_only_checked(self) -> bool:
        """Whether it is in a child that runs health checks without changes, or applies such a child."""
        return any(getattr(place.properties, "health_check_only", False) for place in (self, *self.parents()))

    @property
    def where(self) -> str:
        """``file:line``."""
        return self.problems.where(self.path)

    @property
    def origin(self) -> str:
        """``file:line``, with the item of a loop."""
        return f"{self.where} ({item})" if (item := self.item) else self.where

    @property
    def key(self) -> KeyPath:
        """The unique place in its text, with the number of the item."""
        return self.path if self.looped is None else (*self.path, self.looped.number)

    @property
    def label(self) -> str:
        """``resources[3]``: the entry that contains it."""
        return label(self.path)

    @property
    def hidden(self) -> frozenset[str]:
        """Its properties that must not be shown."""
        if not self.properties.sensitive:
            return self.secret
        return self.secret | self.type.hidden_when_sensitive()

    def shown(self) -> dict[str, Any]:
        """Return its properties as plain values. Hidden properties are masked."""
        properties: dict[str, Any] = msgspec.to_builtins(self.properties, enc_hook=str)
        properties.pop("name")
        hidden = self.hidden
        for name, value in properties.items():
            if name in hidden:
                properties[name] = HIDDEN
            elif isinstance(value, str):
                is_url = value.startswith(("http://", "https://"))
                properties[name] = mask_urls(value) if is_url else mask_userinfo(value)
        return {"ensure": self.properties.ensure, **properties}

    def hidden_paths(self) -> frozenset[KeyPath]:
        """Return the path of each masked value in ``shown()``."""
        hidden, paths = self.hidden, set[KeyPath]()
        for field in msgspec.structs.fields(self.properties):
            name = field.encode_name
            inner = [()] if name in hidden else _secret_paths(getattr(self.properties, field.name))
            paths.update((name, *path) for path in inner)
        return frozenset(paths)

    def check(self) -> None:
        """Record all problems that its type reports, as far as its properties are known."""
        if isinstance(self.properties, self.type.properties_type):
            for error in self.type.problems(self.properties):
                self.add_problem(error)

    def add_problem(self, error: PropertyError) -> None:
        """Record an invalid property: a problem of the manifest, or a failure if an expression has set it."""
        if not error.concerns.isdisjoint(self.unknown):
            return
        problem = error.problem(secret=bool(self.secret) or error.property in self.hidden)
        if not error.concerns.isdisjoint(self.dynamic):
            # The expression may have another value on another host.
            self.failures = (*self.failures, replaced(problem, depends_on=DependsOn.DATA))
        else:
            self.refuse(error.property, problem)

    def refuse(self, name: str, problem: Problem) -> None:
        """Note a problem of the manifest with one property."""
        self.problems.note(self.located(name, problem))

    def located(self, name: str, problem: Problem) -> Problem:
        """Return a problem with the place of a property, and with this resource as its subject."""
        place = (*self.path, name) if name else self.path
        return self.problems.placed(replaced(problem, subject=self.subject(name), property=name), place)

    @property
    def failure(self) -> str:
        """The failures as text. Empty without any."""
        return "; ".join(map(text_of, self.failures)) if self.failures else ""

    @property
    def located_failures(self) -> list[Problem]:
        """The failures with the place of this resource. A place of their own becomes text."""
        location = self.problems.location(self.path)
        return [replaced(prefixed(failure, ""), location=location) for failure in self.failures]

    def subject(self, name: str) -> str:
        """Return the subject of a problem. Problems that all items of a loop share name only the loop."""
        if self.looped is None:
            return str(self.reference)
        return f"{self.reference} ({self.looped})" if name in self.dynamic else self.looped.loop.reference


def label(path: KeyPath) -> str:
    """Return ``resources[3]``: the entry that a path leads through."""
    return f"resources[{next((part for part in path if isinstance(part, int)), 0)}]"


def _secret_paths(value: object) -> Iterator[KeyPath]:
    """Yield the path of each secret in a value of a property. The path of the value itself is empty."""
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, Secret):
        yield ()
    elif isinstance(value, Mapping):
        items = ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    elif isinstance(value, msgspec.Struct):
        items = ((field.encode_name, getattr(value, field.name)) for field in msgspec.structs.fields(value))
    for key, item in items:
        yield from ((key, *path) for path in _secret_paths(item))


Why = Callable[[Declaration], str]
"""Returns why a declaration, of a resource or of an ``apply`` resource above it, is blocked. Empty if it is not."""


def blocking_reason(declaration: Declaration, why: Why) -> str:
    """Return why every path to a resource is blocked. Empty if one path is open, otherwise the first reason.

    All paths are checked, so the order of declarations does not matter.
    """
    known: dict[int, str] = {}

    def of_child(child: Child) -> str:
        if id(child) not in known:
            known[id(child)] = _of_all([of_place(place) for place in child.applied])
        return known[id(child)]

    def of_place(place: Declaration) -> str:
        if text := why(place):
            return text
        return "" if place.home.child is None else of_child(place.home.child)

    return _of_all([of_place(place) for place in declaration.places()])


def _of_all(reasons: list[str]) -> str:
    return "" if "" in reasons else reasons[0]


def has_conditions(declaration: Declaration) -> bool:
    """Return whether any condition decides if it is managed."""
    if declaration.properties.control is None and declaration.home.child is None and not declaration.united:
        return False  # the usual case
    return bool(blocking_reason(declaration, _condition))


def _condition(declaration: Declaration) -> str:
    return "control" if declaration.properties.control is not None else ""
