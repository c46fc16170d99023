"""Problems for tests that do not depend on their codes."""

from __future__ import annotations

from typing import Any

from foundation.problems import Problem, ProblemCode


def failure(message: str | Problem, code: ProblemCode = ProblemCode.CHANGE_FAILED, **fields: Any) -> Problem:
    """Return a problem with this message. A problem is returned unchanged."""
    return message if isinstance(message, Problem) else Problem(code=code, message=message, **fields)
