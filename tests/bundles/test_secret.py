"""A secret is used and never shown."""

import copy
import json
import pickle

import msgspec
import pytest

from bundles.secret import Secret, decode_secret, mask_userinfo

CANARY = "correct horse"


@pytest.mark.parametrize(
    "shown",
    [str, repr, "{}".format, "{!r}".format, lambda secret: f"{secret}", lambda secret: str([secret]), ascii],
)
def test_no_way_of_showing_it_gives_it_away(shown: object) -> None:
    assert callable(shown)
    assert CANARY not in shown(Secret(CANARY))


@pytest.mark.parametrize("write", [json.dumps, pickle.dumps, copy.copy, copy.deepcopy])
def test_it_is_not_written_out(write: object) -> None:
    assert callable(write)
    with pytest.raises(TypeError):
        write(Secret(CANARY))


def test_the_one_that_needs_it_gets_it() -> None:
    assert Secret(CANARY).reveal() == CANARY


def test_secrets_are_compared_by_value() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    assert Secret("a") != "a"


def test_settings_take_a_text_for_a_secret() -> None:
    assert msgspec.convert({"a": "b"}, dict[str, Secret], dec_hook=decode_secret) == {"a": Secret("b")}
    with pytest.raises(msgspec.ValidationError, match=r"Expected `str`, got `int` - at `\$\[...\]`"):
        msgspec.convert({"a": 5}, dict[str, Secret], dec_hook=decode_secret)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://www.example.org/a@b", "https://www.example.org/a@b"),
        ("https://me:pass@www.example.org/", "https://***@www.example.org/"),
        ("https://token@www.example.org", "https://***@www.example.org"),
        ("https://me:p@ss@www.example.org/x", "https://***@www.example.org/x"),
        ("from http://a:b@c/ to http://d:e@f/", "from http://***@c/ to http://***@f/"),
        ("mail me@example.org", "mail me@example.org"),
    ],
)
def test_user_information_in_urls_is_masked(text: str, masked: str) -> None:
    assert mask_userinfo(text) == masked
