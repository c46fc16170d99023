"""Changes on one machine between two resolutions of a bundle.

* A change contains no values that name the machine, so that a preview can group machines with equal changes.
* The order of resources is not compared. Resources that both resolutions leave unmanaged are equal.
* Hidden values are compared by fingerprint. Their text never gets here.
* A value that only the old release keeps secret stays hidden.
* Refreshes follow from the changes, in the order of the resources, as in the engine. A refreshed resource has changed
  and refreshes its subscribers. A skipped resource has not succeeded, so its dependents are skipped as well.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from foundation.differences import Difference, added, changed, presence, removed, secret, unified
from foundation.formatting import text_of_all
from foundation.problems import Problem
from puller.authoring.resolution import Resolution, ResolvedContent, ResolvedResource
from puller.values.common_properties import ABSENT

# Consequences of changes for other resources: restarts, reloads, repeated commands and skipped resources.

_RESTARTS = "restarts"
_RELOADS = "reloads"
_RUNS = "runs"
_TYPES = {"service": _RESTARTS, "exec": _RUNS}


class Refreshed(msgspec.Struct, frozen=True):
    """One resource that is refreshed."""

    reference: str
    verb: str
    because: tuple[str, ...]


def refreshed(resources: Iterable[ResolvedResource], changed: Collection[str]) -> Iterator[Refreshed]:
    """Yield the refreshes that follow from changes of the resources ``changed``."""
    changing = set(changed)
    for resource in resources:
        if (refresh := _refresh(resource, changing)) is not None:
            changing.add(resource.reference)
            yield refresh


def _refresh(resolved_resource: ResolvedResource, changing: Collection[str]) -> Refreshed | None:
    verb = _TYPES.get(resolved_resource.reference.partition("#")[0], "")
    if (
        not verb
        or resolved_resource.failure
        or resolved_resource.unmanaged
        or resolved_resource.properties.get("noop") is True
    ):
        return None
    if verb is _RESTARTS and resolved_resource.properties.get("ensure") != "running":
        return None
    if because := [name for name in resolved_resource.refreshed_by if name in changing]:
        return Refreshed(resolved_resource.reference, verb, tuple(because))
    if because := [name for name in resolved_resource.reloaded_by if name in changing]:
        return Refreshed(resolved_resource.reference, _RELOADS if verb is _RESTARTS else verb, tuple(because))
    return None


def skipped(resources: Iterable[ResolvedResource]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the references of resources that are skipped for failing requirements, with these requirements."""
    failing: set[str] = set()
    for resource in resources:
        if resource.failure:
            # An earlier resource may repair a late failure.
            failing.update(() if resource.is_late else _names(resource))
        elif not resource.unmanaged and (because := [name for name in resource.requires if name in failing]):
            failing.update(_names(resource))
            yield resource.reference, tuple(dict.fromkeys(because))


def _names(resolved_resource: ResolvedResource) -> Iterable[str]:
    return resolved_resource.names or (resolved_resource.reference,)


THE_BUNDLE = "the bundle"
"""The reference for changes of the whole bundle."""

_HIDDEN_PROPERTY = "a hidden property"


class Kind(StrEnum):
    """The kind of a change."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    FAILS = "fails"
    RECOVERS = "no longer fails"
    MANAGED = "managed now"
    UNMANAGED = "not managed any more"
    REFRESHED = "refreshed"
    SKIPPED = "skipped"
    LATE = "is not known before its turn comes"


class Refusal(msgspec.Struct, frozen=True):
    """The problems for which a host refuses the whole bundle."""

    problems: tuple[Problem, ...]

    @property
    def why(self) -> str:
        """The problems as text."""
        return text_of_all(self.problems)


Outcome = Resolution | Refusal
"""The result of a bundle on one machine."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of one resource."""

    reference: str
    kind: Kind
    why: str = ""
    """Reason for the failure or for not managing it, or what happens to a removed resource."""
    differences: tuple[Difference, ...] = ()
    """Differences of properties, then of written files. Only files of other types than ``file`` have a path."""
    refresh: str = ""
    """``restarts``, ``reloads`` or ``runs``."""
    problems: tuple[Problem, ...] = ()
    """The problems for which it fails, or no longer fails."""
    because: tuple[str, ...] = ()
    """The resources whose changes refresh it, or whose failures skip it."""


class Comparison(msgspec.Struct, frozen=True):
    """The changes on one machine, and its failures before and after."""

    changes: tuple[Change, ...]
    still_failing: tuple[Change, ...] = ()
    is_refused: bool = False
    """Whether the new bundle is refused, so that it could not be compared."""

    @property
    def fails(self) -> bool:
        """Whether there are new failures, or the bundle is refused."""
        return self.is_refused or any(change.kind in (Kind.FAILS, Kind.SKIPPED) for change in self.changes)


def compare(old: Outcome, new: Outcome) -> Comparison:
    """Return all changes from ``old`` to ``new``, in the order of the new resources."""
    if isinstance(new, Refusal):
        refused = Change(reference=THE_BUNDLE, kind=Kind.FAILS, why=new.why, problems=new.problems)
        if isinstance(old, Refusal):
            return Comparison((), (refused,), is_refused=True)
        return Comparison((refused,), is_refused=True)
    if isinstance(old, Refusal):
        failing = tuple(_fails(resource) for resource in new.resources if resource.failure)
        recovered = Change(reference=THE_BUNDLE, kind=Kind.RECOVERS, why=old.why, problems=old.problems)
        return Comparison((recovered, *failing))
    return _compare(old, new)


def _compare(old: Resolution, new: Resolution) -> Comparison:
    before = {found.reference: found for found in _with_unique_names(old.resources)}
    after = {found.reference: found for found in _with_unique_names(new.resources)}
    left_out = dict(skipped(after.values()))
    changes = {name: change for name, found in after.items() if (change := _change(before.get(name), found))}
    changes |= _skips(dict(skipped(before.values())), left_out, after)
    reached = [found for name, found in after.items() if name not in left_out]
    for refresh in refreshed(reached, _touched(changes.values(), after) - left_out.keys()):
        changes[refresh.reference] = _with_refresh(changes.get(refresh.reference), refresh)
    ordered = tuple(changes[name] for name in after if name in changes)
    gone = tuple(_removed(found) for name, found in before.items() if name not in after and _matters(found))
    failing = tuple(_fails(found) for name, found in after.items() if found.failure and name not in changes)
    return Comparison((*_settings(old, new), *ordered, *gone), failing)


def _with_unique_names(resources: Iterable[ResolvedResource]) -> Iterator[ResolvedResource]:
    """Yield resources with unique names, because a child manifest may be applied several times."""
    seen: Counter[str] = Counter()
    for resource in resources:
        seen[resource.reference] += 1
        number = seen[resource.reference]
        yield (
            resource
            if number == 1
            else msgspec.structs.replace(resource, reference=f"{resource.reference} ({number})")
        )


def _settings(old: Resolution, new: Resolution) -> Iterator[Change]:
    """Yield the change of the settings of the bundle."""
    hidden = old.hidden_settings | new.hidden_settings
    properties = tuple(
        _property(name, old.settings.get(name), new.settings.get(name), is_hidden=name in hidden)
        for name in dict.fromkeys((*old.settings, *new.settings))
        if old.settings.get(name) != new.settings.get(name)
    )
    if properties:
        yield Change(reference=THE_BUNDLE, kind=Kind.CHANGED, differences=properties)


def _skips(
    before: Mapping[str, tuple[str, ...]],
    now: Mapping[str, tuple[str, ...]],
    after: Mapping[str, ResolvedResource],
) -> Iterator[tuple[str, Change]]:
    """Yield the resources that are newly skipped, or no longer skipped, for failing requirements."""
    for name, because in now.items():
        if name not in before:
            yield name, Change(reference=name, kind=Kind.SKIPPED, because=because)
    for name, because in before.items():
        if name in after and name not in now and not after[name].failure and not after[name].unmanaged:
            why = f"was skipped, because {', '.join(because)} failed"
            if reported := _told(Kind.MANAGED, None, after[name], why=why):
                yield name, reported


def _with_refresh(known: Change | None, refresh: Refreshed) -> Change:
    if known is not None:
        return msgspec.structs.replace(known, refresh=refresh.verb, because=refresh.because)
    return Change(
        reference=refresh.reference, kind=Kind.REFRESHED, refresh=refresh.verb, because=refresh.because
    )


def _change(old: ResolvedResource | None, new: ResolvedResource) -> Change | None:
    """Return the change of a resource that the new bundle declares, or ``None``."""
    if new.failure:
        return None if old is not None and old.failure else _fails(new)
    if new.unmanaged:
        if old is None or old.unmanaged:
            return None
        return Change(reference=new.reference, kind=Kind.UNMANAGED, why=new.unmanaged)
    if old is None or old.unmanaged or old.failure:
        kind = Kind.ADDED if old is None else Kind.MANAGED if old.unmanaged else Kind.RECOVERS
        return _told(kind, None, new, why="" if old is None else old.unmanaged or old.failure)
    if old.fingerprint == new.fingerprint and old.contents == new.contents and old == _at(old, new):
        return None
    return _told(Kind.CHANGED, old, new)


def _at(old: ResolvedResource, new: ResolvedResource) -> ResolvedResource:
    """Return the new resource with the line and the links of the old one, which do not count as changes."""
    return msgspec.structs.replace(
        new,
        where=old.where,
        requires=old.requires,
        refreshed_by=old.refreshed_by,
        reloaded_by=old.reloaded_by,
    )


def _told(kind: Kind, old: ResolvedResource | None, new: ResolvedResource, why: str = "") -> Change | None:
    contents = tuple(_contents(new.reference, {} if old is None else old.contents, new.contents))
    differences = (*_properties(old, new, has_content=bool(contents)), *contents)
    if kind is Kind.CHANGED and not differences:
        return None
    return Change(reference=new.reference, kind=kind, why=why, differences=differences)


def _properties(
    old: ResolvedResource | None, new: ResolvedResource, *, has_content: bool
) -> Iterator[Difference]:
    before: Mapping[str, Any] = {} if old is None else old.properties
    left_out = {"content"} if has_content else set()  # its diff has more details
    hidden = _hidden_names(new) | (set() if old is None else _hidden_names(old))
    differs = False
    for name in dict.fromkeys((*before, *new.properties)):
        was, is_now = before.get(name), new.properties.get(name)
        if was == is_now and type(was) is type(is_now):
            continue
        differs = True
        if name not in left_out:
            yield _property(name, was, is_now, is_hidden=name in hidden)
    if old is not None and not differs and old.fingerprint != new.fingerprint:
        yield from _hidden(old, new, has_content=has_content)


def _hidden_names(resource: ResolvedResource) -> set[str]:
    """Return the properties that are hidden or have a hidden part."""
    return {str(path[0]) for path in resource.hidden}


def _property(name: str, old: Any, new: Any, *, is_hidden: bool) -> Difference:
    if old is None:
        return added(name, _text(new))
    if new is None:
        return removed(name, _text(old))
    if is_hidden:
        return secret(name)
    if name == "ensure":
        return presence(_text(old), _text(new))
    return changed(name, _text(old), _text(new))


def _hidden(old: ResolvedResource, new: ResolvedResource, *, has_content: bool) -> Iterator[Difference]:
    """Yield the difference of equal-looking values, with the name of the hidden property if it is certain."""
    hidden = [name for name in new.properties if (name,) in new.hidden]
    if has_content and hidden == ["content"]:
        return
    name = hidden[0] if len(hidden) == 1 else _HIDDEN_PROPERTY
    yield secret(name)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _contents(
    reference: str, old: Mapping[str, ResolvedContent], new: Mapping[str, ResolvedContent]
) -> Iterator[Difference]:
    for name in dict.fromkeys((*old, *new)):
        was, is_now = old.get(name), new.get(name)
        path = "" if reference == f"file#{name}" else name
        if was is None or is_now is None or was.fingerprint != is_now.fingerprint:
            yield _content(name, path, was, is_now)
        if was is not None and is_now is not None and was.executable != is_now.executable:
            yield changed("executable", _text(was.executable), _text(is_now.executable), path)


def _content(name: str, path: str, old: ResolvedContent | None, new: ResolvedContent | None) -> Difference:
    provided = [content for content in (old, new) if content is not None]
    is_secret = any(content.is_secret for content in provided)
    if old is None or new is None:
        result = presence("absent", "present", path) if old is None else presence("present", "absent", path)
        return result if is_secret else msgspec.structs.replace(result, diff=_diff(name, provided, old, new))
    if is_secret:
        return secret("content", path)
    result = changed("content", f"{old.size} bytes", f"{new.size} bytes", path)
    return msgspec.structs.replace(result, diff=_diff(name, provided, old, new))


def _diff(
    name: str,
    provided: Iterable[ResolvedContent],
    old: ResolvedContent | None,
    new: ResolvedContent | None,
) -> str:
    """Return the diff. Empty for binary or too large content."""
    if any(content.text is None for content in provided):
        return ""
    was, is_now = ((content.text or "").encode() if content else b"" for content in (old, new))
    return unified(was, is_now, name) or ""


def _fails(resolved_resource: ResolvedResource) -> Change:
    kind = Kind.LATE if resolved_resource.is_late else Kind.FAILS
    return Change(
        reference=resolved_resource.reference,
        kind=kind,
        why=resolved_resource.failure,
        problems=resolved_resource.failures,
    )


def _matters(old: ResolvedResource) -> bool:
    """Return whether the removal of a declaration matters. An unmanaged resource may have been created earlier."""
    return not old.unmanaged or old.properties.get("removed") == ABSENT


def _removed(old: ResolvedResource) -> Change:
    is_taken = old.properties.get("removed") == ABSENT
    why = "its changes are reverted" if is_taken else "it stays unchanged"
    return Change(reference=old.reference, kind=Kind.REMOVED, why=why)


_OF_THE_CATALOG = frozenset(
    {"alias", "require", "after", "subscribe", "reload", "control", "health_checks", "noop", "removed"}
)
"""Properties that control how a resource is treated, but not its state."""


def _touched(changes: Any, after: Mapping[str, ResolvedResource]) -> set[str]:
    """Return the resources whose state changes, so that their subscribers are refreshed."""
    return {
        change.reference
        for change in changes
        if change.kind in (Kind.ADDED, Kind.CHANGED, Kind.MANAGED, Kind.RECOVERS)
        and after[change.reference].properties.get("noop") is not True
        and any(
            difference.property.partition(":")[0] not in _OF_THE_CATALOG for difference in change.differences
        )
    }
