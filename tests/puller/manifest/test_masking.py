"""The mask for all output of a run about a resource."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from foundation.masking import VALUE_MASK
from hiera.values import Secret
from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.masking import Masks
from puller.reporting.report import Event
from puller.system.local import LocalSystem

if TYPE_CHECKING:
    from tests.puller.conftest import Load

PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----\n"


@pytest.mark.parametrize(
    "data",
    [
        {"a": Secret("hunter2")},
        {"a": [{"b": Secret("hunter2")}]},
        {"a": Secret({"b": ["hunter2"]})},
        {"a": Secret([Secret("hunter2")])},
    ],
)
def test_secrets_are_found_anywhere_in_data(data: Mapping[str, Any]) -> None:
    assert Masks().of(data)("hunter2") == VALUE_MASK


def test_a_number_may_be_a_secret() -> None:
    assert Masks().of({"pin": Secret(47114711)})("is 47114711") == f"is {VALUE_MASK}"


def test_a_boolean_among_secrets_says_nothing_of_them() -> None:
    masked = Masks().of({"app": Secret({"enabled": True, "token": "hunter2"})})
    assert masked("it is true that hunter2 is set") == f"it is true that {VALUE_MASK} is set"


def test_of_data_that_are_read_bit_by_bit_every_secret_is_known() -> None:
    masks, data = Masks(), {"a": Secret("hunter2")}
    assert masks.of(data)("hunter2 hunter3") == f"{VALUE_MASK} hunter3"
    data["b"] = Secret("hunter3")
    assert masks.of(data)("hunter2 hunter3") == f"{VALUE_MASK} {VALUE_MASK}"


def test_a_secret_of_bytes_that_are_no_text_ends_no_run(load: "Load") -> None:
    event = apply(
        load,
        """
        resources:
          - exec: {name: a, command: "false", environment: ["T={{ data.token }}"], sensitive: true}
        """,
        {"token": os.fsdecode(b"hunter\xff")},
    )
    assert event.errors == ["exit code 1, expected 0"]


def apply(load: "Load", text: str, *sources: Mapping[str, Any]) -> Event:
    manifest = load(text, sources=sources)
    engine = Engine(
        manifest, LocalSystem(), lambda url: b"", PendingRefreshes(None, ""), Settings(diffs=True)
    )
    return engine.apply()[-1]


def test_secret_in_command_output_is_masked(load: "Load") -> None:
    event = apply(
        load,
        """
        data:
          # @sensitive
          token: hunter2
        resources:
          - exec: {name: a, command: "sh -c 'echo it is hunt''er2; exit 1'"}
        """,
    )
    assert event.errors == [f"exit code 1, expected 0; it printed:\nit is {VALUE_MASK}"]


def test_of_a_sensitive_resource_no_output_is_shown_at_all(load: "Load") -> None:
    event = apply(
        load,
        """
        resources:
          - exec:
              name: a
              command: "true"
              sensitive: true
              health_checks: [{command: "sh -c 'echo c2VjcmV0; exit 2'", name: web}]
        """,
    )
    assert event.errors == [f"health check web: exit status 2 (CRITICAL): {VALUE_MASK}"]
    assert [(check.name, check.output) for check in event.health_checks] == [("web", VALUE_MASK)]


def test_a_bug_in_a_sensitive_resource_shows_where_and_not_what(
    load: "Load", monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError(PEM)

    monkeypatch.setattr("puller.resources.exec.Exec.look", fail)
    event = apply(load, "resources: [{exec: {name: a, command: 'true', sensitive: true}}]")
    assert event.errors[0].startswith("internal error: KeyError\n")
    assert "in fail" in event.errors[0]
    assert "MII" not in event.errors[0]
