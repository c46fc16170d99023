"""Edits of files: one read and one write of each file, for any number of lines, blocks and settings.

* Each edit changes the text in memory. If any edit is out of sync, the new text is validated once and written
  atomically. Owner, group, mode and labels of an existing file stay.
* A file is not written if another process has changed it since it was read.
"""

import os
import re
import stat
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Self, TypeVar

import msgspec

from bundles.filesystem.trees import needing
from foundation.differences import ABSENT, Difference, presence, secret, unified
from foundation.problems import ProblemCode
from puller.errors import ChangedMeanwhile, ResourceError
from puller.resources.base import Context, Properties, PropertyError, Resource
from puller.resources.claims import Claim, EditedPlace, Use
from puller.resources.edits.file_text import Edited, Text, printable
from puller.resources.edits.planned_edits import Made, Place, Plan, Receipts, Texts
from puller.resources.paths import check_path, group_id, require_parent, user_id
from puller.resources.tool import Validation, check_validate
from puller.system.local_paths import refuse_mounted
from puller.system.protocol import Attributes
from puller.values.file_mode import FileMode

_NEW_MODE = 0o644


class EditProperties(Properties, frozen=True):
    """The common properties of edits."""

    path: str = ""
    """The file. The default is the name, if it is an absolute path."""
    create: bool = False
    """Create a missing file, but not its directory."""
    owner: str | int | None = None
    """Owner of a file that this edit creates: name, or numeric id. The default is the user that runs Puller."""
    group: str | int | None = None
    """Group of a file that this edit creates: name, or numeric id. The default is the group that runs Puller."""
    mode: FileMode | None = None
    """Mode of a file that this edit creates, by default 0644."""
    validate: str | None = None
    """A command that validates the new file. ``{}`` is its path."""
    validate_in_place: bool = False
    """Run ``validate`` with the new file at its final path, in a private mount namespace. Requires root."""

    @property
    def file(self) -> str:
        """The path of the file."""
        return self.path or self.name

    @property
    def validation(self) -> "Validation | None":
        """The validation of new content, if declared."""
        if self.validate is None:
            return None

        return Validation(self.validate, self.validate_in_place, self.provider == "shell")


def unsaid(kind: str, name: str, options: str) -> str:
    """Return why the state of an edit cannot be shown by its file alone."""
    asking = f"puller ensure {kind} {name} {options} --noop"
    return f"a file has many of them, and the address does not identify a {kind}. `{asking}` reports whether it exists"


class EditState(msgspec.Struct, frozen=True):
    """The file, and the result of the edit. ``None``: the edit is in sync."""

    place: Place
    edited: Edited | None


P = TypeVar("P", bound=EditProperties)


class Edit(Resource[P, EditState]):
    """An edit of a part of a file. Subclasses define the part."""

    providers = ("posix", "shell")
    command_lines = frozenset({"validate", "health_checks"})

    # Methods of the types

    @classmethod
    @abstractmethod
    def edit(cls, properties: Any, text: Text) -> Edited | None:
        """Return the text after the edit. ``None`` if it is in sync. Raises ``ResourceError``."""

    @classmethod
    @abstractmethod
    def finds(cls, properties: Any, text: Text) -> bool:
        """Return whether a text contains the edited part, in any form. Raises ``ResourceError``."""

    @classmethod
    @abstractmethod
    def shown(cls, properties: Any, text: Text) -> dict[str, Any]:
        """Return the edited part of a text as plain values (``puller state``). Raises ``ResourceError``."""

    @classmethod
    @abstractmethod
    def made(cls, properties: Any) -> Made:
        """Return the receipt for the removal of the edit."""

    @classmethod
    def new_text(cls, properties: Any) -> Text:
        """Return the text of a new file before the first edit."""
        del properties
        return Text((), is_ended=True)

    # Current state

    @classmethod
    def edited(cls, properties: Any, text: Text) -> Edited | None:
        """Return the text after the edit of a file that may be missing. Raises ``ResourceError``."""
        if not text.exists and properties.ensure == "absent":
            return None
        if not text.exists and not properties.create:
            raise _Missing(
                f"{properties.file} does not exist (create: true creates it)", code=ProblemCode.CHANGE_REFUSED
            )
        try:
            return cls.edit(properties, text if text.exists else cls.new_text(properties))
        except ResourceError as error:
            raise ResourceError(f"{properties.file}: {error}", code=error.code) from None

    def look(self) -> EditState:
        properties, context = self.properties, self.context
        place = Texts.of(context).at(properties.file, context)
        if context.noop and place.text.exists and not context.system.exists(properties.file):
            # An earlier resource would have removed the file.
            return EditState(place, self.edited(properties, Text.missing()))
        try:
            edited = self._asked(place)
        except _Missing:
            if not _is_brought(properties.file, context):
                raise
            edited = Edited(place.text, presence(ABSENT, properties.ensure))
        return EditState(place, edited)

    def _asked(self, place: Place) -> Edited | None:
        plan = _plan(place, self.context)
        if plan.knows(self.properties):
            return plan.asked(self.properties, noop=self.context.noop)
        return self.edited(self.properties, place.text)

    def differences(self, actual: EditState, *, refresh: bool = False) -> Sequence[Difference]:
        if actual.edited is None:
            return ()
        difference = actual.edited.difference
        is_shown = difference.property == "ensure" or not self.properties.sensitive
        return [difference if is_shown else secret(difference.property)]

    def final_ensure(self, actual: EditState) -> str:
        if actual.edited is None:
            return self.properties.ensure
        return "present" if self.is_there(actual) else "absent"

    def is_there(self, actual: EditState) -> bool:
        text = actual.place.text
        try:
            return text.exists and self.finds(self.properties, text)
        except ResourceError:  # an unknown state does not count as missing
            return True

    @classmethod
    def edited_file(cls, properties: Any) -> str:
        file: str = properties.file
        return file

    def edited_place(self, actual: EditState) -> EditedPlace:
        place = actual.place
        return EditedPlace(place.path, place.real, place.text.data if place.text.exists else None)

    @classmethod
    def edited_content(cls, properties: Any, content: bytes | None) -> bytes | None:
        edited = cls.edited(properties, Text.missing() if content is None else Text.of(content))
        return None if edited is None else edited.text.data

    @classmethod
    def finds_part(cls, properties: Any, content: bytes) -> bool:
        return cls.finds(properties, Text.of(content))

    def changed_paths(self, actual: EditState) -> Iterator[str]:
        yield actual.place.real

    def describe(self, actual: EditState) -> dict[str, Any]:
        text = actual.place.text
        ensure = "present" if self.is_there(actual) else "absent"
        described = {"ensure": ensure, "path": actual.place.path, "exists": text.exists}
        return described if self.properties.sensitive else {**described, **self.shown(self.properties, text)}

    # Changes

    @classmethod
    def whole(cls, properties: Any) -> Hashable:
        return whole_of(properties.file)

    def change(self, differences: Sequence[Difference], actual: EditState) -> None:
        self.change_together([(self, actual)])

    @classmethod
    def change_together(cls, members: Sequence[tuple[Self, EditState]]) -> None:
        """Apply the edits to one text, and write it (``docs/resources/line.md``).

        Raises ``OSError`` and ``ResourceError``.

        1. Edit. Skip edits that fail now. They report the failure when their state is read again.
        2. Refuse files that must not be written.
        3. Compare the file with the text that was read, because timestamps may be too coarse.
        4. Record the edits in the receipt, for their later removal.
        5. Validate with all declared commands, and write.
        """
        (first, actual), *_ = members
        context, place = first.context, actual.place
        # 1. Edit
        if (made := _made(members)) is place.text:
            return
        # 2. Refuse
        validations = _validations(members)
        _refuse(place, context, validations)
        attributes = _attributes(place, members)
        # 3. Compare
        if place.found is not None and context.system.read(place.real, place.found) != place.text.data:
            raise ChangedMeanwhile(f"{place.path}: another process changed it while Puller inspected it")
        # 4. Record
        _note(members)
        # 5. Write
        _write(made.data, place, attributes, context, validations)

    def noop_message(self, differences: Sequence[Difference], actual: EditState) -> str:
        validations = _validations([(self, actual)])
        _refuse(actual.place, self.context, validations)
        _attributes(actual.place, [(self, actual)])
        self.context.system.expect(actual.place.path, "file")
        self._predict(actual.place)
        return f"Would have changed {actual.place.path}" + (" (not validated)" if validations else "")

    def _predict(self, place: Place) -> None:
        """In noop, store the text of this write, which includes all edits of the file."""
        plan = _plan(place, self.context)
        if plan.knows(self.properties):
            Texts.of(self.context).predicted[place.real] = plan.final

    @classmethod
    def diff_together(cls, members: Sequence[tuple[Self, EditState]]) -> str | None:
        (first, actual), *_ = members
        place = actual.place
        if _plan(place, first.context).is_secret:
            return None
        try:
            made = _made(members)
        except ResourceError:  # in noop, the file may not exist yet; otherwise the change reports the error
            return None
        if made is place.text:
            return None
        return unified(_printable(place.text), _printable(made), place.path)

    # Loading of the manifest

    @classmethod
    def check(cls, properties: Any) -> Iterator[PropertyError]:
        if properties.ensure not in ("present", "absent"):
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present or absent")
        yield from _check_file(properties)
        yield from _check_attributes(properties)
        if properties.validate is not None or properties.validate_in_place or properties.provider == "shell":
            yield from check_validate(
                properties.validate, in_place=properties.validate_in_place, provider=properties.provider
            )

    @classmethod
    def claims(cls, properties: Any) -> Iterator[Claim]:
        if not properties.file.startswith("/"):
            return

        def lines() -> tuple[str, ...]:
            return _lines_after(cls, properties, cls.new_text(properties))

        def removes(line: str) -> bool:
            return line not in _lines_after(cls, properties, Text((line,), is_ended=True))

        use = Use.PART if properties.ensure == "present" else Use.REMOVED_PART
        yield Claim(
            properties.file,
            use,
            properties.owner,
            properties.group,
            properties.mode,
            editor="edit",
            lines=lines,
            removes=removes,
        )

    @classmethod
    def places(cls, properties: Any) -> tuple[str, ...]:
        return (properties.file,) if properties.file.startswith("/") else ()

    @classmethod
    def is_whole(cls, properties: Any) -> bool:
        return False


def _lines_after(kind: type[Edit[Any]], properties: Any, text: Text) -> tuple[str, ...]:
    """Return the lines of a text after an edit. Unchanged if the edit fails or is in sync."""
    try:
        edited = kind.edit(properties, text)
    except (ResourceError, re.error):  # its own resource reports the error, or ``check`` the pattern
        edited = None
    return tuple((edited.text if edited else text).lines)


class _Missing(ResourceError):
    """The file does not exist."""


def whole_of(path: str) -> Hashable:
    """Return the common key of all edits of a file: its path as written, with unresolved links."""
    return ("edits", path)


def _plan(place: Place, context: Context) -> Plan:
    """Return the plan for all edits of a file. Cached for each text."""
    plans = Texts.of(context).plans
    known = plans.get(place.path)
    if known is None or known[0] is not place.text:
        plan = Plan(place.text, context.parts(whole_of(place.path)))
        plans[place.path] = known = (place.text, plan)
    return known[1]


def _is_brought(path: str, context: Context) -> bool:
    """In noop: return whether an earlier resource would have created the file, or a link to it."""
    system = context.system
    return context.noop and (system.will_be_written(path) or system.exists(path) or context.uncertain(path))


def _made(members: Sequence[tuple[Edit[Any], EditState]]) -> Text:
    """Return the text after all possible edits. Raises the first ``ResourceError`` if all of them fail."""
    (_, actual), *_ = members
    text, failures = actual.place.text, []
    for resource, _ in members:
        try:
            edited = resource.edited(resource.properties, text)
        except ResourceError as failure:
            failures.append(failure)
        else:
            text = text if edited is None else edited.text
    if failures and text is actual.place.text:
        raise failures[0]
    return text


def _note(members: Sequence[tuple[Edit[Any], EditState]]) -> None:
    """Record new edits, and changes of recorded edits."""
    (first, actual), *_ = members
    made: dict[str, Made] = {}
    changed: dict[str, Made] = {}
    for resource, found in members:
        properties = resource.properties
        if properties.ensure == "present":
            group = changed if resource.is_there(found) else made
            group[f"{resource.type_name}#{properties.name}"] = resource.made(properties)
    Receipts.of(first.context).note(actual.place.path, made, changed)


def _validations(members: Sequence[tuple[Edit[Any], EditState]]) -> "list[Validation]":
    """Return the distinct validations of all edits that change the file or are in sync with it."""
    (first, actual), *_ = members
    content = _plan(actual.place, first.context).content
    requested = [*(resource.properties for resource, _ in members), *content]
    return list(dict.fromkeys(item.validation for item in requested if item.validate is not None))


def _refuse(place: Place, context: Context, validations: "Sequence[Validation]") -> None:
    """Raise ``ResourceError`` for a file that must not be written, so that noop reports it."""
    if place.found is None:
        require_parent(place.path, context)
    else:
        refuse_mounted(place.real, "replaced")
        if place.found.st_nlink > 1:
            names = f"has {place.found.st_nlink} names (hard links), so it may be a file of another user"
            raise ResourceError(f"{place.path}: {names}, and is not edited", code=ProblemCode.CHANGE_REFUSED)
    for validation in validations:
        validation.require_possible(context)


def _write(
    data: bytes,
    place: Place,
    attributes: Attributes,
    context: Context,
    validations: "Sequence[Validation]",
) -> None:
    is_secret = _plan(place, context).is_secret
    verifiers = [validation.verifier(place.real, context, secret=is_secret) for validation in validations]

    def verify(copy: str) -> None:
        for verifier in verifiers:
            verifier(copy)

    Texts.of(context).forget()
    with needing(len(data)):
        context.system.replace_file(
            place.real, [data], attributes, place.found, verify=verify if verifiers else None
        )


def _attributes(place: Place, members: Sequence[tuple[Edit[Any], EditState]]) -> Attributes:
    """Return the attributes of the file after the write. A new file has those of the edits that create it.

    The manifest rejects edits with different attributes. Raises ``ResourceError`` for an unknown user or group.
    """
    status = place.found
    if status is None:
        context = members[0][0].context
        creators = [resource.properties for resource, _ in members if resource.properties.create]
        owner, group, mode = (
            next((value for item in creators if (value := getattr(item, name)) is not None), None)
            for name in ("owner", "group", "mode")
        )
        return Attributes(
            os.geteuid() if owner is None else user_id(owner, context),
            os.getegid() if group is None else group_id(group, context),
            _NEW_MODE if mode is None else mode.over(FileMode.NEW_FILE),
        )
    return Attributes(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))


def _printable(text: Text) -> bytes:
    """Return the text with escapes for bytes that are not UTF-8."""
    return printable(text.whole).encode("utf-8")


def _check_file(properties: Any) -> Iterator[PropertyError]:
    if not properties.file.startswith("/") and not properties.path:
        expected = "an absolute path where path is not given"
        yield PropertyError("name", f"is {properties.name!r}", because=["path"], expected=expected)
        return
    yield from check_path("path" if properties.path else "name", properties.file)
    if properties.file == "/":
        yield PropertyError("path" if properties.path else "name", "is '/', which is not a file")


def _check_attributes(properties: Any) -> Iterator[PropertyError]:
    for name in ("owner", "group", "mode"):
        if getattr(properties, name) is not None and not properties.create:
            hint = "set create: true, or declare the attributes of the file with a file resource"
            yield PropertyError(name, "is only for a file that is created", because=["create"], hint=hint)
    if properties.mode is not None and properties.mode.gives_set_id:
        yield PropertyError("mode", f"is {str(properties.mode)!r}", expected="a mode without set-id bits")
