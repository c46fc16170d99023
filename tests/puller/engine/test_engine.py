"""Applying a catalog: which resources run, which are skipped, and that no pending refresh is lost."""

import errno
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from foundation.problems import ProblemCode
from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.manifest import Manifest
from puller.reporting.report import Event, State, Summary
from puller.reporting.run_log import sentence
from puller.resources.files.file import File
from puller.system.processes import StopRequests

Apply = Callable[..., dict[str, Event]]

IDS = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"


def no_network(url: str) -> bytes:
    raise AssertionError(f"{url} was fetched")


@pytest.fixture
def apply(load: Callable[..., Manifest], tmp_path: Path) -> Apply:
    """Return ``apply(text, noop=…)``, which returns the events of a run by name. ``{dir}`` is a temporary directory."""

    def run(
        text: str,
        *,
        noop: bool = False,
        facts: Mapping[str, Any] | None = None,
        stopping: Callable[[], str] = lambda: "",
        diffs: bool = False,
    ) -> dict[str, Event]:
        manifest = load(text.replace("DIR", str(tmp_path)).replace("IDS", IDS), facts=facts)
        settings = Settings(noop=noop, stopping=stopping, diffs=diffs)
        pending = tmp_path / "state" / "owed.json"
        applied = apply_catalog(
            manifest,
            settings,
            StopRequests(),
            PendingRefreshes(pending, "web", noop=settings.noop),
            state_directory=pending.parent,
            fetch=no_network,
        )
        assert len(applied.events) == len(manifest.declarations), "every resource has one event"
        return {event.alias or event.name: event for event in applied.events}

    return run


def states(events: Mapping[str, Event]) -> dict[str, str]:
    return {name: event.state.value for name, event in events.items()}


FILE_AND_SUBSCRIBER = """
    data: {text: one}
    resources:
      - file: [{DIR/conf: {alias: conf, content: "{{ facts.text }}", IDS}}]
      - exec: [{"sh -c 'echo ran >> DIR/log'": {alias: reload, refreshonly: true, subscribe: [file#conf]}}]
"""


def test_a_subscriber_runs_once_after_a_change_and_not_again(apply: Apply, tmp_path: Path) -> None:
    first = apply(FILE_AND_SUBSCRIBER, facts={"text": "one"})
    assert states(first) == {"conf": "changed", "reload": "refreshed"}
    assert states(apply(FILE_AND_SUBSCRIBER, facts={"text": "one"})) == {"conf": "stable", "reload": "stable"}
    assert (tmp_path / "log").read_text() == "ran\n"


def test_noop_predicts_the_subscriber_and_changes_nothing(apply: Apply, tmp_path: Path) -> None:
    events = apply(FILE_AND_SUBSCRIBER, facts={"text": "one"}, noop=True)
    assert states(events) == {"conf": "would change", "reload": "would change"}
    assert events["conf"].noop_message == "Would have created the file"
    assert events["reload"].noop_message == "Would have executed via subscribe"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.yaml"]


def test_refresh_of_a_killed_run_stays_pending(
    apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference loses a notification if the run ends between a change and its subscriber."""

    class Died(BaseException):
        pass

    def die(self: object, command: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr("puller.system.local.LocalSystem.execute", die)
        with pytest.raises(Died):
            apply(FILE_AND_SUBSCRIBER, facts={"text": "one"})
    assert not (tmp_path / "log").exists()
    events = apply(FILE_AND_SUBSCRIBER, facts={"text": "one"})
    assert states(events) == {"conf": "stable", "reload": "refreshed"}
    assert states(apply(FILE_AND_SUBSCRIBER, facts={"text": "one"})) == {"conf": "stable", "reload": "stable"}


def test_a_refresh_that_failed_is_tried_again_by_the_next_run(apply: Apply, tmp_path: Path) -> None:
    text = FILE_AND_SUBSCRIBER.replace("echo ran >> DIR/log", "test -e DIR/ready")
    assert states(apply(text, facts={"text": "one"})) == {"conf": "changed", "reload": "failed"}
    assert states(apply(text, facts={"text": "one"})) == {"conf": "stable", "reload": "failed"}
    (tmp_path / "ready").touch()
    assert states(apply(text, facts={"text": "one"})) == {"conf": "stable", "reload": "refreshed"}
    assert states(apply(text, facts={"text": "one"})) == {"conf": "stable", "reload": "stable"}


def test_failed_change_leaves_no_pending_refresh(apply: Apply, tmp_path: Path) -> None:
    """Otherwise a file that cannot be written would restart its service in every run."""
    text = FILE_AND_SUBSCRIBER.replace("DIR/conf:", "DIR/missing/conf:")
    assert states(apply(text, facts={"text": "one"})) == {"conf": "failed", "reload": "skipped"}
    assert states(apply(text, facts={"text": "one"})) == {"conf": "failed", "reload": "skipped"}
    (tmp_path / "missing").mkdir()
    (tmp_path / "missing/conf").write_text("one")
    os.chmod(tmp_path / "missing/conf", 0o644)
    assert states(apply(text, facts={"text": "one"})) == {"conf": "stable", "reload": "stable"}
    assert not (tmp_path / "log").exists()


def test_a_subscriber_of_many_runs_once(apply: Apply, tmp_path: Path) -> None:
    apply("""
        resources:
          - file: [{DIR/a: {content: a, IDS}}, {DIR/b: {content: b, IDS}}]
          - exec: [{"sh -c 'echo ran >> DIR/log'": {refreshonly: true, subscribe: [file#DIR/a, file#DIR/b]}}]
    """)
    assert (tmp_path / "log").read_text() == "ran\n"


def test_failed_requirement_skips_dependents_and_is_listed(apply: Apply) -> None:
    events = apply("""
        resources:
          - exec:
              - "false": {}
              - "echo a": {alias: a, require: ["exec#false"]}
              - "echo b": {alias: b, require: [exec#a]}
              - "echo c": {alias: c, after: ["exec#false"]}
    """)
    assert states(events) == {"false": "failed", "a": "skipped", "b": "skipped", "c": "changed"}
    assert events["a"].unmet_requirements == ["exec#false"]
    assert events["b"].unmet_requirements == ["exec#a"]
    assert events["false"].errors == ["exit code 1, expected 0"]


def test_a_requirement_skipped_by_control_counts_as_met(apply: Apply) -> None:
    events = apply("""
        resources:
          - exec:
              - "echo a": {alias: a, control: {if: "false"}}
              - "echo b": {alias: b, require: [exec#a]}
    """)
    assert states(events) == {"a": "skipped", "b": "changed"}
    assert events["a"].skip_reason == "control: if false is false"


CONTROL = [
    (None, None, True), ("true", None, True), ("false", None, False), (None, "true", False), (None, "false", True),
    ("true", "true", False), ("true", "false", True), ("false", "true", False), ("false", "false", False),
]  # fmt: skip


def test_excluded_resource_needs_no_facts(apply: Apply) -> None:
    events = apply(
        """
        resources:
          - exec:
              - "echo a": {environment: ["A={{ facts.zfs.pools }}"], control: {if: "'zfs' in facts"}}
              - "echo b": {require: ["exec#echo a"], environment: ["A={{ facts.zfs.pools }}"]}
              - "echo c": {environment: ["A={{ facts.zfs.pools }}"], control: {if: "facts.zfs.on"}}
        """
    )
    assert events["echo a"].skip_reason == "control: if 'zfs' in facts is false"
    assert [events[f"echo {name}"].state for name in "abc"] == [State.SKIPPED, State.FAILED, State.FAILED]


@pytest.mark.parametrize(("condition", "unless", "managed"), CONTROL)
def test_control_selects_managed_resources(
    apply: Apply, condition: str | None, unless: str | None, managed: bool
) -> None:
    provided = {"if": condition, "unless": unless}
    control = ", ".join(f"{key}: 'facts.yes == {value}'" for key, value in provided.items() if value)
    events = apply(f"resources: [{{exec: {{name: echo a, control: {{{control}}}}}}}]\n", facts={"yes": True})
    assert events["echo a"].state is (State.CHANGED if managed else State.SKIPPED)


def test_a_condition_that_is_no_truth_is_the_resources_failure(apply: Apply) -> None:
    events = apply("""
        resources:
          - exec:
              - "echo a": {control: {if: "1 + 1"}}
              - "echo b": {control: {unless: "facts.nope"}}
              - "echo c": {}
    """)
    assert states(events) == {"echo a": "failed", "echo b": "failed", "echo c": "changed"}
    assert events["echo a"].errors == ["control: if 1 + 1 is 2, expected true or false"]
    assert "unknown key 'nope' in facts" in events["echo b"].errors[0]


def test_failed_resource_does_not_end_the_run(
    apply: Apply, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the reference, a failing template, provider or reference of one resource aborts the run."""

    def look(self: File) -> None:
        raise RuntimeError("a bug in a type")

    monkeypatch.setattr(File, "look", look)
    events = apply("""
        resources:
          - file: [{DIR/a: {alias: bug, content: a, IDS}}]
          - exec:
              - "echo a": {alias: template, command: "{{ facts.nope }}"}
              - "echo b": {alias: provider, provider: fish}
              - "/no/such/command": {alias: missing}
              - "echo c": {alias: guard, onlyif: /no/such/guard}
              - "echo d": {alias: fine}
    """)
    assert [problem.code for problem in events["bug"].problems] == [ProblemCode.INTERNAL_ERROR]
    result = {name: (event.state.value, *event.errors) for name, event in events.items()}
    assert result.pop("bug")[1].startswith("internal error: RuntimeError('a bug in a type')")
    assert result == {
        "template": ("failed", "web/manifest.yaml:5: command: {{ facts.nope }}: unknown key 'nope' in facts"),
        "provider": ("failed", "provider is 'fish', expected one of posix, shell"),
        "missing": ("failed", "command '/no/such/command' cannot be started: no such file or directory"),
        "guard": ("failed", "onlyif '/no/such/guard' cannot be started: no such file or directory"),
        "fine": ("changed",),
    }


def test_fail_on_error_stops_after_the_first_failure(apply: Apply) -> None:
    events = apply("""
        fail_on_error: true
        resources:
          - exec: [{"echo a": {}}, {"false": {}}, {"echo b": {}}, {"echo c": {}}]
    """)
    assert states(events) == {
        "echo a": "changed",
        "false": "failed",
        "echo b": "skipped",
        "echo c": "skipped",
    }
    assert events["echo c"].skip_reason == "exec#false failed, and fail_on_error is set"
    assert not events["echo c"].reached


def test_signal_stops_between_resources_and_is_reported(apply: Apply, tmp_path: Path) -> None:
    events = apply(
        "resources: [{exec: [{'touch DIR/a': {alias: a}}, {'touch DIR/b': {alias: b}}]}]\n",
        stopping=lambda: "stopped by SIGTERM" if (tmp_path / "a").exists() else "",
    )
    assert states(events) == {"a": "changed", "b": "skipped"}
    assert events["b"].skip_reason == "stopped by SIGTERM"


def test_noop_resource_changes_and_refreshes_nothing(apply: Apply, tmp_path: Path) -> None:
    """In the reference, a child with ``noop`` triggers its real subscribers."""
    events = apply("""
        resources:
          - file: [{DIR/conf: {alias: conf, content: a, noop: true, IDS}}]
          - exec: [{"echo ran": {alias: reload, refreshonly: true, subscribe: [file#conf]}}]
    """)
    assert states(events) == {"conf": "would change", "reload": "stable"}
    assert not (tmp_path / "conf").exists()


def test_noop_predicts_failures_too(apply: Apply) -> None:
    text = """
        resources:
          - file: [{DIR/missing/conf: {alias: conf, content: a, IDS}}, {DIR/x: {alias: x, source: nope, IDS}}]
    """
    predicted, done = apply(text, noop=True), apply(text)
    assert {n: e.errors for n, e in predicted.items()} == {n: e.errors for n, e in done.items()}
    assert states(predicted) == {"conf": "failed", "x": "failed"}


FAILING = {
    "a refused change": "link: [{DIR/full: {alias: it, target: b}}]",
    "a failed command": "exec: [{/bin/false: {alias: it}}]",
    "a command without effect": "exec: [{/bin/true: {alias: it, creates: DIR/none}}]",
    "a missing parent": "file: [{DIR/missing/conf: {alias: it, content: a, IDS}}]",
}


@pytest.mark.parametrize("resource", FAILING.values(), ids=FAILING)
def test_a_failed_change_keeps_its_planned_differences(apply: Apply, tmp_path: Path, resource: str) -> None:
    (tmp_path / "full/x").mkdir(parents=True)
    events = {noop: apply(f"resources: [{resource}]\n", noop=noop)["it"] for noop in (True, False)}
    assert events[False].state is State.FAILED
    assert events[False].is_planned
    assert events[False].differences == events[True].differences != []
    assert "would run" in sentence(events[False]) or "exec" not in resource


def test_a_failed_look_has_no_differences(apply: Apply) -> None:
    event = apply("resources: [{exec: [{/bin/true: {alias: it, unless: /nowhere/x}}]}]\n")["it"]
    assert (event.state, event.differences, event.is_planned) == (State.FAILED, [], False)
    assert [problem.code for problem in event.problems] == [ProblemCode.LOOK_FAILED]


def test_the_secret_of_a_failed_change_is_masked(apply: Apply) -> None:
    text = """
        data:
          # @sensitive
          key: canary-7
        resources: [{file: [{DIR/missing/conf: {alias: it, content: "{{ data.key }}", IDS}}]}]
    """
    event = apply(text)["it"]
    assert event.differences
    assert "canary" not in repr(event)


def test_noop_command_makes_missing_paths_uncertain(apply: Apply) -> None:
    events = apply(
        """
        resources:
          - exec: [{"mkdir DIR/made": {alias: mkdir}}]
          - file: [{DIR/made/conf: {alias: conf, content: a, IDS}}]
        """,
        noop=True,
    )
    assert states(events) == {"mkdir": "would change", "conf": "would change"}


def test_after_a_change_the_resource_is_looked_at_again(
    apply: Apply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(File, "change", lambda self, differences, actual: None)
    events = apply("resources: [{file: [{DIR/a: {alias: a, content: a, IDS}}]}]\n")
    assert events["a"].errors == ["is still out of sync after the change: ensure absent → present"]


def test_health_checks_run_after_a_successful_change_only(apply: Apply, tmp_path: Path) -> None:
    text = """
        resources:
          - exec:
              - "true": {health_checks: [{command: "sh -c 'echo fine; echo x >> DIR/checks'", name: fine}]}
              - "false": {health_checks: [{command: "sh -c 'echo x >> DIR/checks'"}]}
    """
    apply(text, noop=True)
    assert not (tmp_path / "checks").exists()
    events = apply(text)
    assert (tmp_path / "checks").read_text() == "x\n"
    (result,) = events["true"].health_checks
    assert (result.name, result.status, result.tries, result.output) == ("fine", "OK", 1, "fine")


@pytest.mark.parametrize(
    ("command", "status", "output"),
    [
        ("sh -c 'echo slow; exit 1'", "WARNING", "slow"),
        ("sh -c 'exit 2'", "CRITICAL", "no output"),
        ("sh -c 'exit 3'", "UNKNOWN", "no output"),
        ("/no/such/check", "UNKNOWN", "cannot be started: no such file or directory"),
        ("sh -c 'sleep 60'", "UNKNOWN", "killed after"),
        ("sh 'unclosed", "UNKNOWN", "cannot be started: has a single quote that is not closed"),
    ],
)
def test_a_health_check_that_is_not_ok_fails_the_resource(
    apply: Apply, command: str, status: str, output: str
) -> None:
    """In the reference, a check that cannot be started or times out crashes the summary."""
    quoted = command.replace("'", "''")
    events = apply(
        f"resources: [{{exec: {{name: 'true', health_checks: [{{command: '{quoted}', timeout: 300ms}}]}}}}]\n"
    )
    assert events["true"].state is State.FAILED
    assert events["true"].health_checks[0].status == status
    assert output in events["true"].errors[0]


def test_a_health_check_is_tried_again(apply: Apply, tmp_path: Path) -> None:
    text = """
        resources:
          - exec: {name: "true", health_checks: [{command: "sh -c 'echo x >> DIR/n; test $(wc -l < DIR/n) = 3'",
                   tries: 5, try_sleep: 1ms}]}
    """
    (result,) = apply(text)["true"].health_checks
    assert (result.status, result.tries) == ("OK", 3)


def test_diffs_are_optional_and_mask_secrets(apply: Apply) -> None:
    events = apply(
        """
        resources:
          - file: [{DIR/a: {alias: a, content: "open\\n", IDS}}]
          - file: [{DIR/b: {alias: b, content: hidden, sensitive: true, IDS}}]
        """,
        diffs=True,
    )
    assert "+open\n" in events["a"].diff
    assert events["b"].diff == ""
    assert "hidden" not in repr(events["b"])


def test_a_summary_counts_every_resource_once(apply: Apply) -> None:
    events = apply("""
        resources:
          - exec:
              - "echo a": {}
              - "false": {}
              - "echo b": {require: ["exec#false"]}
              - "echo c": {refreshonly: true, subscribe: ["exec#echo a"]}
              - "echo d": {creates: /}
    """)
    summary = Summary.of(events.values(), 0.5)
    assert str(summary) == "5 resources, 1 stable, 1 changed, 1 refreshed, 1 failed, 1 skipped in 0.50 s"
    assert summary.exit_status(detailed=False) == 6


def test_full_disk_is_reported_with_path_and_free_space(
    apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(
            errno.ENOSPC, os.strerror(errno.ENOSPC)
        )  # an error without a path, as from a write to a descriptor

    monkeypatch.setattr("puller.system.local.replace_file", full)
    path = tmp_path / "new"
    owner = f"owner: '{os.geteuid()}', group: '{os.getegid()}'"
    (tmp_path / "source").mkdir()
    (tmp_path / "source/new").write_text("a")
    (file, scaffold) = apply(f"""
resources:
  - file: [{{{path}: {{content: a, {owner}, mode: '0600'}}}}]
  - scaffold: [{{{tmp_path}/target: {{source: source, {owner}}}}}]
""").values()
    room = r"no space left on the file system: requires 1 byte, [\d.]+ \w+ are free on /\S*"
    assert re.fullmatch(rf"{path}: {room}", file.errors[0])
    assert re.fullmatch(rf"{tmp_path}/target\S*: {room}", scaffold.errors[0])
