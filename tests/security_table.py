"""The table of ``docs/security.md``: attack, case, tests, result.

    pytest -m attack --attack-results=results.json
    python tests/security_table.py results.json --write docs/security.md
    python tests/security_table.py plain.json left-out.json --check docs/security.md

Every case of ``attacks.yaml`` is a row, including cases without a test. ``--check`` fails if a case has no passed test,
if a test of a case did not pass, or if the page has other rows or tests. The number of variants of a test may change
without an update of the page.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ATTACKS = Path(__file__).with_name("attacks.yaml")
START, END = "<!-- made by tests/security_table.py, from here -->", "<!-- to here -->"

Outcomes = dict[str, str | None]
"""Outcome of each marked test by its node id. None: the test was not run."""


def merge(results: Iterable[dict[str, Any]]) -> dict[str, Outcomes]:
    """Return the outcomes of each case from the results of several runs, each of which may leave out other tests."""
    cases: dict[str, Outcomes] = defaultdict(dict)
    for result in results:
        for test, of_test in result.items():
            for case in of_test["cases"]:
                cases[case][test] = of_test["outcome"] or cases[case].get(test)
    return cases


class Case(NamedTuple):
    """A row of the table, as in ``attacks.yaml``. Marks refer to its ``id``."""

    section: str
    attack: str
    expected: str
    id: str
    what: str


def all_cases() -> Iterator[Case]:
    """Yield all cases in the order of the table."""
    for section, attacks in yaml.load(ATTACKS.read_text(), yaml.CSafeLoader).items():
        for attack in attacks:
            for case, what in attack["cases"].items():
                yield Case(section, attack["attack"], attack["expected"], f"{attack['id']}.{case}", what)


def problems(proofs: Mapping[str, Outcomes]) -> Iterator[str]:
    """Yield a message for each case without a passed test and each test that did not pass."""
    for case in all_cases():
        outcomes = proofs.get(case.id, {})
        if "passed" not in outcomes.values():
            yield f"{case.id}: no test passed that proves it ({case.attack}: {case.what})"
        for test, outcome in outcomes.items():
            if outcome != "passed":
                yield f"{case.id}: {test}: {outcome or 'was not run'}"


def table(proofs: Mapping[str, Outcomes]) -> str:
    """Return Markdown with a heading and a table for each section. The first case of an attack describes the attack."""
    lines: list[str] = []
    last = Case("", "", "", "", "")
    for case in all_cases():
        if case.section != last.section:
            head = ["| attack | case | tests | passed |", "| --- | --- | --- | --- |"]
            lines += ["", f"### {case.section}", "", *head]
        attack = f"**{case.attack}**: {case.expected}" if case.attack != last.attack else ""
        outcomes = proofs.get(case.id, {})
        tests = ", ".join(links(outcomes)) or "none"
        lines.append(f"| {attack} | {case.what} | {tests} | {passed(outcomes)} |")
        last = case
    return "\n".join([*lines, ""])


def links(tests: Iterable[str]) -> list[str]:
    """Return links to the files of tests, with the names of the functions as code."""
    functions = sorted({tuple(test.partition("[")[0].split("::")) for test in tests})
    return [f"[`{function[len('test_') :].replace('_', ' ')}`](../{file})" for file, function in functions]


def passed(outcomes: Outcomes) -> str:
    return f"{sum(outcome == 'passed' for outcome in outcomes.values())} of {len(outcomes)}"


def without_counts(text: str) -> str:
    return re.sub(r"\d+ of \d+ \|$", "|", text, flags=re.MULTILINE)


def between_marks(page: str) -> str:
    return page.partition(START)[2].partition(END)[0]


def with_table(page: str, made: str) -> str:
    """Return the page with its table replaced."""
    before, _, remainder = page.partition(START)
    return f"{before}{START}\n{made}{END}{remainder.partition(END)[2]}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    parser.add_argument("--check", type=Path, metavar="PAGE")
    provided = parser.parse_args()
    proofs = merge(json.loads(path.read_text()) for path in provided.results)
    made = table(proofs)
    findings = list(problems(proofs))
    if provided.write:
        provided.write.write_text(with_table(provided.write.read_text(), made))
    elif provided.check:
        page = provided.check.read_text()
        if without_counts(page) != without_counts(with_table(page, made)):
            findings.append(f"{provided.check}: has other rows or tests; write it anew with --write")
    else:
        print(made)
    print(*findings, f"{sum(1 for _ in all_cases())} cases, {len(findings)} problems", sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
