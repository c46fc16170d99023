"""The mask of secrets in messages."""

import re
from typing import Any

import pytest

from foundation.masking import VALUE_MASK, Mask

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
def test_secret_is_masked_in_other_notations(secret: str, text: str) -> None:
    masked = Mask([secret])(text)
    assert VALUE_MASK in masked
    assert not any(line.strip() in masked for line in secret.splitlines())


def test_longer_of_two_secrets_is_masked_as_a_whole() -> None:
    assert Mask(["pass", "password1"])("password1 pass") == f"{VALUE_MASK} {VALUE_MASK}"


def test_short_secrets_are_not_masked() -> None:
    assert Mask(["no", "", "80"])("no route to port 80") == "no route to port 80"


def test_mask_searches_only_for_lines_that_occur(monkeypatch: pytest.MonkeyPatch) -> None:
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
