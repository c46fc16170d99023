"""``docs/upgrading.md``: its commands work as shown, and its tables describe the launcher and the run correctly."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Execute

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/upgrading.md").read_text()
(CONSOLE,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_documented_commands_show_the_documented_output(
    execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in set(re.findall(r"puller_\S+\.deb", CONSOLE)):
        (tmp_path / name).write_bytes(b"!<arch>\n")
    typed = re.findall(r"^\$ puller (.*)\n((?:(?!\$ ).*\n)*)", CONSOLE, re.MULTILINE)
    assert len(typed) == 3
    for command, shown in typed:
        status, output = execute(*shlex.split(command))
        assert (status, re.sub(r", in [\d.]+ s$", "", output, flags=re.MULTILINE)) == (0, shown), command


def test_documented_launcher_behaviour_is_in_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "packaging")
    from steps.launcher import script

    launcher, arrange = script(ROOT, "puller"), script(ROOT, "arrange")
    for told in (
        "/usr/lib/puller",
        "/var/lib/puller-launcher",
        "is used in its place",
        "does not start",
        "126",
        "has ended none of its last 3 runs",
    ):
        assert told in PAGE
        assert told in launcher
    assert "for at most 60 seconds" in PAGE
    assert "timeout --kill-after=5 60 " in launcher
    assert "1 CURRENT BEFORE" in PAGE
    assert "1 CURRENT BEFORE" in arrange


def formats() -> dict[str, str]:
    """Return the descriptions in the table of formats, by each name in code that a row has."""
    page = (ROOT / "docs/formats.md").read_text()
    rows = re.findall(r"^\| (.+?) \| ([\d.]+|none) \| .+ \|$", page, re.MULTILINE)
    return {name: number for cell, number in rows for name in re.findall(r"`([^`]+)`", cell)}


def test_table_of_formats_matches_the_code() -> None:
    from bundles.format import description, index
    from puller.resources.archives import archive_receipts
    from tests.puller.states.make import CASES

    table = formats()
    assert table["index.json"] == str(index.FORMAT)
    assert table["history.json"] == str(index.HISTORY_FORMAT)
    assert table["bundle.json"] == str(description.FORMAT)
    assert table["archives/"] == str(archive_receipts.FORMAT)
    with tarfile.open(max(CASES.glob("*.tar.gz"))) as archive:
        for member in archive:
            top, _, name = member.name.partition("/")
            components = name.split("/")
            if not member.isreg() or top == "machine" or components[0] in ("trust", "bundles"):
                continue
            reported = (
                table.get(components[0])
                or table.get("/".join(components[:-1]) + "/")
                or table.get(f"{components[0]}/")
            )
            reported = reported or table[f"/run/puller/{name}"] if name != "lock" else "none"
            if reported == "none":
                continue
            content = archive.extractfile(member)
            assert content is not None
            data = content.read()
            document = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
            assert str(document["format"]) == reported, member.name
