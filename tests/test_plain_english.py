"""Messages, docstrings, comments and pages keep the limits of ``tests/plain_english.py``."""

import pytest

from tests.plain_english import CONSTRUCTIONS, LIMITS, Sentence, excess, paragraphs, split

pytestmark = pytest.mark.sources

HARD = {
    "clause": "Return what is left behind.",
    "pronoun": "The run resumes one that was killed.",
    "somebody": "Refuse a key that somebody can write.",
    "personified": "The index says which version is current.",
    "negated": "There is no such key in it.",
    "semicolon": "The file is missing; create it.",
}


@pytest.mark.parametrize("kind", LIMITS)
def test_units_keep_the_limits(kind: str) -> None:
    over = excess(kind)
    assert over == {}


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_each_construction_is_counted(construction: str) -> None:
    (sentence,) = split(HARD[construction])
    assert Sentence("a", "a:1", sentence).constructions == [construction]


def test_code_is_left_out_of_sentences() -> None:
    assert list(split("Return the path of ``what is left``. It has {one of these} inside.")) == [
        "Return the path of X.",
        "It has X inside.",
    ]
    page = "# Title\n\nFirst line\nand second.\n\n    code\n\n* an item\n* another\n\n```\ncode\n```\n| a | b |\n"
    assert [text.strip() for _, text in paragraphs(page)] == [
        "First line and second.",
        "an item",
        "another",
        "a",
        "b",
    ]
