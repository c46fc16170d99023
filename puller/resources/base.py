"""Base classes of resource types: properties, state, differences and changes.

The engine drives all types through one flow (``puller.engine.engine``)::

    differences = resource.differences(resource.look())
    if differences and not noop:
        resource.change(differences)
        remaining = resource.differences(resource.look())   # a remaining difference is a failure

* A difference is a value (``foundation.differences``). The dry run, the log, the report and the failure show the same
  values.
* Reading the state never changes anything. A state that cannot be read raises. It never counts as absent.
* Types do not depend on ordering, requirements or reports. The engine does not depend on files or commands.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import msgspec

from foundation.differences import Difference
from foundation.formatting import text_of
from foundation.problems import Problem, ProblemCode
from foundation.suggestions import Meant
from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.checks.kinds import HealthCheck
from puller.resources.claims import Claim, EditedPlace, Use, agree
from puller.resources.states_of_other_tools import state_meant_by
from puller.system.local_paths import Spellings
from puller.system.protocol import System
from puller.values.common_properties import Reference, Removed

if TYPE_CHECKING:  # few bundles reboot machines
    from puller.resources.reboots.plan import RebootPlan

ANYTHING = "*"
"""The subject of a change that may alter any part of the machine."""

P = TypeVar("P", bound="Properties")
S = TypeVar("S")


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"if_": "if"}):
    """Conditions for managing a resource: boolean expressions without delimiters (``docs/resources/common.md``)."""

    if_: str | bool | None = None
    unless: str | bool | None = None


class Properties(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The common properties of all types. A subclass adds the properties of its type."""

    name: str
    """Identity within the type."""
    alias: str | None = None
    """Second name for references and logs."""
    ensure: str = "present"
    """Desired state."""
    provider: str | None = None
    """Use this provider instead of the default."""
    require: tuple[Reference, ...] = ()
    """Resources that must succeed first. Otherwise this resource is skipped."""
    after: tuple[Reference, ...] = ()
    """Resources that come first, whatever their result."""
    control: Control | None = None
    """``if`` and ``unless``: conditions for managing the resource."""
    health_checks: tuple[HealthCheck, ...] = ()
    """Checks that run after the resource was applied."""
    noop: bool = False
    """Report changes without making them, even in a normal run."""
    sensitive: bool = False
    """Mask content, diffs, commands and their output."""
    removed: Removed | None = None
    """Whether to remove or keep the resource when no bundle declares it any more. The manifest sets the default."""


class PropertyError(ValueError):
    """A property with an invalid value, or a property that conflicts with another one.

    ``message`` continues after the name. ``because`` names other properties whose values cause the problem. ``place``
    leads from the value to the invalid part. ``names`` are suggestions. ``code``, ``expected`` and ``hint`` are those
    of the problem. ``is_unquoted``: the value would be valid as quoted text.
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
            message = f"{name} is not valid (secret, so not shown)"
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
    """Return the error for a property that other properties require. The arguments are those of ``PropertyError``."""
    code = ProblemCode.MISSING_PROPERTY
    return PropertyError(name, message, because=because, code=code, expected=expected, hint=hint)


class Uncertain(Protocol):
    """In noop: whether an unpredictable change of an earlier resource may create a path that is missing now.

    Ignores resources of the type ``apart_from``.
    """

    def __call__(self, path: str, apart_from: str = "") -> bool: ...


class Content(Protocol):
    """Bytes that a resource puts on a machine."""

    @property
    def size(self) -> int:
        """The number of bytes."""

    @property
    def is_secret(self) -> bool:
        """Whether the content includes a secret, so that its diff must not be shown."""

    def chunks(self) -> Iterable[bytes]:
        """Yield the content in pieces. Raises ``ResourceError`` if it does not exist yet."""


class Part(NamedTuple):
    """One of several resources that manage parts of one object."""

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
    """The environment of a resource: the machine, the manifest's directory and the data for templates."""

    system: System
    files: BundleFiles
    """The files of the bundle. ``files.find(path)`` returns the file for a path in the manifest."""
    scope: Scope
    """Facts and data, for templates."""
    fetch: Callable[[str], bytes]
    """Returns the content of an ``http(s)://`` URL. Raises ``bundles.errors.TransportError``."""
    shared: dict[type, Any]
    """Objects that resources of one type share for a run, such as one query for all, by class."""
    declared: Callable[[str], Sequence[str]]
    """The names of all resources of a type in this manifest, for queries about many at once."""
    parts: Callable[[Hashable], Sequence[Part]] = lambda whole: ()
    """All managed resources of a ``whole``, in the order of the run."""
    joined_parts: "Callable[[str], Sequence[Resource[Any, Any]] | None]" = lambda reference: ()
    """The managed resources whose ``part_of`` is this reference. ``None`` if one is unknown in noop.

    Raises ``ResourceError`` if one cannot be applied.
    """
    resources: Callable[[], Sequence[Part]] = tuple
    """All resources that this run manages or may manage. Raises ``ResourceError`` if they cannot be determined."""
    elsewhere: Callable[[], Sequence[str]] = tuple
    """Paths that bundles of this host keep and this run does not apply. Each includes everything below it."""
    leftovers: Callable[[], Sequence[str]] = tuple
    """References of resources that a bundle of this host managed and no bundle declares now."""
    is_created_at: Callable[[str], bool] = lambda path: False
    """Whether an earlier run has created the file, link or directory at a path."""
    state_directory: Path | None = None
    """Directory for state between runs. ``None``: the user's own state directory."""
    log: Callable[[str], None] = lambda line: None
    """Writes a line to the log, at the level of notices."""
    reboots: "RebootPlan | None" = None
    """The reboots of this run. ``None``: the command never restarts the machine."""
    noop: bool = False
    changes: Callable[[], int] = itertools.count().__next__
    """The number of changes that this run has begun. State that was read from disk is valid until it grows."""
    uncertain: Uncertain = lambda path, apart_from="": False

    @property
    def directory(self) -> Path:
        """The directory of the manifest, where relative paths start."""
        return Path(self.files.directory)


class Resource(ABC, Generic[P, S]):
    """One declared resource. ``P`` is the type of its properties, ``S`` the type of the state that ``look`` returns."""

    type_name: ClassVar[str]
    """The name in manifests, such as ``file``."""
    properties_type: ClassVar[type[Properties]]
    expressions_kept: ClassVar[frozenset[str]] = frozenset({"control"})
    """Properties whose text is not searched for ``{{ … }}``."""
    unused: ClassVar[Mapping[str, frozenset[str]]] = {}
    """Properties that have no effect, by ``ensure``. Manifests may set them, and they are not evaluated."""
    providers: ClassVar[tuple[str, ...]] = ("posix",)
    """Names of the implementations. The first is the default."""
    priority: ClassVar[int] = 0
    """Among usable providers of other distributions, the highest priority wins."""
    secret_properties: ClassVar[frozenset[str]] = frozenset()
    """Properties of this type that are hidden if the resource is sensitive."""
    command_lines: ClassVar[frozenset[str]] = frozenset({"health_checks"})
    """Properties that become the command line of a process, which every user of the machine can read while it runs."""
    relative_paths: ClassVar[frozenset[str]] = frozenset()
    """Properties that name a file of the bundle when they are relative paths."""
    rendered: ClassVar[frozenset[str]] = frozenset()
    """Properties whose result depends on the data of their manifest when they are applied."""
    is_last: ClassVar[bool] = False
    """Whether it comes after all other resources of all bundles that do not wait for it."""
    has_state: ClassVar[bool] = True
    """Whether the machine has a state to read, beyond the declaration."""
    spellings: ClassVar[Mapping[str, Any]] = {}
    """Other keys that ``accept`` takes, with the JSON Schema of their values."""
    part_property: ClassVar[str] = "path"
    """The property that names the resource of ``part_of``, for problems with it."""
    removable: ClassVar[bool] = False
    """Whether the name and ``ensure: absent`` are enough to remove what the resource created."""
    claims_only_its_name: ClassVar[bool] = False
    """Whether ``claims`` always returns one claim, at the name. Saves time for catalogs with thousands of files."""

    def __init__(self, properties: P, context: Context) -> None:
        self.properties = properties
        self.context = context

    @property
    def provider(self) -> str:
        """The name of the provider, as reports show it."""
        return self.properties.provider or self.providers[0]

    # The declaration

    @classmethod
    def accept(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Convert other accepted spellings into properties of the type. Raises ``PropertyError``."""
        return raw

    @classmethod
    def check(cls, properties: Any) -> Iterable[PropertyError]:
        """Return all errors in values and combinations of properties. Runs when the manifest is read.

        The function may also raise an error, which is then the last one.
        """
        del properties
        return ()

    @classmethod
    def problems(cls, properties: Any) -> Iterator[PropertyError]:
        """Yield all errors that ``check`` returns or raises."""
        for error in cls._errors(properties):
            if error.property == "ensure" and not error.names:
                error.names = cls._state_meant(properties)
            yield error

    @classmethod
    def _errors(cls, properties: Any) -> Iterator[PropertyError]:
        # A check of another distribution may be a plain function that raises and returns nothing.
        try:
            yield from cls.check(properties) or ()
        except PropertyError as error:
            yield error

    @classmethod
    def _state_meant(cls, properties: Any) -> Meant:
        """Return the valid state for an ``ensure`` of another tool, such as ``installed``."""

        def is_valid(state: str) -> bool:
            changed = msgspec.structs.replace(properties, ensure=state)
            return all(error.property != "ensure" for error in cls._errors(changed))

        states = state_meant_by(properties.ensure, is_valid)
        return {"suggestions": states} if states else {}

    @classmethod
    def available(cls, facts: Mapping[str, Any]) -> bool:
        """Return whether this type can work on a machine with these facts. Reads only the facts."""
        del facts
        return True

    @classmethod
    def hidden_when_sensitive(cls) -> frozenset[str]:
        """Return all properties that are hidden if the resource is sensitive."""
        return cls.secret_properties | {"health_checks"}

    # Look, differences, change

    @abstractmethod
    def look(self) -> S:
        """Return the current state, without changes. Raises ``OSError`` or ``ResourceError``."""

    @abstractmethod
    def differences(self, actual: S, *, refresh: bool = False) -> Sequence[Difference]:
        """Return all differences from the desired state. Empty: in sync. ``refresh``: a subscribed resource changed."""

    def reload_differences(self, actual: S) -> Sequence[Difference]:
        """Return all differences if only resources of its ``reloads`` changed."""
        return self.differences(actual, refresh=True)

    @abstractmethod
    def change(self, differences: Sequence[Difference], actual: S) -> None:
        """Apply the desired state.

        Raises ``OSError`` or ``ResourceError``. The engine reads the state again afterwards.
        """

    @abstractmethod
    def noop_message(self, differences: Sequence[Difference], actual: S) -> str:
        """Return a sentence about the effect of ``change``: ``Would have …``.

        Raises if the change would certainly fail.
        """

    def reach(self) -> str:
        """Return the directory below which noop cannot predict a change's effects: ``/`` anywhere, empty nowhere."""
        return ""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about observations that are worth reporting but not failures."""
        return ()

    @property
    def is_recurring(self) -> bool:
        """Whether the resource does something in every run, regardless of the current state."""
        return False

    @classmethod
    def lasting(cls, properties: P) -> P | None:
        """Return the properties that must still hold at the end of a run. ``None`` if a second look is impossible.

        A second look must have no effect and must not contact another machine.
        """
        return properties

    # Changes that several resources make together

    @classmethod
    def whole(cls, properties: Any) -> Hashable | None:
        """Return the object that the resource manages a part of, such as the file of a line. ``None``: no such object.

        All differences of one object are applied together, at the position of its first resource.
        """
        del properties
        return None

    @classmethod
    def part_of(cls, properties: Any) -> Reference | None:
        """Return the resource that applies this one with its own change, such as the file of a fragment.

        That resource follows this one, and requires it.
        """
        del properties
        return None

    @classmethod
    def joins_parts(cls, properties: Any) -> bool:
        """Return whether the resource applies all resources whose ``part_of`` it is."""
        del properties
        return False

    def transaction(self, actual: S) -> Hashable | None:
        """Return the key of changes that are applied together. ``None``: this change is applied alone.

        Changes without a ``whole`` are grouped only if they follow each other directly. If a group fails, each change
        is tried alone.
        """
        del actual
        return self.whole(self.properties)

    @classmethod
    def change_together(cls, members: Sequence[tuple[Self, S]]) -> Mapping[int, Exception] | None:
        """Apply the changes of resources with the same ``transaction``: all, or raise as ``change`` does.

        The members may have several types. The method of the first member is called. If some members can fail without
        the rest, return their errors by index in ``members``.
        """
        for resource, actual in members:
            resource.change(resource.differences(actual), actual)
        return None

    # Descriptions

    def diff(self, actual: S) -> str | None:
        """Return a unified diff of the effect of ``change``, if there is one to show."""
        del actual
        return None

    @classmethod
    def diff_together(cls, members: Sequence[tuple[Self, S]]) -> str | None:
        """Return a unified diff of the effect of ``change_together``, if there is one to show."""
        resource, actual = members[0]
        return resource.diff(actual)

    def final_ensure(self, actual: S) -> str:
        """Return the state after the last look, as a value of ``ensure``."""
        del actual
        return self.properties.ensure

    def is_there(self, actual: S) -> bool:
        """Return whether the object exists in any form. If not, a change creates it."""
        return self.final_ensure(actual) != "absent"

    def describe(self, actual: S) -> dict[str, Any]:
        """Return the state as plain values (``puller state``)."""
        result: dict[str, Any] = msgspec.to_builtins(actual, enc_hook=str)
        return {"ensure": self.final_ensure(actual), **result}

    def contents(self) -> Mapping[str, Content]:
        """Return the content that comes from the bundle, by path or name on the machine.

        Reads only the bundle, so it excludes content from this machine and from other hosts. Raises ``ResourceError``
        and ``HieraError`` if a file of the bundle is missing or a template cannot be rendered.
        """
        return {}

    @classmethod
    def on_record(cls, properties: Any, state_directory: Path | None) -> list[str]:
        """Return sentences about the recorded state of the resource between runs (``puller explain``)."""
        del properties, state_directory
        return []

    @classmethod
    def unsaid(cls, properties: Any) -> str:
        """Return why the current state cannot be determined. Usually empty."""
        del properties
        return ""

    # Order and refreshes

    @classmethod
    def subscriptions(cls, properties: Properties) -> tuple[Reference, ...]:
        """Return the resources whose changes refresh this one. Only types that can refresh have any."""
        return getattr(properties, "subscribe", ())

    @classmethod
    def reloads(cls, properties: Properties) -> tuple[Reference, ...]:
        """Return the resources whose changes require only a reload of the configuration, not a refresh."""
        del properties
        return ()

    @classmethod
    def follows(cls, properties: Any, declared: Declared) -> Iterable[Reference]:
        """Return declared resources that come before this one by default.

        Explicit order in the manifest takes precedence.
        """
        del properties, declared
        return ()

    @classmethod
    def covers(cls, properties: Any) -> Iterable[str]:
        """Return the directories whose files appear with the resource, such as a mount point.

        Resources at or below them come after it, unless the manifest orders them otherwise.
        """
        del properties
        return ()

    @classmethod
    def needs(cls, properties: Any) -> Iterable[str]:
        """Return the paths that the resource uses: resources at or above them come before it, unless it covers them."""
        del properties
        return ()

    # Objects and paths on the machine

    @classmethod
    def identity(cls, properties: Any, spellings: Spellings) -> Hashable:
        """Return the managed object: equal for two names of one object.

        Two declarations of one object must agree, as two declarations with one name do. By default the object is the
        name, or the canonical path if the name is a path.
        """
        name: str = properties.name
        return spellings.of(name) if name.startswith("/") else name

    @classmethod
    def agree(cls, first: Any, second: Any) -> Properties:
        """Merge the properties of two declarations. Raises ``Contradiction`` if they conflict.

        The result must not depend on the order or number of declarations, and must satisfy each of them. Paths of the
        same file are already equal.
        """
        agreed: Properties = agree(first, second)
        return agreed

    @classmethod
    def contradictions(cls, declared: Declared) -> Iterable[tuple[Any, Any, str]]:
        """Return pairs of conflicting resources: the properties of both, and a sentence about the second.

        Runs when the manifest is read, over the resources that are managed unconditionally.
        """
        del declared
        return ()

    @classmethod
    def places(cls, properties: Any) -> Iterable[str]:
        """Return the declared paths. Nothing at these paths or above them is removed as a leftover."""
        return (properties.name,) if properties.name.startswith("/") else ()

    @classmethod
    def fills(cls, properties: Any) -> Iterable[str]:
        """Return the directories whose contents only this resource can list."""
        del properties
        return ()

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
    def tool_paths(cls, properties: Any) -> Iterable[str]:
        """Return further paths that the tools of this machine keep for the resource, which a purge leaves.

        Called only when a directory is purged or removed. Raises nothing.
        """
        del properties
        return ()

    @classmethod
    def subjects(cls, properties: Any) -> Iterable[str]:
        """Return the parts of the machine that the state depends on.

        A subject is a path, a path with a trailing slash for everything at and below it, or a word that several types
        share, such as ``packages``. At the end of a run, a resource that was in sync is checked again if a later change
        touched one of its subjects.
        """
        yield from cls.places(properties)
        for directories in (cls.fills(properties), cls.purges(properties)):
            yield from (f"{directory.rstrip('/')}/" for directory in directories)

    def changed_paths(self, actual: S) -> Iterable[str] | None:
        """Return all paths that a change from ``actual`` affects. ``None`` if it also affects other things."""
        del actual
        name = self.properties.name
        return (name,) if self.has_state and name.startswith("/") else None

    def touched(self, actual: S) -> Iterable[str]:
        """Return the subjects that a change from ``actual`` may alter: its own, and its paths with all contents."""
        subjects = {*self.subjects(self.properties), *(self.changed_paths(actual) or ())}
        return [f"{subject.rstrip('/')}/" if subject.startswith("/") else subject for subject in subjects]

    # Ends of trials

    @classmethod
    def edited_file(cls, properties: Any) -> str:
        """Return the path of the edited file, if the resource edits a part.

        The end of a trial undoes only that part.
        """
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
        """Return whether a content has the edited part, with any value. Raises ``ResourceError``."""
        del properties, content
        return True

    def way_back(self, actual: S) -> Properties | None:
        """Return properties that restore ``actual`` if restoring paths is not enough. ``None`` if no properties can."""
        del actual
        return None

    @classmethod
    def is_whole(cls, properties: Any) -> bool:
        """Return whether applying it restores its place to the last applied state, despite later changes."""
        del properties
        return True

    # Leftovers

    @classmethod
    def occupies(cls, properties: Any, state_directory: Path) -> Iterable[str]:
        """Return the paths and directories of a leftover. Resources that fill one of them come before its removal."""
        del state_directory
        return (*cls.places(properties), *cls.fills(properties))

    def work_left(self) -> Mapping[str, str]:
        """Return the paths of a leftover that contain a user's work, each with the reason. A purge leaves them."""
        return {}

    @classmethod
    def is_in_use(cls, properties: Any) -> bool:
        """Return whether something on this machine uses the leftover now and prevents its removal.

        A leftover in use is removed after the other leftovers, because their removal may release it.
        """
        del properties
        return False

    @classmethod
    def may_replace(cls, properties: Any) -> bool:
        """Return whether the resource may create the replacement of a leftover, which is removed afterwards.

        False for a resource that only acts on objects of other resources, such as a service.
        """
        del properties
        return True

    @classmethod
    def hinders(cls, properties: Any, declared: Sequence[Any]) -> bool:
        """Return whether a leftover prevents one of the ``declared`` resources of its type.

        If so, it is removed first, otherwise after them.
        """
        del properties, declared
        return False


class Stateless(Resource[P, None]):
    """A resource without a state of its own. Other resources read and change what it stands for."""

    has_state = False

    def look(self) -> None:
        """Return nothing: the other resources read their own state."""

    def differences(self, actual: None, *, refresh: bool = False) -> Sequence[Difference]:
        del actual, refresh
        return ()

    def change(self, differences: Sequence[Difference], actual: None) -> None:
        """Do nothing: the other resources make the changes."""

    def noop_message(self, differences: Sequence[Difference], actual: None) -> str:
        del differences, actual
        return ""


ResourceType = type[Resource[Any, Any]]
