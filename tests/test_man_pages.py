"""The man pages: one for each command and file format, with the texts of `--help` and of the documents."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from puller.cli.command_table import cli
from puller.resources.registry import type_names

ROOT = Path(__file__).parents[1]
EPOCH = "1700000000"

pytestmark = pytest.mark.sources


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the text of each page, by file name."""
    return write(tmp_path_factory.mktemp("manual"))


def write(root: Path) -> dict[str, str]:
    environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, ROOT / "packaging/man", root], check=True, env=environment)
    result = root.glob("usr/share/man/man?/*.gz")
    return {path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes()).decode() for path in result}


def shown(roff: str) -> str:
    """Return the visible text in one line, without fonts and escapes."""
    text = re.sub(r"\\f.|\\[&:]", "", roff).replace("\\-", "-").replace("\\(dq", '"').replace("\\e", "\\")
    return " ".join(text.split())


def paths_of_commands(group: click.Group, path: str = "puller") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path}-{name}", command
        if isinstance(command, click.Group):
            yield from paths_of_commands(command, f"{path}-{name}")


def test_every_command_has_a_complete_man_page(manual: dict[str, str]) -> None:
    assert "puller.1" in manual
    for name, command in paths_of_commands(cli):
        page = shown(manual[f"{name}.1"])
        assert f"{name} - " in page
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.help and not parameter.hidden:
                assert all(f"{option}" in page for option in parameter.opts), f"{name}: {parameter.opts}"
                assert shown(parameter.help.replace("`", "")) in page, f"{name}: {parameter.help}"
        for word in re.findall(r"[A-Za-z]{4,}", command.help or ""):
            assert word in page, f"{name}: {word}"


def test_all_man_pages_are_linked_from_the_first(
    manual: dict[str, str],
) -> None:
    types = {f"puller-resource-{name.replace('_', '-')}.5" for name in type_names()}
    assert types | {"puller.yaml.5", "puller-manifest.5", "puller-data.5", "puller-facts.5"} <= {*manual}
    reached, waiting = set(), ["puller.1"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            also = shown(manual[name]).rpartition('"SEE ALSO"')[2]
            waiting += [f"{page}.{section}" for page, section in re.findall(r"([a-z0-9._-]+)\((\d)\)", also)]
    assert reached == {*manual}


def test_configuration_page_has_every_sample_key(manual: dict[str, str]) -> None:
    sample = (ROOT / "puller/config/samples/config.yaml").read_text()
    assert " ".join(sample.split()) in shown(manual["puller.yaml.5"])


def test_exit_statuses_are_those_of_the_document(manual: dict[str, str]) -> None:
    for status in ("75", "another run is active", "78"):
        assert status in manual["puller.1"].partition("EXIT STATUSES")[2]


def test_no_line_of_a_text_is_taken_for_a_request(manual: dict[str, str]) -> None:
    known = {"TH", "SH", "SS", "PP", "TP", "IP", "RS", "RE", "nf", "fi", "sp", "nh", "ad", "TS", "TE"}
    for name, text in manual.items():
        requests = {line[1:].split(" ")[0] for line in text.splitlines()[1:] if line.startswith((".", "'"))}
        assert requests <= known, name


@pytest.mark.everything
def test_the_same_texts_give_the_same_pages(manual: dict[str, str], tmp_path: Path) -> None:
    assert write(tmp_path) == manual
    assert all('"2023-11-14"' in text for text in manual.values())


@pytest.mark.shells
def test_readers_of_man_pages_find_nothing_wrong(manual: dict[str, str], tmp_path: Path) -> None:
    for name, text in manual.items():
        (tmp_path / name).write_text(text)
    command = ["mandoc", "-T", "lint", "-W", "warning", *map(str, tmp_path.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    # A word may be too long for the rest of a line. Every other warning is an error.
    reader: Any = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}
    for name in manual:
        command = [
            "man",
            "--warnings=mac,reg,missing,syntax,escape,delim,number,range,font,char",
            "--encoding=UTF-8",
            "--local-file",
            str(tmp_path / name),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=reader)
        output = re.sub(r"(?m)^.*: can't break line\n|^.*\n +table wider than line width\n", "", done.stderr)
        assert output == "", name
