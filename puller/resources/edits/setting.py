"""The ``setting`` resource: one value of a configuration file, by its key (``docs/resources/setting.md``).

Values are compared by type and value, and a change affects only this one. ``formats`` has the file formats.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from foundation.differences import ABSENT, Difference, changed, presence
from hiera.values import described
from puller.errors import ResourceError
from puller.resources.base import Declared, PropertyError, missing_property
from puller.resources.edits.edit import Edit, EditProperties, unsaid
from puller.resources.edits.file_text import Edited, Text, in_short, of_settings, printable
from puller.resources.edits.formats import FORMATS, Found, format_named
from puller.resources.edits.formats import Setting as DesiredSetting
from puller.resources.edits.formats.text_lines import CONTINUATIONS
from puller.resources.edits.planned_edits import Made
from puller.values.plain_values import QUOTE

_TREES = ("yaml", "toml", "json")


class SettingProperties(EditProperties, frozen=True):
    """The properties of a setting."""

    key: str | tuple[str, ...] = ""
    """The key. In yaml, toml and json, dots separate levels. A list of texts works too."""
    section: str | None = None
    """The section of an ini file. Without it: before the first section."""
    value: Any = msgspec.UNSET
    """The value. Text in ini, shell and keyvalue. Any value in yaml, toml and json."""
    format: str = ""
    """The format of the file: ``ini``, ``shell``, ``keyvalue``, ``yaml``, ``toml`` or ``json``."""
    separator: str | None = None
    """Text between key and value of a new line, by default `` = `` in ini and one blank in keyvalue."""
    continuation: str | None = None
    """The rule for values over several lines in ini and keyvalue: ``none``, ``indent`` or ``backslash``."""

    @property
    def is_tree(self) -> bool:
        """Whether values have types, and keys are paths into a tree."""
        return self.format in _TREES

    @property
    def desired(self) -> Any:
        """The desired value. In text formats, a number from an expression becomes decimal text."""
        value = self.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return str(value) if is_number and not self.is_tree else value

    @property
    def setting(self) -> DesiredSetting:
        """The setting for the functions of its format."""
        value = self.desired if self.ensure == "present" else msgspec.UNSET
        return DesiredSetting(
            key=self.key,
            section=self.section,
            value=value,
            separator=self.separator,
            continuation=self.continuation,
        )

    @property
    def identity(self) -> tuple[object, ...]:
        """The key of the setting, without the value."""
        path = tuple(self.key.split(".")) if self.is_tree and isinstance(self.key, str) else self.key
        return self.is_tree, self.section, path


class Setting(Edit[SettingProperties]):
    """A setting in a configuration file."""

    type_name = "setting"
    properties_type = SettingProperties
    unused = {"absent": frozenset({"value"})}  # noqa: RUF012  ClassVar in the base class
    secret_properties = frozenset({"value"})

    @classmethod
    def new_text(cls, properties: SettingProperties) -> Text:
        return Text.of_whole(format_named(properties.format).NEW_TEXT)

    @classmethod
    def edit(cls, properties: SettingProperties, text: Text) -> Edited | None:
        if not properties.key or properties.format not in FORMATS:  # only the state is requested
            return None
        _refuse_mark(properties, text)
        form, setting = format_named(properties.format), properties.setting
        change = form.with_value if properties.ensure == "present" else form.without
        if (whole := change(text.whole, setting)) is text.whole:
            return None
        result = form.find(text.whole, setting)
        return Edited(Text.of_whole(whole, has_mark=text.has_mark), _difference(result, properties))

    @classmethod
    def finds(cls, properties: SettingProperties, text: Text) -> bool:
        return _found(properties, text).is_there

    @classmethod
    def shown(cls, properties: SettingProperties, text: Text) -> dict[str, Any]:
        result = _found(properties, text)
        value = printable(result.value) if isinstance(result.value, str) else result.value
        return {"value": value, "line": result.line} if result.is_there else {}

    @classmethod
    def unsaid(cls, properties: SettingProperties) -> str:
        is_said = properties.key and properties.format in FORMATS
        how = "--key KEY --format FORMAT --value VALUE"
        return "" if is_said else unsaid("setting", properties.name, how)

    @classmethod
    def accept(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Return the properties unchanged. Raises ``PropertyError`` for an unquoted number in a text format."""
        value, form = raw.get("value"), raw.get("format")
        # Before expressions are replaced, because a number from an expression is valid and becomes text.
        if isinstance(value, int | float) and form in FORMATS and form not in _TREES:
            raise PropertyError(
                "value",
                f"is {described(value)}",
                because=["format"],
                expected="text",
                hint=QUOTE,
                is_unquoted=True,
            )
        return raw

    @classmethod
    def made(cls, properties: SettingProperties) -> "Made":
        return Made(
            properties.file,
            format=properties.format,
            section=properties.section,
            key=properties.key,
            separator=properties.separator,
            continuation=properties.continuation,
        )

    @classmethod
    def check(cls, properties: SettingProperties) -> Iterator[PropertyError]:
        yield from super().check(properties)
        if properties.value is msgspec.UNSET and properties.ensure == "present":
            yield missing_property(
                "value", "is missing", because=["ensure"], hint="it is required unless ensure is absent"
            )
        if not properties.key:
            yield missing_property("key")
        if properties.format not in FORMATS:
            expected = f"expected one of {', '.join(FORMATS)}"
            if properties.format:
                yield PropertyError("format", f"is {properties.format!r}, {expected}")
            else:
                yield missing_property("format", f"is missing, {expected}")
        else:
            yield from _check_company(properties)
        if properties.format in FORMATS and properties.key:
            yield from format_named(properties.format).problems(properties.setting)

    @classmethod
    def contradictions(cls, declared: Declared) -> Iterator[tuple[Any, Any, str]]:
        return of_settings(declared(cls.type_name), declared.spellings)


_FORMATS_OF = {"section": ("ini",), "separator": ("ini", "keyvalue"), "continuation": ("ini", "keyvalue")}


def _check_company(properties: SettingProperties) -> Iterator[PropertyError]:
    """Yield errors of properties that only some formats have."""
    for name, formats in _FORMATS_OF.items():
        if getattr(properties, name) is not None and properties.format not in formats:
            detail = f"is only for {' and '.join(formats)}, and format is {properties.format}"
            yield PropertyError(name, detail, because=["format"])
    if properties.continuation is not None and properties.continuation not in CONTINUATIONS:
        expected = f"is {properties.continuation!r}, expected one of {', '.join(CONTINUATIONS)}"
        yield PropertyError("continuation", expected)


def _found(properties: SettingProperties, text: Text) -> Found:
    if not text.exists or not properties.key or properties.format not in FORMATS:
        return Found(is_there=False)
    _refuse_mark(properties, text)
    return format_named(properties.format).find(text.whole, properties.setting)


def _refuse_mark(properties: SettingProperties, text: Text) -> None:
    """Raise ``ResourceError`` for a byte order mark in a format whose readers treat it as part of the first key."""
    if text.has_mark and properties.format != "ini":
        raise ResourceError(
            f"the document begins with a byte order mark, which is not {properties.format}", hint="remove it"
        )


def _difference(result: Found, properties: SettingProperties) -> Difference:
    is_present = properties.ensure == "present"
    if not is_present or not result.is_there:
        return presence(ABSENT if is_present else "present", properties.ensure)
    desired, current = in_short(properties.desired), in_short(result.value)
    is_repeated = current == desired
    return changed("value", f"{current} and another value before it" if is_repeated else current, desired)
