"""Command line of ``packaging/verify-release``: compare the files of a release with the source in this clone.

1. The signature of ``SHA256SUMS`` is by a key in the file of ``--signers``.
2. ``SHA256SUMS`` lists exactly the files of the directory, and their hashes are correct.
3. The tag of the version has the same files. They are built again from its commit, and compared byte by byte.

The first difference ends the command with status 1. No file of the directory is executed or unpacked.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from steps.failure import BuildFailed
from steps.release_files import (
    FORMATS,
    NAMESPACE,
    SIGNATURE,
    SUMS,
    build_distributions,
    build_packages,
    git,
    hashes_of,
    parse_sums,
    parse_version,
    prepare,
)

ROOT = Path(__file__).parents[2]

_DESCRIPTION = """\
Check a downloaded release: the signature of SHA256SUMS, the hash of each file, and a build of the same commit in this
clone, which must give the same bytes. --signers is a file for ssh-keygen with a line for each maintainer:

    maintainer@example.com namespaces="puller-release,git" ssh-ed25519 AAAA…

SECURITY.md describes where this file comes from. Never take it from the place of the release.
"""
_WHEEL = re.compile(r"puller_agent-(.+)-py3-none-any\.whl")
_PACKAGE = re.compile(r"(?:\.deb|\.rpm|linux-[a-z0-9_]+\.tar\.gz)(?:\.cdx\.json)?$")


def main() -> None:
    """Run the command line. Exits with 1 and a message if the release is not that of the source."""
    parser = argparse.ArgumentParser(
        prog="packaging/verify-release",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path, help="directory of the release")
    signing = parser.add_mutually_exclusive_group(required=True)
    signing.add_argument("--signers", type=Path, help="file with the keys of the maintainers")
    signing.add_argument("--unsigned", action="store_true", help="do not verify a signature")
    parser.add_argument("--commit", help="commit of the release (the tag of its version)")
    parser.add_argument(
        "--without-packages", action="store_true", help="do not build the packages, which needs root"
    )
    parser.add_argument("--tools", type=Path, help="keep the build tools in this directory")
    parser.add_argument("--trees", type=Path, help="keep the Debian trees in this directory")
    options = parser.parse_args()
    os.umask(0o022)
    try:
        _verify(options)
    except BuildFailed as error:
        sys.exit(f"packaging/verify-release: {error}")
    except OSError as error:
        sys.exit(
            f"packaging/verify-release: {error.filename or options.directory}: {error.strerror or error}"
        )


def _verify(options: argparse.Namespace) -> None:
    directory = options.directory
    if options.signers:
        print(f"{SUMS}: {_verify_signature(directory, options.signers)}")
    hashes = parse_sums((directory / SUMS).read_text(encoding="utf-8"))
    _verify_hashes(directory, hashes)
    print(f"{len(hashes)} files: the hashes of {SUMS}")
    versions = [match[1] for name in hashes if (match := _WHEEL.fullmatch(name))]
    if len(versions) != 1:
        raise BuildFailed(f"{SUMS}: expected one wheel of puller_agent, got {len(versions)}")
    commit = options.commit or f"v{parse_version(versions[0])}"
    built = _built_again(commit, hashes, options)
    for name, digest in sorted(hashes.items()):
        if name not in built and options.without_packages and _PACKAGE.search(name):
            print(f"{name}: not compared (--without-packages)")
        elif name not in built:
            raise BuildFailed(f"{name}: {commit} has no such file")
        elif built[name] != digest:
            raise BuildFailed(f"{name}: sha256 is {digest}, and {commit} gives {built[name]}")
        else:
            print(f"{name}: as built from {commit}")
    if missing := sorted(built.keys() - hashes.keys()):
        raise BuildFailed(f"{', '.join(missing)}: built from {commit}, and missing in the release")


def _verify_signature(directory: Path, signers: Path) -> str:
    """Return the line of ssh-keygen about the signer. Raises ``BuildFailed`` for an invalid or unknown signature."""
    signature = directory / SIGNATURE
    for path in (signature, signers):
        if not path.exists():
            raise BuildFailed(f"{path}: is missing. Without a signature, pass --unsigned")
    find = ("ssh-keygen", "-Y", "find-principals", "-f", signers, "-s", signature)
    principals = subprocess.run(find, capture_output=True, text=True, check=False, timeout=60).stdout.split()
    if not principals:
        raise BuildFailed(f"{signature}: the key is not in {signers}")
    words = ("-f", signers, "-I", principals[0], "-n", NAMESPACE, "-s", signature)
    with (directory / SUMS).open("rb") as content:
        command = ("ssh-keygen", "-Y", "verify", *words)
        done = subprocess.run(command, stdin=content, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise BuildFailed(f"{signature}: {(done.stdout + done.stderr).strip()}")
    return done.stdout.strip()


def _verify_hashes(directory: Path, expected: dict[str, str]) -> None:
    """Raise ``BuildFailed`` unless the directory has exactly these files."""
    for path in sorted(directory.iterdir()):
        if path.is_symlink() or not path.is_file():
            raise BuildFailed(f"{path}: expected a regular file")
    actual = hashes_of(directory)
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            raise BuildFailed(f"{name}: listed in {SUMS}, and missing")
        if name not in expected:
            raise BuildFailed(f"{name}: not listed in {SUMS}")
        if actual[name] != expected[name]:
            raise BuildFailed(f"{name}: sha256 is {actual[name]}, and {SUMS} has {expected[name]}")


def _built_again(commit: str, hashes: dict[str, str], options: argparse.Namespace) -> dict[str, str]:
    try:
        git(ROOT, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except BuildFailed:
        raise BuildFailed(
            f"{commit}: unknown in this clone. Run git fetch --tags, or pass --commit"
        ) from None
    with tempfile.TemporaryDirectory(prefix="puller-verify-") as scratch:
        files = Path(scratch, "files")
        files.mkdir()
        workshop = prepare(ROOT, commit, Path(scratch), options.tools)
        build_distributions(workshop, files)
        has_packages = any(_PACKAGE.search(name) for name in hashes)
        for release in FORMATS if has_packages and not options.without_packages else ():
            build_packages(workshop, release, files, options.trees)
        return hashes_of(files)
