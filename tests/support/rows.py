"""Tables of fast cases as single tests.

pytest takes about five milliseconds of processor time for each test. Many cases of a table take less.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from _pytest.mark import ParameterSet

Test = Callable[..., None]


def each_row(
    names: str | Sequence[str],
    rows: Iterable[Any],
    *,
    ids: Callable[[Any], object] | Iterable[object] | None = None,
) -> Callable[[Test], Test]:
    """Return a decorator like ``pytest.mark.parametrize`` that makes one test of all rows.

    The test tries all rows, and reports each failure with its row. Use it for more than about 16 rows of a fast
    function that needs no fresh fixture.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [ParameterSet.extract_from(row, force_tuple=len(keys) == 1) for row in rows]
    assert table, "the table has no rows"
    assert not any(row.marks for row in table), "use pytest.mark.parametrize for rows with marks"
    titles = list(ids) if ids is not None and not callable(ids) else None

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def of_all_rows(**fixtures: Any) -> None:
            failures = []
            for number, row in enumerate(table):
                try:
                    test(**dict(zip(keys, row.values, strict=True)), **fixtures)
                except Exception as error:  # noqa: BLE001  reported below
                    title = titles[number] if titles else row.id
                    error.add_note(f"row {number}: {title or row.values!r}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(table)} rows fail", failures)

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        of_all_rows.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return of_all_rows

    return decorate
