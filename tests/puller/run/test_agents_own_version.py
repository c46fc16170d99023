"""The agent's own version in a run: requirements of bundles, and a fallback for a version that does not start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foundation.problems import ProblemCode
from puller.version import __version__
from tests.support.stories import STORY

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.stories import Host, Publisher


def test_bundle_for_a_newer_agent_is_refused_at_once(settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", f'requires: {{puller: ">=999"}}\n{STORY}')
    for _ in range(2):
        outcome = settled.run()
        assert outcome.status == 13
        sentence = f"manifest.yaml:1: requires Puller >=999, but this is Puller {__version__}"
        settled.assert_told(f"web-1.1.0/{sentence}", outcome)
        settled.assert_enforces("1.0.0")
        (bundle,) = settled.report()["bundles"]
        assert bundle["held_because"] == "rejected"
        assert set(settled.states().values()) == {"stable"}

    publisher.publish("1.2.0", f'requires: {{puller: ">={__version__}"}}\n{STORY}')
    assert settled.run().status == 0
    settled.assert_enforces("1.2.0")


def test_fallback_for_a_broken_agent_version_is_reported(
    settled: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "version 2.0 does not start: ImportError: gone; 1.0 is used in its place"
    monkeypatch.setenv("PULLER_FELL_BACK", sentence)
    publisher.publish("1.1.0")
    for options in ((), ("--offline",)):
        outcome = settled.run(*options)
        assert outcome.status == 16
        settled.assert_told(f"the agent: {sentence}", outcome)
        assert settled.problem_codes() == {ProblemCode.AGENT_FALLBACK}
        settled.assert_enforces("1.1.0")

    monkeypatch.delenv("PULLER_FELL_BACK")
    assert settled.run().status == 0


def test_completed_run_removes_the_launcher_note(
    settled: Host, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a bug leaves the note. Child processes do not get ``PULLER_BEGUN``."""
    note = tmp_path / "2.0.begun"

    def begun() -> None:
        note.write_text("1 1\n")
        monkeypatch.setenv("PULLER_BEGUN", str(note))

    seen = 'resources:\n  - exec: [env: {command: "test -z \\"$PULLER_BEGUN\\"", provider: shell}]\n'
    publisher.publish("1.1.0", seen)
    for options, status in ((("run",), 0), (("run", "--noop"), 0), (("run", "--no-such"), 64)):
        begun()
        assert settled.puller(*options).status == status
        assert not note.exists()

    begun()
    with monkeypatch.context() as patch:
        patch.setattr("puller.run.jobs._run", lambda *_: 1 / 0)
        assert settled.puller("run").status == 1
    assert note.exists(), "of a run with a bug"

    begun()
    note.unlink()
    assert settled.puller("run").status == 0, "it may be gone"

    begun()
    settled.configure(site="nowhere")
    assert settled.puller("run").status == 78
    assert not note.exists()
