"""``packaging/release`` gives the same bytes on every day, and ``packaging/verify-release`` accepts no other byte."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
VERSION = "999.0.0"
DATE = "2031-02-03"
MAINTAINERS = (ROOT / "MAINTAINERS.md").read_text()


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def git(clone: Path, *words: str | Path) -> str:
    done = run("git", "-C", clone, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def steps() -> Any:
    sys.path.insert(0, str(ROOT / "packaging"))
    try:
        from steps import release_files
    finally:
        sys.path.remove(str(ROOT / "packaging"))
    return release_files


@pytest.mark.parametrize("text", ["1.0", "1.0.0.1", "v1.0.0", "1.0.0rc1", "1.0.0\n", "", "../1.0.0"])
def test_versions_of_another_form_are_refused(steps: Any, text: str) -> None:
    with pytest.raises(steps.BuildFailed, match="three numbers"):
        steps.parse_version(text)


def test_release_notes_are_one_section_of_the_changelog(steps: Any) -> None:
    text = "# Changelog\n\n## 1.10.0 - 2030-01-01\n\n### Added\n\n* A.\n\n## 1.1.0 - 2029-01-01\n\n### Fixed\n\n* B.\n"
    assert steps.section_of(text, "1.10.0") == "### Added\n\n* A.\n"
    assert steps.section_of(text, "1.1.0") == "### Fixed\n\n* B.\n"
    with pytest.raises(steps.BuildFailed, match=r"1\.0\.0"):
        steps.section_of(text, "1.0.0")


@pytest.mark.parametrize(
    "text",
    ["", "abc  a\n", f"{'0' * 64}  ../a\n", f"{'0' * 64}  .a\n", f"{'0' * 64} a\n", f"{'0' * 64}  a\n" * 2],
)
def test_unclear_lists_of_hashes_are_refused(steps: Any, text: str) -> None:
    with pytest.raises(steps.BuildFailed, match="SHA256SUMS"):
        steps.parse_sums(text)


def test_version_has_one_place(steps: Any) -> None:
    text = (ROOT / "puller/version.py").read_text()
    changed = steps.with_version(text, VERSION)
    assert steps.version_in(changed) == VERSION
    assert steps.with_version(changed, steps.version_in(text)) == text
    version = re.escape(steps.version_in(text))
    pages = [ROOT / "README.md", ROOT / "Dockerfile", ROOT / "pyproject.toml", *(ROOT / "docs").glob("*.md")]
    named = [path.name for path in pages if re.search(rf"puller[_-](agent-)?{version}\b", path.read_text())]
    assert named == []


def test_documented_options_exist() -> None:
    for name in ("release", "verify-release"):
        done = run(ROOT / "packaging" / name, "--help")
        assert done.returncode == 0, done.stderr
        commands = re.findall(rf"packaging/{name}( .*)$", MAINTAINERS, re.MULTILINE)
        assert commands
        for option in re.findall(r"--[a-z-]+", " ".join(commands)):
            assert option in done.stdout, option


class Place:
    """Clones of this repository that are ready for a release, with a signing key and shared build tools."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = directory / "key"
        keygen = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "maintainer", "-f", self.key)
        assert run(*keygen).returncode == 0
        public = (directory / "key.pub").read_text()
        self.signers = directory / "signers"
        line = re.findall(r"`maintainer@example\.com (namespaces=\S+) ssh-ed25519 AAAA…`", MAINTAINERS)
        self.signers.write_text(f"m@example.com {line[0]} {public}")
        self.source = self._clone(ROOT, "source")
        for path in ("packaging", "changes"):
            shutil.copytree(
                ROOT / path,
                self.source / path,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        for name in ("tests/cases/formats", "tests/cases/formats/root"):
            record = max((ROOT / name).glob("*.tar.xz"))
            shutil.copy(record, self.source / name / f"{VERSION}.tar.xz")
        (self.source / "changes/a-change.added.md").write_text("Add a change.\n")
        git(self.source, "add", "--all")
        git(self.source, "commit", "--quiet", "--message", "Prepare a release")

    def _clone(self, source: Path, name: str) -> Path:
        clone = self.directory / name
        git(self.directory, "-c", "safe.directory=*", "clone", "--quiet", source, clone)
        git(clone, "checkout", "--quiet", "-B", "main")
        for setting, value in (("user.name", "A"), ("user.email", "a@example.com")):
            git(clone, "config", setting, value)
        return clone

    def clone(self, name: str) -> Path:
        clone = self._clone(self.source, name)
        (clone / ".venv").mkdir()
        (clone / ".venv/bin").symlink_to(Path(sys.prefix) / "bin")
        return clone

    def release(self, clone: Path, *words: str | Path, later: str = "") -> subprocess.CompletedProcess[str]:
        command = [
            *(("faketime", later) if later else ()),
            sys.executable,
            clone / "packaging/release",
            VERSION,
        ]
        fixed = (
            "--key",
            self.key,
            "--without-packages",
            "--tools",
            os.path.relpath(self.directory / "tools"),
        )
        return run(*command, *fixed, *words)

    def verify(self, clone: Path, release: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
        fixed = ("--without-packages", "--tools", os.path.relpath(self.directory / "tools"))
        signers = words or ("--signers", self.signers)
        return run(sys.executable, clone / "packaging/verify-release", release, *fixed, *signers)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def released(place: Place) -> Path:
    """Return a clone after its release."""
    clone = place.clone("first")
    done = place.release(clone, "--date", DATE, "--skip-checks")
    assert done.returncode == 0, done.stderr
    return clone


def files_in(clone: Path) -> dict[str, bytes]:
    directory = clone / f"dist/release-{VERSION}"
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.clones
def test_release_commits_tags_and_builds(place: Place, released: Path) -> None:
    assert git(released, "status", "--porcelain") == ""
    assert (
        git(released, "log", "-1", "--format=%s %cs", f"v{VERSION}^{{commit}}") == f"Release {VERSION} {DATE}"
    )
    assert f'__version__ = "{VERSION}"' in (released / "puller/version.py").read_text()
    assert f"## {VERSION} - {DATE}\n" in (released / "CHANGELOG.md").read_text()
    assert [path.name for path in (released / "changes").iterdir()] == ["template.md"]
    (command,) = re.findall("^    git (-c .* verify-tag) v1.0.0$", MAINTAINERS, re.MULTILINE)
    git(released, *command.replace("=signers", f"={place.signers}").split(), f"v{VERSION}")
    files = files_in(released)
    start = f"puller_agent-{VERSION}"
    names = {f"{start}-py3-none-any.whl", f"{start}.tar.gz", f"{start}.cdx.json", "release-notes.md"}
    assert files.keys() == names | {"SHA256SUMS", "SHA256SUMS.sig"}
    assert b"* Add a change." in files["release-notes.md"]
    output = released / f"dist/release-{VERSION}"
    assert run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=output).returncode == 0
    with zipfile.ZipFile(output / f"{start}-py3-none-any.whl") as wheel:
        assert f"Version: {VERSION}\n" in wheel.read(f"{start}.dist-info/METADATA").decode()
    with tarfile.open(output / f"{start}.tar.gz") as source:
        assert {f"{start}/puller/version.py", f"{start}/packaging/release"} <= set(source.getnames())
    tools = Path(sys.prefix) / "bin"
    assert run(tools / "twine", "check", "--strict", *output.glob("puller_agent-*[lz]")).returncode == 0
    done = run(tools / "check-wheel-contents", output / f"{start}-py3-none-any.whl", cwd=released)
    assert done.returncode == 0, done.stdout


@pytest.mark.clones
@pytest.mark.skipif(not shutil.which("faketime"), reason="needs faketime (Debian: apt-get install faketime)")
@pytest.mark.thorough
def test_release_on_another_day_has_the_same_bytes(place: Place, released: Path) -> None:
    before = files_in(released)
    again = place.release(released, later="+2 days")
    assert again.returncode == 0, again.stderr
    assert files_in(released) == before

    other = place.clone("second")
    done = place.release(other, "--date", DATE, "--skip-checks", later="+9 days")
    assert done.returncode == 0, done.stderr
    assert files_in(other) == before
    assert git(other, "rev-parse", f"v{VERSION}") == git(released, "rev-parse", f"v{VERSION}")


@pytest.mark.clones
def test_stranger_accepts_the_release_of_the_source(place: Place, released: Path) -> None:
    done = place.verify(released, released / f"dist/release-{VERSION}")
    assert done.returncode == 0, done.stderr
    assert "Good" in done.stdout
    assert f"puller_agent-{VERSION}.tar.gz: as built from v{VERSION}" in done.stdout


def changed_byte(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.clones
def test_changed_byte_of_any_file_is_refused(place: Place, released: Path, tmp_path: Path) -> None:
    for name in files_in(released):
        copy = tmp_path / name
        shutil.copytree(released / f"dist/release-{VERSION}", copy)
        (copy / name).write_bytes(changed_byte((copy / name).read_bytes()))
        done = place.verify(released, copy)
        assert done.returncode == 1, name
        assert "Traceback" not in done.stderr
        assert name in done.stderr


PACKAGES = (
    f"puller_{VERSION}-1+deb12_amd64.deb",
    f"puller-{VERSION}-1.x86_64.rpm",
    f"puller-{VERSION}-python3.13-linux-x86_64.tar.gz",
    f"puller_{VERSION}-1+deb13_amd64.deb.cdx.json",
)


@pytest.mark.clones
@pytest.mark.parametrize("name", PACKAGES)
def test_changed_byte_of_a_package_is_refused(
    place: Place, released: Path, tmp_path: Path, steps: Any, name: str
) -> None:
    """The hashes of packages are compared without root, too. The files stand for packages that a build makes."""
    copy = shutil.copytree(released / f"dist/release-{VERSION}", tmp_path / "copy")
    (copy / name).write_bytes(b"packed")
    (copy / "SHA256SUMS").write_text(steps.format_sums(steps.hashes_of(copy)))
    (copy / "SHA256SUMS.sig").unlink()
    sign = ("ssh-keygen", "-q", "-Y", "sign", "-f", place.key, "-n", "puller-release", copy / "SHA256SUMS")
    assert run(*sign).returncode == 0
    (copy / name).write_bytes(changed_byte(b"packed"))
    done = place.verify(released, copy)
    assert done.returncode == 1
    assert f"{name}: sha256 is" in done.stderr


@pytest.mark.clones
def test_another_build_is_refused_even_with_its_hashes(
    place: Place, released: Path, tmp_path: Path, steps: Any
) -> None:
    copy = shutil.copytree(released / f"dist/release-{VERSION}", tmp_path / "copy")
    wheel = copy / f"puller_agent-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("puller/backdoor.py", "")
    (copy / "SHA256SUMS").write_text(steps.format_sums(steps.hashes_of(copy)))
    assert "SHA256SUMS.sig" in place.verify(released, copy).stderr, "the maintainers have not signed it"
    done = place.verify(released, copy, "--unsigned")
    assert done.returncode == 1
    assert f"{wheel.name}: sha256 is" in done.stderr
    for change in ("missing", "extra"):
        other = shutil.copytree(released / f"dist/release-{VERSION}", tmp_path / change)
        (other / wheel.name).unlink() if change == "missing" else (other / "more").write_text("")
        assert "SHA256SUMS" in place.verify(released, other).stderr


@pytest.mark.clones
def test_unknown_signer_and_unknown_commit_are_refused(place: Place, released: Path, tmp_path: Path) -> None:
    output = released / f"dist/release-{VERSION}"
    other = tmp_path / "signers"
    keygen = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other")
    assert run(*keygen).returncode == 0
    other.write_text(f'm@example.com namespaces="puller-release" {(tmp_path / "other.pub").read_text()}')
    assert f"the key is not in {other}" in place.verify(released, output, "--signers", other).stderr
    done = place.verify(place.clone("without-tag"), output)
    assert f"v{VERSION}: unknown in this clone" in done.stderr
    done = place.verify(released, output, "--signers", place.signers, "--commit", "HEAD~1")
    assert (done.returncode, "gives" in done.stderr or "no such file" in done.stderr) == (1, True)


@pytest.mark.clones
def test_unready_clone_is_refused_unchanged(place: Place) -> None:
    clone = place.clone("unready")
    before = git(clone, "rev-parse", "HEAD")
    (clone / "stray").write_text("")
    assert "uncommitted changes" in place.release(clone, "--skip-checks").stderr
    (clone / "stray").unlink()
    assert (
        "the branch is main, expected stable"
        in place.release(clone, "--skip-checks", "--branch", "stable").stderr
    )
    assert "the key is missing" in place.release(clone, "--skip-checks", "--key", clone / "none").stderr
    assert ".ci/check container failed" in place.release(spoiled(clone), "--check", "container").stderr
    git(clone, "reset", "--quiet", "--hard", before)

    done = place.release(clone, "--dry-run", "--date", DATE, "--skip-checks")
    assert done.returncode == 0, done.stderr
    assert "would commit" in done.stdout
    assert "* Add a change." in done.stdout
    for directory, program in (("formats", "record_formats"), ("formats/root", "record_root_formats")):
        git(clone, "rm", "--quiet", f"tests/cases/{directory}/{VERSION}.tar.xz")
        git(clone, "commit", "--quiet", "--message", "Remove")
        assert f".{program} " in place.release(clone, "--skip-checks").stderr
        git(clone, "reset", "--quiet", "--hard", before)
    fragments = [
        f"changes/{path.name}" for path in (clone / "changes").iterdir() if path.name != "template.md"
    ]
    git(clone, "rm", "--quiet", *fragments)
    git(clone, "commit", "--quiet", "--message", "Remove")
    assert "changes/ has no fragment" in place.release(clone, "--skip-checks").stderr
    git(clone, "reset", "--quiet", "--hard", before)
    assert git(clone, "status", "--porcelain") == ""
    assert f"v{VERSION}" not in git(clone, "tag").split()
    assert not os.path.lexists(clone / "dist")


def spoiled(clone: Path) -> Path:
    """Commit a Dockerfile that its linter refuses."""
    (clone / "Dockerfile").write_text("FROM debian\nRUN cd /tmp && sudo ls\n")
    git(clone, "commit", "--quiet", "--all", "--message", "Spoil")
    return clone


@pytest.mark.clones
@pytest.mark.thorough
def test_release_killed_before_its_tag_is_completed(place: Place, released: Path) -> None:
    clone = place.clone("killed")
    git(clone, "fetch", "--quiet", "--no-tags", released, "main")
    git(clone, "merge", "--quiet", "--ff-only", "FETCH_HEAD")
    assert f"v{VERSION}" not in git(clone, "tag").split()
    done = place.release(clone, "--skip-checks")
    assert done.returncode == 0, done.stderr
    assert files_in(clone) == files_in(released)
    (clone / f"dist/release-{VERSION}/release-notes.md").write_text("Others.\n")
    assert "differs from this build" in place.release(clone).stderr
