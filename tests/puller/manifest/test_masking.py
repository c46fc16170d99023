"""The mask for all output of a run about a resource."""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from foundation.masking import VALUE_MASK
from hiera.values import Secret
from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.masking import Mask, Masks
from puller.reporting.report import Event
from puller.system.local import LocalSystem

if TYPE_CHECKING:
    from tests.puller.conftest import Load

PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----\n"


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("hunter2", "the password is hunter2."),
        ("hunter2\n", "it printed: hunter2"),
        ("hunter2", "USER IS HUNTER2"),
        (PEM, "bad key: MIIEvQIBADANBg"),
        ("a'b\"c\\d", "no such file: 'a\\'b\"c\\\\d'"),
        ('quo"te\nline', 'in JSON: "quo\\"te\\nline"'),
        ("p/w ö", "http://h/p%2Fw%20%C3%B6"),
    ],
)
def test_a_secret_is_found_as_others_write_it(secret: str, text: str) -> None:
    masked = Mask([secret])(text)
    assert VALUE_MASK in masked
    assert not any(line.strip() in masked for line in secret.splitlines())


def test_of_two_secrets_the_longer_is_masked_as_a_whole() -> None:
    assert Mask(["pass", "password1"])("password1 pass") == f"{VALUE_MASK} {VALUE_MASK}"


def test_short_secrets_are_not_masked() -> None:
    assert Mask(["no", "", "80"])("no route to port 80") == "no route to port 80"


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


def test_of_a_large_secret_no_more_is_searched_for_than_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expression of all lines of the secret took seconds to compile."""
    searched: list[str] = []
    substitute = re.sub

    def noted(pattern: str, *remainder: Any, **flags: Any) -> str:
        searched.append(pattern)
        return substitute(pattern, *remainder, **flags)

    monkeypatch.setattr(re, "sub", noted)
    masked = Mask(["\n".join(f"line-{number:05}" for number in range(20_000))])
    assert masked("owner is root, bad: LINE-19999") == f"owner is root, bad: {VALUE_MASK}"
    assert searched == [re.escape("line-19999")]


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
