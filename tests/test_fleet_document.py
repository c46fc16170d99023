"""docs/fleet.md: its examples are valid, and its description of the documents is correct."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec
import pytest

from puller.config.configuration import ReportOptions, load_configuration
from puller.config.report_destinations import DestinationOptions
from puller.delivery.report_document import LARGEST, LARGEST_JSON, unpack
from puller.fleet.receiving import LONGEST, MOST_CONNECTIONS
from puller.reporting.report import SentReport

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Publisher

PAGE = Path(__file__).parents[1] / "docs/fleet.md"
TEXT = PAGE.read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def schema(execute: "Execute") -> dict[str, Any]:
    status, output = execute("schema", "report")
    assert status == 0
    result: dict[str, Any] = json.loads(output)
    return result


def test_documented_configuration_has_its_defaults(tmp_path: Path) -> None:
    (block,) = blocks("yaml")
    path = tmp_path / "config.yaml"
    path.write_text(block)
    reports, usual = load_configuration(path).reports, ReportOptions()
    assert [options.location for options in reports.destinations] == [
        "https://fleet.example.com/reports/",
        "s3://reports/production",
        "/mnt/reports",
    ]
    assert (reports.send_timeout, reports.spool) == (usual.send_timeout, usual.spool)
    assert reports.facts[:-1] == usual.facts


@pytest.mark.parametrize(
    "place", re.findall(r"^\| `([^`]+)`[^|]* \| (?:PUT|POST|the object|the file)", TEXT, re.MULTILINE)
)
def test_every_kind_of_place_is_one(tmp_path: Path, place: str) -> None:
    written = place if place.startswith("{url") else json.dumps(place)
    path = tmp_path / "config.yaml"
    path.write_text(f"site: https://a.example/\nbundles: [{{name: web}}]\nreports: {{to: [{written}]}}\n")
    assert load_configuration(path).reports.destinations


def test_every_setting_of_a_place_is_named() -> None:
    for field in msgspec.structs.fields(DestinationOptions):
        assert f"`{field.name}`" in TEXT or f"{field.name}:" in TEXT, field.name


def test_every_field_of_a_document_is_in_its_table() -> None:
    for field in msgspec.structs.fields(SentReport):
        assert re.search(rf"^\| [^|]*`{field.name}`[^|]* \|", TEXT, re.MULTILINE), field.name


def test_its_limits_are_the_real_ones() -> None:
    assert f"{LARGEST_JSON // 1024**2} MiB of JSON, and {LARGEST // 1024} KiB compressed" in TEXT
    assert f"{MOST_CONNECTIONS} connections at a time, each for no longer than {LONGEST:g} seconds" in TEXT


def test_sent_document_matches_the_schema(
    settled: "Host", publisher: "Publisher", execute: "Execute", tmp_path: Path
) -> None:
    result = schema(execute)
    jsonschema.Draft202012Validator.check_schema(result)
    validator = jsonschema.Draft202012Validator(result)
    (tmp_path / "sent").mkdir()
    settled.configure(reports={"to": [str(tmp_path / "sent")]})
    publisher.publish("1.1.0", "resources: [{exec: [{'false': {}}, {'true': {require: ['exec#false']}}]}]")
    assert settled.run().status == 4
    assert settled.puller("disable", "--reason", "a test").status == 0
    assert settled.run().status == 20
    files = sorted((tmp_path / "sent").rglob("*.json.gz"))
    assert len(files) == 2
    for path in files:
        document = json.loads(unpack(path.read_bytes()))
        validator.validate(document)
        assert document["format"] == 3
    assert not validator.is_valid({**document, "format": 4})
    assert not validator.is_valid({**document, "host": None})
    assert validator.is_valid({**document, "something new": 1})
