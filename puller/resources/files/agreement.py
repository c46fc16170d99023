"""Two declarations of one file as one: TinyCM's rule, and what follows from a file having one content."""

from collections.abc import Collection, Mapping

from puller.resources.agreeing import Rule, agree
from puller.resources.files.properties import CONTENT_SOURCES, FileProperties

_HOW = ("engine", "encoding", "interpolate")
"""How a content is made; without a content they say nothing."""
_NOTHING = FileProperties(name="")


def agree_on_file(first: FileProperties, second: FileProperties) -> FileProperties:
    """The properties that both say; raises ``Contradiction``.

    Where both say what is in it, they say the same in the same way. Where one of them does, it says all of it.
    """
    return agree(first, second, exact=_exact(first, second), rules=_rules(first, second))


def _exact(first: FileProperties, second: FileProperties) -> Collection[str]:
    silent = [properties for properties in (first, second) if not _has_content(properties)]
    if not silent:
        return (*CONTENT_SOURCES, *_HOW)
    if len(silent) == 2:
        return ()
    return [name for name in _HOW if getattr(silent[0], name) != getattr(_NOTHING, name)]


def _rules(first: FileProperties, second: FileProperties) -> Mapping[str, Rule]:
    if first.template is None or first.template != second.template:
        return {}
    from puller.templates.engine import choose_engine

    template = first.template

    def engine(one: str | None, other: str | None) -> str | None:
        if choose_engine(template, one) != choose_engine(template, other):
            raise ValueError(f"{one} is not {other}")
        return one or other

    return {"engine": engine}


def _has_content(properties: FileProperties) -> bool:
    return any(getattr(properties, name) is not None for name in CONTENT_SOURCES)
