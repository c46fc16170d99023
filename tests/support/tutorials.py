"""Tutorial pages as scripts: commands that a reader types, files that a reader writes, and the outputs in the page.

* A fenced block ``console`` contains commands behind a prompt: ``# `` on the only machine, or ``web# `` on each machine
  of a group. The lines up to the next prompt are the output, as a terminal of 100 columns shows it.
* Any other fenced block whose first line is ``# PATH`` is a file. It is written on the machines of the next command.
* ``echo $?`` shows the exit status of the command before it. Every other command must succeed.
* The outputs are compared without times, durations, sizes, checksums and line breaks (``normalized``).
* ``PULLER_WRITE_DOCS=1`` writes the actual outputs into the page. Commands without any output in the page get one, too.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.machines import Machine

WRITE = bool(os.environ.get("PULLER_WRITE_DOCS"))

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"^(\w*)# (.*)$")
_FILE = re.compile(r"# (\S*[/.]\S*)\n")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;;[^\x1b\x07]*(?:\x1b\\|\x07)")
_RETURN = "\x01"
"""A carriage return. Python's text mode would read it as the end of a line."""

_VARIABLE = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:\+00:00|Z| UTC)?", "TIME"),
    (r"\b(?:in|for|after) [\d.]+ (?:ms|s|min)\b", "in DURATION"),
    (r"\b[\d.]+ ?(?:ms|s)\b", "DURATION"),
    (r"\b[\d.]+ (?:bytes|kB|MB)(?:/s)?", "SIZE"),
    (r"\b[0-9a-f]{8,64}\b…?", "CHECKSUM"),
)


@dataclass(frozen=True)
class File:
    """A file that the reader writes."""

    path: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command of the reader, on the machines of ``group``. ``start`` and ``end`` delimit its output in the page."""

    group: str
    line: str
    output: str
    start: int
    end: int


def steps(page: str) -> Iterator[File | Command]:
    """Yield the files and commands of a page in order."""
    for block in _BLOCK.finditer(page):
        language, text = block.groups()
        if language == "console":
            yield from _commands(text, block.start(2))
        elif file := _FILE.match(text):
            yield File(file[1], text)


def _commands(text: str, position: int) -> Iterator[Command]:
    lines = text.splitlines(keepends=True)
    prompts = [number for number, line in enumerate(lines) if _PROMPT.match(line.rstrip("\n"))]
    for number, following in zip(prompts, [*prompts[1:], len(lines)], strict=True):
        prompt = _PROMPT.match(lines[number].rstrip("\n"))
        assert prompt
        start = position + sum(map(len, lines[: number + 1]))
        output = "".join(lines[number + 1 : following])
        yield Command(prompt[1], prompt[2], output, start, start + len(output))


def normalized(output: str) -> str:
    """Return an output in one line, without the values that differ between two runs."""
    for pattern, name in _VARIABLE:
        output = re.sub(pattern, name, output)
    return " ".join(output.split())


def visible(output: str) -> str:
    """Return the visible text of a terminal's output: without colours, hyperlinks and erased lines."""
    plain = _ESCAPES.sub("", output.replace(f"{_RETURN}\n", "\n"))
    lines = (line.rpartition(_RETURN)[2].rstrip() for line in plain.split("\n"))
    return "\n".join(lines).strip("\n") + "\n" if plain.strip() else ""


class Terminal:
    """The reader's shell on one machine. It keeps the directory, the exported variables and the last exit status."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._run("cd /root; rm -f /tmp/.shell && export -p > /tmp/.shell && echo cd /root >> /tmp/.shell")
        self.status = 0

    def write(self, file: File) -> None:
        quoted = shlex.quote(file.text)
        self._run(f". /tmp/.shell; printf %s {quoted} > {shlex.quote(file.path)}")

    def type_in(self, line: str) -> str:
        """Return the visible output of a command. Its exit status is ``status``."""
        if line == "echo $?":
            shown, self.status = self.status, 0
            return f"{shown}\n"
        keep = 'status=$?; export -p > /tmp/.shell; echo cd "$PWD" >> /tmp/.shell; exit $status'
        script = f". /tmp/.shell; stty cols 100 rows 50; {line}\n{keep}"
        in_terminal = shlex.quote(f"bash -c {shlex.quote(script)}")
        terminal = f"script --quiet --return --command {in_terminal} /dev/null </dev/null"
        wrapped = f"cd /; set -o pipefail; {terminal} | tr '\\r' '\\001'"
        done = self._machine.run(
            "env", "TERM=xterm", "HOME=/root", "bash", "-c", wrapped, check=False, timeout=600
        )
        self.status = done.returncode
        return visible(done.stdout)

    def _run(self, script: str) -> None:
        self._machine.run("env", "HOME=/root", "bash", "-c", script)


def follow(
    path: Path,
    machines: Mapping[str, Sequence[Machine]],
    adapt: Callable[[str], str] = str,
    *,
    compare: bool = True,
) -> None:
    """Do the steps of a page on the machines of its groups, and compare the outputs.

    Args:
        path: The page.
        machines: Machines by the name of their group, which is empty for the only machine.
        adapt: Changes a command or a file for this environment, such as an address.
        compare: False: the commands must succeed, and their outputs may differ from the page.
    """
    page = path.read_text()
    terminals = {group: [Terminal(machine) for machine in members] for group, members in machines.items()}
    files: list[File] = []
    outputs: list[tuple[Command, str]] = []
    script = list(steps(page))
    for number, step in enumerate(script):
        if isinstance(step, File):
            files.append(step)
            continue
        following = script[number + 1] if number + 1 < len(script) else None
        may_fail = isinstance(following, Command) and following.line == "echo $?"
        for terminal in terminals[step.group]:
            for file in files:
                terminal.write(File(file.path, adapt(file.text)))
            output = terminal.type_in(adapt(step.line))
            assert may_fail or terminal.status == 0, f"{step.line}: exit {terminal.status}\n{output}"
            if terminal is terminals[step.group][0]:
                outputs.append((step, output))
        files = []
    if WRITE and compare:
        for step, output in reversed(outputs):
            page = page[: step.start] + output + page[step.end :]
        path.write_text(page)
    for step, output in outputs if compare else ():
        if step.output or not WRITE:
            assert normalized(output) == normalized(step.output if not WRITE else output), step.line
