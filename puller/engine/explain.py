"""Why a value is what it is, and why a resource was or was not changed; ``puller explain`` shows it.

* The same code answers that a run uses: what is shown here is what happens there.
* Everything is a plain value; secrets are masked, wherever the annotation stands that makes them so.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hiera.document.layers import mergeable
from hiera.errors import HieraError, UndefinedError
from hiera.tree.context import keys
from hiera.tree.context.absent import ABSENT
from hiera.tree.context.explain import SILENT, recorder
from hiera.tree.context.keys import Key
from hiera.tree.ruby.printable import printable
from hiera.values.paths import MISSING, path_text
from hiera.values.secrets import hidden_at
from puller.data.bundle_data import BundleData
from puller.data.hiera_function import look_up
from puller.data.hiera_tree import TREE, ask_tree
from puller.data.sources import DataSource
from puller.manifest.declaration import Declaration
from puller.manifest.manifest import Manifest
from puller.manifest.recording import Recorder, Uses
from puller.reporting.report import Event

ORIGIN_OF_TREE = "bundle tree"


def explain_everywhere(manifest: Manifest, name: str) -> Iterator[dict[str, Any]]:
    """What a key is in a manifest, and in each child for which it is not the same. Raises ``HieraError``."""
    first = explain_key(manifest.data, name)
    yield first
    parents_first = sorted(manifest.declarations, key=lambda found: len(list(found.parents())))
    for data in {id(found.home.data): found.home.data for found in parents_first}.values():
        found = explain_key(data, name)
        if _outcome(found) != _outcome(first):
            yield {"manifest": data.own.name, **found}


def _outcome(found: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(found.get(part) for part in ("found", "value", "error"))


def explain_key(data: BundleData, name: str) -> dict[str, Any]:
    """The value of a key (``web.port``, ``profile::web::port``), and what each source has, the highest first.

    Raises ``HieraError`` for what is no key.
    """
    key = keys.parse(name.removeprefix("data."))
    try:
        answer: dict[str, Any] = {"found": True, "value": printable(look_up(data, key.text))}
    except UndefinedError:
        answer = {"found": False}
    except HieraError as error:
        answer = {"found": False, "error": str(error)}
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
        found |= {"found": True, "value": printable(value), "from": _places(source, key.root)}
    elif key.root in source.unresolved:
        found["error"] = source.unresolved[key.root]
    if source.document is not None and source.explanation is not None and source.document.has_hierarchy:
        found["hierarchy"] = [entry.sentence() for entry in source.explanation.entries]
        found["merge"] = source.explanation.merge
    return found


def _places(source: DataSource, root: str) -> list[str]:
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
        value = ask_tree(data.tree, key.text, step=step) if data.tree else MISSING
    except HieraError as error:
        found["error"] = str(error)
        value = MISSING
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


def explain_resource(
    manifest: Manifest, name: str, recorded: Recorder, state_directory: Path | None = None
) -> dict[str, Any] | None:
    """What a resource is declared as, and what went into it; ``None`` when the manifest has none of this name.

    ``recorded`` has watched the manifest being loaded; ``state_directory`` is where runs remember things, ``None`` for
    the user's own place.
    """
    found = next((d for d in manifest.declarations if name in map(str, d.names())), None)
    if found is None:
        return None
    uses = recorded.of(found.problems.source, found.path)
    _use_templates(found, uses)
    explained: dict[str, Any] = {"resource": str(found.reference), "declared": found.where}
    if found.failure:
        explained["failure"] = found.failure
    else:
        explained["properties"] = found.shown()
    explained["uses"] = [_use(way, value, found.home.data) for way, value in uses.values.items()]
    if not found.failure and (record := found.type.on_record(found.properties, state_directory)):
        explained["on_record"] = record
    index = manifest.declarations.index(found)
    links = {
        "requires": [str(reference) for reference, _ in manifest.requirements(index)],
        "subscribes": [str(manifest.declarations[i].reference) for i in manifest.subscriptions(index)],
        "refreshes": [str(reference) for reference in manifest.subscribers_of(index)],
        "below": [str(parent.reference) for parent in found.parents()],
    }
    return explained | {name: references for name, references in links.items() if references}


def _use_templates(declaration: Declaration, uses: Uses) -> None:
    """Note what conditions and templates ask for, too, which are looked at when the resource is applied."""
    from hiera.expressions.expressions import evaluate
    from puller.errors import ResourceError
    from puller.templates.engine import choose_engine
    from puller.templates.rendering import render_file

    home, properties = declaration.home, declaration.properties
    scope = uses.scope(home.scope, home.directory)
    control = properties.control
    conditions = (control.if_, control.unless) if control else ()
    template = getattr(properties, "template", None)
    try:
        for condition in conditions:
            if isinstance(condition, str):
                evaluate(condition, scope)
        if template is not None:
            path = home.directory / template
            engine = choose_engine(template, getattr(properties, "engine", None))
            render_file(str(path), engine, scope, home.directory)
    except (HieraError, ResourceError):
        return  # the run tells what is wrong with them


def _use(way: tuple[Any, ...], value: Any, data: BundleData) -> dict[str, Any]:
    is_function = way[0] == "hiera"
    use: dict[str, Any] = {"name": f"hiera('{way[1]}')" if is_function else path_text(way)}
    if len(way) == 1:
        return {**use, "whole": True}
    if value is MISSING:
        return {**use, "found": False}
    use["value"] = printable(_plain(value))
    if way[0] in ("data", "hiera"):
        root = keys.parse(way[1]).root if is_function else way[1]
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
        value = ask_tree(data.tree, keys.literal(root), step=step)
        if value is not MISSING:
            places = [f'{TREE} level "{level}" ({path})' for level, path in step.holders()]
            yield value, isinstance(value, Mapping), places
    for source in reversed(data.below):
        yield from _candidate(source, root)


def _candidate(source: DataSource, root: Any) -> Iterator[tuple[Any, bool, list[str]]]:
    if root in source.data:
        yield source.data[root], source.shows_below(root), _places(source, root)


def _plain(value: Any) -> Any:
    """A value with plain mappings in it."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def why(event: Event) -> list[str]:
    """Why a run did with a resource what it did, in sentences."""
    sentences = [*event.errors, *event.differences]
    if event.skip_reason:
        sentences.append(event.skip_reason)
    sentences += [f"{reference} has not succeeded" for reference in event.unmet_requirements]
    if event.noop_message:
        sentences.append(event.noop_message)
    return sentences or ["nothing differed"]
