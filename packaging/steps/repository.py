"""A signed apt repository and yum repository as static files, from built packages.

  DIRECTORY/apt/pool/bookworm/*.deb               packages, by the release in their version (+deb12)
  DIRECTORY/apt/dists/bookworm/InRelease          signed digests of the lists of packages
  DIRECTORY/yum/*.rpm, repodata/repomd.xml.asc    packages, and the signature of their metadata
  DIRECTORY/bookworm.sources, puller.repo         configuration of apt and dnf, with URL and public keys
  DIRECTORY/puller.asc                            public keys

* The signed metadata contain the SHA-256 of each package, so the packages keep the bytes of the build.
* A published package never changes. To remove a package, an operator deletes its file and runs the script.
* Clients may read at any moment: packages first, lists under the name of their digest, and the signed file last. Lists
  of the previous state remain.
* A run without a change writes nothing: the state without dates is compared with the published state.
"""

import argparse
import gzip
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from steps.debian_tree import RELEASES
from steps.failure import BuildFailed, run

_DESCRIPTION = """\
Add built packages to a signed apt repository and a signed yum repository: static files for any web server.
Without packages, the command describes the packages that are in the repositories, for example after you deleted one.
A second run changes nothing. Needs apt-utils, createrepo-c, gpg and rpm.
"""
_RELEASE = re.compile(r"\+deb(\d+)_")
_DATE = re.compile(rb"(?m)^Date: .*\n")

_SOURCES = """\
Types: deb
URIs: {url}/apt
Suites: {codename}
Components: main
Signed-By:
{keys}"""

_REPO = """\
[puller]
name=Puller
baseurl={url}/yum
enabled=1
repo_gpgcheck=1
gpgcheck=0
gpgkey={url}/puller.asc
"""


def main() -> None:
    """Run the command line. Exits with 1 and a message if a repository cannot be made."""
    parser = argparse.ArgumentParser(
        prog="packaging/repository",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path, help="directory of both repositories, made if it is missing")
    parser.add_argument("packages", type=Path, nargs="*", help="files *.deb and *.rpm to add")
    parser.add_argument("--url", required=True, help="address of the directory on the web server")
    parser.add_argument(
        "--key",
        action="append",
        required=True,
        help="fingerprint of a signing key of gpg. Repeat it to rotate keys",
    )
    options = parser.parse_intermixed_args()  # options may be between the packages
    os.umask(0o022)
    try:
        Repository(options.directory, options.url.rstrip("/"), Keys(options.key)).update(options.packages)
    except BuildFailed as error:
        sys.exit(f"packaging/repository: {error}")
    except OSError as error:
        sys.exit(f"packaging/repository: {error.filename or options.directory}: {error.strerror or error}")


@dataclass(frozen=True)
class Keys:
    """Signing keys in the key ring of gpg, the oldest first. Each file is signed with all of them."""

    fingerprints: list[str]

    def public(self) -> str:
        """Return the public keys as text. Raises ``BuildFailed`` for a key without a secret part."""
        for fingerprint in self.fingerprints:
            run("gpg", "--batch", "--list-secret-keys", fingerprint)
        return run("gpg", "--batch", "--armor", "--no-emit-version", "--export", *self.fingerprints)

    def sign(self, path: Path, *options: str) -> bytes:
        """Return the signature of a file, or the signed file with ``--clear-sign``. Raises ``BuildFailed``."""
        users = (f"--local-user={fingerprint}!" for fingerprint in self.fingerprints)
        with tempfile.TemporaryDirectory() as scratch:
            output = Path(scratch, "signed")
            run("gpg", "--batch", "--armor", *_fixed_time(), *users, *options, "--output", output, path)
            return output.read_bytes()

    def have_signed(self, signature: Path, content: Path | None = None) -> bool:
        """Return whether exactly these keys have signed a file."""
        files = [str(path) for path in (signature, content) if path]
        if not all(Path(path).exists() for path in files):
            return False
        command = ["gpg", "--batch", "--status-fd=1", "--verify", *files]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        signers = set(re.findall(r"^\[GNUPG:\] VALIDSIG (\w+)", done.stdout, re.MULTILINE))
        expected = {fingerprint.replace(" ", "").upper() for fingerprint in self.fingerprints}
        return done.returncode == 0 and signers == expected


def _fixed_time() -> list[str]:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return [f"--faked-system-time={epoch}!"] if epoch else []


class Repository:
    """Both repositories in a directory."""

    def __init__(self, directory: Path, url: str, keys: Keys) -> None:
        self.directory = directory
        self.url = url
        self.keys = keys

    def update(self, packages: list[Path]) -> None:
        """Add packages, and describe all packages. Raises ``BuildFailed`` before the first change if one is invalid."""
        public = self.keys.public()
        targets = [(package, self._place(package)) for package in packages]
        for package, target in targets:
            if target.exists() and target.read_bytes() != package.read_bytes():
                raise BuildFailed(f"{package}: another file with this name is published. Build a new version")
        for package, target in targets:
            self._write(target, package.read_bytes())
        for codename in RELEASES:
            if (self.directory / "apt/pool" / codename).exists():
                self._describe_release(codename)
                lines = "".join(f" {line or '.'}\n" for line in public.splitlines())
                text = _SOURCES.format(url=self.url, codename=codename, keys=lines)
                self._write(self.directory / f"{codename}.sources", text.encode())
        if (self.directory / "yum").exists():
            self._describe_rpms()
            self._write(self.directory / "puller.repo", _REPO.format(url=self.url).encode())
        self._write(self.directory / "puller.asc", public.encode())

    def _place(self, package: Path) -> Path:
        if package.suffix == ".rpm":
            return self.directory / "yum" / package.name
        number = _RELEASE.search(package.name)
        for release in RELEASES.values():
            if package.suffix == ".deb" and number and int(number[1]) == release.number:
                return self.directory / "apt/pool" / release.codename / package.name
        raise BuildFailed(f"{package}: must be a .rpm, or a .deb for a release of Debian (+deb12, +deb13)")

    def _write(self, path: Path, content: bytes) -> None:
        """Write a file atomically and report it. Does nothing if it has this content."""
        if path.exists() and path.read_bytes() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.unfinished")
        unfinished.write_bytes(content)
        unfinished.replace(path)
        print(path.relative_to(self.directory), flush=True)

    def _describe_release(self, codename: str) -> None:
        """Write the lists of an apt repository, and sign their digests."""
        root, lists = self.directory / "apt", self.directory / "apt/dists" / codename
        packages = _in_directory(root, "apt-ftparchive", "packages", f"pool/{codename}")
        architectures = sorted(set(re.findall(r"(?m)^Architecture: (\S+)$", packages)) - {"all"})
        files: dict[str, bytes] = {}
        for architecture in architectures:
            path = f"main/binary-{architecture}/Packages"
            text = _of_architecture(packages, architecture).encode()
            files |= {path: text, f"{path}.gz": gzip.compress(text, mtime=0)}
        release = _release(codename, architectures, files)
        published = lists / "InRelease"
        previous = published.read_bytes() if published.exists() else b""
        if self.keys.have_signed(published) and _DATE.sub(b"", release) in _DATE.sub(b"", previous):
            return
        digests = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
        for path, content in files.items():
            self._write(lists / Path(path).parent / "by-hash/SHA256" / digests[path], content)
            self._write(lists / path, content)
        with tempfile.TemporaryDirectory() as scratch:
            plain = Path(scratch, "Release")
            plain.write_bytes(release)
            detached = self.keys.sign(plain, "--detach-sign")
            signed = self.keys.sign(plain, "--clear-sign")
        self._write(lists / "Release.gpg", detached)
        self._write(lists / "Release", release)
        self._write(published, signed)
        for old in lists.glob("main/*/by-hash/SHA256/*"):
            if old.name not in digests.values() and old.name.encode() not in previous:
                old.unlink()

    def _describe_rpms(self) -> None:
        """Write the metadata of the yum repository, which depend only on the packages, and sign them."""
        root, published = self.directory / "yum", self.directory / "yum/repodata"
        times = [_build_time(path) for path in sorted(root.glob("*.rpm"))]
        for path, built in zip(sorted(root.glob("*.rpm")), times, strict=True):
            os.utime(path, (built, built))
        with tempfile.TemporaryDirectory() as scratch:
            fixed = (
                f"--revision={max(times, default=0)}",
                "--set-timestamp-to-revision",
                "--no-database",
                "--workers=1",
            )
            run("createrepo_c", "--quiet", *fixed, "--outputdir", scratch, root)
            made = {path.name: path.read_bytes() for path in Path(scratch, "repodata").iterdir()}
        index, signature = published / "repomd.xml", published / "repomd.xml.asc"
        previous = index.read_bytes() if index.exists() else b""
        if previous == made["repomd.xml"] and self.keys.have_signed(signature, index):
            return
        for name in sorted(made.keys() - {"repomd.xml"}):
            self._write(published / name, made[name])
        unsigned = published / ".repomd.xml.new"
        unsigned.write_bytes(made["repomd.xml"])
        signed = self.keys.sign(unsigned, "--detach-sign")
        unsigned.unlink()
        self._write(signature, signed)
        self._write(index, made["repomd.xml"])
        for old in published.iterdir():
            if old.name not in made and old != signature and old.name.encode() not in previous:
                old.unlink()


def _in_directory(directory: Path, *command: str) -> str:
    return run("env", f"--chdir={directory}", "LC_ALL=C", *command)


def _of_architecture(packages: str, architecture: str) -> str:
    paragraphs = packages.strip().split("\n\n")
    own = (f"Architecture: {architecture}\n", "Architecture: all\n")
    return "".join(f"{text}\n\n" for text in sorted(paragraphs) if any(line in f"{text}\n" for line in own))


def _release(codename: str, architectures: list[str], files: dict[str, bytes]) -> bytes:
    """Return the file Release with the current date, or that of SOURCE_DATE_EPOCH. Apt rejects an older date."""
    date = formatdate(float(os.environ.get("SOURCE_DATE_EPOCH", time.time())), usegmt=True)
    return "\n".join(_release_lines(codename, architectures, files, date)).encode()


def _release_lines(
    codename: str, architectures: list[str], files: dict[str, bytes], date: str
) -> Iterator[str]:
    yield "Origin: Puller"
    yield "Label: Puller"
    yield f"Suite: {codename}"
    yield f"Codename: {codename}"
    yield f"Date: {date.replace('GMT', 'UTC')}"
    yield "Acquire-By-Hash: yes"
    yield f"Architectures: {' '.join(architectures)}"
    yield "Components: main"
    yield "SHA256:"
    for path, content in sorted(files.items()):
        yield f" {hashlib.sha256(content).hexdigest()} {len(content)} {path}"
    yield ""


def _build_time(package: Path) -> int:
    return int(run("rpm", "--query", "--queryformat=%{BUILDTIME}", "--package", package))
