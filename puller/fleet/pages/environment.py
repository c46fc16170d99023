"""The Jinja2 environment of the pages, with links, file names and charts.

* All values from hosts are escaped as text.
* File names of pages are safe for any name of a host, a version or a resource.
* Charts are SVG within a page. They use the colours of the page: light, dark and print. Each chart has a title and a
  description for screen readers. Its numbers are in a table.
"""

import hashlib
import io
import itertools
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from foundation.differences import Difference
from foundation.formatting import ARROW, lines
from foundation.problem_pages import address_of
from foundation.problems import Problem, ProblemCode
from foundation.quantities import counted
from foundation.times import minute_text
from puller.fleet.views import Condition, EventView, Series
from puller.reporting.terminal_rows import message_of
from puller.values.foreign_text import visible, visible_json

# Charts, drawn by matplotlib. It does not support variables of style sheets, so each colour is drawn as a unique
# placeholder and replaced afterwards.

MOST_SERIES = 7
"""Maximum number of series with their own colour. Smaller series are drawn as one."""
OTHERS = "others"
_INK, _LINE = "#010203", "#040506"
_SERIES = [f"#0a0b{number:02x}" for number in range(MOST_SERIES + 1)]
_CHART_COLOURS = {_INK: "currentColor", _LINE: "var(--line)"} | {
    colour: f"var(--s{number})" for number, colour in enumerate(_SERIES)
}
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_LONGEST = 32  # characters of a name
_SIZE = (10.0, 3.2)  # inches, of 72 units


def shares_over_time(
    title: str,
    times: Sequence[datetime],
    series: Mapping[str, Sequence[int]],
    colours: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return an SVG of the shares of a whole at each of ``times``, or an empty text for fewer than two times.

    ``series`` has a count for each time, which holds until the next time. The first series is at the bottom.
    ``colours`` are variables of the style sheet for some series, such as ``good``.
    """
    if len(times) < 2 or not series:
        return ""
    drawn = few_series(series)
    places = [float(place) for place in date2num(list(times))]
    # A dollar sign in a version's name does not start a formula.
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": title,
        "font.family": "sans-serif",
        "text.parse_math": False,
    }
    with rc_context(style), warnings.catch_warnings():
        # The reader's fonts may have glyphs that the fonts of this machine lack.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure = Figure(figsize=_SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.stackplot(
            places, *drawn.values(), labels=list(map(_label, drawn)), colors=_SERIES, step="post", linewidth=0
        )
        axes.set_xlim(places[0], places[-1])
        axes.set_ylim(0, max(map(sum, zip(*drawn.values(), strict=True))) or 1)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.set_ylabel("hosts", color=_INK)
        locator = AutoDateLocator(minticks=3, maxticks=8, tz=times[0].tzinfo)
        axes.xaxis_date(times[0].tzinfo)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=times[0].tzinfo))
        axes.xaxis.get_offset_text().set_color(_INK)
        axes.grid(axis="y", color=_LINE, linewidth=0.6)
        axes.set_axisbelow(False)
        axes.tick_params(colors=_INK, length=3)
        for side in axes.spines.values():
            side.set_visible(False)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(
            handles[::-1],
            labels[::-1],
            loc="outside right upper",
            frameon=False,
            labelcolor=_INK,
            fontsize=10,
        )
        into = io.StringIO()
        figure.savefig(into, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    named = {
        colour: f"var(--{colours[name]})"
        for name, colour in zip(drawn, _SERIES, strict=False)
        if name in colours
    }
    return _within_a_page(into.getvalue(), title, {**_CHART_COLOURS, **named})


def few_series(series: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Return the most important series, in their order, and the sum of the others.

    The newest series with current hosts comes first, then the largest current series, then the largest past series.
    """
    names = [name for name in series if name != OTHERS]
    newest = next((name for name in reversed(names) if series[name] and series[name][-1]), None)

    def importance(name: str) -> tuple[bool, int, int, str]:
        counts = series[name]
        return name != newest, -(counts[-1] if counts else 0), -max(counts, default=0), name

    chosen = sorted(names, key=importance)[:MOST_SERIES]
    drawn = {name: list(counts) for name, counts in series.items() if name in chosen}
    remainder = [counts for name, counts in series.items() if name not in chosen]
    if remainder:
        drawn[OTHERS] = [sum(counts) for counts in zip(*remainder, strict=True)]
    return drawn


def _label(name: str) -> str:
    """Return the label of a series: short, and with valid XML characters."""
    text = _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", visible(name))
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return (
        f"\u200b{text}" if text.startswith("_") else text
    )  # matplotlib omits labels that begin with an underscore


def _within_a_page(svg: str, title: str, colours: Mapping[str, str]) -> str:
    """Return only the ``svg`` element, with the colours of the page and a title."""
    svg = svg[svg.index("<svg") :]
    # Its style sheet would apply to the whole page.
    svg = re.sub(r"<(metadata|style).*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;\"]*;?", "", svg)
    svg = re.sub(r'^<svg [^>]*?viewBox="([^"]*)"[^>]*>', _opening(title), svg, count=1)
    # A page contains several pictures with the same identifiers, so each picture gets its own prefix.
    prefix = re.sub(r"[^a-z0-9]+", "-", title.lower())
    svg = re.sub(r'\b(id="|href="#|url\(#)', lambda result: f"{result[1]}{prefix}-", svg)
    for drawn, expected in colours.items():
        svg = svg.replace(drawn, expected)
    return svg.strip()


def _opening(title: str) -> str:
    label = escape(_NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", visible(title))).replace("\\", "\\\\")
    return rf'<svg viewBox="\1" role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'


# File names and links of pages.

_PLAIN = re.compile(r"[a-z0-9][a-z0-9._+-]{0,80}")


def file_name(text: str) -> str:
    """Return a file name for any text: a plain text itself, otherwise its plain part and a digest."""
    if _PLAIN.fullmatch(text) and not text.endswith((".html", ".")):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40]
    return f"{plain}~{digest}" if plain else digest


def host_page(name: str) -> str:
    """Return the path of a host's page, relative to the top of the pages."""
    return f"hosts/{file_name(name)}.html"


def bundle_page(name: str) -> str:
    """Return the path of the page of a bundle."""
    return f"bundles/{file_name(name)}.html"


def release_page(bundle: str, version: str) -> str:
    """Return the path of the page of a bundle's version."""
    return f"releases/{file_name(f'{bundle}@{version}')}.html"


def failure_page(key: str) -> str:
    """Return the path of the page of a common error."""
    return f"failures/{file_name(key)}.html"


def resource_page(reference: str) -> str:
    """Return the path of a resource's page."""
    return f"resources/{file_name(reference)}.html"


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


def make_environment() -> Environment:
    """Return the environment of the templates. It always escapes, and undefined names are errors."""
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
        differences=lines_of_differences,
        explanation=explanation,
        groups=groups,
        marked=marked,
        message=message_of,
        share=share,
    )
    made.globals.update(
        chart=_chart,
        few=lambda series: few_series(series.counts),
        bundle_page=bundle_page,
        host_page=host_page,
        release_page=release_page,
        failure_page=failure_page,
        resource_page=resource_page,
    )
    return made


def template(name: str) -> str:
    """Return the text of a template."""
    return (files("puller.fleet.pages") / "templates" / name).read_text("utf-8")


def asset(name: str) -> bytes:
    """Return a static file that pages use."""
    return (files("puller.fleet.pages") / "assets" / name).read_bytes()


def shown_time(when: datetime | None) -> str:
    """Return a time as ``2026-11-23 08:30 UTC``. Empty for ``None``."""
    return minute_text(when) if when else ""


def label(word: str) -> str:
    """Return the text of a state for people."""
    return Condition(word).label


def css(word: str) -> str:
    """Return a state as a class of the style sheet."""
    return re.sub(r"[^a-z]+", "-", word.lower())


def hosts(count: int) -> str:
    """Return ``1 host`` or ``37 hosts``."""
    return counted(count, "host")


def short(text: str) -> str:
    """Return the beginning of a text, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else f"{line[:_SHORT]}…"


def flat(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield facts by dotted names, in order, up to a readable number."""
    result = _flat(facts, "")
    for _, pair in zip(range(_MOST_FACTS), result, strict=False):
        yield pair


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from _flat(value[key], f"{name}.{key}" if name else str(key))
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield name, text[:1000]


def lines_of_differences(differences: Sequence[Difference]) -> list[str]:
    """Return a line for each difference."""
    return lines(differences, arrow=ARROW)


def groups(events: Sequence[EventView]) -> Iterator[tuple[str, list[EventView]]]:
    """Yield consecutive events of one release, with its bundle and version."""
    for (bundle, version), items in itertools.groupby(events, lambda item: (item.bundle, item.version)):
        yield f"{bundle} {version}".rstrip(), list(items)


def marked(text: str) -> Markup:
    """Return a text with the parts in backticks as code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(visible(part)) if place % 2 else visible(part)
        for place, part in enumerate(text.split("`"))
    )


def share(count: int, whole: int) -> str:
    """Return a share such as ``37 %``. A share of some hosts is at least ``<1 %``."""
    if not whole or not count:
        return "0 %"
    return f"{count * 100 // whole} %" if count * 100 >= whole else "<1 %"


def explanation(code: ProblemCode) -> str:
    """Return the address of the explanation of a code, from the top of the pages."""
    return address_of(code)


def diff_lines(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of a diff, each with its kind: ``added``, ``removed`` or empty."""
    for line in lines:
        yield ("" if line.startswith(("+++", "---")) else _KINDS.get(line[:1], "")), line


def as_script_data(value: Any) -> Markup:
    """Return JSON for a page, in a form that cannot end its element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = visible_json(text)
    # The JSON escapes keep their meaning for JSON parsers, and HTML parsers see no markup.
    escaped = re.sub(r"[<>&\u2028\u2029]", lambda result: f"\\u{ord(result[0]):04x}", text)
    return Markup(escaped)  # noqa: S704  all that could be markup is escaped above


def _chart(title: str, series: Series) -> Markup:
    # matplotlib writes XML, and escapes what it writes.
    return Markup(shares_over_time(title, series.times, series.counts, _COLOURS))  # noqa: S704


def _finalized(value: Any) -> Any:
    """Format problems, and escape control characters."""
    return visible(str(value)) if type(value) is str or isinstance(value, Problem | ProblemCode) else value
