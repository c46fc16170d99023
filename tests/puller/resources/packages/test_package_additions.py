"""Further properties of packages: purged, held, provided by another package, from a file, debconf answers.

Every current state with every desired state, on a simulated Debian and Fedora. ``tests/system`` runs the real tools.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import PropertyError, Resource
from puller.resources.claims import Contradiction
from puller.resources.packages.package import Package
from puller.resources.packages.properties import PackageProperties
from tests.simulators import packages as simulator

if TYPE_CHECKING:
    from tests.simulators.packages import Debian, Fedora

Make = Callable[..., Resource[Any, Any]]
MakePackage = Callable[..., Package]
Converge = Callable[[Resource[Any, Any]], list[str]]

Deb, Rpm = simulator.Deb, simulator.Rpm
OFFERED = ["1.0-1", "1.1-1", "2.0-1"]


def a_debian(version: str = "", *, status: str = "installed", held: bool = False) -> Debian:
    machine: Debian = simulator.Debian(repository={"tool": list(OFFERED)}, architecture={"tool": "all"})
    if version:
        machine.packages["tool"] = Deb(version, status, "hold" if held else "install")
    return machine


def a_fedora(version: str = "", *, held: bool = False) -> Fedora:
    machine: Fedora = simulator.Fedora(repository=[Rpm("tool", version) for version in OFFERED])
    if version:
        machine.packages = [Rpm("tool", version)]
    if held:
        machine.locks = [f"tool-0:{version}.*"]
    return machine


UNKNOWN = " (changes of other packages are unknown until the run)"
FAMILIES: dict[str, Callable[..., Any]] = {"Debian": a_debian, "RedHat": a_fedora}


def predict(resource: Resource[Any, Any]) -> str:
    actual = resource.look()
    differences = resource.differences(actual)
    return resource.noop_message(differences, actual) if differences else "stable"


def is_held(machine: Any) -> bool:
    on_hold: bool = (
        machine.packages["tool"].want == "hold" if hasattr(machine, "apt_mark") else bool(machine.locks)
    )
    return on_hold


# Purged


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("installed", "Would have purged"),
        ("config-files", "Would have purged"),
        ("half-configured", "Would have purged"),
        ("unpacked", "Would have purged"),
        ("", "stable"),
    ],
)
def test_purged_leaves_no_configuration_file(
    package: MakePackage, converge: Converge, status: str, says: str
) -> None:
    machine = a_debian("1.0-1", status=status) if status else a_debian()
    assert predict(package(machine, ensure="purged", noop=True)) == says
    assert bool(converge(package(machine, ensure="purged"))) == (says != "stable")
    assert "tool" not in machine.packages
    changes = len(machine.changed)
    assert converge(package(machine, ensure="purged")) == []
    assert len(machine.changed) == changes
    assert machine.changed == [] or machine.changed[-1][1] == "purge"


def test_leftover_configuration_to_purge_is_reported(package: MakePackage) -> None:
    resource = package(a_debian("1.0-1", status="config-files"), ensure="purged")
    assert list(map(str, resource.differences(resource.look()))) == [
        "ensure absent with its configuration files → purged"
    ]


def test_absent_is_content_with_configuration_files(package: MakePackage) -> None:
    assert predict(package(a_debian("1.0-1", status="config-files"), ensure="absent")) == "stable"


def test_purged_is_absent_where_rpm_has_no_such_thing(package: MakePackage, converge: Converge) -> None:
    machine = a_fedora("1.0-1")
    assert predict(package(machine, ensure="purged", noop=True)) == "Would have uninstalled"
    converge(package(machine, ensure="purged"))
    assert machine.packages == []
    assert predict(package(machine, ensure="purged", noop=True)) == "stable"


def test_purge_and_removal_are_two_transactions(package: MakePackage) -> None:
    machine = a_debian("1.0-1")
    keys = [package(machine, ensure=ensure) for ensure in ("absent", "purged")]
    assert len({resource.transaction(resource.look()) for resource in keys}) == 2


# Held


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("found", "held_now", "ensure", "held", "says"),
    [
        ("", False, "present", True, "Would have installed version present, and held it"),
        ("", False, "present", False, "Would have installed version present"),
        ("1.0-1", False, "present", True, "Would have held it"),
        ("1.0-1", False, "present", False, "stable"),
        ("1.0-1", True, "present", True, "stable"),
        ("1.0-1", True, "present", False, "Would have released the hold"),
        ("1.0-1", True, "1.1-1", True, "Would have upgraded to 1.1-1"),
        ("1.0-1", False, "1.1-1", True, "Would have upgraded to 1.1-1, and held it"),
        ("1.0-1", True, "1.1-1", False, "Would have upgraded to 1.1-1, and released the hold"),
        ("2.0-1", True, "1.1-1", True, "Would have downgraded to 1.1-1"),
        ("1.1-1", True, "1.1-1", True, "stable"),
        ("1.0-1", True, "latest", False, "Would have upgraded to latest, and released the hold"),
        ("1.0-1", True, "absent", False, "Would have uninstalled"),
        ("", False, "absent", False, "stable"),
    ],
)
def test_a_hold_of_the_manifest_is_as_noop_says_and_stays(
    package: MakePackage,
    converge: Converge,
    family: str,
    found: str,
    held_now: bool,
    ensure: str,
    held: bool,
    says: str,
) -> None:
    machine = FAMILIES[family](found, held=held_now)
    assert predict(package(machine, ensure=ensure, held=held, noop=True)) == says
    assert machine.changed == []
    assert bool(converge(package(machine, ensure=ensure, held=held))) == (says != "stable")
    if ensure != "absent":
        assert is_held(machine) == held
        (version,) = machine.versions("tool")
        assert ensure in ("present", version) or (ensure == "latest" and version == "2.0-1")
    else:
        assert machine.versions("tool") == []
    changes = len(machine.changed)
    assert converge(package(machine, ensure=ensure, held=held)) == []
    assert len(machine.changed) == changes


@pytest.mark.parametrize("family", FAMILIES)
def test_unchanged_package_is_held_again(package: MakePackage, family: str) -> None:
    machine = FAMILIES[family]("1.0-1", held=True)
    machine.fails = {"tool"}
    resource = package(machine, ensure="1.1-1", held=True)
    actual = resource.look()
    with pytest.raises(ResourceError):
        resource.change(resource.differences(actual), actual)
    assert is_held(machine)


def test_packages_that_are_held_share_their_commands(package: MakePackage) -> None:
    machine = a_debian("1.0-1")
    machine.repository["other"] = ["3.0-1"]
    shared: dict[type, Any] = {}
    names = ("tool", "other")
    members = [package(machine, name, held=True, shared=shared, others=names) for name in names]
    Package.change_together([(member, member.look()) for member in members])
    assert [command[:2] for command in machine.changed] == [["apt-get", "install"], ["apt-mark", "hold"]]
    assert machine.changed[0][-2:] == ["--", "other"]
    assert machine.changed[1] == ["apt-mark", "hold", "--", "tool", "other"]


def test_fedora_without_versionlock_names_the_plugin(package: MakePackage) -> None:
    machine = a_fedora("1.0-1")
    machine.locks = None
    assert predict(package(machine)) == "stable", "who holds nothing needs no plugin"
    with pytest.raises(ResourceError, match="held: true requires dnf's plugin versionlock"):
        package(machine, held=True).look()


def test_locks_are_read_only_where_holds_exist(package: MakePackage) -> None:
    machine = a_fedora("1.0-1")
    predict(package(machine))
    assert [command[0] for command in machine.looked] == ["rpm"]


@pytest.mark.parametrize("ensure", ["latest", "absent", "purged"])
def test_held_package_does_not_change_by_itself(make: Make, ensure: str) -> None:
    with pytest.raises(
        PropertyError, match=f"held is true, and ensure is {ensure}; a package that is held stays"
    ):
        make(Package, {"name": "tool", "ensure": ensure, "held": True})


# Options


def test_options_reach_the_package_manager(package: MakePackage, converge: Converge) -> None:
    machine = a_debian()
    converge(package(machine, options={"recommends": False, "release": "backports"}))
    assert machine.changed[0][-5:] == ["-t", "backports", "--no-install-recommends", "--", "tool"]
    machine = a_debian()
    converge(package(machine, options={"recommends": True}))
    assert machine.changed[0][-3:] == ["--install-recommends", "--", "tool"]
    fedora = a_fedora()
    converge(package(fedora, options={"recommends": False}))
    assert fedora.changed[0] == ["dnf", "install", "-y", "--setopt=install_weak_deps=False", "--", "tool"]


def test_the_latest_of_a_release_is_asked_of_that_release(package: MakePackage) -> None:
    machine, shared = a_debian("1.0-1"), dict[type, Any]()
    package(machine, ensure="latest", options={"release": "backports"}, shared=shared).look()
    package(machine, ensure="latest", shared=shared).look()
    requested = [
        command[command.index("policy") - 2 :] for command in machine.looked if command[0] == "apt-cache"
    ]
    assert requested[0][:2] == ["-t", "backports"]
    assert len(requested) == 2


def test_noop_foretells_a_release_that_apt_does_not_know(
    package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, ask = a_debian(), simulator.Debian.apt_cache
    unknown = simulator.ended(100, stderr="E: The value 'backports' is invalid for APT::Default-Release\n")
    monkeypatch.setattr(machine, "apt_cache", lambda words: unknown if "-t" in words else ask(machine, words))
    with pytest.raises(ResourceError, match="The value 'backports' is invalid"):
        predict(package(machine, options={"release": "backports"}, noop=True))
    coming = package(machine, options={"release": "backports"}, noop=True)
    coming.context.system.expect("/etc/apt/sources.list.d/backports.sources", "file")
    assert predict(coming) == f"Would have installed version present{UNKNOWN}"


def test_packages_with_other_options_are_another_transaction(package: MakePackage) -> None:
    machine = a_debian()
    kinds: list[dict[str, Any]] = [
        {}, {"options": {"recommends": False}}, {"options": {"release": "backports"}}, {"held": True}, {"held": False},
    ]  # fmt: skip
    resources = [package(machine, **kind) for kind in [*kinds, {"options": {}}]]
    assert len({resource.transaction(resource.look()) for resource in resources}) == len(kinds)


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"options": {"release": "sid"}}, "release is 'sid', but only apt supports it, not dnf"),
        (
            {"debconf": [{"question": "tool/x", "type": "string", "value": "1"}]},
            "debconf is given, but only apt supports it, not dnf",
        ),
    ],
)
def test_apt_only_property_is_a_failure_on_fedora(
    package: MakePackage, properties: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ResourceError) as failure:
        package(a_fedora(), **properties).look()
    assert str(failure.value) == sentence


@pytest.mark.attack("data-names.package")
@pytest.mark.parametrize("release", ["-y", "", "a b", "--config-file=/tmp/x", "sid\n"])
def test_options_of_apt_are_no_releases(make: Make, release: str) -> None:
    with pytest.raises(PropertyError, match="options has the release"):
        make(Package, {"name": "tool", "options": {"release": release}})


# Virtual names


def provided(family: str, *, is_installed: bool) -> Any:
    """Return a machine on which ``server`` provides ``virtual``."""
    if family == "Debian":
        installed = {"server": Deb("1.0")} if is_installed else {}
        return simulator.Debian({"server": ["1.0"]}, installed, provides={"server": "mail, virtual"})
    packages = [Rpm("server", "1.0-1")] if is_installed else []
    return simulator.Fedora([Rpm("server", "1.0-1")], packages, provides={"server": "mail virtual"})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_name_that_an_installed_package_provides_is_present(package: MakePackage, family: str) -> None:
    machine = provided(family, is_installed=True)
    resource = package(machine, "virtual")
    assert predict(resource) == "stable"
    assert resource.final_ensure(resource.look()) == "provided by server"
    assert len({command[0] for command in machine.looked}) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_virtual_name_with_a_single_provider_is_installed(
    package: MakePackage, converge: Converge, family: str
) -> None:
    machine = provided(family, is_installed=False)
    assert predict(package(machine, "virtual", noop=True)) == "Would have installed version present"
    converge(package(machine, "virtual"))
    assert machine.versions("server") != []
    assert predict(package(machine, "virtual", noop=True)) == "stable"


def test_virtual_name_with_several_providers_is_refused(package: MakePackage) -> None:
    machine = provided("Debian", is_installed=False)
    machine.repository["other"] = ["1.0"]
    machine.provides["other"] = "virtual"
    with pytest.raises(ResourceError) as failure:
        predict(package(machine, "virtual", noop=True))
    assert str(failure.value) == "is a name that other, server provide, expected one of these packages"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ensure", ["absent", "purged", "latest", "1.0"])
def test_a_name_has_no_version_and_cannot_be_removed(package: MakePackage, family: str, ensure: str) -> None:
    machine = provided(family, is_installed=True)
    sentence = (
        f"is not a package here, but provided by server, which would have to be removed, expected {ensure}"
        if ensure in ("absent", "purged")
        else f"is a name, not a package: provided by server, and has no version, expected {ensure}"
    )
    for noop in (True, False):
        resource = package(machine, "virtual", ensure=ensure, noop=noop)
        actual = resource.look()
        differences = resource.differences(actual)
        with pytest.raises(ResourceError) as failure:
            (resource.noop_message if noop else resource.change)(differences, actual)
        assert str(failure.value) == sentence
    assert machine.changed == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_name_cannot_be_held(package: MakePackage, family: str) -> None:
    resource = package(provided(family, is_installed=True), "virtual", held=True)
    actual = resource.look()
    with pytest.raises(
        ResourceError, match="is a name, not a package: provided by server, and cannot be held"
    ):
        resource.change(resource.differences(actual), actual)


def test_configuration_of_a_virtual_name_is_purged(package: MakePackage) -> None:
    machine = provided("Debian", is_installed=True)
    machine.packages["virtual"] = Deb("1.0", "config-files")
    with pytest.raises(ResourceError, match="is not a package here, but provided by server"):
        predict(package(machine, "virtual", ensure="absent"))
    resource = package(machine, "virtual", ensure="purged")
    actual = resource.look()
    resource.change(resource.differences(actual), actual)
    assert "virtual" not in machine.packages


def test_real_package_beats_providers_with_a_version(package: MakePackage, converge: Converge) -> None:
    machine = provided("Debian", is_installed=True)
    machine.repository["virtual"] = ["2.0"]
    converge(package(machine, "virtual", ensure="latest"))
    assert machine.versions("virtual") == ["2.0"]


def test_broken_package_provides_nothing(package: MakePackage) -> None:
    machine = provided("Debian", is_installed=True)
    machine.packages["server"].status = "half-configured"
    assert predict(package(machine, "virtual")) == "Would have installed version present"


# Files


def a_file(directory: Path, family: str, version: str = "1.1-1", name: str = "tool") -> str:
    path = directory / f"{name}.{'deb' if family == 'Debian' else 'rpm'}"
    path.write_text(f"{name} {version} {'all' if family == 'Debian' else 'x86_64'}")
    return path.name


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("found", "ensure", "says"),
    [
        ("", "present", "Would have installed version 1.1-1"),
        ("1.0-1", "present", "Would have upgraded to 1.1-1"),
        ("1.1-1", "present", "stable"),
        ("2.0-1", "present", "stable"),
        ("2.0-1", "1.1", "Would have downgraded to 1.1"),
        ("1.0-1", "1.1-1", "Would have upgraded to 1.1-1"),
        ("1.1-1", "1.1", "stable"),
        ("1.1-1", "absent", "Would have uninstalled"),
        ("", "absent", "stable"),
    ],
)
def test_deb_file_is_installed_when_missing_or_older(
    package: MakePackage, converge: Converge, tmp_path: Path, family: str, found: str, ensure: str, says: str
) -> None:
    machine = FAMILIES[family](found)
    machine.repository = {} if family == "Debian" else []
    source = a_file(tmp_path, family)
    assert predict(package(machine, ensure=ensure, source=source, noop=True)) == says
    assert bool(converge(package(machine, ensure=ensure, source=source))) == (says != "stable")
    if says.endswith(("1.1-1", "1.1")):
        assert machine.changed[-1][-1] == str(tmp_path / source)
        assert ("--allow-downgrades" in machine.changed[-1]) == (family == "Debian" and ensure != "present")
    changes = len(machine.changed)
    assert converge(package(machine, ensure=ensure, source=source)) == []
    assert len(machine.changed) == changes


@pytest.mark.parametrize("family", FAMILIES)
def test_deb_file_must_match_name_and_version(package: MakePackage, tmp_path: Path, family: str) -> None:
    machine = FAMILIES[family]()
    architecture = "all" if family == "Debian" else "x86_64"
    other = a_file(tmp_path, family, name="other")
    with pytest.raises(
        ResourceError, match=rf"source {other} is the package other \({architecture}\), expected tool"
    ):
        package(machine, source=other).look()
    tool = a_file(tmp_path, family)
    with pytest.raises(ResourceError, match=rf"source {tool} is version 1.1-1, expected 2.0"):
        package(machine, source=tool, ensure="2.0").look()
    with pytest.raises(ResourceError, match=rf"source gone{Path(tool).suffix} is missing"):
        package(machine, source=f"gone{Path(tool).suffix}").look()


def test_noop_waits_for_a_file_that_an_earlier_resource_brings(package: MakePackage) -> None:
    resource = package(a_debian(), source="/srv/not-there/tool.deb", noop=True)
    resource.context.system.expect("/srv/not-there/tool.deb", "file")
    assert predict(resource) == f"Would have installed version present{UNKNOWN}"


@pytest.mark.parametrize("family", FAMILIES)
def test_remote_deb_is_fetched_once_for_both_steps(
    package: MakePackage, converge: Converge, tmp_path: Path, family: str
) -> None:
    machine, fetched = FAMILIES[family](), list[str]()
    content = (tmp_path / a_file(tmp_path, family)).read_bytes()

    def fetch(url: str) -> bytes:
        fetched.append(url)
        return content

    url = f"https://example.com/tool{'.deb' if family == 'Debian' else '.rpm'}?x=1"
    properties = {"source": url, "checksum": hashlib.sha256(content).hexdigest()}
    context = {"fetch": fetch, "state_directory": tmp_path / "state"}
    assert (
        predict(package(machine, context=context, noop=True, **properties))
        == "Would have installed version 1.1-1"
    )
    assert not (tmp_path / "state").exists()
    fetched.clear()
    converge(package(machine, context=context, **properties))
    assert len(fetched) == 2
    path = Path(machine.changed[-1][-1])
    assert path.name.startswith("package.")
    assert not path.parent.exists()
    assert converge(package(machine, context=context, **properties)) == []
    assert len(fetched) == 2


@pytest.mark.root
@pytest.mark.attack("packages.writable")
@pytest.mark.parametrize("what", ["file", "directory", "link"])
def test_exchangeable_deb_requires_a_checksum(
    package: MakePackage, converge: Converge, tmp_path: Path, what: str
) -> None:
    machine = a_debian()
    (tmp_path / "theirs").mkdir()
    path = tmp_path / "theirs" / "tool.deb"
    content = (tmp_path / a_file(tmp_path, "Debian")).read_bytes()
    path.write_bytes(content)
    os.chown(path if what == "file" else path.parent, 65534, 65534)
    source = path
    if what == "link":
        source = tmp_path / "link.deb"
        source.symlink_to(path)
    for noop in (True, False):
        with pytest.raises(ResourceError, match=r"may be a file of another user: .* belongs to user 65534"):
            package(machine, source=str(source), noop=noop).look()
    assert machine.changed == []
    converge(package(machine, source=str(source), checksum=hashlib.sha256(content).hexdigest()))
    assert Path(machine.changed[-1][-1]).name == "package.deb"


@pytest.mark.attack("packages.checksum")
def test_deb_with_a_wrong_checksum_never_reaches_apt(package: MakePackage, tmp_path: Path) -> None:
    machine = a_debian()
    machine.dpkg_deb = None  # type: ignore[method-assign, assignment]  # no file may be parsed
    source = a_file(tmp_path, "Debian")
    for noop in (True, False):
        with pytest.raises(ResourceError, match=f"source {source} has sha256 [0-9a-f]{{64}}, expected 0000"):
            package(machine, source=source, checksum="0" * 64, noop=noop).look()
    served = package(
        machine, source="http://x/tool.deb", checksum="0" * 64, context={"fetch": lambda url: b"tool 1 all"}
    )
    with pytest.raises(ResourceError, match=r"source http://x/tool\.deb has sha256") as raised:
        served.look()
    assert raised.value.code is ProblemCode.CHECKSUM_MISMATCH
    assert machine.changed == []


@pytest.mark.attack("packages.parser")
def test_package_manager_parses_only_bytes_that_were_checked(
    package: MakePackage, converge: Converge, tmp_path: Path
) -> None:
    """The file is replaced after the comparison, and before it is parsed and installed."""
    machine = a_debian()
    path = tmp_path / a_file(tmp_path, "Debian")
    content, parsed, parse = path.read_bytes(), [], machine.dpkg_deb

    def exchange(arguments: list[str]) -> Any:
        path.write_bytes(b"something else")
        parsed.append(Path(arguments[-1]).read_bytes())
        return parse(arguments)

    machine.dpkg_deb = exchange  # type: ignore[method-assign]
    checksum = hashlib.sha256(content).hexdigest()
    properties = {
        "source": path.name,
        "checksum": checksum,
        "context": {"state_directory": tmp_path / "state"},
    }
    resource = package(machine, **properties)
    actual = resource.look()
    assert parsed == [content]
    with pytest.raises(ResourceError, match="has sha256"):
        resource.change(resource.differences(actual), actual)
    assert machine.changed == []
    path.write_bytes(content)
    assert converge(package(machine, **properties)) != []
    path.write_bytes(b"something else")
    with pytest.raises(ResourceError, match="has sha256"):
        package(a_debian(), noop=True, **properties).look()
    path.unlink()
    with pytest.raises(ResourceError, match="is missing"):
        package(machine, **properties).look()


@pytest.mark.attack("data-names.package")
@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"source": "tool.zip"}, "source is 'tool.zip', expected a file that ends in .deb or .rpm"),
        (
            {"source": "ftp://x/tool.deb"},
            "source is 'ftp://x/tool.deb', expected a file or an http(s):// URL",
        ),
        ({"source": "http://x/tool.deb"}, "checksum is missing; it is required where source is a URL"),
        ({"source": "a\0.deb"}, "source is 'a\\x00.deb', expected a file that ends in .deb or .rpm"),
        (
            {"source": "a.deb", "checksum": "AB"},
            "checksum is 'AB', expected 64 lower-case hexadecimal digits (SHA-256)",
        ),
        ({"checksum": "0" * 64}, "checksum is given, but source is missing"),
        (
            {"source": "a.deb", "ensure": "latest"},
            "source is given, but latest is only for repositories: expected ensure: present or a version",
        ),
    ],
)
def test_sources_that_cannot_be_are_refused(make: Make, properties: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PropertyError) as failure:
        make(Package, {"name": "tool", **properties})
    assert str(failure.value) == sentence


# Answers to debconf

ANSWERS = [
    {"question": "tool/question", "type": "password", "value": "hunter two "},
    {"question": "tool/kind", "type": "select", "value": "Internet Site"},
]


@pytest.mark.attack("secrets.answers")
def test_answers_are_set_before_installation_by_input(package: MakePackage, converge: Converge) -> None:
    machine = a_debian()
    machine.asked["tool"] = ""
    converge(package(machine, debconf=ANSWERS))
    assert machine.asked["tool"] == "hunter two "
    assert machine.answers["tool/kind"] == "Internet Site"
    assert [command[0] for command in machine.changed] == ["debconf-set-selections", "apt-get"]
    assert "hunter" not in str([machine.changed, machine.looked])


def test_installed_package_gets_no_answers(package: MakePackage, converge: Converge) -> None:
    machine = a_debian("1.0-1")
    assert converge(package(machine, debconf=ANSWERS)) == []
    assert not machine.answers
    assert [command[0] for command in machine.looked] == ["dpkg-query"]
    converge(package(machine, debconf=ANSWERS, ensure="latest"))
    assert not machine.answers


def test_an_answer_that_comes_too_late_is_a_warning(
    package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "config.dat"
    database.write_text(
        "Name: tool/kind\nTemplate: tool/kind\nValue: No configuration\n\nName: tool/other\nOwners: tool\n\n"
    )
    monkeypatch.setattr("puller.resources.packages.installation.DATABASE", str(database))
    resource = package(a_debian("1.0-1"), debconf=ANSWERS)
    assert predict(resource) == "stable"
    assert list(resource.notes) == [
        "debconf has another answer to tool/kind, but installed packages do not read it again (dpkg-reconfigure)"
    ]
    database.write_text(database.read_text().replace("No configuration", "Internet Site"))
    resource = package(a_debian("1.0-1"), debconf=ANSWERS)
    resource.look()
    assert list(resource.notes) == []


def test_answers_of_several_packages_are_set_together(package: MakePackage) -> None:
    machine = a_debian()
    machine.repository["other"] = ["3.0-1"]
    shared, names = dict[type, Any](), ("tool", "other")
    members = [package(machine, name, debconf=ANSWERS, shared=shared, others=names) for name in names]
    Package.change_together([(member, member.look()) for member in members])
    assert [command[0] for command in machine.changed] == ["debconf-set-selections", "apt-get"]
    assert [command[0] for command in machine.looked].count("debconf-communicate") == 1


@pytest.mark.attack("secrets.answers")
@pytest.mark.parametrize(
    "answer", ["10 tool/question doesn't exist\n0 Internet Site\n", "0 hunter two\n0 x\n", ""]
)
def test_unaccepted_answer_is_a_masked_failure(
    package: MakePackage, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    machine = a_debian()
    monkeypatch.setattr(machine, "debconf_communicate", lambda arguments: simulator.ended(stdout=answer))
    resource = package(machine, debconf=ANSWERS)
    actual = resource.look()
    with pytest.raises(ResourceError, match=r"^debconf") as failure:
        resource.change(resource.differences(actual), actual)
    assert "hunter" not in str(failure.value)
    assert machine.versions("tool") == []


@pytest.mark.attack("data-names.answers")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"question": "-x"}, "debconf has the question '-x', expected one such as 'postfix/mailname'"),
        ({"question": "a b"}, "debconf has the question 'a b', expected one such as 'postfix/mailname'"),
        (
            {"type": "bogus"},
            "debconf has the type 'bogus', expected one of boolean, multiselect, password, select, string",
        ),
        *(
            (
                {"value": value},
                "debconf has a value for 'tool/question' with a line end or a backslash that debconf cannot keep",
            )
            for value in ("a\nb", "a\\nb", "a\\", "a\0b", "a\rb")
        ),
    ],
)
def test_ambiguous_answers_are_refused(make: Make, change: dict[str, str], sentence: str) -> None:
    with pytest.raises(PropertyError) as failure:
        make(Package, {"name": "tool", "debconf": [{**ANSWERS[0], **change}]})
    assert str(failure.value) == sentence


@pytest.mark.attack("secrets.answers")
def test_answers_are_not_shown(make: Make) -> None:
    properties = make(Package, {"name": "tool", "debconf": ANSWERS}).properties
    assert "hunter" not in repr(properties)


# Two declarations of one package


@pytest.mark.parametrize(
    ("one", "other", "agreed"),
    [
        ("absent", "purged", "purged"),
        ("purged", "absent", "purged"),
        ("purged", "purged", "purged"),
        ("present", "latest", "latest"),
        ("present", "purged", None),
        ("latest", "absent", None),
    ],
)
def test_who_wants_it_gone_agrees_with_who_wants_it_purged(one: str, other: str, agreed: str | None) -> None:
    first, second = (PackageProperties(name="tool", ensure=ensure) for ensure in (one, other))
    if agreed is None:
        with pytest.raises(Contradiction):
            Package.agree(first, second)
    else:
        assert Package.agree(first, second).ensure == agreed


def test_hold_covers_the_architectures_of_its_package(package: MakePackage, converge: Converge) -> None:
    machine = a_fedora("1.0-1")
    machine.packages.append(Rpm("python3", "3.9-1"))
    machine.locks = ["python3-0:3.9-1.*"]
    machine.packages.append(Rpm("python3.11", "3.11-1"))
    assert converge(package(machine, "python3.11", held=True)) == ["held false → true"]
    converge(package(machine, "tool.x86_64", held=True))
    assert machine.locks == ["python3-0:3.9-1.*", "python3.11-0:3.11-1.*", "tool-0:1.0-1.*"]
    assert predict(package(machine, "tool", held=True)) == "stable"
    converge(package(machine, "tool:x86_64", held=False))
    assert machine.locks == ["python3-0:3.9-1.*", "python3.11-0:3.11-1.*"]


class Killed(BaseException):
    """Raised at a simulated power failure."""


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "properties",
    [
        {"ensure": "1.1-1", "held": True},
        {"ensure": "latest", "held": False},
        {"ensure": "absent", "held": False},
        {"held": True, "debconf": ANSWERS},
    ],
    ids=str,
)
def test_a_run_that_is_killed_anywhere_is_made_good_by_the_next(
    package: MakePackage,
    converge: Converge,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    properties: dict[str, Any],
) -> None:
    if "debconf" in properties and family == "RedHat":
        properties = {"held": True}
    is_new = "ensure" not in properties
    for steps in range(5):
        machine = FAMILIES[family](*([] if is_new else ["1.0-1"]), held=not is_new)
        execute, remaining = machine.execute, [steps]

        def until_killed(command: Any, execute: Any = execute, remaining: list[int] = remaining) -> Any:
            if remaining[0] == 0:
                raise Killed
            remaining[0] -= 1
            return execute(command)

        monkeypatch.setattr(machine, "execute", until_killed)
        resource = package(machine, **properties)
        actual = resource.look()
        with contextlib.suppress(Killed):
            resource.change(resource.differences(actual), actual)
        monkeypatch.setattr(machine, "execute", execute)
        converge(package(machine, **properties))
        assert converge(package(machine, **properties)) == []
        if properties.get("held"):
            assert is_held(machine)
