"""Command line of ``packaging/release``: version, changelog, tag and files of a release.

1. Check the clone: no uncommitted changes, the branch, a higher version, fragments in ``changes/``, and the recorded
   formats of the version. Then run the checks of ``.ci/check``.
2. Commit the version and the changelog in a temporary clone, and advance the branch in one step. A kill before that
   step leaves the clone unchanged.
3. Tag the commit. The date of commit and tag is ``--date``.
4. Build the files of the tag, and sign their hashes. They are moved to the output directory together.

A second run finds the tag, and continues with step 4. It fails if its files differ from those in the output directory.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from steps.failure import BuildFailed, run
from steps.release_files import (
    FORMATS,
    NAMESPACE,
    SIGNATURE,
    SUMS,
    build_distributions,
    build_packages,
    format_sums,
    git,
    hashes_of,
    parse_version,
    prepare,
    section_of,
    version_in,
    with_version,
)

ROOT = Path(__file__).parents[2]
CHECKS = ("format", "lint", "types", "tests", "documents", "workflows", "container")

_DESCRIPTION = """\
Make a release of Puller: version, changelog, tag, wheel, source distribution, packages, bills of materials, hashes,
signature and release notes. Nothing is uploaded. The same commit and key give the same bytes on every day. If the tag
exists, the command only builds its files.
"""


def main() -> None:
    """Run the command line. Exits with 1 and a message if the release cannot be made."""
    options = make_parser().parse_args()
    os.umask(0o022)
    try:
        _release(options)
    except BuildFailed as error:
        sys.exit(f"packaging/release: {error}")
    except OSError as error:
        sys.exit(f"packaging/release: {error.filename or 'this machine'}: {error.strerror or error}")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="packaging/release",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("version", help="three numbers: 1.0.0")
    parser.add_argument(
        "--dry-run", action="store_true", help="show the steps and the changelog, and change nothing"
    )
    parser.add_argument("--branch", default="main", help="branch of the release (main)")
    parser.add_argument("--date", type=_date, help="date of commit and tag, as 2026-11-30 (today, UTC)")
    checks = parser.add_mutually_exclusive_group()
    checks.add_argument(
        "--check", action="append", choices=CHECKS, help="run only this check of .ci/check. Repeatable"
    )
    checks.add_argument("--skip-checks", action="store_true", help="run no checks, for example after .ci/run")
    signing = parser.add_mutually_exclusive_group(required=True)
    signing.add_argument("--key", type=Path, help="SSH key (Ed25519) that signs the tag and SHA256SUMS")
    signing.add_argument("--unsigned", action="store_true", help="sign nothing")
    parser.add_argument(
        "--without-packages", action="store_true", help="build only wheel and source distribution"
    )
    parser.add_argument("--output", type=Path, help="directory of the files (dist/release-VERSION)")
    parser.add_argument("--tools", type=Path, help="keep the build tools in this directory")
    parser.add_argument("--trees", type=Path, help="keep the Debian trees in this directory")
    return parser


def _date(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)


def _report(step: str) -> None:
    print(f"packaging/release: {step}", file=sys.stderr, flush=True)


def _release(options: argparse.Namespace) -> None:
    version = parse_version(options.version)
    tag = f"v{version}"
    _verify_clone(options.branch)
    if options.key and not options.key.exists():
        raise BuildFailed(f"{options.key}: the key is missing")
    if not git(ROOT, "tag", "--list", tag):
        date = options.date or datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        current = version_in((ROOT / "puller/version.py").read_text(encoding="utf-8"))
        is_committed = git(ROOT, "log", "-1", "--format=%s") == _subject(version) and current == version
        if not is_committed:
            _verify_version(version, current)
        if options.dry_run:
            _show_plan(version, date, options, is_committed=is_committed)
            return
        if not is_committed:
            _run_checks(options)
            _commit(version, date)
        _report(f"tagging {tag}")
        _tag(tag, version, options.key)
    elif options.dry_run:
        print(f"{tag} exists: build its files")
        return
    _build(version, tag, options)


def _subject(version: str) -> str:
    return f"Release {version}"


def _verify_clone(branch: str) -> None:
    if changes := git(ROOT, "status", "--porcelain"):
        raise BuildFailed(f"the clone has uncommitted changes. Commit or discard them:\n{changes}")
    if (current := git(ROOT, "rev-parse", "--abbrev-ref", "HEAD")) != branch:
        raise BuildFailed(f"the branch is {current}, expected {branch} (--branch)")


def _verify_version(version: str, current: str) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## ([0-9.]+) - ", changelog, re.MULTILINE)
    if _numbers(version) <= max(map(_numbers, (*versions, current))):
        raise BuildFailed(f"version {version} must be higher than {max((*versions, current), key=_numbers)}")
    if not [path for path in (ROOT / "changes").iterdir() if path.name != "template.md"]:
        raise BuildFailed("changes/ has no fragment, so the changelog of the release would be empty")
    for directory, program in (("formats", "record_formats"), ("formats/root", "record_root_formats")):
        record = f"tests/cases/{directory}/{version}.tar.xz"
        if not (ROOT / record).exists():
            command = f"python -m tests.puller.formats.{program} --version {version}"
            raise BuildFailed(f"{record} is missing. Run `{command}`, and commit the file")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _show_plan(version: str, date: datetime, options: argparse.Namespace, *, is_committed: bool) -> None:
    checks = "none" if options.skip_checks else ", ".join(options.check or CHECKS)
    signer = options.key or "nobody"
    steps = (
        []
        if is_committed
        else [f"run the checks: {checks}", f"commit {_subject(version)!r} of {date:%Y-%m-%d}"]
    )
    steps += [f"tag v{version}, signed by {signer}", f"build the files in {_output(version, options)}"]
    for step in steps:
        print(f"would {step}")
    if not is_committed:
        print(_towncrier(ROOT, version, date, "--draft"), end="")


def _run_checks(options: argparse.Namespace) -> None:
    for name in () if options.skip_checks else options.check or CHECKS:
        _report(f"checking {name}")
        if subprocess.run([ROOT / ".ci/check", name], check=False, stdout=sys.stderr).returncode:
            raise BuildFailed(f".ci/check {name} failed")


def _towncrier(directory: Path, version: str, date: datetime, *words: str) -> str:
    program = ROOT / ".venv/bin/towncrier"
    if not program.exists():
        raise BuildFailed(f"{program} is missing. Run .ci/check install")
    fixed = ("--version", version, "--date", f"{date:%Y-%m-%d}")
    return run("env", f"--chdir={directory}", program, "build", *fixed, *words)


def _commit(version: str, date: datetime) -> None:
    """Commit version and changelog, step 2. Raises ``BuildFailed``."""
    _report(f"committing {_subject(version)!r}")
    with tempfile.TemporaryDirectory(prefix="puller-release-") as scratch:
        clone = Path(scratch, "clone")
        run("git", "-c", "safe.directory=*", "clone", "--quiet", ROOT, clone)
        for setting in ("user.name", "user.email"):
            if value := git(ROOT, "config", "--default", "", "--get", setting):
                git(clone, "config", setting, value)
        path = clone / "puller/version.py"
        path.write_text(with_version(path.read_text(encoding="utf-8"), version), encoding="utf-8")
        _towncrier(clone, version, date, "--yes")
        section_of((clone / "CHANGELOG.md").read_text(encoding="utf-8"), version)
        git(clone, "add", "--all")
        fixed = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"{date:%Y-%m-%dT%H:%M:%S}+00:00")
        message = ("--message", _subject(version), "--message", "Version, changelog and its fragments.")
        git(clone, "commit", "--quiet", "--no-verify", *message, environment=os.environ | fixed)
        git(ROOT, "fetch", "--quiet", clone, "HEAD")
    git(ROOT, "merge", "--quiet", "--ff-only", "FETCH_HEAD")


def _tag(tag: str, version: str, key: Path | None) -> None:
    date = git(ROOT, "log", "-1", "--format=%cI")
    signed = ("-c", "gpg.format=ssh", "-c", f"user.signingkey={key.resolve()}") if key else ()
    kind = "--sign" if key else "--annotate"
    words = ("tag", kind, "--message", f"Puller {version}", tag)
    git(ROOT, *signed, *words, environment=os.environ | {"GIT_COMMITTER_DATE": date})


def _output(version: str, options: argparse.Namespace) -> Path:
    output: Path = options.output or ROOT / f"dist/release-{version}"
    return output


def _build(version: str, tag: str, options: argparse.Namespace) -> None:
    """Build and publish the files of the tag, step 4. Raises ``BuildFailed``."""
    output = _output(version, options)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="puller-release-") as scratch:
        work, files = Path(scratch), Path(scratch, "files")
        files.mkdir()
        _report("preparing the build tools")
        workshop = prepare(ROOT, tag, work, options.tools)
        if workshop.version != version:
            raise BuildFailed(f"{tag}: puller/version.py has version {workshop.version}")
        _report("building wheel and source distribution")
        build_distributions(workshop, files)
        for release in () if options.without_packages else FORMATS:
            _report(f"building packages for {release}")
            build_packages(workshop, release, files, options.trees)
        (files / SUMS).write_text(format_sums(hashes_of(files)), encoding="utf-8")
        if options.key:
            run("ssh-keygen", "-q", "-Y", "sign", "-f", options.key, "-n", NAMESPACE, files / SUMS)
        _publish(files, output)
    for path in sorted(output.iterdir()):
        print(path.name)


def _publish(files: Path, output: Path) -> None:
    """Move the files to the output directory in one step. Raises ``BuildFailed`` if it has other files."""
    if output.exists():
        _verify_equal(files, output)
    unfinished = output.with_name(f".{output.name}.unfinished")
    run("rm", "-rf", unfinished)
    run("cp", "--recursive", files, unfinished)
    if output.exists():
        for path in sorted(unfinished.iterdir()):
            if not (output / path.name).exists():
                path.rename(output / path.name)  # a signature that the first run did not make
        run("rm", "-rf", unfinished)
    else:
        unfinished.rename(output)


def _verify_equal(files: Path, output: Path) -> None:
    for path in sorted(output.iterdir()):
        built = files / path.name
        if path.name == SIGNATURE and not built.exists():
            continue  # --unsigned repeats a signed release
        if not built.exists():
            raise BuildFailed(f"{path}: this build has no such file. Remove it, or choose another --output")
        if built.read_bytes() != path.read_bytes():
            raise BuildFailed(
                f"{path} differs from this build. Remove the directory, or choose another --output"
            )
