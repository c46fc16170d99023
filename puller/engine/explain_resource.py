"""Why a resource is as it is: where it is declared, what went into it, and why a run changed it or did not.

* Data is read by the code that a run uses. Conditions and templates, which a run looks at only when it applies the
  resource, are rendered once to see what they ask for.
* Everything is a plain value; secrets are masked.
"""

from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from foundation.formatting import lines
from hiera.document.layers import mergeable
from hiera.errors import HieraError
from hiera.tree.context import keys
from hiera.tree.context.explain import recorder
from hiera.tree.ruby.printable import printable
from hiera.values.paths import MISSING, path_text
from puller.data.bundle_data import BundleData
from puller.data.hiera_tree import TREE, ask_tree
from puller.data.sources import DataSource
from puller.engine.explain_data import places_of
from puller.manifest.applied import applied_as
from puller.manifest.catalog import Catalog
from puller.manifest.declaration import Declaration
from puller.manifest.entries import FOR
from puller.manifest.recording import Recorder, Uses
from puller.reporting.report import Event, State
from puller.values.refresh import Refresh, subscriber_of


def explain_resource(
    catalog: Catalog,
    name: str,
    recorded: Recorder,
    state_directory: Path | None = None,
    *,
    among: Container[int] | None = None,
) -> Iterator[dict[str, Any]]:
    """The declaration of a resource and what went into it; nothing when the catalog has none of this name.

    With ``among``, only resources with these indexes are meant.

    A child manifest that is applied with several data is explained for each of them.

    1. It is found by its name or alias.
    2. What its conditions and templates ask for is added to what its properties have asked for.
    3. Where it is declared, and its properties, or why it cannot be applied on this machine.
    4. Each fact and each key of the data that it has used, with its value and where that comes from.
    5. What runs remember of what it manages.
    6. The resources that it is linked to.

    ``recorded`` has watched the manifest being loaded; ``state_directory`` is where runs remember things, ``None`` for
    the user's own place.
    """
    # 1. Find it.
    for index, found in enumerate(catalog.declarations):
        if name in (found.reference, *found.names()) and (among is None or index in among):
            yield _explained(catalog, index, found, recorded, state_directory)


def _explained(
    catalog: Catalog, index: int, found: Declaration, recorded: Recorder, state_directory: Path | None
) -> dict[str, Any]:
    # 2. All that it uses.
    uses = Uses()
    for place in found.places():
        if place.item:
            uses.values |= recorded.of(place.problems.source, (*place.path, FOR), place.home.scope).values
        uses.values |= recorded.of(place.problems.source, place.key, place.home.scope).values
    _use_templates(found, uses)
    # 3. Its declaration.
    explained: dict[str, Any] = {"resource": str(found.reference), "declared": found.where}
    if found.item:
        explained["item"] = found.item
    if also := dict.fromkeys(place.where for place in found.united if place.where != found.where):
        explained["also_declared"] = list(also)
    if applied := applied_as(found):
        explained["applied"] = applied
    if found.failure:
        explained["failure"] = found.failure
    else:
        explained["properties"] = found.shown()
    # 4. Values and their sources.
    explained["uses"] = [_use(path, value, found.home.data) for path, value in uses.values.items()]
    # 5. What is remembered.
    if not found.failure and (record := found.type.on_record(found.properties, state_directory)):
        explained["on_record"] = record
    # 6. Links.
    links = {
        "requires": [str(reference) for reference, _ in catalog.requirements(index)],
        "subscribes": [str(catalog.declarations[i].reference) for i in catalog.subscriptions(index)],
        "reloads_for": [str(catalog.declarations[i].reference) for i in catalog.reloads(index)],
        "refreshes": [_refreshed(listed) for listed in catalog.subscribers_of(index)],
        "below": [_name(parent) for parent in found.parents()],
    }
    return explained | {name: references for name, references in links.items() if references}


def _refreshed(listed: str) -> str:
    reference, refresh = subscriber_of(listed)
    return f"{reference} (reload)" if refresh is Refresh.RELOAD else str(reference)


def _name(parent: Declaration) -> str:
    """A child manifest as it is told from the same one with other data."""
    alias = parent.properties.alias
    return f"{parent.reference} ({alias})" if alias else str(parent.reference)


def _use_templates(declaration: Declaration, uses: Uses) -> None:
    """Note what conditions and templates ask for, too, which are looked at when the resource is applied."""
    from hiera.expressions.expressions import evaluate
    from puller.errors import ResourceError
    from puller.templates.engine import choose_engine
    from puller.templates.functions import over_data
    from puller.templates.rendering import render_file

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
                scope = over_data(scope, data, home.files)  # of its own, and no source's
            render_file(path, engine, scope, home.files)
    except (HieraError, ResourceError):
        return  # the run tells what is wrong with them


def _use(path: tuple[Any, ...], value: Any, data: BundleData) -> dict[str, Any]:
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
        value = ask_tree(data.tree, keys.literal(root), step=step)
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


def why(event: Event) -> list[str]:
    """Why a run did with a resource what it did, in sentences."""
    sentences = [*event.errors, *lines(event.differences, is_predicted=event.state is State.WOULD_CHANGE)]
    if event.skip_reason:
        sentences.append(event.skip_reason)
    sentences += [f"{reference} has not succeeded" for reference in event.unmet_requirements]
    if event.noop_message:
        sentences.append(event.noop_message)
    return sentences or ["nothing differed"]
