"""Secrets: masked in all output, equal if their values are equal, and readable only explicitly."""

import copy
import json
import pickle
from typing import NamedTuple

import pytest

from foundation.masking import VALUE_MASK
from hiera.values import Decrypted, Secret, has_secret, revealed


@pytest.mark.parametrize("secret", [Secret("hunter2"), Decrypted("hunter2"), Secret({"p": "hunter2"})])
def test_nothing_that_prints_a_secret_shows_it(secret: Secret) -> None:
    shown_somehow = (
        str(secret),
        repr(secret),
        ascii(secret),
        f"{secret:>5}",
        str([secret]),
        str({"k": secret}),
    )
    for shown in shown_somehow:
        assert "hunter2" not in shown
        assert VALUE_MASK in shown


def test_a_secret_is_not_written_by_accident() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Secret("hunter2"))
    with pytest.raises(TypeError):
        json.dumps(Secret("hunter2"))


def test_secrets_compare_by_content() -> None:
    assert Secret("a") == Secret("a") == Decrypted("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret(["a"])}) == 2


def test_copies_of_data_keep_its_secrets() -> None:
    data = {"a": [Secret("x")], "b": 1}
    assert copy.deepcopy(data) == data
    assert copy.copy(data["a"]) == data["a"]


def test_secrets_are_found_and_revealed_at_any_depth() -> None:
    data = {"a": [1, {Decrypted("k"): Secret(Decrypted("v"))}]}
    assert has_secret(data)
    assert not has_secret({"a": [1, "text"]})
    assert revealed(data) == {"a": [1, {"k": "v"}]}
    assert revealed(data, Decrypted) == {"a": [1, {"k": Secret(Decrypted("v"))}]}


def test_a_tuple_keeps_its_kind_and_loses_its_masks() -> None:
    class Pair(NamedTuple):
        name: str
        value: object

    assert has_secret((1, Secret("x")))
    assert revealed([("a", Secret("x")), Pair("b", Secret("y"))]) == [("a", "x"), Pair("b", "y")]
    assert isinstance(revealed(Pair("b", Secret("y"))), Pair)


def test_properties_accept_text_for_secrets_without_quoting_it() -> None:
    assert Secret.parse("hunter2") == Secret("hunter2")
    with pytest.raises(ValueError, match=r"^is not text$"):
        Secret.parse(4711)
