"""Texts of expressions: parentheses, negations, alternatives, and regular expressions."""

import re
from collections.abc import Sequence

from puller.authoring.importing.written_expressions import Untranslatable, is_simple


def grouped(text: str) -> str:
    """Return an expression in parentheses, unless it needs none beside an operator."""
    if is_simple(text) or re.fullmatch(r"data\['[\w:]+'\]", text) or is_literal(text) or is_one_group(text):
        return text
    if re.fullmatch(r"\w+\('[^']*'(?:, [\w'.]+)?\)", text):
        return text
    return f"({text})"


def negated(text: str) -> str:
    """Return the negation of a condition."""
    match = re.fullmatch(r"not (\S+|\(.*\))", text)
    if match and (" " not in match[1] or is_one_group(match[1])):
        return match[1]
    return "false" if text == "true" else "true" if text == "false" else f"not {grouped(text)}"


def any_of(conditions: Sequence[str]) -> str:
    """Return the disjunction of conditions."""
    if len(conditions) == 1:
        return conditions[0]
    return " or ".join(f"({text})" if re.search(r"\b(?:and|if)\b", text) else text for text in conditions)


def python_regex(pattern: str) -> str:
    """Return a regular expression of Ruby for Python. Raises ``Untranslatable``."""
    if re.search(r"\[\[:|\(\?<[A-Za-z]|\(\?[a-z]*m|\\h|\\p\{|\\G|\(\?>", pattern):
        raise Untranslatable(f"the regular expression {pattern} has a form that only Ruby has")
    # Ruby's ^ and $ match at each line, and \Z before a final line break.
    result = pattern.replace("\\z", "\\Z")
    try:
        re.compile(result)
    except (re.error, OverflowError, RecursionError):
        raise Untranslatable(f"the regular expression {pattern} is invalid") from None
    return result


def is_literal(text: str) -> bool:
    """Return whether an expression is a literal."""
    return bool(re.fullmatch(r"'(?:[^'\\]|\\.)*'|-?\d+(?:\.\d+)?|true|false|none", text))


def is_one_group(text: str) -> bool:
    """Return whether one pair of brackets contains the complete expression."""
    if not text or text[0] not in "([{" or text[-1] not in ")]}":
        return False
    depth, quote, position = 0, "", 0
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0 and position < len(text) - 1:
                return False
        position += 1
    return depth == 0
