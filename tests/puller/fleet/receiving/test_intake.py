"""The directory of ``serve-reports``: its limits for each host."""

from datetime import timedelta
from pathlib import Path

import pytest

from puller.delivery.report_document import pack
from puller.fleet import receiving
from puller.fleet.receiving import Intake
from tests.simulators import fleet


@pytest.mark.attack("reports.flood")
def test_oldest_documents_of_a_host_go_beyond_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MOST_DOCUMENTS", 3)
    start = fleet.now()
    documents = [fleet.sent("web", start + timedelta(minutes=number)) for number in range(5)]
    place = Intake(tmp_path)
    for document in documents:
        assert place.take(pack(document), None)
    place.take(pack(fleet.sent("other", start)), None)
    names = sorted(path.name for path in (tmp_path / "web").iterdir())
    assert names == [f"{document.report.run}.json.gz" for document in documents[2:]]
    assert len(list((tmp_path / "other").iterdir())) == 1
    old = fleet.sent("web", start - timedelta(days=1))
    assert place.take(pack(old), None)
    assert f"{old.report.run}.json.gz" in {path.name for path in (tmp_path / "web").iterdir()}


@pytest.mark.attack("reports.flood")
def test_large_documents_of_a_host_go_beyond_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MOST_BYTES", 1)
    for number in range(3):
        Intake(tmp_path).take(pack(fleet.sent("web", fleet.now() + timedelta(minutes=number))), None)
    assert len(list((tmp_path / "web").iterdir())) == 1
