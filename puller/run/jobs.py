"""The commands ``run`` and ``apply``, after their options were parsed.

They are separate from the command line, because importing click takes 17 % of an ``apply`` without changes.
``puller.cli`` starts the commands of timers without click.
"""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bundles.confined.current import confined, confined_when_needed, missing_protections
from bundles.progress import watched_by
from puller.engine.catalog_run import Applied, apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import UNIT_PROFILE
from puller.exit_status import ExitStatus, worst
from puller.manifest.graph.catalog import Catalog
from puller.manifest.graph.host_catalog import load_together
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import BUNDLE_ENDINGS, Manifest, ManifestSource, open_source
from puller.reporting.fetching import Fetching
from puller.reporting.report import BundleReport, Report, Summary, partial_sentence
from puller.reporting.run_log import Log, RunProblems, verbosity
from puller.reporting.sinks import Level
from puller.resources.content_sources import fetch_url
from puller.run.host import CommandInputs, Host, load_inputs_of_host
from puller.run.template_cache import cached_templates
from puller.state import PRIVATE_KEY, Directories, only_run, users_facts, users_private_key
from puller.system.processes import Stopped, StopRequests
from puller.system.trusted_files import require_trusted_directory
from puller.values.foreign_text import visible

if TYPE_CHECKING:
    from bundles.confined.network import Network
    from puller.config.configuration import Configuration

_AFTER_FAILURES = (
    ExitStatus.FAILED,
    ExitStatus.CHANGED_AND_FAILED,
    ExitStatus.HEALTH_FAILED,
    ExitStatus.HEALTH_FAILED_TWICE,
)


_KEPT_DIFFS = 256 * 1024
"""Maximum length of all diffs in the report of a run without a terminal, in characters."""


class Options(msgspec.Struct, kw_only=True):
    """The options of both commands."""

    noop: bool = False
    diff: bool | None = None
    """``None``: on a terminal."""
    detailed_exitcodes: bool = False
    only: tuple[str, ...] = ()
    """References, with ``*`` for any text. Empty: all resources."""
    verbose: bool = False
    quiet: bool = False
    reports: list[Report] | None = None
    """Receives the report, for a JSON document on stdout. Then only failures are logged, on stderr."""
    messages: list[str] = []
    """Receives the messages of manifests, if ``reports`` is a list."""

    @property
    def prints_diffs(self) -> bool:
        """Whether the output has diffs."""
        return sys.stdout.isatty() if self.diff is None else self.diff

    def settings(
        self, log: Log, stops: StopRequests, name: str = "", *, keeps_diffs: bool = False
    ) -> Settings:
        """Return the settings of the engine. It writes to ``log`` and ends after a signal.

        ``name`` is the name of the applied manifest in headings. ``keeps_diffs``: the report has diffs, too.
        """
        return Settings(
            noop=self.noop,
            only=self.only,
            diffs=self.prints_diffs or keeps_diffs,
            diff_limit=None if self.prints_diffs else _KEPT_DIFFS,
            listener=lambda declaration, event: log.event(event, name, lambda: declaration.where),
            log=log.notice,
            stopping=lambda: stops.reason,
            attending=log.attending(stops.attend),
        )

    def log(self) -> Log:
        """Return the log of the command. On a terminal it shows a table in the place of lines."""
        if self.reports is not None:
            return Log(sys.stderr, level=Level.ERROR, diffs=self.prints_diffs)
        terminal, stream = None, sys.stdout
        if stream.isatty():
            # 1 % of an idle apply by a timer, without a terminal
            from puller.reporting.terminal import Terminal

            terminal = Terminal(stream, is_dry_run=self.noop, is_quiet=self.quiet)
        level = verbosity(verbose=self.verbose, quiet=self.quiet)
        return Log(stream, level=level, terminal=terminal, diffs=self.prints_diffs)

    def print_message(self, message: str) -> None:
        """Print a message of a manifest."""
        if self.reports is None:
            print(visible(message))
        else:
            self.messages.append(message)

    def receive(self, report: Report) -> None:
        """Keep the report for a JSON document."""
        if self.reports is not None:
            self.reports.append(report)


class RunOptions(Options, kw_only=True):
    """Options of ``puller run``."""

    config: str
    """See ``puller.state.configuration_file``."""
    offline: bool = False
    ignores_holds: bool = False
    """See ``Agent.ignores_holds``."""
    no_reboot: bool = False
    """Leave due reboots to later runs."""


class ApplyOptions(Options, kw_only=True):
    """Options of ``puller apply``."""

    source: str
    before: tuple[str, ...] = ()
    """Manifests that are applied with it, like the bundles before it on its hosts."""
    fact_pairs: tuple[str, ...] = ()
    facts_files: tuple[str, ...] = ()
    facts_directories: tuple[str, ...] = ()
    no_system_facts: bool = False
    data_files: tuple[str, ...] = ()
    data_pairs: tuple[str, ...] = ()
    private_key: str = PRIVATE_KEY
    identities: tuple[str, ...] = ()
    """The keys for files that SOPS encrypted. Empty: those of this host."""
    plain_archive: bool = False
    """Accept archives that are not bundle files."""
    as_user: bool = False
    """Run the agent of an ordinary user."""
    config: str | None = None
    """The configuration of this host. ``None``: the one in its default place, if it exists."""
    state_directory: str | None = None

    @property
    def directories(self) -> Directories:
        """The directories of the lock and the pending refreshes."""
        if self.state_directory is None:
            return Directories.of_user()
        return Directories(Path(self.state_directory), Path(self.state_directory))


def run(options: RunOptions, network: "Network | None" = None) -> int:
    """Pull and apply the bundles of this host. Return the exit status.

    ``network`` has a worker process, if one was started before this module was imported.
    """
    # 1 % of an idle apply, which needs no configuration
    from puller.config.configuration import load_configuration

    # Before the configuration and data are read. The processes for the network must not know the passwords in them.
    with confined(network, at_once=not options.offline) as network:
        configuration = load_configuration(options.config)
        network.user = configuration.network_user
        status = _run(options, configuration)
    is_shown = options.reports is None
    if is_shown and status in _AFTER_FAILURES and (profile := os.environ.get(UNIT_PROFILE)):
        message = f"the {profile} profile of the unit may have forbidden the failed operation"
        options.log().warn(f"{message}. See docs/units.md for the setting and a drop-in that allows it.")
    return status


def _run(options: RunOptions, configuration: "Configuration") -> int:
    # 11 % of an idle apply
    from puller.run.agent import Agent
    from puller.run.reboots import plan_of_run

    log = options.log()
    stops = StopRequests(log.at_once)
    directories = Directories(Path(configuration.state_directory), Path(configuration.run_directory))
    for directory in (directories.state, directories.run):
        require_trusted_directory(directory)
    with (
        stops.handled(),
        watched_by(Fetching(log, None if options.noop else directories)),
    ):
        try:
            host = Host.of(configuration)
            settings = options.settings(
                log, stops, keeps_diffs=configuration.reports.diffs and not options.noop
            )
            problems = RunProblems(log, detailed=options.detailed_exitcodes, noop=options.noop)
            reboots = plan_of_run(
                configuration,
                directories,
                lambda: host.name,
                problems.warn,
                noop=options.noop,
                is_allowed=not options.no_reboot,
            )
            agent = Agent(
                configuration,
                directories,
                host,
                problems,
                stops,
                msgspec.structs.replace(settings, reboots=reboots),
                options.offline,
                options.ignores_holds,
                os.environ.get("PULLER_FELL_BACK", ""),
            )
            report = agent.run()
            options.receive(report)
            return report.exit_status
        except Stopped as stop:
            log.error(str(stop))
            return stop.exit_status


def apply(options: ApplyOptions) -> int:
    """Apply a manifest, a directory or a bundle file. Return the exit status."""
    if options.as_user:
        # 1 % of an idle apply, which needs no configuration
        from puller.config.configuration import require_user

        require_user()
        if options.private_key == PRIVATE_KEY:
            options.private_key = users_private_key()
        options.facts_directories = options.facts_directories or (users_facts(),)
    log = options.log()
    stops = StopRequests(log.at_once)
    with stops.handled(), watched_by(Fetching(log)), confined_when_needed():
        try:
            return _apply(options, log, stops)
        except Stopped as stop:
            log.error(f"{stop} before any change")
            return stop.exit_status


def _apply(options: ApplyOptions, log: Log, stops: StopRequests) -> int:
    started = time.perf_counter()
    directories = options.directories
    for directory in (directories.state, directories.run):
        require_trusted_directory(directory)
    with (
        contextlib.nullcontext() if options.noop else only_run(directories.run),
        cached_templates(directories.template_cache, noop=options.noop),
        contextlib.ExitStack() as opened,
    ):
        names = (*options.before, options.source)
        sources = [
            opened.enter_context(open_source(name, plain_archive=options.plain_archive)) for name in names
        ]
        inputs = load_inputs_of_host(msgspec.structs.asdict(options))
        if (beside := _directory_of(options.source)) is not None:
            inputs = inputs.with_files_beside(beside)
        catalog, manifests, owners = _load(sources, inputs)
        if options.only:
            catalog = catalog.limited_to(options.only)
        for message in (manifest.pre_message for manifest in manifests if manifest.pre_message):
            options.print_message(str(message))
        pending = PendingRefreshes(
            directories.pending_refreshes, str(sources[-1].path), owners=owners, noop=options.noop
        )
        log.begin(options.source)
        log.expect(len(catalog.order))
        stops.check()
        with stops.deferred():  # after the first change, the events are reported in any case
            applied = apply_catalog(
                catalog,
                options.settings(log, stops, options.source),
                stops,
                pending,
                state_directory=directories.state,
                fetch=fetch_url,
            )
            warnings = [
                *(str(warning) for manifest in manifests for warning in manifest.warnings),
                *applied.notes,
                *inputs.problems(),
                *missing_protections(),
            ]
            status = _report(options, log, stops, catalog, warnings, applied, time.perf_counter() - started)
            if status in (ExitStatus.OK, ExitStatus.CHANGED):
                for message in (manifest.post_message for manifest in manifests if manifest.post_message):
                    options.print_message(str(message))
            return status


def _directory_of(source: str) -> Path | None:
    """Return the directory of a manifest, or ``None`` for a bundle file."""
    path = Path(source)
    if path.is_dir():
        return path
    return None if source.endswith(BUNDLE_ENDINGS) else path.parent


def _load(
    sources: Sequence[ManifestSource], inputs: CommandInputs
) -> tuple[Catalog, list[Manifest], dict[str, str]]:
    """Return the catalog of these manifests, and the manifests that pending refreshes belong to, by path."""
    if len(sources) == 1:
        manifest = load_manifest(sources[0].path, sources[0].name, inputs.for_manifest())
        return manifest, [manifest], {}
    catalog = load_together(sources, inputs.for_manifest())
    paths = [str(source.path) for source in sources]
    return catalog, catalog.manifests, catalog.owners_of_subscribers(paths)


def _report(
    options: ApplyOptions,
    log: Log,
    stops: StopRequests,
    catalog: Catalog,
    warnings: Sequence[str],
    applied: Applied,
    duration: float,
) -> int:
    """Report the events of a catalog. Return the exit status."""
    for warning in warnings:
        log.warn(warning)
    if options.only:
        log.notice(partial_sentence(len(catalog.order), len(catalog.declarations)))
    summary = Summary.of(applied.events, duration)
    resources = summary.exit_status(detailed=options.detailed_exitcodes, noop=options.noop)
    status = worst(stops.exit_status, resources)
    bundle = BundleReport(name=options.source, outcome="applied", summary=summary, events=applied.events)
    if log.terminal is None:
        log.notice(str(summary))
    else:
        log.ended(status, [bundle])
    if options.reports is not None:
        from puller.reporting.results import report_of_apply  # 1 % of an idle apply, which prints no JSON

        report = report_of_apply(bundle, warnings, status, noop=options.noop, only=options.only)
        options.receive(report)
    return status
