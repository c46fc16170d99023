"""The command ``puller facts``, and the options of all commands with facts."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml

from puller.cli import main
from puller.cli.options import fact_options
from puller.errors import UsageError
from puller.facts.given_facts import facts_from, given_facts

Facts = Callable[..., str]


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    """Return a directory for custom facts, instead of the machine's own."""
    directory = tmp_path / "facts.d"
    directory.mkdir(mode=0o755)
    return directory


@pytest.fixture
def facts(custom: Path, capsys: pytest.CaptureFixture[str]) -> Facts:
    """Run ``puller facts``, and return its output, or its errors for a status other than 0."""

    def run(*arguments: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as caught:
            main(["facts", "--facts-dir", str(custom), *arguments])
        output, errors = capsys.readouterr()
        assert caught.value.code == status, errors
        return errors if status else output

    return run


def test_the_whole_tree_is_shown_as_yaml_or_json(facts: Facts) -> None:
    as_yaml = yaml.load(facts("--fact", "role=web"), yaml.CSafeLoader)
    as_json = json.loads(facts("--fact", "role=web", "--format", "json"))

    assert as_yaml.keys() == as_json.keys()
    assert as_yaml["role"] == "web"
    assert as_json["kernelrelease"] == os.uname().release
    assert "osfamily" not in as_json
    assert "osfamily" in json.loads(facts("--legacy", "--format", "json"))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("os.family", "Own\n"),
        ("osfamily", "Own\n"),
        ("ports.0", "80\n"),
        ("ports.#", "2\n"),
        ("tls", "true\n"),
        ("share", "0.5\n"),
        ("nothing", "\n"),
        (r"net\.ipv4", "on\n"),
        ("ports", "- 80\n- 443\n"),
    ],
)
def test_single_value_is_printed_plain(facts: Facts, tmp_path: Path, path: str, text: str) -> None:
    provided = tmp_path / "given.json"
    provided.write_text(
        '{"os": {"family": "Own"}, "ports": [80, 443], "tls": true, "share": 0.5, "nothing": null, "net.ipv4": "on"}'
    )

    assert facts(path, "--facts", str(provided)) == text


def test_single_value_as_json_is_json(facts: Facts) -> None:
    assert facts("version", "--fact", "version=5.10", "--format", "json") == '"5.10"\n'


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("site.rak", "no fact 'site.rak' (did you mean 'site.rack'?)"),
        ("sitte", "no fact 'sitte' (did you mean 'site'?)"),
        ("kernelrelase", "no fact 'kernelrelase' (did you mean 'kernelrelease'?)"),
        ("0", "no fact '0'"),
        ("site.rack.row", "no fact 'site.rack.row': site.rack is 'b4', which has nothing below it"),
        (
            "networking.interfaces.lo.bindings.7",
            "networking.interfaces.lo.bindings is a list of 1, counted from 0",
        ),
    ],
)
def test_an_unknown_path_names_a_near_one(facts: Facts, path: str, message: str) -> None:
    assert message in facts(path, "--fact", "site.rack=b4", status=1)


def test_given_facts_beat_files_which_beat_custom_facts(facts: Facts, custom: Path, tmp_path: Path) -> None:
    (custom / "site.yaml").write_text("site: {rack: custom, row: custom, hall: custom}\n")
    (tmp_path / "one.yaml").write_text("site: {rack: one, row: one}\n")
    (tmp_path / "two.txt").write_text("site.row=two\n")
    files = ("--facts", str(tmp_path / "one.yaml"), "--facts", str(tmp_path / "two.txt"))

    shown = facts("site", *files, "--fact", "site.rack=typed", "--format", "json")
    assert json.loads(shown) == {"rack": "typed", "row": "two", "hall": "custom"}


def test_unreadable_facts_are_reported_beside_the_answer(
    custom: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (custom / "broken.json").write_text("{")
    with pytest.raises(SystemExit) as caught:
        main(["facts", "kernel", "--facts-dir", str(custom)])

    output, errors = capsys.readouterr()
    assert (caught.value.code, output) == (0, "Linux\n")
    assert errors == f"puller: {custom}/broken.json:1:2: Expecting property name enclosed in double quotes\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--fact", "role"), "--fact: is 'role', expected NAME=VALUE or NAME.NAME=VALUE"),
        (("os..family",), "the path 'os..family' has an empty step"),
        (("--facts", "/nowhere.yaml"), "'/nowhere.yaml' does not exist"),
    ],
)
def test_a_command_line_that_cannot_be_followed_is_refused(
    facts: Facts, arguments: tuple[str, ...], message: str
) -> None:
    assert message in facts(*arguments, status=64)


def test_a_broken_facts_file_is_an_error_with_its_place(facts: Facts, tmp_path: Path) -> None:
    broken = tmp_path / "host.yaml"
    broken.write_text("role: web\nrole: db\n")

    assert facts("--facts", str(broken), status=64) == (
        f"puller: {broken}:2:1: the key 'role' is duplicate, first in line 1\n"
    )


def options_of(*arguments: str) -> dict[str, object]:
    """Return the arguments that a command with the options gets."""
    result: dict[str, object] = {}

    @click.command()
    @fact_options
    def command(**options: object) -> None:
        result.update(options)

    command.main(list(arguments), standalone_mode=False)
    return result


def test_other_commands_get_the_same_options() -> None:
    options = options_of("--fact", "role=web", "--fact", "role=db")

    assert given_facts(options) == {"role": "db"}
    assert given_facts(options_of()) == {}
    assert (
        facts_from(options, agent={"puller": {"bundle": {"name": "web"}}})["puller"]["bundle"]["name"]
        == "web"
    )
    with pytest.raises(UsageError):
        given_facts(options_of("--fact", "role"))


def test_option_overrides_the_configured_directory(custom: Path, tmp_path: Path) -> None:
    (custom / "role.txt").write_text("role=web\n")
    (tmp_path / "other").mkdir(mode=0o755)

    assert facts_from(options_of(), directories=[str(custom)])["role"] == "web"
    assert "role" not in facts_from(
        options_of("--facts-dir", str(tmp_path / "other")), directories=[str(custom)]
    )
