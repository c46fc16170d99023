"""``web/history.json``, all published versions of a bundle: strict parsing, one encoding."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bundles.errors import FormatError
from bundles.format.index import Archive, Artifact, ChannelEntry, Digest, History, Version
from bundles.format.release import Release, Rollout
from tests.support.rows import each_row

NOW = datetime(2026, 11, 20, 12, 0, 0, 250, tzinfo=UTC)
WHOLE = NOW.replace(microsecond=0)


def artifact(version: str, sha256: str = "a" * 64) -> Artifact:
    return Artifact(Archive.of("web", version, Digest(10, sha256)), Digest(5, "b" * 64))


def a_history() -> History:
    rolling = Release("web", "1.5.0", Rollout(percent=12.5, before=Release("web", "1.4.0"), wave="shop-7"))
    return (
        History("web")
        .with_version("1.4.0", artifact("1.4.0"), NOW)
        .with_statement("stable", Release("web", "1.4.0"), NOW)
        .with_version("1.5.0", artifact("1.5.0"), NOW + timedelta(days=1))
        .with_statement("stable", rolling, NOW + timedelta(days=1))
        .with_statement("stable", None, NOW + timedelta(days=2))
        .without_files({"1.4.0"}, NOW + timedelta(days=3))
    )


def test_a_history_survives_being_written_and_read() -> None:
    history = a_history()
    assert History.parse(history.to_bytes(), "web") == history
    assert History.parse(history.to_bytes(), "web").to_bytes() == history.to_bytes()


def test_history_is_ordered_with_times_in_whole_seconds() -> None:
    history = a_history()
    assert list(history.versions) == ["1.4.0", "1.5.0"]
    assert [output.at - WHOLE for output in history.statements] == [timedelta(days=days) for days in range(3)]
    assert history.statements[-1] == ChannelEntry(WHOLE + timedelta(days=2), "stable", None)


def test_a_version_keeps_its_files_for_ever() -> None:
    history = History("web").with_version("1.0.0", artifact("1.0.0"), NOW)
    again = history.with_version("1.0.0", artifact("1.0.0", "c" * 64), NOW + timedelta(days=1))
    assert again == history


def test_pruned_version_stays_in_the_history() -> None:
    history = History("web").with_version("1.0.0", artifact("1.0.0"), NOW)
    pruned = history.without_files({"1.0.0"}, NOW + timedelta(days=1))
    assert pruned.versions["1.0.0"] == Version("1.0.0", artifact("1.0.0"), WHOLE, WHOLE + timedelta(days=1))
    assert pruned.without_files({"1.0.0"}, NOW + timedelta(days=2)) == pruned
    assert pruned.with_version("1.0.0", artifact("1.0.0"), NOW + timedelta(days=3)) == history


def document_with(**others: Any) -> bytes:
    return json.dumps({**json.loads(a_history().to_bytes()), **others}).encode()


def version_with(**fields: Any) -> list[Any]:
    return [{**json.loads(a_history().to_bytes())["versions"][0], **fields}]


@each_row(
    ("document", "message"),
    [
        (
            document_with(format=2),
            r"^web/history\.json: format: is 2, .* reads 1: upgrade Puller on this host$",
        ),
        (b"\xff", "is not a history: is not UTF-8 text"),
        (document_with(bundle="db"), 'bundle: is "db", expected "web"'),
        (
            document_with(notes=[]),
            "history: unknown keys 'notes', expected bundle, format, statements, versions",
        ),
        (document_with(versions={}), r"history\.versions: is \{\}, expected an array"),
        (document_with(versions=version_with() * 2), "versions: contains a version twice"),
        (document_with(versions=version_with(published="today")), r"versions\[0\]\.published: is \"today\""),
        (
            document_with(versions=version_with(pruned=None)),
            r"versions\[0\]\.pruned: is null, expected a time",
        ),
        (document_with(versions=version_with(version="a b")), r"versions\[0\]: version: is 'a b', expected"),
        (
            document_with(versions=version_with(archive=1)),
            r"versions\[0\]\.archive: is 1, expected an object",
        ),
        (document_with(versions=version_with(by="me")), r"versions\[0\]: unknown keys 'by'"),
        (document_with(statements=[5]), r"statements\[0\]: is 5, expected an object"),
        (
            document_with(statements=[{"at": 1, "channel": "stable"}]),
            r"statements\[0\]\.at: is 1, expected a time",
        ),
        (
            document_with(statements=[{"at": "2026-11-20T12:00:00Z", "channel": "Stable"}]),
            r"statements\[0\]: channel: is 'Stable'",
        ),
        (
            document_with(
                statements=[{"at": "2026-11-20T12:00:00Z", "channel": "stable", "rollout": {"percent": 1}}]
            ),
            r"statements\[0\]\.version: is null, expected a string",
        ),
    ],
)
def test_invalid_history_is_refused_with_its_location(document: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        History.parse(document, "web")
