"""Colours of the pages: text has enough contrast in light and dark mode (WCAG 2.2, 1.4.3)."""

import re

import pytest

from puller.fleet.pages.environment import asset
from tests.support.rows import each_row

CSS = asset("style.css").decode()
LIGHT, DARK = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)[:2]
READ = ("ink", "quiet", "link", "good", "changed", "bad", "held", "silent", "gave-up")


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block))


def luminance(colour: str) -> float:
    pieces = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in pieces]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first: str, other: str) -> float:
    low, high = sorted((luminance(first), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@each_row("block", [LIGHT, DARK], ids=["light", "dark"])
@each_row("name", READ)
def test_text_has_sufficient_contrast(block: str, name: str) -> None:
    result = colours(block)
    for ground in ("ground", "raised"):
        assert contrast(result[name], result[ground]) >= 4.5, (name, ground)


@pytest.mark.parametrize("block", [LIGHT, DARK], ids=["light", "dark"])
def test_parts_of_pictures_stand_out_from_the_ground(block: str) -> None:
    result = colours(block)
    assert set(colours(LIGHT)) == set(colours(DARK))
    for name in (f"s{number}" for number in range(8)):
        assert contrast(result[name], result["ground"]) >= 3, name
