"""Results of test cases, and their output as text, JSON and JUnit XML.

Results are plain values without secrets.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from foundation.problems import Problem
from foundation.quantities import counted
from puller.values.colour import coloured, coloured_diff_line
from puller.values.foreign_text import visible, visible_json


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One difference from a case."""

    where: str
    """*file:line* of the expectation."""
    message: str
    expected: str = ""
    found: str = ""
    declared: str = ""
    """*file:line* of the resource's declaration."""
    diff: str = ""
    """A unified diff of two texts."""
    problem: Problem | None = None
    """The problem, if the case or the manifest has one."""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One checked case."""

    bundle: str
    """As the user named it."""
    case: str
    file: str
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0
    snapshot: str | None = None
    """The new snapshot, or ``None`` for no snapshot."""

    @property
    def passed(self) -> bool:
        return not self.failures


# Output formats.

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def title(result: Result) -> str:
    """Return the name of a case among the cases of all bundles: ``web: web01``."""
    return f"{result.bundle}: {result.case}" if result.bundle else result.case


def text_lines(result: Result, *, colours: bool = False) -> Iterator[str]:
    """Yield a line for a case, and its failures below, with terminal colours if ``colours``."""
    word, colour = ("ok  ", "green") if result.passed else ("FAIL", "red")
    yield f"{coloured(word, colour) if colours else word}  {visible(title(result))}"
    for failure in result.failures:
        yield from (
            f"      {line}" if line else ""
            for line in _lines(failure, coloured_diff_line if colours else str)
        )


def _lines(failure: Failure, paint: Callable[[str], str]) -> Iterator[str]:
    declared = f" (declared in {failure.declared})" if failure.declared else ""
    first, *more = visible(f"{failure}\n").rstrip("\n").split("\n")
    yield from (f"{first}{visible(declared)}", *more)
    yield from (f"  {paint(line)}" for line in visible(failure.diff).splitlines())


def summary(results: Sequence[Result], seconds: float) -> str:
    """Return the summary ``12 cases: 11 passed, 1 failed, in 0.42 s``."""
    failed = sum(not result.passed for result in results)
    return f"{counted(len(results), 'case')}: {len(results) - failed} passed, {failed} failed, in {seconds:.2f} s"


def as_json(results: Sequence[Result], seconds: float) -> str:
    """Return all results as JSON."""
    failed = sum(not result.passed for result in results)
    document = {
        "format": 1,
        "passed": len(results) - failed,
        "failed": failed,
        "seconds": round(seconds, 3),
        "cases": [_plain(result) for result in results],
    }
    return visible_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"


def _plain(result: Result) -> dict[str, object]:
    return {
        "bundle": result.bundle,
        "case": result.case,
        "file": result.file,
        "passed": result.passed,
        "seconds": round(result.seconds, 3),
        "failures": [msgspec.to_builtins(failure) for failure in result.failures],
    }


def as_junit(results: Sequence[Result], seconds: float) -> str:
    """Return all results as JUnit XML, with a test suite for each bundle."""
    root = ET.Element("testsuites", _counts(results, seconds))
    for bundle in dict.fromkeys(result.bundle for result in results):
        own = [result for result in results if result.bundle == bundle]
        counts = _counts(own, sum(result.seconds for result in own))
        suite = ET.SubElement(root, "testsuite", {"name": _xml(bundle or "."), **counts})
        for result in own:
            _add_case(suite, result)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(results: Sequence[Result], seconds: float) -> dict[str, str]:
    failed = sum(not result.passed for result in results)
    return {"tests": str(len(results)), "failures": str(failed), "errors": "0", "time": f"{seconds:.3f}"}


def _add_case(suite: ET.Element, result: Result) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        {
            "name": _xml(result.case),
            "classname": _xml(result.bundle or "."),
            "file": _xml(result.file),
            "time": f"{result.seconds:.3f}",
        },
    )
    if result.failures:  # one element, because some readers do not accept several
        failure = ET.SubElement(case, "failure", {"message": _xml(str(result.failures[0]))})
        failure.text = _xml("\n".join(line for one in result.failures for line in _lines(one, str)))


def _xml(text: str) -> str:
    """Return a text without characters that are invalid in XML."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", visible(text))
