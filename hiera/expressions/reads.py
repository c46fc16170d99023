"""The sources that an expression reads: facts, data, or only constants."""

from __future__ import annotations

from jinja2 import nodes

from foundation.problems import DependsOn
from hiera.errors import HieraError
from hiera.expressions.jinja import tree_of

_FACTS = frozenset({"facts", "Facts", "environ", "Environ"})
_SAME = frozenset(
    {"read_file", "readFile", "file", "range", "dict", "namespace", "cycler", "joiner", "value"}
)
"""Names with the same meaning on every host."""
_LOOKUPS = frozenset({"lookup", "hiera"})


def depends_of(source: str) -> DependsOn:
    """Return why an expression may differ on another host. ``source`` is its text, without braces.

    Names of loops count as data. An expression that cannot be parsed depends on nothing.
    """
    try:
        tree, _ = tree_of(source)
    except HieraError:
        return DependsOn.NOTHING
    names = {node.name for node in (tree, *tree.find_all(nodes.Name)) if isinstance(node, nodes.Name)}
    paths = [node.value for node in (tree, *tree.find_all(nodes.Const)) if isinstance(node, nodes.Const)]
    roots = {str(path).partition(".")[0] for path in paths} if names & _LOOKUPS else set()
    # A template can read all facts.
    if (names | roots) & (_FACTS | {"template"}):
        return DependsOn.FACTS
    return DependsOn.DATA if names - _SAME else DependsOn.NOTHING
