"""Strict parsing of documents from hosts."""

import gzip
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from puller.delivery.report_document import pack
from puller.fleet.host_document import plain, read_document
from puller.fleet.views import Condition
from tests.simulators.fleet import json_of, sent
from tests.support.rows import each_row

_AT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
_HOST = "web1.example.com"


def _changed(**report: Any) -> bytes:
    """Return the JSON of a document with changes. Changes of the document itself are under ``document``."""
    value = json.loads(json_of(sent(_HOST, _AT)))
    value |= report.pop("document", {})
    value["report"] |= report
    return json.dumps(value).encode()


def test_a_document_as_it_is_sent_is_read_packed_and_not() -> None:
    original = sent(_HOST, _AT)
    for data in (pack(original), json_of(original)):
        document = read_document(data, _HOST, _AT)
        assert document.sent == original
        assert (document.host, document.run) == (_HOST, original.report.run)
        assert (document.at, document.ahead, document.condition) == (_AT, None, Condition.IN_ORDER)
        assert msgspec.json.decode(gzip.decompress(document.packed)) == json.loads(json_of(original))


@each_row(
    ("data", "why"),
    [
        (b"", "is not a report"),
        (b"{", "is not a report"),
        (b"\xff\xfe", "is not a report"),
        (b"[]", "is not a report"),
        (b'{"format": 4}', "has format 4, and this version of Puller reads format 3"),
        (b'{"format": 3}', "is not a report"),
        (b"\x1f\x8b", "is cut off"),
        (b"\x1f\x8bgarbage!", "is not a compressed report"),
        (pack(sent(_HOST, _AT))[:-5], "is cut off"),
        (pack(sent(_HOST, _AT)) + b"x", "further data behind"),
        (gzip.compress(b" " * 2_000_000), "more than 1048576 bytes after decompression"),
        (b"\x1f\x8b" + b"x" * 300_000, "has more than 262144 bytes"),
        (b" " * 2_000_000, "has more than 1048576 bytes"),
        (b'{"format":3,"facts":{"a":' + b"[" * 100_000, "is not a report"),
        (_changed(document={"host": "../etc"}), "has the host"),
        (_changed(document={"host": "db.example.com"}), "hosts can only send their own reports"),
        (_changed(host="db.example.com"), "contains a report of the host"),
        (_changed(run=""), "has an invalid identity of the run"),
        (_changed(run="a" * 65), "has an invalid identity of the run"),
        (_changed(run="a\nb"), "has an invalid identity of the run"),
        (_changed(run="a\0b"), "has an invalid identity of the run"),
        (_changed(noop=True), "belongs to a dry run"),
        (_changed(finished="yesterday"), "expected a time"),
        (_changed(finished="2026-02-30T00:00:00Z"), "expected a time"),
        (_changed(finished="2026-05-04T03:02:01"), "expected a time in UTC"),
        (_changed(finished="0001-01-01T00:00:00+23:59"), "expected a time between 2000 and 9000"),
        (_changed(finished="9999-12-31T23:59:59-23:59"), "expected a time between 2000 and 9000"),
        (_changed(exit_status=2**63 - 1), "has an invalid exit status"),
        (_changed(exit_status=-1), "has an invalid exit status"),
        (
            _changed(document={"restless": [{"bundle": "a", "reference": "b", "runs": 2**40, "changes": 1}]}),
            "has an invalid number of runs",
        ),
        (_changed(document={"facts": {"a": json.loads("[" * 200 + "]" * 200)}}), "nested more than 100 deep"),
        (json_of(sent(_HOST, _AT)).replace(b'"kvm"', b"1" * 5000), "is not a report"),
        (json_of(sent(_HOST, _AT)).replace(b'"kvm"', b'"\\ud800"'), "is not a report"),
    ],
)
def test_invalid_document_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_document(data, _HOST, _AT)


def test_a_hundred_thousand_facts_fit_and_a_million_are_refused() -> None:
    facts = {f"a{number}": 1 for number in range(50_000)}
    assert len(read_document(pack(sent(_HOST, _AT, facts=facts)), _HOST, _AT).sent.facts) in (0, 50_000)
    many = b'{"format":3,"host":"%s","facts":{%s' % (_HOST.encode(), b'"a":1,' * 1_000_000)
    with pytest.raises(ValueError, match="more than"):
        read_document(many, _HOST, _AT)


def test_facts_as_deep_as_they_may_be_can_be_written_again() -> None:
    facts = {"a": json.loads("[" * 98 + "]" * 98)}
    document = read_document(json_of(sent(_HOST, _AT, facts=facts)), _HOST, _AT)
    assert json.dumps(document.sent.facts)


def test_future_clock_does_not_set_a_future_contact() -> None:
    little = read_document(pack(sent(_HOST, _AT + timedelta(minutes=59))), _HOST, _AT)
    assert (little.at, little.ahead) == (_AT, None)
    much = read_document(pack(sent(_HOST, _AT + timedelta(days=400))), _HOST, _AT)
    assert (much.at, much.ahead) == (_AT, timedelta(days=400))


def test_a_clock_that_is_behind_is_believed() -> None:
    assert read_document(pack(sent(_HOST, _AT - timedelta(days=9))), _HOST, _AT).at == _AT - timedelta(days=9)


def test_text_is_limited_to_storable_characters() -> None:
    assert plain("a\0b\ud800c\udfff\N{SNOWMAN}") == "a\ufffdb\ufffdc\ufffd\N{SNOWMAN}"


def test_unstorable_documents_are_refused() -> None:
    noise = random.Random(1).randbytes(400_000).hex()
    with pytest.raises(ValueError, match="compressed bytes"):
        read_document(json_of(sent(_HOST, _AT, facts={"a": noise})), _HOST, _AT)
