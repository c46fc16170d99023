"""Secrets: masked wherever they are printed, equal by what is inside, and readable on purpose only."""

import copy
import json
import pickle

import pytest

from hiera.secrets import MASK, Decrypted, Secret, has_secret, revealed


@pytest.mark.parametrize("secret", [Secret("hunter2"), Decrypted("hunter2"), Secret({"p": "hunter2"})])
def test_nothing_that_prints_a_secret_shows_it(secret: Secret) -> None:
    for shown in (str(secret), repr(secret), f"{secret:>5}", str([secret]), str({"k": secret})):
        assert "hunter2" not in shown
        assert MASK in shown


def test_a_secret_is_not_written_by_accident() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Secret("hunter2"))
    with pytest.raises(TypeError):
        json.dumps(Secret("hunter2"))


def test_secrets_are_compared_by_what_is_inside() -> None:
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
