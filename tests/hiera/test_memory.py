"""The size of results is checked before they are computed. Hostile expressions run with little memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hiera import limits
from hiera.document.document import Document
from hiera.errors import LimitError
from hiera.expressions.expressions import Scope, resolve

CHILD = """
import json, resource, sys
import yaml
from hiera.errors import HieraError
from hiera.expressions.expressions import Scope, evaluate
from hiera.expressions.jinja import compile_expression
evaluate("'a' | to_yaml ~ 'a' | tojson", Scope({}))
status = open("/proc/self/status").read()
limit = int(status.partition("VmSize:")[2].split()[0]) * 1024 + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
outcomes = []
for expression in json.load(sys.stdin):
    try:
        outcomes.append(f"made {len(str(evaluate(expression, Scope({}))))}")
    except HieraError as error:
        outcomes.append(f"{type(error).__name__}: {error.what}")
json.dump(outcomes, sys.stdout)
"""
MIB = 1024 * 1024

MANY = "(['x'*10**5]*10**5)"
NUMBERS = "([2**4000]*(10**6))"
MADE_OF_MANY = [
    MANY,
    f"{MANY} ~ 'x'",
    f"'%s' % {MANY}",
    f"'%s' % ({MANY},)",
    f"'%r' | format({MANY})",
    f"'x' | replace('x', {MANY})",
    f"['a', 'b'] | join({MANY})",
    f"{{'a': [{MANY}]}} | to_json",
    f"{{'x'*10**7: {MANY}}} | string",
    *(
        f"{MANY} | {name}"
        for name in (
            *(
                "to_json",
                "to_nice_json",
                "tojson",
                "to_yaml",
                "to_nice_yaml",
                "string",
                "pprint",
                "join",
                "format",
            ),
            *(
                "indent",
                "wordwrap",
                "center",
                "upper",
                "lower",
                "title",
                "trim",
                "capitalize",
                "escape",
                "e",
                "safe",
            ),
            *(
                "forceescape",
                "striptags",
                "wordcount",
                "urlize",
                "replace('x', 'y')",
                "sort",
                "unique",
                "path_join",
            ),
            *("map('upper') | list", "map('to_json') | list", "quote", "truncate(9)", "tojson(indent=9999)"),
        )
    ),
    *(f"{NUMBERS} | {name}" for name in ("to_json", "string", "pprint", "to_yaml", "join")),
]
EXPANDING = [
    "('\\u0001'*16000000) | to_json",
    "['\\u0001'*16000000] | to_json",
    "['\\u0001'*16000000] | string",
    "['\\U0001f600'*4000000] | to_json",
    "('<'*16000000) | tojson",
    "([([1]*100)]*1000) | to_nice_json(indent=10000)",
    "{'k'*10**6: {'a': [1]*10**5}} | pprint",
    "{'k'*10**4: {'a b c '*10**5: 1}} | pprint",
    "('x'*16000000) | list",
    "('x'*16000000) | sort",
    "('x'*16000000) | join(',')",
    "('x'*16000000) | batch(1) | list",
    "('x'*16000000) | slice(1) | list",
    "('ab '*5000000) | split",
    "('ab '*5000000) | split(' ')",
    "('ab '*5000000) | wordwrap(1)",
    "(['x']*(10**6)) | to_yaml",
]


def outcomes(expressions: list[str], memory: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(memory)],
        input=json.dumps(expressions),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    results: list[str] = json.loads(done.stdout)
    return results


@pytest.mark.representatives(1)
@pytest.mark.attack("input.template-memory")
@pytest.mark.parametrize("expressions", [MADE_OF_MANY, EXPANDING], ids=["made of many", "expanding"])
def test_memory_exhaustion_is_refused_in_advance(expressions: list[str]) -> None:
    """A MemoryError would also be an error, but would not name a limit."""
    for expression, outcome in zip(expressions, outcomes(expressions, 200 * MIB), strict=True):
        assert outcome.startswith("LimitError: "), (expression, outcome)
        assert "at most" in outcome, (expression, outcome)


def test_large_value_below_the_limit_is_accepted() -> None:
    made = {
        "('x'*10**7) | to_json": 10**7 + 2,
        "['x'*10**6]*10 | to_json": 0,
        "(['x'*10**6]*10) | to_json": 10**7 + 60 - 20,
        "(range(1000) | list) | to_yaml": 0,
        "(['a b']*1000) | pprint": 0,
        "('<'*10**6) | escape": 4 * 10**6,
    }
    result = outcomes(list(made), 400 * MIB)
    for (expression, length), outcome in zip(made.items(), result, strict=True):
        assert outcome.startswith("made ") or "*10 |" in expression, (expression, outcome)
        assert not length or outcome == f"made {length}", (expression, outcome)


def test_expressions_of_a_document_share_a_budget() -> None:
    data = {f"key{n}": "{{ 'x'*16000000 }}" for n in range(20)}
    document = Document.from_value({"data": data}, "data.yaml", lambda _: (1, 1))
    with pytest.raises(
        LimitError, match=r"data\.key8: .*expressions make more than 134217728 characters together"
    ):
        document.resolve({})


def test_references_cost_no_memory() -> None:
    data = {f"key{n}": "{{ data.text }}" for n in range(20)}
    document = Document.from_value(
        {"data": {"text": "{{ 'x'*16000000 }}", **data}}, "data.yaml", lambda _: (1, 1)
    )
    assert len(document.resolve({}).data["key19"]) == 16_000_000


def test_text_around_expressions_counts_too() -> None:
    scope = Scope({"text": "x" * 16_000_000})
    with limits.total:
        for _ in range(8):
            resolve("a {{ facts.text }}", scope)
        with pytest.raises(LimitError, match="together"):
            resolve("a {{ facts.text }}", scope)
    resolve("a {{ facts.text }}", scope)


@pytest.mark.parametrize(
    "value", [[1, "a", None, True, 1.5], {"a": ["b", {"c": 2**70}]}, ["ä\n\x01😀'\""], [[]] * 50]
)
def test_a_value_is_measured_as_it_is_printed(value: object) -> None:
    assert len(repr(value)) <= limits.printed_length(value) <= 3 * len(repr(value)) + 100
