"""Trees from texts: a mapping replaces the files of an environment."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hiera.tree.locations import Texts
from hiera.tree.lookup import Tree

MakeTree = Callable[..., Tree]

LEVELS = """\
version: 5
hierarchy:
  - {name: node, path: "nodes/%{facts.name}.yaml"}
  - {name: common, path: common.yaml}
"""


@pytest.fixture
def make_tree() -> MakeTree:
    """``make_tree({"data/common.yaml": …}, facts)`` makes a tree with two levels, or the levels of ``hiera.yaml``."""

    def make(
        files: Mapping[str, str | bytes], facts: Mapping[str, Any] | None = None, **options: Any
    ) -> Tree:
        everything = {"hiera.yaml": LEVELS, **files}
        documents = Texts({f"/env/{path}": text for path, text in everything.items()})
        return Tree(facts or {"name": "web01"}, environment="/env", documents=documents, **options)

    return make


@pytest.fixture
def look_up(make_tree: MakeTree) -> Callable[..., Any]:
    """``look_up("text of common.yaml", "key")`` returns the value from this file."""

    def look_up(text: str, key: str, facts: Mapping[str, Any] | None = None, **question: Any) -> Any:
        return make_tree({"data/common.yaml": text}, facts).lookup(key, **question)

    return look_up
