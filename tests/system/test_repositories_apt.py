"""Repositories and the accepted packages, with real apt, dpkg and debconf, in a Debian on disk with Puller.

Packages are signed with a key that gpg makes here (Debian: ``apt-get install gpg gpg-agent``).
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.system import test_packages_apt as apt

if TYPE_CHECKING:
    from tests.support.machines import Completed
    from tests.system.test_packages_apt import Machine, Repository

pytestmark = [pytest.mark.packages, pytest.mark.root]

SIGNED = "srv/signed"


class Signer:
    """A key pair of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.chmod(0o700)
        self.gpg("--passphrase", "", "--quick-gen-key", "test@example.com", "ed25519", "sign", "never")

    def gpg(self, *arguments: str, data: bytes = b"") -> bytes:
        command = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", *arguments]
        return subprocess.run(command, input=data, check=True, capture_output=True, timeout=60).stdout

    def public(self, *, armoured: bool = True) -> bytes:
        return self.gpg("--export", *(["--armor"] if armoured else []))

    def sign(self, text: str) -> bytes:
        return self.gpg("--clearsign", data=text.encode())


@contextlib.contextmanager
def signer() -> Iterator[Signer]:
    """Has a short path, which becomes part of the path of the agent's socket."""
    home = Path(tempfile.mkdtemp(prefix="puller-gpg-"))
    try:
        yield Signer(home)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False, timeout=60)
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def tree(
    debian_tree: Path, copied: Callable[[Path], contextlib.AbstractContextManager[Path]]
) -> Iterator[Path]:
    with copied(debian_tree) as root:
        yield root


@pytest.fixture(scope="module")
def key() -> Iterator[Signer]:
    with signer() as made:
        yield made


@pytest.fixture
def debian(tree: Path) -> Iterator[Machine]:
    """A Debian with only its own packages and the unsigned source, before and after the test."""
    machine = apt.Machine(tree)
    own = apt.dpkg(machine).keys()
    for pattern in ("sources.list.d/*", "preferences.d/*", "keyrings/*"):
        for path in (tree / "etc/apt").glob(pattern):
            path.unlink()
    yield machine
    if held := machine.run("apt-mark", "showhold").stdout.split():
        machine.run("apt-mark", "unhold", *held)
    if added := apt.dpkg(machine).keys() - own:
        machine.run("dpkg", "--purge", "--force-all", *added)


@pytest.fixture
def repository(debian: Machine) -> Repository:
    made: Repository = apt.Repository(debian)
    return made


def publish_signed(repository: Repository, key: Signer, directory: str = SIGNED) -> None:
    """Move all added packages to a separate directory, which is missing in apt's sources, and sign it."""
    root = repository.machine.root / directory
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for package in repository.directory.glob("*.deb"):
        package.rename(root / package.name)
    packages = "\n".join(repository.index)
    (root / "Packages").write_text(packages)
    digest = hashlib.sha256(packages.encode()).hexdigest()
    release = f"Date: Sun, 22 Nov 2026 17:00:00 UTC\nSHA256:\n {digest} {len(packages)} Packages\n"
    (root / "InRelease").write_bytes(key.sign(release))
    repository.index.clear()
    repository.publish()


def apply(machine: Machine, resources: list[dict[str, Any]], *options: str) -> Completed:
    (machine.root / "root/manifest.yaml").write_text(yaml.safe_dump({"resources": resources}))
    command = ("puller", "apply", "/root/manifest.yaml", "--verbose", *options)
    done: Completed = machine.run(*command, check=False, timeout=300)
    return done


def outcomes(done: Completed) -> dict[str, str]:
    """Return the state of each resource."""
    words = [line.split()[1:4] for line in done.stdout.splitlines() if "#" in line.partition(" ")[2][:40]]
    return {name: "would change" if state == "would" else state for name, state, _ in words}


def a_source(**properties: Any) -> dict[str, Any]:
    return {"repository": [{"signed": {"url": f"file:///{SIGNED}", "suites": ["./"], **properties}}]}


@pytest.mark.parametrize("armoured", [True, False])
def test_signed_repository_works_in_the_same_run_and_goes(
    debian: Machine, repository: Repository, key: Signer, armoured: bool
) -> None:
    repository.add("tool", "1.0")
    publish_signed(repository, key)
    (debian.root / "root/key").write_bytes(key.public(armoured=armoured))
    desired = [a_source(key="key", priority=700), {"package": ["tool"]}]
    output = outcomes(apply(debian, desired, "--noop"))
    assert output == {"repository#signed": "would change", "package#tool": "would change"}
    assert not (debian.root / "etc/apt/sources.list.d/signed.sources").exists()
    done = apply(debian, desired)
    assert outcomes(done) == {"repository#signed": "changed", "package#tool": "changed"}, done.stdout
    assert set(outcomes(apply(debian, desired)).values()) == {"stable"}
    debian.run("apt-get", "update", "--error-on=any")
    assert (debian.root / "etc/apt/keyrings/signed.gpg").exists() != armoured
    gone = [{"repository": [{"signed": {"ensure": "absent"}}]}]
    assert outcomes(apply(debian, gone)) == {"repository#signed": "changed"}
    remaining = [path for path in (debian.root / "etc/apt").rglob("signed*") if path.is_file()]
    assert remaining == []


def test_broken_repository_does_not_stop_packages(
    debian: Machine, repository: Repository, key: Signer
) -> None:
    repository.add("tool", "1.0")
    publish_signed(repository, key)
    repository.add("other", "1.0")
    repository.publish()
    with signer() as somebody:
        (debian.root / "root/key").write_bytes(somebody.public())
    desired = [
        a_source(key="key"),
        {"repository": [{"gone": {"url": "file:///srv/gone", "suites": ["./"]}}]},
        {"package": ["other"]},
    ]
    done = apply(debian, desired)
    assert outcomes(done) == {
        "repository#signed": "failed",
        "repository#gone": "failed",
        "package#other": "changed",
    }
    assert "NO_PUBKEY" in done.stdout
    assert list((debian.root / "etc/apt/sources.list.d").iterdir()) == []


def test_new_repository_release_is_seen_on_change(
    debian: Machine, repository: Repository, key: Signer
) -> None:
    """With old lists, ``latest`` would miss the newer version."""
    (debian.root / "root/key").write_bytes(key.public())
    repository.add("tool", "1.0")
    publish_signed(repository, key)
    apply(debian, [a_source(key="key"), {"package": [{"tool": {"ensure": "latest"}}]}])
    repository.add("tool", "2.0")
    publish_signed(repository, key, "srv/second")
    desired = [a_source(key="key", url="file:///srv/second"), {"package": [{"tool": {"ensure": "latest"}}]}]
    assert set(outcomes(apply(debian, desired)).values()) == {"changed"}
    assert apt.dpkg(debian)["tool:all"] == ("2.0", "installed")


OTHERS = {
    "another key": ("vendor.list", "deb [signed-by=/usr/share/keyrings/vendor.gpg] file:/srv/signed ./\n"),
    "no key, as installers write it": ("vendor.list", "deb file:///srv/signed/ ./\n"),
    "trusted": ("vendor.list", "deb [trusted=yes] file:/srv/signed ./\n"),
    "deb822": (
        "vendor.sources",
        "Types: deb deb-src\nURIs: file:/srv/signed\nSuites: ./\nSigned-By: /usr/share/keyrings/vendor.gpg\n",
    ),
    "disabled": (
        "vendor.sources",
        "Types: deb\nURIs: file:/srv/signed\nSuites: ./\nSigned-By: /srv/vendor.gpg\nEnabled: no\n",
    ),
    "malformed": ("vendor.list", "deb [signed-by=\n"),
    "main list": ("../sources.list", "deb [signed-by=/usr/share/keyrings/vendor.gpg] file:/srv/signed ./\n"),
}

OTHERS_IN = {True: "/etc/apt/sources.list", False: "/etc/apt/sources.list.d/vendor."}


@pytest.mark.parametrize("name", OTHERS)
def test_repository_never_stops_apt_from_reading_its_sources(
    debian: Machine, repository: Repository, key: Signer, name: str
) -> None:
    """apt itself decides: if it accepts both sources, the repository is written."""
    repository.add("tool", "1.0")
    publish_signed(repository, key)
    (debian.root / "root/key").write_bytes(key.public())
    path = debian.root / "etc/apt/sources.list.d" / OTHERS[name][0]
    before = path.read_text() if path.exists() else None
    path.write_text((before or "") + OTHERS[name][1])
    read = ("apt-get", "update", "--print-uris")
    is_readable = debian.run(*read, check=False).returncode == 0
    try:
        output = apply(debian, [a_source(key="key")], "--noop")
        done = apply(debian, [a_source(key="key")])
        is_failure = outcomes(done) == {"repository#signed": "failed"}
        assert outcomes(output) == {"repository#signed": "failed" if is_failure else "would change"}
        if is_failure and name != "malformed":
            assert f"remove the same repository from {OTHERS_IN[before is not None]}" in done.stdout
        assert is_failure == (
            name
            in (
                "another key",
                "deb822",
                "malformed",
                "main list",
                "trusted",
                "no key, as installers write it",
            )
        )
        assert (debian.run(*read, check=False).returncode == 0) == is_readable
        path.write_text(before or "")
        assert outcomes(apply(debian, [a_source(key="key")])) == {
            "repository#signed": "changed" if is_failure else "stable"
        }
        path.write_text((before or "") + OTHERS["another key"][1])
        assert outcomes(apply(debian, [a_source(key="key")])) == {"repository#signed": "failed"}
    finally:
        path.write_text(before) if before is not None else path.unlink()


# Accepted packages


def test_packages_are_purged_held_and_provided_as_noop_said(debian: Machine, repository: Repository) -> None:
    for name in ("full", "rest", "kept", "free", "pinned"):
        repository.add(name, "1.0")
    repository.add("server", "1.0", Provides="virtual (= 2), mail")
    repository.publish()
    names = ["full", "rest", "kept", "free", "pinned", "server"]
    debian.run("apt-get", "install", "-y", *names)
    debian.run("apt-get", "remove", "-y", "rest")
    debian.run("apt-mark", "hold", "free", "pinned")
    repository.add("pinned", "2.0")
    repository.publish()
    desired = [
        {
            "package": [
                {"full": {"ensure": "purged"}},
                {"rest": {"ensure": "purged"}},
                {"never": {"ensure": "purged"}},
                {"kept": {"held": True}},
                {"free": {"held": False}},
                {"pinned": {"ensure": "2.0", "held": True}},
                "virtual",
                {"mail": {"ensure": "absent"}},
            ]
        }
    ]
    output = apply(debian, desired, "--noop")
    expected = {
        "full": "purged", "rest": "purged", "never": "stable", "kept": "held it", "free": "released the hold",
        "pinned": "upgraded to 2.0", "virtual": "stable", "mail": "failed",
    }  # fmt: skip
    assert apt.outcomes(output) == expected
    done = apply(debian, desired)
    changed = {name: says if says in ("stable", "failed") else "changed" for name, says in expected.items()}
    assert apt.outcomes(done) == changed, done.stdout
    assert (
        "is not a package here, but provided by server, which would have to be removed, expected absent"
        in done.stdout
    )
    result = apt.dpkg(debian)
    assert not {"full:all", "rest:all"} & result.keys()
    assert result["pinned:all"] == ("2.0", "installed")
    assert set(debian.run("apt-mark", "showhold").stdout.split()) == {"kept", "pinned"}
    after = apt.outcomes(apply(debian, desired))
    assert after == {name: "failed" if name == "mail" else "stable" for name in expected}


def test_recommends_and_target_release_follow_options(debian: Machine, repository: Repository) -> None:
    repository.add("extra", "1.0")
    repository.add("first", "1.0", Recommends="extra")
    repository.add("second", "1.0", Recommends="extra")
    repository.publish()
    done = apply(debian, [{"package": [{"first": {"options": {"recommends": False}}}]}])
    assert apt.outcomes(done) == {"first": "changed"}
    assert "extra:all" not in apt.dpkg(debian)
    apply(debian, [{"package": [{"second": {"options": {"recommends": True}}}]}])
    assert "extra:all" in apt.dpkg(debian)
    done = apply(debian, [{"package": [{"first": {"ensure": "latest", "options": {"release": "nowhere"}}}]}])
    assert "The value 'nowhere' is invalid for APT::Default-Release" in done.stdout


def test_virtual_package_needs_a_unique_provider(debian: Machine, repository: Repository) -> None:
    repository.add("server", "1.0", Provides="virtual")
    repository.publish()
    assert apt.outcomes(apply(debian, [{"package": ["virtual"]}], "--noop")) == {
        "virtual": "installed version present"
    }
    assert apt.outcomes(apply(debian, [{"package": ["virtual"]}])) == {"virtual": "changed"}
    assert apt.outcomes(apply(debian, [{"package": ["virtual"]}])) == {"virtual": "stable"}
    debian.run("dpkg", "--purge", "server")
    repository.add("service", "1.0", Provides="virtual")
    repository.publish()
    done = apply(debian, [{"package": ["virtual"]}], "--noop")
    assert "is a name that server, service provide, expected one of these packages" in done.stdout
    assert apt.outcomes(apply(debian, [{"package": ["virtual"]}])) == {"virtual": "failed"}


def test_bundled_package_installs_with_its_dependencies(debian: Machine, repository: Repository) -> None:
    repository.add("library", "1.0")
    repository.publish()
    repository.add("tool", "1.0", "2.0", Depends="library")
    files = {version: repository.directory / f"tool_{version}_all.deb" for version in ("1.0", "2.0")}
    for version, path in files.items():
        shutil.copy(path, debian.root / f"root/tool-{version}.deb")
    digest = hashlib.sha256(files["2.0"].read_bytes()).hexdigest()
    first = [{"package": [{"tool": {"source": "tool-1.0.deb"}}]}]
    second = [{"package": [{"tool": {"source": "tool-2.0.deb", "checksum": digest}}]}]
    back = [{"package": [{"tool": {"source": "tool-1.0.deb", "ensure": "1.0"}}]}]
    for wanted, says, version in (
        (first, "installed version 1.0", "1.0"),
        (second, "upgraded to 2.0", "2.0"),
        (first, "stable", "2.0"),
        (back, "downgraded to 1.0", "1.0"),
    ):
        assert apt.outcomes(apply(debian, wanted, "--noop")) == {"tool": says}
        done = apply(debian, wanted)
        assert apt.outcomes(done) == {"tool": "stable" if says == "stable" else "changed"}, done.stdout
        assert apt.outcomes(apply(debian, wanted)) == {"tool": "stable"}
        assert apt.dpkg(debian)["tool:all"] == (version, "installed")
    assert apt.dpkg(debian)["library:all"] == ("1.0", "installed")


ASKING = """
. /usr/share/debconf/confmodule
db_get asking/word
printf '%s' "$RET" > /etc/asking.word
"""
TEMPLATES = "Template: asking/word\nType: password\nDescription: A word\n A word.\n"


def test_package_questions_are_answered_once(debian: Machine, repository: Repository) -> None:
    repository.add("asking", "1.0", postinst=ASKING, Depends="debconf")
    repository.publish()
    templates = debian.root / "root/asking.templates"
    templates.write_text(TEMPLATES)
    answers = [
        {"question": "asking/word", "type": "password", "value": "hunter two"},
        {"question": "asking/kind", "type": "select", "value": "Internet Site"},
    ]
    desired = [{"package": [{"asking": {"debconf": answers}}]}]
    done = apply(debian, desired)
    assert apt.outcomes(done) == {"asking": "changed"}, done.stdout
    assert (debian.root / "etc/asking.word").read_text() == "hunter two"
    assert "hunter" not in done.stdout
    assert apt.outcomes(apply(debian, desired)) == {"asking": "stable"}
