"""Decide what happens to one bundle of this host: which version is offered, which is applied, and whether it stays.

Selection of the release that the site offers to this host, by its pin, otherwise by the channel and its rollout:

* The selection uses signed statements and records of this host. No function here uses the network.
* A delayed offer has a reason. A rollout offers the previous release to hosts that it has not reached.

Decision whether the offer is fetched and applied:

* ``decide`` is pure. ``puller.run.bundle_run`` and ``puller.run.judging`` carry out the step, add the result to the
  situation and ask again.
* A quarantined version is never fetched, read or applied.
* A version is given up only if the host has another version to return to.
* One run gives up one version of a bundle by its trial. The version that replaces it is not judged again.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum

import msgspec

from bundles.errors import FormatError
from bundles.format.index import Indexes
from bundles.format.release import Release
from bundles.store.contents import Installed
from foundation.problems import ProblemCode
from puller.config.configuration import BundleChoice
from puller.errors import ConfigurationError
from puller.reporting.report import HoldReason
from puller.run.policy.holds import Pins, Quarantine, held_by_rollout


class Offer(msgspec.Struct, frozen=True):
    """The release that a host should run."""

    release: Release | None = None
    """``None``: the current version of the host."""
    sha256: str = ""
    """The signed digest of its archive."""
    is_pinned: bool = False
    is_quarantined: bool = False
    held: str = ""
    """Why the host does not run the published release. Usually empty."""
    held_because: HoldReason | None = None
    waits_until: datetime | None = None
    """The time at which the rollout reaches this host, if it is known."""


class ReleaseSelector(msgspec.Struct, frozen=True):
    """Selects releases for one host at one time."""

    host: Callable[[], str]
    """Returns the identity of the host. Only rollouts need it."""
    now: datetime
    pins: Pins
    quarantine: Quarantine

    def select(
        self,
        indexes: Indexes,
        choice: BundleChoice,
        digest: Callable[[Release], str],
        current: Installed | None,
    ) -> Offer:
        """Return the offer for the bundle ``choice``. ``digest`` returns the signed SHA-256 of a release.

        Raise ``ConfigurationError`` if the site does not publish the required release, and the errors of ``digest``.
        """
        version = self.pins.version_for(choice.name, choice.version)
        if version is not None:
            offer = Offer(_pinned(choice.name, version, digest, current), is_pinned=True)
        else:
            offer = self._published(indexes, choice, digest, current)
        if offer.release is None:
            return offer
        sha256 = digest(offer.release)
        if (entry := self.quarantine.find(sha256)) is None:
            return msgspec.structs.replace(offer, sha256=sha256)
        return msgspec.structs.replace(
            offer,
            sha256=sha256,
            is_quarantined=True,
            held=f"{offer.held}; {entry}" if offer.held else str(entry),
            held_because=HoldReason.QUARANTINE,
        )

    def _published(
        self,
        indexes: Indexes,
        choice: BundleChoice,
        digest: Callable[[Release], str],
        current: Installed | None,
    ) -> Offer:
        """Offer the release of the channel, or the release before it until its rollout reaches this host."""
        release = indexes.find(choice.name, choice.channel)
        if release is None:
            raise ConfigurationError(
                f"{choice.name}: channel {choice.channel!r} of the site does not contain this bundle",
                code=ProblemCode.NOT_PUBLISHED,
            )
        if release.rollout is None:
            return Offer(release)
        is_here = current is not None and current.sha256 == digest(release)
        host = self.host()
        selection = release.chosen_for(host, self.now, is_here)
        if selection.release == release:
            return Offer(release)
        return Offer(
            selection.release,
            held=held_by_rollout(release, release.place(host), self.now),
            held_because=HoldReason.ROLLOUT,
            waits_until=selection.waits_until,
        )


def _pinned(
    bundle: str, version: str, digest: Callable[[Release], str], current: Installed | None
) -> Release | None:
    """Return the release of a pin. ``None`` if the host runs that version and the site has stopped publishing it.

    Raise ``ConfigurationError`` if the version is neither published nor on this host.
    """
    try:
        release = Release.of(bundle, version)
        digest(release)
    except FormatError as error:
        if current is not None and (current.name, current.version) == (bundle, version):
            return None
        raise ConfigurationError(
            f"{bundle}: this host is held at {version}: {error}", code=ProblemCode.NOT_PUBLISHED
        ) from error
    return release


MAX_INTERRUPTIONS = 2
"""Interrupted attempts in a row after which a version is given up. A single one may be a power cut."""


class Usability(StrEnum):
    """The state of a version on this host in this run."""

    ABSENT = "absent"
    """It is not in the store."""
    UNREAD = "unread"
    FITS = "fits"
    """Its manifest is valid on this host."""
    INVALID = "invalid"
    """Its manifest is not valid on this host, or cannot be read."""
    CONFLICTS = "conflicts"
    """It contradicts another bundle of this host."""
    UNUSABLE = "unusable"
    """It could not be fetched, put on record or made current in this run."""


class Version(msgspec.Struct, frozen=True):
    """One version of the bundle."""

    sha256: str
    usability: Usability = Usability.UNREAD
    quarantined: bool = False
    interruptions: int = 0
    """Attempts in a row that were cut short."""


class Result(StrEnum):
    """The result of applying a version in this run."""

    NONE = "none"
    """Nothing was applied yet."""
    UNDECIDED = "undecided"
    """The catalog could not be applied, or a signal stopped the run."""
    PARTIAL = "partial"
    """Only a part was applied (``--only``)."""
    IN_ORDER = "in order"
    """Everything is in order, and the trial has to last longer."""
    SUCCEEDED = "succeeded"
    """Everything is in order, for as long as the rule of the trial requires."""
    FAILED = "failed"
    """A resource failed, or its requirements were not met."""
    BROKEN = "broken"
    """The version has failed its trial: by a health check, or by resources that failed in too many runs."""


class Situation(msgspec.Struct, frozen=True):
    """Everything that the decision depends on."""

    pinned: Version | None = None
    """The release of the operator's pin."""
    published: Version | None = None
    """The release of the channel, if its rollout has reached this host."""
    current: Version | None = None
    """The version that was applied before this run."""
    good: Version | None = None
    """The last version that passed."""
    previous: Version | None = None
    """The version that was current before the current one."""
    returned_to: Version | None = None
    """The version that replaces a version which failed its trial in this run."""
    applied: Version | None = None
    """The version that this run has applied."""
    result: Result = Result.NONE
    on_trial: bool = False
    """Whether the applied version has not passed yet."""
    gave_up: bool = False
    """Whether this run has given up a version of this bundle."""


class Step(StrEnum):
    """A step of a bundle in a run."""

    FETCH = "fetch"
    """Download, verify and unpack the version. Then ask again."""
    READ = "read"
    """Read its manifest on this host. Then ask again."""
    GIVE_UP = "give up"
    """Quarantine the version. Then ask again."""
    APPLY = "apply"
    """Apply the version with the other bundles. Then ask again, with the result."""
    NOTHING = "nothing"
    """No version can be applied."""
    ROLL_BACK = "roll back"
    """Quarantine the applied version, and apply this one in its place."""
    KEEP = "keep"
    """The applied version has passed. It becomes the last good one."""
    STAY = "stay"
    """The applied version stays. If it is on trial, the trial continues in the next run."""


class Decision(msgspec.Struct, frozen=True):
    """A step, and the version that it is about. ``version`` is ``None`` for ``NOTHING``."""

    step: Step
    version: Version | None = None


def decide(situation: Situation) -> Decision:
    """Return the next step.

    Before a version is applied, the first *candidate* decides that is neither quarantined nor refused. Refused means
    invalid, conflicting or unusable.

    ========= =====================================
    candidate condition
    ========= =====================================
    returned  if it is set, and no other candidate
    pinned    always
    published if no version is pinned
    current   always
    good      always
    fallback  if the current version is quarantined
    ========= =====================================

    The *fallback* of a version is the version to return to from it: the last good version, else the previous one. It
    is another version, and not quarantined.

    The first row that fits is the decision. ``-`` fits everything.

    ========= ========= ========= ======= ======== ======== ========= =========
    result    candidate cut short gave up on trial fallback step      version
    ========= ========= ========= ======= ======== ======== ========= =========
    none      no        -         -       -        -        nothing   -
    none      absent    -         -       -        -        fetch     candidate
    none      unread    -         -       -        -        read      candidate
    none      fits      twice     -       -        yes      give up   candidate
    none      fits      -         -       -        -        apply     candidate
    broken    -         -         no      yes      yes      roll back fallback
    succeeded -         -         -       -        -        keep      applied
    -         -         -         -       -        -        stay      applied
    ========= ========= ========= ======= ======== ======== ========= =========

    *Cut short* and *fallback* are about the candidate. After a version was applied, the fallback is about that version.
    """
    if situation.result is not Result.NONE:
        return _judge(situation)
    for version in _candidates(situation):
        if version is None or version.quarantined:
            continue
        match version.usability:
            case Usability.ABSENT:
                return Decision(Step.FETCH, version)
            case Usability.UNREAD:
                return Decision(Step.READ, version)
            case Usability.FITS if _is_given_up(version, situation):
                return Decision(Step.GIVE_UP, version)
            case Usability.FITS:
                return Decision(Step.APPLY, version)
            case Usability.INVALID | Usability.CONFLICTS | Usability.UNUSABLE:
                continue
    return Decision(Step.NOTHING)


def _judge(situation: Situation) -> Decision:
    """Return the decision about the applied version."""
    applied = situation.applied
    if situation.result is Result.SUCCEEDED:
        return Decision(Step.KEEP, applied)
    is_judged = situation.on_trial and not situation.gave_up
    if situation.result is Result.BROKEN and is_judged and applied is not None:
        fallback = find_fallback(situation.good, situation.previous, applied.sha256)
        if fallback is not None:
            return Decision(Step.ROLL_BACK, fallback)
    return Decision(Step.STAY, applied)


def _candidates(situation: Situation) -> Iterator[Version | None]:
    """Yield the versions that may be applied, the best first."""
    if situation.returned_to is not None:
        yield situation.returned_to
        return
    current = situation.current
    yield situation.pinned or situation.published
    yield current
    yield situation.good
    if current is not None and current.quarantined:
        yield find_fallback(situation.good, situation.previous, current.sha256)


def _is_given_up(version: Version, situation: Situation) -> bool:
    """Return whether interrupted attempts are a reason to give up a version."""
    if version.interruptions < MAX_INTERRUPTIONS:
        return False
    return find_fallback(situation.good, situation.previous, version.sha256) is not None


def find_fallback(good: Version | None, previous: Version | None, sha256: str = "") -> Version | None:
    """Return the version to return to from the version with this SHA-256."""
    for version in (good, previous):
        if version is not None and not version.quarantined and version.sha256 != sha256:
            return version
    return None
