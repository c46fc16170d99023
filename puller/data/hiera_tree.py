"""Access to the Hiera tree beside a manifest.

* A missing tree is not an error. An unreadable tree rejects the manifest at once, not at the first lookup.
* ``hiera.tree`` is imported only for existing trees, because most manifests have none.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foundation.problems import Problem
from hiera.errors import HieraError, KeyNotFound
from hiera.sops.identities import Identities
from hiera.tree.ruby.values import printable
from hiera.values.plain import MISSING

if TYPE_CHECKING:
    from hiera.tree.context.explain import Step
    from hiera.tree.lookup import Tree

TREE = "hiera.yaml"


def open_tree(
    directory: Path,
    facts: Mapping[str, Any],
    private_key: str,
    identities: Identities,
    warn: Callable[[Problem], None],
) -> "Tree | None":
    """Return the Hiera tree beside a manifest, or ``None``. Raise ``HieraError`` if it is unusable."""
    if not (directory / TREE).exists():
        return None
    from hiera.tree.lookup import Tree  # half of an idle run, and few manifests have a tree

    tree = Tree(facts, environment=str(directory), private_key=private_key, identities=identities, warn=warn)
    try:
        tree.verify()
    except HieraError as error:
        raise (error if error.where else error.at(TREE)) from None
    return tree


def ask_tree(
    tree: "Tree",
    name: str,
    merge: Any = None,
    step: "Step | None" = None,
    outer: Callable[[str], Any] | None = None,
) -> Any:
    """Return the tree's value of a key, or ``MISSING``. ``step`` records the lookup. Raise ``HieraError``.

    The value is plain: Ruby's symbols and odd keys become text. Secrets stay secrets. ``outer`` returns the value of a
    whole key outside of the tree for ``%{lookup('…')}``, or ``MISSING``.
    """
    from hiera.tree.context.explain import SILENT  # only manifests with a tree need it

    try:
        value = tree.lookup(name, merge=merge, step=SILENT if step is None else step, outer=outer)
        return printable(value, lambda secret: secret)
    except KeyNotFound:
        return MISSING
