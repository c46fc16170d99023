"""A missing bundle, site, store, file, key or configuration has the same exit status in all commands.

* 64 for each missing input of the command line, and 78 for a missing configuration of the host.
* Plugins of Nagios end with 3, UNKNOWN, and `doctor` with 1, because it reports the problem among its checks.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from puller.cli.command_table import cli
from tests.support.stories import Execute, execute_here

LINES: list[str] = yaml.safe_load((Path(__file__).parents[2] / "cases/missing_inputs.yaml").read_text())
PLACES = {"SOURCE": "web", "SITE": "site", "BUNDLE": "web", "FILE": "facts.yaml"}
OPTIONS = {
    "--config": 78,
    "--facts": 64,
    "--data": 64,
    "--facts-dir": 64,
    "--fleet": 64,
    "--passphrase-file": 64,
    "--private-key": 64,
    "--session": 64,
    "--site": 64,
    "--store": 64,
    "--with": 64,
}
LEFT_OUT = {
    ("fleet import", "--store"): "the command creates it",
    ("secrets edit", "--store"): "only a new file needs it",
    ("explain", "--with"): "requires SOURCE",
    ("explain", "--config"): "requires that SOURCE is missing",
    ("preview", "--site"): "excludes --from",
}
REQUEST = (
    b'{"protocol": "io.choria.ccm.v1.resource.ensure.request", "type": "file",'
    b' "properties": {"name": "/none", "ensure": "absent"}}'
)
OTHER_STATUSES = {("check", "--config"): 3, ("doctor", "--config"): 1}


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, click.Context(child, info_name=name, parent=context))
    else:
        yield context.command_path.removeprefix("puller "), command


COMMANDS = dict(commands(cli, click.Context(cli, info_name="puller")))


def command_of(line: str) -> tuple[str, set[str]]:
    """Return the command of a line, and its options."""
    words = line.split()
    path = next(path for length in (3, 2, 1) if (path := " ".join(words[:length])) in COMMANDS)
    return path, {name for parameter in COMMANDS[path].params for name in parameter.opts}


def missing_inputs() -> Iterator[tuple[str, int]]:
    """Yield command lines with one missing input, and the exit status."""
    for line in LINES:
        path, options = command_of(line)
        for place in PLACES:
            if place in line.split():
                yield filled(line.replace(place, "./none" if place == "SOURCE" else "none")), 64
        for option in sorted(options & OPTIONS.keys()):
            if option not in line.split() and (path, option) not in LEFT_OUT:
                status = OTHER_STATUSES.get((path, option), OPTIONS[option])
                yield f"{filled(line)} {option} none", status


def filled(line: str) -> str:
    return " ".join(PLACES.get(word, word) for word in line.split())


@pytest.fixture(scope="module")
def place(new_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("missing")
    shutil.copytree(new_site, directory / "site")
    (directory / "web").mkdir()
    (directory / "web/manifest.yaml").write_text("resources: []\n")
    (directory / "facts.yaml").write_text("hostname: web01\n")
    (directory / "config.yaml").write_text(
        f"site: http://127.0.0.1:9/\ntrust_anchor: {directory}/site/root.json\nbundles: [{{name: web}}]\n"
        f"state_directory: {directory}/state\nrun_directory: {directory}/run\n"
    )
    with (directory / "site/site.yaml").open("a") as settings:
        settings.write(f"push: {{destination: {directory}/www}}\n")
    status, output = execute_here(
        "site", "publish", f"{directory}/site", f"{directory}/web", "--version", "1.0.0"
    )
    assert status == 0, output
    return directory


@pytest.mark.representatives(16)
@pytest.mark.parametrize(("line", "expected"), [*missing_inputs()])
def test_a_missing_input_has_one_status(
    line: str, expected: int, place: Path, monkeypatch: pytest.MonkeyPatch, execute: Execute
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(REQUEST)))
    if "BUNDLE" not in line and line.split()[0] in (
        "pin",
        "unpin",
        "rollback",
        "quarantine",
        "forget",
        "check",
    ):
        line = line if "--config" in line else f"{line} --config config.yaml"
    status, output = execute(*line.split())
    assert status == expected, output
    assert "none" in output
    assert "Traceback" not in output


def test_each_command_with_inputs_has_a_line() -> None:
    known = {command_of(line)[0] for line in LINES}
    with_inputs = {
        path
        for path, command in COMMANDS.items()
        if {name for parameter in command.params for name in parameter.opts} & OPTIONS.keys()
        or any(parameter.metavar in ("[DIR]", "[DIR|FILE]") for parameter in command.params)
    }
    without_line = {path for path in with_inputs - known if not path.startswith("ensure ")}
    assert without_line == {"site init"}, "site init creates its site"
