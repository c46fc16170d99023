"""Reports contain problems as objects, including codes of other versions of Puller."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from foundation.problems import DependsOn, Location, Problem, ProblemCode
from puller.manifest.problems import Problems
from puller.reporting.report import Event, State
from tests.support.rows import each_row

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

NO_TEXTS = ("code", "depends_on", "known_more")
FAILING = """
resources:
  - exec: [{"false": {}}]
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}/t": {template: files/a.j2}
"""


def decoded(**fields: object) -> Event:
    problem = {"code": "change-failed", "message": "no space", **fields}
    return msgspec.json.decode(
        json.dumps({"type": "file", "name": "/a", "state": "failed", "problems": [problem]}), type=Event
    )


def test_unknown_code_of_newer_host_is_kept() -> None:
    event = decoded(code="a-code-of-2031", depends_on="the weather", shape="round")
    (problem,) = event.problems
    assert (problem.code, problem.depends_on) == ("a-code-of-2031", DependsOn.NOTHING)
    assert event.errors == ["no space"]
    assert json.loads(msgspec.json.encode(event))["problems"][0]["code"] == "a-code-of-2031"
    assert "a-code-of-2031" not in ProblemCode.__members__.values()


@each_row("code", ["", "A", "a b", "a\n", "<b>", "-", "a" * 10_000 + "!", 1, None])
def test_code_of_other_characters_is_refused(code: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        decoded(code=code)


def test_each_text_of_a_problem_is_masked() -> None:
    place = Location("s3cret", 1, 2, ("s3cret", 3))
    texts = {name: "a s3cret" for name in Problem.__struct_fields__ if name not in NO_TEXTS}
    problem = msgspec.structs.replace(
        Problem(code=ProblemCode.CHANGE_FAILED, message=""),
        **{**texts, "location": place, "suggestions": ("s3cret",), "known": ("s3cret",), "related": (place,)},
    )
    masked = problem.map_texts(lambda text: text.replace("s3cret", "***"))
    assert b"s3cret" not in msgspec.json.encode(masked)
    assert msgspec.json.encode(masked).count(b"***") == msgspec.json.encode(problem).count(b"s3cret")


def test_failures_of_a_run_are_objects_with_codes(settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", FAILING, files={"files/a.j2": b"{{ nothing.at.all }}"})
    assert settled.run().status == 4
    report = settled.report()
    problems = [event["problems"][0] for event in report["bundles"][0]["events"] if "problems" in event]
    assert [problem["code"] for problem in problems] == ["change-failed", "template-fails"]
    assert problems[0]["message"] == "exit code 1, expected 0"
    (failed, _) = settled.status()["last_run"]["failed"]
    assert failed["problems"][0]["code"] == "change-failed"
    assert failed["problems"][0]["text"] == "exit code 1, expected 0"


def test_problems_outside_of_resources_have_codes(settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", "resources: [{file: [{/a: {colour: red}}]}]")
    assert settled.run().status == 13
    problem, *_ = settled.report()["problems"]
    assert problem["code"] == "unknown-property"
    assert problem["location"]["line"] == 1
    assert (problem["subject"], problem["property"]) == ("file#/a", "colour")
    assert settled.status()["last_run"]["problems"][0]["code"] == "unknown-property"
    assert State.STABLE in settled.states().values()


def test_each_text_of_a_placed_problem_is_masked() -> None:
    problems = Problems.of_text("manifest.yaml", "resources: []\n")
    problems.mask = lambda text: text.replace("s3cret", "***")
    noted = Problem(
        code=ProblemCode.DECLARED_TWICE, message="s3cret", name="file#/s3cret", suggestions=("s3cret",)
    )
    placed = problems.placed(noted, ("resources",))
    assert b"s3cret" not in msgspec.json.encode(placed)
    assert (placed.name, placed.location.line) == ("file#/***", 1)
