"""A repository of packages on the disk of a machine, for tests without a network."""

import hashlib
from pathlib import Path

from tests.support.machines import run_checked

SOURCE = "deb [trusted=yes] file:/srv/packages ./\n"
"""The line for ``/etc/apt/sources.list.d``."""


def add_packages(root: Path, *names: str) -> None:
    """Write ``/srv/packages`` on a disk, a repository with empty packages of these names."""
    packages = root / "srv/packages"
    packages.mkdir()
    stanzas = []
    for name in names:
        control = root / "srv" / name / "DEBIAN/control"
        control.parent.mkdir(parents=True)
        fields = f"Package: {name}\nVersion: 1.2\nArchitecture: all\nMaintainer: Ann <a@example.com>\n"
        control.write_text(f"{fields}Description: Test\n")
        archive = packages / f"{name}.deb"
        run_checked("dpkg-deb", "--root-owner-group", "--build", control.parents[1], archive)
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        place = f"Filename: ./{name}.deb\nSize: {archive.stat().st_size}\nSHA256: {digest}\n"
        stanzas.append(f"{fields}{place}Description: Test\n")
    (packages / "Packages").write_text("\n".join(stanzas))
