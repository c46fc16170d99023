#!/usr/bin/env python3
"""Figures of the import graph: which folder imports which, the number of layers, and the cycles.

    python tests/layout.py [DIRECTORY]      prints the figures of a checkout, by default of this one

* Every import counts: at the top of a module, in a function, for type checkers only.
* A *room* is a file or folder directly below `puller/`; `hiera/` and `bundles/` are one room each.
* The table of docs/architecture.md lists the imports that each folder may have. `test_imports.py` checks it.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PACKAGES = ("bundles", "foundation", "hiera", "puller")

Graph = Mapping[str, set[str]]
"""Imported names by importer. Modules are dotted names, rooms are the names of section 2."""


def modules(tree: Path) -> dict[str, Path]:
    """Return the path of each module of the product, by its dotted name. A package has the name of its folder."""
    paths = (path for package in PACKAGES for path in sorted((tree / package).rglob("*.py")))
    return {
        ".".join(path.relative_to(tree).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


def imports(tree: Path) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    result = modules(tree)
    return {name: set(_imported(path, result)) - {name} for name, path in result.items()}


def _imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in PACKAGES:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module


def circles(graph: Graph) -> list[list[str]]:
    """Return groups of modules that import each other, directly or not (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            groups.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(group for group in groups if len(group) > 1)


def grouped(graph: Graph, group: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the graph of groups of nodes, without imports inside a group."""
    result: dict[str, set[str]] = {name: set() for name in group.values()}
    for node, others in graph.items():
        result[group[node]] |= {group[other] for other in others} - {group[node]}
    return result


def rooms(graph: Graph) -> dict[str, set[str]]:
    """Return the graph of rooms."""
    return grouped(graph, {name: _room(name) for name in graph})


def _room(module: str) -> str:
    package, _, remainder = module.partition(".")
    return f"puller/{remainder.partition('.')[0]}".rstrip("/") if package == "puller" else package


def layers(graph: Graph) -> int:
    """Return the maximum number of rooms above each other. The rooms of a cycle count as one."""
    member = {node: group[0] for group in circles(graph) for node in group}
    acyclic = grouped(graph, {node: member.get(node, node) for node in graph})
    depth: dict[str, int] = {}

    def height(node: str) -> int:
        if node not in depth:
            depth[node] = 1 + max((height(other) for other in acyclic[node]), default=0)
        return depth[node]

    return max(map(height, acyclic))


def folder_of(module: str, folders: Iterable[str]) -> str:
    """Return the deepest folder of the table that contains a module, or else the module's own name."""
    name = module.replace(".", "/")
    candidates = [folder for folder in folders if name == folder or name.startswith(f"{folder}/")]
    return max(candidates, key=len, default=name)


def allowed(page: Path) -> tuple[set[str], dict[str, set[str]]]:
    """Return the folders that every folder may import, and the other allowed imports by folder, from the page."""
    rows: dict[str, set[str]] = {}
    ground: set[str] = set()
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| `") or len(cells) != 3 or cells[0].strip("`") in PACKAGES:
            continue
        names = re.findall(r"`([a-z_/]+)`", cells[0])
        may = set(re.findall(r"`([a-z_/]+)`", cells[2]))
        if "every folder" in cells[2]:
            ground |= set(names)
        for name in names:
            rows[name] = may
    return ground, rows


def violations(tree: Path, graph: Graph | None = None) -> list[str]:
    """List imports that the table of docs/architecture.md forbids. ``graph``: a result of ``imports``, to reuse."""
    ground, rows = allowed(tree / "docs/architecture.md")
    graph, known = graph or imports(tree), modules(tree)
    place = {name: folder_of(name, [*rows, *ground]) for name in known}
    results = []
    for name, others in sorted(graph.items()):
        for other in sorted(others):
            here, there = place[name], place[other]
            may = {here} | ground | rows.get(here, set())  # a folder may import its subfolders
            if here != there and not _is_own_package(there, here) and not _covered(there, may):
                results.append(f"{known[name].relative_to(tree)} ({here}) imports {other} ({there})")
    return results


def _is_own_package(there: str, here: str) -> bool:
    """Return whether a package, which is empty, contains the importer. ``puller`` may import all three packages."""
    return there in PACKAGES and here.partition("/")[0] in (there, "puller")


def _covered(folder: str, may: Iterable[str]) -> bool:
    return any(folder == name or folder.startswith(f"{name}/") for name in may)


def main() -> None:
    tree = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    sys.setrecursionlimit(10_000)
    graph = imports(tree)
    drawn = rooms(graph)
    result = circles(graph)
    print(f"{len(drawn)} rooms, {layers(drawn)} layers, {sum(map(len, drawn.values()))} arrows between rooms")
    print(f"{len(result)} circles of modules, {len(circles(drawn))} of rooms")
    for group in [*result, *circles(drawn)]:
        print("  circle:", " ".join(group))
    for line in violations(tree, graph):
        print("  not allowed:", line)


if __name__ == "__main__":
    main()
