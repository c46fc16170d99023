"""The formatter of problems: places, hints, suggestions and groups."""

import pytest

from foundation.formatting import text_of_all
from foundation.problems import Problem, ProblemCode


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "exec#0: fails"),
        (2, "exec#0: fails (and 1 more resource)"),
        (3, "exec#0: fails (and 2 more resources)"),
    ],
)
def test_equal_messages_are_printed_once_with_their_number(count: int, text: str) -> None:
    problems = [
        Problem(code=ProblemCode.CHANGE_FAILED, message="fails", subject=f"exec#{number}")
        for number in range(count)
    ]
    assert text_of_all(problems) == text
