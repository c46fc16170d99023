"""Recorded machines: a YAML file with the files of a machine and the answers of its kernel and libc."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from pwd import struct_passwd
from types import SimpleNamespace
from typing import Any, cast

import pytest

from puller.facts.machine import Address, Link, Machine

UNAME = {
    "sysname": "Linux",
    "nodename": "host",
    "release": "6.1.0-37-amd64",
    "version": "#1",
    "machine": "x86_64",
}


class RecordedMachine(Machine):
    """A machine with its files below a directory and its kernel's answers in a mapping."""

    def __init__(self, root: Path, case: Mapping[str, Any], *, limit: float = 5.0) -> None:
        super().__init__(str(root), limit=limit)
        self.case = case

    @property
    def environ(self) -> Mapping[str, str]:
        return {"PATH": self.case.get("path", "/usr/sbin:/usr/bin:/sbin:/bin")}

    def uname(self) -> os.uname_result:
        return os.uname_result((UNAME | self.case.get("uname", {})).values())

    def clock_ticks(self) -> int:
        return 100

    def zone(self) -> str:
        return "UTC"

    def user_id(self) -> int:
        return 0

    def account(self, uid: int) -> struct_passwd:
        return struct_passwd(("root", "x", 0, 0, "root", "/root", "/bin/bash"))

    def group_name(self, gid: int) -> str:
        return "root"

    def sizes(self, path: str) -> os.statvfs_result:
        blocks = self.case.get("sizes", {}).get(path)
        if blocks is None:
            raise PermissionError(13, "Permission denied")
        total, free, available = blocks
        names = {"f_blocks": total, "f_bfree": free, "f_bavail": available, "f_frsize": 4096}
        return cast(os.statvfs_result, SimpleNamespace(**names))

    def canonical_name(self, name: str, seconds: float) -> str | None:
        known: str | None = self.case.get("canonical_name")
        if known is None:
            raise OSError(-2, "Name or service not known")
        return known

    def links(self) -> list[Link]:
        return [Link(*link) for link in self.case.get("links_of_kernel", [])]

    def addresses(self) -> list[Address]:
        return [Address(*address) for address in self.case.get("addresses_of_kernel", [])]


Record = Callable[..., RecordedMachine]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Return a function that writes the files of a case and returns the machine."""

    def lay_out(case: Mapping[str, Any], name: str = "root") -> RecordedMachine:
        root = tmp_path / name
        root.mkdir()
        for path, text in case.get("files", {}).items():
            file = root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        for path, target in case.get("symlinks", {}).items():
            link = root / path.lstrip("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        return RecordedMachine(root, case)

    return lay_out
