"""Parsing of references."""

import pytest

from puller.values.common_properties import Reference


@pytest.mark.parametrize("text", ["file#/etc/motd", "exec#echo # a"])
def test_references(text: str) -> None:
    assert Reference.parse(text) == text


@pytest.mark.parametrize("text", ["", "file", "#a", "file#", 5, None])
def test_invalid_reference_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="expected a reference such as 'file#/etc/motd'"):
        Reference.parse(text)
