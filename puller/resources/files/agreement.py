"""Two declarations of one file as one: TinyCM's rule, and what follows from a file having one content."""

from collections.abc import Collection

from puller.resources.agreeing import Rule, agree
from puller.resources.files.properties import CONTENT_SOURCES, FileProperties
from puller.templates.engine import choose_engine

_HOW = ("engine", "encoding", "interpolate", "data")
"""How a content is made; without a content they say nothing."""
_NOTHING = FileProperties(name="")


def agree_on_file(first: FileProperties, second: FileProperties) -> FileProperties:
    """The properties that both say; raises ``Contradiction``.

    Where both say what is in it, they say the same in the same way. Where one of them does, it says all of it.
    """
    rules: dict[str, Rule] = {
        "ensure": lambda one, other: _ensure(first, second),
        "create": lambda one, other: True,  # whichever comes first, it is to be there
    }
    if first.template is not None and first.template == second.template:
        rules["engine"] = _engine(first.template)
    return agree(first, second, exact=_exact(first, second), rules=rules)


def _exact(first: FileProperties, second: FileProperties) -> Collection[str]:
    silent = [properties for properties in (first, second) if not _has_content(properties)]
    if not silent:
        return (*CONTENT_SOURCES, *_HOW)
    if len(silent) == 2:
        return ()
    return [name for name in _HOW if getattr(silent[0], name) != getattr(_NOTHING, name)]


def _ensure(first: FileProperties, second: FileProperties) -> str:
    """A file that is only to be there, with its attributes, may be one whose content is written once."""
    there = [properties for properties in (first, second) if properties.ensure == "present"]
    if {first.ensure, second.ensure} != {"present", "exists"} or _has_content(there[0]):
        raise ValueError(f"{first.ensure} is not {second.ensure}")
    return "exists"


def _engine(template: str) -> Rule:
    def rule(one: str | None, other: str | None) -> str | None:
        if choose_engine(template, one) != choose_engine(template, other):
            raise ValueError(f"{one} is not {other}")
        return one or other

    return rule


def _has_content(properties: FileProperties) -> bool:
    return any(getattr(properties, name) is not None for name in CONTENT_SOURCES)
