"""Descriptions of properties, from the docstrings in the source, for ``--help`` and for the schema."""

import ast
import inspect
import sys
from functools import cache

from puller.resources.base import Properties


@cache
def describe_properties(properties: type[Properties]) -> dict[str, str]:
    """The docstring below each property, by name, those of all types first; nothing where there is no source."""
    found: dict[str, str] = {}
    for base in reversed(properties.__mro__):
        if issubclass(base, Properties):
            found |= _described(base)
    return found


@cache
def describe_fields(struct: type) -> dict[str, str]:
    """The docstring below each field of a struct, by name; nothing where there is no source."""
    return _described(struct)


def _described(properties: type) -> dict[str, str]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[properties.__module__]))
    except (OSError, TypeError):  # a module without source
        return {}
    # Python keeps the docstrings of modules, classes and functions only; those of properties are in the source alone.
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == properties.__name__:
            return dict(_pairs(node))
    return {}


def _pairs(node: ast.ClassDef) -> list[tuple[str, str]]:
    return [
        (assigned.target.id, " ".join(text.value.value.replace("``", "").split()))
        for assigned, text in zip(node.body, node.body[1:], strict=False)
        if isinstance(assigned, ast.AnnAssign) and isinstance(assigned.target, ast.Name)
        if isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    ]
