"""All places that accept a duration have the same grammar."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import click
import msgspec
import pytest
from hypothesis import given
from hypothesis.strategies import integers

from bundles.errors import PublishError
from bundles.publisher.settings import Lifetimes, SiteSettings
from foundation.times import Duration, parse_since, parse_until
from hiera.expressions.checks import CHECKS
from puller.checks.kinds import File as FileCheck
from puller.checks.kinds import HealthCheck
from puller.cli.command_table import cli
from puller.cli.options import DurationType, EndType
from puller.config.configuration import HttpOptions, ReportOptions
from puller.resources.registry import find_type, type_names
from tests.support.rows import each_row

MESSAGE = "expected a duration such as '30s', '1h30m' or '7d'"
VALID = {
    "30s": 30.0,
    "5m": 300.0,
    "90m": 5400.0,
    "1h30m": 5400.0,
    "1.5h": 5400.0,
    ".5h": 1800.0,
    "30m1h": 5400.0,
    "1500ms": 1.5,
    "2000000us": 2.0,
    "2000000µs": 2.0,
    "5000000000ns": 5.0,
    "12h": 43200.0,
    "7d": 604800.0,
    "4w": 2419200.0,
    "2M": 5184000.0,
    "1y": 31536000.0,
    "100000m": 6000000.0,
}
INVALID = [
    "",
    "s",
    "5x",
    "5 m",
    "1h 30m",
    "-5s",
    "+5s",
    "5m!",
    "5S",
    "1e3s",
    "1,5h",
    "soon",
    "P1D",
    "٥s",
    "9999y",
]

Place = Callable[[str], float]
"""Returns the seconds of a text. Raises ``ValueError``, ``PublishError`` or ``click.UsageError``."""


def struct_places() -> Iterator[tuple[str, Place]]:
    structs: list[type[msgspec.Struct]] = [HealthCheck, FileCheck, HttpOptions, ReportOptions]
    structs += [kind.properties_type for kind in map(find_type, type_names()) if kind]
    for struct in structs:
        for field in msgspec.structs.fields(struct):
            if Duration in (field.type, *getattr(field.type, "__args__", ())):
                yield f"{struct.__name__}.{field.encode_name}", Duration.parse


def options_below(command: click.Command, path: str) -> Iterator[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from options_below(inner, f"{path} {name}")
    for parameter in command.params:
        yield f"{path} {parameter.opts[-1]}", parameter


OPTIONS = dict(options_below(cli, "puller"))


def option_place(option: click.Parameter) -> Place:
    context = click.Context(click.Command("x"))
    return lambda text: seconds(option.type_cast_value(context, text))


def option_places() -> Iterator[tuple[str, Place]]:
    for name, option in OPTIONS.items():
        if isinstance(option.type, DurationType | EndType):
            yield name, option_place(option)


def site_settings(text: str, value: str) -> SiteSettings:
    return SiteSettings.parse(text.replace("VALUE", f"'{value}'").encode(), "site.yaml")


def until(text: str) -> float:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    return (parse_until(text, now) - now).total_seconds()


def since(text: str) -> float:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    return (now - parse_since(text, now)).total_seconds()


def checked(text: str) -> float:
    if not CHECKS["duration"](text):
        raise ValueError(f"is {text!r}, {MESSAGE}")
    return Duration.parse_text(text)


def seconds(value: timedelta | None) -> float:
    assert value is not None
    return value.total_seconds()


PLACES: dict[str, Place] = {
    **dict(struct_places()),
    **dict(option_places()),
    "puller site init --expiry": lambda text: seconds(Lifetimes.parse({"root": text}, "expiry").root),
    "expiry": lambda text: seconds(site_settings("expiry: {timestamp: VALUE}", text).lifetimes.timestamp),
    "prune": lambda text: seconds(site_settings("prune: {after: VALUE}", text).pruning.after),
    "silent_after": lambda text: seconds(
        site_settings("watch: {silent_after: VALUE}", text).watching.silent_after
    ),
    "each": lambda text: seconds(site_settings("watch: {grow: 5%, each: VALUE}", text).watching.each),
    "puller disable --until": until,
    "puller history --since": since,
    "value is duration": checked,
}
NUMBERS_ARE_SECONDS = {name for name, _ in struct_places()}


def test_all_kinds_of_places_are_in_the_table() -> None:
    assert {
        "ExecProperties.timeout",
        "HealthCheck.try_sleep",
        "File.max_age",
        "HttpOptions.read_timeout",
    } <= set(PLACES)
    assert {
        "puller status --max-age",
        "puller site publish --over",
        "puller site rollout --over",
        "puller site prune --after",
        "puller site push --keep",
        "puller fleet import --keep",
        "puller fleet import --silent-after",
        "puller fleet status --silent",
        "puller fleet status --silent-after",
    } <= set(PLACES)


def test_no_other_option_is_named_duration() -> None:
    # The options of `puller ensure` are the properties of the types, which PLACES already contains.
    own = {name: option for name, option in OPTIONS.items() if not name.startswith("puller ensure ")}
    others = {name: option for name, option in own.items() if name not in PLACES}
    assert [name for name, option in others.items() if option.metavar in ("TIME", "DURATION")] == []


@each_row("place", PLACES)
def test_every_option_accepts_the_duration_grammar(place: str) -> None:
    assert {text: PLACES[place](text) for text in VALID} == VALID


@each_row("place", PLACES)
def test_a_place_refuses_other_texts(place: str) -> None:
    message = "expected a time such as" if place.endswith(("--until", "history --since")) else MESSAGE
    for text in INVALID:
        expected = re.escape(f"is {text!r}, {message}")
        with pytest.raises((ValueError, PublishError, click.UsageError), match=expected):
            PLACES[place](text)


@each_row("place", PLACES)
def test_a_number_without_unit_is_seconds_in_properties(place: str) -> None:
    if place in NUMBERS_ARE_SECONDS:
        assert PLACES[place]("90") == 90
    else:
        with pytest.raises((ValueError, PublishError, click.UsageError), match="is '90', expected"):
            PLACES[place]("90")


ABOVE_ZERO = [
    name
    for name in PLACES
    if ("site" in name or name in ("expiry", "each")) and not name.endswith(" --trial")  # 0s: one run decides
]


@each_row("place", ABOVE_ZERO)
def test_a_publisher_has_no_duration_of_zero(place: str) -> None:
    with pytest.raises(
        (PublishError, click.UsageError), match="is '0d', expected a duration of more than 0s"
    ):
        PLACES[place]("0d")


@pytest.mark.parametrize(("value", "expected"), [(7, 7.0), (0.2, 0.2), (0, 0.0), (" 5m\n", 300.0)])
def test_values_of_properties_may_be_numbers(value: object, expected: float) -> None:
    assert Duration.parse(value) == expected


@each_row("value", [-1, True, None, 1e12, float("nan"), float("inf"), "9" * 10000, [5]])
def test_other_values_of_properties_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        Duration.parse(value)


@given(integers(0, 1000 * 31_536_000))
def test_text_of_a_duration_is_read_again(seconds: int) -> None:
    assert float(Duration.parse_text(Duration(seconds).text)) == seconds


def test_text_of_a_duration_has_the_largest_units() -> None:
    assert [Duration(seconds).text for seconds in (0, 59, 600, 5400, 90_061)] == [
        "0s",
        "59s",
        "10m",
        "1h30m",
        "1d1h1m1s",
    ]
