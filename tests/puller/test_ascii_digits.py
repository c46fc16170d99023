"""Digits of other scripts are invalid: ``int`` accepts them, but the programs that read Puller's files do not."""

import re

import pytest

from bundles.publisher.push.plan import _METADATA, _ROOT
from foundation.times import Duration
from puller.delivery.delivery import _NAME as SPOOLED
from puller.fleet.receiving import _RUN
from puller.reporting.history import _NAME as KEPT

ARABIC = str.maketrans("0123456789", "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669")


def test_names_of_runs_have_ascii_digits() -> None:
    run = "20261126T120000.000000Z"
    for pattern, name in (
        (_RUN, run),
        (SPOOLED, f"{run}-other.json.gz"),
        (re.compile(KEPT), f"{run}-quiet.json"),
        (_ROOT, "metadata/12.root.json"),
        (_METADATA, "metadata/12.snapshot.json"),
    ):
        assert pattern.fullmatch(name)
        assert not pattern.fullmatch(name.translate(ARABIC))


def test_durations_have_ascii_digits() -> None:
    assert float(Duration.parse("10s")) == 10.0
    for text in ("10s", "10"):
        with pytest.raises(ValueError, match="is"):
            Duration.parse(text.translate(ARABIC))
