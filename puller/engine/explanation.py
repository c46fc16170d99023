"""Explanations of resources and data: declarations, sources, used values, and the reasons for changes in a run.

* A run uses the same code to read the data. Conditions and templates, which a run evaluates only when it applies the
  resource, are rendered once to record the values that they use.
* The recording mappings behave like the original ones. They read no additional values. Missing keys are recorded too,
  because a default may have replaced them.
* The deepest requested part counts as used: ``facts.os.family``, not ``facts.os``. An iterated mapping counts as used
  as a whole.
* A derived value is shown with its expression and the inputs of the expression.
* All results are plain values. Secrets are masked, wherever their annotation is.
* ``why`` returns the reasons of an event of the last report. ``puller.engine.engine`` decides about skipped resources,
  ``puller.engine.conditions`` about ``if`` and ``unless``, and the resource type about differences
  (``puller/resources/files/file.py`` for a file).
"""

from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from foundation.formatting import lines
from foundation.problems import KeyPath
from hiera.document.layers import mergeable
from hiera.errors import HieraError, UndefinedError
from hiera.expressions.expressions import Scope, evaluate, has_expression, resolve
from hiera.tree import explain
from hiera.tree.explain import ABSENT, SILENT, Key, recorder
from hiera.tree.ruby_values import printable
from hiera.values import MISSING, hidden_at, path_text
from puller.bundle_paths import BundleFiles
from puller.data.bundle_data import BundleData
from puller.data.lookups import look_up
from puller.data.sources import TREE, DataSource
from puller.errors import ResourceError
from puller.manifest.children import applied_as
from puller.manifest.declaration import Declaration
from puller.manifest.entries import FOR
from puller.manifest.graph.catalog import Catalog
from puller.manifest.manifest import Manifest
from puller.reporting.report import Event
from puller.templates.functions import bundle_functions, over_data
from puller.templates.rendering import choose_engine, render_file
from puller.values.common_properties import Refresh, subscriber_of

_METHODS = frozenset({"get", "items", "keys", "values"})
"""Methods that an expression may call. Keys of the same name take precedence."""

DataPath = tuple[Any, ...]
"""The keys that lead to a value: ``("data", "web", "port")``."""


class Uses:
    """The facts and data that one resource has used."""

    def __init__(self) -> None:
        self.values: dict[DataPath, Any] = {}
        """By path. ``MISSING`` for missing keys."""

    def note(self, path: DataPath, value: Any) -> None:
        """Record the use of ``value``. Its parent was only a step on the path."""
        # ``facts.os.family`` requests ``facts.os`` first, which does not count as used.
        self.values.pop(path[:-1], None)
        self.values[path] = value

    def scope(self, scope: Scope, files: BundleFiles) -> Scope:
        """Return a scope with the names of ``scope`` that records its use."""
        recording = Scope(
            Recording(scope.facts, ("facts",), self),
            Recording(scope.data, ("data",), self),
            Recording(scope.environ, ("environ",), self),
            {**scope.functions, "hiera": self._hiera(scope)},
        )
        return recording.with_names(bundle_functions(files, recording))

    def _hiera(self, scope: Scope) -> Any:
        def hiera(key: str, *arguments: Any, **named: Any) -> Any:
            value = scope.functions["hiera"](key, *arguments, **named)
            self.note(("hiera", key), value)
            return value

        return hiera


class Recording(Mapping[Any, Any]):
    """A mapping that records its use."""

    def __init__(self, values: Mapping[Any, Any], path: DataPath, uses: Uses) -> None:
        self._values = values
        self._path = path
        self._uses = uses
        self._whole = False

    def __getitem__(self, key: Any) -> Any:
        path = (*self._path, key)
        try:
            value = self._values[key]
        except KeyError:
            if not self._whole and key not in _METHODS:
                self._uses.note(path, MISSING)
            raise
        if self._whole:
            return value
        self._uses.note(path, value)
        return Recording(value, path, self._uses) if isinstance(value, Mapping) else value

    def __iter__(self) -> Iterator[Any]:
        # Iteration may use every key, so single keys are not recorded any longer.
        self._whole = True
        if len(self._path) == 1:  # all facts or all data, without a key
            self._uses.values[self._path] = {}
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __bool__(self) -> bool:
        return bool(self._values)


class Recorder:
    """The facts and data that each resource of a manifest has used. ``watch`` is for ``Inputs``."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, KeyPath, int], tuple[Uses, Scope]] = {}

    def watch(self, source: str, path: KeyPath, around: Scope, scope: Scope, files: BundleFiles) -> Scope:
        """Return a recording scope for the resource at ``path`` of the text ``source``. Its manifest has the scope
        ``around``.
        """
        return self.of(source, path, around).scope(scope, files)

    def of(self, source: str, path: KeyPath, around: Scope) -> Uses:
        """Return the facts and data that the resource at ``path`` of the text ``source`` has used."""
        # A child that is applied with several data is read once with each scope. Scopes are kept so that ids stay
        # unique.
        return self._uses.setdefault((source, path, id(around)), (Uses(), around))[0]


# Explanations of keys: the value of each source, for ``puller explain KEY``.

ORIGIN_OF_TREE = "bundle tree"


def explain_everywhere(manifest: Manifest, name: str) -> Iterator[dict[str, Any]]:
    """Yield the explanation of a key in a manifest, then in each child manifest with a different value.

    Raise ``HieraError`` if the key is invalid.
    """
    first = explain_key(manifest.data, name)
    yield first
    parents_first = sorted(manifest.declarations, key=lambda result: len(list(result.parents())))
    homes = [place.home for result in parents_first for place in result.places()]
    for data in {id(home.data): home.data for home in homes}.values():
        result = explain_key(data, name)
        if _outcome(result) != _outcome(first):
            yield {"manifest": data.own.name, **result}


def _outcome(result: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(result.get(part) for part in ("found", "value", "error"))


def explain_key(data: BundleData, name: str) -> dict[str, Any]:
    """Return the value of a key (``web.port``, ``profile::web::port``), and of each source, the highest first.

    1. Parse the key by the rules of Puppet: dots dig, and quotes keep them.
    2. Look it up as a run does.
    3. Look it up in each source alone: sources above the tree, the tree, sources below it.

    Raise ``HieraError`` if the key is invalid.
    """
    # 1. Key.
    key = explain.parse(name.removeprefix("data."))
    # 2. Value.
    try:
        answer: dict[str, Any] = {"found": True, "value": printable(look_up(data, key.text))}
    except UndefinedError:
        answer = {"found": False}
    except HieraError as error:
        answer = {"found": False, "error": str(error)}
    # 3. Sources.
    return {"key": key.text, **answer, "sources": list(_sources(data, key))}


def _sources(data: BundleData, key: Key) -> Iterator[dict[str, Any]]:
    for source in reversed(data.above):
        yield _of_document(source, data, key)
    if data.tree is not None:
        yield _of_tree(data, key)
    for source in reversed(data.below):
        yield _of_document(source, data, key)


def _of_document(source: DataSource, data: BundleData, key: Key) -> dict[str, Any]:
    result: dict[str, Any] = {"source": str(source.origin), "name": source.name, "found": False}
    try:
        value = _dug(key, source.data.get(key.root, ABSENT), data)
    except HieraError as error:
        return {**result, "error": str(error)}
    if value is not ABSENT:
        result |= {"found": True, "value": printable(value), "from": places_of(source, key.root)}
        result |= _derivation(source, data, key)
    elif key.root in source.unresolved:
        result["error"] = source.unresolved[key.root]
    if source.document is not None and source.explanation is not None and source.document.has_hierarchy:
        result["hierarchy"] = [entry.sentence() for entry in source.explanation.entries]
        result["merge"] = source.explanation.merge
    return result


def _derivation(source: DataSource, data: BundleData, key: Key) -> dict[str, Any]:
    """Return the expressions of a source for a key, and all facts and data that its value derives from.

    If an input is derived too, its own inputs follow.
    """
    if source.chosen is None:
        return {}

    uses = Uses()
    names = ({"facts": data.here.facts, "data": data.all, "environ": data.here.environ}).items()
    recorded = {name: Recording(values, (name,), uses) for name, values in names}
    scope = Scope(recorded["facts"], recorded["data"], recorded["environ"])
    texts = list(_written(source, data, key))
    if not texts:
        return {}
    followed: set[tuple[Any, ...]] = set()
    pending = texts
    while pending:
        for text in pending:
            with suppress(HieraError):  # the value of the source has the error
                resolve(text, scope)
        paths = [path for path in uses.values if path[0] == "data" and len(path) > 1 and path not in followed]
        followed.update(paths)
        pending = [text for path in paths for text in _written_for(path, data)]
    return {
        "expressions": texts,
        "inputs": [use_of(path, value, data) for path, value in uses.values.items()],
    }


def _written(source: DataSource, data: BundleData, key: Key) -> Iterator[str]:
    """Yield the expressions of a source for a key."""
    for layer in source.chosen.layers if source.chosen else ():
        yield from _expressions(_dug(key, layer.values.get(key.root, ABSENT), data))


def _written_for(path: tuple[Any, ...], data: BundleData) -> Iterator[str]:
    """Yield the expressions of all sources that a used value consists of."""
    key = Key(path_text(path[1:]), path[1], path[2:])
    for source in (*reversed(data.above), *reversed(data.below)):
        if key.root in source.data:
            yield from _written(source, data, key)
            if not source.shows_below(key.root):
                return


def _expressions(value: Any) -> Iterator[str]:
    """Yield the texts with expressions in a value. Texts of secrets are left out."""
    if isinstance(value, str) and has_expression(value):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _expressions(item)
    elif isinstance(value, list):
        for item in value:
            yield from _expressions(item)


def places_of(source: DataSource, root: str) -> list[str]:
    """Return the file and line of each part of a document that the value consists of, the highest priority first."""
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
    result: dict[str, Any] = {"source": ORIGIN_OF_TREE, "name": TREE, "found": False}
    step = recorder()
    try:
        value = data.ask(key.text, step=step)
    except HieraError as error:
        result["error"] = str(error)
        value = MISSING
    # The explanation quotes the value of each level. If any part of the key is sensitive, all values are hidden.
    if any(data.sensitive(key.root)):
        step.conceal()
        value = value if value is MISSING else hidden_at({"": value}, ("",))[""]
    if value is not MISSING:
        places = [f'level "{level}" ({path})' for level, path in step.holders()]
        result |= {"found": True, "value": printable(value), "from": places}
    return {**result, "explanation": printable(step.as_data()), "lines": str(step).splitlines()}


def _dug(key: Key, value: Any, data: BundleData) -> Any:
    """Return the part of a source's value that a key selects. Any source's annotation masks it."""
    for path in data.sensitive(key.root):
        value = value if value is ABSENT else hidden_at({key.root: value}, path)[key.root]
    return value if value is ABSENT else explain.dig(key.text, key.segments, value, SILENT)


def use_of(path: tuple[Any, ...], value: Any, data: BundleData) -> dict[str, Any]:
    """Return a fact or a key of the data that was used, with its value and its sources."""
    is_function = path[0] == "hiera"
    use: dict[str, Any] = {"name": f"hiera('{path[1]}')" if is_function else path_text(path)}
    if len(path) == 1:
        return {**use, "whole": True}
    if value is MISSING:
        return {**use, "found": False}
    use["value"] = printable(_plain(value))
    if path[0] in ("data", "hiera"):
        root = explain.parse(path[1]).root if is_function else path[1]
        use["from"] = list(_holders(data, root))
    return use


def _holders(data: BundleData, root: Any) -> Iterator[str]:
    """Yield every place that the value of a top-level key consists of, the highest first."""
    over: Any = MISSING
    for value, shows_below, places in _candidates(data, root):
        if over is not MISSING and not mergeable(over, value):
            return
        yield from places
        if not shows_below:
            return
        over = value


def _candidates(data: BundleData, root: Any) -> Iterator[tuple[Any, bool, list[str]]]:
    """Yield the value of each source for a key, whether lower sources are merged, and its places. Highest first."""
    for source in reversed(data.above):
        yield from _candidate(source, root)
    if data.tree is not None and isinstance(root, str):
        step = recorder()
        value = data.ask(explain.literal(root), step=step)
        if value is not MISSING:
            places = [f'{TREE} level "{level}" ({path})' for level, path in step.holders()]
            yield value, isinstance(value, Mapping), places
    for source in reversed(data.below):
        yield from _candidate(source, root)


def _candidate(source: DataSource, root: Any) -> Iterator[tuple[Any, bool, list[str]]]:
    if root in source.data:
        yield source.data[root], source.shows_below(root), places_of(source, root)


def _plain(value: Any) -> Any:
    """Return a value with plain mappings in it."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def explain_resource(
    catalog: Catalog,
    name: str,
    recorded: Recorder,
    state_directory: Path | None = None,
    *,
    among: Container[int] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield explanations of a resource. Empty if the catalog has no resource of this name.

    With ``among``, only resources with these indexes match. A child manifest that is applied with several data is
    explained for each of them.

    1. Find the resource by its name or alias.
    2. Add the values that its conditions and templates use to the values of its properties.
    3. Show its place and its properties, or why it cannot be applied on this machine.
    4. Show each fact and each key of the data that it has used, with value and source.
    5. Show the record of earlier runs about it.
    6. Show the resources that it is linked to.

    ``recorded`` has recorded the loading of the manifest. ``state_directory`` has the records of runs, ``None``: the
    directory of the user.
    """
    # 1. Resource.
    for index, found in enumerate(catalog.declarations):
        if name in (found.reference, *found.names()) and (among is None or index in among):
            yield _explained(catalog, index, found, recorded, state_directory)


def _explained(
    catalog: Catalog, index: int, declaration: Declaration, recorded: Recorder, state_directory: Path | None
) -> dict[str, Any]:
    # 2. Used values.
    uses = Uses()
    for place in declaration.places():
        if place.item:
            uses.values |= recorded.of(place.problems.source, (*place.path, FOR), place.home.scope).values
        uses.values |= recorded.of(place.problems.source, place.key, place.home.scope).values
    _use_templates(declaration, uses)
    # 3. Declaration.
    explained: dict[str, Any] = {"resource": str(declaration.reference), "declared": declaration.where}
    if declaration.item:
        explained["item"] = declaration.item
    if also := dict.fromkeys(place.where for place in declaration.united if place.where != declaration.where):
        explained["also_declared"] = list(also)
    if applied := applied_as(declaration):
        explained["applied"] = applied
    if declaration.failure:
        explained["failure"] = declaration.failure
    else:
        explained["properties"] = declaration.shown()
    # 4. Values and their sources.
    explained["uses"] = [use_of(path, value, declaration.home.data) for path, value in uses.values.items()]
    # 5. Records.
    if not declaration.failure and (
        record := declaration.type.on_record(declaration.properties, state_directory)
    ):
        explained["on_record"] = record
    # 6. Links.
    links = {
        "requires": [str(reference) for reference, _ in catalog.requirements(index)],
        "subscribes": [str(catalog.declarations[i].reference) for i in catalog.subscriptions(index)],
        "reloads_for": [str(catalog.declarations[i].reference) for i in catalog.reloads(index)],
        "refreshes": [_refreshed(listed) for listed in catalog.subscribers_of(index)],
        "part_of": [
            str(catalog.declarations[whole].reference)
            for whole, parts in catalog.links.parts.items()
            if index in parts
        ],
        "below": [_name(parent) for parent in declaration.parents()],
    }
    return explained | {name: references for name, references in links.items() if references}


def _refreshed(listed: str) -> str:
    reference, refresh = subscriber_of(listed)
    return f"{reference} (reload)" if refresh is Refresh.RELOAD else str(reference)


def _name(parent: Declaration) -> str:
    """Return the name of a child manifest, with its alias if it has one."""
    alias = parent.properties.alias
    return f"{parent.reference} ({alias})" if alias else str(parent.reference)


def _use_templates(declaration: Declaration, uses: Uses) -> None:
    """Record the values that conditions and templates use, which are evaluated only in a run."""
    home, properties = declaration.home, declaration.properties
    scope = uses.scope(declaration.scope, home.files)
    control = properties.control
    conditions = (control.if_, control.unless) if control else ()
    template = getattr(properties, "template", None)
    try:
        for condition in conditions:
            if isinstance(condition, str):
                evaluate(condition, scope)
        if template is not None:
            path = template if template.startswith("/") else home.files.find(template)
            engine = choose_engine(template, getattr(properties, "engine", None))
            if (data := getattr(properties, "data", None)) is not None:
                scope = over_data(scope, data, home.files)  # these data have no source
            render_file(path, engine, scope, home.files)
    except (HieraError, ResourceError):
        return  # the run reports the error


def why(event: Event) -> list[str]:
    """Return the reasons for the event of a resource, as sentences."""
    sentences = [*event.errors, *lines(event.differences, is_predicted=event.is_predicted)]
    if event.skip_reason:
        sentences.append(event.skip_reason)
    sentences += [f"{reference} did not succeed" for reference in event.unmet_requirements]
    if event.noop_message:
        sentences.append(event.noop_message)
    return sentences + event.notes or ["in sync"]
