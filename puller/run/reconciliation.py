"""All bundles of a host, brought to the machine together: ``Reconciliation.run`` is the list of the steps."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from bundles.errors import BundleError
from foundation.problems import Problem, problems_of
from puller.config.configuration import BundleChoice
from puller.engine.apply import Applied, apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError, PullerError, UsageError
from puller.exit_status import ExitStatus
from puller.manifest.declaration import Declaration
from puller.manifest.host_catalog import HostCatalog
from puller.reporting.fields import MessageId
from puller.reporting.phases import Phase
from puller.reporting.report import BundleReport, Event, partial_sentence
from puller.resources.remote import fetch_url
from puller.run.application import Means, read_manifest
from puller.run.enforcement import Choice, Enforcement
from puller.run.exported import ExportedValues
from puller.run.left.leftovers import Leftovers
from puller.run.site import Offer


class Reconciliation(msgspec.Struct, frozen=True):
    """The bundles of a host in one run, in the order of its configuration.

    1. Candidates of each bundle (``puller.run.site``, ``puller.run.rollback``): the site's offer, what is current, the
       last good one; none that is in quarantine.
    2. One catalog (``puller.manifest``): of each bundle the best candidate that is understood on this host and fits
       with the bundles before it. One that was cut short twice in a row is given up here.
    3. The trial of each new bundle is put on record, with what the health checks say before the change
       (``puller.run.attempts``, ``puller.run.trials``); each becomes current.
    4. The catalog is applied (``puller.engine``).
    5. Health gate (``puller.run.health_gate``): what a bundle on trial has broken, and resources that failed in too
       many runs.
    6. Quarantine: what failed is given up by its digest, before anything else changes, when there is another one
       (``puller.run.policy.quarantine``).
    7. Rollback: with the last good ones in their place, steps 2 to 6 again, until nothing more is given up.
    8. What is enforced now passes, and is the one to roll back to; or stays on trial.
    9. What they export to the fleet is kept (``puller.run.exported``).
    10. Bundles that nobody needs any more are removed (``bundles.store``).
    """

    means: Means
    bundles: Sequence[Enforcement]

    @classmethod
    def of(
        cls, means: Means, reports: Sequence[BundleReport], choices: Sequence[BundleChoice]
    ) -> "Reconciliation":
        """The bundles of these ``choices`` of the operator, each with its report."""
        pairs = zip(reports, choices, strict=True)
        return cls(means, [Enforcement.of(means, report, choice.give_up_after) for report, choice in pairs])

    def wait(self, offers: Iterable[Offer | None], why: str) -> None:
        """Apply nothing; only have what will be needed when that is over."""
        for bundle, offer in zip(self.bundles, offers, strict=True):
            bundle.wait(offer, why)

    def run(self, offers: Iterable[Offer | None]) -> None:
        """Enforce all bundles; a problem with one is noted, and keeps no other from being enforced.

        Raises ``UsageError`` for a reference of ``--only`` that names nothing, before anything is changed.
        """
        phases = self.means.phases
        # 1. Candidates
        with phases(Phase.FETCH):
            for bundle, offer in zip(self.bundles, offers, strict=True):
                bundle.obtain(offer)
        # 2. Catalog; a part of it when the operator wants no more
        with phases(Phase.RESOLVE):
            catalog = self._chosen()
        if only := self.means.settings.only:
            catalog = catalog.limited_to(only)
        self.means.stops.check()
        with self.means.stops.deferred():  # a run that is asked to stop leaves no attempt without an end
            with phases(Phase.APPLY):
                # 3. and 4.
                self._apply(catalog)
                # 5. to 7.
                while not self.means.settings.noop and self._give_up():
                    self._apply(self._chosen())
            # 8. Pass
            for bundle, choice in self._taking_part():
                if bundle.begun is not None and not self.means.settings.noop:
                    bundle.conclude(choice.bundle)
        # 9. Exports
        if not self.means.settings.noop:
            self._export()
        # 10. Prune
        for bundle in self.bundles:
            bundle.prune()

    # 9. Exports

    def _export(self) -> None:
        """Keep the exports of what is enforced; what a host cannot export is a failure that is told."""
        enforced = [(bundle, choice) for bundle, choice in self._taking_part() if not bundle.is_left_out]
        for _, choice in enforced:
            for problem in choice.manifest.export_problems:
                self.means.problems.error(problem, ExitStatus.FAILED)
        with self.means.problems.remembering():
            ExportedValues(self.means.directories, self.means.problems.warn).update(
                {bundle.report.name: choice.manifest.exports for bundle, choice in enforced},
                [bundle.report.name for bundle in self.bundles],
            )

    # 2. Catalog

    def _chosen(self) -> HostCatalog:
        """The catalog of the best candidates; a release never takes another bundle of this host out of force.

        One that no version of an enforced bundle fits with is left for another candidate of its own.
        """
        catalog = self._joined()
        for number, bundle in enumerate(self.bundles):
            if bundle.choice is None and bundle.current is not None and bundle.rejected:
                catalog = self._without_culprit(number) or self._joined()
        return catalog

    def _joined(self) -> HostCatalog:
        catalog = HostCatalog.of()
        for bundle in self.bundles:
            catalog = bundle.choose(catalog)
        return catalog

    def _without_culprit(self, number: int) -> HostCatalog | None:
        """The catalog without the one new release before this bundle that keeps it out; ``None`` when none does."""
        left_out = self.bundles[number]
        reason = problems_of(left_out.rejected[-1][1])[0]
        for other in reversed(self.bundles[:number]):
            if other.choice is None or other.choice.bundle == other.current:
                continue
            new = other.choice.bundle
            other.refused[new.sha256] = f"{new} is rejected: no {left_out.report.name} fits with it: {reason}"
            catalog = self._joined()
            if left_out.choice is not None:
                problem = Problem(code=reason.code, message=other.refused[new.sha256])
                self.means.problems.error(problem, ManifestError.exit_status)
                return catalog
            del other.refused[new.sha256]
        return None

    # 3. Trials

    def _begun(self, catalog: HostCatalog) -> HostCatalog:
        """Begin what was chosen; what cannot be begun is left for the next candidate."""
        while (failed := self._first_not_begun(catalog)) is not None:
            (bundle, choice), error = failed
            bundle.refuse(choice.bundle, error)
            catalog = self._limited(self._chosen()) if catalog.is_partial else self._chosen()
        return catalog

    def _limited(self, catalog: HostCatalog) -> HostCatalog:
        """The part that was asked for; nothing, when not all of that is there any more."""
        try:
            return catalog.limited_to(self.means.settings.only)
        except UsageError:
            return msgspec.structs.replace(catalog, order=[])

    def _first_not_begun(self, catalog: HostCatalog) -> tuple[tuple[Enforcement, Choice], Exception] | None:
        for bundle, choice in self._taking_part():
            concerns = [catalog.declarations[index] for index in catalog.concerns(choice.number)]
            if self._is_left_out(catalog, choice):
                continue
            try:
                bundle.begin(choice.bundle, concerns, self._enforced)
            except (BundleError, OSError) as error:
                return (bundle, choice), error
        return None

    def _is_left_out(self, catalog: HostCatalog, choice: Choice) -> bool:
        """Whether a partial run applies nothing of a bundle, which then does not become current by it."""
        return catalog.is_partial and not catalog.concerns(choice.number)

    def _enforced(self) -> list[Declaration]:
        """All that the bundles declare that were enforced before this run, as far as it is understood still."""
        catalog = HostCatalog.of()
        for bundle in self.bundles:
            try:
                if bundle.current is not None:
                    known = catalog.references()
                    catalog = catalog.joined(read_manifest(bundle.current, self.means.inputs, known))
            except PullerError:  # it was understood when it was applied; facts change
                continue
        return catalog.declarations

    def _taking_part(self) -> list[tuple[Enforcement, Choice]]:
        return [(bundle, bundle.choice) for bundle in self.bundles if bundle.choice is not None]

    # 4. Application

    def _apply(self, catalog: HostCatalog) -> None:
        """Apply the chosen bundles, and let each know what became of its resources."""
        catalog = self._begun(catalog)
        for bundle in self.bundles:
            bundle.outcomes = None
            bundle.tell_rejected()
        if not catalog.manifests:
            return
        done = self._applied(catalog)
        if done is None:
            for bundle, choice in self._taking_part():
                bundle.application.tell_unapplied(choice.bundle)
            return
        whole, applied = done
        events = dict(zip(whole.order, applied.events, strict=True))
        for bundle, choice in self._taking_part():
            if self._is_left_out(catalog, choice):
                bundle.is_left_out = True
                bundle.application.tell_unapplied(bundle.current, "nothing of it was asked for")
                continue
            own, part = whole.resources_of(choice.number), catalog.concerns(choice.number)
            bundle.application.tell(choice.bundle, [events[index] for index in own])
            # A bundle is also judged by the resources of other bundles that its own have undone.
            undone = [index for index, by in applied.undone.items() if by in part and index not in part]
            bundle.outcomes = [(catalog.declarations[index], events[index]) for index in (*part, *undone)]

    def _applied(self, catalog: HostCatalog) -> tuple[HostCatalog, Applied] | None:
        """The catalog with what was taken back before it, and what became of both; ``None`` with the reason noted."""
        leftovers, names = self.means.leftovers, [bundle.report.name for bundle, _ in self._taking_part()]
        try:
            in_force = {
                bundle.report.name: bundle.in_force(choice.bundle, catalog.references)
                for bundle, choice in self._taking_part()
            }
            whole = leftovers.before(catalog, names, in_force)
            for bundle, _ in self._taking_part():
                bundle.application.tell_remaining(*leftovers.remaining(bundle.report.name))
            applied = apply_catalog(
                whole,
                self._settings(whole),
                self.means.stops,
                self._pending(whole),
                state_directory=self.means.directories.state,
                fetch=fetch_url,
            )
        except OSError as error:
            self.means.problems.caught(error)
            return None
        with self.means.problems.remembering():
            leftovers.after(applied.events)
        self._log_staying(leftovers)
        if catalog.is_partial:
            applied_of = partial_sentence(len(catalog.order), len(catalog.declarations))
            self.means.problems.log.notice(applied_of)
        warnings = [warning for manifest in catalog.manifests for warning in manifest.warnings]
        for warning in warnings:
            self.means.problems.warn(warning)
        for note in applied.notes:
            self.means.problems.warn(note)
        return whole, applied

    def _log_staying(self, leftovers: Leftovers) -> None:
        """Log each leftover that stays once, and again if the reason is another one."""
        while leftovers.staying:
            bundle, reference, reason = leftovers.staying.pop(0)
            sentence = f"{reference} is left behind: {reason}"
            kind = MessageId.RESOURCE_SKIPPED
            self.means.problems.log.notice(sentence, kind=kind, bundle=bundle, resource=reference)

    def _settings(self, catalog: HostCatalog) -> Settings:
        """The settings of the engine; that a bundle on trial has come to its first resource is put on record."""
        leftovers = self.means.leftovers
        settings = msgspec.structs.replace(
            self.means.settings,
            observer=leftovers.observer,
            elsewhere=leftovers.elsewhere,
            leftovers=leftovers.references,
            listener=self._listener(catalog),
        )
        on_trial = {
            choice.number: choice.bundle for bundle, choice in self._taking_part() if bundle.trial is not None
        }
        if not on_trial:
            return settings

        def attend(declaration: Declaration) -> None:
            for number in catalog.numbers_of(declaration):
                if (bundle := on_trial.pop(number, None)) is not None:
                    with self.means.problems.remembering():
                        self.means.trials.reach(bundle)
            settings.attending(declaration)

        return msgspec.structs.replace(settings, attending=attend)

    def _listener(self, catalog: HostCatalog) -> Callable[[Declaration, Event], None]:
        """Who writes down what becomes of resources, each with the bundle that it belongs to."""
        log = self.means.problems.log
        names = {choice.number: bundle.report.name for bundle, choice in self._taking_part()}

        def listen(declaration: Declaration, event: Event) -> None:
            if log.shows(event):
                log.event(event, names[catalog.numbers_of(declaration)[0]])

        return listen

    def _pending(self, catalog: HostCatalog) -> PendingRefreshes:
        """The pending refreshes of all bundles, but of those that are configured and not applied now."""
        names = [bundle.report.name for bundle, _ in self._taking_part()]
        waiting = {bundle.report.name for bundle in self.bundles if bundle.choice is None}
        return PendingRefreshes(
            self.means.directories.pending_refreshes,
            names[0],
            owners=catalog.owners_of_subscribers(names),
            # Names of bundles hold no slash; what `puller apply` records is named by the manifest's path.
            shares=lambda scope: "/" not in scope and scope not in waiting,
            noop=self.means.settings.noop,
        )

    # 5. to 7. Health gate, quarantine

    def _give_up(self) -> bool:
        """Give up all that has failed its trial; whether anything was."""
        given_up = [bundle for bundle, choice in self._taking_part() if bundle.gives_up(choice)]
        return bool(given_up)
