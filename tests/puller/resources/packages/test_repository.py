"""The repository resource: every current state with every desired state, in directories of a test.

Package managers are recorded, and answer as the test specifies. ``tests/system`` runs the real ones.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hiera.expressions.expressions import Scope
from puller.errors import ResourceError
from puller.resources.base import PropertyError, Resource
from puller.resources.files.file import File
from puller.resources.packages.apt import AptLayout
from puller.resources.packages.dnf import DnfLayout
from puller.resources.packages.repository import Repository
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem

pytestmark = pytest.mark.root  # the files of repositories are root's

Make = Callable[..., Resource[Any, Any]]
MakeRepository = Callable[..., Repository]
Converge = Callable[[Resource[Any, Any]], list[str]]

KEY = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawMkRhYJKwYBBAHaRw8BAQdAJPgv6QH1PX+ZrefXh1f6Wir/Dmr4kCm0dgOb
uvAHsmO0EHRlc3RAZXhhbXBsZS5jb22IkAQTFggAOBYhBOJBB2z8P/v7padLAMJQ
G3umxzeWBQJrAyRGAhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJEMJQG3um
xzeWwFUA/3cL4w8cPBMb8MciMHm5a5H/x0LqS7e0XamLp9HQp1qKAP0ak+qdCRS6
YKophWojeH8JLJGQ1/I1uHGv8vF/2nvlDg==
=W4N4
-----END PGP PUBLIC KEY BLOCK-----
"""
BINARY = base64.b64decode("".join(KEY.splitlines()[2:-2]))
WEB: dict[str, Any] = {
    "url": "https://deb.example.com/debian",
    "suites": ["bookworm", "bookworm-updates"],
    "components": ["main", "contrib"],
    "architectures": ["amd64"],
    "key": "web.asc",
}
SOURCE = """\
Types: deb
URIs: https://deb.example.com/debian
Suites: bookworm bookworm-updates
Components: main contrib
Architectures: amd64
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEawMkRhYJKwYBBAHaRw8BAQdAJPgv6QH1PX+ZrefXh1f6Wir/Dmr4kCm0dgOb
 uvAHsmO0EHRlc3RAZXhhbXBsZS5jb22IkAQTFggAOBYhBOJBB2z8P/v7padLAMJQ
 G3umxzeWBQJrAyRGAhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJEMJQG3um
 xzeWwFUA/3cL4w8cPBMb8MciMHm5a5H/x0LqS7e0XamLp9HQp1qKAP0ak+qdCRS6
 YKophWojeH8JLJGQ1/I1uHGv8vF/2nvlDg==
 =W4N4
 -----END PGP PUBLIC KEY BLOCK-----
Enabled: yes
"""
REPO = "[web]\nname=web\nbaseurl=https://rpm.example.com/9\nenabled=1\ngpgcheck=1\ngpgkey=file://{key}\npriority=10\n"


class Killed(BaseException):
    """Raised at a simulated power failure."""


class Machine(LocalSystem):
    """This machine, with recorded commands and input files of its package managers."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[list[str]] = []
        self.tried: list[dict[str, bytes]] = []
        self.answer = Completed(0, None, False, "", "", 0.1)
        self.changes_until_kill = -1
        self.made = 0
        self.asked = 0
        self.verdict = Completed(0, None, False, "", "", 0.1)
        self.sources: dict[str, str] = {}

    def execute(self, command: Command) -> Completed:
        self.step()
        self.executed += 1
        self.commands.append(list(command.arguments))
        words = " ".join(command.arguments).replace("=", " ").split()
        trial = next(Path(word) for word in words if "/puller-" in word)
        directory = trial if trial.is_dir() else trial.parent
        self.tried.append({path.name: path.read_bytes() for path in directory.iterdir()})
        return self.answer

    def query(self, command: Command) -> Completed:
        """Return ``verdict``, and record the sources that apt would read together."""
        self.asked += 1
        assert "--print-uris" in command.arguments, f"{command.arguments} was started to look"
        (pieces,) = (
            Path(word.partition("=")[2])
            for word in command.arguments
            if word.startswith("Dir::Etc::sourceparts")
        )
        self.sources = {path.name: path.read_text() for path in pieces.iterdir()}
        return self.verdict

    def replace_file(self, *arguments: Any, **options: Any) -> None:
        self.step()
        super().replace_file(*arguments, **options)

    def remove(self, *arguments: Any, **options: Any) -> None:
        self.step()
        super().remove(*arguments, **options)

    def step(self) -> None:
        if self.made == self.changes_until_kill:
            raise Killed
        self.made += 1


class LookingOnly(NoopSystem):
    """The same machine in a dry run."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.query = machine.query  # type: ignore[method-assign]


class Directories:
    """The directories of both package managers on a fresh machine, and the files of ``web``."""

    def __init__(self, root: Path) -> None:
        for name in ("apt/sources.list.d", "apt/preferences.d", "yum.repos.d", "pki/rpm-gpg"):
            (root / name).mkdir(parents=True)
        self.apt, self.yum, self.keys = root / "apt", root / "yum.repos.d", root / "pki/rpm-gpg"
        self.source = self.apt / "sources.list.d/web.sources"
        self.pin = self.apt / "preferences.d/web.pref"
        self.keyring = self.apt / "keyrings/web.gpg"
        self.repo, self.key = self.yum / "web.repo", self.keys / "web"

    def files(self) -> dict[str, bytes]:
        paths = (self.source, self.pin, self.keyring, self.repo, self.key)
        return {path.name: path.read_bytes() for path in paths if path.exists()}


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Directories:
    directories = Directories(tmp_path / "etc")
    monkeypatch.setattr(AptLayout, "root", str(directories.apt))
    monkeypatch.setattr(DnfLayout, "root", str(directories.yum))
    monkeypatch.setattr(DnfLayout, "keys", str(directories.keys))
    (tmp_path / "web.asc").write_text(KEY)
    (tmp_path / "web.gpg").write_bytes(BINARY)
    return directories


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def repository(make: Make, machine: Machine, etc: Directories) -> MakeRepository:
    """Return a function that makes the repository ``web`` for a ``family``: ``repository(**properties)``."""

    def build(*, family: str = "Debian", noop: bool = False, **properties: Any) -> Repository:
        resource = make(Repository, {"name": "web", **(properties or WEB)})
        assert isinstance(resource, Repository)
        system = LookingOnly(machine) if noop else machine
        scope = Scope({"os": {"family": family}})
        resource.context = msgspec.structs.replace(resource.context, system=system, scope=scope, noop=noop)
        return resource

    return build


def predict(resource: Resource[Any, Any]) -> str:
    actual = resource.look()
    differences = resource.differences(actual)
    return resource.noop_message(differences, actual) if differences else "stable"


# Written files


def test_a_source_of_apt_has_its_key_in_it(
    repository: MakeRepository, converge: Converge, etc: Directories, machine: Machine
) -> None:
    assert converge(repository()) == ["ensure absent → present"]
    assert etc.files() == {"web.sources": SOURCE.encode()}
    status = etc.source.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (0, 0, 0o644)
    assert converge(repository()) == []
    assert len(machine.commands) == 1


def test_a_binary_key_is_a_file_of_its_own(
    repository: MakeRepository, converge: Converge, etc: Directories
) -> None:
    converge(repository(**{**WEB, "key": "web.gpg"}))
    assert etc.keyring.read_bytes() == BINARY
    assert f"Signed-By: {etc.keyring}\nEnabled: yes\n" in etc.source.read_text()


def test_a_key_may_stand_in_the_manifest(
    repository: MakeRepository, converge: Converge, etc: Directories
) -> None:
    converge(repository(**{**WEB, "key": KEY}))
    assert etc.source.read_text() == SOURCE


def test_a_priority_is_a_pin_of_the_host(
    repository: MakeRepository, converge: Converge, etc: Directories
) -> None:
    converge(repository(**WEB, priority=200))
    assert etc.pin.read_text() == 'Package: *\nPin: origin "deb.example.com"\nPin-Priority: 200\n'


def test_local_directory_needs_no_key_and_components(
    repository: MakeRepository, converge: Converge, etc: Directories
) -> None:
    converge(repository(url="file:///srv/packages", suites=["./"], enabled=False))
    assert etc.source.read_text() == "Types: deb\nURIs: file:///srv/packages\nSuites: ./\nEnabled: no\n"


def test_a_repository_of_dnf_is_a_file_and_a_key(
    repository: MakeRepository, converge: Converge, etc: Directories, machine: Machine
) -> None:
    properties = {"url": "https://rpm.example.com/9", "key": "web.asc", "priority": 10}
    converge(repository(family="RedHat", **properties))
    assert etc.files() == {"web.repo": REPO.format(key=etc.key).encode(), "web": KEY.encode()}
    assert converge(repository(family="RedHat", **properties)) == []
    (command,) = machine.commands
    assert command[:2] == ["dnf", "-q"]
    assert command[-2:] == ["makecache", "--refresh"]


# Every current state with every desired state


def put(path: Path, text: str, mode: int = 0o644, owner: int = 0, beside: Path | None = None) -> None:
    if beside is not None:
        put(beside, KEY)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, owner, owner)


def link(etc: Directories) -> None:
    put(etc.apt / "mine", "x")
    os.link(etc.apt / "mine", etc.source)


FOUND: dict[str, Callable[[Directories], object]] = {
    "absent": lambda etc: None,
    "as wanted": lambda etc: put(etc.source, SOURCE),
    "another url": lambda etc: put(etc.source, SOURCE.replace("deb.", "old.")),
    "disabled": lambda etc: put(etc.source, SOURCE.replace("yes", "no")),
    "another mode": lambda etc: put(etc.source, SOURCE, mode=0o600),
    "another owner": lambda etc: put(etc.source, SOURCE, owner=1),
    "a pin left": lambda etc: put(etc.source, SOURCE, beside=etc.pin),
    "a key left": lambda etc: put(etc.source, SOURCE, beside=etc.keyring),
    "only a key": lambda etc: put(etc.keyring, KEY),
    "a link": lambda etc: etc.source.symlink_to("/etc/hostname"),
    "a hard link": link,
    "a fifo": lambda etc: os.mkfifo(etc.source),
}
FETCHED = ("absent", "another url", "disabled", "only a key", "a key left", "a link", "a hard link", "a fifo")


@pytest.mark.parametrize("found", FOUND)
@pytest.mark.parametrize("ensure", ["present", "absent"])
def test_every_state_converges_as_noop_predicts(
    repository: MakeRepository,
    converge: Converge,
    etc: Directories,
    machine: Machine,
    found: str,
    ensure: str,
) -> None:
    FOUND[found](etc)
    is_stable = found == ("as wanted" if ensure == "present" else "absent")
    properties = WEB if ensure == "present" else {"ensure": "absent"}
    says = "written" if ensure == "present" else "removed"
    before = etc.files() if found != "a fifo" else {}
    expected = "stable" if is_stable else f"Would have {says} the repository"
    assert predict(repository(noop=True, **properties)) == expected
    assert etc.files() == before if found != "a fifo" else True
    assert bool(converge(repository(**properties))) == (not is_stable)
    assert etc.files() == ({"web.sources": SOURCE.encode()} if ensure == "present" else {})
    if ensure == "present":
        assert not etc.source.is_symlink()
        assert etc.source.stat().st_uid == 0
    assert len(machine.commands) == (ensure == "present" and found in FETCHED)
    assert Path("/etc/hostname").exists()
    made = machine.made
    assert converge(repository(**properties)) == []
    assert machine.made == made
    if found == "a hard link":
        assert (etc.apt / "mine").read_text() == "x"


@pytest.mark.parametrize("ensure", ["present", "absent"])
def test_a_directory_in_the_way_is_not_removed(
    repository: MakeRepository, etc: Directories, ensure: str
) -> None:
    etc.source.mkdir()
    for noop in (True, False):
        resource = repository(noop=noop, **(WEB if ensure == "present" else {"ensure": "absent"}))
        actual = resource.look()
        differences = resource.differences(actual)
        with pytest.raises(
            ResourceError, match=r"web\.sources is a directory, expected a file; remove it first"
        ):
            (resource.noop_message if noop else resource.change)(differences, actual)


def test_the_key_of_another_source_is_left_to_it(
    repository: MakeRepository, converge: Converge, etc: Directories
) -> None:
    FOUND["only a key"](etc)
    (etc.apt / "sources.list").write_text(
        f"deb [signed-by={etc.keyring}] https://x.example.com stable main\n"
    )
    converge(repository())
    assert etc.keyring.exists()
    converge(repository(ensure="absent"))
    assert list(etc.files()) == ["web.gpg"]


# Metadata are fetched once, before the repository is in place


def test_only_the_changed_repository_is_fetched_separately(
    repository: MakeRepository, converge: Converge, etc: Directories, machine: Machine
) -> None:
    converge(repository(**{**WEB, "key": "web.gpg"}))
    (command,) = machine.commands
    options = [word for word in command if "=" in word]
    assert command[:3] == ["apt-get", "update", "-q"]
    assert options[0].startswith("Dir::Etc::sourcelist=/")
    assert options[1:] == [
        "Dir::Etc::sourceparts=/dev/null", "APT::Get::List-Cleanup=0", "APT::Update::Error-Mode=any",
    ]  # fmt: skip
    trial = Path(options[0].partition("=")[2])
    assert machine.tried[0]["key.gpg"] == BINARY
    assert f"Signed-By: {trial.parent}/key.gpg\n".encode() in machine.tried[0]["trial.sources"]
    assert not trial.parent.exists()


@pytest.mark.parametrize(
    "change",
    [{"priority": 100}, {"enabled": False}, {"enabled": False, "url": "https://new.example.com/debian"}],
)
def test_unchanged_repository_is_not_fetched(
    repository: MakeRepository, converge: Converge, machine: Machine, change: dict[str, Any]
) -> None:
    converge(repository())
    machine.commands.clear()
    assert converge(repository(**{**WEB, **change}))
    assert machine.commands == []


@pytest.mark.parametrize("family", ["Debian", "RedHat"])
def test_unreadable_repository_changes_nothing(
    repository: MakeRepository, converge: Converge, etc: Directories, machine: Machine, family: str
) -> None:
    old = WEB if family == "Debian" else {"url": "https://rpm.example.com/9", "key": "web.asc"}
    converge(repository(family=family, **old))
    before = etc.files()
    machine.answer = Completed(100, None, False, "", "E: Failed to fetch https://new.example.com\n", 0.1)
    resource = repository(family=family, **{**old, "url": "https://new.example.com", "priority": 5})
    actual = resource.look()
    with pytest.raises(ResourceError) as failure:
        resource.change(resource.differences(actual), actual)
    detail = "apt-get update" if family == "Debian" else "dnf -q"
    assert str(failure.value) == (
        f"cannot be read, so nothing was changed; {detail}: exit code 100; it printed:\n"
        "E: Failed to fetch https://new.example.com"
    )
    assert etc.files() == before


@pytest.mark.parametrize("family", ["Debian", "RedHat"])
def test_a_run_that_is_killed_anywhere_is_made_good_by_the_next(
    repository: MakeRepository, converge: Converge, etc: Directories, machine: Machine, family: str
) -> None:
    first = {**WEB, "key": "web.gpg", "priority": 7}
    second: dict[str, Any] = WEB
    if family == "RedHat":
        first = {"url": "https://rpm.example.com/9", "key": "web.asc", "priority": 10}
        second = {"url": "file:///srv/rpm"}
    for wanted in (first, second, {"ensure": "absent"}):
        for steps in range(10):
            machine.made, machine.changes_until_kill = 0, steps
            resource = repository(family=family, **wanted)
            try:
                actual = resource.look()
                if differences := resource.differences(actual):
                    resource.change(differences, actual)
                break
            except Killed:
                # A source file that names a key needs the key.
                if etc.source.exists() and str(etc.keyring) in etc.source.read_text():
                    assert etc.keyring.exists()
                if etc.repo.exists() and "gpgkey" in etc.repo.read_text():
                    assert etc.key.exists()
        machine.changes_until_kill = -1
        assert converge(repository(family=family, **wanted)) == []
    assert etc.files() == {}


# A machine with other sources


@pytest.mark.parametrize(
    ("name", "text", "is_same"),
    [
        ("other.list", "deb [arch=amd64 signed-by=/x] https://deb.example.com/debian/ bookworm main\n", True),
        ("other.list", "deb-src https://deb.example.com/debian bookworm main # mine\n", True),
        ("other.list", "# deb https://deb.example.com/debian bookworm main\n", False),
        ("other.list", "deb https://deb.example.com/debian trixie main\n", False),
        ("other.list.save", "deb https://deb.example.com/debian bookworm main\n", False),
        (
            "other.sources",
            "Types: deb\n# a comment\nURIs: https://x https://deb.example.com/debian\nSuites: a\n bookworm\n",
            True,
        ),
        ("other.sources", "URIs: https://deb.example.com/debian\nSuites: bookworm\nEnabled: no\n", False),
        (
            "other.sources",
            "URIs: https://x\nSuites: a\n\nuris: https://deb.example.com/debian\nSuites: bookworm\n",
            True,
        ),
    ],
)
def test_another_file_with_the_same_repository_is_a_warning(
    repository: MakeRepository, converge: Converge, etc: Directories, name: str, text: str, is_same: bool
) -> None:
    path = etc.source.with_name(name)
    path.write_text(text)
    resource = repository()
    converge(resource)
    sentence = f"{path} has the same repository: https://deb.example.com/debian bookworm"
    assert list(resource.notes) == [sentence] * is_same


def test_duplicate_repository_in_another_file_is_a_warning(
    repository: MakeRepository, etc: Directories
) -> None:
    other = etc.yum / "other.repo"
    other.write_text(
        "[a]\nbaseurl=https://rpm.example.com/9/\n[b]\nbaseurl=https://rpm.example.com/9\nenabled=0\n"
    )
    (etc.yum / "broken.repo").write_text("no section\n")
    resource = repository(family="RedHat", url="https://rpm.example.com/9", key="web.asc")
    resource.look()
    assert list(resource.notes) == [f"{other} has the same repository: https://rpm.example.com/9"]


# apt reads all sources or none

REFUSED = Completed(100, None, False, "", "E: Conflicting values set for option Signed-By\n", 0.1)


def put_other(etc: Directories) -> Path:
    other = etc.source.with_name("other.list")
    other.write_text("deb http://deb.example.com/debian/ bookworm main\n")
    return other


@pytest.mark.parametrize("noop", [True, False])
def test_source_that_contradicts_another_is_not_written(
    repository: MakeRepository, etc: Directories, machine: Machine, noop: bool
) -> None:
    other = put_other(etc)
    machine.verdict = REFUSED
    resource = repository(noop=noop)
    actual = resource.look()
    with pytest.raises(ResourceError) as failure:
        (resource.noop_message if noop else resource.change)(resource.differences(actual), actual)
    assert failure.value.problems[0].message == (
        "apt cannot read its sources with this one, so nothing was changed: "
        "apt-get update: exit code 100; it printed:\nE: Conflicting values set for option Signed-By"
    )
    assert failure.value.problems[0].hint == f"remove the same repository from {other}"
    assert machine.sources == {"other.list": other.read_text(), "web.sources": SOURCE}
    assert etc.files() == {}
    assert machine.commands == []


def test_source_that_apt_cannot_read_is_not_stable(
    repository: MakeRepository, converge: Converge, etc: Directories, machine: Machine
) -> None:
    converge(repository())
    put_other(etc)
    machine.verdict = REFUSED
    for noop in (True, False):
        resource = repository(noop=noop)
        with pytest.raises(ResourceError, match=r"^apt cannot read its sources: ") as failure:
            resource.differences(resource.look())
        assert failure.value.problems[0].hint.startswith("remove the same repository from ")


def test_sources_that_apt_has_read_are_not_asked_about_again(
    repository: MakeRepository, converge: Converge, etc: Directories, machine: Machine, tmp_path: Path
) -> None:
    def run(*, noop: bool = False) -> int:
        resource = repository(noop=noop)
        resource.context = msgspec.structs.replace(
            resource.context, state_directory=tmp_path / "state", shared={}
        )
        machine.asked = 0
        resource.differences(resource.look())
        return machine.asked

    converge(repository())
    assert [run(), run(), run(noop=True)] == [1, 0, 0]
    put_other(etc)
    assert [run(noop=True), run(), run()] == [1, 1, 0]
    put_other(etc).unlink()
    assert [run(), run()] == [1, 0]


def test_noop_counts_with_sources_that_other_resources_change(
    repository: MakeRepository, etc: Directories, machine: Machine
) -> None:
    other = put_other(etc)
    resource = repository(noop=True)
    resource.context.system.expect(str(other), "absent")
    assert predict(resource) == "Would have written the repository"
    assert machine.sources == {"web.sources": SOURCE}
    second = repository(noop=True, name="second", url="file:///srv/packages", suites=["./"])
    second.context = resource.context
    predict(second)
    assert machine.sources.keys() == {"second.sources", "web.sources"}


@pytest.mark.parametrize("noop", [True, False])
def test_repository_id_of_dnf_is_defined_once(
    repository: MakeRepository, etc: Directories, noop: bool
) -> None:
    other = etc.yum / "other.repo"
    other.write_text("[web]\nbaseurl=https://old.example.com\nenabled=0\n")
    resource = repository(family="RedHat", noop=noop, url="https://rpm.example.com/9", key="web.asc")
    actual = resource.look()
    with pytest.raises(ResourceError, match=f"{other} and {etc.repo} define the same repository id web$"):
        (resource.noop_message if noop else resource.change)(resource.differences(actual), actual)
    assert etc.files() == {}


def test_changed_release_file_is_accepted_only_where_allowed(
    repository: MakeRepository, converge: Converge, etc: Directories, machine: Machine
) -> None:
    converge(repository())
    assert "Acquire::AllowReleaseInfoChange=1" not in machine.commands[-1]
    assert converge(repository(**WEB, allow_release_info_change=True))
    assert "Acquire::AllowReleaseInfoChange=1" in machine.commands[-1]
    assert etc.source.read_text() == f"{SOURCE}X-Allow-Release-Info-Change: yes\n"
    with pytest.raises(
        ResourceError, match="allow_release_info_change is given, but only apt supports it, not dnf"
    ):
        predict(repository(family="RedHat", url="https://x", key="web.asc", allow_release_info_change=True))


def test_sources_that_go_come_before_those_that_replace_them(make: Make) -> None:
    new, old = (
        make(Repository, {"name": "new", **WEB}),
        make(Repository, {"name": "old", "ensure": "absent"}),
    )
    files = [make(File, {"name": f"/etc/apt/sources.list.d/{name}", **rest}) for name, rest in FILES.items()]
    by_type = {"repository": [new.properties, old.properties], "file": [file.properties for file in files]}
    declared: Any = by_type.__getitem__  # without spellings, which this test does not need
    references = [str(source) for source in Repository.follows(new.properties, declared)]
    assert references == ["repository#old", "file#/etc/apt/sources.list.d/gone.list"]
    assert list(Repository.follows(old.properties, declared)) == []


FILES = {
    "gone.list": {"ensure": "absent"},
    "there.list": {"content": "", "owner": "root", "group": "root", "mode": "0644"},
}


# Noop


def test_noop_lists_future_sources_of_packages(repository: MakeRepository, etc: Directories) -> None:
    resource = repository(noop=True)
    assert predict(resource) == "Would have written the repository"
    assert resource.context.system.will_be_written(str(etc.apt), below=True)
    disabled = repository(noop=True, **WEB, enabled=False)
    assert predict(disabled) == "Would have written the repository"
    assert not disabled.context.system.will_be_written(str(etc.apt), below=True)


def test_noop_waits_for_a_key_that_an_earlier_resource_brings(
    repository: MakeRepository, tmp_path: Path
) -> None:
    resource = repository(noop=True, **{**WEB, "key": str(tmp_path / "late.asc")})
    resource.context.system.expect(str(tmp_path / "late.asc"), "file")
    assert predict(resource) == "Would have written the repository"


# Keys


@pytest.mark.attack("packages.key")
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not an OpenPGP public key"),
        (b"<html>404</html>", "is not an OpenPGP public key"),
        (KEY.replace("PUBLIC", "PRIVATE").encode(), "holds a private key, expected a public one"),
        (b"\x95\x01\x02", "is not an OpenPGP public key"),
        ((KEY + KEY).encode(), "holds several blocks, expected one"),
        (KEY.replace("\n\n", "\n\nSigned-By: \x07\n").encode(), "expected plain text"),
        (KEY.encode()[:200], "is not an OpenPGP public key"),
    ],
)
def test_invalid_key_is_never_trusted(
    repository: MakeRepository, tmp_path: Path, etc: Directories, content: bytes, sentence: str
) -> None:
    (tmp_path / "web.asc").write_bytes(content)
    resource = repository(**{**WEB, "url": "https://x.example.com"})
    etc.source.write_text("old\n")
    actual = resource.look()
    with pytest.raises(ResourceError, match=r"^key web\.asc ") as failure:
        resource.differences(actual)
    assert sentence in str(failure.value)
    assert etc.source.read_text() == "old\n"


@pytest.mark.attack("packages.key-of-user")
@pytest.mark.parametrize("what", ["file", "directory", "link"])
def test_key_that_others_can_exchange_is_refused(
    repository: MakeRepository, etc: Directories, tmp_path: Path, what: str
) -> None:
    path = tmp_path / "theirs/web.asc"
    path.parent.mkdir()
    path.write_text(KEY)
    os.chown(path if what == "file" else path.parent, 65534, 65534)
    key = path
    if what == "link":
        key = tmp_path / "link.asc"
        key.symlink_to(path)
    for noop in (True, False):
        resource = repository(**{**WEB, "key": str(key)}, noop=noop)
        etc.source.write_text("old\n")
        actual = resource.look()
        with pytest.raises(
            ResourceError, match=r"^key .* may be changed by others: .* belongs to user 65534"
        ):
            resource.differences(actual)
    assert etc.files() == {"web.sources": b"old\n"}


def test_a_key_that_is_missing_is_a_failure(repository: MakeRepository, etc: Directories) -> None:
    etc.source.write_text("old\n")
    resource = repository(**{**WEB, "key": "gone.asc"})
    with pytest.raises(ResourceError, match=r"^key gone\.asc cannot be read: no such file or directory$"):
        resource.differences(resource.look())


def test_noop_foretells_a_key_that_cannot_be_used(repository: MakeRepository) -> None:
    with pytest.raises(ResourceError, match=r"^key gone\.asc cannot be read"):
        predict(repository(noop=True, **{**WEB, "key": "gone.asc"}))


# Rejected repositories


@pytest.mark.attack("data-names.repository")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "-web"}, "name is '-web', expected letters, digits, _ and -, and no - first"),
        ({"name": "../web"}, "name is '../web', expected letters, digits, _ and -, and no - first"),
        ({"name": "web\n"}, "name is 'web\\n', expected letters, digits, _ and -, and no - first"),
        ({"name": "web.d"}, "name is 'web.d', expected letters, digits, _ and -, and no - first"),
        ({"ensure": "latest"}, "ensure is 'latest', expected present or absent"),
        ({"url": ""}, "url is missing; it is required unless ensure is absent"),
        (
            {"url": "deb.example.com"},
            "url is 'deb.example.com', expected an http(s):// or file:// URL without blanks",
        ),
        (
            {"url": "https://a b"},
            "url is 'https://a b', expected an http(s):// or file:// URL without blanks",
        ),
        ({"url": "https://a\nTrusted: yes"}, "expected an http(s):// or file:// URL without blanks"),
        (
            {"url": "https://me:word@a"},
            "url has credentials, expected them in /etc/apt/auth.conf.d or the like",
        ),
        ({"suites": ["a\nTrusted: yes"]}, "suites has 'a\\nTrusted: yes', expected a word without blanks"),
        ({"suites": ["-a"]}, "suites has '-a', expected a word without blanks"),
        ({"components": ["main contrib"]}, "components has 'main contrib', expected a word without blanks"),
        ({"architectures": [""]}, "architectures has '', expected a word without blanks"),
        (
            {"suites": ["./"]},
            "components is given, and './' is a directory without components",
        ),
        (
            {"suites": ["a", "./"], "components": []},
            "suites has './', a directory, beside suites: expected two repositories",
        ),
        (
            {"components": []},
            "components is missing, but the suite 'bookworm' requires components such as [main]",
        ),
        ({"suites": []}, "suites is missing; components belong to a suite"),
        ({"key": None}, "key is missing; it is required unless url is file:"),
        (
            {"key": "https://x/key.asc"},
            "key is 'https://x/key.asc', expected a file of the bundle, or an armoured key",
        ),
        ({"key": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"}, "key is not an OpenPGP public key"),
        ({"priority": 0}, "priority is 0, expected a number, and not 0"),
        ({"provider": "dnf"}, "suites is given, but only apt supports it, not dnf"),
    ],
)
def test_injecting_values_are_refused(make: Make, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PropertyError) as failure:
        make(Repository, {"name": "web", **WEB, **change})
    assert sentence in str(failure.value)


def test_property_of_another_package_manager_is_a_failure(repository: MakeRepository) -> None:
    with pytest.raises(ResourceError, match="suites is given, but only apt supports it, not dnf"):
        predict(repository(family="RedHat"))
    with pytest.raises(ResourceError, match="suites is missing; apt requires suites"):
        predict(repository(url="https://x", key="web.asc"))
    with pytest.raises(ResourceError, match=r"the fact os\.family is 'Plan9'"):
        repository(family="Plan9").look()


# Descriptions and dry runs


def test_state_and_pending_changes_are_shown(
    repository: MakeRepository, converge: Converge, etc: Directories
) -> None:
    resource = repository()
    assert "+URIs: https://deb.example.com/debian" in (resource.diff(resource.look()) or "")
    converge(resource)
    actual = resource.look()
    assert resource.describe(actual) == {"ensure": "present", "files": {str(etc.source): SOURCE}}
    assert set(resource.changed_paths(actual) or ()) == {
        str(path) for path in (etc.source, etc.pin, etc.keyring)
    }
    other = repository(**{**WEB, "url": "https://new.example.com"})
    (difference,) = other.differences(other.look())
    assert (difference.property, difference.path) == ("content", str(etc.source))


def test_name_alone_removes_the_repository(
    repository: MakeRepository, converge: Converge, etc: Directories
) -> None:
    for family, properties in (
        ("Debian", {**WEB, "key": "web.gpg", "priority": 1}),
        ("RedHat", {"url": "https://x", "key": "web.asc"}),
    ):
        converge(repository(family=family, **properties))
        assert converge(repository(family=family, ensure="absent")) == ["ensure present → absent"]
        assert etc.files() == {}


@pytest.mark.parametrize(("family", "tool"), [("Debian", "apt-get"), ("RedHat", "dnf")])
def test_missing_tool_is_reported_and_changes_nothing(
    repository: MakeRepository, machine: Machine, etc: Directories, family: str, tool: str
) -> None:
    def missing(command: Command) -> Completed:
        raise FileNotFoundError(2, f"no executable {command.arguments[0]!r} in /usr/bin")

    machine.execute = missing  # type: ignore[method-assign]  # the package manager is missing
    resource = repository(
        family=family, **({"url": "https://x", "key": "web.asc"} if family == "RedHat" else WEB)
    )
    actual = resource.look()
    with pytest.raises(ResourceError, match=f"{tool} cannot be started: no executable '{tool}' in /usr/bin"):
        resource.change(resource.differences(actual), actual)
    assert etc.files() == {}
