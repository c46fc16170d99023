"""Hostile text in every input, and the errors that reject it.

An input is named by the command that reads it. An error names the place, has the command's own status, and never shows
a Python traceback. Valid YAML that merely looks suspicious is accepted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from puller.engine.ensure import parse_request
from puller.errors import UsageError

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host

MANIFEST = "data: {}\nresources: []\n"
HIERA = """\
version: 5
hierarchy:
  - {name: all, path: all.yaml}
  - {name: more, path: all.json, data_hash: json_data}
"""

Opened = tuple[int, str]


def apply(here: Path, execute: Execute, *options: str) -> Opened:
    return execute("apply", *options, "--state-directory", str(here / "state"))


def of_manifest(here: Path, hostile: bytes, execute: Execute) -> Opened:
    (here / "hostile").write_bytes(hostile)
    return apply(here, execute, str(here / "hostile"))


def of_resources_template(here: Path, hostile: bytes, execute: Execute) -> Opened:
    (here / "hostile.tmpl").write_bytes(hostile)
    (here / "manifest.yaml").write_text("ccm: {resources_template: hostile.tmpl}\n")
    return apply(here, execute, str(here / "manifest.yaml"))


def of_data_file(here: Path, hostile: bytes, execute: Execute) -> Opened:
    (here / "manifest.yaml").write_text(MANIFEST)
    (here / "hostile").write_bytes(hostile)
    return apply(here, execute, str(here / "manifest.yaml"), "--data", str(here / "hostile"))


def of_set_option(here: Path, hostile: bytes, execute: Execute) -> Opened:
    (here / "manifest.yaml").write_text(MANIFEST)
    return apply(
        here, execute, str(here / "manifest.yaml"), "--set", "a=" + hostile.decode(errors="surrogateescape")
    )


def of_configuration(here: Path, hostile: bytes, execute: Execute) -> Opened:
    (here / "hostile").write_bytes(hostile)
    return execute("run", "--config", str(here / "hostile"))


def of_facts_file(here: Path, hostile: bytes, execute: Execute) -> Opened:
    (here / "hostile.yaml").write_bytes(hostile)
    return execute("facts", "--facts", str(here / "hostile.yaml"), "a")


def of_facts_in_json(here: Path, hostile: bytes, execute: Execute) -> Opened:
    (here / "hostile.json").write_bytes(hostile)
    return execute("facts", "--facts", str(here / "hostile.json"), "a")


def of_facts_directory(here: Path, hostile: bytes, execute: Execute) -> Opened:
    (here / "facts.d").mkdir()
    (here / "facts.d" / "hostile.yaml").write_bytes(hostile)
    return execute("facts", "--facts-dir", str(here / "facts.d"), "a")


def of_facts_program(here: Path, hostile: bytes, execute: Execute) -> Opened:
    (here / "facts.d").mkdir()
    (here / "output").write_bytes(hostile)
    program = here / "facts.d" / "hostile"
    program.write_text(f"#!/bin/sh\nexec cat {here}/output\n")
    program.chmod(0o755)
    return execute("facts", "--facts-dir", str(here / "facts.d"), "a")


def of_request(here: Path, hostile: bytes, execute: Execute) -> Opened:
    with pytest.raises(UsageError) as refused:
        parse_request(hostile)
    return 64, str(refused.value)


def of_document(here: Path, hostile: bytes, execute: Execute) -> Opened:
    (here / "hostile").write_bytes(hostile)
    return execute("hiera", "lookup", "a", str(here / "hostile"))


def of_expression_with_yaml(here: Path, hostile: bytes, execute: Execute) -> Opened:
    return _of_expression(here, hostile, execute, "from_yaml")


def of_expression_with_json(here: Path, hostile: bytes, execute: Execute) -> Opened:
    return _of_expression(here, hostile, execute, "from_json")


def _of_expression(here: Path, hostile: bytes, execute: Execute, function: str) -> Opened:
    (here / "hostile").write_bytes(hostile)
    (here / "manifest.yaml").write_text(f"""\
resources:
  - file:
      - {here}/out:
          content: "{{{{ read_file('hostile') | {function} | to_json }}}}"
          owner: root
          group: root
          mode: "0644"
""")
    return apply(here, execute, str(here / "manifest.yaml"))


class Door(NamedTuple):
    """An input of hostile text. ``status``: exit status of a rejection. Invalid custom facts do not end a command."""

    open: Callable[[Path, bytes, Execute], Opened]
    status: int


YAML = {
    "manifest": Door(of_manifest, 13),
    "resources_template": Door(of_resources_template, 13),
    "data file": Door(of_data_file, 78),
    "--set": Door(of_set_option, 64),
    "configuration": Door(of_configuration, 78),
    "facts file": Door(of_facts_file, 64),
    "facts.d": Door(of_facts_directory, 1),
    "request": Door(of_request, 64),
    "document": Door(of_document, 1),
    "from_yaml": Door(of_expression_with_yaml, 4),
}
JSON = {
    "facts file": Door(of_facts_in_json, 64),
    "facts program": Door(of_facts_program, 1),
    "from_json": Door(of_expression_with_json, 4),
}


def bomb(levels: int, width: int) -> bytes:
    """Return nested lists, each with many references to the previous one, that would exhaust memory if expanded."""
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines).encode()


IN_YAML = {
    "alias bomb": (bomb(40, 10), "aliases make this "),
    "alias bomb of two": (bomb(90, 2), "aliases make this "),
    "alias of itself": (b"a: &a [*a]", "unknown alias. Quote text that begins with *"),
    "many aliases of one list": (
        f"a: &a [{'x,' * 5000}]\nb: [{'*a,' * 5000}]".encode(),
        "aliases make this ",
    ),
    "deep lists": (b"[" * 100_000, "is nested more than 100 deep"),
    "deep mappings": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "is nested more than 100 deep"),
    "deep blocks": (b"- " * 100_000, "is nested more than 100 deep"),
    "key given twice": (b"a: 1\nb: {}\na: 2\n", "the key 'a' is duplicate, first in line 1"),
    "key given twice below": (b"a: {b: 1, b: 2}", "the key 'b' is duplicate, first in line 1"),
    "key given twice in JSON": (b'{"a": 1, "\\u0061": 2}', "the key 'a' is duplicate, first in line 1"),
    "two merge keys": (b"a: &a {b: 1}\nc: {<<: *a, <<: *a}", "a second << in one mapping"),
    "merge of text": (b"a: {<<: b}", "<< requires a mapping or a list of mappings"),
    "tab": (b"a:\n\tb: 1", "a tab cannot indent: use spaces"),
    "python object": (
        b'a: !!python/object/apply:os.system ["exit"]',
        "!!python/object/apply:os.system is not supported",
    ),
    "python name": (b"a: !!python/name:os.system", "!!python/name:os.system is not supported"),
    "binary": (b"a: !!binary aGVsbG8=", "!!binary is not supported"),
    "set": (b"a: !!set {b, c}", "!!set is not supported"),
    "tag of somebody": (b"a: !vault b", "unsupported tag. Quote text that begins with !"),
    "not a number": (b"a: .nan", ".nan is not a usable float"),
    "infinity": (b"a: -.inf", "-.inf is not a usable float"),
    "number without end": (b"a: " + b"9" * 50_000, "is not a usable int"),
    "hexadecimal without end": (b"a: 0x" + b"f" * 50_000, "is not a usable int"),
    "sexagesimal without end": (b"a: 1" + b":59" * 20_000, "is not a usable int"),
    "not UTF-8": (b"a: caf\xe9", "is not UTF-8 text|'utf-8' codec can't decode"),
    "UTF-16": ("a: 1".encode("utf-16"), "is not UTF-8 text|'utf-8' codec can't decode"),
    "half a character": (b'a: "\\ud800"', "invalid Unicode character escape"),
    "NUL": (b"a: b\0c", "control characters are not allowed"),
    "two documents": (b"a: 1\n---\na: 2\n", "a second document starts at line 2"),
    "list as a key": (b"? [a]\n: b", "a list or a mapping cannot be a key"),
    "boolean as a key": (b"on: 1", "the key on means the boolean true in YAML: quote it"),
    "float as a key": (b"1.10: 1", "the key 1.10 means the number 1.1 in YAML: quote it"),
    "anchor that is not there": (b"a: *b", "unknown alias"),
}
# The operating system rejects these on a command line, or passes another text.
NOT_IN_AN_OPTION = {"NUL", "UTF-16"}

IN_JSON = {
    "deep arrays": (b'{"a":' + b"[" * 100_000, "is nested more than 100 deep"),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "is nested more than 100 deep"),
    "key given twice": (b'{"a": 1, "\\u0061": 2}', "the key 'a' is duplicate"),
    "key given twice below": (b'{"a": [{"b": 1, "b": 2}]}', "the key 'b' is duplicate"),
    "not a number": (b'{"a": NaN}', "NaN is not a JSON value"),
    "infinity": (b'{"a": -Infinity}', "-Infinity is not a JSON value"),
    "number that is too large": (b'{"a": 1e999}', "1e999 is too large for a number"),
    "number without end": (b'{"a": ' + b"9" * 50_000 + b"}", "is too long for a number"),
    "fraction without end": (b'{"a": 0.' + b"9" * 50_000 + b"}", "is too long for a number"),
    "half a character": (b'{"a": "\\ud800"}', "an escaped half of a surrogate pair"),
    "NUL": (b'{"a": "\0"}', "Invalid control character"),
    "two documents": (b'{"a": 1} {"a": 2}', "Extra data"),
    "not UTF-8": (b'{"a": "\xe9"}', "is not UTF-8 text|'utf-8' codec can't decode"),
    "comma at the end": (b'{"a": [1,]}', "Expecting value|Illegal trailing comma"),
}


def refused(door: Door, hostile: bytes, here: Path, execute: Execute) -> str:
    """Return the error message. A rejected custom fact does not exist, and the warning gives the reason."""
    status, output = door.open(here, hostile, execute)
    assert status == door.status, output
    assert "Traceback" not in output
    assert len(output) < 1000, "a message quotes the beginning at most"
    return output


CASES = {
    "alias bomb": "input.alias-bomb",
    "alias bomb of two": "input.alias-bomb",
    "many aliases of one list": "input.alias-bomb",
    "deep lists": "input.nesting",
    "deep mappings": "input.nesting",
    "deep blocks": "input.nesting",
    "deep arrays": "input.nesting",
    "deep objects": "input.nesting",
    "key given twice": "input.duplicate-keys",
    "key given twice below": "input.duplicate-keys",
    "key given twice in JSON": "input.duplicate-keys",
    "two merge keys": "input.merge-keys",
    "merge of text": "input.merge-keys",
    "merge key": "input.merge-keys",
    "anchors": "input.anchors",
    "tab": "input.tabs",
    "python object": "input.object",
    "python name": "input.object",
    "not a number": "input.nan",
    "2^63": "input.integer",
}


def mark(name: str) -> list[pytest.MarkDecorator]:
    """Return the mark with a row's case of ``tests/attacks.yaml``, if it has one."""
    return [pytest.mark.attack(CASES[name])] if name in CASES else []


@pytest.mark.representatives(60)
@pytest.mark.parametrize(
    ("door", "name"),
    [
        pytest.param(door, name, marks=mark(name))
        for door in YAML
        for name in IN_YAML
        if door != "--set" or name not in NOT_IN_AN_OPTION
    ],
)
def test_hostile_yaml_is_refused_at_every_door(
    door: str, name: str, tmp_path: Path, execute: Execute
) -> None:
    hostile, message = IN_YAML[name]
    output = refused(YAML[door], hostile, tmp_path, execute)
    assert any(sentence in output for sentence in message.split("|"))


@pytest.mark.parametrize("name", [pytest.param(name, marks=mark(name)) for name in IN_JSON])
@pytest.mark.parametrize("door", JSON)
def test_hostile_json_is_refused_at_every_door(
    door: str, name: str, tmp_path: Path, execute: Execute
) -> None:
    hostile, message = IN_JSON[name]
    output = refused(JSON[door], hostile, tmp_path, execute)
    assert any(sentence in output for sentence in message.split("|"))


GOOD = {
    "anchors": (b"a: &a [1]\nb: *a", [1]),
    "merge key": (b"b: &b {c: 1, d: 1}\na: {<<: *b, d: 2}", {"c": 1, "d": 2}),
    "merge of two, the first of which wins": (
        b"b: [&b {c: 1}, &d {c: 2, e: 3}]\na: {<<: [*b, *d]}",
        {"c": 1, "e": 3},
    ),
    "CRLF": (b"a: 1\r\nb: 2\r\n", 1),
    "byte-order mark": (b"\xef\xbb\xbfa: 1", 1),
    "one document with marks": (b"---\na: 1\n...\n", 1),
    "2^63": (b"a: 9223372036854775808", 2**63),
    "2^64 and more": (b"a: 123456789012345678901234567890", 123456789012345678901234567890),
    "date": (b"a: 2026-11-20", "2026-11-20"),
    "moment": (b"a: 2026-11-20T10:00:00Z", "2026-11-20T10:00:00Z"),
    "hours and minutes": (b"a: 1:30", 90),
    "escaped NUL": (b'a: "b\\0c"', "b\0c"),
    "NaN as text": (b"a: NaN", "NaN"),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=mark(name)) for name in GOOD])
def test_good_yaml_that_looks_suspicious_comes_through(name: str, tmp_path: Path, execute: Execute) -> None:
    text, value = GOOD[name]
    (tmp_path / "facts.yaml").write_bytes(text)
    status, output = execute("facts", "--facts", str(tmp_path / "facts.yaml"), "--format", "json", "a")
    assert (status, json.loads(output)) == (0, value)


@pytest.mark.parametrize(
    ("door", "status", "message"),
    [
        (of_manifest, 13, "is not a mapping"),
        (of_resources_template, 13, "resources is empty, expected a list"),
        (of_data_file, 0, "0 resources"),
        (of_set_option, 0, "0 resources"),
        (of_configuration, 78, "is not a mapping"),
        (of_facts_file, 1, "no fact 'a'"),
        (of_facts_in_json, 64, "Expecting value"),
        (of_request, 64, "is not a mapping"),
        (of_document, 1, "a: not found"),
    ],
)
def test_an_empty_text_is_nothing_or_refused(
    door: Callable[[Path, bytes, Execute], Opened],
    status: int,
    message: str,
    tmp_path: Path,
    execute: Execute,
) -> None:
    ended, output = door(tmp_path, b"", execute)
    assert (ended, message in output) == (status, True), output


@pytest.mark.attack("input.integer")
def test_number_beyond_64_bits_is_applied_and_reported(tmp_path: Path, execute: Execute) -> None:
    (tmp_path / "manifest.yaml").write_text(f"""\
data: {{large: 123456789012345678901234567890}}
resources:
  - file:
      - defaults: {{owner: {os.geteuid()}, group: {os.getegid()}, mode: "0644"}}
      - {tmp_path}/out: {{content: "n {{{{ data.large }}}}"}}
""")
    status, output = apply(tmp_path, execute, str(tmp_path / "manifest.yaml"))
    assert status == 0, output
    assert (tmp_path / "out").read_text() == "n 123456789012345678901234567890"


@pytest.mark.attack("input.nesting")
@pytest.mark.parametrize("option", ["--set", "--fact"])
def test_a_path_of_endless_depth_is_refused(option: str, tmp_path: Path, execute: Execute) -> None:
    (tmp_path / "manifest.yaml").write_text(MANIFEST)
    status, output = apply(tmp_path, execute, str(tmp_path / "manifest.yaml"), option, "a." * 30_000 + "a=1")
    assert status == 64
    assert len(output) < 1000


@pytest.mark.attack("input.nesting")
def test_lines_of_facts_with_endless_depth_are_refused(tmp_path: Path, execute: Execute) -> None:
    (tmp_path / "facts.txt").write_text(f"{'a.' * 50_000}a=1\n" * 2)
    status, output = execute("facts", "--facts", str(tmp_path / "facts.txt"), "a")
    assert status == 64
    assert len(output) < 1000


# Measures the memory that a command needs to reject a text over the limit: some, but far less than the text.
MEMORY = """\
import sys
from puller.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print("status", ended.code)
print(*(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.everything
@pytest.mark.attack("input.large")
@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("apply", "MANIFEST"), 13),
        (("apply", "good", "--data", "MANIFEST"), 78),
        (("run", "--config", "MANIFEST"), 78),
        (("facts", "--facts", "MANIFEST", "a"), 64),
        (("hiera", "lookup", "a", "MANIFEST"), 64),
    ],
    ids=lambda command: command[0] if isinstance(command, tuple) else "",
)
@pytest.mark.representatives(2)
def test_file_of_100_megabytes_is_refused_unread(
    command: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    with open(tmp_path / "large.yaml", "wb") as large:
        large.truncate(100 << 20)
    (tmp_path / "good").write_text(MANIFEST)
    arguments = [argument.replace("MANIFEST", "large.yaml") for argument in command]
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    ended, memory = done.stdout.strip().split("\n")[-2:]
    assert ended == f"status {status}", done.stdout + done.stderr
    assert re.search(r"has more than \d+ bytes", done.stderr), done.stderr
    assert int(memory.split()[1]) < 95 << 10, "in KiB"


@pytest.mark.parametrize(
    "name", ["alias bomb", "deep lists", "key given twice", "python object", "not UTF-8"]
)
def test_hostile_site_data_use_the_last_good_copy(name: str, settled: Host, tmp_path: Path) -> None:
    site_data = tmp_path / "site-data.yaml"
    site_data.write_text("data: {a: 1}\n")
    settled.configure(data=str(site_data))
    assert settled.run().status == 0
    hostile, message = IN_YAML[name]
    site_data.write_bytes(hostile)
    outcome = settled.run()
    assert any(sentence in outcome.output for sentence in message.split("|"))
    assert "using its last good copy" in outcome.output
    settled.assert_enforces("1.0.0")


@pytest.mark.parametrize("name", ["all.yaml", "all.json"])
@pytest.mark.parametrize(
    ("hostile", "message"),
    [
        (bomb(40, 10), "aliases unfold to more than"),
        (b"[" * 100_000, "nest"),
        (b'{"a": "\xff"}', "the text is not UTF-8"),
        (b"a: !ruby/object:Gem::Installer {}", "Tried to load unspecified class"),
        (b'{"a": ' + b"9" * 50_000 + b"}", "digits"),
    ],
    ids=["alias bomb", "deep lists", "not UTF-8", "ruby object", "number without end"],
)
def test_hostile_data_of_a_hiera_tree_is_refused(
    name: str, hostile: bytes, message: str, tmp_path: Path, execute: Execute
) -> None:
    (tmp_path / "hiera.yaml").write_text(HIERA)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).write_bytes(hostile)
    status, output = execute("hiera", "lookup", "a", str(tmp_path))
    assert status not in (0, 70), output
    assert "Traceback" not in output
    assert len(output) < 1000
    if name == "all.yaml" or message in ("nest", "digits", "the text is not UTF-8"):
        assert message in output


def test_a_hiera_tree_takes_the_last_of_two_keys_as_puppet_does(tmp_path: Path, execute: Execute) -> None:
    (tmp_path / "hiera.yaml").write_text(HIERA)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "all.yaml").write_text("a: 1\na: 2\n")
    status, output = execute("hiera", "lookup", "a", str(tmp_path))
    assert (status, output.splitlines()[0]) == (0, "2")


@pytest.mark.attack("input.nesting")
@pytest.mark.parametrize("text", [b'{"a":' + b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_endless_brackets_in_the_state_are_damage(text: bytes, settled: Host, tmp_path: Path) -> None:
    (tmp_path / "site-data.yaml").write_text("data: {a: 1}\n")
    settled.configure(data=str(tmp_path / "site-data.yaml"))
    assert settled.run().status == 0
    remembered = [*settled.state.rglob("*.json"), *(tmp_path / "host" / "run").glob("*.json")]
    ours = [path for path in remembered if "bundles" not in path.parts]
    assert {path.name for path in ours} >= {"last-run.json", "status.json", "timestamp.json"}
    for path in ours:
        before = path.read_bytes()
        path.write_bytes(text)
        outcome = settled.run()
        assert "Traceback" not in outcome.output, (path, outcome.output)
        assert "is a bug" not in outcome.output, (path, outcome.output)
        settled.assert_enforces("1.0.0")
        path.write_bytes(before)


def test_brackets_without_end_in_a_session_are_refused(tmp_path: Path, execute: Execute) -> None:
    session = tmp_path / "session"
    assert execute("session", "new", "--directory", str(session))[0] == 0
    (session / "00000001.event").write_bytes(b'{"a":' * 100_000)
    status, output = execute("session", "report", "--session", str(session))
    assert (status, output) == (
        64,
        f"puller: {session}/00000001.event: is not an event of a session (is nested too deeply)\n",
    )
    (session / "session.json").write_bytes(b'{"a":' * 100_000)
    status, output = execute("session", "report", "--session", str(session))
    assert (status, "is not a session (is nested too deeply)" in output) == (64, True)
