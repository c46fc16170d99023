"""The parts of every resource type: properties, look, differences, change.

The engine drives all types through one flow (``puller.engine.engine``)::

    differences = resource.differences(resource.look())
    if differences and not noop:
        resource.change(differences)
        remaining = resource.differences(resource.look())   # anything left is a failure

* A difference is a value (``foundation.differences``). The dry run, the log, the report and the failure show the same
  values.
* Looking never changes anything. *Could not look* raises; it is never *is not there*.
* A type knows nothing of ordering, requirements or reports; the engine knows nothing of files or commands.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import msgspec

from foundation.differences import Difference
from foundation.formatting import text_of
from foundation.problems import Problem, ProblemCode
from foundation.suggestions import Meant
from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.checks.kinds import HealthCheck
from puller.resources.canonical_names import Spellings
from puller.resources.claims import Claim, EditedPlace, Use
from puller.system.protocol import System
from puller.values.references import Reference
from puller.values.removal_policy import Removed

ANYTHING = "*"
"""The subject of a change that may alter any part of the machine."""

P = TypeVar("P", bound="Properties")
S = TypeVar("S")


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"if_": "if"}):
    """Whether a resource is managed at all: boolean expressions, without delimiters (``docs/resources/common.md``)."""

    if_: str | bool | None = None
    unless: str | bool | None = None


class Properties(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The properties that every type has; each type adds its own in a subclass."""

    name: str
    """Identity within the type."""
    alias: str | None = None
    """A second name, for references and logs."""
    ensure: str = "present"
    """The desired state."""
    provider: str | None = None
    """Force a provider, instead of the one that suits this machine."""
    require: tuple[Reference, ...] = ()
    """Resources that must have succeeded before this one is looked at."""
    after: tuple[Reference, ...] = ()
    """Resources that come first, whatever their result."""
    control: Control | None = None
    """Conditions for managing this resource at all."""
    health_checks: tuple[HealthCheck, ...] = ()
    """What tells whether it works after it was applied: commands, and questions to services and the machine."""
    noop: bool = False
    """Only report, whatever the mode of the run."""
    sensitive: bool = False
    """Content and diffs never leave the process."""
    removed: Removed | None = None
    """What becomes of what it has made when no bundle declares it any more; as its manifest says when not given."""


class PropertyError(ValueError):
    """A property with an invalid value, or one that does not go with another property.

    ``message`` continues after the name. ``because`` names other properties whose values cause the problem. ``place``
    leads from the value to the part that is wrong. ``names`` are those that may be meant. ``code``, ``expected`` and
    ``hint`` are those of the problem. ``is_unquoted``: the value would be valid as quoted text.
    """

    def __init__(
        self,
        name: str,
        message: str,
        *,
        because: Iterable[str] = (),
        place: tuple[str | int, ...] = (),
        code: ProblemCode = ProblemCode.INVALID_VALUE,
        names: Meant | None = None,
        expected: str = "",
        hint: str = "",
        is_unquoted: bool = False,
        shows_value: bool = True,
    ) -> None:
        super().__init__(f"{name} {message}")
        self.property = name
        self.message = message
        self.concerns = frozenset((name, *because))
        self.place = place
        self.code = code
        self.names: Meant = names or {}
        self.expected = expected
        self.hint = hint
        self.is_unquoted = is_unquoted
        self.shows_value = shows_value

    def __str__(self) -> str:
        return text_of(self.problem(secret=False))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problem, without its place."""
        return (self.problem(secret=False),)

    def problem(self, *, secret: bool) -> Problem:
        """Return the problem, without its place. A ``secret`` value is not shown."""
        name = self.property
        if secret:
            message = f"{name} is not valid; it is secret, so it is not shown here"
            return Problem(code=self.code, message=message, property=name)
        return Problem(
            code=self.code,
            message=f"{name} {self.message}",
            property=name,
            **self.names,
            expected=self.expected,
            hint=self.hint,
        )


def missing_property(
    name: str, message: str = "is missing", *, because: Iterable[str] = (), expected: str = "", hint: str = ""
) -> PropertyError:
    """Return the error for a property that the others require. The arguments are those of ``PropertyError``."""
    code = ProblemCode.MISSING_PROPERTY
    return PropertyError(name, message, because=because, code=code, expected=expected, hint=hint)


class Uncertain(Protocol):
    """In noop: whether an earlier resource would have done what cannot be predicted, so that what is missing at a path
    now may be there then. Resources of the type ``apart_from`` do not count."""

    def __call__(self, path: str, apart_from: str = "") -> bool: ...


class Content(Protocol):
    """Bytes that a resource puts on a machine."""

    @property
    def size(self) -> int:
        """In bytes."""

    @property
    def is_secret(self) -> bool:
        """Whether a secret went into it, so that no diff of it may be shown."""

    def chunks(self) -> Iterable[bytes]:
        """All of it, in pieces; raises ``ResourceError`` for what is not there yet."""


class Part(NamedTuple):
    """One resource of several that manage parts of one thing."""

    reference: str
    type: "ResourceType"
    properties: Any


class Declared(Protocol):
    """The resources that a manifest declares."""

    @property
    def spellings(self) -> Spellings:
        """The canonical forms of names."""

    def __call__(self, type_name: str) -> Sequence[Any]:
        """Return the properties of all resources of a type."""


class Context(msgspec.Struct, frozen=True):
    """Everything that a resource works with, handed in: the machine, its manifest's directory, its templates' data."""

    system: System
    files: BundleFiles
    """The files of the bundle: ``files.find(path)`` is the one that a path in the manifest means."""
    scope: Scope
    """Facts and data, for templates."""
    fetch: Callable[[str], bytes]
    """The content of an ``http(s)://`` URL; raises ``bundles.errors.TransportError``."""
    shared: dict[type, Any]
    """What resources of one type keep together for a run, such as one query for all, by the class of it."""
    declared: Callable[[str], Sequence[str]]
    """The names of all resources of a type in this manifest, for queries about many at once."""
    parts: Callable[[Hashable], Sequence[Part]] = lambda whole: ()
    """All managed resources of a ``whole``, in the order of the run."""
    resources: Callable[[], Sequence[Part]] = tuple
    """All resources that are managed in this run, or may be; raises ``ResourceError`` where it is not known which."""
    elsewhere: Callable[[], Sequence[str]] = tuple
    """The paths at and below which is what bundles of this host keep that have no part in this run."""
    leftovers: Callable[[], Sequence[str]] = tuple
    """The references of resources that a bundle of this host has managed and nobody declares any more."""
    state_directory: Path | None = None
    """Where to keep what must be remembered between runs; ``None``: the user's own place."""
    log: Callable[[str], None] = lambda line: None
    """A line for the log, at the level of notices."""
    noop: bool = False
    changes: Callable[[], int] = itertools.count().__next__
    """How many changes resources have begun in this run: what was seen on disk is good until it grows."""
    uncertain: Uncertain = lambda path, apart_from="": False

    @property
    def directory(self) -> Path:
        """The directory of the manifest, where relative paths start."""
        return Path(self.files.directory)


class Resource(ABC, Generic[P, S]):
    """One declared resource. ``P`` are its properties, ``S`` is what ``look`` sees."""

    type_name: ClassVar[str]
    """As in manifests: ``file``."""
    properties_type: ClassVar[type[Properties]]
    expressions_kept: ClassVar[frozenset[str]] = frozenset({"control"})
    """Properties whose text is not searched for ``{{ … }}``."""
    unused: ClassVar[Mapping[str, frozenset[str]]] = {}
    """By ``ensure``: properties without a part in this state. They may be given, and are not evaluated."""
    providers: ClassVar[tuple[str, ...]] = ("posix",)
    """What can do the work, the first by default."""
    priority: ClassVar[int] = 0
    """Of providers that other distributions bring, the highest of those that can be used is chosen."""
    secret_properties: ClassVar[frozenset[str]] = frozenset()
    """What of its own properties must not be shown of a resource that is sensitive."""
    command_lines: ClassVar[frozenset[str]] = frozenset({"health_checks"})
    """Properties that become the command line of a process, which everybody on the machine can see while it runs."""
    relative_paths: ClassVar[frozenset[str]] = frozenset()
    """Properties that name a file of the bundle when they are relative paths."""
    rendered: ClassVar[frozenset[str]] = frozenset()
    """Properties whose outcome depends on the data of the manifest that they stand in when they are applied."""
    has_state: ClassVar[bool] = True
    """Whether there is something to look at apart from what was declared."""
    spellings: ClassVar[Mapping[str, Any]] = {}
    """Other keys that ``accept`` takes, each with the JSON Schema of its values."""
    removable: ClassVar[bool] = False
    """Whether its name and ``ensure: absent`` alone take away what it has made."""
    claims_only_its_name: ClassVar[bool] = False
    """Whether ``claims`` always returns one claim, at the name. Saves time for catalogs with thousands of files."""

    def __init__(self, properties: P, context: Context) -> None:
        self.properties = properties
        self.context = context

    @property
    def provider(self) -> str:
        """The name of what does the work, as reports have it."""
        return self.properties.provider or self.providers[0]

    @abstractmethod
    def look(self) -> S:
        """The state that is there now. Raises ``OSError`` or ``ResourceError``; changes nothing."""

    @abstractmethod
    def differences(self, actual: S, *, refresh: bool = False) -> Sequence[Difference]:
        """Everything that is not as wanted; empty is *stable*. ``refresh``: a subscribed resource changed."""

    def reload_differences(self, actual: S) -> Sequence[Difference]:
        """Everything that is not as wanted when only resources of its ``reloads`` changed."""
        return self.differences(actual, refresh=True)

    @abstractmethod
    def change(self, differences: Sequence[Difference], actual: S) -> None:
        """Make it so. Raises ``OSError`` or ``ResourceError``; the engine looks again afterwards."""

    @abstractmethod
    def noop_message(self, differences: Sequence[Difference], actual: S) -> str:
        """A sentence of what ``change`` would do: ``Would have …``. Raises where it is known that it would fail."""

    def reach(self) -> str:
        """The directory below which a change may do what noop cannot predict: ``/`` is anywhere, empty nowhere."""
        return ""

    def contents(self) -> Mapping[str, Content]:
        """The bytes that come from the bundle, by the paths or names that they have on the machine.

        Nothing is looked at but the bundle, so what other machines or this one give is left out. Raises
        ``ResourceError`` and ``HieraError`` for what the bundle does not have, or what cannot be rendered.
        """
        return {}

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about what was found or done that is no failure and should be known."""
        return ()

    @property
    def is_recurring(self) -> bool:
        """Whether it is declared to do something in every run, whatever is there."""
        return False

    @classmethod
    def whole(cls, properties: Any) -> Hashable | None:
        """The thing that it manages a part of, such as a file of which it edits a line; ``None``: nothing of the kind.

        What differs of a whole is changed at once, in the place of the first, whatever stands between.
        """
        del properties
        return None

    def transaction(self, actual: S) -> Hashable | None:
        """A key that changes must have in common to be made at once; ``None``: this one is made alone.

        Those of no ``whole`` must follow each other directly, and each is tried alone when all at once have failed.
        """
        del actual
        return self.whole(self.properties)

    @classmethod
    def change_together(cls, members: Sequence[tuple[Self, S]]) -> Mapping[int, Exception] | None:
        """Make the changes of resources whose ``transaction`` is the same: all of them, or raise as ``change`` does.

        The members of a whole may be of several types; it is the first one's method that is called. Where some can fail
        without the others, it gives what they have failed with, by their places among ``members``.
        """
        for resource, actual in members:
            resource.change(resource.differences(actual), actual)
        return None

    @classmethod
    def diff_together(cls, members: Sequence[tuple[Self, S]]) -> str | None:
        """A unified diff of what ``change_together`` does, where there is one to show."""
        resource, actual = members[0]
        return resource.diff(actual)

    def final_ensure(self, actual: S) -> str:
        """The state after the last look, in the words of ``ensure``."""
        del actual
        return self.properties.ensure

    def is_there(self, actual: S) -> bool:
        """Whether what it wants is on the machine in any shape; what is not, a change brings into being."""
        return self.final_ensure(actual) != "absent"

    def changed_paths(self, actual: S) -> Iterable[str] | None:
        """The paths at which a change from ``actual`` does anything; ``None`` where it does more than paths tell."""
        del actual
        name = self.properties.name
        return (name,) if self.has_state and name.startswith("/") else None

    @classmethod
    def edited_file(cls, properties: Any) -> str:
        """Return the path of the file of which the resource edits a part; the end of a trial undoes that part alone."""
        del properties
        return ""

    def edited_place(self, actual: S) -> "EditedPlace | None":
        """Return the edited file as it was read; ``None`` for resources without ``edited_file``."""
        del actual
        return None

    @classmethod
    def edited_content(cls, properties: Any, content: bytes | None) -> bytes | None:
        """Return the content after the edit; ``None`` if nothing changes. Raises ``ResourceError``."""
        del properties, content
        return None

    @classmethod
    def finds_part(cls, properties: Any, content: bytes) -> bool:
        """Return whether a content has the part that it edits, with whatever value. Raises ``ResourceError``."""
        del properties, content
        return True

    @classmethod
    def subjects(cls, properties: Any) -> Iterable[str]:
        """The parts of the machine that its state depends on.

        A subject is a path, a path with a slash at its end for everything at and below it, or a word that several types
        share, such as ``packages``. At the end of a run, a resource that was in order is looked at again if a later
        change has touched one of them.
        """
        yield from cls.places(properties)
        for directories in (cls.fills(properties), cls.purges(properties)):
            yield from (f"{directory.rstrip('/')}/" for directory in directories)

    def touched(self, actual: S) -> Iterable[str]:
        """The subjects that a change from ``actual`` may alter: its own, and its paths with everything below them."""
        subjects = {*self.subjects(self.properties), *(self.changed_paths(actual) or ())}
        return [f"{one.rstrip('/')}/" if one.startswith("/") else one for one in subjects]

    @classmethod
    def lasting(cls, properties: P) -> P | None:
        """The properties that must still hold at the end of a run; ``None`` if it cannot be looked at again.

        A second look must have no effect, and must not ask another machine.
        """
        return properties

    def way_back(self, actual: S) -> Properties | None:
        """The properties that make of it what it was in ``actual``, where paths do not tell; ``None`` where none do."""
        del actual
        return None

    def describe(self, actual: S) -> dict[str, Any]:
        """The state that was seen, as plain values (``puller state``)."""
        found: dict[str, Any] = msgspec.to_builtins(actual, enc_hook=str)
        return {"ensure": self.final_ensure(actual), **found}

    @classmethod
    def on_record(cls, properties: Any, state_directory: Path | None) -> list[str]:
        """Sentences about what is remembered between runs of what a resource manages (``puller explain``)."""
        del properties, state_directory
        return []

    @classmethod
    def unsaid(cls, properties: Any) -> str:
        """A sentence about what has to be said before anybody can tell what there is of it; mostly empty."""
        del properties
        return ""

    def diff(self, actual: S) -> str | None:
        """A unified diff of what ``change`` does, where there is one to show."""
        del actual
        return None

    @classmethod
    def hidden_when_sensitive(cls) -> frozenset[str]:
        """All properties that must not be shown of a resource that is sensitive."""
        return cls.secret_properties | {"health_checks"}

    @classmethod
    def available(cls, facts: Mapping[str, Any]) -> bool:
        """Whether this can do the work on a machine with these facts; looks at nothing but them."""
        del facts
        return True

    @classmethod
    def subscriptions(cls, properties: Properties) -> tuple[Reference, ...]:
        """The resources that this one is refreshed by; only types that can refresh have any."""
        return getattr(properties, "subscribe", ())

    @classmethod
    def reloads(cls, properties: Properties) -> tuple[Reference, ...]:
        """The resources whose change asks for less than a refresh: to read its configuration again."""
        del properties
        return ()

    @classmethod
    def accept(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Other spellings that the type takes, turned into its own properties; raises ``PropertyError``."""
        return raw

    @classmethod
    def check(cls, properties: Any) -> Iterable[PropertyError]:
        """All that is wrong with values or with several properties at once, looked for when the manifest is read.

        One that is raised instead is the last.
        """
        del properties
        return ()

    @classmethod
    def problems(cls, properties: Any) -> Iterator[PropertyError]:
        """All that ``check`` finds."""
        # A check of another distribution may be a plain function that raises, and returns nothing.
        try:
            yield from cls.check(properties) or ()
        except PropertyError as error:
            yield error

    @classmethod
    def follows(cls, properties: Any, declared: Declared) -> Iterable[Reference]:
        """The resources that come before this one where the manifest says nothing else, and they are declared."""
        del properties, declared
        return ()

    @classmethod
    def covers(cls, properties: Any) -> Iterable[str]:
        """Return the directories whose files appear with the resource, such as a mount point.

        Resources at or below them come after it, where the manifest says nothing else.
        """
        del properties
        return ()

    @classmethod
    def needs(cls, properties: Any) -> Iterable[str]:
        """Return the paths that the resource uses: resources at or above them come before it, unless it covers them."""
        del properties
        return ()

    @classmethod
    def contradictions(cls, declared: Declared) -> Iterable[tuple[Any, Any, str]]:
        """Resources that cannot both be as they want: their properties, and a sentence for the second.

        Looked for when the manifest is read, among those that are managed under no condition.
        """
        del declared
        return ()

    @classmethod
    def agree(cls, first: Any, second: Any) -> Properties:
        """The properties of two declarations as one; raises ``Contradiction`` where they say different things.

        Neither order nor number of declarations may matter to it, and what it gives must be enough for both: whoever
        applies it has done what each of them says. Paths that mean one file are one text already.
        """
        from puller.resources.property_agreement import agree  # few manifests declare anything twice

        agreed: Properties = agree(first, second)
        return agreed

    @classmethod
    def identity(cls, properties: Any, spellings: Spellings) -> Hashable:
        """Return the managed object: equal for two names of one object.

        Two declarations of one object must agree, as two declarations with one name do. By default the object is the
        name, or the canonical path if the name is a path.
        """
        name: str = properties.name
        return spellings.of(name) if name.startswith("/") else name

    @classmethod
    def claims(cls, properties: Any) -> "Iterable[Claim]":
        """Return the paths that the resource writes or keeps, and the state that it requires there.

        Claims of two resources that no state satisfies are an error of the manifest. A purge of a directory leaves all
        claimed paths. By default a resource only keeps its ``places``.
        """
        return [Claim(path, Use.KEPT) for path in cls.places(properties)]

    @classmethod
    def purges(cls, properties: Any) -> Iterable[str]:
        """Return the directories in which the resource removes everything that no resource declares."""
        del properties
        return ()

    @classmethod
    def places(cls, properties: Any) -> Iterable[str]:
        """The paths that it declares: nothing that others have left is removed there, or above."""
        return (properties.name,) if properties.name.startswith("/") else ()

    @classmethod
    def fills(cls, properties: Any) -> Iterable[str]:
        """The directories of which it alone knows what it puts below them."""
        del properties
        return ()

    def work_left(self) -> Mapping[str, str]:
        """Return the paths of a leftover that contain somebody's work, each with the reason. A purge leaves them."""
        return {}

    @classmethod
    def is_in_use(cls, properties: Any) -> bool:
        """Whether something on this machine holds it now, so that it cannot be taken away before that lets go.

        Asked when nobody declares it any more: it is taken away after the rest then, which may end what holds it.
        """
        del properties
        return False

    @classmethod
    def may_replace(cls, properties: Any) -> bool:
        """Whether it may bring what takes the place of a leftover, which is removed afterwards.

        The answer is no for a resource that only acts on what others bring, such as a service.
        """
        del properties
        return True

    @classmethod
    def occupies(cls, properties: Any, state_directory: Path) -> Iterable[str]:
        """The paths and directories of a leftover: resources that fill one of them come before its removal."""
        del state_directory
        return (*cls.places(properties), *cls.fills(properties))

    @classmethod
    def hinders(cls, properties: Any, declared: Sequence[Any]) -> bool:
        """Whether a leftover keeps one of the ``declared`` resources of its type from being made.

        Then it is removed first. Otherwise it is removed after them.
        """
        del properties, declared
        return False

    @classmethod
    def tool_paths(cls, properties: Any) -> Iterable[str]:
        """Return further paths that the tools of this machine keep for the resource, which a purge leaves.

        Called only when a directory is purged or removed. Raises nothing.
        """
        del properties
        return ()

    @classmethod
    def is_whole(cls, properties: Any) -> bool:
        """Whether applying it makes its place what it was when it was applied last, whatever was done there since."""
        del properties
        return True


ResourceType = type[Resource[Any, Any]]
