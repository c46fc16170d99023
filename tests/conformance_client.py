#!/usr/bin/env python3
"""Client of `puller run` with the interface that the public conformance suite of TUF calls.

The suite is https://github.com/theupdateframework/tuf-conformance. This client implements the protocol of its file
CLIENT-CLI.md with Puller's own code: `bundles.client.updater.Workflow` updates the metadata,
`bundles.client.trust.TrustDirectory` stores them, `bundles.transport.web.WebMirror` downloads them, and
`bundles.client.targets.fetch_target` downloads targets.

    python tests/conformance_client.py --metadata-dir DIR init TRUSTED_ROOT
    python tests/conformance_client.py --metadata-dir DIR --metadata-url URL refresh
    python tests/conformance_client.py --metadata-dir DIR --metadata-url URL \\
        --target-name NAME --target-base-url URL --target-dir DIR download

The exit status is 0, or 1 with a message on standard error. The time is the system's: to test another time, the suite
runs the client under `faketime`.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from tuf.api.exceptions import DownloadError, RepositoryError
from tuf.api.metadata import TargetFile

from bundles.client.targets import fetch_target
from bundles.client.trust import Anchor, TrustDirectory
from bundles.client.updater import Workflow, verdict
from bundles.errors import BundleError, FormatError
from bundles.format.tuf import hashed_path
from bundles.transport.mirror import open_mirrors

ANCHOR = "anchor"
"""Does not match ``*.json``: the suite reads each such file as trusted metadata."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    provided = _parser().parse_args(arguments)
    try:
        provided.command(provided)
    except (BundleError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def init(given: argparse.Namespace) -> None:
    """Store a root as trusted."""
    shutil.copyfile(given.trusted_root, given.metadata_dir / ANCHOR)
    Anchor.load(given.metadata_dir / ANCHOR)
    # The suite looks for the root here. The first refresh replaces this link by one to the newest root.
    shutil.copyfile(given.trusted_root, given.metadata_dir / "root.json")


def refresh(given: argparse.Namespace) -> Workflow:
    """Update the metadata and return the trusted ones."""
    notes: list[str] = []
    store = TrustDirectory(given.metadata_dir, notes, _now)
    anchor = Anchor.load(given.metadata_dir / ANCHOR)
    store.prepare(anchor)
    (mirror,) = open_mirrors([given.metadata_url])
    workflow = Workflow(store, anchor, mirror, _now(), directory="")
    try:
        workflow.refresh()
    except (RepositoryError, DownloadError) as error:
        raise verdict(error, workflow) from error
    finally:
        print(*notes, sep="\n", file=sys.stderr)
    return workflow


def download(given: argparse.Namespace) -> None:
    """Update the metadata, then download a target unless it exists already."""
    workflow = refresh(given)
    info = _find(given.target_name, workflow)
    (mirror,) = open_mirrors([given.target_base_url])
    path = hashed_path(info) if workflow.trusted.root.consistent_snapshot else info.path
    fetch_target(mirror, info, path, given.target_dir / quote(given.target_name, safe=""))


def _find(name: str, workflow: Workflow) -> TargetFile:
    try:
        info = workflow.get_targetinfo(name)
    except (RepositoryError, DownloadError) as error:
        raise verdict(error, workflow) from error
    if info is None:
        raise FormatError(name, "is not published")
    return info


def _now() -> datetime:
    return datetime.now(UTC)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Puller's TUF client, for the conformance suite of TUF.")
    parser.add_argument("--metadata-dir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--metadata-url", metavar="URL")
    parser.add_argument("--target-name", metavar="NAME")
    parser.add_argument("--target-base-url", metavar="URL")
    parser.add_argument("--target-dir", type=Path, metavar="DIR")
    commands = parser.add_subparsers(required=True)
    initial = commands.add_parser("init", help="trust a root")
    initial.add_argument("trusted_root", type=Path)
    initial.set_defaults(command=init)
    commands.add_parser("refresh", help="update the metadata").set_defaults(command=refresh)
    commands.add_parser("download", help="update, and fetch a target").set_defaults(command=download)
    return parser


if __name__ == "__main__":
    sys.exit(main())
