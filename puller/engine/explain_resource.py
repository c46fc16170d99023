"""Why a resource is as it is: where it is declared, what went into it, and why a run changed it or did not.

* Data is read by the code that a run uses. Conditions and templates, which a run looks at only when it applies the
  resource, are rendered once to see what they ask for.
* Everything is a plain value; secrets are masked.
"""

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from foundation.formatting import lines
from hiera.errors import HieraError
from hiera.expressions.expressions import evaluate
from puller.engine.explain_data import use_of
from puller.errors import ResourceError
from puller.manifest.applied import applied_as
from puller.manifest.catalog import Catalog
from puller.manifest.declaration import Declaration
from puller.manifest.entries import FOR
from puller.manifest.recording import Recorder, Uses
from puller.reporting.report import Event
from puller.templates.engine import choose_engine
from puller.templates.functions import over_data
from puller.templates.rendering import render_file
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
    explained["uses"] = [use_of(path, value, found.home.data) for path, value in uses.values.items()]
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


def why(event: Event) -> list[str]:
    """Why a run did with a resource what it did, in sentences."""
    sentences = [*event.errors, *lines(event.differences, is_predicted=event.is_predicted)]
    if event.skip_reason:
        sentences.append(event.skip_reason)
    sentences += [f"{reference} has not succeeded" for reference in event.unmet_requirements]
    if event.noop_message:
        sentences.append(event.noop_message)
    return sentences or ["nothing differed"]
