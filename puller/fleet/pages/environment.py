"""The templates of the pages: all that hosts say is text in them, whatever it looks like."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from foundation.differences import Difference
from foundation.formatting import ARROW, lines
from foundation.problem_pages import address_of
from foundation.problems import Problem, ProblemCode
from foundation.quantities import counted
from foundation.timestamps import minute_text
from puller.fleet.conditions import Condition
from puller.fleet.pages import links
from puller.fleet.pages.charts import shares_over_time
from puller.fleet.views import Series
from puller.values.visible import visible, visible_json

_SHORT = 160  # characters
_COLOURS = {
    Condition.FAILED.label: "bad",
    Condition.GAVE_UP.label: "gave-up",
    Condition.HELD.label: "held",
    Condition.SILENT.label: "silent",
    Condition.PAUSED.label: "paused",
    Condition.WAITING.label: "waiting",
    Condition.IN_ORDER.label: "good",
}
_KINDS = {"+": "added", "-": "removed"}
_MOST_FACTS = 500


def environment() -> Environment:
    """The templates, with escaping always on, and undefined names as errors."""
    made = Environment(
        loader=FunctionLoader(template),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    made.filters.update(
        time=shown_time,
        label=label,
        hosts=hosts,
        css=css,
        short=short,
        flat=flat,
        diff=diff_lines,
        differences=differences,
        explanation=explanation,
    )
    made.globals.update(
        chart=_chart,
        host_page=links.host_page,
        release_page=links.release_page,
        failure_page=links.failure_page,
        resource_page=links.resource_page,
    )
    return made


def template(name: str) -> str:
    """The text of a template."""
    return (files("puller.fleet.pages") / "templates" / name).read_text("utf-8")


def asset(name: str) -> bytes:
    """A file that pages name beside themselves."""
    return (files("puller.fleet.pages") / "assets" / name).read_bytes()


def shown_time(when: datetime | None) -> str:
    """``2026-11-23 08:30 UTC``; empty for none."""
    return minute_text(when) if when else ""


def label(word: str) -> str:
    """A state as it is written for people."""
    return Condition(word).label


def css(word: str) -> str:
    """A state as a class of the style sheet."""
    return re.sub(r"[^a-z]+", "-", word.lower())


def hosts(count: int) -> str:
    """``1 host``, ``37 hosts``."""
    return counted(count, "host")


def short(text: str) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else f"{line[:_SHORT]}…"


def flat(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Facts by dotted names, in order; no more of them than anybody reads."""
    found = _flat(facts, "")
    for _, pair in zip(range(_MOST_FACTS), found, strict=False):
        yield pair


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from _flat(value[key], f"{name}.{key}" if name else str(key))
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield name, text[:1000]


def differences(found: Sequence[Difference], *, is_planned: bool = False) -> list[str]:
    """Return a line for each difference."""
    return lines(found, is_predicted=is_planned, arrow=ARROW)


def explanation(code: ProblemCode) -> str:
    """Return the address of the explanation of a code, from the top of the pages."""
    return address_of(code)


def diff_lines(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a difference, each with what it is: ``added``, ``removed`` or nothing."""
    for line in text.splitlines():
        yield ("" if line.startswith(("+++", "---")) else _KINDS.get(line[:1], "")), line


def as_script_data(value: Any) -> Markup:
    """JSON within a page: nothing in it ends the element that it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = visible_json(text)
    # No text in it can be anything but a text for whoever reads the JSON; the rest is for whoever reads the page.
    escaped = re.sub(r"[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)
    return Markup(escaped)  # noqa: S704  all that could be markup is escaped above


def _chart(title: str, series: Series) -> Markup:
    # matplotlib writes XML, and escapes what it writes.
    return Markup(shares_over_time(title, series.times, series.counts, _COLOURS))  # noqa: S704


def _finalized(value: Any) -> Any:
    """Format problems, and write control characters out."""
    return visible(str(value)) if type(value) is str or isinstance(value, Problem | ProblemCode) else value
