"""The last run as metrics, in the text format that Prometheus' node exporter collects from files."""

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from bundles.filesystem.atomic import naming, remove_leftovers, replace_file
from puller.reporting.report import Report
from puller.system.safe_paths import open_safely

_HELP = {
    "puller_last_run_timestamp_seconds": "When the last run finished.",
    "puller_last_run_duration_seconds": "How long it took.",
    "puller_last_run_exit_status": "What it ended with (see the README).",
    "puller_last_run_problems": "What went wrong outside of resources.",
    "puller_last_run_applied": "0 when it was disabled or outside of the maintenance windows.",
    "puller_bundle_info": "The version of each bundle that is enforced.",
    "puller_bundle_held": "1 when something keeps this host from the version that it should run.",
    "puller_bundle_given_up": "1 when the last run gave up a new version and rolled back.",
    "puller_resources": "Resources of each bundle, by what became of them.",
}
_STATES = ("stable", "changed", "refreshed", "failed", "skipped", "would_change")


def write(report: Report, path: Path) -> None:
    """Replace the metrics file, readable by all; raises ``OSError``.

    It may lie in a directory of another user, the collector's, so links on the way are judged as for managed files:
    raises ``ResourceError``.
    """
    directory, name = os.path.split(os.path.abspath(path))
    with naming(path), open_safely(directory) as descriptor:
        remove_leftovers(descriptor)
        replace_file(descriptor, name, [text(report).encode()], mode=0o644)


def text(report: Report) -> str:
    """All metrics of a report."""
    lines: list[str] = []
    for name, samples in _samples(report).items():
        lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} gauge", *samples]
    return "\n".join(lines) + "\n"


def _samples(report: Report) -> dict[str, list[str]]:
    finished, started = (
        datetime.fromisoformat(when).timestamp() for when in (report.finished, report.started)
    )
    values = {
        "puller_last_run_timestamp_seconds": finished,
        "puller_last_run_duration_seconds": round(finished - started, 3),
        "puller_last_run_exit_status": int(report.exit_status),
        "puller_last_run_problems": len(report.problems),
        "puller_last_run_applied": int(not report.paused and not report.only),
    }
    samples = {name: [f"{name} {value}"] for name, value in values.items()}
    samples["puller_bundle_info"] = [
        f'puller_bundle_info{{bundle="{bundle.name}",version="{bundle.version}"}} 1'
        for bundle in report.bundles
        if bundle.version
    ]
    for name in ("held", "given_up"):
        samples[f"puller_bundle_{name}"] = [
            f'puller_bundle_{name}{{bundle="{bundle.name}"}} {int(bool(getattr(bundle, name)))}'
            for bundle in report.bundles
        ]
    samples["puller_resources"] = list(_counts(report))
    return samples


def _counts(report: Report) -> Iterator[str]:
    for bundle in report.bundles:
        for state in _STATES:
            labels = f'bundle="{bundle.name}",state="{state}"'
            yield f"puller_resources{{{labels}}} {getattr(bundle.summary, state)}"
