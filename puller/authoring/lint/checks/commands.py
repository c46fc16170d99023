"""Command lines with an unintended meaning or with secrets, and health checks without a time limit.

* ``command-syntax``: the command cannot be split into words.
* ``shell-operator``: a redirection, a pipe or another shell word in a command without a shell. The program would get it
  as an argument, or a program of that name is missing.
* ``relative-program``: the path of a program has no starting point: neither / nor a ``cwd``.
* ``shell-syntax``: a character that a shell would replace, but that stays unchanged here.
* ``secret-on-command-line``: a secret that the process list would show.

Health checks:

* ``health-check-limit``: a health check waits for something without a time limit. By default, each try ends after a
  minute. That is long for a waiting run, and much longer than authors of ``curl http://localhost/`` expect. Commands
  that only check this machine need no limit.
* ``goss-file``: unsupported tests of a goss file, each with its place in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from foundation.problems import Problem, ProblemCode
from hiera.errors import HieraError
from hiera.expressions.expressions import parse
from puller.authoring.lint.bundle import Bundle, ManifestFile, bundle_of
from puller.authoring.lint.findings import Finding, Subject, of_resource, read_text
from puller.authoring.lint.known_names import YamlText
from puller.bundle_paths import BundlePathError
from puller.checks.gossfile_parser import read
from puller.checks.kinds import HealthCheck
from puller.manifest.entries import Entry
from puller.system.commands import split_words

_Mistake = tuple[ProblemCode, str]
_BY_SHELL: Final = ". A shell runs commands with provider: shell"
_OPERATOR: Final = re.compile(r"(\d*[<>]{1,2}(&\d|&-)?|&>{1,2}|\|{1,2}|&{1,2}|;)")
_REDIRECTION: Final = re.compile(r"(\d*>{1,2}|<)(/|&\d|\.)|&>/")
_BUILT_IN: Final = frozenset(
    (
        *(
            ".",
            "!",
            "{",
            "(",
            "alias",
            "break",
            "case",
            "cd",
            "continue",
            "eval",
            "exit",
            "export",
            "for",
            "function",
        ),
        *(
            "if",
            "local",
            "return",
            "set",
            "shift",
            "source",
            "trap",
            "ulimit",
            "umask",
            "unalias",
            "unset",
            "until",
        ),
        *("wait", "while"),
    )
)
_EXPANDED: Final = re.compile(r"\$[\w(?!#@*$-]|\$\{\w|`|(?<![\w.])~(?=/|$)|\*|;$|>{1,2}(?=/)|<(?=/)|&&|\|\|")
_STAND_IN: Final = "x"  # for the value of an expression
_LITERAL: Final = frozenset({"find", "grep", "sed", "awk", "systemd-run"})
"""Programs with their own use of such characters."""


def _mistaken(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in all commands of resources and health checks."""
    for manifest in bundle_of(subject).manifests.values():
        for entry in manifest.resources:
            for path, written, is_shell in _commands(entry):
                has_cwd = path[0] != "health_checks" and entry.properties.get("cwd") is not None
                for code, message in _mistakes(written, is_shell=is_shell, has_cwd=has_cwd):
                    part = manifest.yaml.part(place_of(manifest, entry, path))
                    yield part.finding(code, message)


def _commands(entry: Entry) -> Iterator[tuple[tuple[str | int, ...], str, bool]]:
    """Yield each command with its place below the resource, and whether a shell runs it."""
    properties = entry.properties
    if entry.type_name == "exec":
        provider = properties.get("provider") or "posix"
        for name in ("command", "onlyif", "unless"):
            written = properties.get(name) or (properties.get("name") if name == "command" else None)
            if isinstance(written, str):
                yield (name,), written, provider != "posix"
    checks = properties.get("health_checks")
    for index, item in enumerate(checks if isinstance(checks, list) else ()):
        if isinstance(item, Mapping) and isinstance(item.get("command"), str):
            yield ("health_checks", index, "command"), item["command"], False


def place_of(manifest: ManifestFile, entry: Entry, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return the place of a command. If the command is the name of the resource, this is the resource."""
    value: Any = manifest.root
    for step in (*entry.path, *path):
        try:
            value = value[step]
        except (LookupError, TypeError):
            return entry.path
    return (*entry.path, *path)


def _mistakes(written: str, *, is_shell: bool, has_cwd: bool) -> Iterator[_Mistake]:
    text = without_expressions(written)
    if text is None or is_shell:
        return
    try:
        words = split_words(text)
    except ValueError as error:
        yield ProblemCode.COMMAND_SYNTAX, f"the command {written!r} {error}"
        return
    raw = _raw_words(text)
    program = words[0].rpartition("/")[2] if words else ""
    if words and words[0] in _BUILT_IN:
        detail = f"{words[0]} is a word of the shell, not a program{_BY_SHELL}"
        yield ProblemCode.SHELL_OPERATOR, detail
        return
    if words and not has_cwd and _is_relative(written, words[0]):
        detail = f"{words[0]} is relative to /, because cwd is missing: write the absolute path"
        yield ProblemCode.RELATIVE_PROGRAM, detail
    yield from _of_words(raw, program)


def _is_relative(written: str, program: str) -> bool:
    """Return whether a program's path is relative. A path that begins with an expression is not."""
    if written.lstrip("'\" ").startswith("{{"):
        return False
    return "/" in program and program[0] not in "/~$"


def _of_words(raw: list[str], program: str) -> Iterator[_Mistake]:
    for word in raw[1:]:
        if _OPERATOR.fullmatch(word) or _REDIRECTION.match(word):
            if word == ";" and program == "find":
                continue
            detail = f"{word} is an argument of {program}, because no shell runs the command{_BY_SHELL}"
            yield ProblemCode.SHELL_OPERATOR, detail
            return
    for word in raw:
        if program not in _LITERAL and (match := _EXPANDED.search(word)):
            detail = (
                f"{match[0]} in {word} is not expanded, because no shell runs the command: quote it, or write"
            )
            yield ProblemCode.SHELL_SYNTAX, f"{detail} provider: shell"
            return


def without_expressions(written: str) -> str | None:
    """Return the text with a word in place of each expression, or ``None`` for one expression or an invalid text."""
    try:
        pieces = parse(written)
    except HieraError:  # reported where expressions are checked
        return None
    if len(pieces) == 1 and not isinstance(pieces[0], str):
        return None
    return "".join(piece if isinstance(piece, str) else _STAND_IN for piece in pieces)


def _raw_words(text: str) -> list[str]:
    """Return the words without their quoted parts, which a shell would not expand."""
    retained = re.sub(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"", _STAND_IN, text, flags=re.DOTALL)
    return retained.split()


def _secret(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each command line that contains a secret."""
    for declaration in subject.manifest.declarations if subject.manifest else ():
        for name in sorted(declaration.secret & declaration.type.command_lines):
            if name == "health_checks" and not _has_commands(declaration.properties.health_checks):
                continue
            detail = f"{name} contains a secret, which the process list shows while the command runs"
            advice = "pass it in the environment or in a file"
            code = ProblemCode.SECRET_ON_COMMAND_LINE
            problem = Problem(code=code, message=detail, property=name, hint=advice)
            yield of_resource(declaration, problem, subject)


def _has_commands(checks: Iterable[HealthCheck]) -> bool:
    """Return whether a check starts a program of the manifest. Other checks have no command line."""
    return any(check.command is not None for check in checks)


def check_commands(subject: Subject) -> Iterator[Finding]:
    """Yield the findings in command lines."""
    yield from _mistaken(subject)
    yield from _secret(subject)


_SHELLS: Final = frozenset({"ash", "bash", "dash", "ksh", "sh", "zsh"})
_SCRIPT: Final = re.compile(r"[\w./-]+")
_NONE: Final = re.compile(r"(?!)")
_LIMITS: Final = {
    "curl": re.compile(r"(^|\s)(-[a-zA-Z]*m|--max-time)"),
    "inotifywait": re.compile(r"(^|\s)(-t|--timeout)"),
    "nc": re.compile(r"(^|\s)-[a-zA-Z]*w"),
    "ncat": re.compile(r"(^|\s)(-[a-zA-Z]*w|--wait)"),
    "netcat": re.compile(r"(^|\s)-[a-zA-Z]*w"),
    "ping": re.compile(r"(^|\s)-[a-zA-Z]*[cwW]"),
    "ssh": re.compile("ConnectTimeout"),
    "until": _NONE,
    "wget": re.compile(r"(^|\s)(-[a-zA-Z]*T|--timeout)"),
    "while": _NONE,
}
"""Programs that wait or repeat, and the option with their time limit."""


def check_health(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for each such check."""
    bundle = bundle_of(subject)
    for manifest in bundle.manifests.values():
        for entry in manifest.resources:
            checks = entry.properties.get("health_checks")
            for index, item in enumerate(checks if isinstance(checks, list) else ()):
                if isinstance(item, Mapping) and isinstance(path := item.get("goss"), str):
                    yield from _of_goss(bundle, manifest, entry, index, path)
                if isinstance(item, Mapping) and (what := _trouble(item)):
                    place = place_of(manifest, entry, ("health_checks", index, "command"))
                    code = ProblemCode.HEALTH_CHECK_LIMIT
                    yield manifest.yaml.part(place).finding(code, what)


def _of_goss(
    bundle: Bundle, manifest: ManifestFile, entry: Entry, index: int, path: str
) -> Iterator[Finding]:
    """Yield the problems of the file that a check names."""
    if without_expressions(path) != path:
        return
    place = place_of(manifest, entry, ("health_checks", index, "goss"))
    try:
        file = manifest.files.find(path)
    except BundlePathError as error:
        part = manifest.yaml.part(place)
        yield part.finding(ProblemCode.MISSING_FILE, error.problems[0].message, name=path)
        return
    if (text := read_text(file)) is None:
        detail = f"goss: {path} is not a text file of the bundle"
        part = manifest.yaml.part(place)
        yield part.finding(ProblemCode.MISSING_FILE, detail, name=path)
        return
    yaml = YamlText(bundle.name_of(file), text)
    for problem in read(text, path)[1]:
        part = yaml.part(problem.path)
        yield part.finding(ProblemCode.GOSS_FILE, str(problem))


def _trouble(item: Mapping[str, Any]) -> str:
    command = item.get("command")
    if item.get("timeout") is not None or not isinstance(command, str):
        return ""
    text = without_expressions(command) or ""
    waiting = next((word for word in _programs(text) if word in _LIMITS), "")
    if not waiting or _LIMITS[waiting].search(text):
        return ""
    tries = item.get("tries", 1)
    each = "" if tries == 1 else f" in each of {tries} tries" if isinstance(tries, int) else " in each try"
    return f"{waiting} may wait for the default limit of 60s{each}: set a timeout, such as 10s"


def _programs(text: str) -> list[str]:
    """Return the names of the programs that a command line starts, as far as they are known."""
    try:
        words = split_words(text)
    except ValueError:  # already reported
        return []
    first = words[0].rpartition("/")[2] if words else ""
    if first not in _SHELLS:
        return [first]
    matches = [word.rpartition("/")[2] for word in _SCRIPT.findall(text)]
    return [] if "timeout" in matches else matches
