"""Health checks that wait for something without a time limit, and invalid goss files.

``health-check-limit``: by default, each try ends after a minute. That is long for a waiting run, and much longer than
authors of ``curl http://localhost/`` expect. Commands that only check this machine need no limit.

``goss-file``: unsupported tests of a goss file, each with its place in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from foundation.problems import ProblemCode
from puller.authoring.lint.checks.commands import place_of, without_expressions
from puller.authoring.lint.findings import Finding, Severity
from puller.authoring.lint.names.bundle import Bundle, ManifestFile, bundle_of
from puller.authoring.lint.names.places import YamlText
from puller.authoring.lint.subject import Subject, read_text
from puller.bundle_paths import BundlePathError
from puller.checks.gossfile_parser import read
from puller.manifest.entries import Entry
from puller.system.commands import split_words

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


def check(subject: Subject) -> Iterator[Finding]:
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
                    yield manifest.yaml.part(place).finding(code, Severity.WARNING, what)


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
        yield part.finding(ProblemCode.MISSING_FILE, Severity.ERROR, error.problems[0].message, name=path)
        return
    if (text := read_text(file)) is None:
        detail = f"goss: {path} is not a text file of the bundle"
        part = manifest.yaml.part(place)
        yield part.finding(ProblemCode.MISSING_FILE, Severity.ERROR, detail, name=path)
        return
    yaml = YamlText(bundle.name_of(file), text)
    for problem in read(text, path)[1]:
        part = yaml.part(problem.path)
        yield part.finding(ProblemCode.GOSS_FILE, Severity.ERROR, str(problem))


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
