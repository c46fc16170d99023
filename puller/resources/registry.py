"""Resource types by name: our own, and those that other distributions bring by the entry point ``puller.resources``."""

from functools import cache
from importlib import import_module
from typing import cast

from puller.resources.base import ResourceType

ENTRY_POINT = "puller.resources"

_OWN = {
    "archive": "puller.resources.archive:Archive",
    "exec": "puller.resources.exec:Exec",
    "file": "puller.resources.file:File",
    "package": "puller.resources.package:Package",
    "scaffold": "puller.resources.scaffold:Scaffold",
    "service": "puller.resources.service:Service",
}


@cache
def find_type(name: str) -> ResourceType | None:
    """The type of this name, imported when first asked for; ``None`` when there is none."""
    if (own := _OWN.get(name)) is not None:
        module, _, attribute = own.partition(":")
        return cast(ResourceType, getattr(import_module(module), attribute))
    from importlib.metadata import entry_points  # slow, and only needed for what is not ours

    point = next(iter(entry_points(group=ENTRY_POINT, name=name)), None)
    return None if point is None else cast(ResourceType, point.load())


def type_names() -> list[str]:
    """All names that ``find_type`` knows."""
    from importlib.metadata import entry_points

    return sorted({*_OWN, *(point.name for point in entry_points(group=ENTRY_POINT))})
