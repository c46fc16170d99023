"""Repositories and the accepted packages, with real dnf and rpm, below a directory as in ``test_packages_dnf.py``.

Packages are signed with a key that gpg makes here (Debian: ``apt-get install gpg gpg-agent rpm``).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.reporting.report import Event
from puller.resources.packages.dnf import Dnf, DnfLayout
from puller.system.protocol import System
from tests.system import test_packages_dnf as dnf
from tests.system import test_repositories_apt as apt

if TYPE_CHECKING:
    from tests.system.test_packages_dnf import Fedora
    from tests.system.test_repositories_apt import Signer

pytestmark = [pytest.mark.packages, pytest.mark.root]

Apply = Callable[..., dict[str, Event]]


@pytest.fixture
def fedora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fedora:
    """A machine whose only repositories are those in ``repositories``."""
    machine: Fedora = dnf.Fedora(tmp_path)
    configuration = (tmp_path / "dnf.conf").read_text().partition("[local]")[0]
    (tmp_path / "dnf.conf").write_text(configuration)
    for name in ("repositories", "keys"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(DnfLayout, "root", str(tmp_path / "repositories"))
    monkeypatch.setattr(Dnf, "sources", (str(tmp_path / "repositories"),))
    monkeypatch.setattr(DnfLayout, "keys", str(tmp_path / "keys"))
    return machine


@pytest.fixture(scope="module")
def key() -> Iterator[Signer]:
    with apt.signer() as made:
        yield made


@pytest.fixture
def apply(fedora: Fedora, tmp_path: Path) -> Apply:
    def build(*resources: dict[str, Any], noop: bool = False) -> dict[str, Event]:
        path = tmp_path / "manifest.yaml"
        path.write_text(yaml.safe_dump({"resources": list(resources)}))
        manifest = load_manifest(path, "manifest.yaml", Inputs({"os": {"family": "RedHat"}}, {}))
        system: System = dnf.LookingOnly(fedora) if noop else fedora
        pending = PendingRefreshes(tmp_path / "owed.json", "test", noop=True)
        engine = Engine(manifest, system, lambda url: b"", pending, Settings(noop=noop))
        return {event.name: event for event in engine.apply()}

    return build


def states(events: dict[str, Event]) -> dict[str, str]:
    return {name: event.state.value for name, event in events.items()}


def sign(fedora: Fedora, key: Signer) -> None:
    macros = {"__gpg": shutil.which("gpg"), "_gpg_path": key.home, "_gpg_name": "test@example.com"}
    defines = [f"--define={name} {value}" for name, value in macros.items()]
    packages = list(map(str, fedora.repository.rglob("*.rpm")))
    subprocess.run(["rpmsign", *defines, "--addsign", *packages], check=True, capture_output=True)


def a_repository(fedora: Fedora, **properties: Any) -> dict[str, Any]:
    return {"repository": [{"web": {"url": f"file://{fedora.repository}", **properties}}]}


@pytest.mark.parametrize("armoured", [True, False])
def test_signed_repository_works_in_the_same_run_and_goes(
    fedora: Fedora, apply: Apply, key: Signer, tmp_path: Path, armoured: bool
) -> None:
    fedora.add("tool", "1.0-1")
    sign(fedora, key)
    fedora.publish(fetch=False)
    (tmp_path / "key").write_bytes(key.public(armoured=armoured))
    desired = (a_repository(fedora, key="key", priority=10), {"package": ["tool"]})
    assert states(apply(*desired, noop=True)) == {"web": "would change", "tool": "would change"}
    done = apply(*desired)
    assert states(done) == {"web": "changed", "tool": "changed"}, done["tool"].errors
    assert fedora.versions("tool") == ["1.0-1"]
    fedora.looked.clear()
    assert set(states(apply(*desired)).values()) == {"stable"}
    assert fedora.looked == ["rpm -q"]
    assert states(apply({"repository": [{"web": {"ensure": "absent"}}]})) == {"web": "changed"}
    assert [*(tmp_path / "repositories").iterdir(), *(tmp_path / "keys").iterdir()] == []


def test_unsigned_package_is_not_installed(fedora: Fedora, apply: Apply, key: Signer, tmp_path: Path) -> None:
    fedora.add("tool", "1.0-1")
    fedora.publish(fetch=False)
    (tmp_path / "key").write_bytes(key.public())
    gone = {"repository": [{"gone": {"url": "file:///srv/gone-for-good"}}]}
    done = apply(gone, a_repository(fedora, key="key"), {"package": ["tool"]})
    assert states(done) == {"gone": "failed", "web": "changed", "tool": "failed"}
    assert "cannot be read, so nothing was changed" in done["gone"].errors[0]
    assert [path.name for path in (tmp_path / "repositories").iterdir()] == ["web.repo"]
    assert fedora.versions("tool") == []


def test_names_that_packages_provide_and_files_are_packages_too(
    fedora: Fedora, apply: Apply, tmp_path: Path
) -> None:
    fedora.add("server", "1.0-1", more="Provides: virtual = 2, mail")
    fedora.add("weak", "1.0-1", more="Recommends: server")
    fedora.publish(fetch=False)
    configuration = f"[local]\nname=local\nbaseurl=file://{fedora.repository}\ngpgcheck=0\n"
    (tmp_path / "repositories/local.repo").write_text(configuration)
    fedora.publish()
    alone = {"package": [{"weak": {"options": {"recommends": False}}}]}
    assert states(apply(alone)) == {"weak": "changed"}
    assert fedora.versions("server") == []
    desired = {"package": ["virtual", {"never": {"ensure": "purged"}}]}
    assert states(apply(desired, noop=True)) == {"virtual": "would change", "never": "stable"}
    assert states(apply(desired)) == {"virtual": "changed", "never": "stable"}
    fedora.looked.clear()
    assert states(apply(desired)) == {"virtual": "stable", "never": "stable"}
    assert fedora.looked == ["rpm -q"]
    gone = apply({"package": [{"mail": {"ensure": "absent"}}]})
    assert gone["mail"].errors == [
        "is not a package here, but provided by server, which would have to be removed, expected absent"
    ]
    (file,) = fedora.repository.rglob("server-1.0-1*.rpm")
    file.rename(tmp_path / "server.rpm")
    assert fedora.do("dnf", "-q", "remove", "-y", "server").exit_code == 0
    source = {"package": [{"server": {"source": "server.rpm"}}]}
    checksum = hashlib.sha256((tmp_path / "server.rpm").read_bytes()).hexdigest()
    checked = {"package": [{"server": {"source": "server.rpm", "checksum": checksum}}]}
    for package in (source, checked):
        predicted = apply(package, noop=True)["server"]
        assert predicted.noop_message == "Would have installed version 1.0-1", predicted.errors
    assert states(apply(source)) == {"server": "changed"}
    assert states(apply(source)) == {"server": "stable"}
    assert fedora.versions("server") == ["1.0-1"]


def test_a_hold_wants_the_plugin(fedora: Fedora, apply: Apply) -> None:
    done = apply({"package": [{"tool": {"held": False, "ensure": "absent"}}]})
    assert states(done) == {"tool": "stable"}, "what is not installed is not held"
    fedora.add("tool", "1.0-1")
    (file,) = fedora.repository.rglob("tool*.rpm")
    assert fedora.do("rpm", "-i", "--nosignature", str(file)).exit_code == 0
    done = apply({"package": [{"tool": {"held": True}}]})
    assert "held: true requires dnf's plugin versionlock" in done["tool"].errors[0]
