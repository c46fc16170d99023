"""The files in which two versions of a bundle differ: their contents, their modes, or that they are there."""

from dataclasses import dataclass
from typing import Self

from bundles.format.description import BundleDescription

_LIBRARIES = "libraries"
"""The directory of a packed bundle that has a directory for each library."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths of files, sorted. Those of a library, which other bundles may have too, begin with ``libraries/NAME/``."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    @classmethod
    def between(cls, before: BundleDescription, after: BundleDescription) -> Self:
        """From what ``before`` lists to what ``after`` does, whatever versions they state."""
        old = {path.text: entry for path, entry in before.files.items()}
        new = {path.text: entry for path, entry in after.files.items()}
        return cls(
            added=tuple(sorted(new.keys() - old.keys())),
            removed=tuple(sorted(old.keys() - new.keys())),
            changed=tuple(sorted(path for path in old.keys() & new.keys() if old[path] != new[path])),
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries that have changed, by name."""
        names = map(_library_of, (*self.added, *self.removed, *self.changed))
        return tuple(sorted({name for name in names if name is not None}))

    def own(self) -> "Changes":
        """The part of these that is in no library."""
        return Changes(_own(self.added), _own(self.removed), _own(self.changed))


def _own(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if _library_of(path) is None)


def _library_of(path: str) -> str | None:
    directory, *rest = path.split("/")
    return rest[0] if directory == _LIBRARIES and len(rest) > 1 else None
