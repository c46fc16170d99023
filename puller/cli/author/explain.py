"""The command ``puller explain``: the source of a value, or the reason for the state of a resource."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from bundles.store.store import Store
from foundation.formatting import did_you_mean, text_of
from puller.cli.completing import files, resources_of_host
from puller.cli.options import (
    before_option,
    configuration_option,
    data_options,
    fact_options,
    has_context,
    other_machine_options,
    text_format_option,
)
from puller.cli.output import warn
from puller.config.configuration import load_configuration
from puller.engine.explanation import Recorder, explain_everywhere, explain_resource, why
from puller.errors import UsageError, file_problem
from puller.exit_status import ExitStatus
from puller.manifest.graph.host_catalog import HostCatalog, load_together
from puller.manifest.manifest import Manifest, open_source
from puller.reporting.history import load_all_events
from puller.resources.registry import find_type
from puller.run.bundle_run import read_manifest
from puller.run.host import Host, load_inputs
from puller.state import Directories
from puller.values.foreign_text import visible, visible_json

if TYPE_CHECKING:
    from puller.manifest.graph.catalog import Catalog
    from puller.reporting.report import BundleReport, Report


# Lines of the text format. ``--format json`` has the same values.

_COLOURS = {"stable": "green", "changed": "yellow", "refreshed": "yellow", "failed": "red", "skipped": "cyan"}


def key_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about a key in one bundle: its value, and all sources, with the deciding one in colour."""
    where = f"{result['bundle']}, {result['manifest']}" if "manifest" in result else result["bundle"]
    yield _styled(f"{result['key']} in {where}: ", bold=True) + _outcome(result)
    decided = False
    for source in result["sources"]:
        is_first = source["found"] and not decided
        decided = decided or is_first
        yield visible(f"  {source['source']} {source['name']}: ") + _outcome(source, dim=not is_first)
        yield from (visible(f"    from {place}") for place in source.get("from", ()))
        yield from (_styled(f"    {text}", dim=True) for text in source.get("expressions", ()))
        yield from _used(source.get("inputs", ()), "    ")
        yield from (visible(f"    {sentence}") for sentence in source.get("hierarchy", ()))
        yield from (_styled(f"    {line}", dim=True) for line in source.get("lines", ()))


def _outcome(result: Mapping[str, Any], *, dim: bool = False) -> str:
    if "error" in result:
        return _styled(str(result["error"]), fg="red")
    if not result["found"]:
        return _styled("does not have it", dim=True) if "source" in result else "nothing has it"
    return _styled(_text(result["value"]), fg=None if dim else "green")


def resource_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about a resource in one bundle: declaration, properties, used values, and the last run."""
    yield _styled(f"{result['resource']} in {result['bundle']}", bold=True)
    yield visible(f"  declared at {', '.join([result['declared'], *result.get('also_declared', ())])}")
    if "item" in result:
        yield visible(f"  {result['item']}")
    yield from (visible(f"  applied {sentence}") for sentence in result.get("applied", ()))
    if "failure" in result:
        yield "  cannot be applied on this host: " + _styled(result["failure"], fg="red")
    else:
        yield "  properties"
        yield from (f"    {visible(name)}: {_text(value)}" for name, value in result["properties"].items())
    if result["uses"]:
        yield "  uses"
        yield from _used(result["uses"], "  ")
    if "on_record" in result:
        yield "  on record"
        yield from (visible(f"    {sentence}") for sentence in result["on_record"])
    for name in ("requires", "subscribes", "reloads_for", "refreshes", "part_of", "below"):
        yield from (visible(f"  {name.replace('_', ' ')} {reference}") for reference in result.get(name, ()))
    yield from _last_run_lines(result.get("last_run"))


def _used(uses: Iterable[Mapping[str, Any]], indent: str) -> Iterator[str]:
    for use in uses:
        yield f"{indent}  {_use(use)}"
        yield from (visible(f"{indent}    from {place}") for place in use.get("from", ()))


def _use(use: Mapping[str, Any]) -> str:
    if "whole" in use:
        return visible(f"{use['name']}: as a whole")
    return f"{visible(use['name'])}: {_text(use['value']) if 'value' in use else 'is not there'}"


def _last_run_lines(last: Mapping[str, Any] | None) -> Iterator[str]:
    if last is None:
        return
    colour = _COLOURS.get(last["state"])
    yield visible(f"  last run {last['finished']} ({last['version']}): ") + _styled(last["state"], fg=colour)
    if "held" in last:
        yield visible(f"    held: {last['held']}")
    yield from (visible(f"    {sentence}") for sentence in last.get("why", ()))


def _text(value: Any) -> str:
    return visible_json(json.dumps(value, ensure_ascii=False, default=str))


def _styled(text: str, **style: Any) -> str:
    """Return a text in colour, with escaped control characters."""
    return click.style(visible(text), **style)


@click.command()
@click.argument("subject", metavar="KEY|RESOURCE", shell_complete=resources_of_host)
@click.argument("source", required=False, shell_complete=files)
@before_option
@configuration_option("The configuration whose enforced bundles are explained.")
@text_format_option
@fact_options
@other_machine_options
@data_options
def explain(
    subject: str, source: str | None, before: tuple[str, ...], path: str, output_format: str, **options: Any
) -> int:
    """Explain the value of a data key or the state of a resource.

    For a KEY of the data, the answer is its value, and the values in each source and level of the hierarchy, highest
    first. For a RESOURCE such as file#/etc/motd, the answer is the place of its declaration, its properties with their
    data and facts, and the actions of the last run with their reasons.

    SOURCE is a manifest, a directory or a bundle file. By default, Puller reads the enforced bundles of this host and
    the site data of the last run. Secrets are masked.

    \b
      puller explain profile::web::port
      puller explain file#/etc/motd
      puller explain web.port web --fact role=db
      puller explain service#nginx shop --with base

    Exit status: 0, or 1 for an unknown key or resource.
    """
    explained = [
        {"bundle": about.title, **found}
        for about in _subjects(source, before, path, options)
        for found in _explained(subject, about)
    ]
    is_found = any(found.get("found", "resource" in found) for found in explained)
    if output_format == "json":
        click.echo(visible_json(json.dumps(explained, indent=2, ensure_ascii=False, default=str)))
    elif not explained:
        warn(f"{subject}: no bundle declares it")
    for found in explained if output_format == "text" else ():
        for line in resource_lines(found) if "resource" in found else key_lines(found):
            click.echo(line)
    return ExitStatus.OK if is_found else ExitStatus.NO


class _Subject(NamedTuple):
    """One manifest with the data of its run."""

    title: str
    manifest: Manifest
    recorder: Recorder
    catalog: Catalog
    """The catalog that contains it."""
    among: Container[int] | None = None
    """The indexes of its own resources in the catalog. ``None`` for all."""
    report: Report | None = None
    bundle: BundleReport | None = None
    state: Path | None = None
    """The state directory. ``None``: the default of this user."""


def _subjects(
    source: str | None, before: Sequence[str], path: str, options: Mapping[str, Any]
) -> Iterator[_Subject]:
    """Yield SOURCE, or each enforced bundle. Raises ``PullerError`` for an unreadable one."""
    if source is not None:
        with ExitStack() as opened:
            places = [opened.enter_context(open_source(item)) for item in (*before, source)]
            inputs = load_inputs(options)
            recorder = Recorder()
            provided = msgspec.structs.replace(inputs.for_manifest(), watch=recorder.watch)
            catalog = load_together(places, provided)
            yield _Subject(source, catalog.manifests[-1], recorder, catalog)
            inputs.warn()
        return
    if before:
        raise UsageError(
            "explain: --with requires a SOURCE. Without a SOURCE, the command covers all enforced bundles"
        )
    if has_context(options):
        raise UsageError("explain: options for facts and data require a SOURCE. A run has no such options")
    yield from _enforced(path)


def _enforced(path: str) -> Iterator[_Subject]:
    configuration = load_configuration(path)
    directories = Directories(Path(configuration.state_directory), Path(configuration.run_directory))
    inputs = Host.of(configuration).inputs_of_last_run(directories.data, lambda text, _: warn(text))
    store, report = Store(directories.bundles), _last_report(directories)
    reports = {bundle.name: bundle for bundle in report.bundles} if report else {}
    recorder, catalog, current = Recorder(), HostCatalog.of(), []
    inputs = msgspec.structs.replace(inputs, watch=recorder.watch)
    for choice in configuration.bundles:
        if (bundle := store.current(choice.name)) is None:
            warn(f"{choice.name}: nothing is enforced")
            continue
        catalog = catalog.joined(read_manifest(bundle, inputs, catalog.references()))
        current.append(bundle)
    for number, bundle in enumerate(current):
        yield _Subject(
            f"{bundle.name} {bundle.version}",
            catalog.manifests[number],
            recorder,
            catalog,
            set(catalog.resources_of(number)),
            report,
            reports.get(bundle.name),
            directories.state,
        )
    for problem in inputs.identities.problems:
        warn(text_of(problem))


def _last_report(directories: Directories) -> Report | None:
    try:
        return load_all_events(directories)
    except OSError as error:
        warn(file_problem(error, "cannot be read"))
    except ValueError as error:
        warn(f"{directories.last_run}: is not a report ({error}). The next run replaces it")
    return None


def _explained(subject: str, about: _Subject) -> Iterator[dict[str, Any]]:
    """Yield explanations of a key or resource in one bundle, or nothing for an undeclared resource."""
    kind, mark, _ = subject.partition("#")
    if not mark or find_type(kind) is None:
        yield from explain_everywhere(about.manifest, subject)
        return
    explained = list(explain_resource(about.catalog, subject, about.recorder, about.state, among=about.among))
    # A resource that it shares with a preceding bundle is explained with that bundle.
    if not explained and not any(subject in map(str, d.names()) for d in about.manifest.declarations):
        known = [str(declaration.reference) for declaration in about.manifest.declarations]
        warn(f"{about.title}: {subject} is not declared{did_you_mean(subject, known)}")
    yield from ({**found, **_last_run(found, about)} for found in explained)


def _last_run(result: Mapping[str, Any], about: _Subject) -> dict[str, Any]:
    """Return the result of the last run for a resource, and the reason."""
    if about.report is None or about.bundle is None:
        return {}
    last: dict[str, Any] = {"finished": about.report.finished, "version": about.bundle.version}
    if about.bundle.held:
        last["held"] = about.bundle.held
    desired = (result["resource"], result.get("applied", []))
    event = next((one for one in about.bundle.events if (one.reference, one.applied) == desired), None)
    if event is None:
        return {
            "last_run": {**last, "state": "not in that run", "why": _why_absent(about.report, about.bundle)}
        }
    return {"last_run": {**last, "state": str(event.state), "why": why(event)}}


def _why_absent(report: Report, bundle: BundleReport) -> list[str]:
    """Return why a run has no event for a declared resource, if the report says so."""
    if report.paused:
        return [f"nothing was applied: {report.paused}"]
    if bundle.outcome != "applied":
        return [bundle.outcome] if bundle.outcome else []
    return [f"the run was limited by --only {' --only '.join(report.only)}"] if report.only else []
