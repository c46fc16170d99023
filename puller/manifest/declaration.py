"""One declared resource, and the manifest that it stands in."""

from collections.abc import Iterator
from typing import Any

import msgspec

from bundles.masking import mask_urls, mask_userinfo
from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.data.bundle_data import BundleData
from puller.manifest.problems import Problems
from puller.resources.base import Properties, PropertyError, ResourceType
from puller.values.reference import Reference
from puller.values.suggestions import Path as KeyPath

HIDDEN = "(sensitive)"
"""What is shown in the place of a property that must not be."""


class Home(msgspec.Struct, frozen=True):
    """A manifest as its resources see it."""

    files: BundleFiles
    """What its paths mean."""
    scope: Scope
    """Facts, data and functions, for templates and conditions."""
    data: BundleData
    """Where ``scope.data`` comes from."""
    fail_on_error: bool = False
    parent: "Declaration | None" = None
    """The ``apply`` resource that brought it; ``None`` for the top manifest."""
    has_data: bool = True
    """Whether its data is known; what cannot be resolved without it is not the resources' mistake."""


class Declaration(msgspec.Struct):
    """One resource of a manifest, with typed properties."""

    type: ResourceType
    properties: Properties
    problems: Problems
    """Of the text that it stands in; knows names and lines."""
    path: KeyPath
    home: Home
    failure: str = ""
    """Why it cannot be applied on this machine, found while its values were resolved."""
    dynamic: frozenset[str] = frozenset()
    """Properties that were given by expressions."""
    secret: frozenset[str] = frozenset()
    """Those of them that a secret went into."""
    unknown: frozenset[str] = frozenset()
    """Properties without a value that could be worked with; why is noted."""

    def __str__(self) -> str:
        return str(self.reference)

    @property
    def reference(self) -> Reference:
        """``type#name``."""
        return Reference.to(self.type.type_name, self.properties.name)

    def names(self) -> Iterator[Reference]:
        """All references that mean this resource."""
        yield self.reference
        if self.properties.alias:
            yield Reference.to(self.type.type_name, self.properties.alias)

    def parents(self) -> "Iterator[Declaration]":
        """The ``apply`` resources that it is below, the nearest first."""
        parent = self.home.parent
        while parent is not None:
            yield parent
            parent = parent.home.parent

    @property
    def where(self) -> str:
        """``file:line``."""
        return self.problems.where(self.path)

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
        sentence = error.sentence(secret=bool(self.secret) or error.property in self.hidden)
        if not error.concerns.isdisjoint(self.dynamic):
            self.failure = f"{self.failure}; {sentence}" if self.failure else sentence
        else:
            self.refuse(error.property, sentence)

    def merge(self, second: "Declaration") -> None:
        """Take what another declaration of the same name says, where the type can; what does not agree is noted."""
        sentence = f"is declared twice, first at {self.where}"
        if self.home is not second.home:  # their relative paths, data and conditions are not the same
            second.refuse("name", f"{sentence}, in another manifest")
            return
        try:
            properties = self.type.merge(self.properties, second.properties)
        except PropertyError as error:
            what = error.sentence(secret=error.property in self.hidden | second.hidden)
            properties, sentence = None, f"{sentence}, and the two do not agree: {what}"
        if properties is None:
            second.problems.add(second.path, sentence, f"{second.label} {second.reference}")
            return
        self.properties = properties
        self.failure = self.failure or second.failure
        self.unknown |= second.unknown
        self.dynamic |= second.dynamic
        self.secret |= second.secret

    def refuse(self, name: str, sentence: str) -> None:
        """Note a problem of the manifest with one property."""
        self.problems.add((*self.path, name), sentence, f"{self.label} {self.reference}")


def label(path: KeyPath) -> str:
    """``resources[3]``: the entry that a path leads through."""
    return f"resources[{next((part for part in path if isinstance(part, int)), 0)}]"
