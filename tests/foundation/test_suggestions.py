"""Suggestions for misspelt names: the similarity that a caller requires, and their order."""

from difflib import get_close_matches

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.formatting import did_you_mean
from foundation.suggestions import ALMOST_EQUAL, SIMILAR, VERY_SIMILAR, meant, nearest

WORDS = st.text("abc_", max_size=8)


@given(WORDS, st.lists(WORDS), st.sampled_from((SIMILAR, VERY_SIMILAR, ALMOST_EQUAL)))
def test_a_name_is_suggested_from_its_similarity_on(word: str, known: list[str], similarity: float) -> None:
    near = get_close_matches(word, known, max(len(known), 1), similarity)
    suggested = nearest(word, known, similarity=similarity)
    assert set(suggested) <= set(near)
    assert bool(suggested) == bool(near)


@pytest.mark.parametrize(
    ("similarity", "suggested"), [(SIMILAR, ("kernel",)), (VERY_SIMILAR, ("kernel",)), (ALMOST_EQUAL, ())]
)
def test_a_stricter_similarity_suggests_less(similarity: float, suggested: tuple[str, ...]) -> None:
    assert nearest("kernl_", ["kernel", "uptime"], 1, similarity=similarity) == suggested


def test_names_that_are_equally_near_stand_in_order() -> None:
    assert nearest("mode_", ["mode2", "mode1"]) == ("mode1", "mode2")


def test_a_problem_and_a_sentence_suggest_the_same() -> None:
    assert meant("onwer", ["owner", "mode"]) == {"suggestions": ("owner",)}
    assert did_you_mean("onwer", ["owner", "mode"]) == " (did you mean 'owner'?)"


def test_known_names_are_listed_without_a_similar_name() -> None:
    known = ["a", "b", "c", "d", "e", "f"]
    assert meant("zz", known) == {"known": ("a", "b", "c", "d", "e"), "known_more": 1}
    assert did_you_mean("zz", known) == " (known: a, b, c, d, e and 1 more)"
