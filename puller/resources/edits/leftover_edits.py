"""Removal of undeclared edits, based on the receipt.

* The receipt does not list a line that replaced another line, or a setting that had a value before. Their previous
  content is unknown, so they stay.
* Text that another resource requires stays, even if that resource has a new name.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from foundation.differences import Difference
from puller.errors import ResourceError
from puller.resources.base import Part
from puller.resources.edits.edit import Edit, EditState
from puller.resources.edits.file_text import Text
from puller.resources.edits.lines import Block, BlockProperties, Line, LineProperties
from puller.resources.edits.planned_edits import Made, Place, Receipts, Texts, ask, checksum_of
from puller.resources.edits.setting import Setting, SettingProperties
from puller.system.local_paths import RealPaths


class _Left(Edit[Any]):
    """A leftover edit. Only its name is given, and the desired state is ``absent``."""

    _wanted_by = ""

    def look(self) -> EditState:
        made = Receipts.of(self.context).find(self._reference)
        if made is None:
            return EditState(Place(self.properties.name, "", None, Text.missing()), None)
        texts = Texts.of(self.context)
        place = texts.at(made.path, self.context)
        predicted = texts.predicted.get(place.real)
        if predicted is not None and self._is_replaced(made, predicted):
            return EditState(place, None)
        self.properties = self.taken_back(self.properties, made, place.text)
        edited = self.edited(self.properties, place.text)
        self._wanted_by = "" if edited is None else self._requirers_of(place.text, edited.text)
        return EditState(place, None if self._wanted_by else edited)

    def _is_replaced(self, made: Made, text: Text) -> bool:
        """In noop: return whether an earlier edit of the run would have replaced it, such as a line with a pattern."""
        return self.edited(self.taken_back(self.properties, made, text), text) is None

    @classmethod
    @abstractmethod
    def taken_back(cls, properties: Any, made: Made, text: Text) -> Any:
        """Return the properties that remove the edit."""

    def _requirers_of(self, before: Text, after: Text) -> str:
        """Return the first declared edit of the file that the removal would undo, or whose place it would take."""
        real = RealPaths()
        file = real.directory(self.properties.file)
        # By the canonical path, because another resource may spell it differently.
        wanting = (
            resource
            for resource in self.context.resources()
            if issubclass(resource.type, Edit)
            and real.directory(resource.properties.file) == file
            and _wants(resource, before, after)
        )
        return next((resource.reference for resource in wanting), "")

    @property
    def _reference(self) -> str:
        return f"{self.type_name}#{self.properties.name}"

    def change(self, differences: Sequence[Difference], actual: EditState) -> None:
        super().change(differences, actual)
        Receipts.of(self.context).forget(self.properties.file, self._reference)

    def _predict(self, place: Place) -> None:
        """In noop, store the text without this part. Another leftover may be the same line."""
        texts = Texts.of(self.context)
        edited = self.edited(self.properties, texts.predicted.get(place.real, place.text))
        if edited is not None:
            texts.predicted[place.real] = edited.text

    @property
    def notes(self) -> Sequence[str]:
        return [f"{self._wanted_by} requires it, so it stays"] if self._wanted_by else ()

    @classmethod
    def whole(cls, properties: Any) -> None:
        """Return ``None``: leftovers are removed alone, because only the receipt names the file."""

    @classmethod
    def places(cls, properties: Any) -> tuple[str, ...]:
        return ()


def _wants(part: Part, before: Text, after: Text) -> bool:
    """Return whether a declared edit depends on a part that is about to be removed, or will change it.

    In a real run, another edit of the same file may already have created it. In a dry run, that edit is still pending.
    A line with a pattern may replace any matching line, and owns none of them.
    """
    if ask(part, before) is None:
        return ask(part, after) is not None
    edit = cast("type[Edit[Any]]", part.type)
    if issubclass(edit, Line):
        return False
    try:
        is_there = part.properties.ensure != "absent" and edit.finds(part.properties, before)
        return is_there and not edit.finds(part.properties, after)
    except ResourceError:
        return False


class LeftoverLine(_Left, Line):
    """A leftover line."""

    @classmethod
    def taken_back(cls, properties: LineProperties, made: Made, text: Text) -> LineProperties:
        line = next((line for line in text.lines if checksum_of(line) in made.lines), None)
        return msgspec.structs.replace(properties, path=made.path, line=line)


class LeftoverBlock(_Left, Block):
    """A leftover block."""

    @classmethod
    def taken_back(cls, properties: BlockProperties, made: Made, text: Text) -> BlockProperties:
        return msgspec.structs.replace(properties, path=made.path, marker=made.marker)


class LeftoverSetting(_Left, Setting):
    """A leftover setting."""

    @classmethod
    def taken_back(cls, properties: SettingProperties, made: Made, text: Text) -> SettingProperties:
        return msgspec.structs.replace(
            properties,
            path=made.path,
            format=made.format,
            section=made.section,
            key=made.key,
            separator=made.separator,
            continuation=made.continuation,
        )


EDITS: dict[str, type[_Left]] = {
    each.type_name: each for each in (LeftoverLine, LeftoverBlock, LeftoverSetting)
}
"""The types that remove leftover edits, by type name."""


def without_part(reference: str, made: Made, text: Text) -> Text:
    """Return a text without the part that an edit added, based on its receipt. Raises ``ResourceError``."""
    type_name, _, name = reference.partition("#")
    remover = EDITS[type_name]
    properties = remover.properties_type(name=name, ensure="absent")
    edited = remover.edited(remover.taken_back(properties, made, text), text)
    return text if edited is None else edited.text
