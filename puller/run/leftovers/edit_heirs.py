"""Edits of one object that several resources declare under different names, for example in two bundles.

* The *owner* is the resource with the receipt of the created part. An *heir* is another resource that declares the same
  line, block or setting. The record does not state yet how its object was created.
* When the owner is not declared any longer, an heir whose bundle has passed its trial gets the receipt and becomes the
  owner.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from puller.engine.transactions import is_managed
from puller.manifest.declaration import Declaration
from puller.resources.base import Part
from puller.resources.edits.edit import EditProperties
from puller.resources.edits.planned_edits import Made, Receipt, Receipts

_TREES = ("yaml", "toml", "json")


class Heir(NamedTuple):
    """A declared edit of an object that another resource has created."""

    bundle: str
    reference: str
    file: str
    owner_file: str
    """The file in the spelling of the owner."""


class Inheritance:
    """The owners and heirs of one run. ``state`` is the state directory. Methods raise ``OSError``."""

    def __init__(self, state: Path, *, noop: bool = False) -> None:
        self._receipts = Receipts(state, noop=noop)

    @staticmethod
    def edits_in(bundle: str, declarations: Iterable[Declaration]) -> Iterator[tuple[str, Part]]:
        """Yield the managed edits of files among the declarations of a bundle, each with the bundle."""
        for declaration in declarations:
            if isinstance(declaration.properties, EditProperties) and is_managed(declaration):
                yield bundle, Part(declaration.reference, declaration.type, declaration.properties)

    def heirs(
        self,
        edits: Sequence[tuple[str, Part]],
        is_owner: Callable[[str], bool],
        canonical: Callable[[str], str],
    ) -> dict[str, list[Heir]]:
        """Return the heirs by owner. ``edits`` have an unknown origin.

        Files are compared in their ``canonical`` form, because two bundles may spell one path differently.
        """
        result: dict[str, list[Heir]] = {}
        receipts: dict[str, list[Receipt]] = {}
        for receipt in self._receipts.all() if edits else ():
            receipts.setdefault(canonical(receipt.path), []).append(receipt)
        for bundle, edit in edits:
            reference, file = str(edit.reference), edit.properties.file
            edited = _object_of(edit.type.made(edit.properties))  # type: ignore[attr-defined]  # it is an edit
            for receipt in receipts.get(canonical(file), ()):
                for owner, made in receipt.edits.items():
                    if owner != reference and _object_of(made) == edited and is_owner(owner):
                        result.setdefault(owner, []).append(Heir(bundle, reference, file, receipt.path))
        return result

    def copy(self, owner: str, heir: Heir) -> None:
        """Copy the receipt of the owner to an heir."""
        made = self._receipts.edits_of(heir.owner_file).get(owner)
        if made is not None:
            made = msgspec.structs.replace(made, path=heir.file)
            self._receipts.note(heir.file, {heir.reference: made}, {})

    def forget(self, owner: str, heir: Heir) -> None:
        """Remove the receipt of the former owner."""
        self._receipts.forget(heir.owner_file, owner)


def _object_of(made: Made) -> Hashable:
    """Return the object of a receipt, without its value."""
    is_tree = made.format in _TREES
    path = tuple(made.key.split(".")) if is_tree and isinstance(made.key, str) else made.key
    return made.lines[-1:], made.marker, is_tree, made.section, path
