"""The Hiera tree of a bundle: the keys that its files have on any host, and the names in its interpolations.

* All files below the directories of its levels count, whichever host reads them.
* A level with data outside the bundle may have any key.
* An unknown variable is empty on hosts and causes no error there, so lint reports it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bundles.filesystem.trees import walk_directories
from foundation.problems import Problem
from hiera import parsing
from hiera.errors import HieraError
from hiera.tree.config.load import load_config
from hiera.tree.config.locations import Files
from hiera.tree.config.schema import ENVIRONMENT, MODULE, Config, LevelConfig
from hiera.tree.context import explain
from hiera.tree.layers import module_path
from puller.authoring.lint.findings import Finding
from puller.authoring.lint.names.known_names import Guards, Judge
from puller.authoring.lint.names.places import YamlText
from puller.authoring.lint.subject import read_text
from puller.authoring.lint.value_shapes import ANY, Shape, of_value, union

TREE: Final = "hiera.yaml"
_MARK: Final = "%{"
_READ: Final = frozenset({"eyaml_lookup_key", "json_data", "yaml_data"})
_ENDINGS: Final = (".yaml", ".yml", ".json", ".eyaml")
_INTERPOLATION: Final = re.compile(r"%\{([^}\n]*)\}")
_CALL: Final = re.compile(r"""(\w+)\((?:"([^"]+)"|'([^']+)')\)""", re.ASCII)
_OWN: Final = frozenset(
    {"caller_module_name", "environment", "module_name", "name", "server_facts", "title", "trusted"}
)


def tree_shape(root: str) -> Shape | None:
    """Return all keys of the tree in a directory, ``None`` without a tree, or any shape if they are unknown."""
    if not os.path.exists(os.path.join(root, TREE)):
        return None
    shapes: list[Shape] = []
    for config in _configs(root):
        directories = _directories(config)
        if directories is None or not all(_is_within(directory, root) for directory in directories):
            return ANY
        shapes += (_shape(path) for directory in directories for path in _files(directory))
    return union(shapes) if shapes else ANY


def tree_files(root: str) -> list[str]:
    """Return the ``hiera.yaml`` files and the data files of the tree in a directory."""
    result: dict[str, None] = {}
    for config in _configs(root):
        if config.path is not None:
            result[config.path] = None
        for directory in _directories(config) or ():
            result.update(dict.fromkeys(_files(directory)))
    return [path for path in result if _is_within(path, root)]


def levels_of(root: str) -> Iterator[tuple[list[LevelConfig], list[str]]]:
    """Yield the levels of each ``hiera.yaml`` below a directory, and their data files.

    Trees with data outside files below the directory are skipped.
    """
    for config in _configs(root):
        directories = _directories(config)
        if directories is None:
            continue
        if all(
            _is_within(directory, root) and not os.path.samefile(directory, root)
            for directory in directories
            if os.path.isdir(directory)
        ):
            files = dict.fromkeys(path for directory in directories for path in _files(directory))
            yield [*config.levels, *(config.default_levels or ())], list(files)


def follow_interpolations(
    yaml: YamlText, facts: Shape, tree: Shape, at_hand: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield the findings in all interpolations of a file."""
    for match in _INTERPOLATION.finditer(yaml.text):
        line = yaml.text.count("\n", 0, match.start()) + 1
        judge = Judge(Guards(), at_hand, yaml.line_part(line))
        _interpolation(match[1].strip(), facts, tree, judge)
        yield from judge.findings


def _interpolation(written: str, facts: Shape, tree: Shape, judge: Judge) -> None:
    call = _CALL.fullmatch(written)
    method, argument = (call[1], call[2] or call[3]) if call else ("scope", written)
    segments = explain.split(argument)
    if segments is None or method == "literal":
        return
    if method in ("alias", "hiera", "lookup"):
        _walk(judge, tree, ("data",), segments)
    elif method == "scope":
        root = str(segments[0]).lstrip(":")
        if root == "facts":
            _walk(judge, facts, ("facts",), segments[1:])
        elif root and root not in _OWN and "::" not in root:
            _walk(judge, facts, ("facts",), (root, *segments[1:]))


def _walk(judge: Judge, shape: Shape, path: tuple[str, ...], steps: tuple[str | int, ...]) -> None:
    for step in steps:
        shape = judge.step(shape, path, step, in_branch=False, line=0)
        path = (*path, str(step))


def _configs(root: str) -> Iterator[Config]:
    """Yield the readable configurations of the environment and its modules."""
    files, places = Files(), [(os.path.join(root, TREE), ENVIRONMENT)]
    try:
        for path in module_path(root, files):
            places += ((os.path.join(path, entry.name, TREE), MODULE) for entry in files.entries(path))
    except HieraError:
        pass
    for path, place in places:
        try:
            config = load_config(path, files, place, _unheard) if os.path.exists(path) else None
        except HieraError:
            continue
        if config is not None:
            yield config


def _directories(config: Config) -> list[str] | None:
    """Return the data directories of its levels, or ``None`` for other sources of data."""
    result: dict[str, None] = {}
    for level in (*config.levels, *(config.default_levels or ())):
        if level.function not in _READ or any(place.startswith("/") for place in level.places):
            return None
        result[
            level.datadir.partition(_MARK)[0].rpartition("/")[0] if _MARK in level.datadir else level.datadir
        ] = None
    return list(result)


def _files(directory: str) -> Iterator[str]:
    for place, names, files in walk_directories(directory):
        names.sort()
        yield from (os.path.join(place, name) for name in sorted(files) if name.endswith(_ENDINGS))


def _shape(path: str) -> Shape:
    text = read_text(path)
    try:
        value = None if text is None else parsing.load_yaml(text, path)
    except HieraError:
        return ANY
    if text is None:
        return ANY
    return of_value(value, _MARK) if isinstance(value, Mapping) and value else Shape()


def _is_within(path: str, root: str) -> bool:
    real, base = os.path.realpath(path), os.path.realpath(root)
    return real == base or real.startswith(base + "/")


def _unheard(warning: Problem) -> None:
    """Ignore warnings of a configuration, because the opener of the tree reports them."""
