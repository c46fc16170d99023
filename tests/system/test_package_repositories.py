"""The repositories of ``packaging/repository``: signed and stable. Apt installs, upgrades and downgrades from them."""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machines import copied, run_checked, run_in
from tests.support.object_store import served_store
from tests.system.test_agent_packages import NEXT, ROOT, Releases, packed_again, releases, version

pytestmark = [pytest.mark.packages, pytest.mark.root]
__all__ = ["releases"]  # a fixture

URL = "http://packages.example.com"
MANIFEST = """\
resources:
  - file:
      - /etc/made: {content: "made\\n", owner: root, group: root, mode: "0644"}
"""


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Fingerprint of a signing key in a key ring of its own."""
    return make_key(tmp_path, monkeypatch, "first")


def make_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("GNUPGHOME", str(home))
    person = f"{name} <{name}@example.com>"
    words = ("--batch", "--passphrase", "", "--quick-generate-key", person, "ed25519", "sign", "2y")
    run_checked("gpg", *words)
    listed = run_checked("gpg", "--batch", "--with-colons", "--list-secret-keys", name).stdout
    (fingerprint,) = re.findall(r"^fpr:+(\w+):", listed, re.MULTILINE)
    return str(fingerprint)


def repository(directory: Path, *words: str | Path, url: str = URL) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "packaging/repository", directory, "--url", url, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def small_package(directory: Path, number: str) -> Path:
    """Return a package of Debian 12 with a control file only."""
    root = directory / f"root-{number}"
    (root / "DEBIAN").mkdir(parents=True)
    lines = f"Package: puller\nVersion: {number}-1+deb12\nArchitecture: amd64\nMaintainer: a <a@b.c>\n"
    (root / "DEBIAN/control").write_text(f"{lines}Description: small\n")
    package = directory / f"puller_{number}-1+deb12_amd64.deb"
    run_checked("dpkg-deb", "--root-owner-group", "--build", root, package)
    return package


def contents(directory: Path) -> dict[str, bytes]:
    paths = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_second_run_changes_nothing_and_versions_stay(tmp_path: Path, key: str) -> None:
    first, following = small_package(tmp_path, "1.0"), small_package(tmp_path, "1.1")
    www = tmp_path / "www"
    assert repository(www, first, "--key", key).returncode == 0
    before = contents(www)
    assert repository(www, first, "--key", key).stdout == ""
    assert repository(www, "--key", key).stdout == ""
    assert contents(www) == before

    assert repository(www, following, "--key", key).returncode == 0
    lists = (www / "apt/dists/bookworm/main/binary-amd64/Packages").read_text()
    assert re.findall(r"^Version: (.*)$", lists, re.MULTILINE) == ["1.0-1+deb12", "1.1-1+deb12"]
    by_hash = {path for path in before if "by-hash" in path}
    assert by_hash <= set(contents(www)), "clients with the previous InRelease still find its lists"

    (www / "apt/pool/bookworm" / first.name).unlink()
    assert repository(www, "--key", key).returncode == 0
    assert "1.0-1" not in (www / "apt/dists/bookworm/main/binary-amd64/Packages").read_text()


def test_same_date_and_key_give_the_same_bytes(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = small_package(tmp_path, "1.0")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1810000000")
    for name in ("a", "b"):
        assert repository(tmp_path / name, package, "--key", key).returncode == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_published_package_and_unknown_key_are_refused(tmp_path: Path, key: str) -> None:
    package, www = small_package(tmp_path, "1.0"), tmp_path / "www"
    assert repository(www, package, "--key", key).returncode == 0
    before = contents(www)
    package.write_bytes(package.read_bytes() + b"\n")
    done = repository(www, package, "--key", key)
    assert (done.returncode, "another file with this name is published" in done.stderr) == (1, True)
    done = repository(www, "--key", "0" * 40)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (tmp_path / "other.deb").write_bytes(b"")
    assert "must be a .rpm" in repository(www, tmp_path / "other.deb", "--key", key).stderr
    assert contents(www) == before


def test_rotation_signs_with_both_keys(tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    www = tmp_path / "www"
    repository(www, small_package(tmp_path, "1.0"), "--key", key)
    old = (www / "puller.asc").read_bytes()
    following = make_key(tmp_path, monkeypatch, "second")
    assert "InRelease" in repository(www, "--key", key, "--key", following).stdout
    ring = tmp_path / "old.gpg"
    subprocess.run(["gpg", "--dearmor", "--output", ring], input=old, check=True)
    done = subprocess.run(
        ["gpgv", "--keyring", ring, www / "apt/dists/bookworm/InRelease"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Good signature" in done.stderr, "hosts with the old key accept the repository"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory and its URL on a web server of this machine."""
    root = tmp_path / "www"
    root.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(root))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield root, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


SMALL_RPM = """\
Name: puller
Version: 1.0
Release: 1
Summary: small
License: none
BuildArch: noarch
%description
small
%files
"""


def small_rpm(directory: Path) -> Path:
    specification = directory / "puller.spec"
    specification.write_text(SMALL_RPM)
    run_checked("rpmbuild", "-bb", "--quiet", f"--define=_topdir {directory}/rpmbuild", specification)
    (package,) = (directory / "rpmbuild").rglob("*.rpm")
    return package


def test_dnf_accepts_only_signed_metadata(served: tuple[Path, str], key: str, tmp_path: Path) -> None:
    www, url = served
    package = small_rpm(tmp_path)
    assert repository(www, package, "--key", key, url=url).returncode == 0
    before = contents(www)
    assert repository(www, package, "--key", key, url=url).stdout == ""
    assert contents(www) == before
    repositories = tmp_path / "repos"
    repositories.mkdir()
    shutil.copy(www / "puller.repo", repositories)

    def ask(root: str) -> str:
        options = (f"--installroot={tmp_path / root}", f"--setopt=reposdir={repositories}", "--releasever=9")
        command = ["dnf", "--assumeyes", "--quiet", *options, "repoquery", "puller"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout

    assert "puller-0:1.0-1.noarch" in ask("first")
    index = www / "yum/repodata/repomd.xml"
    index.write_bytes(index.read_bytes().replace(b"<revision>", b"<revision>1"))
    assert "puller-0:1.0-1.noarch" not in ask("second")


def shell(root: Path, command: str, status: int = 0) -> str:
    script = f'export PULLER_PASSPHRASE=correct-horse; cd /srv; exec 2>&1; {command}; echo "status $?"'
    output, _, ended = run_in(root, "bash", "-c", script).rstrip("\n").rpartition("status ")
    assert ended == str(status), output
    return output


@pytest.mark.parametrize("codename", ["bookworm", pytest.param("trixie", marks=pytest.mark.thorough)])
@pytest.mark.filterwarnings("ignore")  # warnings of boto3 and moto
def test_apt_installs_upgrades_and_downgrades_with_state(
    codename: str, releases: Releases, served: tuple[Path, str], key: str, tmp_path: Path
) -> None:
    built, (www, url) = releases[codename], served
    number = next(iter(built.first.glob("puller_*.deb"))).name.split("_")[1]
    following = packed_again(built.package(built.first, ".deb"), tmp_path, NEXT)
    packages = [*built.first.glob("*.deb"), following]
    done = repository(www, *packages, "--key", key, url=url)
    assert done.returncode == 0, done.stderr
    with copied(built.bare) as root:
        shutil.copy(www / f"{codename}.sources", root / "etc/apt/sources.list.d/puller.sources")
        shell(root, "apt-get update -q")
        shell(root, f"apt-get install -qy --no-install-recommends puller={number}")
        assert version() in shell(root, "puller --version")

        if list(built.first.glob("puller-fleet_*.deb")):  # of Debian 12, and with --thorough of Debian 13
            assert_libraries_come_with_packages(root, codename)

        shell(root, "puller site init site && mkdir -p /etc/puller web && cp site/root.json /etc/puller")
        (root / "srv/web/manifest.yaml").write_text(MANIFEST)
        (root / "etc/puller/config.yaml").write_text("site: /srv/site/public\nbundles: [{name: web}]\n")
        shell(root, "puller site publish site web --version 1.0.0 && puller run")
        shell(root, "apt-get install -qy --no-install-recommends puller")
        assert NEXT in shell(root, "puller --version")
        assert "in sync" in shell(root, "puller run && puller status")
        shell(root, f"apt-get install -qy --allow-downgrades --no-install-recommends puller={number}")
        assert version() in shell(root, "puller --version")
        assert "in sync" in shell(root, "puller run && puller status")

        lists = www / f"apt/dists/{codename}/InRelease"
        lists.write_bytes(lists.read_bytes().replace(b"Origin: Puller", b"Origin: Mallory"))
        shell(root, "rm -r /var/lib/apt/lists; apt-get update -q --error-on=any", status=100)


def assert_libraries_come_with_packages(root: Path, bucket: str) -> None:
    """The error of a missing library prints the command that installs it."""
    (root / "srv/reports").mkdir()
    command = "puller fleet import reports --store fleet.db"
    assert "Run: apt install puller-fleet" in shell(root, command, status=64)
    shell(root, "apt-get install -qy --no-install-recommends puller-fleet")
    shell(root, f"{command} && puller fleet page --store fleet.db --to pages && test -e pages/index.html")
    assert "puller-fleet" in shell(root, "ls /usr/lib")
    push = f"puller site init s && puller site push s s3://{bucket}/site"
    missing = shell(root, f"{push} || true")
    assert "Run: apt install puller-s3" in missing
    shell(root, "apt-get install -qy --no-install-recommends puller-s3")
    account = "AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_DEFAULT_REGION=us-east-1"
    with served_store(root / "srv", bucket) as client:
        address = client.meta.endpoint_url
        shell(root, f"export {account} AWS_ENDPOINT_URL={address}; puller site push s s3://{bucket}/site")
        assert client.head_object(Bucket=bucket, Key="site/metadata/timestamp.json")["ContentLength"]
