"""One row in the table of providers registers a package manager."""

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from puller.errors import ResourceError
from puller.resources.packages import providers
from puller.resources.packages.dnf import Dnf, DnfLayout
from puller.resources.packages.manager import all_layouts, layout_of
from puller.resources.packages.package import Package
from puller.resources.packages.properties import PackageProperties, check_package
from puller.resources.packages.providers import PROVIDERS, Provider, canonical_name, load_class
from puller.resources.packages.repository import Repository


class Zypper(Dnf):
    """A third package manager."""


class ZypperLayout(DnfLayout):
    """The directories of this package manager."""

    provider = "zypper"
    root = "/etc/zypp/repos.d"


@pytest.fixture
def zypper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the provider with one new module and one row."""
    module = ModuleType("zypper_of_test")
    module.Zypper, module.ZypperLayout = Zypper, ZypperLayout  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = Provider("Suse", ".rpm", "zypper_of_test:Zypper", "zypper_of_test:ZypperLayout")
    monkeypatch.setitem(PROVIDERS, "zypper", row)
    layout_of.cache_clear()
    yield
    layout_of.cache_clear()


@pytest.mark.usefixtures("zypper")
def test_table_row_registers_a_package_manager() -> None:
    assert load_class(PROVIDERS["zypper"].manager) is Zypper
    assert "/etc/zypp/repos.d" in [layout.root for layout in all_layouts()]
    facts = {"os": {"family": "Suse", "architecture": "x86_64"}}
    assert canonical_name("glibc.x86_64", facts) == "glibc"


def test_each_provider_has_its_classes() -> None:
    for row in PROVIDERS.values():
        assert load_class(row.manager).suffix == row.suffix
    assert len(all_layouts()) == len(PROVIDERS)
    assert Package.providers == Repository.providers == tuple(PROVIDERS)


def test_sources_end_as_the_files_of_a_provider() -> None:
    properties = PackageProperties(name="tool", ensure="present", source="/tool.zip")
    assert [str(error) for error in check_package(properties)] != []
    for row in PROVIDERS.values():
        assert [*check_package(PackageProperties(name="t", ensure="present", source=f"/t{row.suffix}"))] == []


def test_an_unknown_family_lists_the_known_ones() -> None:
    class Scope:
        def lookup(self, key: str, default: object) -> object:
            del key, default
            return "Plan9"

    class Context:
        scope = Scope()

    with pytest.raises(
        ResourceError, match=r"expected Debian \(apt\) or RedHat \(dnf\), or a provider named"
    ):
        providers.provider_of(None, Context())  # type: ignore[arg-type]
