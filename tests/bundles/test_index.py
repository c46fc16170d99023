"""``index.json``: strict in, one spelling out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bundles.errors import FormatError
from bundles.index import Index, Release

names = some.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
versions = some.from_regex(r"[0-9A-Za-z][0-9A-Za-z+~_-]{0,20}", fullmatch=True)


@given(some.lists(some.tuples(names, names, versions)))
def test_an_index_survives_being_written_and_read(entries: list[tuple[str, str, str]]) -> None:
    index = Index()
    for channel, bundle, version in entries:
        index = index.with_release(Release.of(bundle, version), channel)
    assert Index.parse(index.to_bytes()) == index
    assert Index.parse(index.to_bytes()).to_bytes() == index.to_bytes()


@given(some.permutations([("stable", "web"), ("stable", "db"), ("canary", "web")]))
def test_the_order_of_publishing_leaves_no_trace(order: list[tuple[str, str]]) -> None:
    index, other = Index(), Index()
    for channel, bundle in sorted(order):
        index = index.with_release(Release.of(bundle, "1.0.0"), channel)
    for channel, bundle in order:
        other = other.with_release(Release.of(bundle, "1.0.0"), channel)
    assert index.to_bytes() == other.to_bytes()


def test_a_release_is_found_by_channel_and_bundle() -> None:
    index = Index().with_release(Release.of("web", "1.4.0"), "stable")
    assert index.find("web", "stable") == Release("web", "1.4.0", "web/web-1.4.0.tar.gz")
    assert index.find("web", "canary") is None
    assert index.find("db", "stable") is None


def test_a_rollout_is_kept_as_it_is() -> None:
    document = document_with({"rollout": {"percent": 25, "x": [1, {"y": None}]}})
    release = Index.parse(document).find("web", "stable")
    assert release is not None
    assert release.rollout == {"percent": 25, "x": [1, {"y": None}]}
    assert json.loads(Index.parse(document).to_bytes()) == json.loads(document)


def test_remarks_are_passed_over() -> None:
    document = json.loads(document_with({"x-ticket": "OPS-1"}))
    document["x-by"] = {"name": "someone"}
    assert Index.parse(json.dumps(document).encode()) == Index.parse(document_with({}))


def document_with(changes: dict[str, Any]) -> bytes:
    release = {"version": "1.4.0", "target": "web/web-1.4.0.tar.gz", **changes}
    return json.dumps({"format": 1, "channels": {"stable": {"web": release}}}).encode()


RELEASE = r"channels\.'stable'\.'web'"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b'{"format": 2, "new": {}}', r"index\.json: format: is 2, this version of Puller reads 1: upgrade"),
        (b'{"format": 0}', "format: is 0"),
        (b'{"format": true}', "format: is true, wanted the number 1"),
        (b'{"format": "1"}', 'format: is "1", wanted the number 1'),
        (b"{}", "format: is null, wanted the number 1"),
        (b"[]", r"index\.json: is \[\], wanted an object"),
        (b"<html>", "is not an index: Expecting value"),
        (b'{"format": 1, "format": 1}', "the key 'format' stands there twice"),
        (b'{"format": 1}', "channels: is null, wanted an object"),
        (b'{"format": 1, "channels": []}', r"channels: is \[\], wanted an object"),
        (b'{"format": 1, "channels": {"stable": 5}}', "channels.'stable': is 5, wanted an object"),
        (b'{"format": 1, "channels": {"stable": {"web": "1.4"}}}', f'{RELEASE}: is "1.4", wanted an object'),
        (
            b'{"format": 1, "channels": {}, "halt": true}',
            "unknown keys 'halt', wanted channels, format: upgrade",
        ),
        (b'{"format": 1, "channels": {"St able": {}}}', "channel: is 'St able', wanted"),
        (b'{"format": 1, "channels": {"stable": {"../web": {}}}}', "name: is '../web', wanted"),
        (document_with({"version": 1}), rf"{RELEASE}\.version: is 1, wanted a string"),
        (document_with({"version": "../1"}), "version: is '../1', wanted"),
        (document_with({"version": "1..2"}), r"version: is '1\.\.2', wanted"),
        (document_with({"target": None}), rf"{RELEASE}\.target: is null, wanted a string"),
        (
            document_with({"target": "../../etc/passwd"}),
            r"'../../etc/passwd': the name holds the component '\.\.'",
        ),
        (document_with({"target": "/etc/passwd"}), "the name is absolute"),
        (document_with({"rollout": 25}), rf"{RELEASE}\.rollout: is 25, wanted an object"),
        (document_with({"halted": True}), f"{RELEASE}: unknown keys 'halted'"),
    ],
)
def test_what_an_index_cannot_be_is_refused_with_its_place(document: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Index.parse(document)
