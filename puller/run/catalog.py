"""The catalog of a run: the chosen versions of all bundles, read, joined and applied together.

* Manifests are joined in the order of the configuration. A later bundle may refer to the resources of earlier ones.
* A release never takes another bundle of the host out of force. If no version of an enforced bundle fits with a new
  release of an earlier bundle, that release is rejected.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from bundles.errors import BundleError
from bundles.store.contents import Installed
from foundation.problems import Problem, problems_of
from puller.engine.catalog_run import Applied, apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.engine.transactions import Observer
from puller.errors import ManifestError, PullerError, UsageError
from puller.manifest.declaration import Declaration
from puller.manifest.graph.host_catalog import HostCatalog
from puller.reporting.report import Event, Health, partial_sentence
from puller.reporting.sinks import MessageId
from puller.resources.content_sources import fetch_url
from puller.run.bundle_run import BundleRun, Chosen, RunContext, read_manifest
from puller.run.judging import have_health_checks, health_before
from puller.run.leftovers.declared_resources import whole_paths
from puller.run.leftovers.leftovers import InForce
from puller.system.local import LocalSystem

Bundles = Sequence[BundleRun]
"""All bundles of the host, in the order of its configuration."""


def chosen_bundles(bundles: Bundles) -> list[tuple[BundleRun, Chosen]]:
    """Return the bundles with an applied version, in the order of their manifests in the catalog."""
    return [(bundle, bundle.chosen) for bundle in bundles if bundle.chosen is not None]


# Prepare


def choose_versions(context: RunContext, bundles: Bundles) -> HostCatalog:
    """Choose a version of each bundle. Return the catalog of their manifests."""
    catalog = _join(bundles)
    for number, bundle in enumerate(bundles):
        if bundle.chosen is None and bundle.current is not None and bundle.rejected:
            catalog = _without_conflict(context, bundles, number) or _join(bundles)
    return catalog


def _join(bundles: Bundles) -> HostCatalog:
    catalog = HostCatalog.of()
    for bundle in bundles:
        catalog = bundle.choose(catalog)
    return catalog


def _without_conflict(context: RunContext, bundles: Bundles, number: int) -> HostCatalog | None:
    """Return the catalog without the one new release of an earlier bundle that excludes this bundle.

    ``None`` if this bundle conflicts with all earlier releases.
    """
    left_out = bundles[number]
    reason = problems_of(left_out.rejected[-1][1])[0]
    for other in reversed(bundles[:number]):
        if other.chosen is None or other.chosen.installed == other.current:
            continue
        release = other.chosen.installed
        sentence = (
            f"{release} is rejected, because every version of {left_out.name} conflicts with it: {reason}"
        )
        other.refused[release.sha256] = sentence
        catalog = _join(bundles)
        if left_out.chosen is not None:
            problem = Problem(code=reason.code, message=sentence)
            context.problems.error(problem, ManifestError.exit_status)
            return catalog
        del other.refused[release.sha256]
    return None


def begin_attempts(context: RunContext, bundles: Bundles, catalog: HostCatalog) -> HostCatalog:
    """Put the attempts at all chosen versions on record, and make the versions current.

    A version that cannot be begun is refused, and the choice is made again. Return the catalog that can be applied.
    """
    while not _begin_each(context, bundles, catalog):
        again = choose_versions(context, bundles)
        catalog = _limit(again, context.settings.only) if catalog.is_partial else again
    return catalog


def _begin_each(context: RunContext, bundles: Bundles, catalog: HostCatalog) -> bool:
    """Begin all attempts. Refuse the first version that cannot be begun, and return ``False``."""
    for bundle, chosen in chosen_bundles(bundles):
        if _is_left_out(catalog, chosen):
            continue
        try:
            bundle.begin(chosen.installed, partial(_health_before, context, bundles, catalog, chosen))
        except (BundleError, OSError) as error:
            bundle.refuse(chosen.installed, error)
            return False
    return True


def _limit(catalog: HostCatalog, only: Sequence[str]) -> HostCatalog:
    """Return the part of a catalog that ``--only`` names. Empty if a part of it is missing by now."""
    try:
        return catalog.limited_to(only)
    except UsageError:
        return msgspec.structs.replace(catalog, order=[])


def _is_left_out(catalog: HostCatalog, chosen: Chosen) -> bool:
    """Return whether a partial run leaves a bundle out. Its version does not become current then."""
    return catalog.is_partial and not catalog.concerns(chosen.number)


def _health_before(
    context: RunContext, bundles: Bundles, catalog: HostCatalog, chosen: Chosen
) -> dict[str, Health]:
    """Run the health checks of a chosen version that the versions before this run also have."""
    concerns = [catalog.declarations[index] for index in catalog.concerns(chosen.number)]
    if not have_health_checks(concerns) or not (before := _enforced(context, bundles)):
        return {}
    context.problems.log.notice(f"{chosen.installed}: running the health checks before the change")
    return health_before(before, concerns, LocalSystem())


def _enforced(context: RunContext, bundles: Bundles) -> list[Declaration]:
    """Return the resources of the versions before this run, as far as their manifests are still valid."""
    catalog = HostCatalog.of()
    for bundle in bundles:
        try:
            if bundle.current is not None:
                known = catalog.references()
                catalog = catalog.joined(read_manifest(bundle.current, context.inputs, known))
        except PullerError:  # facts have changed since it was applied
            continue
    return catalog.declarations


# Apply


def apply_versions(context: RunContext, bundles: Bundles, catalog: HostCatalog) -> None:
    """Apply the catalog. Give each bundle the outcomes of its resources."""
    for bundle in bundles:
        bundle.report_rejected()
    if not catalog.manifests:
        return
    done = _apply_with_reversals(context, bundles, catalog)
    if done is None:
        for bundle, chosen in chosen_bundles(bundles):
            bundle.report_unapplied(chosen.installed)
        return
    whole, applied = done
    events = dict(zip(whole.order, applied.events, strict=True))
    for bundle, chosen in chosen_bundles(bundles):
        if _is_left_out(catalog, chosen):
            bundle.leave_out()
            continue
        own, part = whole.resources_of(chosen.number), catalog.concerns(chosen.number)
        # A bundle is also judged by the resources of other bundles that its own have undone.
        undone = [index for index, by in applied.undone.items() if by in part and index not in part]
        outcomes = [(catalog.declarations[index], events[index]) for index in (*part, *undone)]
        bundle.report_applied(chosen.installed, [events[index] for index in own], outcomes)


def _apply_with_reversals(
    context: RunContext, bundles: Bundles, catalog: HostCatalog
) -> tuple[HostCatalog, Applied] | None:
    """Apply the catalog and the reversals of leftovers. Return both with their events. ``None`` after an error."""
    leftovers, names = context.leftovers, [bundle.name for bundle, _ in chosen_bundles(bundles)]
    try:
        in_force = {
            bundle.name: _in_force(context, bundle, chosen.installed, catalog)
            for bundle, chosen in chosen_bundles(bundles)
        }
        whole = leftovers.before(catalog, names, in_force)
        for bundle, _ in chosen_bundles(bundles):
            bundle.report_irreversible(*leftovers.remaining(bundle.name))
        context.problems.log.expect(len(whole.order))
        applied = apply_catalog(
            whole,
            _engine_settings(context, bundles, whole),
            context.stops,
            _pending_refreshes(context, bundles, whole),
            state_directory=context.directories.state,
            fetch=fetch_url,
        )
    except OSError as error:
        context.problems.caught(error)
        return None
    with context.problems.remembering():
        leftovers.after(applied.events)
    _log_staying(context)
    if catalog.is_partial:
        context.problems.log.notice(partial_sentence(len(catalog.order), len(catalog.declarations)))
    for warning in (warning for manifest in catalog.manifests for warning in manifest.warnings):
        context.problems.warn(warning)
    for note in applied.notes:
        context.problems.warn(note)
    return whole, applied


def _in_force(context: RunContext, bundle: BundleRun, version: Installed, catalog: HostCatalog) -> InForce:
    """Describe a chosen version for reversals.

    For a version on trial, the description has the paths that the fallback restores by itself. The fallback must have
    passed. Otherwise objects of a person, which were there before it, have to come back.
    """
    if not bundle.is_unproven(version):
        return InForce(version.version, version.sha256, is_back=bundle.returned_to is not None)
    paths: frozenset[str] = frozenset()
    fallback = bundle.find_fallback(except_for=version.sha256)
    if fallback is not None and fallback == bundle.good:
        with contextlib.suppress(PullerError):
            paths = whole_paths(read_manifest(fallback, context.inputs, catalog.references()).declarations)
    return InForce(version.version, version.sha256, False, paths, fallback.sha256 if fallback else "")


def _log_staying(context: RunContext) -> None:
    """Log each leftover that stays. It is logged again only if the reason changes."""
    leftovers = context.leftovers
    while leftovers.staying:
        bundle, reference, reason = leftovers.staying.pop(0)
        sentence = f"{reference} is a leftover: {reason}"
        kind = MessageId.RESOURCE_SKIPPED
        context.problems.log.notice(sentence, kind=kind, bundle=bundle, resource=reference)


def _engine_settings(context: RunContext, bundles: Bundles, catalog: HostCatalog) -> Settings:
    """Return the settings of the engine. It reports when a bundle on trial reaches its first resource."""
    leftovers = context.leftovers
    settings = msgspec.structs.replace(
        context.settings,
        observer=leftovers.observer or Observer(),
        elsewhere=leftovers.elsewhere,
        leftovers=leftovers.references,
        is_created_at=leftovers.managed.is_created_at,
        listener=_event_logger(context, bundles, catalog),
    )
    on_trial = {
        chosen.number: chosen.installed
        for bundle, chosen in chosen_bundles(bundles)
        if bundle.trial is not None
    }
    if not on_trial:
        return settings

    def attend(declaration: Declaration) -> None:
        for number in catalog.numbers_of(declaration):
            if (version := on_trial.pop(number, None)) is not None:
                with context.problems.remembering():
                    context.trials.reach(version)
        settings.attending(declaration)

    return msgspec.structs.replace(settings, attending=attend)


def _event_logger(
    context: RunContext, bundles: Bundles, catalog: HostCatalog
) -> Callable[[Declaration, Event], None]:
    """Return a function that logs events, each with the bundle that its resource belongs to."""
    log = context.problems.log
    names = {chosen.number: bundle.name for bundle, chosen in chosen_bundles(bundles)}

    def listen(declaration: Declaration, event: Event) -> None:
        if log.shows(event):
            bundle = names[catalog.numbers_of(declaration)[0]]
            log.event(event, bundle, lambda: "" if event.reversal else declaration.where)

    return listen


def _pending_refreshes(context: RunContext, bundles: Bundles, catalog: HostCatalog) -> PendingRefreshes:
    """Return the pending refreshes of the chosen bundles and of bundles that have left the configuration."""
    names = [bundle.name for bundle, _ in chosen_bundles(bundles)]
    waiting = {bundle.name for bundle in bundles if bundle.chosen is None}
    return PendingRefreshes(
        context.directories.pending_refreshes,
        names[0],
        owners=catalog.owners_of_subscribers(names),
        # Names of bundles contain no slash. The records of `puller apply` are named by the path of the manifest.
        shares=lambda scope: "/" not in scope and scope not in waiting,
        noop=context.settings.noop,
    )
