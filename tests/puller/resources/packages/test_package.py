"""The package resource: every current state with every desired state, on a simulated Debian and Fedora.

``tests/system/test_packages_apt.py`` and ``test_packages_dnf.py`` run the same table with the real tools.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from puller.errors import MutationInNoop, ResourceError
from puller.resources.base import PropertyError, Resource
from puller.resources.packages.package import Package
from tests.simulators import packages as simulator

if TYPE_CHECKING:
    from tests.simulators.packages import Debian, Fedora

Make = Callable[..., Resource[Any, Any]]
MakePackage = Callable[..., Package]
Converge = Callable[[Resource[Any, Any]], list[str]]
CASES = Path(__file__).parents[3] / "cases" / "packages"


Deb, Rpm = simulator.Deb, simulator.Rpm
OFFERED = ["1.0-1", "1.1-1", "2.0-1"]


def a_debian(state: str = "absent") -> Debian:
    """Return a Debian with ``tool`` at a version, ``absent``, or at 1.1-1 in a state of dpkg."""
    machine: Debian = simulator.Debian(repository={"tool": list(OFFERED)}, architecture={"tool": "all"})
    if state in ("config-files", "half-configured", "unpacked", "half-installed", "triggers-pending"):
        machine.packages["tool"] = Deb("1.1-1", state)
    elif state != "absent":
        machine.packages["tool"] = Deb(state)
    return machine


def a_fedora(state: str = "absent") -> Fedora:
    """Return a Fedora with ``tool`` absent, or with versions installed side by side."""
    machine: Fedora = simulator.Fedora(repository=[Rpm("tool", version) for version in OFFERED])
    if state != "absent":
        machine.packages = [Rpm("tool", version) for version in state.split(" and ")]
    return machine


UNKNOWN = " (changes of other packages are unknown until the run)"
FAMILIES = {"Debian": a_debian, "RedHat": a_fedora}


def predict(resource: Resource[Any, Any]) -> str:
    actual = resource.look()
    differences = resource.differences(actual)
    return resource.noop_message(differences, actual) if differences else "stable"


DECISIONS: dict[str, dict[str, str]] = yaml.load((CASES / "decisions.yaml").read_text(), yaml.CSafeLoader)
TABLE = [
    pytest.param(family, actual, desired, says, id=f"{family}: {actual}, expected {desired}")
    for family in FAMILIES
    for actual, row in DECISIONS.items()
    for desired, says in row.items()
]
# States that exist in a single family.
TABLE += [
    pytest.param(family, actual, desired, says, id=f"{family}: {actual}, expected {desired}")
    for family, actual, row in [
        ("Debian", "config-files", DECISIONS["absent"]),
        ("Debian", "triggers-pending", DECISIONS["1.1-1"]),
        *(
            ("Debian", state, {**DECISIONS["absent"], "absent": "uninstalled"})
            for state in ("half-configured", "unpacked", "half-installed")
        ),
        ("RedHat", "1.0-1 and 1.1-1", {**DECISIONS["1.1-1"], "1.0": "stable", "1.0-1": "stable"}),
        ("RedHat", "1.0-1 and 2.0-1", DECISIONS["2.0-1"]),
    ]
    for desired, says in row.items()
]


@pytest.mark.representatives(30)
@pytest.mark.parametrize(("family", "actual", "desired", "says"), TABLE)
def test_noop_predicts_the_run_and_the_second_is_stable(
    package: MakePackage,
    converge: Callable[..., list[str]],
    family: str,
    actual: str,
    desired: str,
    says: str,
) -> None:
    machine = FAMILIES[family](actual)
    before = machine.versions("tool")
    assert predict(package(machine, ensure=desired, noop=True)).removeprefix("Would have ") == says
    assert machine.versions("tool") == before
    assert bool(converge(package(machine, ensure=desired))) == (says != "stable")
    after = machine.versions("tool")
    if desired == "absent":
        assert after == []
    elif desired == "latest":
        assert after[-1] == ("1:0.9-1" if actual == "1:0.9-1" else "2.0-1")
    elif desired != "present":
        assert any(version.startswith(desired) for version in after)
    else:
        assert after
    changes = len(machine.changed)
    assert not converge(package(machine, ensure=desired))
    assert len(machine.changed) == changes


def test_differences_name_both_versions(package: MakePackage) -> None:
    resource = package(a_debian("1.0-1"), ensure="latest")
    (difference,) = resource.differences(resource.look())
    assert str(difference) == "ensure 1.0-1 → latest (2.0-1)"
    assert resource.final_ensure(resource.look()) == "1.0-1"


def test_a_broken_installation_is_named_as_it_is(package: MakePackage) -> None:
    resource = package(a_debian("half-configured"))
    (difference,) = resource.differences(resource.look())
    assert str(difference) == "ensure 1.1-1 (half-configured) → present"


def test_looking_never_changes(package: MakePackage) -> None:
    resource = package(a_debian(), noop=True)
    with pytest.raises(MutationInNoop):
        resource.change([], resource.look())


# Missing packages and versions


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("name", "ensure", "message"),
    [
        ("missing", "present", "no configured repository offers a package missing"),
        ("missing", "latest", "no configured repository offers a package missing"),
        ("missing", "1.0", r"version 1.0 is not available \(available: none\)"),
        ("tool", "9.9", r"version 9.9 is not available \(available: "),
    ],
)
def test_noop_foretells_that_nothing_offers_a_package_or_version(
    package: MakePackage, converge: Converge, family: str, name: str, ensure: str, message: str
) -> None:
    machine = FAMILIES[family]()
    with pytest.raises(ResourceError, match=message):
        predict(package(machine, name, noop=True, ensure=ensure))
    with pytest.raises(ResourceError):
        converge(package(machine, name, ensure=ensure))


@pytest.mark.parametrize(("family", "asking", "times"), [("Debian", "apt-cache", 1), ("RedHat", "dnf", 3)])
def test_noop_simulates_all_installations_at_once(
    package: MakePackage, family: str, asking: str, times: int
) -> None:
    machine, shared = FAMILIES[family](), dict[type, Any]()
    names = [f"missing{number}" for number in range(20)]
    for name in ("tool", *names):
        with contextlib.suppress(ResourceError):
            predict(package(machine, name, others=("tool", *names), shared=shared, noop=True))
    assert [command[0] for command in machine.looked].count(asking) == times
    in_order = FAMILIES[family]("1.0-1")
    predict(package(in_order, noop=True))
    assert asking not in [command[0] for command in in_order.looked]


@pytest.mark.parametrize("family", FAMILIES)
def test_noop_without_repositories_predicts_no_missing_package(package: MakePackage, family: str) -> None:
    """On a fresh machine, the run itself fetches the metadata."""
    machine: Any = FAMILIES[family]()
    if family == "Debian":
        machine.repository, machine.published = {}, machine.repository
    else:
        machine.is_cached = False
    for ensure, says in {"present": "version present", "latest": "latest", "1.1-1": "version 1.1-1"}.items():
        assert predict(package(machine, ensure=ensure, noop=True)) == f"Would have installed {says}{UNKNOWN}"


@pytest.mark.parametrize(("family", "path"), [("Debian", "/etc/apt/a"), ("RedHat", "/etc/yum.repos.d/a")])
def test_noop_believes_in_repositories_that_the_run_would_add(
    package: MakePackage, family: str, path: str
) -> None:
    machine: Any = FAMILIES[family]()
    shared = dict[type, Any]()
    resource = package(machine, "missing", noop=True)
    resource.context.system.expect(path, "file")
    assert predict(resource) == f"Would have installed version present{UNKNOWN}"
    with pytest.raises(ResourceError):
        predict(package(machine, "missing", noop=True))
    if family == "Debian":
        machine.repository["epel-release"] = ["1-1"]
    else:
        machine.repository.append(Rpm("epel-release", "1-1"))
    for name in ("epel-release", "missing"):
        resource = package(machine, name, noop=True, shared=shared)
        assert predict(resource) == f"Would have installed version present{UNKNOWN}"


# One query for all packages


@pytest.mark.parametrize(("family", "tool"), [("Debian", "dpkg-query"), ("RedHat", "rpm")])
def test_single_process_reads_all_packages(package: MakePackage, family: str, tool: str) -> None:
    """The reference started a process for each package, and two or three for each change."""
    machine, shared = FAMILIES[family]("1.0-1"), dict[type, Any]()
    names = [f"other{number}" for number in range(500)]
    for name in ["tool", *names]:
        package(machine, name, others=("tool", *names), shared=shared).look()
    assert [command[0] for command in machine.looked] == [tool]


@pytest.mark.parametrize(("family", "candidates"), [("Debian", "apt-cache"), ("RedHat", "dnf")])
def test_single_process_lists_latest_versions(package: MakePackage, family: str, candidates: str) -> None:
    """The reference started a package manager for each package, even without updates."""
    machine, shared = FAMILIES[family]("2.0-1"), dict[type, Any]()
    for name in ("tool", "tool", "missing"):
        resource = package(machine, name, others=("tool", "missing"), shared=shared, ensure="latest")
        resource.look()
    assert [command[0] for command in machine.looked].count(candidates) == 1
    assert machine.changed == []


def test_the_answer_is_asked_for_again_after_a_change(package: MakePackage) -> None:
    machine, shared = a_debian(), dict[type, Any]()
    resource = package(machine, shared=shared)
    assert str(resource.look()) == "absent"
    machine.packages["tool"] = Deb("1.0-1")
    assert str(resource.look()) == "absent"
    machine.executed += 1
    assert str(resource.look()) == "1.0-1"


def test_unreadable_database_is_read_once_and_fails_all(package: MakePackage) -> None:
    machine, shared = a_fedora("1.0-1"), dict[type, Any]()
    machine.database_error = "error: cannot open Packages database in /var/lib/rpm\n"
    for name in ("tool", "other"):
        with pytest.raises(ResourceError, match="cannot open Packages database"):
            package(machine, name, others=("tool", "other"), shared=shared).look()
    assert len(machine.looked) == 1


def test_packages_of_equal_kind_share_a_transaction(package: MakePackage) -> None:
    machine = a_debian()
    machine.repository["other"] = ["3.0-1"]
    shared: dict[type, Any] = {}
    members = [package(machine, name, shared=shared, others=("tool", "other")) for name in ("tool", "other")]
    states = [(resource, resource.look()) for resource in members]
    assert len({resource.transaction(state) for resource, state in states}) == 1
    Package.change_together(states)
    assert [command[1] for command in machine.changed] == ["install"]
    assert machine.changed[0][-3:] == ["--", "tool", "other"]
    assert [str(resource.look()) for resource in members] == ["2.0-1", "3.0-1"]


def test_packages_of_other_kinds_do_not_share_a_transaction(package: MakePackage) -> None:
    machine = a_debian("1.0-1")
    kinds: list[dict[str, Any]] = [
        {"ensure": "1.0-1"},
        {"ensure": "present"},
        {"ensure": "absent"},
        {"timeout": 5},
        {"lock_timeout": 5},
    ]
    keys = [package(machine, **kind).transaction(package(machine, **kind).look()) for kind in kinds]
    assert len(set(keys)) == len(kinds)


# Multi-arch, several versions, hold


@pytest.mark.parametrize(
    ("name", "seen"),
    [("multi", "1.0"), ("multi:amd64", "1.0"), ("multi:i386", "2.0"), ("multi:armhf", "absent"),
     ("foreign", "absent"), ("foreign:i386", "3.0"), ("everywhere:amd64", "4.0"), ("everywhere", "4.0")],
)  # fmt: skip
def test_packages_of_several_architectures_are_told_apart(package: MakePackage, name: str, seen: str) -> None:
    """The reference could not read two records of one package, and treated it as absent."""
    machine = a_debian()
    machine.architecture["everywhere"] = "all"
    machine.packages |= {
        "multi": Deb("1.0"), "multi:i386": Deb("2.0"), "foreign:i386": Deb("3.0"), "everywhere": Deb("4.0"),
    }  # fmt: skip
    assert str(package(machine, name).look()) == seen


@pytest.mark.parametrize("name", ["tool.i686", "tool:i686"])
def test_package_of_another_architecture_installs_on_fedora(
    package: MakePackage, converge: Callable[..., list[str]], name: str
) -> None:
    machine = a_fedora("1.1-1")
    machine.repository += [Rpm("tool", "1.0-1", "i686"), Rpm("tool", "1.1-1", "i686")]
    converge(package(machine, name, ensure="1.0"))
    assert machine.changed[-1][-1] == "tool-0:1.0-1.i686"
    assert machine.packages == [Rpm("tool", "1.1-1"), Rpm("tool", "1.0-1", "i686")]


def test_several_installed_versions_are_all_seen(package: MakePackage) -> None:
    """The reference could not read the output of ``rpm -q kernel``."""
    machine = a_fedora("1.0-1 and 2.0-1")
    machine.side_by_side.add("tool")
    assert str(package(machine).look()) == "2.0-1, 1.0-1"
    resource = package(machine, ensure="1.1")
    resource.change([], resource.look())
    assert machine.versions("tool") == ["1.0-1", "1.1-1", "2.0-1"]


def test_a_version_of_several_architectures_is_said_once(package: MakePackage) -> None:
    machine = a_fedora("1.0-1")
    machine.packages.append(Rpm("tool", "1.0-1", "i686"))
    assert str(package(machine).look()) == "1.0-1"


def test_the_documents_own_example_is_reached_and_stays(
    package: MakePackage, converge: Callable[..., list[str]]
) -> None:
    """The reference installed ``1.24.0-1.el9``, then failed, because it expected the version without the release."""
    machine: Fedora = simulator.Fedora(
        repository=[Rpm("nginx", "1:1.24.0-1.el9"), Rpm("nginx", "1:1.26.0-1.el9")]
    )
    for requested in ("1.24.0-1.el9", "1.24.0", "1:1.24.0-1.el9", "1:1.24.0"):
        machine.packages = []
        assert converge(package(machine, "nginx", ensure=requested))
        assert machine.changed[-1][-1] == "nginx-1:1.24.0-1.el9"
        assert not converge(package(machine, "nginx", ensure=requested))


@pytest.mark.parametrize("desired", ["latest", "1.1-1", "absent"])
def test_a_held_package_is_left_alone_in_noop_too(package: MakePackage, desired: str) -> None:
    machine = a_debian("1.0-1")
    machine.packages["tool"].want = "hold"
    sentence = f"is held at 1.0-1 (apt-mark hold), so it is left as it is, expected {desired}"
    for noop in (True, False):
        resource = package(machine, ensure=desired, noop=noop)
        state = resource.look()
        with pytest.raises(ResourceError) as failure:
            (resource.noop_message if noop else resource.change)(resource.differences(state), state)
        assert str(failure.value) == sentence
        assert resource.transaction(state) is None
    assert machine.changed == []


def test_a_held_package_that_is_as_wanted_is_stable(package: MakePackage) -> None:
    machine = a_debian("1.0-1")
    machine.packages["tool"].want = "hold"
    assert predict(package(machine, ensure="present")) == "stable"
    assert predict(package(machine, ensure="1.0")) == "stable"


# Choice of the provider


@pytest.mark.parametrize(("family", "provider"), [("Debian", "apt"), ("RedHat", "dnf")])
def test_provider_is_the_package_manager_of_the_machine(
    package: MakePackage, family: str, provider: str
) -> None:
    """The reference looked for the tools. On a machine with both it chose one at random."""
    assert package(a_debian(), family=family).provider == provider


def test_a_provider_can_be_named(package: MakePackage) -> None:
    machine = a_fedora("1.0-1")
    assert str(package(machine, provider="dnf", family="Debian").look()) == "1.0-1"


def test_a_machine_that_neither_manages_is_refused(package: MakePackage) -> None:
    with pytest.raises(ResourceError, match=r"the fact os\.family is 'Plan9'"):
        package(a_debian(), family="Plan9").look()


def test_missing_tool_is_a_failure_and_no_absent_package(make: Make) -> None:
    """Uses the class of the real system, without either program."""
    resource = make(Package, {"name": "tool", "provider": "apt"})

    class Bare(type(resource.context.system)):  # type: ignore[misc]  # the class of the real machine
        def query(self, command: Any) -> Any:
            raise FileNotFoundError(2, f"no executable {command.arguments[0]!r} in /usr/bin")

    resource.context = msgspec.structs.replace(resource.context, system=Bare())
    with pytest.raises(
        ResourceError, match="dpkg-query cannot be started: no executable 'dpkg-query' in /usr/bin"
    ):
        resource.look()


# Errors at load


GOOD_NAMES = ["nginx", "g++", "libstdc++6:i386", "python3.11", "glibc.i686", "0ad", "R-core", "a_b", "x~y"]
BAD_NAMES = {
    "-y": "is '-y', expected letters, digits and . + _ : ~ -, a letter or digit first",
    "--allow-unauthenticated": "a letter or digit first",
    "": "a letter or digit first",
    "nginx;reboot": "a letter or digit first",
    "nginx vim": "a letter or digit first",
    "nginx\n": "a letter or digit first",
    "nginx=1.0": "a letter or digit first",
    "nginx/sid": "a letter or digit first",
    "./local.deb": "a letter or digit first",
    "task^": "a letter or digit first",
    "nginx*": "a letter or digit first",
    "café": "a letter or digit first",
    ".hidden": "a letter or digit first",
    "sl-": "is 'sl-', which apt reads as a request to remove 'sl'",
}


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_names_of_packages_are_accepted(make: Make, name: str) -> None:
    assert make(Package, {"name": name}).properties.name == name


@pytest.mark.attack("data-names.package")
@pytest.mark.parametrize(("name", "sentence"), BAD_NAMES.items())
def test_options_and_patterns_are_no_names(make: Make, name: str, sentence: str) -> None:
    """The reference accepted names with a leading hyphen, and did not end the options before them."""
    with pytest.raises(PropertyError, match=r"^name ") as failure:
        make(Package, {"name": name})
    assert sentence in str(failure.value)


@pytest.mark.parametrize("ensure", ["1.24.0-1", "1:2.0~rc1-1+b2", "1.0^git1-3.el9", "2", "r42", "20240101"])
def test_versions_are_accepted(make: Make, ensure: str) -> None:
    assert make(Package, {"name": "tool", "ensure": ensure}).properties.ensure == ensure


@pytest.mark.parametrize(
    ("ensure", "suggestion"),
    [
        ("installed", " (did you mean 'present'?)"),
        *(
            (x, "")
            for x in ["lastest", "", "-1.0", "1.0 -y", "1.0;id", "1.*", "=1.0", "~1.0", "1.0\n", "$(id)1"]
        ),
    ],
)
def test_invalid_ensure_is_refused(make: Make, ensure: str, suggestion: str) -> None:
    with pytest.raises(PropertyError) as failure:
        make(Package, {"name": "tool", "ensure": ensure})
    expected = "expected present, absent, latest, purged or a version such as '1.24.0-1'"
    assert str(failure.value) == f"ensure is {ensure!r}{suggestion}, {expected}"


def test_no_time_to_work_is_refused(make: Make) -> None:
    with pytest.raises(PropertyError, match="timeout is 0, expected a positive duration"):
        make(Package, {"name": "tool", "timeout": 0})


# Documentation


PAGE = (Path(__file__).parents[4] / "docs" / "resources" / "package.md").read_text()


def test_the_page_has_every_noop_message() -> None:
    output = {says for row in DECISIONS.values() for says in row.values()} - {"stable"}
    output |= {"purged", "held it", "released the hold"}
    patterns = {says.replace("1.1-1", "X").replace("1.1", "X") for says in output}
    assert set(re.findall(r"`Would have (.*?)`", PAGE)) == patterns
