"""One declared resource, and the manifest that it stands in."""

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from foundation.formatting import prefixed, text_of
from foundation.masking import HIDDEN, mask_urls, mask_userinfo
from foundation.problems import DependsOn, KeyPath, Problem, replaced
from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.data.bundle_data import BundleData
from puller.manifest.entries import Entry
from puller.manifest.problems import Problems
from puller.resources.base import Properties, PropertyError, ResourceType
from puller.values.references import LABEL, Reference
from puller.values.removal_policy import Removed

if TYPE_CHECKING:
    from puller.manifest.loops import Item, Loop

"""What is shown in the place of a property that must not be."""


class Agent(Enum):
    """Whose agent a manifest is read for."""

    OF_THE_MACHINE = "machine"
    OF_THIS_USER = "user"
    SOME_USERS = "users"
    """That of no user in particular: it is read, and not applied."""


class Home(msgspec.Struct, frozen=True):
    """A manifest as its resources see it."""

    files: BundleFiles
    """What its paths mean."""
    scope: Scope
    """Facts, data and functions, for templates and conditions."""
    data: BundleData
    """Where ``scope.data`` comes from."""
    fail_on_error: bool = False
    child: "Child | None" = None
    """What its ``apply`` resources have in common; ``None`` for the top manifest."""
    has_data: bool = True
    """Whether its data is known; what cannot be resolved without it is not the resources' mistake."""
    removed: Removed | None = None
    """What becomes of its resources when nobody declares them any more, where they do not say so themselves."""
    agent: Agent = Agent.OF_THE_MACHINE


class Child(msgspec.Struct, eq=False):
    """A child manifest with the data that it is given: one, wherever it is applied from. Compared by identity."""

    path: str
    """Its real path."""
    given: BundleData
    """Its data, without its own document."""
    failures: tuple[Problem, ...] = ()
    """Why it cannot be applied on this machine."""
    applied: list["Declaration"] = []
    """Every declaration that applies it, in the order in which they were read."""
    applies: list["Declaration"] = []
    """The ``apply`` resources in it."""
    height: int = 0
    """How many child manifests are within each other below it."""


class Late(msgspec.Struct, frozen=True):
    """A resource some of whose expressions gave nothing when its manifest was read."""

    entry: Entry
    raw: dict[str, Any]
    """Its properties as far as they are resolved."""
    given: dict[str, Any]
    """Those that expressions give, as they were written."""
    secret: frozenset[str]
    open: frozenset[str]
    """Those that have no value yet."""


class Declaration(msgspec.Struct):
    """One resource of a manifest, with typed properties."""

    type: ResourceType
    properties: Properties
    problems: Problems
    """Of the text that it stands in; knows names and lines."""
    path: KeyPath
    home: Home
    failures: tuple[Problem, ...] = ()
    """Why it cannot be applied on this machine, found while its values were resolved. Without places."""
    dynamic: frozenset[str] = frozenset()
    """Properties that were given by expressions."""
    secret: frozenset[str] = frozenset()
    """Those of them that a secret went into."""
    unknown: frozenset[str] = frozenset()
    """Properties without a value that could be worked with; why is noted."""
    child: Child | None = None
    """Of an ``apply`` resource: what it applies."""
    united: "tuple[Declaration, ...]" = ()
    """The declarations that say the same and are this one; none when it is the only one."""
    looped: "Item | None" = None
    """The item that it is declared for, when it comes from a loop."""
    loop: "Loop | None" = None
    """Given when it stands for all that a loop would have made that cannot be evaluated on this machine."""
    own_label: str = ""
    """Its name together with others (``label#maps``)."""
    late: Late | None = None
    """Given when its expressions are to be evaluated again when its turn comes."""

    def __str__(self) -> str:
        return str(self.reference)

    @property
    def reference(self) -> Reference:
        """``type#name``."""
        return Reference.to(self.type.type_name, self.properties.name)

    def places(self) -> "tuple[Declaration, ...]":
        """The declarations of this resource as they were read, one for each place."""
        return self.united or (self,)

    @property
    def scope(self) -> Scope:
        """Facts, data and functions, for its templates and conditions, and the names of its loop."""
        if self.looped is None:
            return self.home.scope
        # Every resource of a child manifest asks for the conditions of what applies it.
        return self.looped.scope if self.child is None else self.looped.kept_scope

    @property
    def item(self) -> str:
        """``for name, vhost in data.vhosts: name is 'shop'``; empty for what comes from no loop."""
        if self.looped is not None:
            return str(self.looped)
        return "" if self.loop is None else self.loop.text

    def names(self) -> tuple[Reference, ...]:
        """All references that mean this resource, each once; what stands for a loop can not be referred to."""
        if self.loop is not None:
            return ()
        if self.united:
            return (self.reference, *self._further_names())
        if self.properties.alias:
            return self.reference, Reference.to(self.type.type_name, self.properties.alias)
        return (self.reference,)

    def labels(self) -> tuple[Reference, ...]:
        """The references that mean this resource together with others."""
        found = dict.fromkeys(place.own_label for place in self.places() if place.own_label)
        return tuple(Reference.to(LABEL, label) for label in found)

    def _further_names(self) -> Iterator[Reference]:
        # A child that is a link is applied by another name than its target.
        names = (name for place in self.united for name in place.names())
        yield from (name for name in dict.fromkeys(names) if name != self.reference)

    @property
    def loop_reference(self) -> str:
        """The resource of a loop as it is written, for patterns."""
        return "" if self.loop is None else self.loop.reference

    def stands_for(self, reference: str) -> bool:
        """Whether a loop that cannot be evaluated on this machine may have made the resource that is meant."""
        if self.loop is None:
            return False
        alias = self.properties.alias
        is_alias = alias is not None and reference == str(Reference.to(self.type.type_name, alias))
        return is_alias or self.loop.may_make(reference, self.home.files)

    def parents(self) -> "Iterator[Declaration]":
        """The declarations of all ``apply`` resources that it is below, the nearest first."""
        seen: set[int] = set()
        waiting = [place.home.child for place in self.places()]
        for child in waiting:
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield from child.applied
                waiting += [place.home.child for place in child.applied]

    @property
    def where(self) -> str:
        """``file:line``."""
        return self.problems.where(self.path)

    @property
    def origin(self) -> str:
        """``file:line``, and for which item of a loop."""
        return f"{self.where} ({item})" if (item := self.item) else self.where

    @property
    def key(self) -> KeyPath:
        """The place in its text, with the number of the item: no other has the same."""
        return self.path if self.looped is None else (*self.path, self.looped.number)

    @property
    def label(self) -> str:
        """``resources[3]``: the entry that it stands in."""
        return label(self.path)

    @property
    def hidden(self) -> frozenset[str]:
        """Its properties that must not be shown."""
        if not self.properties.sensitive:
            return self.secret
        return self.secret | self.type.hidden_when_sensitive()

    def shown(self) -> dict[str, Any]:
        """Its properties as plain values, without what must not be shown."""
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

    def check(self) -> None:
        """Note all that its type finds wrong with its properties, as far as they are known."""
        if isinstance(self.properties, self.type.properties_type):
            for error in self.type.problems(self.properties):
                self.add_problem(error)

    def add_problem(self, error: PropertyError) -> None:
        """A property is not valid: the manifest's problem, or this resource's failure when expressions gave it."""
        if not error.concerns.isdisjoint(self.unknown):
            return
        problem = error.problem(secret=bool(self.secret) or error.property in self.hidden)
        if not error.concerns.isdisjoint(self.dynamic):
            # Another host may have other values, whatever the expression reads.
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
        """The resource in a sentence about one property: what is the same for all items of a loop is said once."""
        if self.looped is None:
            return str(self.reference)
        return f"{self.reference} ({self.looped})" if name in self.dynamic else self.looped.loop.reference


def label(path: KeyPath) -> str:
    """``resources[3]``: the entry that a path leads through."""
    return f"resources[{next((part for part in path if isinstance(part, int)), 0)}]"
