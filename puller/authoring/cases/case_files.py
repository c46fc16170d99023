"""Test cases of a bundle: files ``tests/*.yaml``, each with a machine and the expected resources.

* Each file is one case. Its path below ``tests`` without the suffix is the name of the case.
* The facts of a case override the facts of the known system that the case names.
* An invalid case is one failure, which lists all problems with their lines.

``docs/testing-bundles.md`` describes the format.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from foundation.formatting import did_you_mean, prefixed
from foundation.problems import KeyPath, Problem, ProblemCode
from foundation.suggestions import meant
from hiera import parsing
from hiera.errors import HieraError
from puller.authoring.cases.matchers import TAGS, Absent, has_matcher, read_as, shown
from puller.data.sources import read
from puller.errors import ConfigurationError, ManifestError
from puller.facts.fact_values import merged
from puller.facts.given_facts import facts_of, known_systems
from puller.manifest.problems import Problems
from puller.resources.base import ResourceType
from puller.resources.registry import find_type, type_names
from puller.values.common_properties import Reference
from puller.values.plain_values import explain, parse_value


def machine_facts(system: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a system, overridden by ``given``. Raises ``ValueError`` for an unknown system."""
    if system is not None and system not in known_systems():
        raise ValueError(f"is the unknown system {system!r}{did_you_mean(system, known_systems())}")
    facts: dict[str, Any] = merged({} if system is None else facts_of(system), given)
    return facts


_YAML: Final = (".yaml", ".yml")
TESTS: Final = "tests"
"""The directory of a bundle with its cases."""

SNAPSHOTS: Final = "snapshots"
"""The directory in it with the snapshots that Puller writes."""

CONTENT: Final = "content"
"""The property of a case that means the content of a file, from any source."""

ABSENT: Final = "absent"
"""Not declared for this machine, or not managed on it."""

UNMANAGED: Final = "unmanaged"
"""Declared, but not managed on this machine."""


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine, and the expected result of the bundle there."""

    os: str | None = None
    """The system whose facts it has."""
    facts: dict[str, Any] = {}
    """Merged over the facts of the system."""
    data: dict[str, Any] = {}
    """Merged over the bundle's data, as with ``--data``."""
    environ: dict[str, str] = {}
    """The environment of the bundle. The author's environment is not visible."""
    before: list[str] = msgspec.field(default=[], name="with")
    """The bundles that precede it, relative to the directory of the bundle."""
    expect: dict[str, Any] = {}
    """By reference: the properties to compare, or ``absent`` or ``unmanaged``."""
    fails: str | list[str] = []
    """Each failure contains one of these texts, and each text is in some failure."""
    tree: str = ""
    """An installed system that ``--apply`` uses as the machine, relative to the directory of the bundle."""
    snapshot: bool = False
    """Whether all resources are compared with a stored snapshot."""


class CaseFile(msgspec.Struct, frozen=True):
    """The file of a case."""

    path: Path
    shown: str
    """Path in messages: ``web/tests/web01.yaml``."""
    name: str
    """``web01``, or ``debian/web01`` in a directory below ``tests``."""


class LoadedCase(msgspec.Struct, frozen=True):
    """A valid case."""

    case: Case
    facts: dict[str, Any]
    """All facts of its machine."""
    places: Problems
    """The lines of its file."""


def find_cases(directory: Path, shown: str) -> list[CaseFile]:
    """Return the cases of the bundle in ``directory``, sorted by name.

    Raises ``OSError``, and ``ConfigurationError`` for a file whose name or kind would exclude it.
    """
    tests = directory / TESTS
    paths = (path for path in tests.rglob("*") if not _is_left_out(path, tests))
    files = sorted(path for path in paths if path.suffix.lower() in _YAML and not path.is_dir())
    for path in files:
        if path.suffix != ".yaml":
            raise ConfigurationError(
                f"{path}: is not a case",
                code=ProblemCode.UNREADABLE_SOURCE,
                expected="a name that ends in .yaml",
            )
        if not path.is_file():
            raise ConfigurationError(
                f"{path}: is not a case", code=ProblemCode.UNREADABLE_SOURCE, expected="a regular file"
            )
    return [_case_file(path, tests, Path(shown, TESTS)) for path in files]


def _is_left_out(path: Path, tests: Path) -> bool:
    parts = path.relative_to(tests).parts
    return parts[0] == SNAPSHOTS or any(part.startswith(".") for part in parts)


def _case_file(path: Path, tests: Path, shown: Path) -> CaseFile:
    name = path.relative_to(tests)
    return CaseFile(path, str(shown / name), str(name.with_suffix("")))


def load_case(file: CaseFile) -> LoadedCase:
    """Return the case in a file. Raises ``ManifestError`` with all problems, and ``PullerError`` if it cannot be
    read.
    """
    text = read(file.path)
    try:
        value = parsing.load_yaml(text, file.shown, tags=TAGS)
    except HieraError as error:
        raise ManifestError(error.problems) from None
    problems = Problems.of_text(file.shown, text)
    if not isinstance(value, dict):
        problems.add((), "is not a case", expected="a mapping with keys such as os and expect")
        problems.raise_any()
    for path, problem in _wrong(value):
        problems.note(problems.placed(problem, path))
    facts = _facts(value, problems)
    written = value.get("expect")
    expect = written if isinstance(written, dict) else {}
    expected = {name: _expected(str(name), value, problems) for name, value in expect.items()}
    problems.raise_any()
    return LoadedCase(msgspec.convert({**value, "expect": expected}, Case), facts, problems)


def _facts(value: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """Return all facts of the machine. Problems are noted."""
    system, given = value.get("os"), value.get("facts", {})
    if not isinstance(system, str | None) or not isinstance(given, dict):
        return {}  # already noted
    try:
        return machine_facts(system, given)
    except ValueError as error:
        problems.add(("os",), f"os {error}")
        return {}


def _wrong(value: dict[str, Any]) -> Iterator[tuple[KeyPath, Problem]]:
    """Yield all problems of the keys of a case, except those below ``expect``."""
    known = [field.encode_name for field in msgspec.structs.fields(Case)]
    for key in value.keys() - set(known):
        yield (
            (key,),
            Problem(code=ProblemCode.UNKNOWN_KEY, message=f"unknown key {key!r}", **meant(str(key), known)),
        )
    for mismatch in explain(Case, {key: value[key] for key in known if key in value}, "key of a case"):
        yield mismatch.path, mismatch.problem()
    for key in ("facts", "data"):
        if has_matcher(value.get(key)):
            yield (key,), _invalid(f"{key} contains a tag, which is valid in expect only")
    texts = value.get("fails", [])
    if "fails" in value and not all([texts, *texts] if isinstance(texts, list) else [texts]):
        yield ("fails",), _invalid("fails is empty, expected part of the error message")


def _invalid(message: str) -> Problem:
    return Problem(code=ProblemCode.INVALID_VALUE, message=message)


def _expected(written: str, expected: Any, problems: Problems) -> Any:
    """Return one expectation, with its values read like properties. Problems are noted."""
    place = ("expect", written)
    try:
        kind = find_type(Reference.parse(written).partition("#")[0])
    except ValueError as error:
        problems.add(place, f"expect: {error}")
        return expected
    if kind is None:
        names = meant(written.partition("#")[0], type_names())
        problems.add(place, f"{written}: unknown type", **names)
        return expected
    if expected in (ABSENT, UNMANAGED) or isinstance(expected, Absent):
        return ABSENT if isinstance(expected, Absent) else expected
    if not isinstance(expected, dict):
        what = f"expected properties, or the word {ABSENT} or {UNMANAGED}"
        problems.add(place, f"{written}: is not a valid expectation, {what}")
        return expected
    return {name: _read(kind, name, value, (*place, name), problems) for name, value in expected.items()}


def _read(kind: ResourceType, name: str, expected: Any, place: KeyPath, problems: Problems) -> Any:
    fields = property_fields(kind)
    if name == CONTENT:  # also for a type without such a property, and for a directory as a mapping
        return expected
    if name not in fields or name == "name":
        known = sorted({*fields, CONTENT} - {"name"})
        what = f"{name} is not a property of {kind.type_name}"
        problems.add(place, f"{place[1]}: {what}", **meant(name, known))
        return expected
    try:
        return read_as(expected, lambda value: _typed(fields[name].type, value))
    except (ValueError, msgspec.ValidationError) as error:
        for problem in _why(kind, name, expected, error):
            problems.note(problems.placed(prefixed(problem, str(place[1])), place))
        return expected


def _why(kind: ResourceType, name: str, expected: Any, error: Exception) -> list[Problem]:
    """Return the problems of an invalid value of a property."""
    if has_matcher(expected):
        return [_invalid(f"{name}: {shown(expected)} contains an invalid value: {error}")]
    found = explain(kind.properties_type, {name: expected}, "property")
    return [one.problem() for one in found if one.path[:1] == (name,)] or [_invalid(f"{name}: {error}")]


def property_fields(kind: ResourceType) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Return the properties of a type, by their names in manifests."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind.properties_type)}


def _typed(kind: Any, value: Any) -> Any:
    """Return a plain value in the form of the property: ``60s`` for ``1m``."""
    return msgspec.to_builtins(msgspec.convert(value, kind, dec_hook=parse_value), enc_hook=str)
