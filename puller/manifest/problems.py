"""Problems of one text, collected until the whole text is checked, and the decoding of properties.

* Places are paths of keys. Lines are computed only for a problem, from a second parse of the text.
* Properties are decoded as a whole. If this fails, each part is checked separately, to find all problems and describe
  each in its own sentence.
* Puller's own types are parsed by their ``parse``, which msgspec calls through ``parse_value``.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Unpack

import msgspec

from foundation.masking import mask_urls
from foundation.problems import NOWHERE, KeyPath, Location, Problem, ProblemCode
from hiera import parsing
from hiera.values import Secret
from puller.errors import Fields, ManifestError
from puller.resources.base import Properties, PropertyError, ResourceType
from puller.values.plain_values import explain, fits, item_type, key_type, members, parse_value


class Problems(msgspec.Struct):
    """Collects the problems of one text. ``source`` is its name in messages."""

    source: str
    locate: Callable[[Sequence[str | int]], tuple[int, int]]
    """Line and column of the value at a path."""
    original: Callable[[Sequence[str | int]], str | None]
    """The scalar at a path as it was written."""
    text: str = ""
    mask: Callable[[str], str] = mask_urls
    """Removes secrets from a message."""
    is_rendered: bool = False
    """Whether a template has made the text."""
    _noted: list[Problem] = []

    @classmethod
    def of_text(cls, source: str, text: str) -> "Problems":
        """Return a collector for a YAML text."""
        return cls(
            source,
            lambda path: parsing.locate(text, path),
            lambda path: parsing.original(text, path),
            text,
        )

    def add(
        self,
        path: KeyPath,
        message: str,
        subject: str = "",
        code: ProblemCode = ProblemCode.INVALID_MANIFEST,
        **fields: Unpack[Fields],
    ) -> None:
        """Note a problem with the value at ``path``. ``subject`` is the resource that it belongs to."""
        self._noted.append(self.problem(path, message, subject, code, **fields))

    def problem(
        self,
        path: KeyPath,
        message: str,
        subject: str = "",
        code: ProblemCode = ProblemCode.INVALID_MANIFEST,
        **fields: Unpack[Fields],
    ) -> Problem:
        """Return a problem with the value at ``path``, without secrets."""
        return self.placed(Problem(code=code, message=message, subject=subject, **fields), path)

    def placed(self, problem: Problem, path: KeyPath) -> Problem:
        """Return a problem at the place of a path in this text, without secrets."""
        masked = problem.map_texts(self.mask)
        return msgspec.structs.replace(masked, location=self.location(path), entry=entry_of(path))

    def note(self, problem: Problem) -> None:
        """Note a problem that is placed already."""
        self._noted.append(problem)

    def location(self, path: KeyPath) -> Location:
        """Return the place of a path."""
        line, column = self.locate(path)
        return Location(self.source, line, column, tuple(path))

    def where(self, path: KeyPath) -> str:
        """Return ``file:line`` of a path."""
        return f"{self.source}:{self.locate(path)[0]}"

    def line(self, number: int) -> str:
        """Return one line of the text, from 1. Empty outside of the text."""
        lines = self.text.splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""

    @property
    def any(self) -> bool:
        """Whether a problem was noted."""
        return bool(self._noted)

    def all(self) -> list[Problem]:
        """Return the problems in the order of lines. A problem of all items of a loop is one."""
        ordered = sorted(self._noted, key=lambda problem: problem.location.line)
        first: dict[object, Problem] = {}
        for problem in ordered:
            first.setdefault(_identity(problem), problem)
        return list(first.values())

    def raise_any(self) -> None:
        """Raise ``ManifestError`` if a problem was noted."""
        if self._noted:
            raise ManifestError(self.all())


class UnplacedProblems(Problems):
    """The problems of a value outside of files, such as a command line: without location and entry."""

    @classmethod
    def of(cls, source: str) -> "UnplacedProblems":
        """Return a collector for a value with the name ``source`` in messages."""
        return cls(source, lambda path: (0, 0), lambda path: None)

    def placed(self, problem: Problem, path: KeyPath) -> Problem:
        """Return the problem without place and secrets."""
        return msgspec.structs.replace(super().placed(problem, path), location=NOWHERE, entry="")

    def where(self, path: KeyPath) -> str:
        """Return the name of the source."""
        del path
        return self.source


def _identity(problem: Problem) -> object:
    """Return equal values for two reports of one mistake."""
    if not problem.name:
        return problem
    return problem.code, problem.location, problem.subject, problem.property, problem.name


def entry_of(path: KeyPath) -> str:
    """Return the entry of the list of resources that a path leads through: ``resources[3]``. Empty for another path."""
    for key, number in zip(("resources", *path), path, strict=False):
        if isinstance(number, int):
            return f"resources[{number}]" if key == "resources" else ""
    return ""


# Decoding of properties.


def decode(resource_type: ResourceType, raw: Mapping[str, Any]) -> Properties:
    """Return the typed properties of a resource. Raise ``msgspec.ValidationError`` for the first problem."""
    return msgspec.convert(raw, resource_type.properties_type, dec_hook=parse_value)


def find_problems(resource_type: ResourceType, raw: Mapping[str, Any]) -> Iterator[PropertyError]:
    """Yield an error for every property of a resource that is unknown, missing, or does not decode."""
    for mismatch in explain(resource_type.properties_type, raw, f"property of {resource_type.type_name}"):
        yield PropertyError(
            mismatch.key,
            f"{mismatch.inner_key} {mismatch.message}" if mismatch.inner_key else mismatch.message,
            place=mismatch.path[1:],
            code=mismatch.code,
            names=mismatch.names,
            expected=mismatch.expected,
            hint=mismatch.hint,
            is_unquoted=mismatch.is_unquoted,
            shows_value=mismatch.shows_value,
        )


def as_texts(resource_type: ResourceType, raw: dict[str, Any], provided: Mapping[str, Any]) -> None:
    """Convert each number from an expression to decimal text where the type only accepts text.

    ``provided`` has the original texts of these properties. Permissions are octal, so they are never converted.
    """
    fields = {
        field.encode_name: field.type for field in msgspec.structs.fields(resource_type.properties_type)
    }
    for key, written in provided.items():
        if key in fields:
            raw[key] = _as_text(fields[key], raw[key], written)


def _as_text(kind: Any, value: Any, written: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_text = isinstance(written, str) and not {str, Secret}.isdisjoint(members(kind))
        return str(value) if is_text and not fits(kind, value) else value
    if isinstance(value, list) and isinstance(written, list):
        of = item_type(kind, list)
        return [_as_text(of, *pair) for pair in zip(value, written, strict=True)]
    if isinstance(value, dict) and isinstance(written, dict):
        return {key: _as_text(key_type(kind, key), item, written[key]) for key, item in value.items()}
    return value


def decode_known(resource_type: ResourceType, raw: Mapping[str, Any], unknown: Container[str]) -> Properties:
    """Return the properties of a resource, of which some are ``unknown``: these are as written, or have their defaults.

    If they cannot be decoded, return only the properties of all types: the name and the requirements.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(resource_type.properties_type)}
    known = {
        key: value
        for key, value in raw.items()
        if key not in unknown or (key in fields and fits(fields[key].type, value))
    }
    # A missing required property would prevent the decoding of all others. Its failure is on record.
    missing = (key for key, field in fields.items() if field.required and key not in known)
    try:
        return decode(resource_type, {**dict.fromkeys(missing, ""), **known})
    except msgspec.ValidationError:
        return _decode_common(raw)


def _decode_common(raw: Mapping[str, Any]) -> Properties:
    common = {
        field.name: msgspec.convert(raw[field.encode_name], field.type, dec_hook=parse_value)
        for field in msgspec.structs.fields(Properties)
        if field.encode_name in raw and fits(field.type, raw[field.encode_name])
    }
    return Properties(**{**common, "name": str(raw.get("name"))})


def value_at(value: Any, path: KeyPath) -> Any:
    """Return the value at a path, or ``None``."""
    for key in path:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return None
    return value
