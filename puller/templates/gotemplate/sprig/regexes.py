"""Regular expressions with the syntax of RE2 (``hiera/go_regex``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hiera.go_regex.pattern import Match, compile_pattern, quote_meta
from hiera.go_regex.syntax import PatternError
from puller.templates.gotemplate.function_calls import Rendering
from puller.templates.govalue.types import NilStrings, Strings


def _must_match(rendering: Rendering, pattern: str, text: str) -> bool:
    """``mustRegexMatch``: whether the pattern matches somewhere in the text. Raises PatternError."""
    return compile_pattern(pattern).find(text, rendering.budget.look) is not None


def _match(rendering: Rendering, pattern: str, text: str) -> bool:
    """``regexMatch``: whether the pattern matches somewhere in the text. False for an invalid pattern."""
    try:
        return _must_match(rendering, pattern, text)
    except PatternError:
        return False


def _find(rendering: Rendering, pattern: str, text: str) -> str:
    """``regexFind``: the first match, or empty text."""
    return compile_pattern(pattern).find(text, rendering.budget.look) or ""


def _find_all(rendering: Rendering, pattern: str, text: str, count: int) -> Strings:
    """``regexFindAll``: at most ``count`` matches. -1 means all."""
    result = compile_pattern(pattern).find_all(text, count, rendering.budget.look)
    return Strings(result) if result else NilStrings()


def _replace_all(rendering: Rendering, pattern: str, text: str, replacement: str) -> str:
    """``regexReplaceAll``: the text with each match replaced, and ``${1}`` expanded."""
    regexp = compile_pattern(pattern)
    return regexp.replace_all(
        text, _limited(rendering, regexp.expander(replacement, text)), rendering.budget.look
    )


def _replace_all_literal(rendering: Rendering, pattern: str, text: str, replacement: str) -> str:
    """``regexReplaceAllLiteral``: the text with each match replaced. ``$`` is a literal dollar sign."""
    regexp = compile_pattern(pattern)
    return regexp.replace_all(text, _limited(rendering, lambda _: replacement), rendering.budget.look)


def _limited(rendering: Rendering, expand: Callable[[Match], str]) -> Callable[[Match], str]:
    """Wrap ``expand`` to raise Exceeded if the sum of all replacements is too long."""
    length = 0

    def limited(match: Match) -> str:
        nonlocal length
        piece = expand(match)
        length += len(piece)
        rendering.allow(length)
        return piece

    return limited


def _split(rendering: Rendering, pattern: str, text: str, count: int) -> Strings:
    """``regexSplit``: at most ``count`` pieces between the matches. -1 means all."""
    pieces = compile_pattern(pattern).split(text, count, rendering.budget.look)
    return Strings(pieces) if count != 0 else NilStrings()


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "mustRegexFind": _find,
    "mustRegexFindAll": _find_all,
    "mustRegexMatch": _must_match,
    "mustRegexReplaceAll": _replace_all,
    "mustRegexReplaceAllLiteral": _replace_all_literal,
    "mustRegexSplit": _split,
    "regexFind": _find,
    "regexFindAll": _find_all,
    "regexMatch": _match,
    "regexQuoteMeta": quote_meta,
    "regexReplaceAll": _replace_all,
    "regexReplaceAllLiteral": _replace_all_literal,
    "regexSplit": _split,
}
