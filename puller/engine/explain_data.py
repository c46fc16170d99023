"""Why a value of the data is what it is: what each source has for its key; ``puller explain KEY`` shows it.

* The same code answers that a run uses: what is shown here is what happens there.
* A derived value is shown with its expression and the inputs of that.
* Everything is a plain value; secrets are masked, wherever the annotation stands that makes them so.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from hiera.document.layers import mergeable
from hiera.errors import HieraError, UndefinedError
from hiera.expressions.expressions import Scope, has_expression, resolve
from hiera.tree.context import keys
from hiera.tree.context.absent import ABSENT
from hiera.tree.context.explain import SILENT, recorder
from hiera.tree.context.keys import Key
from hiera.tree.ruby.printable import printable
from hiera.values.paths import MISSING, path_text
from hiera.values.secrets import hidden_at
from puller.data.bundle_data import BundleData
from puller.data.hiera_function import look_up
from puller.data.hiera_tree import TREE
from puller.data.sources import DataSource
from puller.manifest.manifest import Manifest
from puller.manifest.recording import Recording, Uses

ORIGIN_OF_TREE = "bundle tree"


def explain_everywhere(manifest: Manifest, name: str) -> Iterator[dict[str, Any]]:
    """The explanation of a key in a manifest, then in each child manifest where the value is another.

    Raises ``HieraError`` for what is no key.
    """
    first = explain_key(manifest.data, name)
    yield first
    parents_first = sorted(manifest.declarations, key=lambda found: len(list(found.parents())))
    homes = [place.home for found in parents_first for place in found.places()]
    for data in {id(home.data): home.data for home in homes}.values():
        found = explain_key(data, name)
        if _outcome(found) != _outcome(first):
            yield {"manifest": data.own.name, **found}


def _outcome(found: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(found.get(part) for part in ("found", "value", "error"))


def explain_key(data: BundleData, name: str) -> dict[str, Any]:
    """The value of a key (``web.port``, ``profile::web::port``), and what each source has, the highest first.

    1. The key is parsed by Puppet's rules: dots dig, quotes keep them.
    2. It is looked up as a run looks it up.
    3. Each source is asked for it by itself: those over the tree, the tree, those under it.

    Raises ``HieraError`` for what is no key.
    """
    # 1. The key.
    key = keys.parse(name.removeprefix("data."))
    # 2. Its value.
    try:
        answer: dict[str, Any] = {"found": True, "value": printable(look_up(data, key.text))}
    except UndefinedError:
        answer = {"found": False}
    except HieraError as error:
        answer = {"found": False, "error": str(error)}
    # 3. What each source has.
    return {"key": key.text, **answer, "sources": list(_sources(data, key))}


def _sources(data: BundleData, key: Key) -> Iterator[dict[str, Any]]:
    for source in reversed(data.above):
        yield _of_document(source, data, key)
    if data.tree is not None:
        yield _of_tree(data, key)
    for source in reversed(data.below):
        yield _of_document(source, data, key)


def _of_document(source: DataSource, data: BundleData, key: Key) -> dict[str, Any]:
    found: dict[str, Any] = {"source": str(source.origin), "name": source.name, "found": False}
    try:
        value = _dug(key, source.data.get(key.root, ABSENT), data)
    except HieraError as error:
        return {**found, "error": str(error)}
    if value is not ABSENT:
        found |= {"found": True, "value": printable(value), "from": places_of(source, key.root)}
        found |= _derivation(source, data, key)
    elif key.root in source.unresolved:
        found["error"] = source.unresolved[key.root]
    if source.document is not None and source.explanation is not None and source.document.has_hierarchy:
        found["hierarchy"] = [entry.sentence() for entry in source.explanation.entries]
        found["merge"] = source.explanation.merge
    return found


def _derivation(source: DataSource, data: BundleData, key: Key) -> dict[str, Any]:
    """The expressions of a source for a key, and the facts and data that they have used, with their sources."""
    if source.chosen is None:
        return {}

    uses, texts = Uses(), list[str]()
    names = ({"facts": data.here.facts, "data": data.all, "environ": data.here.environ}).items()
    recorded = {name: Recording(values, (name,), uses) for name, values in names}
    scope = Scope(recorded["facts"], recorded["data"], recorded["environ"])
    for layer in source.chosen.layers:
        written = _dug(key, layer.values.get(key.root, ABSENT), data)
        for text in _expressions(written):
            texts.append(text)
            with suppress(HieraError):  # the value of the source says what is wrong
                resolve(text, scope)
    if not texts:
        return {}
    return {
        "expressions": texts,
        "inputs": [use_of(path, value, data) for path, value in uses.values.items()],
    }


def _expressions(value: Any) -> Iterator[str]:
    """The texts with expressions in a value. Those of a secret are not shown."""
    if isinstance(value, str) and has_expression(value):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _expressions(item)
    elif isinstance(value, list):
        for item in value:
            yield from _expressions(item)


def places_of(source: DataSource, root: str) -> list[str]:
    """File and line of each part of a document that the value was made of, the one that wins first."""
    document, explanation = source.document, source.explanation
    if document is None or explanation is None:
        return [source.name]
    sections = [
        ("data",),
        *(("overrides", entry.name or "") for entry in explanation.entries if entry.merged),
    ]
    held = explanation.keys.get(root, ())
    return [
        f"{source.name}:{document.locate((*section, root))[0]} ({path_text(section)})"
        for section in reversed(sections)
        if path_text(section) in held
    ]


def _of_tree(data: BundleData, key: Key) -> dict[str, Any]:
    found: dict[str, Any] = {"source": ORIGIN_OF_TREE, "name": TREE, "found": False}
    step = recorder()
    try:
        value = data.ask(key.text, step=step)
    except HieraError as error:
        found["error"] = str(error)
        value = MISSING
    # The explanation quotes what each level has, so all of it goes when any part of the key is sensitive.
    if any(data.sensitive(key.root)):
        step.conceal()
        value = value if value is MISSING else hidden_at({"": value}, ("",))[""]
    if value is not MISSING:
        places = [f'level "{level}" ({path})' for level, path in step.holders()]
        found |= {"found": True, "value": printable(value), "from": places}
    return {**found, "explanation": printable(step.as_data()), "lines": str(step).splitlines()}


def _dug(key: Key, value: Any, data: BundleData) -> Any:
    """The part of a source's value that a key asks for, masked where the annotation of any source says so."""
    for path in data.sensitive(key.root):
        value = value if value is ABSENT else hidden_at({key.root: value}, path)[key.root]
    return value if value is ABSENT else keys.dig(key.text, key.segments, value, SILENT)


def use_of(path: tuple[Any, ...], value: Any, data: BundleData) -> dict[str, Any]:
    """A fact or a key of data that something has used: its value, and the places that it was made of."""
    is_function = path[0] == "hiera"
    use: dict[str, Any] = {"name": f"hiera('{path[1]}')" if is_function else path_text(path)}
    if len(path) == 1:
        return {**use, "whole": True}
    if value is MISSING:
        return {**use, "found": False}
    use["value"] = printable(_plain(value))
    if path[0] in ("data", "hiera"):
        root = keys.parse(path[1]).root if is_function else path[1]
        use["from"] = list(_holders(data, root))
    return use


def _holders(data: BundleData, root: Any) -> Iterator[str]:
    """Every place that the value of a top-level key was made of, the highest first."""
    over: Any = MISSING
    for value, shows_below, places in _candidates(data, root):
        if over is not MISSING and not mergeable(over, value):
            return
        yield from places
        if not shows_below:
            return
        over = value


def _candidates(data: BundleData, root: Any) -> Iterator[tuple[Any, bool, list[str]]]:
    """What each source that has the key has for it, whether what is below still counts, and where; highest first."""
    for source in reversed(data.above):
        yield from _candidate(source, root)
    if data.tree is not None and isinstance(root, str):
        step = recorder()
        value = data.ask(keys.literal(root), step=step)
        if value is not MISSING:
            places = [f'{TREE} level "{level}" ({path})' for level, path in step.holders()]
            yield value, isinstance(value, Mapping), places
    for source in reversed(data.below):
        yield from _candidate(source, root)


def _candidate(source: DataSource, root: Any) -> Iterator[tuple[Any, bool, list[str]]]:
    if root in source.data:
        yield source.data[root], source.shows_below(root), places_of(source, root)


def _plain(value: Any) -> Any:
    """A value with plain mappings in it."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
